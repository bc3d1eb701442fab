//! The binary as people and scripts use it: what it prints, where, and with which exit code.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;

fn defib(arguments: &[&str]) -> Output {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::cargo_bin("defib").unwrap();
    command.current_dir(folder).env_clear().args(arguments).output().unwrap()
}

/// Exit code, standard output and standard error, as one text.
fn shown(arguments: &[&str]) -> String {
    let output = defib(arguments);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    let code = output.status.code().unwrap();
    format!("exit code {code}\n--- stdout\n{out}--- stderr\n{err}")
}

fn simulate(arguments: &[&str]) -> String {
    shown(&[&["simulate", "--no-jitter"], arguments].concat())
}

/// The events of `simulate --json`.
fn events(arguments: &[&str]) -> Vec<serde_json::Value> {
    let output = defib(&[&["simulate", "--no-jitter", "--json"], arguments].concat());
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_type<'a>(events: &'a [serde_json::Value], wanted: &str) -> Vec<&'a serde_json::Value> {
    events.iter().filter(|event| event["type"] == wanted).collect()
}

#[test]
fn a_crash_loop_is_shown_as_a_timeline() {
    insta::assert_snapshot!(simulate(&["--preset", "default", "--script", "exit 1"]));
}

#[test]
fn a_long_timeline_is_folded() {
    insta::assert_snapshot!(simulate(&["--preset", "celistra", "--script", "run 1h exit 1"]));
}

#[test]
fn a_quota_waits_and_a_hang_is_noticed() {
    let script = "run 40m class quota reset 3h; run 10m hang; run 8h exit 0";
    insta::assert_snapshot!(simulate(&["-f", "tests/fixtures/night.toml", "--script", script]));
}

#[test]
fn events_are_one_object_a_line_with_virtual_seconds() {
    let events = events(&["--preset", "aivex", "--script", "exit 1"]);
    let delays: Vec<i64> = of_type(&events, "restart-scheduled")
        .iter()
        .map(|event| event["delay_ms"].as_i64().unwrap())
        .collect();
    assert_eq!(delays, [10_000, 20_000, 40_000, 80_000]);
    let last = events.last().unwrap();
    assert_eq!((last["type"].as_str(), last["at_s"].as_i64()), (Some("crashed-out"), Some(150)));
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event["seq"], at + 1);
        assert!(event.get("at").is_none());
        assert_eq!(event["agent"], "agent");
    }
    let tripped = of_type(&events, "limit-tripped");
    assert_eq!(tripped[0]["deaths"], 5);
    assert_eq!(tripped[0]["within_s"], 300);
}

#[test]
fn a_wait_is_told_as_a_wait_and_not_as_a_restart() {
    let events = events(&["--preset", "default", "--script", "class quota reset 3h; exit 0"]);
    assert!(of_type(&events, "restart-scheduled").is_empty());
    assert_eq!(of_type(&events, "wait-started")[0]["reason"], "quota");
    assert_eq!(of_type(&events, "wait-ended")[0]["at_s"], 10_800);
    assert_eq!(events.last().unwrap()["type"], "rested");
}

#[test]
fn a_seed_fixes_the_jitter() {
    let run = |seed| {
        let script = ["simulate", "--preset", "ecology", "--script", "exit 1", "--json"];
        defib(&[&script[..], &["--seed", seed]].concat()).stdout
    };
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}

#[test]
fn a_policy_without_any_bound_is_cut_off() {
    let shown = simulate(&["-f", "tests/fixtures/boundless.toml", "--script", "exit 1"]);
    assert!(shown.contains("Cut off after 100001 runs"), "{shown}");
}

#[test]
fn ten_mistakes_are_ten_diagnostics_and_exit_code_3() {
    let output = defib(&["check", "-f", "../config/tests/fixtures/ten-mistakes.toml"]);
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.matches("error: ").count(), 10);
    assert!(text.ends_with("ten-mistakes.toml: 10 errors\n"), "{text}");
    assert!(output.stdout.is_empty());
}

#[test]
fn check_says_what_a_valid_file_declares() {
    insta::assert_snapshot!(shown(&["check", "-f", "tests/fixtures/night.toml"]));
}

#[test]
fn check_as_json_has_line_and_column() {
    let output = defib(&["check", "--json", "-f", "../config/tests/fixtures/ten-mistakes.toml"]);
    assert_eq!(output.status.code(), Some(3));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told.as_array().unwrap().len(), 10);
    assert_eq!((&told[1]["line"], &told[1]["column"]), (&6.into(), &1.into()));
}

#[test]
fn a_wrong_script_is_shown_with_its_place() {
    insta::assert_snapshot!(simulate(&["--preset", "default", "--script", "exit 1; boom"]));
}

#[test]
fn an_agent_that_is_not_there_and_a_file_that_is_not_there_say_what_to_do() {
    let night = "tests/fixtures/night.toml";
    insta::assert_snapshot!(
        "no_such_agent",
        simulate(&["-f", night, "--agent", "nobody", "--script", "exit 1"])
    );
    insta::assert_snapshot!("no_such_file", shown(&["check", "-f", "nowhere.toml"]));
}

#[test]
fn the_schema_is_json() {
    let output = defib(&["schema"]);
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("defib"))
        .args(["simulate", "--preset", "celistra", "--script", "run 1s exit 1", "--json"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What `autopsy` prints for an output on its standard input.
fn autopsy(arguments: &[&str], output: &[u8]) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::cargo_bin("defib").unwrap();
    command.current_dir(folder).env_clear().env("TZ", "UTC").arg("autopsy");
    let output = command.args(arguments).arg("-").write_stdin(output).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_autopsy_tells_class_evidence_and_reset_time() {
    let limit = b"Claude AI usage limit reached|1749924000\n";
    insta::assert_snapshot!(autopsy(&["--kind", "claude", "--exit", "1"], limit), @r#"
    {
      "class": "quota",
      "evidence": "Claude AI usage limit reached|1749924000",
      "resets_at": "2025-06-14T18:00:00Z"
    }
    "#);
    insta::assert_snapshot!(autopsy(&["--kind", "gemini", "--exit", "41"], b""), @r#"
    {
      "class": "auth",
      "evidence": "exit code 41",
      "resets_at": null
    }
    "#);
    insta::assert_snapshot!(autopsy(&["--kind", "python", "--signal", "KILL"], b"\xff\0"), @r#"
    {
      "class": "error",
      "evidence": null,
      "resets_at": null
    }
    "#);
    insta::assert_snapshot!(autopsy(&["--kind", "codex", "--exit", "1"], b"Reconnecting... 2/5"), @r#"
    {
      "class": null,
      "evidence": null,
      "resets_at": null
    }
    "#);
}

#[test]
fn an_autopsy_tries_the_rules_of_the_config_file_first() {
    let arguments = ["--kind", "generic", "--exit", "3", "-f", "tests/fixtures/rules.toml"];
    insta::assert_snapshot!(autopsy(&arguments, b"FATAL: license expired\n"), @r#"
    {
      "class": "config",
      "evidence": "FATAL: license expired",
      "resets_at": null
    }
    "#);
}

#[test]
fn the_end_of_a_long_output_is_read_from_a_file_and_from_a_pipe() {
    let mut long = b"noise\n".repeat(1_000_000);
    long.extend_from_slice(b"Prompt is too long\n");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("long.log");
    std::fs::write(&file, &long).unwrap();
    let from_file = defib(&["autopsy", "--kind", "claude", "--exit", "1", file.to_str().unwrap()]);
    let from_file = String::from_utf8(from_file.stdout).unwrap();
    assert!(from_file.contains("\"context\""), "{from_file}");
    assert_eq!(autopsy(&["--kind", "claude", "--exit", "1"], &long), from_file);
}

#[test]
fn a_wrong_autopsy_says_what_would_be_right() {
    insta::assert_snapshot!("no_such_kind", shown(&["autopsy", "--kind", "clade", "-"]));
    insta::assert_snapshot!(
        "no_such_output",
        shown(&["autopsy", "--kind", "claude", "nowhere.log"])
    );
    let both = defib(&["autopsy", "--kind", "claude", "--exit", "1", "--signal", "9", "-"]);
    assert_eq!(both.status.code(), Some(2));
    let broken = "../config/tests/fixtures/ten-mistakes.toml";
    let broken = defib(&["autopsy", "--kind", "claude", "-f", broken, "Cargo.toml"]);
    assert_eq!(broken.status.code(), Some(3));
}
