//! Invariant 10: who starts after whom, and who stops before whom.
//!
//! An agent starts only when those it names are ready. A group restart starts its members in order,
//! none of them before all have ended, and an ordered stop ends later members first. A session whose
//! context is full is never resumed.

use defib_core::record::{By, Cause, WaitReason};
use defib_core::{Class, Record, State, View, What};

use super::{Checked, Invariant};
use crate::fleet::forest::{Forest, Slot};

#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    /// The group restart that it waits for its turn in.
    cohort: Option<u64>,
    /// It is to end in its turn, and has not been asked yet.
    queued: bool,
    /// Its next run has to be a fresh session.
    owed_fresh: bool,
    /// Whether its turn on its account has just come.
    tried: bool,
}

/// Whose turn it is.
#[derive(Debug)]
pub(crate) struct Order {
    turns: Vec<Turn>,
    /// The group restart of this step, and the tree that it is in.
    restarting: Option<(u64, Option<usize>)>,
    restarts: u64,
    /// A group that has failed for good in this step.
    failed: Option<usize>,
    /// Whether the input of this step ends many in order.
    pub(crate) ends_many: bool,
}

impl Order {
    pub(crate) fn new(slots: usize) -> Order {
        let turns = vec![Turn::default(); slots];
        Order { turns, restarting: None, restarts: 0, failed: None, ends_many: false }
    }

    /// A step begins; it may end many at once.
    pub(crate) fn begin(&mut self, ends_many: bool) {
        (self.restarting, self.failed, self.ends_many) = (None, None, ends_many);
    }

    /// The daemon died: who has been asked to end may be asked again, in whatever order.
    pub(crate) fn forget_asked(&mut self) {
        self.turns.iter_mut().for_each(|turn| turn.queued = false);
    }

    /// The trees are others, or nothing lives: nobody waits for a turn any more.
    pub(crate) fn forget(&mut self) {
        self.forget_asked();
        self.turns.iter_mut().for_each(|turn| turn.cohort = None);
    }

    pub(crate) fn record(
        &mut self,
        forest: &Forest,
        view: &View,
        slot: Slot,
        record: &Record,
    ) -> Checked {
        match &record.what {
            What::RunStarted { cause, fresh, .. } => {
                may_start(forest, view, slot)?;
                let owed = std::mem::replace(&mut self.turns[slot].owed_fresh, false);
                let by_us = matches!(cause, Cause::Restart | Cause::Group);
                Invariant::Order.check(*fresh || !owed || !by_us, || {
                    format!("a{slot}: its context was full, and it is resumed")
                })?;
                if *cause == Cause::Operator {
                    self.turns[slot].cohort = None;
                }
                self.turns[slot].tried = false;
                self.may_start_in_cohort(forest, view, slot)?;
            }
            What::GroupRestarted { .. } => {
                self.restarts += 1;
                self.restarting = Some((self.restarts, top_of(forest, slot)));
                self.turns[slot].cohort = Some(self.restarts);
            }
            What::StopRequested { by, kill } => {
                let ordered = *by == By::Group || (*by == By::Operator && self.ends_many);
                let begins = state(forest, view, slot) != State::Stopping;
                let turn = &mut self.turns[slot];
                turn.queued = ordered && !kill && (begins || turn.queued);
                if *by == By::Group { self.join(forest, slot) } else { turn.cohort = None }
            }
            // Its turn on its account has come, of which its group knows nothing.
            What::WaitEnded { reason: WaitReason::Account } => self.turns[slot].tried = true,
            What::WaitStarted { reason: WaitReason::Dependency, .. } => {
                if !std::mem::replace(&mut self.turns[slot].tried, false) {
                    self.join(forest, slot);
                }
            }
            What::RunDied { class, .. } => {
                let turn = &mut self.turns[slot];
                turn.queued = false;
                if *class != Class::Group {
                    turn.cohort = None;
                }
                turn.owed_fresh = *class == Class::Context;
            }
            What::RunReady => self.turns[slot].cohort = None,
            What::WaitStarted { .. }
            | What::CrashedOut { .. }
            | What::Halted { .. }
            | What::Revived
            | What::Stopped { .. }
            | What::Rested { .. } => self.turns[slot] = Turn::default(),
            What::Escalated { group: Some(group), to: None } => self.failed = forest.grove(group),
            What::RestartScheduled { .. }
            | What::WaitEnded { .. }
            | What::LimitTripped { .. }
            | What::Escalated { .. }
            | What::HeartbeatMissed { .. } => {}
        }
        Ok(())
    }

    /// A step is over: of a group that has failed for good nobody lives on or will come back.
    pub(crate) fn step_over(&self, forest: &Forest, state_of: impl Fn(Slot) -> State) -> Checked {
        let Some(group) = self.failed else { return Ok(()) };
        let goes_on = |slot: &Slot| {
            matches!(
                state_of(*slot),
                State::Starting | State::Running | State::Backoff | State::Waiting
            )
        };
        let left = forest.agents_of(group).into_iter().find(goes_on);
        Invariant::Order.check(left.is_none(), || {
            let name = &forest.groves[group].name;
            format!("{name} has failed for good, and a{} goes on", left.unwrap_or(0))
        })
    }

    /// A run is asked to end: where it ends in its turn, nobody after it is still ending.
    pub(crate) fn asked(
        &mut self,
        forest: &Forest,
        slot: Slot,
        is_stopping: impl Fn(Slot) -> bool,
    ) -> Checked {
        if !std::mem::replace(&mut self.turns[slot].queued, false) {
            return Ok(());
        }
        let top = top_of(forest, slot);
        let comes_after = |other: &Slot| {
            forest.plants[*other].declared
                && ((*other > slot && top.is_some() && top_of(forest, *other) == top)
                    || forest.plants[*other].after.contains(&slot))
        };
        let early = (0..self.turns.len()).filter(comes_after).find(|other| is_stopping(*other));
        Invariant::Order.check(early.is_none(), || {
            format!("a{slot} is asked to end before a{} has", early.unwrap_or(0))
        })
    }

    /// In the step of a group restart, whoever is held or ended for it takes part.
    fn join(&mut self, forest: &Forest, slot: Slot) {
        if let Some((number, top)) = self.restarting
            && top_of(forest, slot) == top
        {
            self.turns[slot].cohort = Some(number);
        }
    }

    fn may_start_in_cohort(&self, forest: &Forest, view: &View, slot: Slot) -> Checked {
        let Some(number) = self.turns[slot].cohort else { return Ok(()) };
        let early = self.turns.iter().enumerate().position(|(other, turn)| {
            let ending = state(forest, view, other) == State::Stopping;
            turn.cohort == Some(number) && (other < slot || (other > slot && ending))
        });
        Invariant::Order.check(early.is_none(), || {
            format!("a{slot} starts before a{} in their group's restart", early.unwrap_or(0))
        })
    }
}

/// Those that an agent names have to be ready before it starts.
fn may_start(forest: &Forest, view: &View, slot: Slot) -> Checked {
    let named = forest.plants[slot].after.iter().copied();
    let mut named = named.filter(|other| forest.plants[*other].declared);
    let unready =
        named.find(|other| !matches!(state(forest, view, *other), State::Running | State::Done));
    Invariant::Order.check(unready.is_none(), || {
        format!("a{slot} starts and names a{}, which is not ready", unready.unwrap_or(0))
    })
}

fn top_of(forest: &Forest, slot: Slot) -> Option<usize> {
    forest.groups_above(slot).last()
}

fn state(forest: &Forest, view: &View, slot: Slot) -> State {
    view.agent(&forest.plants[slot].name).map_or(State::Idle, |agent| agent.sight.state)
}
