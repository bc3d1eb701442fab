//! Many agents at once.

use std::collections::BTreeSet;
use std::time::Instant;

use defib_e2e::{Bench, field, proc};
use rustix::process::Resource;

use crate::{bench, is_long};

fn name(number: usize) -> String {
    format!("a{number:05}")
}

/// Brings them up, replaces three, kills the daemon and takes them down. Prints how long it took.
fn check_many(bench: &Bench, count: usize, agents: &[String], first_words: &str) {
    let begin = Instant::now();
    let events = bench.up(agents);
    let statuses = loop {
        // Where it takes longer than `up --detach` waits, it is no less well done.
        let statuses = bench.statuses();
        if statuses.iter().all(|status| status["state"] != "starting") {
            break statuses;
        }
        assert!(begin.elapsed() < 4 * defib_e2e::DEADLINE, "they do not start");
    };
    let up = begin.elapsed();
    assert_eq!(statuses.len(), count);
    let wrong: Vec<_> = statuses.iter().filter(|status| status["state"] != "running").collect();
    assert!(wrong.is_empty(), "{} are not running: {}", wrong.len(), wrong[0]);
    let pids: BTreeSet<u64> = statuses.iter().map(|status| field(status, "pid")).collect();
    assert_eq!(pids.len(), count, "each has a process of its own");
    let begin = Instant::now();
    bench.statuses();
    let status = begin.elapsed();
    for number in [0, count / 2, count - 1] {
        let name = name(number);
        bench.await_log(&name, |log| log == first_words);
        proc::kill(bench.pid(&name), "KILL");
        events.of_run(&name, 2, "run-ready");
    }
    bench.kill_daemon();
    let after = bench.statuses();
    assert!(after.iter().all(|status| status["state"] == "running"));
    let same = after.iter().filter(|status| pids.contains(&field(status, "pid"))).count();
    assert_eq!(same, count - 3);
    let begin = Instant::now();
    bench.defib(&["down"]).good();
    let down = begin.elapsed();
    assert!(bench.statuses().iter().all(|status| status["state"] == "stopped"));
    assert_eq!(bench.processes().len(), 2);
    println!("{count} agents: up in {up:.1?}, status in {status:.1?}, down in {down:.1?}");
}

#[test]
fn a_thousand_agents_come_up_one_is_replaced_and_all_go_down() {
    // A thousand take half a minute in a build without optimisation.
    let count = if is_long() { 1000 } else { 300 };
    let bench = bench();
    let agents: Vec<String> =
        (0..count).map(|number| bench.agent(&name(number), "print ready forever", "")).collect();
    check_many(&bench, count, &agents, "ready\n");
    if !is_long() {
        println!("DEFIB_LONG=1 has 1,000, as scripts/nightly does");
    }
}

#[test]
fn ten_thousand_agents_if_the_machine_permits() {
    if !is_long() {
        eprintln!("skipped: it takes minutes; DEFIB_LONG=1 runs it, as scripts/nightly does");
        return;
    }
    // The keeper holds two descriptors a run, and has some of its own.
    let descriptors = rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let room = usize::try_from(descriptors.saturating_sub(200) / 2).unwrap_or(usize::MAX);
    let count = room.min(10_000);
    println!("{descriptors} descriptors are allowed: {count} agents");
    let bench = bench();
    let agents: Vec<String> = (0..count)
        .map(|number| format!("[agent.{}]\ncommand = [\"sleep\", \"100000\"]\n", name(number)))
        .collect();
    check_many(&bench, count, &agents, "");
}
