//! The whole supervisor against a seeded world, a day at a time.
//!
//! A seed gives a tree of agents, their policies, the weather of the day and everything that
//! happens in it. The day is lived twice and has to come out the same; every invariant is checked
//! at every step by code that shares nothing with the core but its words. Time is virtual: nothing
//! here waits, reads a clock or touches a file.

mod check;
mod clock;
mod coverage;
mod day;
mod digest;
mod draw;
mod forest;
mod keeper;
mod life;
mod meddle;
mod plan;
mod queue;
mod rules;
mod step;
mod trace;
mod weather;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use self::day::Day;
use self::trace::{Trace, shown};

pub use self::check::{Breach, Invariant};
pub use self::coverage::{Coverage, Outcome};
pub use self::weather::Fault;

/// A bug that is planted on purpose, to see that a check notices it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// The host runs a second process beside each run.
    SpawnTwice,
    /// Goals are never stored.
    SwallowStoreGoal,
    /// The supervisor is told of higher limits than are declared.
    LoosenLimits,
    /// The jitter of the second run has another seed.
    AnotherJitter,
    /// The daemon wakes up a little after its deadline.
    LateTimer,
    /// One record in fifty is lost on its way to history.
    DropRecord,
    /// Nobody tells the supervisor that the machine slept.
    ForgetSleep,
    /// No signal reaches a process.
    SwallowSignal,
    /// What was touched is not always kept.
    KeepNothing,
    /// The supervisor is told of each group's members in reverse order.
    ReverseMembers,
    /// Every signal is a kill.
    SkipTheLadder,
    /// One failure more is recorded than there was.
    Miscount,
}

/// What a day came to.
#[derive(Debug, Clone)]
pub struct Account {
    /// Over all records, effects and deadlines, in their order.
    pub digest: u64,
    /// How many inputs the supervisor took.
    pub events: u64,
    /// How many automatic restarts it decided.
    pub restarts: u64,
    /// What happened.
    pub coverage: Coverage,
}

/// An invariant that did not hold.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The seed of the day.
    pub seed: u64,
    /// When in the day, in nanoseconds.
    pub at: u64,
    /// What did not hold.
    pub breach: Breach,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { seed, at, breach } = self;
        write!(f, "seed {seed} at {}: {}: {}", shown(*at), breach.invariant, breach.what)
    }
}

/// Lives through the day of a seed twice: it has to come out the same.
pub fn check(seed: u64) -> Result<Account, Box<Violation>> {
    check_sabotaged(seed, None)
}

/// The same with a planted bug.
pub fn check_sabotaged(seed: u64, sabotage: Option<Sabotage>) -> Result<Account, Box<Violation>> {
    let first = live(Day::new(seed, sabotage, Trace::default()), seed)?;
    let mut again = Day::new(seed, sabotage, Trace::default());
    if sabotage == Some(Sabotage::AnotherJitter) {
        again.settings.jitter_seed = Some(seed ^ 1);
    }
    let second = live(again, seed)?;
    if first.digest == second.digest {
        return Ok(first);
    }
    let what = format!("{:016x}, then {:016x}", first.digest, second.digest);
    let breach = Breach { invariant: Invariant::Determinism, what };
    Err(Box::new(Violation { seed, at: 0, breach }))
}

/// Lives through the day of a seed once and tells every input, record and effect of it.
pub fn trace(seed: u64) -> (Vec<String>, Result<Account, Box<Violation>>) {
    let mut day = Day::new(seed, None, Trace::on());
    let lived = catch_unwind(AssertUnwindSafe(|| day.live()));
    let account = judged(lived, seed, day.moment());
    (day.trace.take(), account)
}

fn live(mut day: Day, seed: u64) -> Result<Account, Box<Violation>> {
    let lived = catch_unwind(AssertUnwindSafe(|| day.live()));
    judged(lived, seed, day.moment())
}

/// A panic is a violation like any other: the core promises none.
fn judged(
    lived: std::thread::Result<Result<Account, Breach>>,
    seed: u64,
    at: u64,
) -> Result<Account, Box<Violation>> {
    let breach = match lived {
        Ok(Ok(account)) => return Ok(account),
        Ok(Err(breach)) => breach,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            let what = format!("panic: {}", text.unwrap_or_default());
            Breach { invariant: Invariant::Contract, what }
        }
    };
    Err(Box::new(Violation { seed, at, breach }))
}
