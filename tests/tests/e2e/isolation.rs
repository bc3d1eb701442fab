//! No agent's crash, flood or slow stop holds up another's restart.

use defib_e2e::{Bench, Events, field, is, moment_ms, now_ms, proc};

use crate::bench;

/// Within so much of its death an agent without a delay runs again, in milliseconds.
const AT_ONCE: i64 = 1000;

/// Kills the victim again and again. Each time it runs again, and the quickest time at once: a machine
/// that is busy makes some respawns late, somebody who is waited for makes all. Gives the number of the
/// last event.
fn respawn(bench: &Bench, events: &Events, times: u64) -> u64 {
    let (mut took, mut last) = (Vec::new(), 0);
    for run in 1..=times {
        let pid = bench.pid("victim");
        let killed = now_ms();
        proc::kill(pid, "KILL");
        let ready = events.of_run("victim", run + 1, "run-ready");
        took.push(moment_ms(&ready["at"]) - killed);
        last = field(&ready, "seq");
    }
    println!("from kill to run, in ms: {took:?}");
    assert!(took.iter().any(|took| *took <= AT_ONCE), "always late, in ms: {took:?}");
    last
}

#[test]
fn a_flood_a_crash_loop_and_a_slow_stop_do_not_hold_up_a_respawn() {
    let bench = bench();
    let events = bench.up(&[
        bench.agent("flood", "flood", "log = { max_size = \"1M\", keep = 2 }"),
        bench.agent("storm", "exit 1", "limits = []\nrestart = \"always\""),
        bench.agent("slow", "ignore TERM print ready forever", "stop_timeout = \"30s\""),
        bench.agent("victim", "forever", "limits = []"),
    ]);
    bench.await_log("slow", |log| log.contains("ready"));
    events.of_run("storm", 20, "run-died");
    bench.defib(&["stop", "--no-wait", "slow"]).good();
    events.of("slow", "stop-requested");
    let last = respawn(&bench, &events, 5);
    // The slow stop had not come to its end when the last of them ran: none has waited for that.
    let slow = events.find("what was told by then", |events| {
        let ends = |event: &&serde_json::Value| is(event, "slow", "run-died");
        let told = events.last().is_some_and(|event| field(event, "seq") >= last);
        told.then(|| events.iter().find(ends).map(|event| field(event, "seq")))
    });
    assert!(slow.is_none_or(|end| end > last), "{slow:?} is before {last}");
    assert_eq!(field(&bench.status("flood"), "run"), 1);
    let storms = |after: u64| {
        events.find("the storm goes on", |events| {
            let deaths = events.iter().filter(|event| is(event, "storm", "run-died"));
            deaths.map(|event| field(event, "seq")).find(|seq| *seq > after)
        })
    };
    storms(events.last());
    bench.defib(&["stop", "--kill", "storm"]).good();
    bench.defib(&["stop", "--kill", "slow"]).good();
    // The history is complete in spite of the storm.
    let runs = bench.history("storm");
    let numbers: Vec<u64> = runs.iter().map(|run| field(run, "run")).collect();
    assert_eq!(numbers, (1..=runs.len() as u64).collect::<Vec<_>>());
}

#[test]
fn a_watcher_that_does_not_read_holds_up_nobody() {
    let bench = bench();
    let events = bench.up(&[
        bench.agent("flood", "flood", "log = { max_size = \"1M\", keep = 2 }"),
        bench.agent("storm", "exit 1", "limits = []\nrestart = \"always\""),
        bench.agent("victim", "forever", "limits = []"),
    ]);
    let deaf = |arguments: &[&str]| {
        let mut command = bench.command(arguments);
        command.stdout(std::process::Stdio::piped()).spawn().unwrap()
    };
    let mut watchers = [deaf(&["logs", "-f", "flood"]), deaf(&["events", "-f", "--json"])];
    events.of_run("storm", 200, "run-died");
    respawn(&bench, &events, 3);
    for watcher in &mut watchers {
        watcher.kill().unwrap();
        watcher.wait().unwrap();
    }
}
