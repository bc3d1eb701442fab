//! What scripts depend on: the keys of what is printed as JSON, and the types of events.

use std::collections::BTreeSet;

use defib_e2e::proc;
use serde_json::Value;

use crate::bench;

/// All of these are there, whatever else is; absent values are null, not missing.
#[track_caller]
fn has(value: &Value, keys: &str) {
    let there: BTreeSet<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    let missing: Vec<&str> = keys.split_whitespace().filter(|key| !there.contains(key)).collect();
    assert!(missing.is_empty(), "{missing:?} missing in {value:#}");
}

#[test]
fn what_is_printed_as_json_has_every_key_that_is_promised() {
    let bench = bench();
    let group = "[group.g]\nstrategy = \"one-for-all\"\nmembers = [\"a\", \"b\"]\n".to_owned();
    let events = bench.up(&[
        bench.agent("a", "print x forever", ""),
        bench.agent("b", "forever", ""),
        group,
    ]);
    proc::kill(bench.pid("a"), "KILL");
    events.of_run("b", 2, "run-ready");
    bench.kill_daemon();
    events.find("daemon-adopted", |events| {
        events.iter().find(|event| event["type"] == "daemon-adopted").cloned()
    });

    let status = bench.await_status("a", |status| status["run"] == 2);
    has(
        &status,
        "name project group state reason pid run restarts consecutive_failures started_at uptime_s \
         next_at last_activity_at last_death heartbeat_age_s balance spent capabilities \
         capabilities_pending kind command flapping",
    );
    let death = "at class kind exit_code signal ran_s evidence trace";
    has(&status["last_death"], death);
    assert_eq!(status["last_death"]["signal"], "SIGKILL");
    let runs = bench.history("a");
    has(&runs[0], "agent run started_at ended_at ran_s death verdict");
    has(&runs[0]["death"], death);
    let version = bench.defib(&["version", "--json"]).good().json();
    has(&version, "version daemon keeper");
    has(&version["daemon"], "pid version started_at");
    has(&version["keeper"], "pid");
    let told = bench.defib(&["events", "--json", "-n", "1000"]).good().out;
    let told: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for event in &told {
        has(event, "seq at agent run type");
    }
    let types: BTreeSet<&str> = told.iter().filter_map(|event| event["type"].as_str()).collect();
    let expected = "daemon-started config-applied run-started run-ready run-died restart-scheduled \
                    group-restarted daemon-adopted";
    for kind in expected.split_whitespace() {
        assert!(types.contains(kind), "{kind} is not among {types:?}");
    }
}
