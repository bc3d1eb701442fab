//! (b) Starting a thousand children, and stopping them.
//!
//! A start is over with the first instruction of the last child; a stop when the last one is dead.

use std::io;
use std::time::{Duration, Instant};

use super::{Bench, figure, millis};
use crate::job::{Agent, Duty, Job};
use crate::outcome::{Better, Outcome, Row};
use crate::peers::Supervisor;
use crate::processes;
use crate::reports::{Tally, now_ns};

/// One that has not done it by then does not.
const LONGEST: Duration = Duration::from_secs(90);

pub(crate) fn run(bench: &Bench) -> io::Result<Outcome> {
    let wanted = bench.pick(1000, 50);
    let rows = bench.supervisors.iter().map(|supervisor| {
        let measured = measure(bench, supervisor.as_ref(), wanted);
        processes::end_all();
        measured.unwrap_or_else(|error| Row::failed(supervisor.name(), error))
    });
    let mut outcome = Outcome {
        item: "b",
        title: format!("start and stop of {wanted}"),
        columns: vec!["start ms", "stop ms", "children"],
        rows: rows.collect(),
        verdicts: Vec::new(),
    };
    outcome.ahead("start ahead of every peer", Better::Less, 0);
    outcome.ahead("stop ahead of every peer", Better::Less, 1);
    Ok(outcome)
}

fn measure(bench: &Bench, supervisor: &dyn Supervisor, wanted: usize) -> io::Result<Row> {
    let count = wanted.min(supervisor.most());
    let tally = Tally::new(bench.ground.report())?;
    let agents = (0..count).map(|id| Agent::new(id, Duty::Wait, tally.path())).collect();
    let job = Job { folder: bench.ground.folder()?, agents, capture: false };
    // Writing its files is not its work.
    let launch = supervisor.prepare(&job)?;
    let (begin, begin_ns) = (Instant::now(), now_ns());
    let mut running = launch.start(&job.folder)?;
    if !tally.await_count(count, LONGEST.saturating_sub(begin.elapsed())) {
        let met = tally.count();
        return Ok(Row::failed(supervisor.name(), format!("{met} of {count} in {LONGEST:?}")));
    }
    let begun = tally.all()?;
    let last_ns = begun.iter().map(|begin| begin.at_ns).max().unwrap_or(begin_ns);
    let pids: Vec<i32> = begun.iter().map(|begin| begin.pid).collect();
    // Whatever it does after a start is not the stop's.
    std::thread::sleep(Duration::from_secs(1));
    let stop_ns = now_ns();
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| running.stop());
        let stopped = processes::await_dead(&pids, LONGEST).then(now_ns);
        let _ = stopping.join();
        // What was asked for fewer is scaled, which is to its advantage.
        let scale = figure(wanted) / figure(count);
        let start = Some(millis(last_ns - begin_ns) * scale);
        let stop = stopped.map(|stopped_ns| millis(stopped_ns - stop_ns) * scale);
        let figures = vec![start, stop, Some(figure(count))];
        let note = if count < wanted { format!("scaled from {count}") } else { String::new() };
        Ok(Row { name: supervisor.name(), figures, note })
    })
}
