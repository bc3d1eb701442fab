//! No agent's crash, flood or slow stop holds up another's restart.

use defib_e2e::{field, is, proc};

use crate::bench;

#[test]
fn a_flood_a_crash_loop_and_a_slow_stop_do_not_hold_up_a_respawn() {
    let bench = bench();
    let events = bench.up(&[
        bench.agent("flood", "flood", "log = { max_size = \"1M\", keep = 2 }"),
        bench.agent("storm", "exit 1", "limits = []\nrestart = \"always\""),
        bench.agent("slow", "ignore TERM print ready forever", "stop_timeout = \"1h\""),
        bench.agent("victim", "forever", "limits = []"),
    ]);
    bench.await_log("slow", |log| log.contains("ready"));
    events.of_run("storm", 20, "run-died");
    bench.defib(&["stop", "--no-wait", "slow"]).good();
    events.of("slow", "stop-requested");
    for run in 1..=5 {
        proc::kill(bench.pid("victim"), "KILL");
        events.of_run("victim", run + 1, "run-ready");
    }
    // Nobody ended the others meanwhile: the respawns did not wait for that.
    assert_eq!(bench.status("slow")["state"], "stopping");
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
    for run in 1..=3 {
        proc::kill(bench.pid("victim"), "KILL");
        events.of_run("victim", run + 1, "run-ready");
    }
    for watcher in &mut watchers {
        watcher.kill().unwrap();
        watcher.wait().unwrap();
    }
}
