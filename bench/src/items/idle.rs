//! (d) What a supervisor does while nothing happens.

use std::io;
use std::time::Duration;

use super::{Bench, figure};
use crate::job::{Agent, Duty};
use crate::outcome::{Better, Outcome, Row, Verdict};
use crate::peers::{DEFIB, Supervisor};
use crate::processes::{self, Effort};
use crate::reports::Tally;

pub(crate) fn run(bench: &Bench) -> io::Result<Outcome> {
    let count = bench.pick(200, 20);
    let span = bench.pick(Duration::from_secs(20), Duration::from_secs(3));
    let rows = bench.supervisors.iter().map(|supervisor| {
        let measured = measure(bench, supervisor.as_ref(), count, span);
        processes::end_all();
        measured.unwrap_or_else(|error| Row::failed(supervisor.name(), error))
    });
    let mut outcome = Outcome {
        item: "d",
        title: format!("idle with {count} children for {} s", span.as_secs()),
        columns: vec!["wakeups", "CPU ms"],
        rows: rows.collect(),
        verdicts: Vec::new(),
    };
    for (column, target) in [(0, "no wakeups"), (1, "no CPU")] {
        let ours = outcome.figure(DEFIB, column);
        outcome.verdicts.push(Verdict::bound(target, Better::Less, ours, 0.0));
    }
    Ok(outcome)
}

fn measure(
    bench: &Bench,
    supervisor: &dyn Supervisor,
    count: usize,
    span: Duration,
) -> io::Result<Row> {
    let tally = Tally::new(bench.ground.report())?;
    let agents = (0..count).map(|id| Agent::new(id, Duty::Wait, tally.path())).collect();
    let (_, mut running) = bench.start(supervisor, agents, false)?;
    if !tally.await_count(count, Duration::from_secs(90)) {
        return Err(io::Error::other(format!("{} of {count} started", tally.count())));
    }
    // What a start leaves to do is done by then: stores are flushed within seconds.
    std::thread::sleep(bench.pick(Duration::from_secs(8), Duration::from_secs(3)));
    let own = processes::supervisors(&processes::child_program());
    let before: Vec<(i32, Effort)> = own.iter().map(|pid| (*pid, Effort::of(*pid))).collect();
    std::thread::sleep(span);
    let mut sum = Effort::default();
    let mut busy = Vec::new();
    for (pid, before) in before {
        let did = Effort::of(pid).since(before);
        sum.switches += did.switches;
        sum.ticks += did.ticks;
        if did.switches > 0 && busy.len() < 3 {
            busy.push(format!("{} {}", processes::program(pid), did.switches));
        }
    }
    let _ = running.stop();
    let number = |count: u64| Some(figure(usize::try_from(count).unwrap_or(0)));
    let figures = vec![number(sum.switches), number(sum.ticks * 10)];
    Ok(Row { name: supervisor.name(), figures, note: busy.join(", ") })
}
