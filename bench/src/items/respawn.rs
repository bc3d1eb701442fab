//! (a) From a child's SIGKILL to the first instruction of its replacement.
//!
//! All supervisors run at the same time and are asked in turn, so that whatever else the machine
//! does meets all of them alike. Each child has lived longer than a second when it is killed: some
//! supervisors make one that has not wait.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Bench, PATIENCE, figure, millis};
use crate::job::{Agent, Duty, Running};
use crate::outcome::{Better, Outcome, Row, Verdict, quantile};
use crate::peers::{DEFIB, FLOOR, Supervisor};
use crate::processes;
use crate::reports::{Begin, Bell, now_ns};

/// A child is killed when it has lived so long.
const LIFE: Duration = Duration::from_millis(1100);
/// A supervisor that has taken so long in all is asked no more.
const BUDGET: Duration = Duration::from_secs(25);
/// One that has not replaced a child by then does not.
const LONGEST: Duration = Duration::from_secs(10);

pub(crate) fn run(bench: &Bench) -> io::Result<Outcome> {
    let kills = bench.pick(240, 20);
    let mut rows = Vec::new();
    let mut contestants = Vec::new();
    for supervisor in &bench.supervisors {
        match Contestant::start(bench, supervisor.as_ref(), 8) {
            Ok(contestant) => contestants.push(contestant),
            Err(error) => rows.push(Row::failed(supervisor.name(), error)),
        }
    }
    for _ in 0..kills {
        for contestant in &mut contestants {
            contestant.ask()?;
        }
    }
    for contestant in &mut contestants {
        // What does not stop is ended below.
        let _ = contestant.running.stop();
    }
    let measured = contestants.iter_mut().map(Contestant::row);
    let rows = measured.chain(rows).collect();
    drop(contestants);
    processes::end_all();
    let mut outcome = Outcome {
        item: "a",
        title: "SIGKILL of a child → first instruction of its replacement, no delay configured"
            .into(),
        columns: vec!["median ms", "p90 ms", "p99 ms", "kills"],
        rows,
        verdicts: Vec::new(),
    };
    if let Some(floor) = outcome.first(FLOOR) {
        let ours = outcome.first(DEFIB);
        let verdict =
            Verdict::bound("median at most 2 × the floor's", Better::Less, ours, 2.0 * floor);
        outcome.verdicts.push(verdict);
    }
    outcome.ahead("ahead of every peer", Better::Less, 0);
    Ok(outcome)
}

/// A supervisor with children of which one is killed at a time.
pub(crate) struct Contestant {
    name: &'static str,
    pub(crate) running: Running,
    bell: Bell,
    /// The children, longest-lived first.
    living: VecDeque<Begin>,
    pub(crate) samples: Vec<f64>,
    spent: Duration,
    note: String,
}

impl Contestant {
    fn start(bench: &Bench, supervisor: &dyn Supervisor, count: usize) -> io::Result<Contestant> {
        let bell = Bell::new(bench.ground.report())?;
        let agents = (0..count).map(|id| Agent::new(id, Duty::Wait, bell.path())).collect();
        let (_, running) = bench.start(supervisor, agents, false)?;
        Contestant::with(supervisor.name(), running, bell, count)
    }

    /// One whose children have been started and tell this bell.
    pub(crate) fn with(
        name: &'static str,
        running: Running,
        mut bell: Bell,
        count: usize,
    ) -> io::Result<Contestant> {
        let mut living = VecDeque::new();
        while living.len() < count {
            let Some(begin) = bell.next(PATIENCE)? else {
                let met = living.len();
                return Err(io::Error::other(format!("only {met} of {count} children started")));
            };
            living.retain(|other: &Begin| other.id != begin.id);
            living.push_back(begin);
        }
        let (samples, spent, note) = (Vec::new(), Duration::ZERO, String::new());
        Ok(Contestant { name, running, bell, living, samples, spent, note })
    }

    /// Kills the child that has lived longest, and waits for its replacement.
    pub(crate) fn ask(&mut self) -> io::Result<()> {
        if !self.note.is_empty() {
            return Ok(());
        }
        let Some(victim) = self.living.pop_front() else { return Ok(()) };
        let ripe = victim.at_ns + u64::try_from(LIFE.as_nanos()).unwrap_or(u64::MAX);
        std::thread::sleep(Duration::from_nanos(ripe.saturating_sub(now_ns())));
        let asked = Instant::now();
        let killed_ns = now_ns();
        processes::send(victim.pid, Signal::KILL);
        let Some(next) = self.bell.next_of(victim.id, LONGEST)? else {
            self.note = format!("did not replace a child within {} s", LONGEST.as_secs());
            return Ok(());
        };
        self.samples.push(millis(next.at_ns.saturating_sub(killed_ns)));
        self.living.push_back(next);
        self.spent += asked.elapsed();
        if self.spent > BUDGET {
            self.note = format!("asked no more after {} s", BUDGET.as_secs());
        }
        // What it still has to do for this death is not the next one's.
        std::thread::sleep(Duration::from_millis(5));
        Ok(())
    }

    fn row(&mut self) -> Row {
        let count = figure(self.samples.len());
        let mut at = |share| quantile(&mut self.samples, share);
        let figures = vec![at(0.5), at(0.9), at(0.99), Some(count)];
        Row { name: self.name, figures, note: std::mem::take(&mut self.note) }
    }
}
