//! The daemon is killed again and again under load.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use defib_e2e::{Bench, field, pid_in, proc, whole_lines};

use crate::{bench, is_long};

const LOG: &str = "log = { max_size = \"256K\", keep = 100000 }";
const STORM: &str = "restart = \"always\"\nlimits = []\nbackoff = { kind = \"fixed\", base = \"20ms\" }\nlog = { max_size = \"256K\", keep = 100000 }";
/// How many lines a run of a writing crasher has: more than a pipe holds.
const PER_RUN: u64 = 3000;
const FAST: u64 = 400_000;

/// A daemon that dies within a second is given a pause by its keeper; one that lived longer is not.
const OLD_ENOUGH: Duration = Duration::from_millis(1050);

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

fn check_segments(bench: &Bench, name: &str) {
    for (path, bytes) in bench.segments(name) {
        assert!(bytes.is_empty() || bytes.ends_with(b"\n"), "{} ends in a line", path.display());
    }
}

#[test]
fn killing_the_daemon_again_and_again_loses_no_agent_no_death_and_no_line() {
    if !is_long() {
        eprintln!(
            "skipped: it takes a minute and more; DEFIB_LONG=1 runs it, as scripts/nightly does"
        );
        return;
    }
    let bench = bench();
    let enough = bench.file("enough");
    let lives = |name: &str| bench.file(&format!("{name}.lives"));
    let mut agents = Vec::new();
    let (writers, idle, crashers) =
        (["w0", "w1", "w2", "w3"], ["i0", "i1", "i2"], ["c0", "c1", "c2"]);
    for name in writers {
        let script = format!("count {} lines-until {enough} forever", lives(name));
        agents.push(bench.agent(name, &script, LOG));
    }
    let script = format!("count {} lines {FAST} print END forever", lives("fast"));
    agents.push(bench.agent("fast", &script, LOG));
    for name in idle {
        agents.push(bench.agent(name, &format!("count {} forever", lives(name)), ""));
    }
    for name in crashers {
        let script = format!("rest-if {enough} count {} exit 3", lives(name));
        agents.push(bench.agent(name, &script, STORM));
    }
    let script = format!("rest-if {enough} count {} lines {PER_RUN} exit 4", lives("cw"));
    agents.push(bench.agent("cw", &script, STORM));
    let events = bench.up(&agents);
    let steady: Vec<&str> = writers.into_iter().chain(["fast"]).chain(idle).collect();
    let before: BTreeMap<&str, u32> = steady.iter().map(|name| (*name, bench.pid(name))).collect();

    let kills = 100;
    let mut dice = Dice(7);
    let (_, mut daemon) = bench.who();
    for kill in 0..kills {
        // Some die young, most do not: a keeper that waits would make this test slow, not better.
        if kill % 10 != 9 {
            let since = Instant::now();
            while since.elapsed() < OLD_ENOUGH {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        std::thread::sleep(Duration::from_micros(dice.below(30_000)));
        proc::kill(daemon, "KILL");
        daemon = bench.successor_of(daemon);
    }

    std::fs::write(&enough, "").unwrap();
    for (name, pid) in before {
        let status = bench.await_state(name, "running");
        assert_eq!((pid_in(&status), field(&status, "run")), (pid, 1), "{name} ran on");
        assert_eq!(field(&status, "restarts"), 0);
    }
    for name in writers {
        let log = bench.await_log(name, |log| log.contains("END "));
        check_segments(&bench, name);
        let (lines, end) = log.split_once("END ").unwrap();
        assert_eq!(whole_lines(lines).to_string(), end.trim(), "{name}");
    }
    let log = bench.await_log("fast", |log| log.ends_with("END\n"));
    check_segments(&bench, "fast");
    assert_eq!(whole_lines(log.strip_suffix("END\n").unwrap()), FAST);

    for name in crashers.into_iter().chain(["cw"]) {
        bench.await_log(name, |log| log.contains("resting"));
        check_runs(&bench, name, &lives(name), if name == "cw" { 4 } else { 3 });
    }
    let log = bench.log("cw");
    check_segments(&bench, "cw");
    let log = log.split_once("resting").unwrap().0;
    let deaths = bench.history("cw").len() - 1;
    let size = log.len() / deaths;
    assert_eq!(log.len() % deaths, 0, "every run wrote the same");
    for run in log.as_bytes().chunks(size) {
        assert_eq!(whole_lines(std::str::from_utf8(run).unwrap()), PER_RUN);
    }
    // Every end was told once, in events as in the history.
    events.find("each death once", |events| {
        let mut told = BTreeSet::new();
        for event in events.iter().filter(|event| event["type"] == "run-died") {
            let key = (event["agent"].as_str().unwrap(), field(event, "run"));
            assert!(told.insert(key), "told twice: {event}");
        }
        (told.iter().filter(|(agent, _)| *agent == "cw").count() == deaths).then_some(())
    });
}

/// Each life was one run, each run one death, in order, with nothing between them missing.
fn check_runs(bench: &Bench, name: &str, lives: &str, code: u64) {
    let runs = bench.history(name);
    let numbers: Vec<u64> = runs.iter().map(|run| field(run, "run")).collect();
    assert_eq!(numbers, (1..=runs.len() as u64).collect::<Vec<_>>(), "{name}");
    let (last, dead) = runs.split_last().unwrap();
    assert!(last["death"].is_null(), "{name}: {last}");
    for run in dead {
        assert_eq!(field(&run["death"], "exit_code"), code, "{name}: {run}");
        assert_eq!(run["death"]["class"], "error");
    }
    let lived = std::fs::read_to_string(lives).unwrap();
    let lived: Vec<u64> =
        lived.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(lived, numbers[..dead.len()], "{name}: one life a run");
}
