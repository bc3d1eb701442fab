//! Whether an agent lives: heartbeats and silence.

use std::time::{Duration, Instant};

use defib_e2e::{Bench, await_some, field, is, proc};
use serde_json::Value;

use crate::bench;

const NEVER: &str = "restart = \"never\"";

/// Waits until a run has lived this long.
fn await_age(bench: &Bench, name: &str, seconds: f64) -> Value {
    bench.await_status(name, |status| {
        let lives = status["uptime_s"].as_f64().is_some_and(|age| age > seconds);
        lives || status["state"] != "running"
    })
}

#[test]
fn a_stale_heartbeat_ends_the_whole_tree_and_is_a_timeout() {
    let bench = bench();
    let left = bench.file("left");
    let script = format!(
        "beat double-fork 'ignore TERM count {left} forever' await-text {left} print ready forever"
    );
    let settings = format!("heartbeat = {{ ttl = \"1s\" }}\n{NEVER}");
    let events = bench.up(&[bench.agent("a", &script, &settings)]);
    let missed = events.of("a", "heartbeat-missed");
    assert_eq!(missed["ttl_s"], 1);
    let died = events.of("a", "run-died");
    assert_eq!(died["class"], "timeout");
    assert!(died["evidence"].as_str().unwrap().starts_with("no heartbeat for "), "{died}");
    let text = std::fs::read_to_string(left).unwrap();
    let pid: u32 = text.trim().split(' ').nth(1).unwrap().parse().unwrap();
    assert!(!proc::lives(pid), "the grandchild has gone too");
    assert!(bench.defib(&["why", "a"]).good().out.contains("no heartbeat"));
}

#[test]
fn an_agent_that_never_beat_has_its_grace() {
    let bench = bench();
    let settings = "heartbeat = { ttl = \"1s\", grace = \"10m\" }";
    bench.up(&[bench.agent("a", "forever", settings)]);
    let status = await_age(&bench, "a", 3.0);
    assert_eq!((&status["state"], &status["run"]), (&"running".into(), &1.into()));
    assert!(status["heartbeat_age_s"].as_f64().unwrap() > 2.0, "{status}");
}

#[test]
fn beats_keep_it_alive_and_none_is_lost_with_a_daemon() {
    let bench = bench();
    let enough = bench.file("enough");
    let own = "heartbeat = { ttl = \"4s\", file = \"beats/a\" }\nrestart = \"never\"";
    let events = bench.up(&[bench.agent("a", &format!("beat-until {enough} forever"), own)]);
    assert!(bench.await_status("a", |status| status["pid"].is_u64())["run"] == 1);
    await_age(&bench, "a", 5.0);
    bench.kill_daemon();
    await_age(&bench, "a", 8.0);
    // One that does not get to run sees, once it does, that there were beats.
    let (_, daemon) = bench.who();
    proc::kill(daemon, "STOP");
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(50));
    }
    proc::kill(daemon, "CONT");
    let status = await_age(&bench, "a", 14.0);
    assert_eq!(status["state"], "running", "{}", bench.account());
    assert!(status["heartbeat_age_s"].as_f64().unwrap() < 4.0, "{status}");
    std::fs::write(enough, "").unwrap();
    assert_eq!(events.of("a", "run-died")["class"], "timeout");
    events.find("one miss", |events| {
        let missed = events.iter().filter(|event| is(event, "a", "heartbeat-missed")).count();
        (missed == 1).then_some(())
    });
}

#[test]
fn an_agent_that_does_nothing_at_all_hangs() {
    let bench = bench();
    let settings = format!("hang = {{ silent_for = \"1s\" }}\n{NEVER}");
    let events = bench.up(&[bench.agent("a", "print begun forever", &settings)]);
    let died = events.of("a", "run-died");
    assert_eq!(died["class"], "timeout");
    assert!(died["evidence"].as_str().unwrap().starts_with("no output, CPU time"), "{died}");
}

#[test]
fn output_cpu_time_or_a_child_s_work_is_no_hang() {
    let bench = bench();
    let enough = bench.file("enough");
    let settings = format!("hang = {{ silent_for = \"3s\" }}\n{NEVER}");
    let scripts = [
        ("writes", format!("lines-until {enough} forever")),
        ("works", format!("busy-until {enough} forever")),
        ("lets", format!("double-fork 'busy-until {enough}' forever")),
    ];
    let agents = scripts.map(|(name, script)| bench.agent(name, &script, &settings));
    let events = bench.up(&agents);
    for name in ["writes", "works", "lets"] {
        let status = await_age(&bench, name, 8.0);
        assert_eq!(status["state"], "running", "{name}\n{}", bench.account());
    }
    let before = events.last();
    std::fs::write(enough, "").unwrap();
    for name in ["writes", "works", "lets"] {
        let died = events.after(before, name, "run-died");
        assert_eq!(died["class"], "timeout", "{died}");
    }
}

#[test]
fn a_life_beyond_max_runtime_is_a_timeout_that_says_so() {
    let bench = bench();
    let settings = format!("max_runtime = \"1s\"\n{NEVER}");
    let events = bench.up(&[bench.agent("a", "forever", &settings)]);
    let died = events.of("a", "run-died");
    assert_eq!(died["class"], "timeout");
    assert_eq!(died["evidence"], "it ran past max_runtime, 1s");
}

#[test]
fn who_has_died_of_something_else_is_no_timeout_however_late_that_is_heard_of() {
    let bench = bench();
    let go = bench.file("go");
    let script = format!("await {go} print 'Error: no such model' exit 1");
    let bounds = [
        ("beats", "heartbeat = { ttl = \"10s\" }"),
        ("hangs", "hang = { silent_for = \"10s\" }"),
        ("old", "max_runtime = \"10s\""),
    ];
    let agents =
        bounds.map(|(name, bound)| bench.agent(name, &script, &format!("{bound}\n{NEVER}")));
    let events = bench.up(&agents);
    let pids = bounds.map(|(name, _)| bench.pid(name));
    let begin = Instant::now();
    let (_, daemon) = bench.who();
    proc::kill(daemon, "STOP");
    std::fs::write(go, "").unwrap();
    for pid in pids {
        proc::await_gone(pid);
    }
    // All of their deadlines pass before anybody hears that they have ended.
    while begin.elapsed() < Duration::from_secs(11) {
        std::thread::sleep(Duration::from_millis(50));
    }
    proc::kill(daemon, "CONT");
    for (name, _) in bounds {
        let died = events.of(name, "run-died");
        assert_eq!(died["class"], "config", "{died}");
    }
}

#[test]
fn a_file_that_is_touched_in_a_loop_does_not_load_the_daemon() {
    let bench = bench();
    let enough = bench.file("enough");
    let line = format!(
        "while ! test -e {enough}; do : > $DEFIB_HEARTBEAT_FILE; done; echo enough; exec sleep 3600"
    );
    bench.config(&format!(
        "[agent.a]\nshell = true\nstop_timeout = \"1s\"\ncommand = \"{line}\"\n\
         heartbeat = {{ ttl = \"10s\" }}\n"
    ));
    bench.defib(&["up", "--detach"]).good();
    let (_, daemon) = bench.who();
    let ticks = |pid: u32| {
        let stat = proc::read(pid, "stat").unwrap();
        let stat = String::from_utf8_lossy(&stat).into_owned();
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        let of = |at: usize| rest.split(' ').nth(at).unwrap().parse::<u64>().unwrap();
        of(11) + of(12)
    };
    // The shell has had two seconds of CPU time; whoever looks at each touch has had as much.
    let pid = bench.pid("a");
    let (before, own) = (ticks(daemon), ticks(pid));
    let own = await_some("a busy shell", || Some(ticks(pid) - own).filter(|own| *own > 200));
    let used = ticks(daemon) - before;
    assert!(used * 4 < own, "the daemon used {used} ticks beside {own}");
    std::fs::write(enough, "").unwrap();
    bench.await_log("a", |log| log.contains("enough"));
    assert_eq!(field(&bench.status("a"), "run"), 1);
}
