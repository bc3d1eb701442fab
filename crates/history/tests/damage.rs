//! A damaged file is set aside and said; everything else goes on.

#![allow(clippy::unwrap_used, reason = "it is a test")]

mod common;

use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::Instant;

use common::{SOON, event, home, host_event, name, open, options, started, until, watched};
use defib_core::{Goal, RunId, What};
use defib_history::{
    EventFilter, History, Intent, Options, PostMortem, Reader, RunFilter, Store, TAIL_MAX, Trouble,
};

fn goal(agent: &str, goal: Goal) -> Intent {
    Intent::Goal { agent: name(agent), goal }
}

/// Fills a home with a history and intents, and closes it. Gives the highest number.
fn fill(path: &Path) -> u64 {
    let (history, _) = open(path);
    history.append((1..=5000).map(|seq| started(seq, &format!("agent-{}", seq % 97), seq)));
    history.store_intents([goal("web", Goal::Stopped), goal("db", Goal::Up)]).unwrap();
    history.flush(SOON).unwrap();
    5000
}

/// Overwrites a stretch of a file.
fn scribble(path: &Path, from: u64, bytes: usize) {
    let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(from)).unwrap();
    file.write_all(&vec![0xA5; bytes]).unwrap();
}

#[test]
fn a_history_that_is_not_sound_or_not_ours_is_set_aside_and_intents_stay() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 6] = [
        ("no database", |path| fs::write(path, vec![0x42; 100_000]).unwrap()),
        ("a text", |path| fs::write(path, "hello").unwrap()),
        ("a broken header", |path| scribble(path, 0, 100)),
        ("broken pages", |path| scribble(path, 40_000, 60_000)),
        ("a newer schema", |path| {
            rusqlite::Connection::open(path)
                .unwrap()
                .pragma_update(None, "user_version", 99)
                .unwrap();
        }),
        ("another program's", |path| {
            fs::remove_file(path).unwrap();
            let other = rusqlite::Connection::open(path).unwrap();
            other.execute_batch("CREATE TABLE bookmarks (url TEXT)").unwrap();
        }),
    ];
    for (what, damage) in damages {
        let (_folder, path) = home();
        let highest = fill(&path);
        damage(&path);
        let before = fs::read(&path).unwrap();

        let (history, opened) = open(&path);
        let (aside, why) = opened.damaged.unwrap_or_else(|| panic!("{what} was not noticed"));
        assert!(!why.is_empty());
        let shown = aside.file_name().unwrap().to_string_lossy().into_owned();
        assert!(shown.starts_with("history.db.damaged-2"), "{shown}");
        assert_eq!(fs::read(&aside).unwrap(), before, "{what}: the old file was changed");
        assert_eq!(opened.intent_damaged, None, "{what}");
        assert_eq!(opened.intents.goals[&name("web")], Goal::Stopped, "{what}");
        assert!(opened.highest_seq >= highest, "{what}: numbers would be used twice");

        let seq = opened.highest_seq + 1;
        history.append([host_event(seq, "history-damaged")]);
        history.flush(SOON).unwrap();
        let events = Reader::open(&path).unwrap().events(&EventFilter::default()).unwrap();
        assert_eq!(events, [host_event(seq, "history-damaged")], "{what}");
        drop(history);
        assert_eq!(open(&path).1.damaged, None, "{what}: the new one is sound");
    }
}

#[test]
fn the_log_of_a_damaged_history_goes_with_it() {
    let (folder, path) = home();
    let highest = fill(&path);
    let (history, _) = open(&path);
    history.append((highest + 1..=highest + 100).map(|seq| host_event(seq, "notified")));
    history.flush(SOON).unwrap();
    // What a daemon leaves that was killed: a log that a sound file would take for its own.
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    for suffix in ["", "-wal"] {
        let file = format!("history.db{suffix}");
        fs::copy(path.with_file_name(&file), other.join(&file)).unwrap();
    }
    let path = other.join("history.db");
    scribble(&path, 40_000, 60_000);
    let before = fs::read(&path).unwrap();
    let log = fs::read(other.join("history.db-wal")).unwrap();
    assert!(log.len() > 4096);

    let (history, opened) = open(&path);
    let (mut aside, _) = opened.damaged.unwrap();
    assert_eq!(Reader::open(&path).unwrap().events(&EventFilter::default()), Ok(vec![]));
    assert_eq!(fs::read(&aside).unwrap(), before, "the old file was changed");
    aside.as_mut_os_string().push("-wal");
    assert_eq!(fs::read(&aside).unwrap(), log);
    drop(history);
    assert_eq!(open(&path).1.damaged, None);
}

#[test]
fn names_of_what_was_set_aside_are_not_used_twice() {
    let (_folder, path) = home();
    fill(&path);
    let now = || defib_core::Wall::from_millis(1_700_000_000_000);
    for round in 1..=3 {
        fs::write(&path, "no database").unwrap();
        let options = Options { now: Box::new(now), ..options() };
        let (history, opened) = History::open(&path, options).unwrap();
        let (aside, _) = opened.damaged.unwrap();
        let suffix = if round == 1 { String::new() } else { format!("-{round}") };
        let expected = format!("history.db.damaged-20231114T221320Z{suffix}");
        assert_eq!(aside.file_name().unwrap().to_string_lossy(), expected);
        assert_eq!(fs::read(&aside).unwrap(), b"no database");
        history.append([host_event(opened.highest_seq + 1, "daemon-started")]);
        history.flush(SOON).unwrap();
    }
}

#[test]
fn damage_that_is_found_while_writing_is_set_aside_as_well() {
    let (_folder, path) = home();
    let mut seq = fill(&path);
    // More than the writer keeps in memory.
    let (history, _) = open(&path);
    for _ in 0..8 {
        history.append(
            (seq + 1..=seq + 5000)
                .map(|seq| event(seq, &format!("agent-{}", seq % 97), seq, What::RunReady)),
        );
        seq += 5000;
        history.flush(SOON).unwrap();
    }
    drop(history);
    let (options, troubles) = watched(options());
    let (history, opened) = History::open(&path, options).unwrap();
    assert_eq!((opened.damaged, opened.highest_seq), (None, seq));
    // Everything but the first page, so that a page the writer has not read yet is broken.
    let size = fs::metadata(&path).unwrap().len();
    scribble(&path, 4096, usize::try_from(size).unwrap() - 4096);

    let mut told = None;
    until("the damage is noticed", || {
        seq += 1;
        history.append([event(seq, &format!("agent-{}", seq % 97), seq, What::RunReady)]);
        // It may be refused or stored; what counts is that somebody says so.
        let _ = history.flush(SOON);
        told = troubles.try_recv().ok();
        told.is_some()
    });
    let Some(Trouble::Damaged { store: Store::History, aside: Some(aside), .. }) = told else {
        panic!("{told:?}");
    };
    assert!(aside.exists());
    history.append([host_event(seq + 1, "history-damaged")]);
    history.flush(SOON).unwrap();
    let events = Reader::open(&path).unwrap().events(&EventFilter::default()).unwrap();
    assert_eq!(events.last(), Some(&host_event(seq + 1, "history-damaged")));
    assert!(events.iter().any(|event| event.seq == seq), "what found the damage is stored");
    assert_eq!(history.lost().events, 0);
}

#[test]
fn files_that_are_removed_while_open_are_begun_anew() {
    let (folder, path) = home();
    let (options, troubles) = watched(options());
    let (history, _) = History::open(&path, options).unwrap();
    history.append([started(1, "web", 1)]);
    history.flush(SOON).unwrap();
    history.store_intent(goal("web", Goal::Stopped)).unwrap();
    for entry in fs::read_dir(folder.path()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    history.append([host_event(2, "notified")]);
    history.flush(SOON).unwrap();
    history.store_intent(goal("db", Goal::Up)).unwrap();
    let told: Vec<Store> = troubles
        .try_iter()
        .filter_map(|trouble| match trouble {
            Trouble::Damaged { store, aside: None, .. } => Some(store),
            Trouble::Damaged { .. }
            | Trouble::Restored { .. }
            | Trouble::Failing { .. }
            | Trouble::Recovered { .. } => None,
        })
        .collect();
    assert!(told.contains(&Store::History) && told.contains(&Store::Intent), "{told:?}");
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.events(&EventFilter::default()), Ok(vec![host_event(2, "notified")]));
    // Intents could still be read, so none is lost.
    let goals = reader.intents().unwrap().goals;
    assert_eq!(goals, [(name("web"), Goal::Stopped), (name("db"), Goal::Up)].into());
}

#[test]
fn damaged_intents_are_set_aside_and_said_and_the_history_stays() {
    let (_folder, path) = home();
    let highest = fill(&path);
    let intents = path.with_file_name("intent.db");
    fs::write(&intents, "no database").unwrap();
    fs::remove_file(path.with_file_name("witness.db")).unwrap();
    let (history, opened) = open(&path);
    let (aside, _) = opened.intent_damaged.unwrap();
    assert!(aside.file_name().unwrap().to_string_lossy().starts_with("intent.db.damaged-2"));
    assert_eq!((opened.damaged, opened.highest_seq), (None, highest));
    assert!(opened.intents.goals.is_empty());
    history.store_intent(goal("web", Goal::Up)).unwrap();
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.intents().unwrap().goals.len(), 1);
    assert_eq!(
        reader.runs(&RunFilter { limit: Some(1), ..RunFilter::default() }).unwrap().len(),
        1
    );
}

#[test]
fn of_damaged_intents_what_can_be_read_is_kept() {
    let (_folder, path) = home();
    let (history, _) = open(&path);
    history.store_intents([goal("web", Goal::Stopped), goal("db", Goal::Up)]).unwrap();
    let values = (0..2000).map(|n| Intent::Keep { key: n.to_string(), value: "v".repeat(200) });
    history.store_intents(values).unwrap();
    drop(history);
    let intents = path.with_file_name("intent.db");
    let size = fs::metadata(&intents).unwrap().len();
    scribble(&intents, size / 2, 40_000);
    fs::remove_file(path.with_file_name("witness.db")).unwrap();

    let (history, opened) = open(&path);
    assert!(opened.intent_damaged.is_some());
    let goals = [(name("web"), Goal::Stopped), (name("db"), Goal::Up)].into();
    assert_eq!(opened.intents.goals, goals);
    assert!(opened.intents.unreadable > 0);
    drop(history);
    let (_, again) = open(&path);
    assert_eq!((again.intent_damaged, again.intents.goals), (None, goals));
}

#[test]
fn a_large_history_is_read_through_while_it_is_used() {
    let (_folder, path) = home();
    let (history, _) = open(&path);
    for run in 1..=1100 {
        // Of one agent alone not all would be kept.
        let agent = format!("web{}", run % 8);
        history.append([started(run, &agent, run)]);
        let mut found = PostMortem::new(name(&agent), RunId(run));
        found.tail = Some(vec![b'x'; TAIL_MAX]);
        history.attach(found);
        if run % 100 == 0 {
            history.flush(SOON).unwrap();
        }
    }
    drop(history);
    let size = fs::metadata(&path).unwrap().len();
    assert!(size > 64 * 1024 * 1024, "{size}");

    // A sound one is left alone, and closing does not wait for the check.
    let (options, troubles) = watched(options());
    let (history, opened) = History::open(&path, options).unwrap();
    assert_eq!((opened.damaged, opened.highest_seq), (None, 1100));
    let began = Instant::now();
    drop(history);
    assert!(began.elapsed() < SOON / 4);
    assert!(troubles.try_iter().next().is_none());

    scribble(&path, size / 2, 40_000);
    let (options, troubles) = watched(common::options());
    let (history, opened) = History::open(&path, options).unwrap();
    assert_eq!(opened.damaged, None);
    let told = troubles.recv_timeout(SOON).unwrap();
    assert!(matches!(told, Trouble::Damaged { aside: Some(_), .. }), "{told:?}");
    history.append([host_event(1101, "history-damaged")]);
    history.flush(SOON).unwrap();
    let events = Reader::open(&path).unwrap().events(&EventFilter::default()).unwrap();
    assert_eq!(events, [host_event(1101, "history-damaged")]);
}
