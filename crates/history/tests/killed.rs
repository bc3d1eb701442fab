//! SIGKILL in the middle of writing loses nothing that was acknowledged.

#![allow(clippy::unwrap_used, reason = "it is a test")]

mod common;

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{SOON, died, home, name, open, started};
use defib_core::{Goal, RunId};
use defib_history::{EventFilter, Intent, PostMortem, Reader};

const FOLDER: &str = "DEFIB_HISTORY_TEST_FOLDER";

/// What the child does until it is killed: it writes, and says what it was told is on disk.
#[test]
#[ignore = "it is the child of the test below, and never ends"]
fn the_child_that_writes_until_it_is_killed() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let (history, opened) = open(&Path::new(&folder).join("history.db"));
    let mut seq = opened.highest_seq;
    let mut run = opened.intents.kept.get("run").map_or(0, |run| run.parse().unwrap());
    let mut out = std::io::stdout();
    loop {
        run += 1;
        let events = [started(seq + 1, "web", run), died(seq + 2, "web", run, 1)];
        seq += 2;
        history.append(events);
        let mut found = PostMortem::new(name("web"), RunId(run));
        found.tail = Some(vec![b'x'; 5000]);
        history.attach(found);
        if run.is_multiple_of(3) {
            let goal = if run.is_multiple_of(2) { Goal::Up } else { Goal::Stopped };
            let kept = Intent::Keep { key: "run".into(), value: run.to_string() };
            history.store_intents([Intent::Goal { agent: name("web"), goal }, kept]).unwrap();
            writeln!(out, "intent {run}").unwrap();
        }
        if run.is_multiple_of(5) {
            history.flush(SOON).unwrap();
            writeln!(out, "event {seq}").unwrap();
        }
    }
}

#[test]
fn what_was_acknowledged_is_there_after_sigkill_and_the_files_are_sound() {
    let (folder, path) = home();
    for round in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "the_child_that_writes_until_it_is_killed",
                "--ignored",
                "--nocapture",
            ])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut event, mut intent, mut heard) = (0_u64, 0_u64, 0);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut hear = |line: &str| match line.split_once(' ') {
            Some(("event", number)) => event = number.parse().unwrap(),
            Some(("intent", number)) => intent = number.parse().unwrap(),
            Some(_) | None => {}
        };
        // A different moment each round; what is still in the pipe was acknowledged as well.
        for line in lines.by_ref() {
            hear(&line.unwrap());
            heard += 1;
            if heard == 20 + round * 7 {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();

        let reader = Reader::open(&path).unwrap();
        let events = reader.events(&EventFilter::default()).unwrap();
        let seqs: Vec<u64> = events.iter().map(|event| event.seq).collect();
        assert!(event > 0 && intent > 0);
        assert!(seqs.len() as u64 >= event, "{} of {event} events are there", seqs.len());
        assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "an event is missing");
        let kept: u64 = reader.intents().unwrap().kept["run"].parse().unwrap();
        assert!(kept >= intent, "intent {intent} was acknowledged, {kept} is there");
        let goal = if kept.is_multiple_of(2) { Goal::Up } else { Goal::Stopped };
        assert_eq!(reader.intents().unwrap().goals[&name("web")], goal, "half a transaction");
        for file in ["history.db", "intent.db"] {
            let file = rusqlite::Connection::open(folder.path().join(file)).unwrap();
            let sound: String = file.query_row("PRAGMA quick_check", [], |row| row.get(0)).unwrap();
            assert_eq!(sound, "ok");
        }
        let (_, opened) = open(&path);
        assert_eq!((opened.damaged, opened.intent_damaged), (None, None));
        assert_eq!(opened.highest_seq, seqs.len() as u64);
    }
}
