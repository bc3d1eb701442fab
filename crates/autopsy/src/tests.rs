//! The rule files hold what they promise: every rule has examples, and they come out as they say.

use super::*;
use crate::lines::own_lines;
use crate::rules::{compile_own, file_of};
use crate::views::Views;

fn opinion(kind: Kind, code: i32, tail: &str) -> Option<Class> {
    let case = Case {
        kind,
        status: Status::Exited(code),
        oom: false,
        tail: tail.as_bytes(),
        now: Wall::from_millis(1_791_374_400_000),
        zone: &TimeZone::UTC,
        exit_codes: &BTreeMap::new(),
    };
    Autopsy::default().examine(&case).finding.map(|finding| finding.class)
}

#[test]
fn every_rule_has_examples_and_they_come_out_as_they_say() {
    let mut wrong = Vec::new();
    for kind in Kind::ALL {
        let file = file_of(*kind).unwrap();
        assert!(file.version >= 1);
        for rule in &file.rule {
            let name = format!("{}/{}", kind.word(), rule.name);
            let regex = compile_own(&rule.pattern).unwrap();
            let hits = |text: &str| {
                let lines = own_lines(text.as_bytes(), *kind);
                lines.iter().any(|line| {
                    Views::of(&line.text, false).texts.iter().any(|view| regex.is_match(view))
                })
            };
            if rule.yes.len() < 2 || rule.no.is_empty() {
                wrong.push(format!("{name} has too few examples"));
            }
            if !rule.pattern.starts_with('^') {
                wrong.push(format!("{name} is not anchored"));
            }
            let expected = Class::from_word(&rule.class);
            let code = i32::from(expected != Some(Class::Done));
            for text in &rule.yes {
                let found = opinion(*kind, code, text);
                if found != expected {
                    wrong.push(format!("{name}: {found:?} for {text}"));
                }
            }
            let none = rule.yes.iter().all(|text| !hits(text));
            if none && !rule.yes.is_empty() {
                wrong.push(format!("{name}: no example is matched by the rule itself"));
            }
            for text in &rule.no {
                if hits(text) {
                    wrong.push(format!("{name}: matches {text}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn names_of_rules_are_used_once_a_file() {
    for kind in Kind::ALL {
        let file = file_of(*kind).unwrap();
        let mut names: Vec<&str> = file.rule.iter().map(|rule| rule.name.as_str()).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "{}", kind.word());
    }
}
