//! (f) Capturing what a child writes: how fast, and whether every line is there.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Bench, millis};
use crate::job::{Agent, Duty};
use crate::outcome::{Better, Outcome, Row, Verdict, quantile};
use crate::peers::{DEFIB, Supervisor};
use crate::processes;
use crate::reports::{Bell, now_ns};

const LINE: u64 = 100;
/// How often each is measured, in turn: what else the machine does meets all of them.
const ROUNDS: usize = 5;
/// One that has not done it by then does not.
const LONGEST: Duration = Duration::from_secs(120);

pub(crate) fn run(bench: &Bench) -> io::Result<Outcome> {
    let lines: u64 = bench.pick(5_000_000, 200_000);
    let captures = bench.supervisors.iter().filter(|supervisor| supervisor.captures());
    let mut all: Vec<Measured<'_>> =
        captures.map(|supervisor| Measured::new(supervisor.as_ref())).collect();
    for _ in 0..bench.pick(ROUNDS, 1) {
        for one in &mut all {
            one.measure(bench, lines);
        }
    }
    let ours = all.iter().find(|one| one.supervisor.name() == DEFIB);
    let whole = ours.filter(|one| one.failed.is_none()).map(|one| one.wrong.clone());
    let rows = all.into_iter().map(Measured::row).collect();
    let mut outcome = Outcome {
        item: "f",
        title: format!(
            "capture of {} MB in lines of {LINE} bytes, rotated, median of {}",
            lines * LINE / 1_000_000,
            bench.pick(ROUNDS, 1)
        ),
        columns: vec!["MB/s", "slowest", "fastest"],
        rows,
        verdicts: Vec::new(),
    };
    outcome.ahead("at least as fast as the best peer", Better::More, 0);
    if let Some(wrong) = whole {
        let detail = if wrong.is_empty() { format!("{lines} lines") } else { wrong.clone() };
        let target = "no line lost, doubled or broken".to_owned();
        outcome.verdicts.push(Verdict { target, met: wrong.is_empty(), detail });
    }
    Ok(outcome)
}

/// What came of one supervisor's rounds.
struct Measured<'a> {
    supervisor: &'a dyn Supervisor,
    rates: Vec<f64>,
    /// What was wrong with the lines, in the first round in which something was.
    wrong: String,
    /// Why it could not be measured. It is not tried again.
    failed: Option<io::Error>,
}

impl<'a> Measured<'a> {
    fn new(supervisor: &'a dyn Supervisor) -> Measured<'a> {
        Measured { supervisor, rates: Vec::new(), wrong: String::new(), failed: None }
    }

    fn measure(&mut self, bench: &Bench, lines: u64) {
        if self.failed.is_some() {
            return;
        }
        let measured = measure(bench, self.supervisor, lines);
        processes::end_all();
        match measured {
            Ok((rate, wrong)) => {
                self.rates.extend(rate);
                if self.wrong.is_empty() {
                    self.wrong = wrong;
                }
            }
            Err(error) => self.failed = Some(error),
        }
    }

    fn row(mut self) -> Row {
        let name = self.supervisor.name();
        if let Some(error) = self.failed {
            return Row::failed(name, error);
        }
        let note = if self.wrong.is_empty() { "every line once".to_owned() } else { self.wrong };
        let figures = [0.5, 0.0, 1.0].map(|share| quantile(&mut self.rates, share)).into();
        Row { name, figures, note }
    }
}

fn measure(
    bench: &Bench,
    supervisor: &dyn Supervisor,
    lines: u64,
) -> io::Result<(Option<f64>, String)> {
    let mut bell = Bell::new(bench.ground.report())?;
    let agents = vec![Agent::new(0, Duty::Write { lines }, bell.path())];
    let (job, mut running) = bench.start(supervisor, agents, true)?;
    let Some(begin) = bell.next(Duration::from_secs(60))? else {
        return Err(io::Error::other("its child did not start"));
    };
    let Some((folder, ending)) = running.logs.clone() else {
        return Err(io::Error::other("its logs are nowhere"));
    };
    let end = Instant::now() + LONGEST;
    let mut took_ns = None;
    while Instant::now() < end {
        let size: u64 = files(&folder, ending)
            .iter()
            .filter_map(|path| Some(path.metadata().ok()?.len()))
            .sum();
        if size >= lines * LINE {
            took_ns = Some(now_ns() - begin.at_ns);
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ = running.stop();
    processes::end_all();
    let wrong = check(&files(&folder, ending), lines)?;
    // Half a gigabyte is not kept until the end.
    let _ = std::fs::remove_dir_all(&job.folder);
    #[expect(clippy::cast_precision_loss, reason = "a size in a table")]
    let megabytes = (lines * LINE) as f64 / 1e6;
    Ok((took_ns.map(|took_ns| megabytes / (millis(took_ns) / 1e3)), wrong))
}

/// The log's files: those that hold output, and nothing that a logger keeps beside them.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .filter(|path| {
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            let beside = ["config", "lock", "state", "index"].contains(&name.as_str());
            // A rotated file has a number behind its ending.
            !beside
                && name
                    .trim_end_matches(|end: char| end.is_ascii_digit() || end == '.')
                    .ends_with(ending)
        })
        .collect()
}

/// What is wrong with the lines in these files; nothing if each is there once, whole.
fn check(files: &[PathBuf], lines: u64) -> io::Result<String> {
    let mut met = vec![false; usize::try_from(lines).unwrap_or(0) + 1];
    let (mut broken, mut doubled) = (0_u64, 0_u64);
    for path in files {
        let bytes = std::fs::read(path)?;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let number = line
                .get(..10)
                .and_then(|number| std::str::from_utf8(number).ok()?.parse::<usize>().ok());
            let whole = line.len() as u64 == LINE && line.ends_with(b".\n");
            match number.filter(|_| whole).and_then(|number| met.get_mut(number)) {
                Some(met) if *met => doubled += 1,
                Some(met) => *met = true,
                None => broken += 1,
            }
        }
    }
    let missing = met.iter().skip(1).filter(|met| !**met).count();
    if missing == 0 && doubled == 0 && broken == 0 {
        return Ok(String::new());
    }
    Ok(format!("{missing} lines missing, {doubled} doubled, {broken} broken"))
}
