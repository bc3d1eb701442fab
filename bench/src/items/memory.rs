//! (c) What a supervisor's own processes take in memory, for each idle child.

use std::io;
use std::time::Duration;

use super::{Bench, figure};
use crate::job::{Agent, Duty};
use crate::outcome::{Better, Outcome, Row, Verdict};
use crate::peers::{DEFIB, Supervisor};
use crate::processes;
use crate::reports::Tally;

pub(crate) fn run(bench: &Bench) -> io::Result<Outcome> {
    let wanted = bench.pick(1000, 50);
    let mut keeper = None;
    let rows = bench.supervisors.iter().map(|supervisor| {
        let many = wanted.min(supervisor.most());
        let row = weigh(bench, supervisor.as_ref(), 1).and_then(|one| {
            let all = weigh(bench, supervisor.as_ref(), many)?;
            let each = (all.kib - one.kib) / (figure(many) - 1.0);
            if supervisor.name() == DEFIB {
                keeper = all.smaller_kib;
            }
            let figures = vec![Some(each), Some(one.kib), Some(all.kib), Some(figure(many))];
            Ok(Row { name: supervisor.name(), figures, note: all.processes })
        });
        row.unwrap_or_else(|error| Row::failed(supervisor.name(), error))
    });
    let mut outcome = Outcome {
        item: "c",
        title: "memory (PSS) of the supervisor's own processes, children idle".into(),
        columns: vec!["KiB each", "KiB at 1", "KiB at most", "at most"],
        rows: rows.collect(),
        verdicts: Vec::new(),
    };
    let each = outcome.first(DEFIB);
    outcome.verdicts.push(Verdict::bound("at most 4 KiB an idle agent", Better::Less, each, 4.0));
    outcome.verdicts.push(Verdict::bound(
        "keeper and spawners under 3 MiB (in KiB)",
        Better::Less,
        keeper,
        3072.0,
    ));
    Ok(outcome)
}

struct Weight {
    kib: f64,
    /// All but the largest process. Of defib's these are the keeper and its spawners.
    smaller_kib: Option<f64>,
    processes: String,
}

fn weigh(bench: &Bench, supervisor: &dyn Supervisor, count: usize) -> io::Result<Weight> {
    let tally = Tally::new(bench.ground.report())?;
    let agents = (0..count).map(|id| Agent::new(id, Duty::Wait, tally.path())).collect();
    let (_, mut running) = bench.start(supervisor, agents, false)?;
    if !tally.await_count(count, Duration::from_secs(90)) {
        processes::end_all();
        return Err(io::Error::other(format!("{} of {count} started", tally.count())));
    }
    std::thread::sleep(bench.pick(Duration::from_secs(5), Duration::from_secs(1)));
    let own = processes::supervisors(&processes::child_program());
    let weights: Vec<(String, u64)> = own
        .iter()
        .filter_map(|pid| Some((processes::program(*pid), processes::pss_kib(*pid)?)))
        .collect();
    let _ = running.stop();
    processes::end_all();
    let number = |kib: u64| figure(usize::try_from(kib).unwrap_or(0));
    let sum: u64 = weights.iter().map(|(_, kib)| kib).sum();
    let largest = weights.iter().map(|(_, kib)| *kib).max();
    let shown: Vec<String> =
        weights.iter().take(3).map(|(program, kib)| format!("{program} {kib}")).collect();
    Ok(Weight {
        kib: number(sum),
        smaller_kib: largest.map(|largest| number(sum - largest)),
        processes: match weights.len() {
            more if more > 3 => format!("{more} processes: {}, …", shown.join(", ")),
            _ => shown.join(", "),
        },
    })
}
