//! What was wanted is known after a crash, or was never acknowledged.

#![allow(clippy::unwrap_used, reason = "it is a test")]

mod common;

use std::path::PathBuf;

use common::{home, name, open, until};
use defib_core::Goal;
use defib_history::{Balance, History, Intent, Intents, Project, Reader};
use serde_json::json;

fn project() -> Project {
    Project {
        name: name("night"),
        file: PathBuf::from("/work/defib.toml"),
        folder: PathBuf::from("/work"),
        mode: "continuous".into(),
        config: json!({ "agent": { "web": { "command": ["true"] } } }),
    }
}

fn some() -> Vec<Intent> {
    let web = name("web");
    vec![
        Intent::Goal { agent: web.clone(), goal: Goal::Up },
        Intent::Goal { agent: web.clone(), goal: Goal::Stopped },
        Intent::Goal { agent: name("old"), goal: Goal::Down },
        Intent::Apply(project()),
        Intent::Apply(Project { name: name("gone"), ..project() }),
        Intent::Withdraw(name("gone")),
        Intent::Balance { agent: web.clone(), unit: "usd".into(), micros: 4_500_000 },
        Intent::Balance { agent: web, unit: "scrip".into(), micros: -1 },
        Intent::Keep { key: "life/web".into(), value: "{\"phase\":1}".into() },
        Intent::Keep { key: "x".into(), value: "y".into() },
        Intent::Drop { key: "x".into() },
    ]
}

fn expected() -> Intents {
    let balances = [("usd".into(), Balance(4_500_000)), ("scrip".into(), Balance(-1))];
    Intents {
        goals: [(name("web"), Goal::Stopped), (name("old"), Goal::Down)].into(),
        projects: [(name("night"), project())].into(),
        balances: [(name("web"), balances.into())].into(),
        kept: [("life/web".into(), "{\"phase\":1}".into())].into(),
        unreadable: 0,
    }
}

#[test]
fn intents_are_on_disk_when_the_call_returns_and_are_there_after_it() {
    let (_folder, path) = home();
    let (history, opened) = open(&path);
    assert_eq!(opened.intents, Intents::default());
    history.store_intents(some()).unwrap();
    assert_eq!(Reader::open(&path).unwrap().intents(), Ok(expected()));
    drop(history);
    assert_eq!(open(&path).1.intents, expected());
}

#[test]
fn intents_for_later_are_stored_in_their_order_and_at_the_latest_on_close() {
    let (_folder, path) = home();
    let (history, _) = open(&path);
    for intent in some() {
        history.store_later([intent]);
    }
    until("intents stored later", || {
        Reader::open(&path).unwrap().intents().is_ok_and(|intents| intents == expected())
    });
    history.store_later([Intent::Goal { agent: name("web"), goal: Goal::Up }]);
    drop(history);
    assert_eq!(open(&path).1.intents.goals[&name("web")], Goal::Up);
}

#[test]
fn of_many_intents_for_later_the_last_one_counts() {
    let (_folder, path) = home();
    let (history, _) = open(&path);
    for round in 0..20_000 {
        let key = format!("life/{}", round % 7);
        history.store_later([Intent::Keep { key, value: round.to_string() }]);
        if round == 9_000 {
            // One that is waited for comes after all that were given before it.
            history
                .store_intent(Intent::Keep { key: "life/0".into(), value: "now".into() })
                .unwrap();
            assert_eq!(Reader::open(&path).unwrap().intents().unwrap().kept["life/0"], "now");
        }
    }
    drop(history);
    let kept = open(&path).1.intents.kept;
    for key in 0..7 {
        let last = (0..20_000).rev().find(|round| round % 7 == key).unwrap();
        assert_eq!(kept[&format!("life/{key}")], last.to_string());
    }
}

#[test]
fn callers_at_the_same_time_are_all_answered_and_all_stored() {
    let (_folder, path) = home();
    let (history, _) = open(&path);
    let store = |history: &History, number: u32| {
        let goal = if number.is_multiple_of(2) { Goal::Up } else { Goal::Stopped };
        history.store_intent(Intent::Goal { agent: name(&format!("a{number}")), goal })
    };
    std::thread::scope(|scope| {
        for number in 0..64 {
            let history = &history;
            scope.spawn(move || store(history, number).unwrap());
        }
    });
    let goals = Reader::open(&path).unwrap().intents().unwrap().goals;
    assert_eq!(goals.len(), 64);
    assert_eq!(goals[&name("a63")], Goal::Stopped);
}

#[test]
fn what_an_older_build_filled_is_passed_over() {
    let (_folder, path) = home();
    let (history, _) = open(&path);
    history.store_intents(some()).unwrap();
    drop(history);
    let file = rusqlite::Connection::open(path.with_file_name("intent.db")).unwrap();
    file.execute_batch("INSERT INTO ad_hoc VALUES ('one', '{}'); UPDATE projects SET hash = 'abc'")
        .unwrap();
    drop(file);
    let (history, opened) = open(&path);
    assert_eq!((opened.intent_damaged, opened.intents), (None, expected()));
    history.store_intents(some()).unwrap();
    assert_eq!(Reader::open(&path).unwrap().intents(), Ok(expected()));
}
