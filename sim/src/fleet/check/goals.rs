//! Invariant 2: what operators asked for, kept beside the core and compared with what it orders.
//!
//! `wanted` follows the requests that the daemon took, by the rules of the manual actions; the
//! durable store follows nothing but the effects. A spawn needs both to say up; a signal against an
//! agent that is not wanted up needs the store to know that already.

use defib_core::{Class, Goal, Reason, Sight, State};

use super::{Checked, Invariant};
use crate::fleet::forest::Slot;
use crate::fleet::keeper::Cell;

/// What an operator asks of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    Up,
    Down,
    Start,
    Stop,
    Restart,
    Revive,
}

/// What operators want, by their own words.
#[derive(Debug)]
pub(crate) struct Goals {
    wanted: Vec<Goal>,
}

impl Goals {
    pub(crate) fn new(slots: usize) -> Goals {
        Goals { wanted: vec![Goal::Up; slots] }
    }

    pub(crate) fn wanted(&self, slot: Slot) -> Goal {
        self.wanted[slot]
    }

    /// What a request makes of the goal of an agent that is in this state.
    ///
    /// `broke` says that the agent has no money. One that was halted for that and has some again
    /// may be started; any other fallen agent has to be revived.
    pub(crate) fn after(&self, slot: Slot, request: Request, sight: Sight, broke: bool) -> Goal {
        let funded = sight.reason == Some(Reason::Halt(Class::Broke)) && !broke;
        let fallen = matches!(sight.state, State::Halted | State::CrashedOut);
        let old = self.wanted[slot];
        match request {
            Request::Up if old == Goal::Down => Goal::Up,
            Request::Up => old,
            Request::Down => Goal::Down,
            Request::Stop => Goal::Stopped,
            Request::Start | Request::Restart => {
                if fallen && !funded {
                    old
                } else {
                    Goal::Up
                }
            }
            Request::Revive => {
                if fallen && !broke {
                    Goal::Up
                } else {
                    old
                }
            }
        }
    }

    /// The daemon took a request.
    pub(crate) fn want(&mut self, slot: Slot, goal: Goal) {
        self.wanted[slot] = goal;
    }

    /// The daemon says to the operator that it is so: then it is stored.
    pub(crate) fn acknowledged(&self, slot: Slot, cell: &Cell) -> Checked {
        let (wanted, stored) = (self.wanted[slot], stored(cell));
        Invariant::Goal.check(wanted == stored, || {
            format!("a{slot}: {wanted:?} was acknowledged, the store says {stored:?}")
        })
    }

    /// A spawn is ordered.
    pub(crate) fn may_spawn(&self, slot: Slot, cell: &Cell) -> Checked {
        let (wanted, stored) = (self.wanted[slot], stored(cell));
        Invariant::Goal.check(wanted == Goal::Up && stored == Goal::Up, || {
            format!("a{slot}: a spawn is ordered, wanted {wanted:?}, stored {stored:?}")
        })
    }

    /// A signal is ordered.
    pub(crate) fn may_signal(&self, slot: Slot, cell: &Cell) -> Checked {
        let (wanted, stored) = (self.wanted[slot], stored(cell));
        Invariant::Goal.check(wanted == Goal::Up || stored != Goal::Up, || {
            format!("a{slot}: a signal is ordered, wanted {wanted:?}, stored {stored:?}")
        })
    }
}

fn stored(cell: &Cell) -> Goal {
    cell.goal.unwrap_or(Goal::Up)
}
