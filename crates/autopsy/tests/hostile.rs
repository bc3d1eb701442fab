//! Whatever an agent writes, an examination ends, and soon.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

use std::collections::BTreeMap;

use defib_autopsy::{Autopsy, Case, Kind, Opinion, UserRule, session_in};
use defib_core::run::Status;
use defib_core::{Class, Signal, Wall};
use jiff::tz::TimeZone;
use proptest::prelude::*;

fn examine(kind: Kind, status: Status, oom: bool, tail: &[u8]) -> Opinion {
    let (zone, exit_codes) =
        (TimeZone::UTC, BTreeMap::from([(75, Class::Quota), (0, Class::Done)]));
    let now = Wall::from_millis(1_791_374_400_000);
    let case = Case { kind, status, oom, tail, now, zone: &zone, exit_codes: &exit_codes };
    Autopsy::default().examine(&case)
}

fn class(kind: Kind, status: Status, oom: bool, tail: &str) -> Option<Class> {
    examine(kind, status, oom, tail.as_bytes()).finding.map(|finding| finding.class)
}

#[test]
fn hostile_outputs_are_outputs_like_any_other() {
    let limit = "You've hit your session limit · resets 3:45pm";
    let outputs: Vec<Vec<u8>> = vec![
        vec![b'x'; 2 << 20],
        vec![0; 1 << 17],
        vec![0xff; 1 << 17],
        b"\x1b[31m".repeat(30_000),
        b"\x1b]0;title".repeat(20_000),
        b"\x1b".repeat(20_000),
        b"\r".repeat(20_000),
        b"\n".repeat(1 << 17),
        b"{".repeat(1 << 17),
        b"[{".repeat(1 << 16),
        b"{\"a\":".repeat(30_000),
        b"}\n".repeat(10_000),
        b"{\n".repeat(10_000),
        b"{\"type\":\"result\",\"is_error\":true,\"result\":\"You've hit".to_vec(),
        b"ERROR: ".repeat(20_000),
        b"error error error ".repeat(10_000),
        b"API Error: 529 ".repeat(10_000),
        b"\"message\": \"".repeat(10_000),
        "⎿".repeat(30_000).into_bytes(),
        "resets resets resets ".repeat(10_000).into_bytes(),
        "limit ".repeat(50_000).into_bytes(),
    ];
    for output in &outputs {
        for kind in [Kind::Claude, Kind::Codex, Kind::Generic] {
            let found = examine(kind, Status::Exited(1), false, output).finding.unwrap();
            assert!(found.evidence.is_none_or(|evidence| evidence.len() <= 5 << 10));
        }
        // The last line counts, whatever stands before it.
        let mut said = output.clone();
        said.extend_from_slice(b"\x07\x1b\\\n");
        said.extend_from_slice(limit.as_bytes());
        let found = examine(Kind::Claude, Status::Exited(1), false, &said).finding.unwrap();
        assert_eq!(found.class, Class::Quota, "after {:?}", &output[..12]);
    }
}

#[test]
fn a_result_longer_than_the_lines_that_are_read_is_still_a_result() {
    let text = "word ".repeat(20_000);
    let record = format!(
        "{{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"{text}\"}}"
    );
    assert_eq!(class(Kind::Claude, Status::Exited(0), false, &record), Some(Class::Done));
}

#[test]
fn memory_is_told_by_the_kernel_and_by_the_runtime() {
    let kill = Status::Signaled(Signal::KILL);
    let abort = Status::Signaled(Signal(6));
    let heap = "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory";
    assert_eq!(class(Kind::Claude, kill, true, ""), Some(Class::Oom));
    assert_eq!(class(Kind::Claude, Status::Exited(137), true, ""), Some(Class::Oom));
    assert_eq!(class(Kind::Claude, kill, false, ""), Some(Class::Error));
    assert_eq!(class(Kind::Claude, Status::Exited(1), true, ""), Some(Class::Error));
    assert_eq!(class(Kind::Claude, abort, false, heap), Some(Class::Oom));
    assert_eq!(class(Kind::Node, Status::Signaled(Signal(5)), false, heap), Some(Class::Oom));
}

#[test]
fn a_signal_that_only_a_bug_sends_is_an_error_whatever_was_written_before() {
    let limit = "You've hit your session limit · resets 3:45pm";
    let segv = Status::Signaled(Signal(11));
    let finding = examine(Kind::Claude, segv, false, limit.as_bytes()).finding.unwrap();
    assert_eq!((finding.class, finding.evidence.as_deref()), (Class::Error, Some("SIGSEGV")));
    assert_eq!(
        class(Kind::Claude, Status::Signaled(Signal::TERM), false, limit),
        Some(Class::Quota)
    );
}

#[test]
fn what_was_not_seen_is_known_only_by_what_was_written() {
    assert_eq!(class(Kind::Claude, Status::Unseen, false, "bye"), None);
    assert_eq!(class(Kind::Claude, Status::NotSpawned { usable: false }, false, ""), None);
    let limit = "You've hit your session limit · resets 3:45pm";
    assert_eq!(class(Kind::Claude, Status::Unseen, false, limit), Some(Class::Quota));
}

#[test]
fn the_operators_exit_codes_come_before_lines_and_after_records() {
    let overload = "API Error: 529 Overloaded";
    assert_eq!(class(Kind::Claude, Status::Exited(75), false, overload), Some(Class::Quota));
    let record = r#"{"type":"result","subtype":"error_max_turns","is_error":true}"#;
    assert_eq!(class(Kind::Claude, Status::Exited(75), false, record), Some(Class::Budget));
    // That 0 is `done` in the operator's table does not hide what goose says.
    let goose = "Ran into this error: Rate limit exceeded: x.";
    assert_eq!(class(Kind::Goose, Status::Exited(0), false, goose), Some(Class::Throttle));
}

#[test]
fn a_users_rules_come_first_and_only_for_their_kind() {
    let rule = |kind, pattern: &str, class| UserRule { kind, pattern: pattern.into(), class };
    let autopsy = Autopsy::new(&[
        rule(Some(Kind::Generic), "^FATAL: license", Class::Config),
        rule(None, "^API Error: 529", Class::Network),
        rule(Some(Kind::Gemini), "^no seat", Class::Billing),
    ])
    .unwrap();
    let (zone, exit_codes) = (TimeZone::UTC, BTreeMap::new());
    let class = |kind, code, tail: &str| {
        let (status, now) = (Status::Exited(code), Wall::from_millis(0));
        let tail = tail.as_bytes();
        let case =
            Case { kind, status, oom: false, tail, now, zone: &zone, exit_codes: &exit_codes };
        autopsy.examine(&case).finding.unwrap().class
    };
    assert_eq!(class(Kind::Generic, 1, "FATAL: license gone"), Class::Config);
    assert_eq!(class(Kind::Python, 1, "FATAL: license gone"), Class::Error);
    assert_eq!(class(Kind::Claude, 1, "API Error: 529 Overloaded"), Class::Network);
    assert_eq!(class(Kind::Gemini, 41, "no seat left"), Class::Billing);
    // It is as anchored, and as particular about its case, as it was written.
    assert_eq!(class(Kind::Generic, 1, "fatal: license gone"), Class::Error);
    assert_eq!(class(Kind::Generic, 1, "> FATAL: license gone"), Class::Error);
    assert!(Autopsy::new(&[rule(None, "^(", Class::Config)]).is_err());
    assert!(Autopsy::new(&[rule(None, "^(?:x{1000}){1000}", Class::Config)]).is_err());
}

#[test]
fn a_session_is_named_by_the_kinds_own_records_only() {
    let table = [
        (Kind::Claude, r#"{"type":"system","subtype":"init","session_id":"a-1"}"#, Some("a-1")),
        (Kind::Codex, r#"{"type":"thread.started","thread_id":"t_2"}"#, Some("t_2")),
        (Kind::Codex, "session id: 0199a213-81c0", Some("0199a213-81c0")),
        (Kind::Gemini, r#"{"type":"init","session_id":"g"}"#, Some("g")),
        (Kind::Opencode, r#"{"type":"text","sessionID":"ses_1"}"#, Some("ses_1")),
        (Kind::Claude, r#"{"type":"user","message":{"session_id":"x"}}"#, None),
        (Kind::Claude, r#"{"session_id":"x; rm -rf /"}"#, None),
        (Kind::Claude, r#"{"session_id":"--help"}"#, None),
        (Kind::Claude, r#"{"session_id":""}"#, None),
        (Kind::Claude, r#"{"session_id":7}"#, None),
        (Kind::Claude, r#"{"session_id":"half"#, None),
        (Kind::Goose, r#"{"session_id":"a"}"#, None),
    ];
    for (kind, line, expected) in table {
        assert_eq!(session_in(kind, line.as_bytes()).as_deref(), expected, "{line}");
    }
    let tail = b"{\"session_id\":\"old\"}\n{\"session_id\":\"new\"}\nbye\n";
    let opinion = examine(Kind::Claude, Status::Exited(1), false, tail);
    assert_eq!(opinion.session.as_deref(), Some("new"));
}

fn any_kind() -> impl Strategy<Value = Kind> {
    proptest::sample::select(Kind::ALL)
}

/// Pieces of which outputs are made that the rules look at.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let known = [
        "{\"type\":\"result\",",
        "\"is_error\":true,",
        "\"result\":\"",
        "\"}",
        "}",
        "{",
        "[",
        "\n",
        "\r",
        "\u{1b}[31m",
        "\u{1b}]",
        "```\n",
        "API Error: ",
        "529 ",
        "You've hit your ",
        "limit",
        " · resets ",
        "3:45pm",
        "Mon 99:99am",
        "Feb 31",
        "in 9999999999 days",
        "|99999999999999999999",
        "(Europe/Berlin)",
        "retry-after: ",
        "2026-02-30T25:61:00Z",
        "ERROR ",
        "Error code: ",
        "'message': \"",
        "⏺ Bash(",
        "\0",
    ];
    prop_oneof![
        3 => proptest::sample::select(known.to_vec()).prop_map(|text| text.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..12),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_bytes_make_it_panic(
        kind in any_kind(), code in -1i32..300, oom: bool, tail in proptest::collection::vec(any::<u8>(), 0..2000),
    ) {
        examine(kind, Status::Exited(code), oom, &tail);
    }

    #[test]
    fn no_scraps_of_known_messages_make_it_panic(
        kind in any_kind(), code in 0i32..3, pieces in proptest::collection::vec(piece(), 0..60),
    ) {
        examine(kind, Status::Exited(code), false, &pieces.concat());
    }
}
