//! (g) `defib status` of a thousand agents.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use super::{Bench, figure, millis};
use crate::job::{Agent, Duty};
use crate::outcome::{Better, Outcome, Row, Verdict, quantile};
use crate::peers::DEFIB;
use crate::processes;
use crate::reports::{Tally, now_ns};

pub(crate) fn run(bench: &Bench) -> io::Result<Outcome> {
    let count = bench.pick(1000, 50);
    let tally = Tally::new(bench.ground.report())?;
    let agents = (0..count).map(|id| Agent::new(id, Duty::Wait, tally.path())).collect();
    let (job, mut running) = bench.start(&bench.defib, agents, false)?;
    if !tally.await_count(count, Duration::from_secs(90)) {
        return Err(io::Error::other(format!("{} of {count} started", tally.count())));
    }
    std::thread::sleep(Duration::from_secs(1));
    let mut figures = Vec::new();
    for arguments in [&["status"][..], &["status", "--json"], &["version"]] {
        let mut samples = Vec::new();
        for _ in 0..bench.pick(31, 5) {
            let mut command = bench.defib.command(&job.folder, arguments);
            let begin_ns = now_ns();
            let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
            samples.push(millis(now_ns() - begin_ns));
            if !status.success() {
                return Err(io::Error::other(format!("{arguments:?} did not work")));
            }
        }
        figures.push(quantile(&mut samples, 0.5));
    }
    let _ = running.stop();
    processes::end_all();
    figures.push(Some(figure(count)));
    let mut outcome = Outcome {
        item: "g",
        title: format!("`status` of {count} agents, from start to end of the command, median"),
        columns: vec!["status ms", "--json ms", "`version` ms", "agents"],
        rows: vec![Row { name: DEFIB, figures, note: String::new() }],
        verdicts: Vec::new(),
    };
    let ours = outcome.first(DEFIB);
    outcome.verdicts.push(Verdict::bound("under 20 ms", Better::Less, ours, 20.0));
    Ok(outcome)
}
