//! A changed file: only what changed is touched, and an invalid one touches nothing.

use std::collections::BTreeMap;

use defib_e2e::{Bench, field, pid_in, proc};
use serde_json::Value;

use crate::bench;

fn pids(bench: &Bench) -> BTreeMap<String, Value> {
    let name = |status: &Value| status["name"].as_str().unwrap().to_owned();
    bench.statuses().iter().map(|status| (name(status), status["pid"].clone())).collect()
}

#[test]
fn reload_restarts_only_what_changed_and_plan_says_so_first() {
    let bench = bench();
    let events = bench.up(&[
        bench.agent("same", "forever", ""),
        bench.agent("command", "print old forever", ""),
        bench.agent("variables", "forever", "env = { A = \"1\" }"),
        bench.agent("policy", "forever", ""),
        bench.agent("gone", "forever", ""),
    ]);
    for name in ["same", "command", "variables", "policy", "gone"] {
        bench.pid(name);
    }
    let before = pids(&bench);
    let nothing = bench.defib(&["plan"]).good();
    assert_eq!(nothing.out, "nothing changes\n");
    bench.defib(&["reload"]).good();
    assert_eq!(pids(&bench), before);

    bench.declare(&[
        bench.agent("same", "forever", ""),
        bench.agent("command", "print new forever", ""),
        bench.agent("variables", "forever", "env = { A = \"2\" }"),
        bench.agent("policy", "forever", "restart = \"never\""),
        bench.agent("fresh", "forever", ""),
    ]);
    let plan = bench.defib(&["plan", "--json"]).good().json();
    assert_eq!(plan["added"], serde_json::json!(["fresh"]));
    assert_eq!(plan["restarted"], serde_json::json!(["command", "variables"]));
    assert_eq!(plan["changed"], serde_json::json!(["policy"]));
    assert_eq!(plan["removed"], serde_json::json!(["gone"]));
    assert_eq!(plan["unchanged"], serde_json::json!(["same"]));
    assert_eq!(pids(&bench), before, "a plan is only a plan");

    let reload = bench.defib(&["reload"]).good();
    for word in ["fresh", "command, variables", "policy", "gone"] {
        assert!(reload.out.contains(word), "{}", reload.out);
    }
    events.of("fresh", "run-ready");
    events.of_run("command", 2, "run-ready");
    events.of_run("variables", 2, "run-ready");
    let gone = u32::try_from(before["gone"].as_u64().unwrap()).unwrap();
    proc::await_gone(gone);
    bench.defib(&["status", "gone"]).bad(5);
    let after = pids(&bench);
    for name in ["same", "policy"] {
        assert_eq!(after[name], before[name], "{name} runs on");
    }
    for name in ["command", "variables"] {
        assert_ne!(after[name], before[name], "{name} is new");
        assert_eq!(field(&bench.status(name), "restarts"), 0, "that is no crash");
    }
    bench.await_log("command", |log| log == "old\nnew\n");
    // The changed policy holds: it is not restarted.
    proc::kill(bench.pid("policy"), "KILL");
    bench.await_state("policy", "stopped");
}

#[test]
fn a_reload_starts_nothing_that_its_plan_does_not_name() {
    let bench = bench();
    let lives = bench.file("lives");
    let parts = |script: &str| {
        [
            bench.agent("job", &format!("count {lives} exit 0"), ""),
            bench.agent("stopped", script, ""),
            bench.agent("other", "forever", ""),
        ]
    };
    let events = bench.up(&parts("print old forever"));
    bench.await_state("job", "done");
    bench.defib(&["stop", "stopped"]).good();
    let pid = bench.pid("other");
    let reload = bench.defib(&["reload"]).good();
    assert_eq!(reload.out, "nothing changes\napplied\n");

    bench.declare(&parts("print new forever"));
    let plan = bench.defib(&["plan"]).good();
    assert_eq!(plan.out, "changed, not running: stopped\n");
    bench.defib(&["reload"]).good();
    assert_eq!(
        bench.status("stopped")["state"],
        "stopped",
        "who stopped it has not changed his mind"
    );
    assert_eq!(bench.status("job")["state"], "done");
    assert_eq!(std::fs::read_to_string(&lives).unwrap().lines().count(), 1);
    assert_eq!(bench.pid("other"), pid);

    // A job that does something else now has not been done.
    let mut changed = parts("print new forever");
    changed[0] = bench.agent("job", &format!("count {lives} print again exit 0"), "");
    bench.declare(&changed);
    let plan = bench.defib(&["plan", "--json"]).good().json();
    assert_eq!(plan["started"], serde_json::json!(["job"]));
    assert_eq!(plan["restarted"], serde_json::json!([]));
    bench.defib(&["reload"]).good();
    events.of_run("job", 2, "run-died");
}

#[test]
fn only_a_project_that_is_up_is_reloaded() {
    let bench = bench();
    bench.up(&[bench.agent("a", "forever", "")]);
    bench.defib(&["down"]).good();
    for command in ["plan", "reload"] {
        let ran = bench.defib(&[command]).bad(6);
        assert!(ran.err.contains("is not up") && ran.err.contains("`defib up`"), "{ran:?}");
    }
    assert_eq!(bench.status("a")["state"], "stopped");
    let other = bench.file("other.toml");
    let text = format!("[project]\nname = \"other\"\n{}", bench.agent("b", "forever", ""));
    std::fs::write(&other, text).unwrap();
    bench.defib(&["reload", "-f", &other]).bad(6);
    bench.defib(&["status", "b"]).bad(5);
}

#[test]
fn a_file_is_the_same_by_whatever_path_it_is_named() {
    let bench = bench();
    let named = "[project]\nname = \"one\"\n".to_owned();
    bench.up(&[named, bench.agent("a", "forever", "")]);
    let pid = bench.pid("a");
    std::fs::create_dir(bench.project().join("sub")).unwrap();
    std::os::unix::fs::symlink(bench.project(), bench.project().join("link")).unwrap();
    for file in ["sub/../defib.toml", "./defib.toml", "link/defib.toml"] {
        bench.defib(&["up", "--detach", "-f", file]).good();
        let plan = bench.defib(&["plan", "-f", file]).good();
        assert_eq!(plan.out, "nothing changes\n", "{file}");
        assert_eq!(bench.pid("a"), pid, "{file}");
    }
}

#[test]
fn an_invalid_or_vanished_file_changes_nothing() {
    let bench = bench();
    bench.up(&[bench.agent("a", "forever", ""), bench.agent("b", "forever", "")]);
    let before = pids(&bench);
    for nonsense in [
        "[agent.a]\ncomand = \"x\"\n",
        "not toml at all",
        "[agent.a]\n",
        "[agent.\"sp ace\"]\ncommand = \"x\"\n",
    ] {
        bench.config(nonsense);
        for command in [&["reload"][..], &["plan"], &["up", "--detach"], &["check"]] {
            let ran = bench.defib(command);
            assert_eq!(ran.code, 3, "{ran:#?}");
            assert!(ran.err.contains("defib.toml"), "it says where: {ran:#?}");
        }
        assert_eq!(pids(&bench), before);
    }
    std::fs::remove_file(bench.project().join("defib.toml")).unwrap();
    for command in [&["reload"][..], &["plan"], &["up", "--detach"], &["check"]] {
        bench.defib(command).bad(1);
    }
    assert_eq!(pids(&bench), before);
}

#[test]
fn down_needs_no_file_that_can_be_read() {
    let bench = bench();
    let file = bench.project().join("defib.toml");
    let agent = bench.agent("a", "forever", "");
    bench.up(std::slice::from_ref(&agent));
    let pid = bench.pid("a");
    bench.config("[agent.a]\ncomand = \"x\"\n");
    bench.defib(&["down"]).good();
    assert!(!proc::lives(pid));

    bench.up(std::slice::from_ref(&agent));
    let pid = bench.pid("a");
    std::fs::remove_file(&file).unwrap();
    bench.defib(&["down"]).good();
    assert!(!proc::lives(pid));

    let ran = bench.defib(&["down", "-f", "never-there.toml"]).bad(1);
    assert!(ran.err.contains("defib down --all"), "{ran:?}");
    assert!(ran.err.contains("defib stop NAME"), "{ran:?}");
}

#[test]
fn a_project_that_was_renamed_is_not_run_twice() {
    let bench = bench();
    let named = |name: &str| format!("[project]\nname = \"{name}\"\n");
    let agent = bench.agent("a", "forever", "");
    bench.up(&[named("old"), agent.clone()]);
    let pid = bench.pid("a");
    bench.declare(&[named("new"), agent]);
    for command in [&["up", "--detach"][..], &["reload"], &["plan"]] {
        let ran = bench.defib(command).bad(3);
        assert!(ran.err.contains("is up as project old"), "{ran:?}");
        assert!(ran.err.contains("`defib down`"), "{ran:?}");
    }
    assert_eq!(bench.pid("a"), pid);
    bench.defib(&["down"]).good();
    assert!(!proc::lives(pid));
    bench.defib(&["up", "--detach"]).good();
    bench.await_state("new/a", "running");
}

#[test]
fn a_reload_keeps_the_variables_of_the_caller_of_up() {
    let mut bench = bench();
    bench.set("A_SECRET", "value-of-the-caller");
    let agent = bench.agent("a", "forever", "env_pass = [\"A_SECRET\"]");
    bench.up(std::slice::from_ref(&agent));
    let pid = bench.pid("a");
    bench.unset("A_SECRET");
    bench.declare(&[agent, bench.agent("b", "forever", "")]);
    bench.defib(&["reload"]).good();
    bench.await_state("b", "running");
    assert_eq!(pid_in(&bench.await_state("a", "running")), pid);
    // Also after a daemon that had it in its memory is gone.
    bench.kill_daemon();
    proc::kill(pid, "KILL");
    bench.await_status("a", |status| status["state"] == "running" && status["run"] == 2);
}

#[test]
fn an_agent_that_is_taken_out_and_put_back_goes_on_with_its_numbers() {
    let bench = bench();
    let (a, b) = (bench.agent("a", "forever", ""), bench.agent("b", "forever", ""));
    let events = bench.up(&[a.clone(), b.clone()]);
    let pid = bench.pid("a");
    bench.declare(std::slice::from_ref(&b));
    bench.defib(&["reload"]).good();
    proc::await_gone(pid);
    bench.declare(&[a, b]);
    bench.defib(&["reload"]).good();
    events.of_run("a", 2, "run-ready");
    assert_eq!(bench.history("a").len(), 2);
}

#[test]
fn a_change_that_is_reloaded_holds_under_the_next_daemon_too() {
    let bench = bench();
    let events = bench.up(&[bench.agent("a", "print old forever", "")]);
    bench.declare(&[bench.agent("a", "print new forever", "")]);
    bench.defib(&["reload"]).good();
    events.of_run("a", 2, "run-ready");
    bench.kill_daemon();
    proc::kill(bench.pid("a"), "KILL");
    events.of_run("a", 3, "run-ready");
    bench.await_log("a", |log| log == "old\nnew\nnew\n");
}

#[test]
fn the_bound_on_all_restarts_holds_from_the_first_up_on_and_follows_the_file() {
    let bench = bench();
    let crashing = bench.agent("a", "exit 1", "limits = []");
    let bounded = |most: u32| format!("[supervisor]\nmax_total_restarts = {most}\n{crashing}");
    let events = bench.up(&[bounded(2)]);
    events.of_run("a", 3, "crashed-out");
    bench.declare(&[bounded(4)]);
    bench.defib(&["reload"]).good();
    bench.defib(&["revive", "a"]).good();
    events.of_run("a", 6, "crashed-out");
}
