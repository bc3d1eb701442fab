//! A run that has printed its final record and does not exit: the record decides what the run is, and
//! nothing is paid for twice.

use std::fmt::Write as _;

use defib_e2e::{Bench, is};
use serde_json::{Value, json};

use crate::bench;

const HANGS: &str = "exec sleep 1000\n";

/// What each kind of CLI prints: a first record, a record of work, and the record that ends its work.
fn records(kind: &str) -> [Value; 3] {
    match kind {
        "claude" => [
            json!({ "type": "system", "subtype": "init", "session_id": "s-1" }),
            json!({ "type": "assistant", "message": { "id": "m", "usage": {} } }),
            json!({ "type": "result", "subtype": "success", "is_error": false,
                    "session_id": "s-1", "total_cost_usd": 5.57 }),
        ],
        "codex" => [
            json!({ "type": "thread.started", "thread_id": "t-1" }),
            json!({ "type": "item.started", "item": { "type": "command_execution" } }),
            json!({ "type": "turn.completed", "usage": { "input_tokens": 9, "output_tokens": 1 } }),
        ],
        "gemini" => [
            json!({ "type": "init", "session_id": "g-1" }),
            json!({ "type": "message", "role": "assistant", "content": "x" }),
            json!({ "type": "result", "status": "success", "stats": { "total_tokens": 10 } }),
        ],
        "opencode" => [
            json!({ "type": "step_start", "sessionID": "o-1", "part": {} }),
            json!({ "type": "tool_use", "sessionID": "o-1", "part": {} }),
            json!({ "type": "step_finish", "sessionID": "o-1",
                    "part": { "reason": "stop", "cost": 5.57, "tokens": { "input": 10 } } }),
        ],
        _ => unreachable!("{kind}"),
    }
}

const KINDS: [&str; 4] = ["claude", "codex", "gemini", "opencode"];

fn print(record: &Value) -> String {
    format!("echo '{record}'\n")
}

/// A stand-in for a CLI: a script that bills one run of 557 cents, then does what is given.
fn cli(bench: &Bench, name: &str, kind: &str, script: &str, settings: &str) -> String {
    let (path, billed) = (bench.file(&format!("{name}.sh")), bench.file(&format!("{name}.billed")));
    std::fs::write(&path, format!("echo 557 >> {billed}\n{script}")).unwrap();
    format!("[agent.{name}]\ncommand = [\"sh\", \"{path}\"]\nkind = \"{kind}\"\n{settings}\n")
}

/// How many cents an agent's runs have cost.
fn billed(bench: &Bench, name: &str) -> u32 {
    let text = std::fs::read_to_string(bench.file(&format!("{name}.billed"))).unwrap_or_default();
    text.lines().map(|cents| cents.parse::<u32>().unwrap()).sum()
}

fn await_age(bench: &Bench, name: &str, seconds: f64) -> Value {
    bench.await_status(name, |status| {
        let lives = status["uptime_s"].as_f64().is_some_and(|age| age > seconds);
        lives || status["state"] != "running"
    })
}

/// Goal: a finished run is done, whatever bound it is past when it is ended, and is paid for once.
/// Method: every kind prints its final record and sleeps, each under every bound, with and without a
/// terminal; the bounds pass before `linger` does.
#[test]
fn a_finished_run_that_does_not_exit_is_done_under_every_bound_and_billed_once() {
    let bench = bench();
    let bounds = [
        ("plain", ""),
        ("hang", "hang = { silent_for = \"2s\" }"),
        ("beat", "heartbeat = { ttl = \"2s\" }"),
        ("old", "max_runtime = \"3s\""),
        ("pty", "pty = true\nhang = { silent_for = \"2s\" }"),
    ];
    let (mut parts, mut names) = (Vec::new(), Vec::new());
    for kind in KINDS {
        let [first, work, last] = records(kind).map(|record| print(&record));
        let script = format!("{first}{work}{last}{HANGS}");
        for (bound, settings) in bounds {
            let name = format!("{kind}-{bound}");
            let settings = format!("linger = \"4s\"\n{settings}");
            parts.push(cli(&bench, &name, kind, &script, &settings));
            names.push(name);
        }
    }
    let events = bench.up(&parts);
    let mut table = String::new();
    for name in &names {
        let died = events.of(name, "run-died");
        let state = bench.await_status(name, |status| {
            !matches!(status["state"].as_str(), Some("running" | "stopping"))
        });
        let runs = bench.history(name).len();
        let cents = billed(&bench, name);
        let line = (&died["class"], &state["state"], runs, cents);
        writeln!(table, "{name:16} {line:?} {}", died["evidence"]).unwrap();
        assert_eq!(line, (&json!("done"), &json!("done"), 1, 557), "{table}\n{}", bench.account());
    }
    println!("{table}");
    let asked = events.find("the stop", |events| {
        events.iter().find(|event| is(event, "claude-hang", "stop-requested")).cloned()
    });
    assert_eq!(asked["by"], "linger", "{asked}");
}

#[test]
fn a_failure_in_the_final_record_is_the_class_of_a_run_that_does_not_exit() {
    let bench = bench();
    let refused = json!({ "type": "turn.failed", "error": {
        "message": "unexpected status 401 Unauthorized: Missing bearer or basic authentication" } });
    let credit = json!({ "type": "result", "subtype": "success", "is_error": true,
        "api_error_status": 400, "result": "Credit balance is too low" });
    let settings = "linger = \"2s\"\nhang = { silent_for = \"1s\" }";
    let script = |record| format!("{}{HANGS}", print(record));
    let events = bench.up(&[
        cli(&bench, "codex", "codex", &script(&refused), settings),
        cli(&bench, "claude", "claude", &script(&credit), settings),
    ]);
    for (name, class) in [("codex", "auth"), ("claude", "billing")] {
        assert_eq!(events.of(name, "run-died")["class"], class);
        assert_eq!(bench.await_state(name, "halted")["reason"], class);
        assert_eq!(billed(&bench, name), 557);
    }
}

/// Goal: work after a final record puts off the end, be it a later record or a busy child.
/// Method: both live for longer than `linger` until a file tells them to finish.
#[test]
fn a_later_record_of_work_cancels_and_a_busy_child_extends() {
    let bench = bench();
    let go = bench.file("go");
    let (mut parts, mut names) = (Vec::new(), Vec::new());
    for kind in KINDS {
        let [first, work, last] = records(kind).map(|record| print(&record));
        let awaits = format!("until [ -e {go} ]; do sleep 0.1; done\n");
        let again = format!("{first}{last}sleep 0.3\n{work}{awaits}{last}{HANGS}");
        let name = format!("{kind}-again");
        parts.push(cli(&bench, &name, kind, &again, "linger = \"2s\""));
        names.push(name);
    }
    let [first, _, last] = records("claude").map(|record| print(&record));
    let child = format!("{first}{last}sh -c 'until [ -e {go} ]; do :; done' &\n{HANGS}");
    parts.push(cli(&bench, "child", "claude", &child, "linger = \"2s\""));
    names.push("child".to_owned());
    let events = bench.up(&parts);
    for name in &names {
        let status = await_age(&bench, name, 6.0);
        assert_eq!(status["state"], "running", "{name}\n{}", bench.account());
    }
    std::fs::write(&go, "").unwrap();
    for name in &names {
        assert_eq!(events.of(name, "run-died")["class"], "done", "{name}");
        assert_eq!(bench.await_state(name, "done")["run"], 1);
        assert_eq!(billed(&bench, name), 557);
    }
}

#[test]
fn linger_off_ends_nothing_and_a_hang_is_still_no_failure_of_a_finished_run() {
    let bench = bench();
    for kind in ["claude", "codex"] {
        let [first, _, last] = records(kind).map(|record| print(&record));
        let script = format!("{first}{last}{HANGS}");
        let hang = "linger = \"off\"\nhang = { silent_for = \"1s\" }";
        let (stays, hangs) = (format!("{kind}-stays"), format!("{kind}-hangs"));
        let events = bench.up(&[
            cli(&bench, &stays, kind, &script, "linger = \"off\""),
            cli(&bench, &hangs, kind, &script, hang),
        ]);
        assert_eq!(events.of(&hangs, "run-died")["class"], "done");
        assert_eq!(
            (bench.await_state(&hangs, "done")["run"].clone(), billed(&bench, &hangs)),
            (json!(1), 557)
        );
        assert_eq!(await_age(&bench, &stays, 4.0)["state"], "running");
    }
}

#[test]
fn a_new_daemon_ends_a_run_that_finished_under_the_daemon_before() {
    let bench = bench();
    let [first, _, last] = records("claude").map(|record| print(&record));
    let script = format!("{first}{last}{HANGS}");
    let settings = "linger = \"3s\"\nmax_runtime = \"2s\"";
    let events = bench.up(&[cli(&bench, "a", "claude", &script, settings)]);
    bench.await_log("a", |log| log.contains("total_cost_usd"));
    bench.kill_daemon();
    bench.await_state("a", "done");
    assert_eq!(events.of("a", "run-died")["class"], "done");
    assert_eq!(billed(&bench, "a"), 557);
}

#[test]
fn a_value_that_is_no_length_of_time_is_refused() {
    let bench = bench();
    bench.config(&cli(&bench, "a", "claude", "", "linger = \"never\""));
    let said = bench.defib(&["check"]).bad(3).err;
    assert!(said.contains("`off`"), "{said}");
}
