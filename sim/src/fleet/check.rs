//! The checks: what must hold at every step of every day, worked out anew from records, effects
//! and what the world did, never from the core's own bookkeeping.

use std::fmt;

pub(crate) mod counts;
pub(crate) mod delays;
pub(crate) mod goals;
pub(crate) mod ladder;
pub(crate) mod limits;
pub(crate) mod order;
pub(crate) mod rest;
pub(crate) mod runs;
pub(crate) mod silence;
pub(crate) mod views;

/// What must hold. The first six have the numbers they have in the architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invariant {
    /// At most one live run per agent; no run number twice.
    OneRun = 1,
    /// No spawn once the goal is not up; a stop is stored before its signal goes out.
    Goal = 2,
    /// No window holds more restarts than its limit allows.
    Limits = 3,
    /// The same seed gives the same digest.
    Determinism = 4,
    /// No agent delays another, and each waits as long as its policy says.
    Delay = 5,
    /// The view is a fold of the records.
    View = 6,
    /// No run is ended for a silence that was not its own.
    Silence = 7,
    /// Once the world is calm, every agent comes to its goal or to a recorded reason.
    Rest = 8,
    /// What the core promises its caller.
    Contract = 9,
    /// Nobody starts before those it names; groups start in order and end in reverse.
    Order = 10,
    /// Failures in a row and restarts are what records say they are.
    Counts = 11,
    /// A run is asked before it is killed, and has its time in between.
    Ladder = 12,
}

/// An invariant that did not hold, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// Which.
    pub invariant: Invariant,
    /// How.
    pub what: String,
}

/// What a check gives.
pub(crate) type Checked = Result<(), Breach>;

impl Invariant {
    /// What it says.
    pub const fn words(self) -> &'static str {
        match self {
            Invariant::OneRun => "at most one live run per agent",
            Invariant::Goal => {
                "no spawn once the goal is not up, a stop is stored before its signal"
            }
            Invariant::Limits => "no window holds more restarts than its limit allows",
            Invariant::Determinism => "the same seed gives the same digest",
            Invariant::Delay => "no agent delays another",
            Invariant::View => "the view is a fold of the records",
            Invariant::Silence => "no run is ended for a silence that was not its own",
            Invariant::Rest => "in a calm world every agent comes to its goal or a recorded reason",
            Invariant::Contract => "the core keeps its contract with its caller",
            Invariant::Order => {
                "starts in order, ends in reverse, and nobody before those it names"
            }
            Invariant::Ladder => "a run is asked before it is killed, and has its time in between",
            Invariant::Counts => "records count failures and restarts as they happened",
        }
    }

    /// Holds if `holds`; says what was wrong only then.
    pub(crate) fn check(self, holds: bool, what: impl FnOnce() -> String) -> Checked {
        if holds { Ok(()) } else { Err(Breach { invariant: self, what: what() }) }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant {} ({})", *self as u8, self.words())
    }
}
