//! (e) Fifty children that crash at once, started again without a delay, beside ten that are well.
//!
//! How many starts a second, whether every run of ours is in the history, and how long a healthy
//! child that is killed meanwhile waits for its replacement, compared with a quiet time.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::respawn::Contestant;
use super::{Bench, figure};
use crate::job::{Agent, Duty, Job};
use crate::outcome::{Better, Outcome, Row, Verdict, quantile};
use crate::peers::{DEFIB, FLOOR, Supervisor};
use crate::processes;
use crate::reports::{Bell, Tally};

const CRASHING: usize = 50;
const HEALTHY: usize = 10;

/// How often the floor and ours are measured, in turn: what else the machine does meets both.
const ROUNDS: usize = 3;

pub(crate) fn run(bench: &Bench) -> io::Result<Outcome> {
    let mut all: Vec<Measured<'_>> =
        bench.supervisors.iter().map(|supervisor| Measured::new(supervisor.as_ref())).collect();
    for round in 0..bench.pick(ROUNDS, 1) {
        for one in &mut all {
            if round == 0 || [FLOOR, DEFIB].contains(&one.supervisor.name()) {
                one.measure(bench);
            }
        }
    }
    // One that is not whole counts, however many others are.
    let verdicts = all.iter_mut().flat_map(|one| one.history.drain(..));
    let history = verdicts.min_by_key(|verdict| verdict.met);
    let rows = all.into_iter().map(Measured::row).collect();
    let mut outcome = Outcome {
        item: "e",
        title: format!(
            "crash storm of {CRASHING}, no delay and no limit, beside {HEALTHY} healthy ones, median of {}",
            bench.pick(ROUNDS, 1)
        ),
        columns: vec!["starts/s", "quiet ms", "in storm ms", "storm / quiet"],
        rows,
        verdicts: Vec::new(),
    };
    outcome.ahead("starts a second ahead of every peer", Better::More, 0);
    if let Some(floor) = outcome.first(FLOOR) {
        let ours = outcome.first(DEFIB);
        outcome.verdicts.push(Verdict::bound("half the floor's", Better::More, ours, floor / 2.0));
    }
    if outcome.first(DEFIB).is_some() {
        let ratio = outcome.figure(DEFIB, 3);
        let target = "a healthy child's respawn within 2 × its quiet figure";
        outcome.verdicts.push(Verdict::bound(target, Better::Less, ratio, 2.0));
    }
    outcome.verdicts.extend(history);
    Ok(outcome)
}

/// What came of one supervisor's rounds.
struct Measured<'a> {
    supervisor: &'a dyn Supervisor,
    rates: Vec<f64>,
    quiet_ms: Vec<f64>,
    storm_ms: Vec<f64>,
    history: Vec<Verdict>,
    /// Why it could not be measured. It is not tried again.
    failed: Option<io::Error>,
}

impl<'a> Measured<'a> {
    fn new(supervisor: &'a dyn Supervisor) -> Measured<'a> {
        let (rates, quiet_ms, storm_ms) = (Vec::new(), Vec::new(), Vec::new());
        Measured { supervisor, rates, quiet_ms, storm_ms, history: Vec::new(), failed: None }
    }

    fn measure(&mut self, bench: &Bench) {
        if self.failed.is_none() {
            self.failed = self.round(bench).err();
            processes::end_all();
        }
    }

    fn round(&mut self, bench: &Bench) -> io::Result<()> {
        self.quiet_ms.extend(quiet(bench, self.supervisor)?);
        let is_ours = self.supervisor.name() == DEFIB;
        let storm = storm(bench, self.supervisor, is_ours.then_some(&mut self.history))?;
        self.rates.push(storm.rate);
        self.storm_ms.extend(storm.healthy_ms);
        Ok(())
    }

    fn row(mut self) -> Row {
        let name = self.supervisor.name();
        if let Some(error) = self.failed {
            return Row::failed(name, error);
        }
        let rate = quantile(&mut self.rates, 0.5);
        let quiet_ms = quantile(&mut self.quiet_ms, 0.5);
        let storm_ms = quantile(&mut self.storm_ms, 0.5);
        let ratio = storm_ms.zip(quiet_ms).map(|(storm, quiet)| storm / quiet);
        Row { name, figures: vec![rate, quiet_ms, storm_ms, ratio], note: String::new() }
    }
}

/// The median respawn of a healthy child while all is quiet.
fn quiet(bench: &Bench, supervisor: &dyn Supervisor) -> io::Result<Option<f64>> {
    let (bell, tally) = (Bell::new(bench.ground.report())?, Tally::new(bench.ground.report())?);
    let (_, running) = bench.start(supervisor, agents(&bell, &tally, Duty::Wait), false)?;
    let mut contestant = Contestant::with(supervisor.name(), running, bell, HEALTHY)?;
    tally.await_count(CRASHING, Duration::from_secs(30));
    kill_some(&mut contestant, bench.pick(40, 10))?;
    let _ = contestant.running.stop();
    processes::end_all();
    Ok(quantile(&mut contestant.samples, 0.5))
}

struct Storm {
    rate: f64,
    healthy_ms: Option<f64>,
}

fn storm(
    bench: &Bench,
    supervisor: &dyn Supervisor,
    history: Option<&mut Vec<Verdict>>,
) -> io::Result<Storm> {
    let (bell, tally) = (Bell::new(bench.ground.report())?, Tally::new(bench.ground.report())?);
    let (job, running) = bench.start(supervisor, agents(&bell, &tally, Duty::Crash), false)?;
    let mut contestant = Contestant::with(supervisor.name(), running, bell, HEALTHY)?;
    if !tally.await_count(CRASHING, Duration::from_secs(30)) {
        return Err(io::Error::other("not all children started"));
    }
    // At first nobody is disturbed: this is for the rate.
    let span = bench.pick(Duration::from_secs(5), Duration::from_secs(1));
    let (begin, before) = (Instant::now(), tally.count());
    std::thread::sleep(span);
    let rate = figure(tally.count() - before) / begin.elapsed().as_secs_f64();
    kill_some(&mut contestant, bench.pick(40, 10))?;
    if let Some(history) = history {
        history.push(check_history(bench, &job, &tally)?);
    }
    let _ = contestant.running.stop();
    processes::end_all();
    Ok(Storm { rate, healthy_ms: quantile(&mut contestant.samples, 0.5) })
}

/// The healthy ones come first, with the numbers from 0 on.
fn agents(bell: &Bell, tally: &Tally, duty: Duty) -> Vec<Agent> {
    let healthy = (0..HEALTHY).map(|id| Agent::new(id, Duty::Wait, bell.path()));
    let others = (HEALTHY..HEALTHY + CRASHING).map(|id| Agent::new(id, duty, tally.path()));
    healthy.chain(others).collect()
}

/// Kills healthy ones, with a pause each time so that they have lived when their turn comes again.
fn kill_some(contestant: &mut Contestant, kills: usize) -> io::Result<()> {
    let end = Instant::now() + Duration::from_secs(40);
    for _ in 0..kills {
        if Instant::now() > end {
            break;
        }
        contestant.ask()?;
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Whether every run that told its beginning is in the history, each once, and all but the last with
/// its death.
fn check_history(bench: &Bench, job: &Job, tally: &Tally) -> io::Result<Verdict> {
    let crashing = job.agents.iter().skip(HEALTHY);
    let names: Vec<&str> = crashing.map(|agent| agent.name.as_str()).collect();
    let told = |arguments: &[&str]| {
        let out = bench.defib.command(&job.folder, arguments).output()?;
        if !out.status.success() {
            let error = String::from_utf8_lossy(&out.stderr).into_owned();
            return Err(io::Error::other(format!("`defib {}`: {error}", arguments.join(" "))));
        }
        Ok(out.stdout)
    };
    // Stopped, so that there is a last run to compare with.
    told(&[&["stop"], &names[..]].concat())?;
    let mut begun: BTreeMap<usize, usize> = BTreeMap::new();
    for begin in tally.all()? {
        *begun.entry(begin.id).or_default() += 1;
    }
    let (mut wrong, mut runs_in_all) = (Vec::new(), 0);
    for (id, name) in (HEALTHY..).zip(&names) {
        let text = told(&["history", name, "--json", "-n", "100000"])?;
        let runs: Vec<Value> = serde_json::from_slice(&text)?;
        let begun = begun.get(&id).copied().unwrap_or(0);
        runs_in_all += runs.len();
        // Newest first, without a gap, down to the first.
        let numbers = runs.iter().map(|run| run["run"].as_u64());
        let whole = numbers.eq((1..=runs.len() as u64).rev().map(Some));
        let dead = runs.iter().filter(|run| run["death"].is_object()).count();
        // The stop may have come before a run's first instruction.
        let all = runs.len() == begun || runs.len() == begun + 1;
        if !whole || !all || dead != runs.len() {
            let (has, whole) = (runs.len(), if whole { "no gap" } else { "gaps" });
            wrong.push(format!("{name}: {has} runs, {dead} deaths, {whole}, {begun} begun"));
        }
    }
    let target = "every run of the storm is in the history".to_owned();
    let detail = match wrong.first() {
        None => format!("{runs_in_all} runs, all with their deaths"),
        Some(first) => format!("{} of {} agents are not whole ({first})", wrong.len(), names.len()),
    };
    Ok(Verdict { target, met: wrong.is_empty(), detail })
}
