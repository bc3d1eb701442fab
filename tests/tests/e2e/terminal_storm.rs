//! The daemon is killed and replaced while agents write on terminals and pipes.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::{Duration, Instant};

use defib_e2e::{Bench, LineCount, await_that, proc};

use crate::{bench, is_long};

/// Nothing is pruned: a line that is missing was lost.
const LOG: &str = "log = { max_size = \"1M\", keep = 100000 }\n";
const CRASHES: &str = "restart = \"always\"\nlimits = []\nbackoff = { kind = \"fixed\", base = \"50ms\" }\nlog = { max_size = \"256K\", keep = 100000 }\n";
/// Number of lines of a writer for each death of the daemon. They keep the writer busy for longer than
/// the daemon takes to come back.
const PER_WAVE: u64 = 2500;
/// Number of lines of each run of a crashing agent.
const PER_RUN: u64 = 300;
/// A daemon that lives for less than a second is started again after a pause. Most live longer here.
const OLD_ENOUGH: Duration = Duration::from_millis(1050);

/// Whether an agent of the fleet writes on a terminal, and whether it dies after each portion.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    count: u32,
    terminal: bool,
    crashes: bool,
}

const FLEET: [Kind; 4] = [
    Kind { name: "t", count: 4, terminal: true, crashes: false },
    Kind { name: "p", count: 4, terminal: false, crashes: false },
    Kind { name: "ct", count: 2, terminal: true, crashes: true },
    Kind { name: "cp", count: 1, terminal: false, crashes: true },
];

impl Kind {
    fn names(self) -> impl Iterator<Item = String> {
        (0..self.count).map(move |at| format!("{}{at}", self.name))
    }

    fn declare(self, bench: &Bench, waves: &str, enough: &str) -> Vec<String> {
        let script = if self.crashes {
            format!("rest-if {enough} sums {PER_RUN} 1 exit 4")
        } else {
            format!("sum-waves {PER_WAVE} {waves} print END forever")
        };
        let settings = if self.crashes { CRASHES } else { LOG };
        let settings = format!("{settings}pty = {}\n", self.terminal);
        self.names().map(|name| bench.agent(&name, &script, &settings)).collect()
    }

    /// Waits until all is written, and counts the lines of one agent.
    fn count(self, bench: &Bench, name: &str, waves: u64) -> LineCount {
        if !self.crashes {
            let log =
                bench.await_log(name, |log| log.ends_with("END\n") || log.ends_with("END\r\n"));
            let log = log.trim_end().strip_suffix("END").unwrap();
            return LineCount::of(log, waves * PER_WAVE);
        }
        let log = bench.await_log(name, |log| log.contains("resting"));
        let runs = bench.history(name).len() as u64 - 1;
        let (log, _) = log.split_once("resting").unwrap();
        // Each run begins with the first line; the part before the first beginning is empty.
        let first =
            format!("{}{}\n", defib_e2e::summed_line(1), if self.terminal { "\r" } else { "" });
        let parts: Vec<&str> = log.split(&first).collect();
        let mut total = LineCount::default();
        for part in parts.iter().skip(1) {
            total += LineCount::of(&format!("{first}{part}"), PER_RUN);
        }
        total.broken += parts[0].lines().count() as u64;
        let begun = parts.len() as u64 - 1;
        total.lost += runs.saturating_sub(begun) * PER_RUN;
        total.doubled += begun.saturating_sub(runs) * PER_RUN;
        total
    }
}

/// Waits until the daemon is old enough that its keeper replaces it without a pause.
fn let_it_age() {
    let since = Instant::now();
    while since.elapsed() < OLD_ENOUGH {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Goal: no line is lost, doubled or broken when a daemon is killed or upgraded while agents write.
/// Method: agents write numbered lines with checksums in waves; a kill or an upgrade hits each wave at
/// another moment; at the end every log is compared with the lines that must be in it.
#[test]
fn replacing_the_daemon_loses_no_line_of_a_terminal_or_a_pipe() {
    let (kills, upgrades) = if is_long() { (200, 50) } else { (10, 3) };
    let bench = bench();
    let (waves, enough) = (bench.file("waves"), bench.file("enough"));
    let agents: Vec<String> =
        FLEET.iter().flat_map(|kind| kind.declare(&bench, &waves, &enough)).collect();
    bench.up(&agents);
    await_that("every writer runs", || {
        let writers = FLEET.iter().filter(|kind| !kind.crashes).flat_map(|kind| kind.names());
        let statuses = bench.statuses();
        writers.into_iter().all(|name| {
            statuses.iter().any(|it| it["name"] == name.as_str() && it["state"] == "running")
        })
    });

    let mut wave = OpenOptions::new().create(true).append(true).open(&waves).unwrap();
    let (_, mut daemon) = bench.who();
    for turn in 0..kills + upgrades {
        // Every tenth daemon dies young.
        if turn % 10 != 9 {
            let_it_age();
        }
        wave.write_all(b"+").unwrap();
        if turn % (kills / upgrades + 1) == 1 {
            bench.defib(&["upgrade"]).good();
        } else {
            // Spread over the first 30 ms of a wave.
            std::thread::sleep(Duration::from_micros(turn * 7919 % 30_000));
            proc::kill(daemon, "KILL");
        }
        daemon = bench.successor_of(daemon);
    }
    wave.write_all(b".").unwrap();
    std::fs::write(&enough, "").unwrap();

    let mut bad = Vec::new();
    for kind in FLEET {
        let mut total = LineCount::default();
        for name in kind.names() {
            let count = kind.count(&bench, &name, kills + upgrades);
            if !count.is_good() || count.whole == 0 {
                bad.push(format!("{name}: {count}"));
            }
            total += count;
        }
        let place = if kind.terminal { "terminals" } else { "pipes" };
        let fate = if kind.crashes { ", agents that crash" } else { "" };
        println!("{} {place}{fate}: {total}", kind.count);
    }
    println!("{kills} kills and {upgrades} upgrades of the daemon");
    if !is_long() {
        println!("DEFIB_LONG=1 has 200 kills and 50 upgrades");
    }
    assert!(bad.is_empty(), "{bad:#?}");
}
