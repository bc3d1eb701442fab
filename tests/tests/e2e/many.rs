//! Many agents at once.

use std::collections::BTreeSet;

use defib_e2e::{field, proc};

use crate::{bench, is_long};

#[test]
fn hundreds_of_agents_come_up_one_is_replaced_and_all_go_down() {
    let bench = bench();
    let count = if is_long() { 1000 } else { 200 };
    let name = |number: usize| format!("a{number:04}");
    let agents: Vec<String> =
        (0..count).map(|number| bench.agent(&name(number), "print ready forever", "")).collect();
    let events = bench.up(&agents);
    let statuses = bench.statuses();
    assert_eq!(statuses.len(), count);
    assert!(statuses.iter().all(|status| status["state"] == "running"));
    let pids: BTreeSet<u64> = statuses.iter().map(|status| field(status, "pid")).collect();
    assert_eq!(pids.len(), count, "each has a process of its own");
    for number in [0, count / 2, count - 1] {
        let name = name(number);
        bench.await_log(&name, |log| log == "ready\n");
        proc::kill(bench.pid(&name), "KILL");
        events.of_run(&name, 2, "run-ready");
    }
    bench.kill_daemon();
    let after = bench.statuses();
    assert!(after.iter().all(|status| status["state"] == "running"));
    let same = after.iter().filter(|status| pids.contains(&field(status, "pid"))).count();
    assert_eq!(same, count - 3);
    bench.defib(&["down"]).good();
    assert!(bench.statuses().iter().all(|status| status["state"] == "stopped"));
    assert_eq!(bench.processes().len(), 2);
}
