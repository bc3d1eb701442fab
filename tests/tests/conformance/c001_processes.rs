//! Celistra: respawns of real processes.

use defib_e2e::{Bench, field, proc};
use serde_json::{Value, json};

use crate::FAKE_AGENT;
use crate::stage::http;

fn bench() -> Bench {
    defib_e2e::bench(FAKE_AGENT)
}

/// An agent that is spawned by a request, with a daemon that runs.
fn spawned(bench: &Bench, script: &[&str], more: &Value) -> Value {
    let mut words = vec![FAKE_AGENT];
    words.extend(script);
    let mut request =
        json!({ "name": "a", "command": words, "cwd": bench.project(), "autoRestart": true });
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    bench.config("");
    bench.defib(&["up", "--detach"]).good();
    let (code, answer) = http(bench, "POST", "/api/v1/agents", &request.to_string());
    assert_eq!(code, 201, "{answer}");
    answer[0].clone()
}

#[test]
fn c001_26_a_spawn_request_over_http_starts_the_agent() {
    let bench = bench();
    let answer = spawned(&bench, &["forever"], &json!({}));
    assert_eq!(answer["name"], "a");
    bench.await_state("a", "running");
    let (code, _) = http(&bench, "DELETE", "/api/v1/agents/a", "");
    assert_eq!(code, 200);
    assert!(bench.statuses().is_empty());
    for request in [
        json!({ "name": "b", "command": "x", "autoRestart": "yes" }),
        json!({ "name": "b", "command": "x", "autoRestart": true, "colour": "red" }),
    ] {
        let (code, answer) = http(&bench, "POST", "/api/v1/agents", &request.to_string());
        assert_eq!((code, &answer["error"]["code"]), (422, &json!("config")), "{answer}");
    }
}

#[test]
fn c001_27_a_spawn_request_in_a_file_starts_the_agent() {
    let bench = bench();
    let request = json!({ "name": "b", "command": FAKE_AGENT, "args": ["cwd", "exit", "7"], "autoRestart": true, "maxDeaths": 2 });
    std::fs::write(bench.project().join("spawn.json"), request.to_string()).unwrap();
    bench.defib(&["run", "--from", "spawn.json"]).good();
    let status = bench.await_state("b", "crashed-out");
    assert_eq!(field(&status, "run"), 2);
    let log = bench.await_log("b", |log| log.lines().count() == 2);
    let here = bench.project().display().to_string();
    assert!(log.lines().all(|line| line.ends_with(&here)), "in the caller's folder: {log}");
}

#[test]
fn c001_28_folder_environment_and_command_are_preserved() {
    let bench = bench();
    let more = json!({ "env": { "COLOUR": "red" }, "maxDeaths": 3 });
    spawned(&bench, &["cwd", "env", "COLOUR", "argv", "exit", "1"], &more);
    bench.await_state("a", "crashed-out");
    let runs: Vec<String> = (1..=3)
        .map(|run| bench.defib(&["logs", "a", "--run", &run.to_string()]).good().out)
        .collect();
    assert!(runs[0].contains("COLOUR=red"), "{}", runs[0]);
    assert!(runs.iter().all(|log| *log == runs[0]), "{runs:#?}");
}

#[test]
fn c001_29_a_respawn_is_a_new_process_with_a_new_terminal() {
    let bench = bench();
    let go = bench.file("go");
    let script = ["pid", "tty", "rest-if", &go, "touch", &go, "exit", "1"];
    spawned(&bench, &script, &json!({ "pty": true }));
    let status =
        bench.await_status("a", |status| status["run"] == 2 && status["state"] == "running");
    bench.await_log("a", |log| log.contains("resting"));
    let first = bench.defib(&["logs", "a", "--run", "1"]).good().out;
    let second = bench.defib(&["logs", "a", "--run", "2"]).good().out;
    assert_ne!(first.lines().next(), second.lines().next(), "another process");
    assert!(!second.contains(first.lines().next().unwrap()), "nothing of the old screen: {second}");
    assert_eq!(field(&status, "restarts"), 1);
}

#[test]
fn c001_30_stdin_is_not_replayed_and_piped_input_is_received_again() {
    let bench = bench();
    std::fs::write(bench.project().join("input.txt"), "the task").unwrap();
    let line = format!("cat input.txt | '{FAKE_AGENT}' stdin exit 1");
    let request = json!({ "name": "p", "command": line, "shell": true, "cwd": bench.project(), "autoRestart": true, "maxDeaths": 2 });
    spawned(&bench, &["stdin", "exit", "1"], &json!({ "maxDeaths": 2 }));
    let (code, answer) = http(&bench, "POST", "/api/v1/agents", &request.to_string());
    assert_eq!(code, 201, "{answer}");
    bench.await_state("p", "crashed-out");
    let log = bench.await_log("p", |log| log.matches("the task").count() == 2);
    assert_eq!(log.matches("the task").count(), 2, "{log}");
    bench.await_state("a", "crashed-out");
    assert!(!bench.log("a").contains("the task"));
}

#[test]
fn c001_31_crashed_out_sends_a_notice_and_history_has_every_death() {
    let bench = bench();
    spawned(&bench, &["exit", "3"], &json!({}));
    let events = bench.events();
    events.of("a", "crashed-out");
    assert_eq!(events.of("a", "notified")["what"], "crashed-out");
    let runs = bench.history("a");
    let codes: Vec<u64> = runs.iter().map(|run| field(&run["death"], "exit_code")).collect();
    assert_eq!(codes, [3; 5]);
    let verdicts: Vec<&str> = runs.iter().map(|run| run["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["restart", "restart", "restart", "restart", "crash-out"]);
}

#[test]
fn c001_32_the_respawn_count_is_shown_beside_the_runtime() {
    let bench = bench();
    let tries = bench.file("tries");
    spawned(&bench, &["fail-until", "4", &tries, "forever"], &json!({}));
    let status =
        bench.await_status("a", |status| status["run"] == 4 && status["state"] == "running");
    assert_eq!((field(&status, "restarts"), &status["flapping"]), (3, &Value::Bool(true)));
    let head = bench.defib(&["status"]).good().out.lines().next().unwrap().to_owned();
    assert!(head.contains("RESTARTS  UPTIME"), "{head}");
}

#[test]
fn c001_37_the_sandbox_of_a_respawn_is_made_from_the_same_capabilities() {
    let bench = bench();
    let secret = bench.file("secret");
    std::fs::write(&secret, "x").unwrap();
    let more = json!({ "capabilities": ["write:."], "maxDeaths": 3 });
    spawned(&bench, &["try", "read", &secret, "exit", "1"], &more);
    bench.await_state("a", "crashed-out");
    let denied = format!("read {secret}: denied\n");
    let log = bench.await_log("a", |log| log.lines().count() == 3);
    assert_eq!(log, denied.repeat(3));
}

#[test]
fn c001_38_what_is_granted_in_mid_life_holds_from_the_next_death_on() {
    let bench = bench();
    let secret = bench.file("secret");
    std::fs::write(&secret, "x").unwrap();
    let more = json!({ "capabilities": ["write:."] });
    spawned(&bench, &["try", "read", &secret, "forever"], &more);
    bench.await_log("a", |log| log.contains("denied"));
    bench.defib(&["grant", "a", &format!("read:{secret}")]).good();
    let first = bench.pid("a");
    assert!(proc::lives(first), "a grant ends nobody");
    proc::kill(first, "KILL");
    let log = bench.await_log("a", |log| log.lines().count() == 2);
    assert!(log.ends_with(&format!("read {secret}: permitted\n")), "{log}");
}
