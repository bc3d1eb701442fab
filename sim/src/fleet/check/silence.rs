//! Invariant 7: a run is ended by the clock only for its own silence or its own age.
//!
//! The world knows when a run last beat and how long the machine was awake since. A sleep of the
//! machine and an absence of the daemon are nobody's silence.

use std::time::Duration;

use defib_core::policy::Policy;

use super::{Checked, Invariant};
use crate::fleet::clock::{Moment, since};
use crate::fleet::forest::Slot;
use crate::fleet::keeper::Process;

/// Records state spans in whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(1);

/// The supervisor says that a run has not beaten within `ttl`; until its first beat it has `grace`
/// beyond that.
pub(crate) fn heartbeat_missed(
    slot: Slot,
    process: Option<&Process>,
    moment: Moment,
    ttl: Duration,
    grace: Duration,
) -> Checked {
    // A run that is dead, its report being on the way, is as silent as can be.
    let Some(process) = process else { return Ok(()) };
    let ttl = if process.beaten { ttl } else { ttl + grace };
    let silent = since(moment, process.beat) + ROUNDING;
    Invariant::Silence.check(silent >= ttl, || {
        format!("a{slot}: its last beat was {silent:?} ago, it may be silent for {ttl:?}")
    })
}

/// The supervisor ends a run by the clock, and not for its beats.
pub(crate) fn overdue(
    slot: Slot,
    process: Option<&Process>,
    moment: Moment,
    policy: &Policy,
) -> Checked {
    let Some(process) = process else { return Ok(()) };
    let idle = since(moment, process.active) + ROUNDING;
    let age = since(moment, process.born) + ROUNDING;
    let is_idle = policy.silent_for.is_some_and(|longest| idle >= longest);
    let is_old = policy.max_runtime.is_some_and(|longest| age >= longest);
    Invariant::Silence.check(is_idle || is_old, || {
        format!("a{slot}: ended by the clock, {idle:?} after its last activity, {age:?} old")
    })
}
