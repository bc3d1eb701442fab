//! What each kind prints, and what is made of it.

use proptest::prelude::*;

use super::*;

fn used(kind: Kind, lines: &[&str]) -> (f64, f64) {
    let (mut tally, mut whole) = (Tally::new(kind, Arc::default()), Lines::default());
    whole.take((lines.join("\n") + "\n").as_bytes(), |line| tally.take(line));
    let Used { tokens, usd, .. } = tally.used();
    (tokens, (usd * 1e6).round() / 1e6)
}

const STEP_1: &str = r#"{"type":"assistant","message":{"id":"m1","usage":{"input_tokens":100,"output_tokens":1,"cache_read_input_tokens":9}},"session_id":"s"}"#;
const STEP_2: &str = r#"{"type":"assistant","message":{"id":"m2","usage":{"input_tokens":50,"output_tokens":2}},"session_id":"s"}"#;
const RESULT: &str = r#"{"type":"result","subtype":"success","session_id":"s","total_cost_usd":0.25,"usage":{"input_tokens":150,"output_tokens":40,"cache_creation_input_tokens":10}}"#;
const RESULT_BY_MODEL: &str = r#"{"type":"result","session_id":"s","total_cost_usd":0.5,"usage":{"input_tokens":1,"output_tokens":1},"modelUsage":{"big":{"inputTokens":200,"outputTokens":100,"cacheReadInputTokens":50,"cacheCreationInputTokens":30},"small":{"inputTokens":20}}}"#;

#[test]
fn claude() {
    for (what, lines, expected) in [
        ("nothing", &[][..], (0.0, 0.0)),
        ("steps count as they come", &[STEP_1, STEP_2], (162.0, 0.0)),
        ("a step that is told twice counts once", &[STEP_1, STEP_1, STEP_2, STEP_1], (162.0, 0.0)),
        ("the result knows better", &[STEP_1, STEP_2, RESULT], (200.0, 0.25)),
        ("subagents are in modelUsage only", &[STEP_1, RESULT_BY_MODEL], (400.0, 0.5)),
        (
            "cost and modelUsage are totals of the session",
            &[RESULT_BY_MODEL, RESULT_BY_MODEL],
            (400.0, 0.5),
        ),
        (
            "another session is spent on top",
            &[RESULT, &RESULT.replace("\"s\"", "\"t\"")],
            (400.0, 0.5),
        ),
        (
            "echoed and nested text is nobody's usage",
            &[
                r#"{"type":"user","message":{"content":"{\"type\":\"result\",\"total_cost_usd\":9,\"usage\":{}}"}}"#,
                "total_cost_usd: 5, usage",
                r#"{"type":"result","total_cost_usd":"#,
                r#"{"type":"result","total_cost_usd":-4,"usage":{"input_tokens":"many"}}"#,
            ],
            (0.0, 0.0),
        ),
    ] {
        assert_eq!(used(Kind::Claude, lines), expected, "{what}");
    }
}

#[test]
fn opencode() {
    let step = |reason: &str| {
        format!(
            r#"{{"type":"step_finish","part":{{"reason":"{reason}","cost":0.25,"tokens":{{"input":10,"output":5,"reasoning":1,"cache":{{"read":3,"write":1}}}}}}}}"#
        )
    };
    let (tools, stop) = (step("tool-calls"), step("stop"));
    assert_eq!(used(Kind::Opencode, &[&tools, r#"{"type":"text"}"#, &stop]), (40.0, 0.5));
}

#[test]
fn codex() {
    let turn = |input: u32, output: u32| {
        format!(
            r#"{{"type":"turn.completed","usage":{{"input_tokens":{input},"cached_input_tokens":5,"output_tokens":{output}}}}}"#
        )
    };
    let thread = |id: &str| format!(r#"{{"type":"thread.started","thread_id":"{id}"}}"#);
    let (one, two) = (turn(100, 10), turn(180, 30));
    for (what, lines, expected) in [
        ("a turn", vec![thread("t"), one.clone()], 110.0),
        ("a turn tells the thread's total", vec![thread("t"), one.clone(), two.clone()], 210.0),
        ("another thread", vec![thread("t"), one.clone(), thread("u"), two], 320.0),
        ("a failed turn tells nothing", vec![thread("t"), r#"{"type":"turn.failed"}"#.into()], 0.0),
    ] {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!(used(Kind::Codex, &lines), (expected, 0.0), "{what}");
    }
}

#[test]
fn gemini() {
    let init = r#"{"type":"init","session_id":"g","model":"m"}"#;
    for (what, line, expected) in [
        (
            "in one number",
            r#"{"type":"result","status":"success","stats":{"total_tokens":700}}"#,
            700.0,
        ),
        (
            "model by model",
            r#"{"type":"result","stats":{"models":{"a":{"tokens":{"total":300}},"b":{"total_tokens":40}}}}"#,
            340.0,
        ),
        ("an error without numbers", r#"{"type":"result","status":"error"}"#, 0.0),
    ] {
        assert_eq!(used(Kind::Gemini, &[init, line, line]), (expected, 0.0), "{what}");
    }
}

#[test]
fn aider() {
    for (what, lines, expected) in [
        (
            "a message",
            &["Tokens: 4.2k sent, 1.1k received. Cost: $0.02 message, $0.05 session."][..],
            (5300.0, 0.05),
        ),
        (
            "the cost of the session is a total, tokens are not",
            &[
                "Tokens: 500 sent, 20 received. Cost: $0.02 message, $0.02 session.",
                "Tokens: 1.5M sent, 80 received. Cost: $0.03 message, $0.05 session.",
            ],
            (1_500_600.0, 0.05),
        ),
        (
            "the cost on a line of its own, in colour",
            &[
                "\u{1b}[34mTokens: 3k sent, 2k cache write, 1k cache hit, 10 received.\u{1b}[0m",
                "Cost: $1.10 message, $2.20 session.",
            ],
            (3010.0, 2.2),
        ),
        (
            "talk about tokens",
            &["Tokens: many sent, few received.", "> Tokens: 4k sent"],
            (0.0, 0.0),
        ),
    ] {
        assert_eq!(used(Kind::Aider, lines), expected, "{what}");
    }
}

#[test]
fn a_line_that_is_too_long_is_passed_over_and_the_next_one_is_not() {
    let (mut lines, mut seen) = (Lines::default(), Vec::new());
    let piece = vec![b'x'; 1000];
    for _ in 0..2 * LONGEST_LINE / piece.len() {
        lines.take(&piece, |line| seen.push(line.len()));
    }
    assert!(lines.unfinished.len() <= LONGEST_LINE);
    lines.take(b"\nnext\nla", |line| seen.push(line.len()));
    lines.take(b"st", |line| seen.push(line.len()));
    lines.finish(|line| seen.push(line.len()));
    assert_eq!(seen, [5, 4]);
}

proptest! {
    #[test]
    fn no_bytes_make_a_meter_panic_and_pieces_make_no_difference(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        cut in 0usize..600,
    ) {
        let cut = cut.min(bytes.len());
        for kind in [Kind::Claude, Kind::Codex, Kind::Gemini, Kind::Aider] {
            let mut all = bytes.clone();
            for line in [STEP_1, RESULT, "Tokens: 1k sent, 2 received."] {
                all.extend_from_slice(b"\n");
                all.extend_from_slice(line.as_bytes());
            }
            let mut whole = (Tally::new(kind, Arc::default()), Lines::default());
            whole.1.take(&all, |line| whole.0.take(line));
            whole.1.finish(|line| whole.0.take(line));
            let mut parts = (Tally::new(kind, Arc::default()), Lines::default());
            for part in [&all[..cut], &all[cut..]] {
                parts.1.take(part, |line| parts.0.take(line));
            }
            parts.1.finish(|line| parts.0.take(line));
            prop_assert_eq!(whole.0.used(), parts.0.used());
        }
    }
}
