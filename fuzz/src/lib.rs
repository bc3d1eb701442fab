//! The fuzzer: bytes that nobody expects, thrown at every parser that sees bytes from outside.
//!
//! It begins with seeds that say something and changes them: bits, bytes, pieces, words that mean
//! something elsewhere. What panics or takes long is a finding, and is told with the seed that leads to
//! it. It knows nothing of which code was reached; that is the price of needing no other compiler.

#![forbid(unsafe_code)]

mod mutate;
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

pub use mutate::Mutator;
pub use targets::{Target, all};

/// No input may take longer: they are small, and the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(5);

/// An input that a parser did not bear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Which parser.
    pub target: &'static str,
    /// What became of it.
    pub what: String,
    /// The input.
    pub input: Vec<u8>,
}

/// How much was tried, and what was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// So many inputs.
    pub tried: u64,
    /// The first that was not borne.
    pub finding: Option<Finding>,
}

/// Throws things at a parser, for so long and so many times at most.
pub fn fuzz(target: &Target, seed: u64, within: Duration, most: u64) -> Outcome {
    let mut mutator = Mutator::new(seed, target.seeds.clone());
    // What is made once, on first use, is not counted as anybody's time.
    for seed in &target.seeds {
        let _ = catch_unwind(AssertUnwindSafe(|| (target.run)(seed)));
    }
    let begin = Instant::now();
    let mut tried = 0;
    while tried < most && begin.elapsed() < within {
        let input = mutator.input();
        tried += 1;
        if let Some(what) = bear(target, &input) {
            let finding = Finding { target: target.name, what, input };
            return Outcome { tried, finding: Some(finding) };
        }
    }
    Outcome { tried, finding: None }
}

/// What became of a parser that did not bear an input.
fn bear(target: &Target, input: &[u8]) -> Option<String> {
    let begin = Instant::now();
    let borne = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    match borne {
        Ok(()) if begin.elapsed() < PATIENCE => None,
        Ok(()) => Some(format!("it took {:?}", begin.elapsed())),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
            Some(format!("it panicked: {}", text.unwrap_or_default()))
        }
    }
}
