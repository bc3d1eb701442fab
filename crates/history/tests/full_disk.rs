//! A disk that fails ends and blocks nothing: it goes on, counts, and recovers.

#![allow(clippy::unwrap_used, reason = "it is a test")]

mod common;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{SOON, home, host_event, name, open, options, started, until, watched};
use defib_core::{Goal, RunId};
use defib_history::{
    Event, EventFilter, History, HistoryError, Intent, Options, Reader, Store, Trouble,
};

/// A file system of a few megabytes, until it is dropped.
struct Small(PathBuf);

impl Small {
    /// Nothing where we may not mount.
    fn mount(folder: &Path) -> Option<Small> {
        let at = folder.join("small");
        fs::create_dir(&at).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "none"]).arg(&at).output();
        mounted.is_ok_and(|done| done.status.success()).then_some(Small(at))
    }

    /// Takes all the room that is left.
    fn fill(&self) {
        let mut filler = fs::File::create(self.0.join("filler")).unwrap();
        for block in [vec![0; 65_536], vec![0; 512]] {
            while filler.write_all(&block).is_ok() {}
        }
    }

    fn empty(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

fn seqs(path: &Path) -> Vec<Event> {
    Reader::open(path).unwrap().events(&EventFilter::default()).unwrap()
}

/// Checks that every number is there, or in a gap that says how many were lost.
fn every_number_is_accounted_for(events: &[Event], last: u64, lost: u64) {
    let (mut next, mut gaps) = (1, 0);
    for event in events {
        assert_eq!(event.seq, next, "a number is missing");
        next += 1;
        if event.kind == "output-lost" {
            assert_eq!(event.body.entries()["what"], "history");
            let count = event.body.entries()["events"].as_u64().unwrap();
            assert_eq!(event.body.entries()["last_seq"], event.seq + count - 1);
            next = event.seq + count;
            gaps += count;
        }
    }
    assert_eq!((next - 1, gaps), (last, lost));
}

#[test]
fn a_full_disk_is_survived_counted_said_and_left_behind() {
    let (folder, _) = home();
    let Some(small) = Small::mount(folder.path()) else {
        eprintln!("not allowed to mount a tmpfs: the test of a locked file has to do");
        return;
    };
    let path = small.0.join("history.db");
    let (options, troubles) = watched(Options { capacity: 300, ..options() });
    let (history, _) = History::open(&path, options).unwrap();
    history.append([started(1, "web", 1)]);
    history.store_intent(Intent::Goal { agent: name("web"), goal: Goal::Stopped }).unwrap();
    history.flush(SOON).unwrap();
    small.fill();

    // The log may have room of its own for a while; then it is said, once.
    let mut seq = 1;
    let mut push = |history: &History, count: u64| {
        let began = Instant::now();
        history.append((seq + 1..=seq + count).map(|seq| host_event(seq, "notified")));
        seq += count;
        assert!(began.elapsed() < Duration::from_millis(500), "appending waited");
        seq
    };
    until("the disk is full", || {
        push(&history, 100);
        history.flush(SOON).is_err()
    });
    let failing = troubles.recv_timeout(SOON).unwrap();
    assert!(matches!(failing, Trouble::Failing { store: Store::History, .. }), "{failing:?}");
    push(&history, 2000);
    until("events fall out", || history.lost().events > 1000);

    // An intent is refused at once, or there was room for it; never in between.
    let began = Instant::now();
    let mut stored = 0;
    let refused = (0..2000).find_map(|number| {
        let intent = Intent::Keep { key: format!("{number}"), value: "x".repeat(4000) };
        let outcome = history.store_intent(intent);
        stored += u32::from(outcome.is_ok());
        outcome.err()
    });
    assert!(matches!(refused, Some(HistoryError::Failing(_))), "{refused:?}");
    assert!(began.elapsed() < SOON);

    small.empty();
    until("it recovers", || {
        troubles.try_iter().any(|trouble| {
            matches!(trouble, Trouble::Recovered { store: Store::History, lost } if lost > 1000)
        })
    });
    let last = push(&history, 10);
    history.flush(SOON).unwrap();
    every_number_is_accounted_for(&seqs(&path), last, history.lost().events);
    history.store_intent(Intent::Goal { agent: name("web"), goal: Goal::Up }).unwrap();
    let intents = Reader::open(&path).unwrap().intents().unwrap();
    assert_eq!(intents.kept.len(), stored as usize, "one was refused and stored, or lost");
    assert_eq!(intents.goals[&name("web")], Goal::Up);
}

#[test]
fn a_daemon_that_starts_on_a_full_disk_knows_what_is_wanted() {
    let (folder, _) = home();
    let Some(small) = Small::mount(folder.path()) else { return };
    let path = small.0.join("history.db");
    let (history, _) = open(&path);
    history.append([started(7, "web", 3)]);
    history.store_intent(Intent::Goal { agent: name("web"), goal: Goal::Stopped }).unwrap();
    drop(history);
    small.fill();

    let (options, troubles) = watched(options());
    let (history, opened) = History::open(&path, options).unwrap();
    assert_eq!(opened.intents.goals[&name("web")], Goal::Stopped);
    assert_eq!(opened.highest_seq, 7);
    assert_eq!((opened.damaged, opened.intent_damaged), (None, None));
    assert!(opened.failing.is_some(), "there was room: the test shows nothing");
    history.append([host_event(8, "daemon-started")]);
    assert!(history.flush(SOON).is_err());
    small.empty();
    until("it recovers", || {
        troubles.try_iter().any(|trouble| matches!(trouble, Trouble::Recovered { .. }))
    });
    history.flush(SOON).unwrap();
    let kinds: Vec<String> = seqs(&path).into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["run-started", "daemon-started"]);
}

#[test]
fn a_file_that_somebody_locks_holds_nobody_up_and_loses_nothing_but_what_is_counted() {
    let (_folder, path) = home();
    let (options, troubles) = watched(Options { capacity: 100, ..options() });
    let (history, _) = History::open(&path, options).unwrap();
    history.append([started(1, "web", 1)]);
    history.flush(SOON).unwrap();
    let locker = rusqlite::Connection::open(&path).unwrap();
    locker.execute_batch("BEGIN IMMEDIATE").unwrap();

    let began = Instant::now();
    history.append((2..=50).map(|seq| host_event(seq, "notified")));
    assert!(began.elapsed() < Duration::from_millis(500), "appending waited for the lock");
    let failing = troubles.recv_timeout(SOON).unwrap();
    assert!(matches!(failing, Trouble::Failing { store: Store::History, .. }), "{failing:?}");
    history.append((51..=400).map(|seq| host_event(seq, "notified")));
    // Readers and intents do not mind.
    assert_eq!(seqs(&path).len(), 1);
    history.store_intent(Intent::Goal { agent: name("web"), goal: Goal::Up }).unwrap();

    locker.execute_batch("ROLLBACK").unwrap();
    until("it recovers", || {
        troubles.try_iter().any(|trouble| {
            matches!(trouble, Trouble::Recovered { store: Store::History, lost } if lost > 0)
        })
    });
    history.flush(SOON).unwrap();
    every_number_is_accounted_for(&seqs(&path), 400, history.lost().events);
    let runs = Reader::open(&path).unwrap().run(&name("web"), RunId(1)).unwrap();
    assert!(runs.is_some_and(|run| run.alive));
}
