//! Plan 145: its state over HTTP, and what outlives a restart of a real process.

use defib_e2e::{Bench, await_that, field};

use crate::FAKE_AGENT;
use crate::stage::http;

/// A bench whose YAML has quick delays.
fn up(agents: &str) -> Bench {
    let bench = defib_e2e::bench(FAKE_AGENT);
    let text = format!(
        "project: {{ name: world }}\nsupervisor:\n  restart_policy:\n    max_restarts_per_hour: 3\n    \
         initial_backoff_seconds: 0.05\nagents:\n{agents}"
    );
    std::fs::write(bench.project().join("config.yaml"), text).unwrap();
    bench.defib(&["up", "-f", "config.yaml", "--detach"]).good();
    bench
}

#[test]
fn c002_33_the_supervisors_state_is_over_http() {
    let agents = format!(
        "  dumb: {FAKE_AGENT} exit 1\n  fine: {FAKE_AGENT} forever\n  slow:\n    command: {FAKE_AGENT} forever\n    timeout_seconds: 1\n"
    );
    let bench = up(&agents);
    bench.await_state("dumb", "crashed-out");
    bench.await_status("slow", |status| field(status, "restarts") > 0);
    bench.defib(&["run", "--name", "once", "--restart", "never", "--", FAKE_AGENT, "exit", "1"]);
    bench.await_state("once", "stopped");
    let (code, state) = http(&bench, "GET", "/api/v1/supervisor", "");
    assert_eq!(code, 200);
    assert_eq!(state["agent_restart_counts"]["dumb"], 3, "{state:#}");
    assert_eq!(state["agent_restart_counts"]["fine"], 0, "{state:#}");
    assert!(state["agent_last_restart"]["dumb"].as_str().unwrap().ends_with('Z'), "{state:#}");
    assert!(state["agent_last_restart"]["fine"].is_null(), "{state:#}");
    assert_eq!(state["agent_current_backoff"]["fine"], 0.05, "{state:#}");
    assert!(state["agent_current_backoff"]["dumb"].as_f64().unwrap() > 0.2, "{state:#}");
    assert!(state["total_restarts"].as_u64().unwrap() >= 4, "{state:#}");
    assert_eq!(state["total_permanent_deaths"], 2, "{state:#}");
    assert_eq!(state["agent_crash_reason"]["dumb"], "runtime", "{state:#}");
    assert_eq!(state["agent_crash_reason"]["slow"], "timeout", "{state:#}");
    assert_eq!(state["restart_reasons"]["runtime"], 3, "{state:#}");
}

#[test]
fn c002_34_the_state_survives_the_daemon() {
    let bench = up(&format!("  dumb: {FAKE_AGENT} exit 1\n"));
    bench.await_state("dumb", "crashed-out");
    let (_, before) = http(&bench, "GET", "/api/v1/supervisor", "");
    bench.kill_daemon();
    bench.await_state("dumb", "crashed-out");
    let (_, after) = http(&bench, "GET", "/api/v1/supervisor", "");
    assert_eq!(before, after);
}

#[test]
fn c002_35_memory_and_scrip_are_preserved_across_a_restart() {
    let bench = defib_e2e::bench(FAKE_AGENT);
    let script = "test -e $DEFIB_STATE_DIR/memory && { echo remembers; sleep 1000; }; mkdir -p $DEFIB_STATE_DIR; touch $DEFIB_STATE_DIR/memory; exit 1";
    let text = format!(
        "supervisor:\n  restart_policy:\n    initial_backoff_seconds: 0.05\nagents:\n  a:\n    shell: true\n    command: '{script}'\n    scrip: 100\n"
    );
    std::fs::write(bench.project().join("config.yaml"), text).unwrap();
    bench.defib(&["up", "-f", "config.yaml", "--detach"]).good();
    bench.await_log("a", |log| log.contains("remembers"));
    let status = bench.status("a");
    assert_eq!(status["balance"]["scrip"], 100.0, "{status:#}");
    assert_eq!(field(&status, "restarts"), 1);
}

#[test]
fn c002_36_every_action_is_logged_with_the_crashs_trace() {
    let trace = "Traceback (most recent call last):\\n  File \\\"loop.py\\\", line 3, in <module>\\nValueError: bad";
    let bench = defib_e2e::bench(FAKE_AGENT);
    let text = format!(
        "supervisor:\n  restart_policy:\n    initial_backoff_seconds: 0.05\n    max_restarts_per_hour: 1\nagents:\n  a:\n    kind: python\n    shell: true\n    command: \"printf '{}\\\\n' >&2; exit 1\"\n",
        trace.replace("\\n", "\\\\n")
    );
    std::fs::write(bench.project().join("config.yaml"), text).unwrap();
    bench.defib(&["up", "-f", "config.yaml", "--detach"]).good();
    let events = bench.events();
    for kind in ["run-started", "run-died", "restart-scheduled", "limit-tripped", "crashed-out"] {
        events.of("a", kind);
    }
    await_that("the trace", || {
        let death = bench.status("a")["last_death"].clone();
        death["trace"].as_str().is_some_and(|trace| trace.contains("ValueError: bad"))
    });
}

#[test]
fn c002_49_the_documents_file_passes_the_check_as_written() {
    let bench = defib_e2e::bench(FAKE_AGENT);
    std::fs::write(bench.project().join("config.yaml"), include_str!("data/config.yaml")).unwrap();
    let checked = bench.defib(&["check", "-f", "config.yaml"]).good();
    assert!(checked.err.contains("no agent is declared"), "{}", checked.err);
    assert_eq!(checked.err.matches("warning:").count(), 1, "and nothing else: {}", checked.err);
}

#[test]
fn c002_50_restarts_their_reasons_and_the_time_to_recovery_are_told() {
    let bench = up(&format!("  flaky: {FAKE_AGENT} fail-until 3 tries forever\n"));
    bench.await_status("flaky", |status| status["run"] == 3 && status["state"] == "running");
    let (_, state) = http(&bench, "GET", "/api/v1/supervisor", "");
    assert_eq!(state["agent_restart_counts"]["flaky"], 2, "{state:#}");
    assert_eq!(state["restart_reasons"]["runtime"], 2, "{state:#}");
    let (_, totals) = http(&bench, "GET", "/api/v1/totals", "");
    assert_eq!((&totals["restarts"], &totals["recoveries"]), (&2.into(), &2.into()), "{totals:#}");
    for key in ["mean_recovery_s", "median_recovery_s"] {
        // Fifty milliseconds of backoff, then a hundred, each a tenth more or less.
        assert!(totals[key].as_f64().unwrap() >= 0.06, "{totals:#}");
    }
}
