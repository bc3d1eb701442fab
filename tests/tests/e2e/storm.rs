//! The daemon is killed again and again under load.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Write;
use std::time::{Duration, Instant};

use defib_e2e::{Bench, await_that, field, pid_in, proc, whole_lines};
use serde_json::Value;

use crate::{bench, is_long};

/// Nothing is pruned: a line that is missing was lost.
const LOG: &str = "log = { max_size = \"1M\", keep = 100000 }";
const STORM: &str = "restart = \"always\"\nlimits = []\nbackoff = { kind = \"fixed\", base = \"50ms\" }\nlog = { max_size = \"256K\", keep = 100000 }";
/// How many lines a run of a writing crasher has: more than a pipe holds.
const PER_RUN: u64 = 3000;
/// How many lines a writer has for each death of the daemon: more than the largest pipe holds, and
/// little enough that a hundred deaths leave half a gigabyte of logs.
const PER_WAVE: u64 = 25_000;

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

/// Who takes part: fifty agents.
struct Fleet {
    /// They write as fast as they can, each time that the daemon is about to die.
    writers: Vec<String>,
    idle: Vec<String>,
    /// They die at once.
    crashers: Vec<String>,
    /// They write as fast as they can, then die.
    writing_crashers: Vec<String>,
}

impl Fleet {
    fn new() -> Fleet {
        let names =
            |prefix: &str, count: u32| (0..count).map(|at| format!("{prefix}{at}")).collect();
        Fleet {
            writers: names("w", 5),
            idle: names("i", 30),
            crashers: names("c", 12),
            writing_crashers: names("cw", 3),
        }
    }

    fn declare(&self, bench: &Bench, waves: &str, enough: &str) -> Vec<String> {
        let lives = |name: &str| lives(bench, name);
        let writers = self.writers.iter().map(|name| {
            let script = format!("count {} waves {PER_WAVE} {waves} forever", lives(name));
            bench.agent(name, &script, LOG)
        });
        let idle = self.idle.iter();
        let idle =
            idle.map(|name| bench.agent(name, &format!("count {} forever", lives(name)), ""));
        let crashers = self.crashers.iter().map(|name| {
            let script = format!("rest-if {enough} count {} exit 3", lives(name));
            bench.agent(name, &script, STORM)
        });
        let writing = self.writing_crashers.iter().map(|name| {
            let script = format!("rest-if {enough} count {} lines {PER_RUN} exit 4", lives(name));
            bench.agent(name, &script, STORM)
        });
        writers.chain(idle).chain(crashers).chain(writing).collect()
    }

    /// Those that must live through all of it.
    fn steady(&self) -> impl Iterator<Item = &String> {
        self.writers.iter().chain(&self.idle)
    }

    fn dying(&self) -> impl Iterator<Item = &String> {
        self.crashers.iter().chain(&self.writing_crashers)
    }
}

/// Where an agent notes each of its lives.
fn lives(bench: &Bench, name: &str) -> String {
    bench.file(&format!("{name}.lives"))
}

fn by_name(bench: &Bench) -> BTreeMap<String, Value> {
    let statuses = bench.statuses().into_iter();
    statuses.map(|status| (status["name"].as_str().unwrap().to_owned(), status)).collect()
}

#[test]
fn killing_the_daemon_again_and_again_loses_no_agent_no_death_and_no_line() {
    let kills = if is_long() { 100 } else { 10 };
    let bench = bench();
    let (waves, enough) = (bench.file("waves"), bench.file("enough"));
    let fleet = Fleet::new();
    let agents = fleet.declare(&bench, &waves, &enough);
    assert_eq!(agents.len(), 50);
    let events = bench.up(&agents);
    await_that("all that is steady", || {
        let statuses = by_name(&bench);
        fleet.steady().all(|name| statuses[name]["state"] == "running")
    });
    let before = by_name(&bench);

    let mut wave = OpenOptions::new().create(true).append(true).open(&waves).unwrap();
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
        wave.write_all(b"+").unwrap();
        std::thread::sleep(Duration::from_micros(dice.below(30_000)));
        proc::kill(daemon, "KILL");
        daemon = bench.successor_of(daemon);
    }
    wave.write_all(b".").unwrap();
    std::fs::write(&enough, "").unwrap();

    for name in &fleet.writers {
        let log = bench.await_log(name, |log| log.ends_with('\n') && log.contains("END "));
        check_segments(&bench, name);
        let (lines, end) = log.split_once("END ").unwrap();
        assert_eq!(whole_lines(lines), kills * PER_WAVE, "{name}");
        assert_eq!(end.trim(), (kills * PER_WAVE).to_string(), "{name}");
    }
    let mut deaths = BTreeMap::new();
    for name in fleet.dying() {
        bench.await_log(name, |log| log.contains("resting"));
        let code = if fleet.crashers.contains(name) { 3 } else { 4 };
        deaths.insert(name.clone(), check_runs(&bench, name, code));
    }
    for name in &fleet.writing_crashers {
        check_written_runs(&bench, name, deaths[name]);
    }
    let after = by_name(&bench);
    for name in fleet.steady() {
        let status = &after[name];
        assert_eq!(status["state"], "running");
        assert_eq!(pid_in(status), pid_in(&before[name]), "{name} ran on");
        assert_eq!((field(status, "run"), field(status, "restarts")), (1, 0), "{name}");
        let lived = std::fs::read_to_string(lives(&bench, name)).unwrap();
        assert_eq!(lived.lines().count(), 1, "{name} ran once");
        assert_eq!(bench.history(name).len(), 1, "{name}");
    }
    // Every end was told once, in events as in the history.
    events.find("each death once", |events| {
        let mut told: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
        for event in events.iter().filter(|event| event["type"] == "run-died") {
            let runs = told.entry(event["agent"].as_str().unwrap().to_owned()).or_default();
            assert!(runs.insert(field(event, "run")), "told twice: {event}");
        }
        let counts: BTreeMap<String, usize> =
            told.into_iter().map(|(name, runs)| (name, runs.len())).collect();
        (counts == deaths).then_some(())
    });
    let total: usize = deaths.values().sum();
    println!("{kills} daemons killed; 50 agents; {total} deaths, each told once");
    if !is_long() {
        println!("DEFIB_LONG=1 kills 100, as scripts/nightly does");
    }
}

/// Each life was one run, each run one death, in order, with nothing between them missing. Gives how
/// many deaths there were.
fn check_runs(bench: &Bench, name: &str, code: u64) -> usize {
    let runs = bench.history(name);
    let numbers: Vec<u64> = runs.iter().map(|run| field(run, "run")).collect();
    let expected = (1..=runs.len() as u64).zip(&numbers);
    if let Some((wrong, _)) = expected.into_iter().find(|(expected, number)| expected != *number) {
        let all = bench.insist(&["events", "--json", "-n", "1000000"]).good().out;
        let of_agent = format!("\"agent\":\"{name}\"");
        let near = all.lines().filter(|line| {
            let run = |number: u64| line.contains(&format!("\"run\":{number},"));
            line.contains("daemon-") || line.contains(&of_agent) && (wrong - 2..=wrong).any(run)
        });
        panic!("{name} run {wrong}: {:#?}", near.collect::<Vec<_>>());
    }
    let (last, dead) = runs.split_last().unwrap();
    assert!(last["death"].is_null(), "{name}: {last}");
    for run in dead {
        assert_eq!(field(&run["death"], "exit_code"), code, "{name}: {run}");
        assert_eq!(run["death"]["class"], "error");
    }
    let lived = std::fs::read_to_string(lives(bench, name)).unwrap();
    let lived: Vec<u64> =
        lived.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(lived, numbers[..dead.len()], "{name}: one life a run");
    dead.len()
}

/// Every run's lines are in the log, whole, each once and in order.
fn check_written_runs(bench: &Bench, name: &str, deaths: usize) {
    check_segments(bench, name);
    let log = bench.log(name);
    let log = log.split_once("resting").unwrap().0;
    let size = log.len() / deaths;
    assert_eq!(log.len() % deaths, 0, "every run of {name} wrote the same");
    for run in log.as_bytes().chunks(size) {
        assert_eq!(whole_lines(std::str::from_utf8(run).unwrap()), PER_RUN, "{name}");
    }
}
