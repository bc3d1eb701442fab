//! What a run used is told with its death, and where nobody saw its end, nothing is.

use defib_e2e::{field, proc};
use serde_json::{Value, json};

use crate::{FAKE_AGENT, bench};

const MIB: u64 = 1 << 20;
/// What the scripted child needs for itself, and more.
const OWN: u64 = 40 * MIB;

/// The figures of a death, wherever they stand: CPU time in milliseconds, memory in bytes.
fn used(told: &Value) -> (u64, u64) {
    let cpu = field(told, "cpu_user_ms") + field(told, "cpu_system_ms");
    (cpu, field(told, "memory_peak_bytes"))
}

#[test]
fn what_a_run_used_is_told_with_its_death() {
    let bench = bench();
    let once = "restart = \"never\"";
    let by_child = format!("run '{FAKE_AGENT} allocate 96 burn 700'");
    let events = bench.up(&[
        bench.agent("worker", "allocate 96 burn 700 exit 3", once),
        bench.agent("parent", &by_child, once),
    ]);
    for agent in ["worker", "parent"] {
        let event = events.of(agent, "run-died");
        let (cpu, memory) = used(&event);
        assert!(cpu >= 700, "{event}");
        assert!((96 * MIB..96 * MIB + OWN).contains(&memory), "{event}");
        let death = &bench.history(agent)[0]["death"];
        assert_eq!(used(death), (cpu, memory), "{death}");
        let status = bench.status(agent);
        assert_eq!(used(&status["last_death"]), (cpu, memory), "{status}");
        let why = bench.defib(&["why", agent, "--json"]).good().json();
        assert_eq!(used(&why["run"]["death"]), (cpu, memory), "{why}");
        let words = why["used"].as_str().expect("words");
        let printed = bench.defib(&["why", agent]).good().out;
        assert!(printed.contains(&format!("  used      {words}\n")), "{printed}");
    }
    let words = bench.look("/api/v1/agents/worker/why").json()["used"].to_string();
    assert!(words.contains("s of CPU time, ") && words.contains(" MiB of memory"), "{words}");
}

#[test]
fn memory_that_may_have_been_the_keepers_is_not_told_as_the_runs() {
    let bench = bench();
    let light = "[agent.light]\ncommand = \"/bin/true\"\nrestart = \"never\"\n".to_owned();
    let events = bench.up(&[light]);
    let event = events.of("light", "run-died");
    assert!(event["cpu_user_ms"].is_u64() && event["memory_peak_bytes"].is_null(), "{event}");
    let why = bench.defib(&["why", "light"]).good().out;
    assert!(why.contains("of CPU time\n"), "{why}");
}

#[test]
fn what_a_run_used_is_known_whichever_daemon_hears_of_its_end() {
    let bench = bench();
    let go = bench.file("go");
    let script = format!("allocate 64 print ready await {go} exit 0");
    drop(bench.up(&[bench.agent("a", &script, "restart = \"never\"")]));
    bench.await_log("a", |log| log.contains("ready"));
    let (_, daemon) = bench.who();
    proc::kill(daemon, "STOP");
    std::fs::write(&go, "").unwrap();
    proc::kill(daemon, "KILL");
    bench.successor_of(daemon);
    let told = bench.await_state("a", "done");
    let (_, memory) = used(&told["last_death"]);
    assert!((64 * MIB..64 * MIB + OWN).contains(&memory), "{told}");
    // What one daemon was told, the next one knows.
    bench.kill_daemon();
    assert_eq!(bench.status("a")["last_death"], told["last_death"]);
}

#[test]
fn of_a_run_that_nobody_saw_end_it_is_not_said_what_it_used() {
    let bench = bench();
    let events = bench.up(&[bench.agent("a", "forever", "")]);
    events.of("a", "run-ready");
    drop(events);
    bench.kill_both();
    bench.defib(&["up", "--detach"]).good();
    bench.await_status("a", |now| now["state"] == "running" && now["run"] == 2);
    let death = &bench.history("a")[0]["death"];
    assert_eq!(death["class"], "lost", "{death}");
    for figure in ["cpu_user_ms", "cpu_system_ms", "memory_peak_bytes"] {
        assert_eq!(death[figure], json!(null), "{death}");
    }
    let why = bench.defib(&["why", "a", "--run", "1"]).good().out;
    assert!(why.contains("nobody saw how it ended") && !why.contains("used"), "{why}");
}
