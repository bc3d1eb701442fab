//! The decision core of defib: goals, phases, deaths, limits, backoff, groups.
//!
//! [`Supervisor::handle`] takes what the world told us and the time it was told at, and gives orders
//! and records. There is no clock in here, no I/O, no thread and no future; the crate is `no_std`,
//! so that the compiler keeps it so. The same inputs at the same moments give the same decisions,
//! which is what lets the simulator run a day of a fleet in milliseconds and a test hold a rule to
//! the millisecond.
//!
//! The words are those of `docs/GLOSSARY.md`; the rules are in [`preset`] (numbers), [`verdict`]
//! (what becomes of a death), [`limit`] and [`backoff`]; everything else carries them out.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod agent;
mod input;
mod supervisor;

pub mod backoff;
pub mod capability;
pub mod class;
pub mod limit;
pub mod name;
pub mod policy;
pub mod preset;
pub mod record;
pub mod rng;
pub mod run;
pub mod screen;
pub mod signal;
pub mod span;
pub mod time;
pub mod topology;
pub mod verdict;
pub mod view;

pub use agent::Life;
pub use capability::{BadCapability, Capability};
pub use class::{Class, CrashReason, Kind};
pub use input::{Ask, Effect, Goal, Input, Outbox, Scope};
pub use name::{AgentId, GroupId, Name, RunId};
pub use policy::Policy;
pub use preset::Preset;
pub use record::{Record, What};
pub use signal::Signal;
pub use supervisor::{
    Continuity, Reason, Refusal, Remedy, Settings, Sight, Snapshot, State, Supervisor, Totals,
};
pub use time::{Mono, Now, Wall};
pub use topology::{AgentSpec, GroupSpec, Strategy, Topology};
pub use verdict::Verdict;
pub use view::{AgentView, View};
