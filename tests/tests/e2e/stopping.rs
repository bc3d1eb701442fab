//! Stop means stop: whoever dies in between, and however an agent resists.

use std::process::Stdio;

use defib_e2e::{Bench, Events, field, is, moment_ms, proc};

use crate::bench;

/// Lets another agent die and come back, so that whatever was to happen before has happened.
fn fence(bench: &Bench, events: &Events) {
    let before = bench.status("fence");
    proc::kill(bench.pid("fence"), "KILL");
    events.run_after("fence", field(&before, "run"));
}

fn lives(bench: &Bench) -> usize {
    std::fs::read_to_string(bench.project().join("lives")).unwrap().lines().count()
}

#[test]
fn a_stopped_agent_stays_down_also_under_the_next_daemon() {
    let bench = bench();
    let script = format!("count {} forever", bench.file("lives"));
    let events = bench.up(&[
        bench.agent("a", &script, "restart = \"always\""),
        bench.agent("fence", "forever", ""),
    ]);
    let pid = bench.pid("a");
    let told = bench.defib(&["stop", "a"]).good();
    assert_eq!(told.out, "a: stopped\n");
    assert!(!proc::lives(pid), "stop returns when it is so");
    let run = &bench.history("a")[0];
    assert_eq!(
        (&run["death"]["class"], &run["death"]["signal"]),
        (&"stopped".into(), &"SIGTERM".into())
    );
    fence(&bench, &events);
    bench.kill_daemon();
    fence(&bench, &events);
    let status = bench.status("a");
    assert_eq!((&status["state"], &status["pid"]), (&"stopped".into(), &serde_json::Value::Null));
    assert_eq!(lives(&bench), 1);
    // `up` leaves a named stop alone; `start` ends it.
    bench.defib(&["up", "--detach"]).good();
    fence(&bench, &events);
    assert_eq!(bench.status("a")["state"], "stopped");
    bench.defib(&["start", "a"]).good();
    assert_eq!(field(&bench.await_state("a", "running"), "run"), 2);
    bench.defib(&["start", "a"]).good();
    assert_eq!(field(&bench.status("a"), "run"), 2, "start of a running one changes nothing");
}

#[test]
fn a_stop_goes_through_when_the_daemon_is_killed_between_request_and_end() {
    let bench = bench();
    let script = format!("count {} ignore TERM print deaf forever", bench.file("lives"));
    let events = bench.up(&[
        bench.agent("a", &script, "restart = \"always\""),
        bench.agent("fence", "forever", ""),
    ]);
    bench.await_log("a", |log| log.contains("deaf"));
    let pid = bench.pid("a");
    bench.defib(&["stop", "--no-wait", "a"]).good();
    events.of("a", "stop-requested");
    assert!(proc::lives(pid), "it resists");
    bench.kill_daemon();
    events.of("a", "stopped");
    bench.await_state("a", "stopped");
    assert!(!proc::lives(pid));
    fence(&bench, &events);
    bench.kill_daemon();
    fence(&bench, &events);
    assert_eq!(bench.status("a")["state"], "stopped");
    assert_eq!(lives(&bench), 1);
    let run = &bench.history("a")[0];
    assert_eq!(
        (&run["death"]["class"], &run["death"]["signal"]),
        (&"stopped".into(), &"SIGKILL".into())
    );
}

#[test]
fn a_stop_that_was_acknowledged_holds_when_the_daemon_is_killed_at_once() {
    let bench = bench();
    let agents: Vec<String> = (0..5)
        .map(|number| {
            let script = format!("count {} forever", bench.file("lives"));
            bench.agent(&format!("a{number}"), &script, "restart = \"always\"")
        })
        .chain([bench.agent("fence", "forever", "")])
        .collect();
    let events = bench.up(&agents);
    defib_e2e::await_that("five lives", || lives(&bench) == 5);
    for number in 0..5 {
        let name = format!("a{number}");
        let (_, daemon) = bench.who();
        bench.defib(&["stop", "--no-wait", &name]).good();
        proc::kill(daemon, "KILL");
        bench.successor_of(daemon);
        bench.await_state(&name, "stopped");
    }
    fence(&bench, &events);
    assert_eq!(lives(&bench), 5);
}

#[test]
fn stop_ends_agents_that_are_frozen_deaf_or_whose_grandchild_holds_the_output() {
    let bench = bench();
    let agents = [
        bench.agent("frozen", "signal STOP forever", ""),
        bench.agent("deaf", "ignore TERM print ready forever", ""),
        bench.agent("holder", "child 'ignore TERM print ready forever' forever", ""),
        bench.agent("daemonic", "double-fork 'ignore TERM print ready forever' forever", ""),
        bench.agent("gone", "double-fork 'print ready forever' exit 0", ""),
    ];
    let events = bench.up(&agents);
    for name in ["deaf", "holder", "daemonic"] {
        bench.await_log(name, |log| log.contains("ready"));
    }
    let frozen = bench.pid("frozen");
    defib_e2e::await_that("a frozen agent", || proc::state(frozen).as_deref() == Some("T"));
    for name in ["frozen", "deaf", "holder", "daemonic"] {
        bench.defib(&["stop", name]).good();
        assert_eq!(bench.status(name)["state"], "stopped");
    }
    events.of("gone", "rested");
    defib_e2e::await_that("keeper and daemon only", || bench.processes().len() == 2);
}

#[test]
fn a_stop_lasts_as_long_as_its_timeout_and_ends_within_a_second_of_it() {
    /// Twice this is more than is allowed.
    const TIMEOUT: i64 = 3000;
    const ALLOWED: i64 = TIMEOUT + 1000;
    /// A machine that is busy makes some stops late; a rule that is wrong, all.
    const TRIES: usize = 5;
    let bench = bench();
    let own = "stop_timeout = \"3s\"";
    let events = bench.up(&[
        bench.agent("frozen", "signal STOP forever", own),
        bench.agent("deaf", "ignore TERM print ready forever", own),
        bench.agent("holder", "child 'ignore TERM print ready forever' forever", own),
        bench.agent("daemonic", "double-fork 'ignore TERM print ready forever' forever", own),
    ]);
    // Who does not hear is given its time; the others may use less of it.
    let least = |name: &str| if name == "deaf" { TIMEOUT - 100 } else { 0 };
    let mut left = vec!["frozen", "deaf", "holder", "daemonic"];
    for attempt in 1..=TRIES {
        for name in &left {
            if *name == "frozen" {
                let pid = bench.pid(name);
                defib_e2e::await_that("frozen", || proc::state(pid).as_deref() == Some("T"));
            } else {
                bench.await_log(name, |log| log.matches("ready").count() == attempt);
            }
        }
        let before = events.last();
        let mut stop = vec!["stop", "--no-wait"];
        stop.extend(&left);
        bench.defib(&stop).good();
        let took = |name: &&str| {
            let at = |kind: &str| moment_ms(&events.after(before, name, kind)["at"]);
            at("stopped") - at("stop-requested")
        };
        let all: Vec<(&str, i64)> = left.iter().map(|name| (*name, took(name))).collect();
        println!("attempt {attempt}, in ms: {all:?}");
        let is_wrong = |(name, took): &(&str, i64)| !(least(name)..=ALLOWED).contains(took);
        left = all.into_iter().filter(is_wrong).map(|(name, _)| name).collect();
        if left.is_empty() {
            return;
        }
        let mut start = vec!["start"];
        start.extend(&left);
        bench.defib(&start).good();
    }
    panic!("{left:?} were never stopped in their time\n{}", bench.account());
}

#[test]
fn a_grandchild_that_is_to_be_kept_does_not_hold_up_the_stop() {
    let mut bench = bench();
    bench.may_leave_processes();
    let script = format!("double-fork 'count {} forever' forever", bench.file("kept"));
    let agent = bench.agent("a", &script, "leftovers = \"keep\"");
    let events = bench.up(&[agent]);
    let kept = defib_e2e::await_some("the grandchild", || {
        let text = std::fs::read_to_string(bench.project().join("kept")).ok()?;
        text.trim().split(' ').nth(1)?.parse::<u32>().ok()
    });
    bench.defib(&["stop", "a"]).good();
    events.of("a", "stopped");
    assert!(proc::lives(kept), "it is kept");
    bench.defib(&["start", "a"]).good();
    bench.defib(&["down", "--all"]).good();
    assert!(proc::lives(kept), "it is kept");
    proc::kill(kept, "KILL");
}

#[test]
fn a_second_stop_and_stop_kill_do_not_wait_for_the_timeout() {
    let bench = bench();
    let patient = "stop_timeout = \"1h\"";
    let script = "ignore TERM print ready forever";
    bench.up(&[bench.agent("a", script, patient), bench.agent("b", script, patient)]);
    for name in ["a", "b"] {
        bench.await_log(name, |log| log.contains("ready"));
    }
    bench.defib(&["stop", "--no-wait", "a"]).good();
    bench.await_state("a", "stopping");
    bench.defib(&["stop", "a"]).good();
    bench.defib(&["stop", "--kill", "b"]).good();
    for name in ["a", "b"] {
        let run = &bench.history(name)[0];
        assert_eq!(run["death"]["signal"], "SIGKILL");
        assert_eq!(bench.status(name)["state"], "stopped");
    }
}

/// Where a process does not even die when it is killed, until this is dropped.
struct Freezer(String);

impl Freezer {
    /// `None`: there is none to be had here.
    fn of(pid: u32) -> Option<Freezer> {
        let folder = format!("/sys/fs/cgroup/freezer/defib-e2e-{pid}");
        std::fs::create_dir(&folder).ok()?;
        let freezer = Freezer(folder);
        freezer.set("cgroup.procs", &pid.to_string());
        freezer.set("freezer.state", "FROZEN");
        Some(freezer)
    }

    fn set(&self, file: &str, text: &str) {
        std::fs::write(format!("{}/{file}", self.0), text).unwrap();
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.set("freezer.state", "THAWED");
        defib_e2e::await_that("an empty freezer", || std::fs::remove_dir(&self.0).is_ok());
    }
}

#[test]
fn a_run_that_the_kernel_holds_is_said_to_be_stuck_by_each_daemon_until_it_ends() {
    let bench = bench();
    let events = bench.up(&[bench.agent("a", "forever", "stop_timeout = \"100ms\"")]);
    let pid = bench.pid("a");
    let Some(freezer) = Freezer::of(pid) else {
        eprintln!("skipped: no freezer to make a process stuck with");
        return;
    };
    let check = || {
        let status = bench.status("a");
        assert_eq!(status["state"], "stopping");
        assert_eq!(status["reason"], "killed, but stuck in the kernel");
    };
    bench.defib(&["stop", "--no-wait", "a"]).good();
    let stuck = events.of("a", "run-stuck");
    assert_eq!(field(&stuck, "pid"), u64::from(pid));
    check();
    let why = bench.defib(&["why", "a"]).out;
    assert!(why.contains("stuck in the kernel"), "{why}");
    bench.kill_daemon();
    events.after(field(&stuck, "seq"), "a", "run-stuck");
    check();
    drop(freezer);
    assert_eq!(bench.await_state("a", "stopped")["reason"], serde_json::Value::Null);
}

#[test]
fn an_agent_is_stopped_with_its_own_signal_by_stop_and_by_down() {
    let bench = bench();
    let own = "stop_signal = \"INT\"\nstop_timeout = \"20s\"";
    let script = "ignore TERM print ready forever";
    let events = bench.up(&[bench.agent("a", script, own)]);
    let stopped_by = |run: u64| {
        let death = events.of_run("a", run, "run-died");
        assert_eq!(death["signal"], "SIGINT", "{death}");
    };
    bench.await_log("a", |log| log.matches("ready").count() == 1);
    bench.defib(&["stop", "a"]).good();
    stopped_by(1);
    bench.defib(&["start", "a"]).good();
    bench.await_log("a", |log| log.matches("ready").count() == 2);
    bench.defib(&["down"]).good();
    stopped_by(2);
    bench.defib(&["up", "--detach"]).good();
    bench.await_log("a", |log| log.matches("ready").count() == 3);
    bench.defib(&["down", "--all"]).good();
    bench.defib(&["up", "--detach"]).good();
    stopped_by(3);
    bench.await_log("a", |log| log.matches("ready").count() == 4);
    let keeper = bench.who().0;
    proc::kill(keeper, "TERM");
    proc::await_gone(keeper);
    bench.defib(&["up", "--detach"]).good();
    stopped_by(4);
    bench.await_log("a", |log| log.matches("ready").count() == 5);
}

#[test]
fn down_all_goes_through_when_the_daemon_is_killed_in_between() {
    let bench = bench();
    let events = bench.up(&[bench.agent("a", "ignore TERM print ready forever", "")]);
    bench.await_log("a", |log| log.contains("ready"));
    let (keeper, daemon) = bench.who();
    let down = std::thread::scope(|scope| {
        let down = scope.spawn(|| bench.defib(&["down", "--all"]));
        events.of("a", "stop-requested");
        proc::kill(daemon, "KILL");
        down.join().unwrap()
    });
    down.good();
    proc::await_gone(keeper);
    assert!(bench.processes().is_empty());
}

#[test]
fn stop_during_backoff_and_during_a_crash_loop_ends_it() {
    let bench = bench();
    let slow = "backoff = { kind = \"fixed\", base = \"1h\", cap = \"1h\" }";
    let storm = "limits = []";
    let events = bench.up(&[
        bench.agent("waits", "exit 1", slow),
        bench.agent("storm", "exit 1", storm),
        bench.agent("fence", "forever", ""),
    ]);
    bench.await_state("waits", "backoff");
    events.of_run("storm", 5, "run-died");
    bench.defib(&["stop", "waits", "storm"]).good();
    let last = events.after(0, "storm", "stopped");
    fence(&bench, &events);
    events.find("no run after the stop", |events| {
        let begins = |event: &&serde_json::Value| {
            is(event, "storm", "run-started") && field(event, "seq") > field(&last, "seq")
        };
        assert_eq!(events.iter().find(begins), None);
        Some(())
    });
    assert_eq!(bench.status("waits")["state"], "stopped");
    assert_eq!(bench.status("waits")["next_at"], serde_json::Value::Null);
}

#[test]
fn who_waits_for_what_another_has_undone_is_told() {
    let bench = bench();
    let events = bench.up(&[bench.agent(
        "slow",
        "ignore TERM print ready forever",
        "stop_timeout = \"3s\"",
    )]);
    let opposites: [(&[&str], &[&str], &str); 3] = [
        (&["stop", "slow"], &["start", "slow"], "slow was started again meanwhile"),
        (&["restart", "slow"], &["stop", "--no-wait", "slow"], "slow was stopped meanwhile"),
        (&["down"], &["up", "--detach"], "slow was started again meanwhile"),
    ];
    for (at, (first, second, said)) in (1..).zip(opposites) {
        bench.await_status("slow", |status| status["state"] == "running");
        let ready = "ready\n".repeat(at);
        bench.await_log("slow", |log| *log == ready);
        let waiting = bench.command(first).stderr(Stdio::piped()).spawn().unwrap();
        let run = u64::try_from(at).unwrap();
        events.of_run("slow", run, "stop-requested");
        bench.defib(second).good();
        let ended = waiting.wait_with_output().unwrap();
        let err = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{first:?}: {err}");
        assert!(err.contains(said), "{first:?}: {err}");
        bench.defib(&["start", "slow"]).good();
    }
}
