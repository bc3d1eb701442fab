//! Runs the fleet simulator over many seeds, or one seed with everything that happens in it.
//!
//! It stops at the first seeds that break an invariant, says how to see them again, and exits 1.

use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use defib_sim::fleet::{self, Coverage, Fault, Violation};

const HELP: &str = "\
The whole supervisor against a seeded world, a simulated day for each seed, each day lived twice.

usage: fleet [--seeds A..B] [--threads N] [--stats] [--keep-going]
       fleet --from-commit HASH --count N [--threads N] [--stats]
       fleet --seed N [--trace]

  --seeds A..B         the seeds from A up to, not including, B (0..10000 unless told)
  --from-commit HASH   seeds that follow from a commit, so that each commit tries new ones
  --count N            how many of those
  --seed N             one seed
  --trace              print every input, record and effect of that seed
  --threads N          how many threads (as many as there are processors unless told)
  --stats              print how often each fault and each outcome occurred
  --keep-going         do not stop at the first violation; list one line for each
";

/// How many of the last lines of a day are shown with a violation.
const LAST_LINES: usize = 40;

#[derive(Debug)]
struct Flags {
    seeds: Range<u64>,
    one: Option<u64>,
    trace: bool,
    threads: usize,
    stats: bool,
    keep_going: bool,
}

fn main() -> ExitCode {
    let flags = match parse(std::env::args().skip(1)) {
        Ok(Some(flags)) => flags,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(wrong) => {
            eprintln!("fleet: {wrong}; `fleet --help` says what there is");
            return ExitCode::from(2);
        }
    };
    // A panic of the core is caught and shown with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    match flags.one {
        Some(seed) => one(seed, flags.trace),
        None => many(&flags),
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Flags>, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut flags = Flags {
        seeds: 0..10_000,
        one: None,
        trace: false,
        threads,
        stats: false,
        keep_going: false,
    };
    let mut first = None;
    while let Some(flag) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{flag} needs a value"));
        match flag.as_str() {
            "--help" | "-h" => return Ok(None),
            "--seeds" => {
                let text = value()?;
                let range = text
                    .split_once("..")
                    .and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
                flags.seeds = range.ok_or_else(|| format!("{text:?} is no range of seeds"))?;
            }
            "--seed" => flags.one = Some(number(&value()?)?),
            "--trace" => flags.trace = true,
            "--threads" => flags.threads = usize::try_from(number(&value()?)?.max(1)).unwrap_or(1),
            "--from-commit" => first = Some(first_seed(&value()?)?),
            "--count" => flags.seeds = 0..number(&value()?)?,
            "--stats" => flags.stats = true,
            "--keep-going" => flags.keep_going = true,
            _ => return Err(format!("there is no flag {flag:?}")),
        }
    }
    if let Some(first) = first {
        flags.seeds = first..first.saturating_add(flags.seeds.end - flags.seeds.start);
    }
    Ok(Some(flags))
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

/// The first of the seeds of a commit: its first twelve hexadecimal digits.
fn first_seed(commit: &str) -> Result<u64, String> {
    let digits = commit.get(..commit.len().min(12)).unwrap_or("");
    u64::from_str_radix(digits, 16).map_err(|_| format!("{commit:?} is no commit"))
}

fn one(seed: u64, traced: bool) -> ExitCode {
    if traced {
        let (lines, lived) = fleet::trace(seed);
        for line in lines {
            println!("{line}");
        }
        if let Err(violation) = lived {
            println!("fleet: {violation}");
            return ExitCode::FAILURE;
        }
        return ExitCode::SUCCESS;
    }
    match fleet::check(seed) {
        Ok(account) => {
            let fleet::Account { digest, events, restarts, .. } = account;
            println!(
                "fleet: seed {seed}: {events} events, {restarts} restarts, digest {digest:016x}"
            );
            ExitCode::SUCCESS
        }
        Err(violation) => {
            show(&violation);
            ExitCode::FAILURE
        }
    }
}

/// What one thread has seen.
#[derive(Debug, Default)]
struct Share {
    events: u64,
    restarts: u64,
    digest: u64,
    coverage: Coverage,
    violations: Vec<Violation>,
}

fn many(flags: &Flags) -> ExitCode {
    let begun = Instant::now();
    let next = AtomicU64::new(flags.seeds.start);
    let broken = AtomicBool::new(false);
    let mut all = Share::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..flags.threads).map(|_| scope.spawn(|| share(flags, &next, &broken))).collect();
        for thread in threads {
            // A thread only counts: what it lives through is caught.
            let Ok(share) = thread.join() else { continue };
            all.events += share.events;
            all.restarts += share.restarts;
            all.digest = all.digest.wrapping_add(share.digest);
            all.coverage.add(&share.coverage);
            all.violations.extend(share.violations);
        }
    });
    all.violations.sort_by_key(|violation| violation.seed);
    if let Some(first) = all.violations.first() {
        if flags.keep_going {
            for violation in &all.violations {
                println!("{violation}");
            }
            println!("fleet: {} violations", all.violations.len());
            summarise(flags, &all, begun.elapsed().as_secs_f64());
        } else {
            show(first);
        }
        return ExitCode::FAILURE;
    }
    summarise(flags, &all, begun.elapsed().as_secs_f64());
    ExitCode::SUCCESS
}

fn share(flags: &Flags, next: &AtomicU64, broken: &AtomicBool) -> Share {
    let mut share = Share::default();
    while !broken.load(Ordering::Relaxed) {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= flags.seeds.end {
            break;
        }
        match fleet::check(seed) {
            Ok(account) => {
                share.events += account.events;
                share.restarts += account.restarts;
                // The order in which threads take seeds is not part of the digest.
                let mixed = account.digest ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                share.digest = share.digest.wrapping_add(mixed);
                share.coverage.add(&account.coverage);
            }
            Err(violation) => {
                share.violations.push(*violation);
                broken.store(!flags.keep_going, Ordering::Relaxed);
            }
        }
    }
    share
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn summarise(flags: &Flags, all: &Share, seconds: f64) {
    let seeds = flags.seeds.end.saturating_sub(flags.seeds.start);
    let faults: u64 = Fault::ALL.iter().map(|fault| all.coverage.struck(*fault)).sum();
    println!(
        "fleet: {seeds} seeds of a simulated day, each twice, in {seconds:.1} s ({:.0} seeds a minute), \
         {} events, {} restarts, {faults} faults, digest {:016x}",
        seeds as f64 / seconds * 60.0,
        all.events,
        all.restarts,
        all.digest,
    );
    if flags.stats {
        for (case, count) in all.coverage.cases() {
            println!("{count:>12}  {case}");
        }
    }
}

fn show(violation: &Violation) {
    let (lines, _) = fleet::trace(violation.seed);
    for line in lines.iter().skip(lines.len().saturating_sub(LAST_LINES)) {
        println!("{line}");
    }
    println!("fleet: {violation}");
    println!(
        "fleet: to see it again: cargo run --profile sim -p defib-sim --bin fleet -- --seed {} --trace",
        violation.seed
    );
}
