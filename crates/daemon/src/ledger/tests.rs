//! The clerk with a real disk: what was acknowledged is there, and only that.

use std::path::Path;
use std::sync::mpsc::Receiver as Notices;

use defib_history::{Options, Reader};
use tokio::sync::oneshot;

use super::*;

fn agent() -> Name {
    Name::parse("a").unwrap()
}

/// A ledger on a disk, and what the engine would hear of it.
fn begin(folder: &Path) -> (Ledger, Notices<Notice>, Arc<History>) {
    let (history, opened) = History::open(&folder.join("history.db"), Options::default()).unwrap();
    let history = Arc::new(history);
    let (ledger, clerk) = Ledger::open(history.clone(), &opened.intents);
    let (heard, notices) = channel();
    clerk.start(move |notice| drop(heard.send(notice))).unwrap();
    (ledger, notices, history)
}

/// What the engine does with a change that somebody waits for.
fn answer_next(notices: &Notices<Notice>) {
    loop {
        match notices.recv_timeout(Duration::from_secs(30)).unwrap() {
            Notice::Changed(_, Some((receipt, answer))) => {
                return drop(answer.send(Ok(receipt)));
            }
            Notice::Changed(_, None)
            | Notice::Burning(..)
            | Notice::Funded(_)
            | Notice::Spent { .. } => {}
        }
    }
}

#[test]
fn what_an_agent_says_it_spent_is_on_disk_before_it_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, notices, history) = begin(folder.path());
    ledger.give_opening(agent(), BTreeMap::from([("scrip".to_owned(), 2.0)]));
    for left in [1.25, 0.5, -0.25] {
        let (answer, answered) = oneshot::channel();
        ledger.spend(agent(), RunId(1), "scrip".to_owned(), 750_000, answer);
        answer_next(&notices);
        let receipt = answered.blocking_recv().unwrap().unwrap();
        assert_eq!(receipt.balance, Some(left));
        let reader = Reader::open(history.path()).unwrap();
        let lines = reader.ledger(&agent(), 10).unwrap();
        assert_eq!(lines.last().and_then(|line| line.balance), Some(micros(left)));
        assert_eq!(lines.len(), 2, "one run's spending is one line: {lines:?}");
    }
    drop((ledger, history));
}

#[test]
fn a_ledger_goes_on_where_it_was_and_meters_may_say_the_same_again() {
    let folder = tempfile::tempdir().unwrap();
    let totals = Amounts::from([("tokens".to_owned(), 5_000_000)]);
    for round in 0..3 {
        let (ledger, notices, history) = begin(folder.path());
        ledger.give_opening(agent(), BTreeMap::from([("tokens".to_owned(), 100.0)]));
        let (told, stored) = channel();
        let then: Then = Box::new(move || {
            let _ = told.send(());
        });
        ledger.metered(agent(), RunId(7), Meter::Output, totals.clone(), Some(then));
        stored.recv_timeout(Duration::from_secs(30)).unwrap();
        assert_eq!(ledger.look(&agent(), |purse| purse.balances["tokens"]), Some(95_000_000));
        let (answer, answered) = oneshot::channel();
        ledger.fund(agent(), "usd".to_owned(), 1_000_000, answer);
        answer_next(&notices);
        let receipt = answered.blocking_recv().unwrap().unwrap();
        assert_eq!(receipt.balance, Some(f64::from(round + 1)));
        // The clerk ends when nobody can order anything, and the files are free with it.
        drop(ledger);
        while notices.recv_timeout(Duration::from_secs(30)).is_ok() {}
        drop(history);
    }
}

#[test]
fn a_flush_waits_for_what_was_to_be_stored_later() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, notices, history) = begin(folder.path());
    let totals = Amounts::from([("tokens".to_owned(), 5)]);
    ledger.metered(agent(), RunId(1), Meter::Output, totals, None);
    // It is told when it has been handed over, which is before it is on disk.
    while !matches!(notices.recv_timeout(Duration::from_secs(30)).unwrap(), Notice::Spent { .. }) {}
    let (told, flushed) = channel();
    ledger.flush(move || {
        let _ = told.send(());
    });
    flushed.recv_timeout(Duration::from_secs(30)).unwrap();
    let lines = Reader::open(history.path()).unwrap().ledger(&agent(), 10).unwrap();
    assert_eq!(lines.iter().map(|line| line.micros).collect::<Vec<_>>(), [-5]);
}

#[test]
fn spending_is_told_at_once_and_then_at_most_once_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, notices, history) = begin(folder.path());
    let begin = Instant::now();
    for total in 1..=100 {
        let totals = Amounts::from([("tokens".to_owned(), total)]);
        ledger.metered(agent(), RunId(1), Meter::Output, totals, None);
    }
    let (mut told, mut sum) = (0, 0);
    while sum < 100 {
        if let Notice::Spent { amounts, .. } =
            notices.recv_timeout(Duration::from_secs(30)).unwrap()
        {
            (told, sum) = (told + 1, sum + amounts["tokens"]);
        }
    }
    assert_eq!(sum, 100);
    assert!(told <= 1 + begin.elapsed().as_secs(), "told {told} times");
    drop((ledger, history));
}

#[test]
fn the_local_day_ends_at_the_next_midnight() {
    let now = now().wall;
    let end = end_of_day(now);
    assert!(end > now);
    assert!(end.since(now) <= Duration::from_secs(25 * 3600));
    assert_ne!(moment(end).date, moment(now).date);
    let before = Wall::from_millis(end.as_millis() - 1);
    assert_eq!(moment(before).date, moment(now).date);
}
