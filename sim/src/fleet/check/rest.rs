//! Invariant 8: once the world is calm, every agent comes to its goal or to a recorded reason.

use defib_core::policy::Trigger;
use defib_core::record::WaitReason;
use defib_core::{Goal, Mono, Reason, RunId, Sight, State};

use super::{Checked, Invariant};
use crate::fleet::forest::{Forest, Slot};

/// An agent at the end of a calm day.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ending {
    pub(crate) wanted: Goal,
    pub(crate) sight: Sight,
    /// The run that lives, as the world knows.
    pub(crate) alive: Option<RunId>,
}

/// Whether the agent is where it should be, or says why it is not.
pub(crate) fn is_settled(
    forest: &Forest,
    endings: &[Option<Ending>],
    slot: Slot,
    now: Mono,
) -> Checked {
    let Some(ending) = endings[slot] else { return Ok(()) };
    let Ending { wanted, sight, alive } = ending;
    let no_run = alive.is_none();
    let settled = match (wanted, sight.state) {
        (Goal::Up, State::Running) => alive.is_some() && alive == sight.run,
        (Goal::Up, State::Idle) => no_run && forest.plants[slot].policy.trigger != Trigger::Boot,
        (Goal::Up, State::Stopped) => no_run && sight.reason == Some(Reason::Failed),
        (Goal::Up, State::Waiting) => {
            no_run && (is_ahead(sight, now) || is_held(forest, endings, slot, sight))
        }
        (Goal::Up, State::Backoff) => no_run && is_ahead(sight, now),
        (Goal::Up, State::Done | State::Halted | State::CrashedOut) => no_run,
        (Goal::Stopped | Goal::Down, State::Stopped | State::Halted | State::CrashedOut) => no_run,
        (Goal::Up, State::Starting | State::Stopping) => false,
        (
            Goal::Stopped | Goal::Down,
            State::Idle
            | State::Starting
            | State::Running
            | State::Backoff
            | State::Waiting
            | State::Stopping
            | State::Done,
        ) => false,
    };
    Invariant::Rest.check(settled, || {
        format!("a{slot}: wanted {wanted:?}, it is {sight:?}, alive: {alive:?}, now {now:?}")
    })
}

/// At any time: nobody that is wanted up is stopped without a reason.
pub(crate) fn is_no_riddle(slot: Slot, wanted: Goal, sight: Sight) -> Checked {
    let stopped = sight.state == State::Stopped && sight.reason.is_none();
    Invariant::Rest.check(wanted != Goal::Up || !stopped, || {
        format!("a{slot}: it is wanted up, and stopped without a reason")
    })
}

fn is_ahead(sight: Sight, now: Mono) -> bool {
    sight.next_at.is_some_and(|next| next > now)
}

/// Whether an agent that waits for others is held by one that is down: one that it names, or one
/// before it in its tree that is itself held.
fn is_held(forest: &Forest, endings: &[Option<Ending>], slot: Slot, sight: Sight) -> bool {
    if sight.reason != Some(Reason::Wait(WaitReason::Dependency)) {
        return false;
    }
    let is_ready = |ending: Ending| matches!(ending.sight.state, State::Running | State::Done);
    let mut named = forest.plants[slot].after.iter().filter_map(|other| endings[*other]);
    if named.any(|other| !is_ready(other)) {
        return true;
    }
    let Some(top) = forest.groups_above(slot).last() else { return false };
    let mut before = forest.agents_of(top).into_iter().filter(|other| *other < slot);
    before.any(|other| {
        endings[other].is_some_and(|other| match other.sight.state {
            State::Backoff => true,
            State::Waiting => other.sight.reason == Some(Reason::Wait(WaitReason::Dependency)),
            State::Idle
            | State::Starting
            | State::Running
            | State::Stopping
            | State::Stopped
            | State::Done
            | State::Halted
            | State::CrashedOut => false,
        })
    })
}
