//! Fuzz targets for every parser that reads bytes from outside.
//!
//! Two drivers share the targets. [`fuzz`] mutates the seeds at random, needs nothing but the installed
//! compiler and runs with every change. `scripts/fuzz` drives the same targets by libFuzzer, guided by
//! coverage, and keeps its corpus in `fuzz/corpus`. A panic or a slow input is a finding.

#![forbid(unsafe_code)]

pub mod corpus;
mod mutate;
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

pub use mutate::Mutator;
pub use targets::{Target, all};

/// An input that takes longer than this is a finding. Inputs are small; the machine may be busy.
const SLOWEST: Duration = Duration::from_secs(5);

/// An input on which a parser panicked or was too slow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The target's name.
    pub target: &'static str,
    /// The panic's message, or the time that the parser took.
    pub what: String,
    /// The input.
    pub input: Vec<u8>,
}

/// The result of fuzzing one target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of inputs that were tried.
    pub tried: u64,
    /// The first finding; fuzzing stops there.
    pub finding: Option<Finding>,
}

/// Runs a target on mutated seeds until a finding, the time `within`, or `most` inputs.
pub fn fuzz(target: &Target, seed: u64, within: Duration, most: u64) -> Outcome {
    let mut mutator = Mutator::new(seed, target.seeds.clone());
    // Run the seeds first: lazily built tables must not count as the time of an input.
    for seed in &target.seeds {
        let _ = catch_unwind(AssertUnwindSafe(|| (target.run)(seed)));
    }
    let begin = Instant::now();
    let mut tried = 0;
    while tried < most && begin.elapsed() < within {
        let input = mutator.input();
        tried += 1;
        if let Some(what) = failure(target, &input) {
            let finding = Finding { target: target.name, what, input };
            return Outcome { tried, finding: Some(finding) };
        }
    }
    Outcome { tried, finding: None }
}

/// Runs a target on the inputs that guided fuzzing has kept. Gives their number, or the first finding.
pub fn replay(target: &Target) -> std::io::Result<Outcome> {
    let inputs = corpus::kept(target)?;
    let tried = inputs.len() as u64;
    let found = |input: Vec<u8>| {
        let what = failure(target, &input)?;
        Some(Finding { target: target.name, what, input })
    };
    Ok(Outcome { tried, finding: inputs.into_iter().find_map(found) })
}

/// Runs one input and describes its panic or its slowness.
fn failure(target: &Target, input: &[u8]) -> Option<String> {
    let begin = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    match result {
        Ok(()) if begin.elapsed() < SLOWEST => None,
        Ok(()) => Some(format!("it took {:?}", begin.elapsed())),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
            Some(format!("it panicked: {}", text.unwrap_or_default()))
        }
    }
}
