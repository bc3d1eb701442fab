//! A lifeline tells of an agent's newest runs and waits, whatever else was noted meanwhile.

#![allow(clippy::unwrap_used, reason = "it is a test")]

mod common;

use std::path::Path;
use std::time::Duration;

use common::{SOON, at, died, event, home, name, open, stamp, started};
use defib_core::record::{Rest, Trip, WaitReason};
use defib_core::{Class, Goal, RunId, Wall, What};
use defib_history::{Event, Lifeline, LifelineFilter, Reader, Wait};

fn scheduled(seq: u64, run: u64, delay_s: u64) -> Event {
    let what = What::RestartScheduled { delay_ms: delay_s * 1000, attempt: 1, gauge: None };
    event(seq, "a", run, what)
}

fn waits(seq: u64, run: u64, reason: WaitReason) -> Event {
    event(seq, "a", run, What::WaitStarted { reason, wait_ms: None })
}

fn lifeline(path: &Path, since: u64, until: u64, most: u32) -> Lifeline {
    let (since, until) = (at(since).wall, at(until).wall);
    let filter = LifelineFilter { agent: name("a"), since, until, most };
    Reader::open(path).unwrap().lifeline(&filter).unwrap()
}

fn stored(events: Vec<Event>) -> (tempfile::TempDir, std::path::PathBuf) {
    let (folder, path) = home();
    let (history, _) = open(&path);
    history.append(events);
    history.flush(SOON).unwrap();
    (folder, path)
}

fn told(waits: &[Wait]) -> Vec<(&str, Wall, Option<Wall>)> {
    waits.iter().map(|wait| (wait.reason.as_str(), wait.from, wait.until)).collect()
}

#[test]
fn the_waits_of_an_agent_that_spends_are_told_before_and_after_it_does() {
    let spent = |seq| {
        let agent = Some(name("a"));
        Event::new(stamp(seq), "spent", agent, Some(RunId(1)), serde_json::Map::new())
    };
    let mut events = vec![started(1, "a", 1)];
    events.extend((2..2_000).map(spent));
    events.extend([died(2_000, "a", 1, 1), scheduled(2_001, 1, 9), started(2_010, "a", 2)]);
    events.extend((2_011..4_000).map(spent));
    events.extend([died(4_000, "a", 2, 1), scheduled(4_001, 2, 60)]);
    let (_folder, path) = stored(events);
    let found = lifeline(&path, 0, 4_010, 2);
    let due = at(4_001).wall + Duration::from_secs(60);
    assert_eq!(
        told(&found.waits),
        [("backoff", at(2_001).wall, Some(at(2_010).wall)), ("backoff", at(4_001).wall, Some(due)),]
    );
}

#[test]
fn of_many_waits_in_one_run_the_newest_are_told() {
    let mut events = vec![started(1, "a", 1)];
    for turn in 0..200 {
        events.push(waits(2 + turn * 2, 1, WaitReason::Prompt));
        events.push(event(3 + turn * 2, "a", 1, What::WaitEnded { reason: WaitReason::Prompt }));
    }
    let (_folder, path) = stored(events);
    let found = lifeline(&path, 0, 1_000, 1);
    let last = found.waits.last().unwrap();
    assert_eq!((last.from, last.until), (at(400).wall, Some(at(401).wall)));
    // What came after the stretch takes nobody's place in it.
    let earlier = lifeline(&path, 0, 11, 1);
    assert_eq!(told(&earlier.waits).last().unwrap().1, at(10).wall);
    assert_eq!(earlier.waits.len(), 5);
}

#[test]
fn a_run_whose_end_was_never_noted_hides_none_before_it() {
    let (_folder, path) = stored(vec![
        started(10, "a", 1),
        died(11, "a", 1, 1),
        scheduled(12, 1, 3),
        started(15, "a", 2),
        // The third begins, and nobody saw the second end.
        started(20, "a", 3),
        died(25, "a", 3, 1),
        started(26, "a", 4),
    ]);
    let found = lifeline(&path, 0, 30, 3);
    let runs = |found: &Lifeline| found.runs.iter().map(|run| run.run.0).collect::<Vec<_>>();
    assert_eq!((runs(&found), found.more), (vec![1, 3, 4], false));
    assert_eq!(told(&found.waits), [("backoff", at(12).wall, Some(at(15).wall))]);
    let newest = lifeline(&path, 0, 30, 2);
    assert_eq!((runs(&newest), newest.more), (vec![3, 4], true));
}

#[test]
fn a_wait_ends_with_whatever_turns_the_agent() {
    let quota = WaitReason::Cause(Class::Quota);
    for end in [
        What::WaitEnded { reason: quota },
        What::CrashedOut { by: Trip::Window },
        What::Halted { reason: Class::Auth },
        What::Revived,
        What::Stopped { goal: Goal::Down },
        What::Rested { rest: Rest::Failed },
        What::RestartScheduled { delay_ms: 0, attempt: 1, gauge: None },
        What::WaitStarted { reason: WaitReason::Dependency, wait_ms: None },
    ] {
        let (_folder, path) = stored(vec![
            started(1, "a", 1),
            died(2, "a", 1, 1),
            waits(3, 1, quota),
            event(7, "a", 1, end.clone()),
        ]);
        let found = lifeline(&path, 0, 30, 3);
        assert_eq!(told(&found.waits)[0], ("quota", at(3).wall, Some(at(7).wall)), "{end:?}");
    }
}
