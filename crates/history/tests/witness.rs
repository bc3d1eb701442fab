//! `intent.db` and `witness.db` restore each other.

#![allow(clippy::unwrap_used, reason = "it is a test")]

mod common;

use std::fs;
use std::path::Path;

use common::{SOON, home, host_event, name, open, options, watched};
use defib_core::Goal;
use defib_history::{History, Intent, Intents, Opened, Reader, Store, Trouble};

/// What an accident does to a file; the second path is an old copy of it.
type Accident = (&'static str, fn(&Path, &Path));

const ACCIDENTS: [Accident; 7] = [
    ("removed", |file, _| fs::remove_file(file).unwrap()),
    ("emptied", |file, _| fs::write(file, b"").unwrap()),
    ("garbage", |file, _| fs::write(file, vec![0xA5; 20_000]).unwrap()),
    ("cut to half", |file, _| {
        let bytes = fs::read(file).unwrap();
        fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
    }),
    ("cut to its first page", |file, _| {
        let bytes = fs::read(file).unwrap();
        fs::write(file, &bytes[..4096]).unwrap();
    }),
    ("replaced by an old copy", |file, old| {
        fs::copy(old, file).unwrap();
    }),
    ("replaced by a folder", |file, _| {
        fs::remove_file(file).unwrap();
        fs::create_dir(file).unwrap();
    }),
];

fn goal(agent: &str, goal: Goal) -> Intent {
    Intent::Goal { agent: name(agent), goal }
}

fn keep(key: &str) -> Intent {
    Intent::Keep { key: key.into(), value: "{}".into() }
}

/// A home in which an agent was stopped and a token revoked after a copy of both files was made.
fn used(path: &Path) -> Intents {
    let (history, _) = open(path);
    history.append([host_event(1, "daemon-started")]);
    history.flush(SOON).unwrap();
    history.store_intents([goal("web", Goal::Up), keep("door/token/old"), keep("x")]).unwrap();
    drop(history);
    for file in ["intent.db", "witness.db"] {
        fs::copy(path.with_file_name(file), path.with_file_name(format!("{file}.copy"))).unwrap();
    }
    let (history, _) = open(path);
    let revoked = Intent::Drop { key: "door/token/old".into() };
    history.store_intents([goal("web", Goal::Stopped), revoked]).unwrap();
    drop(history);
    let (_, opened) = open(path);
    assert_eq!(opened.intent_troubles, []);
    opened.intents
}

fn restored(opened: &Opened) -> Vec<(Store, Store)> {
    let pairs = opened.intent_troubles.iter().filter_map(|trouble| match trouble {
        Trouble::Restored { store, from, .. } => Some((*store, *from)),
        Trouble::Damaged { .. } | Trouble::Failing { .. } | Trouble::Recovered { .. } => None,
    });
    pairs.collect()
}

fn damage(path: &Path, file: &str, accident: fn(&Path, &Path)) {
    let file = path.with_file_name(file);
    let with = |suffix: &str| file.with_file_name(format!("{}{suffix}", name_of(&file)));
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(with(suffix));
    }
    accident(&file, &with(".copy"));
}

fn name_of(file: &Path) -> String {
    file.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn intent_db_is_restored_from_witness_db_after_each_accident() {
    for (what, accident) in ACCIDENTS {
        let (_folder, path) = home();
        let before = used(&path);
        damage(&path, "intent.db", accident);
        let (history, opened) = open(&path);
        assert_eq!(opened.intents, before, "{what}");
        assert_eq!(restored(&opened), [(Store::Intent, Store::Witness)], "{what}: {opened:?}");
        history.store_intent(keep("y")).unwrap();
        drop(history);
        let (_, opened) = open(&path);
        assert_eq!(opened.intent_troubles, [], "{what}");
        assert_eq!(opened.intents.goals, before.goals, "{what}");
        assert!(!opened.intents.kept.contains_key("door/token/old"), "{what}");
        assert!(opened.intents.kept.contains_key("y"), "{what}");
    }
}

#[test]
fn witness_db_is_restored_from_intent_db_after_each_accident() {
    for (what, accident) in ACCIDENTS {
        let (_folder, path) = home();
        let before = used(&path);
        damage(&path, "witness.db", accident);
        let (history, opened) = open(&path);
        assert_eq!(opened.intents, before, "{what}");
        // An old copy says nothing false: it is brought up to date without a word.
        if !what.contains("old copy") {
            assert_eq!(restored(&opened), [(Store::Witness, Store::Intent)], "{what}: {opened:?}");
        }
        drop(history);
        damage(&path, "intent.db", |file, _| fs::remove_file(file).unwrap());
        let (_, opened) = open(&path);
        assert_eq!(opened.intents, before, "{what}: the second copy was not made again");
    }
}

#[test]
fn loss_of_both_files_is_reported_and_a_new_home_is_not() {
    let (_folder, path) = home();
    assert_eq!(open(&path).1.intent_troubles, []);
    used(&path);
    for file in ["intent.db", "witness.db"] {
        damage(&path, file, |file, _| fs::remove_file(file).unwrap());
    }
    let (_, opened) = open(&path);
    assert_eq!(opened.intents, Intents::default());
    let told = opened.troubles();
    assert!(matches!(&told[..], [Trouble::Damaged { store: Store::Intent, .. }]), "{told:?}");
}

#[test]
fn old_copy_put_in_place_while_the_file_is_open_restores_nothing_that_was_revoked() {
    for file in ["intent.db", "witness.db"] {
        let (_folder, path) = home();
        let before = used(&path);
        let (options, troubles) = watched(options());
        let (history, _) = History::open(&path, options).unwrap();
        let (place, old) = (path.with_file_name(file), path.with_file_name(format!("{file}.copy")));
        fs::remove_file(&place).unwrap();
        fs::copy(old, &place).unwrap();
        history.store_intent(keep("y")).unwrap();
        let told = troubles.recv_timeout(SOON).unwrap();
        assert!(told.to_string().contains(file), "{told}");
        let mut wanted = before.clone();
        wanted.kept.insert("y".into(), "{}".into());
        assert_eq!(Reader::open(&path).unwrap().intents().unwrap(), wanted, "{file}");
        drop(history);
        assert_eq!(open(&path).1.intents, wanted, "{file}");
    }
}
