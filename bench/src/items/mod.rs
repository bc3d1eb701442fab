//! The items: one file each, and what they share.

#![allow(clippy::unnecessary_wraps, reason = "items are called alike; some cannot fail as a whole")]

mod capture;
mod fleet;
mod idle;
mod listing;
mod memory;
mod respawn;
mod stopping;
mod storm;

use std::io;
use std::time::Duration;

use crate::ground::Ground;
use crate::job::{Agent, Job, Running};
use crate::outcome::Outcome;
use crate::peers::{Defib, Supervisor};

/// What an item is given.
pub(crate) struct Bench {
    pub(crate) supervisors: Vec<Box<dyn Supervisor>>,
    pub(crate) defib: Defib,
    pub(crate) ground: Ground,
    /// Small counts: to see that it works, not how fast.
    pub(crate) quick: bool,
}

/// How long a supervisor has to start a few children.
const PATIENCE: Duration = Duration::from_secs(60);

type Item = (&'static str, fn(&Bench) -> io::Result<Outcome>);

/// All of them, by their letters.
pub(crate) const ITEMS: &[Item] = &[
    ("a", respawn::run),
    ("b", fleet::run),
    ("c", memory::run),
    ("d", idle::run),
    ("e", storm::run),
    ("f", capture::run),
    ("g", listing::run),
    ("h", stopping::run),
];

impl Bench {
    /// One count for a full run, another for a quick one.
    fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Starts a supervisor with these children.
    fn start(
        &self,
        supervisor: &dyn Supervisor,
        agents: Vec<Agent>,
        capture: bool,
    ) -> io::Result<(Job, Running)> {
        let job = Job { folder: self.ground.folder()?, agents, capture };
        let running = supervisor.prepare(&job)?.start(&job.folder)?;
        Ok((job, running))
    }
}

/// Nanoseconds as milliseconds.
#[expect(clippy::cast_precision_loss, reason = "a span of time in a table")]
fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// A count as a figure.
#[expect(clippy::cast_precision_loss, reason = "a count in a table")]
fn figure(count: usize) -> f64 {
    count as f64
}
