//! Budgets that nothing measures: telemetry is turned on where a CLI has it, a bound without a meter is
//! refused or said, and tokens without a cost are priced.

#![allow(clippy::float_cmp, reason = "amounts are exact to the millionth")]

use std::os::unix::fs::PermissionsExt as _;

use defib_e2e::{Bench, Ran};
use serde_json::{Value, json};

use crate::bench;

/// A stand-in for a CLI: a program of this name that bills one run of 500 cents, then does the script.
fn cli(bench: &Bench, name: &str, script: &str) -> String {
    let folder = bench.file(&format!("{name}.bin"));
    std::fs::create_dir_all(&folder).unwrap();
    let (path, billed) = (format!("{folder}/{name}"), bench.file(&format!("{name}.billed")));
    std::fs::write(&path, format!("#!/bin/sh\necho 500 >> {billed}\n{script}")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// An agent that runs the stand-in with these arguments, with these settings of its budget.
fn agent(bench: &Bench, name: &str, script: &str, arguments: &str, rest: &str) -> String {
    let path = cli(bench, name, script);
    format!("[agent.{name}]\ncommand = '{path} {arguments}'\n{rest}\n")
}

fn billed(bench: &Bench, name: &str) -> u32 {
    let text = std::fs::read_to_string(bench.file(&format!("{name}.billed"))).unwrap_or_default();
    text.lines().map(|cents| cents.parse::<u32>().unwrap()).sum()
}

fn all(ran: &Ran) -> String {
    format!("{}{}", ran.out, ran.err)
}

/// Goal: `claude -p` in text mode is held to its day's usd, and one run is paid for.
/// Method: the stand-in prints its environment and sleeps; the test sends what claude would export.
#[test]
fn telemetry_is_turned_on_for_a_run_with_a_budget_and_bounds_it() {
    let bench = bench();
    let script =
        "env | grep -E '^(CLAUDE_CODE|OTEL|GEMINI_TEL)' | sort\necho END\nexec sleep 1000\n";
    let bound = "budget = { per_day = { usd = 20 } }";
    let own = "env = { OTEL_EXPORTER_OTLP_ENDPOINT = \"http://own\" }\n\
               budget = { per_day = { usd = 20 }, unmetered = \"allow\" }";
    let path = cli(&bench, "claude", script);
    let events = bench.up(&[
        format!("[agent.claude]\ncommand = ['{path}', '-p', 'x']\n{bound}\n"),
        format!("[agent.own]\ncommand = ['{path}', '-p', 'x']\n{own}\n"),
        format!("[agent.free]\ncommand = ['{path}', '-p', 'x']\n"),
        agent(&bench, "gemini", script, "-p x", "budget = { per_day = { tokens = 20 } }"),
    ]);
    let log = |name: &str| bench.await_log(name, |log| log.contains("END"));
    assert!(!log("free").contains("CLAUDE_CODE_ENABLE_TELEMETRY"), "it has no budget");
    assert_eq!(log("own"), "OTEL_EXPORTER_OTLP_ENDPOINT=http://own\nEND\n");
    assert!(log("gemini").contains("GEMINI_TELEMETRY_ENABLED=true\n"));
    assert!(log("gemini").contains("GEMINI_TELEMETRY_OTLP_PROTOCOL=http\n"));
    let log = log("claude");
    let value = |name: &str| {
        let line = log.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
        line.unwrap_or_else(|| panic!("{name} in {log}")).to_owned()
    };
    assert_eq!(value("CLAUDE_CODE_ENABLE_TELEMETRY"), "1");
    assert_eq!(value("OTEL_METRICS_EXPORTER"), "otlp");
    let address = value("OTEL_EXPORTER_OTLP_ENDPOINT").replace("http://", "");
    let header = value("OTEL_EXPORTER_OTLP_HEADERS").replacen('=', ": ", 1).replace("%20", " ");
    assert_eq!(bench.status("claude")["unmetered"], json!([]));
    assert_eq!(bench.status("own")["unmetered"][0]["unit"], "usd");

    let before = billed(&bench, "claude");
    let point = json!({ "asDouble": 20.5, "timeUnixNano": "1" });
    let sum = json!({ "aggregationTemporality": 1, "dataPoints": [point] });
    let metric = json!({ "name": "claude_code.cost.usage", "sum": sum });
    let body = json!({ "resourceMetrics": [{ "scopeMetrics": [{ "metrics": [metric] }] }] });
    let answer = super::budget::post(&address, &header, &body.to_string());
    assert!(answer.contains(" 200 "), "{answer}");
    assert_eq!(events.of("claude", "run-died")["class"], "budget");
    let status = bench.await_state("claude", "waiting");
    assert_eq!((&status["reason"], &status["run"]), (&json!("budget"), &json!(1)));
    assert_eq!((status["spent"]["usd"].as_f64(), billed(&bench, "claude")), (Some(20.5), before));
}

/// Goal: a bound that nothing measures is refused before the first run, with the fix in every place
/// where people look; and `allow` starts the agent, with the warning.
#[test]
fn an_unmetered_budget_is_refused_before_the_first_run_and_said_everywhere() {
    let bench = bench();
    let file = |more: &str| {
        let budget = format!("budget = {{ per_day = {{ usd = 20 }}{more} }}");
        agent(&bench, "codex", "exec sleep 1000\n", "exec x", &budget)
    };
    bench.config(&file(""));
    let check = bench.defib(&["check"]).good();
    let up = bench.defib(&["up", "--detach"]);
    for said in [all(&check), all(&up)] {
        let wanted = ["not metered in usd", "--json", "unmetered = \"allow\"", "defib self spend"];
        assert!(wanted.iter().all(|words| said.contains(words)), "{said}");
    }
    let status = bench.await_state("codex", "halted");
    assert_eq!(status["reason"], "config");
    let evidence = status["last_death"]["evidence"].as_str().unwrap_or_default();
    assert!(evidence.contains("not metered in usd") && evidence.contains("--json"), "{evidence}");
    assert_eq!(billed(&bench, "codex"), 0, "nothing has run");
    for command in [&["why", "codex"][..], &["status"]] {
        let said = bench.defib(command).good().out;
        assert!(said.contains("not metered"), "{said}");
    }
    assert_eq!(status["unmetered"][0]["unit"], "usd");

    bench.config(&file(", unmetered = \"allow\""));
    let said = all(&bench.defib(&["up", "--detach"]).good());
    assert!(said.contains("not metered in usd, so this bound holds nothing"), "{said}");
    bench.defib(&["revive", "codex"]).good();
    bench.await_state("codex", "running");
    let said = bench.defib(&["status"]).good().out;
    assert!(said.contains("codex: its budget is not metered in usd"), "{said}");
    assert_eq!(billed(&bench, "codex"), 500);
}

#[test]
fn rule_sets_of_documents_start_an_unmetered_agent_with_the_warning() {
    let bench = bench();
    let rest = "preset = \"aide\"\nbudget = { per_run = { usd = 20 } }";
    bench.config(&agent(&bench, "codex", "exec sleep 1000\n", "exec x", rest));
    let said = all(&bench.defib(&["up", "--detach"]).good());
    assert!(said.contains("not metered in usd, so this bound holds nothing"), "{said}");
    bench.await_state("codex", "running");
}

#[test]
fn an_agent_that_reports_by_itself_is_bounded_under_allow() {
    let bench = bench();
    let defib = defib_e2e::defib_path().display().to_string();
    let rest = "budget = { per_run = { usd = 20 }, unmetered = \"allow\" }";
    let script = format!("{defib} self spend 21 usd\nexec sleep 1000\n");
    let events = bench.up(&[agent(&bench, "worker", &script, "", rest)]);
    assert_eq!(events.of("worker", "run-died")["class"], "budget");
    assert_eq!(bench.await_state("worker", "halted")["reason"], "budget");
    assert_eq!(billed(&bench, "worker"), 500);
}

/// Goal: codex and gemini, which print tokens and no cost, are held to a bound in usd by estimates.
/// Method: a million tokens each way, at prices of the file, of the built-in table and of neither.
#[test]
fn tokens_without_a_cost_are_priced_and_marked_as_estimated() {
    let bench = bench();
    let usage = json!({ "input_tokens": 2_000_000, "cached_input_tokens": 1_000_000,
                        "output_tokens": 1_000_000 });
    let codex = json!({ "type": "turn.completed", "usage": usage });
    let models = json!({ "gemini-2.5-pro": { "total_tokens": 2_000_000, "input_tokens": 1_000_000,
                                             "output_tokens": 1_000_000, "cached": 0 } });
    let gemini = json!({ "type": "result", "status": "success",
                         "stats": { "total_tokens": 2_000_000, "models": models } });
    let script = |record: &Value| format!("echo '{record}'\nsleep 2\nexit 0\n");
    let per_run = "budget = { per_run = { usd = 100 } }";
    let per_day = "restart = \"always\"\nbudget = { per_day = { usd = 5 } }";
    let events = bench.up(&[
        agent(&bench, "codex", &script(&codex), "exec --json -m house-7b x", per_run),
        agent(&bench, "gemini", &script(&gemini), "-p x -o stream-json", per_day),
        "[prices.\"house\"]\ninput = 3\noutput = 30\ncached = 1\n".to_owned(),
    ]);
    let status = bench.await_status("codex", |status| status["spent"]["usd"] == 34.0);
    assert_eq!((&status["estimated"], &status["unmetered"]), (&json!(["usd"]), &json!([])));
    let ledger = bench.insist(&["ledger", "codex", "--json"]).good().json();
    let lines = ledger.as_array().unwrap();
    let usd = lines.iter().find(|line| line["unit"] == "usd").unwrap();
    assert_eq!(usd["by"], "estimated", "{usd}");
    assert_eq!(events.of("codex", "run-died")["class"], "done");
    assert!(bench.defib(&["why", "codex"]).good().out.contains("(usd estimated)"));
    // 1.25 + 10 usd are above 5: the run is done, and there is no further one today.
    assert_eq!(events.of("gemini", "run-died")["class"], "done");
    assert_eq!(bench.await_state("gemini", "waiting")["reason"], "budget");
    assert_eq!((billed(&bench, "codex"), billed(&bench, "gemini")), (500, 500));
}

/// Goal: a CLI that is expected to report and does not is found out by its first run that ends well.
/// Method: a `claude -p` that ignores its telemetry settings, under `restart = "always"`.
#[test]
fn a_run_that_ends_well_and_reports_nothing_is_the_last_until_somebody_starts_the_agent() {
    let bench = bench();
    let rest = "restart = \"always\"\nbudget = { per_day = { usd = 20 } }";
    bench.up(&[agent(&bench, "claude", "echo finished\nexit 0\n", "-p x", rest)]);
    let status = bench.await_state("claude", "halted");
    assert_eq!((&status["reason"], billed(&bench, "claude")), (&json!("config"), 500));
    let evidence = status["last_death"]["evidence"].as_str().unwrap_or_default();
    assert!(evidence.contains("run 1 ended well and reported nothing"), "{evidence}");
    assert!(bench.defib(&["why", "claude"]).good().out.contains("is not metered"));
    // What was wrong may have been put right outside of the file.
    bench.defib(&["revive", "claude"]).good();
    bench.await_status("claude", |status| {
        status["state"] == "halted" && status["run"].as_u64().is_some_and(|run| run > 3)
    });
    assert_eq!(billed(&bench, "claude"), 1000);
}
