//! The deaths of a real agent, replayed under another policy.

use defib_e2e::{Bench, field, proc};
use serde_json::Value;

use crate::bench;

/// Writes a file that declares the agent with these settings, and gives its name.
fn file_with(bench: &Bench, name: &str, settings: &str) -> String {
    let head = "[defaults]\nbackoff = { kind = \"fixed\", base = \"2s\" }\n";
    let agent = bench.agent("a", "forever", settings);
    std::fs::write(bench.project().join(name), format!("{head}{agent}")).unwrap();
    name.to_owned()
}

fn types(told: &Value, kind: &str) -> Vec<Value> {
    let events = told["would"].as_array().expect("events").iter();
    events.filter(|event| event["type"] == kind).cloned().collect()
}

#[test]
fn what_did_happen_is_shown_beside_what_would() {
    let bench = bench();
    let events = bench.up(&[bench.agent("a", "exit 7", "")]);
    events.of("a", "crashed-out");
    let deaths = bench.history("a");
    assert_eq!(deaths.len(), 5);
    let strict = file_with(&bench, "strict.toml", "limits = [{ deaths = 3, within = \"60s\" }]");
    let loose = file_with(&bench, "loose.toml", "limits = []");
    let other = file_with(&bench, "other.toml", "exit_codes = { 7 = \"config\" }");
    let simulate = |file: &str, more: &[&str]| {
        let base = ["simulate", "--history", "a", "--no-jitter", "-f", file];
        bench.defib(&[&base, more].concat()).good()
    };

    let told = simulate(&strict, &["--json"]).json();
    assert_eq!(told["did"].as_array().unwrap(), &deaths, "as in the history, oldest first");
    assert_eq!(told["replayed"], serde_json::json!([1, 2, 3, 4, 5]));
    assert_eq!(told["outcome"]["state"], "crashed-out");
    let died = types(&told, "run-died");
    assert_eq!(died.len(), 3, "the third is one too many there");
    for (death, real) in died.iter().zip(&deaths) {
        assert_eq!((field(death, "exit_code"), &death["ran_s"]), (7, &real["ran_s"]));
    }
    assert!(types(&told, "restart-scheduled").iter().all(|event| field(event, "delay_ms") == 2000));
    let text = simulate(&strict, &[]).out;
    let row = |number: usize| {
        let start = format!("{number} ");
        text.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{text}"))
    };
    for (number, did, would) in [
        (1, "restart after", "restart in 2s (1 of 3 deaths in 1m)"),
        (3, "restart after", "crashed-out (3 of 3 deaths in 1m)"),
        (5, "crashed-out", "not reached"),
    ] {
        assert!(row(number).contains("error exit 7"), "{text}");
        assert!(row(number).contains(did) && row(number).ends_with(would), "{text}");
    }
    assert!(text.contains("5 deaths\n"), "{text}");

    let told = simulate(&loose, &["--json"]).json();
    assert_eq!(types(&told, "run-died").len(), 5);
    assert_eq!(told["outcome"]["end"], "history-over");
    assert_eq!(told["outcome"]["state"], "running");
    let told = simulate(&other, &[]).out;
    assert!(told.contains("config: halt: "), "the file says what the code means: {told}");

    // Without a daemon the history is read where it is.
    bench.defib(&["down", "--all"]).good();
    assert_eq!(simulate(&strict, &[]).out, text);
    bench.defib(&["simulate", "--history", "nobody", "-f", &strict]).bad(5);
    bench.defib(&["simulate", "--history", "a", "--script", "exit 1"]).bad(2);
    bench.defib(&["up", "--detach"]).good();
}

#[test]
fn what_people_ended_is_left_out_and_its_time_kept() {
    let bench = bench();
    let events = bench.up(&[bench.agent("a", "forever", "limits = []")]);
    proc::kill(bench.pid("a"), "KILL");
    events.of_run("a", 2, "run-ready");
    bench.defib(&["restart", "a"]).good();
    let told = bench.defib(&["simulate", "--history", "a", "--json"]).good().json();
    assert_eq!(told["replayed"], serde_json::json!([1]), "run 2 was ended on request");
    proc::kill(bench.pid("a"), "TERM");
    events.of_run("a", 4, "run-ready");
    let told = bench.defib(&["simulate", "--history", "a", "--json"]).good().json();
    assert_eq!(told["replayed"], serde_json::json!([1, 3]));
    let died = types(&told, "run-died");
    assert_eq!((&died[0]["signal"], &died[1]["signal"]), (&"SIGKILL".into(), &"SIGTERM".into()));
    let runs = bench.history("a");
    let seconds = |value: &Value| value["ran_s"].as_f64().unwrap();
    let both = seconds(&runs[1]) + seconds(&runs[2]);
    assert!(seconds(&died[1]) + 0.01 >= both, "{} of {both}", seconds(&died[1]));
    let text = bench.defib(&["simulate", "--history", "a"]).good().out;
    assert!(text.contains("2 deaths; 1 run that ended on request left out"), "{text}");
}

#[test]
fn without_a_death_there_is_nothing_to_replay() {
    let bench = bench();
    bench.up(&[bench.agent("a", "forever", "")]);
    bench.pid("a");
    bench.defib(&["simulate", "--history", "a"]).bad(6);
}
