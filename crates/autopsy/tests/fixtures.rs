//! Deaths as they are known from the agents, each with what it must come out as.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

use std::collections::BTreeMap;

use defib_autopsy::{Autopsy, Case, Kind};
use defib_core::Wall;
use defib_core::run::Status;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

/// Checks every death of a file; says which come out wrong.
fn check(text: &str) {
    let deaths: Vec<Value> = serde_json::from_str(text).unwrap();
    assert!(!deaths.is_empty());
    let autopsy = Autopsy::default();
    let mut wrong = Vec::new();
    for death in &deaths {
        let tail = death["tail"].as_str().unwrap();
        let case = Case {
            kind: Kind::from_word(death["kind"].as_str().unwrap()).unwrap(),
            status: Status::Exited(i32::try_from(death["exit"].as_i64().unwrap()).unwrap()),
            oom: false,
            tail: tail.as_bytes(),
            // 7 October 2026, 12:00 UTC, a Wednesday.
            now: Wall::from_millis(1_791_374_400_000),
            zone: &TimeZone::UTC,
            exit_codes: &BTreeMap::new(),
        };
        let finding = autopsy.examine(&case).finding;
        let class = finding.as_ref().map(|finding| finding.class.word());
        if class != death["class"].as_str() {
            wrong.push(format!("{class:?} and not {}: {death}\n", death["class"]));
        }
        if let Some(expected) = death.get("resets_at") {
            let stated = finding
                .and_then(|finding| finding.resets_at)
                .map(|at| Timestamp::from_millisecond(at.as_millis()).unwrap().to_string());
            if stated.as_deref() != expected.as_str() {
                wrong.push(format!("{stated:?} and not {expected}: {death}\n"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), deaths.len(), wrong.concat());
}

#[test]
fn known_deaths_come_out_as_given() {
    check(include_str!("data/deaths.json"));
}

#[test]
fn other_wordings_of_the_same_come_out_the_same() {
    check(include_str!("data/wordings.json"));
}

#[test]
fn what_nobody_had_seen_when_the_rules_were_written_comes_out_right() {
    check(include_str!("data/unseen.json"));
}
