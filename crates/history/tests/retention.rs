//! What is too old goes; what lives stays.

#![allow(clippy::unwrap_used, reason = "it is a test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use common::{SOON, at, died, event, home, name, open, started, until};
use defib_core::record::Trip;
use defib_core::{RunId, Wall, What};
use defib_history::{EventFilter, History, Options, PostMortem, Reader, RunFilter, Tails};

const DAY: Duration = Duration::from_secs(86_400);

/// Options under which the time is what the test says.
fn at_time(now: &Arc<AtomicI64>) -> Options {
    let now = Arc::clone(now);
    let now = Box::new(move || Wall::from_millis(now.load(Ordering::SeqCst)));
    Options { now, ..Options::default() }
}

#[test]
fn old_runs_and_events_go_live_runs_stay_and_numbering_goes_on() {
    let (_folder, path) = home();
    let clock = Arc::new(AtomicI64::new(at(0).wall.as_millis()));
    let (history, _) = History::open(&path, at_time(&clock)).unwrap();
    history.append([started(1, "alive", 1), event(2, "alive", 1, What::RunReady)]);
    for run in 1..=2000 {
        history.append([started(run * 2 + 1, "old", run), died(run * 2 + 2, "old", run, 1)]);
        let mut found = PostMortem::new(name("old"), RunId(run));
        found.tail = Some(vec![b'x'; 1000]);
        history.attach(found);
    }
    history.flush(SOON).unwrap();
    let live = Reader::open(&path).unwrap().view().unwrap();
    drop(history);
    let size = std::fs::metadata(&path).unwrap().len();

    // A day before they are due nothing goes, not even to make room for a while.
    let almost = (at(0).wall + 29 * DAY).as_millis();
    clock.store(almost, Ordering::SeqCst);
    let (history, _) = History::open(&path, at_time(&clock)).unwrap();
    history.append([event(4003, "alive", 1, What::RunReady)]);
    history.flush(SOON).unwrap();
    drop(history);
    assert_eq!(Reader::open(&path).unwrap().events(&EventFilter::default()).unwrap().len(), 4003);

    let later = (at(4003).wall + 31 * DAY).as_millis();
    clock.store(later, Ordering::SeqCst);
    let (history, opened) = History::open(&path, at_time(&clock)).unwrap();
    assert_eq!(opened.highest_seq, 4003);
    let reader = || Reader::open(&path).unwrap();
    until("old runs go", || reader().runs(&RunFilter::default()).unwrap().len() == 1);
    until("old events go", || reader().events(&EventFilter::default()).unwrap().len() == 3);
    until("the file shrinks", || {
        std::fs::metadata(&path).unwrap().len() < size / 2 || {
            // Pages go back to the file system with the next checkpoint of the log.
            let file = rusqlite::Connection::open(&path).unwrap();
            file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
            false
        }
    });
    let kinds: Vec<(u64, String)> = reader()
        .events(&EventFilter::default())
        .unwrap()
        .into_iter()
        .map(|event| (event.seq, event.kind))
        .collect();
    let kept = [(1, "run-started"), (2, "run-ready"), (4003, "run-ready")];
    assert_eq!(kinds, kept.map(|(seq, kind)| (seq, String::from(kind))));
    assert!(reader().run(&name("alive"), RunId(1)).unwrap().unwrap().alive);
    assert_eq!(reader().tail(&name("old"), RunId(1)).unwrap(), None);
    let view = reader().view().unwrap();
    let of = |view: &defib_core::View| view.agent(&name("alive")).map(|agent| agent.sight);
    assert_eq!(of(&view), of(&live), "a live run is still seen to live");
    drop(history);
    assert_eq!(open(&path).1.highest_seq, 4003);
}

#[test]
fn when_everything_is_too_old_the_last_number_is_still_known() {
    let (_folder, path) = home();
    let clock = Arc::new(AtomicI64::new(at(0).wall.as_millis()));
    let (history, _) = History::open(&path, at_time(&clock)).unwrap();
    history.append(
        (1..=50).flat_map(|run| [started(run * 2, "a", run), died(run * 2 + 1, "a", run, 0)]),
    );
    history.flush(SOON).unwrap();
    drop(history);
    clock.store((at(0).wall + 365 * DAY).as_millis(), Ordering::SeqCst);
    let (history, _) = History::open(&path, at_time(&clock)).unwrap();
    let reader = || Reader::open(&path).unwrap();
    until("all but one go", || reader().events(&EventFilter::default()).unwrap().len() == 1);
    assert!(reader().runs(&RunFilter::default()).unwrap().is_empty());
    drop(history);
    let (_, opened) = History::open(&path, at_time(&clock)).unwrap();
    assert_eq!(opened.highest_seq, 101);
}

/// A run that left something.
fn leave_tail(history: &History, seq: u64, agent: &str, run: u64) {
    history.append([started(seq, agent, run)]);
    let mut found = PostMortem::new(name(agent), RunId(run));
    found.tail = Some(b"bye".to_vec());
    history.attach(found);
}

#[test]
fn only_so_many_tails_are_kept_and_they_are_the_last() {
    let (_folder, path) = home();
    let clock = Arc::new(AtomicI64::new(at(0).wall.as_millis()));
    let (history, _) = History::open(&path, at_time(&clock)).unwrap();
    for run in 1..=30 {
        leave_tail(&history, run, "a", run);
    }
    drop(history);
    let tails = Tails { of_each: 10, of_all: 100 };
    let (_history, _) = History::open(&path, Options { tails, ..at_time(&clock) }).unwrap();
    let has = |run| Reader::open(&path).unwrap().tail(&name("a"), RunId(run)).unwrap().is_some();
    until("old tails go", || !has(20));
    assert!((21..=30).all(has));
    assert!(!(1..=20).any(has));
}

#[test]
fn one_that_dies_again_and_again_takes_nobody_elses_tail() {
    let (_folder, path) = home();
    let clock = Arc::new(AtomicI64::new(at(0).wall.as_millis()));
    let (history, _) = History::open(&path, at_time(&clock)).unwrap();
    for (seq, (agent, run)) in (1..).zip([("a", 1), ("b", 1), ("a", 2), ("b", 2)]) {
        leave_tail(&history, seq, agent, run);
    }
    for run in 1..=1500 {
        leave_tail(&history, 10 + run, "loop", run);
    }
    drop(history);
    let has = |agent: &str, run| {
        Reader::open(&path).unwrap().tail(&name(agent), RunId(run)).unwrap().is_some()
    };
    let tails = Tails { of_each: 20, of_all: 1000 };
    let (history, _) = History::open(&path, Options { tails, ..at_time(&clock) }).unwrap();
    until("the loop's own go", || !has("loop", 1480));
    assert!((1481..=1500).all(|run| has("loop", run)));
    for agent in ["a", "b"] {
        assert!(has(agent, 1) && has(agent, 2), "{agent}");
    }
    drop(history);

    // Where there are too many in all, whoever has most gives first.
    let tails = Tails { of_each: 20, of_all: 5 };
    let (_history, _) = History::open(&path, Options { tails, ..at_time(&clock) }).unwrap();
    until("most of the loop's own go", || !has("loop", 1499) || !has("a", 1));
    let kept = ["a", "b"].map(|agent| [has(agent, 1), has(agent, 2)]);
    assert_eq!(kept, [[false, true], [true, true]]);
    assert!(has("loop", 1500) && has("loop", 1499));
}

#[test]
fn c001_40_every_death_respawn_and_crash_out_is_kept_for_thirty_days() {
    let (_folder, path) = home();
    let clock = Arc::new(AtomicI64::new(at(0).wall.as_millis()));
    let (history, _) = History::open(&path, at_time(&clock)).unwrap();
    for run in 1..=5 {
        history.append([started(run * 2 - 1, "a", run), died(run * 2, "a", run, 1)]);
    }
    history.append([event(11, "a", 5, What::CrashedOut { by: Trip::Window })]);
    history.flush(SOON).unwrap();
    drop(history);
    let count = || Reader::open(&path).unwrap().events(&EventFilter::default()).unwrap().len();
    clock.store((at(0).wall + 29 * DAY).as_millis(), Ordering::SeqCst);
    let (history, _) = History::open(&path, at_time(&clock)).unwrap();
    history.flush(SOON).unwrap();
    drop(history);
    assert_eq!(count(), 11);
    clock.store((at(11).wall + 31 * DAY).as_millis(), Ordering::SeqCst);
    let (_history, _) = History::open(&path, at_time(&clock)).unwrap();
    until("all but the last goes", || count() == 1);
}
