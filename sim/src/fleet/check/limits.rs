//! Invariant 3: every window, counted anew from the records.
//!
//! The core keeps a few numbers per limit. Here every restart, counted death and success since the
//! last clean slate is kept, and each limit is counted over all of them whenever it could trip.

use std::time::Duration;

use defib_core::limit::{Limit, Measure, Span};
use defib_core::policy::{Policy, Reset, ShortDone};
use defib_core::record::Cause;
use defib_core::{Class, Goal, Mono, Record, What};

use super::{Checked, Invariant};
use crate::fleet::forest::{Forest, Slot};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Restart,
    CountedDeath,
    Success,
}

/// What was recorded of one agent since its last clean slate.
#[derive(Debug, Clone, Default)]
struct Ledger {
    entries: Vec<(Mono, Entry)>,
    /// Its limits, each with the entry from which it counts.
    limits: Vec<(Limit, usize)>,
    generation: u64,
    /// A limit on deaths was reached.
    barred: Option<Limit>,
    /// What groups have said because of its last death.
    said: Said,
    pending: Pending,
}

/// What groups have said because of a death.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Said {
    #[default]
    Nothing,
    /// One of them has failed.
    Failed,
    /// One of them restarts members, and has been charged for that.
    Restarts,
}

/// A restart that has been decided and not yet been made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Pending {
    #[default]
    Nothing,
    Decided,
    /// It was decided under other limits than those that hold now.
    DecidedBefore,
}

/// What a group has spent.
#[derive(Debug, Clone, Default)]
struct Purse {
    charges: Vec<Mono>,
    budget: Option<Limit>,
}

/// Every window of a day.
#[derive(Debug)]
pub(crate) struct Limits {
    ledgers: Vec<Ledger>,
    purses: Vec<Purse>,
    total: u32,
    max_total: Option<u32>,
}

impl Limits {
    pub(crate) fn new(forest: &Forest, max_total: Option<u32>) -> Limits {
        let mut limits = Limits {
            ledgers: vec![Ledger::default(); forest.plants.len()],
            purses: vec![Purse::default(); forest.groves.len()],
            total: 0,
            max_total,
        };
        limits.declare(forest);
        limits
    }

    /// Limits were declared. One that is still there goes on counting; a new one starts empty.
    pub(crate) fn declare(&mut self, forest: &Forest) {
        for (ledger, plant) in self.ledgers.iter_mut().zip(&forest.plants) {
            let from = ledger.entries.len();
            let old = std::mem::take(&mut ledger.limits);
            ledger.limits.extend(plant.policy.limits.iter().map(|limit| {
                let known = old.iter().find(|(known, _)| known == limit);
                (*limit, known.map_or(from, |(_, from)| *from))
            }));
            let changed =
                ledger.limits.iter().any(|(limit, _)| !old.iter().any(|(o, _)| o == limit));
            if changed && ledger.pending == Pending::Decided {
                ledger.pending = Pending::DecidedBefore;
            }
            if ledger.barred.is_some_and(|by| !plant.policy.limits.contains(&by)) {
                ledger.barred = None;
            }
        }
        for (purse, grove) in self.purses.iter_mut().zip(&forest.groves) {
            if purse.budget != grove.budget || !grove.declared {
                *purse = Purse { budget: grove.budget, charges: Vec::new() };
            }
        }
    }

    /// The agent starts with a clean slate.
    pub(crate) fn clear(&mut self, slot: Slot) {
        let ledger = &mut self.ledgers[slot];
        ledger.entries.clear();
        ledger.limits.iter_mut().for_each(|(_, from)| *from = 0);
        ledger.barred = None;
    }

    /// So do its groups.
    pub(crate) fn clear_groups_above(&mut self, forest: &Forest, slot: Slot) {
        for grove in forest.groups_above(slot) {
            self.purses[grove].charges.clear();
        }
    }

    /// The machine started anew: so does everything that is counted.
    pub(crate) fn reboot(&mut self) {
        (0..self.ledgers.len()).for_each(|slot| self.clear(slot));
        self.purses.iter_mut().for_each(|purse| purse.charges.clear());
        self.total = 0;
    }

    /// The agent has beaten.
    pub(crate) fn beat(&mut self, slot: Slot, policy: &Policy, now: Mono) {
        if policy.reset == Reset::Beat {
            self.ledgers[slot].entries.push((now, Entry::Success));
        }
    }

    pub(crate) fn record(
        &mut self,
        forest: &Forest,
        slot: Slot,
        now: Mono,
        record: &Record,
    ) -> Checked {
        match &record.what {
            What::RunStarted { cause, .. } => {
                let generation = forest.plants[slot].generation;
                if std::mem::replace(&mut self.ledgers[slot].generation, generation) != generation {
                    self.clear(slot);
                }
                let ledger = &mut self.ledgers[slot];
                let pending = std::mem::take(&mut ledger.pending);
                if *cause == Cause::Restart {
                    ledger.restart(slot, now, pending)?;
                }
            }
            What::RunDied { class, ran_s, counted, .. } => {
                let ledger = &mut self.ledgers[slot];
                ledger.said = Said::Nothing;
                if is_success(&forest.plants[slot].policy, *class, ran_s.0) {
                    ledger.entries.push((now, Entry::Success));
                }
                if *counted {
                    ledger.counted_death(now);
                }
            }
            What::Escalated { .. } => self.ledgers[slot].said = Said::Failed,
            What::GroupRestarted { group, .. } => {
                let said = std::mem::replace(&mut self.ledgers[slot].said, Said::Restarts);
                let Some(grove) = forest.grove(group) else { return Ok(()) };
                if said == Said::Failed {
                    self.clear(slot);
                    self.clear_purses_below(forest, grove);
                }
                self.charge(forest, grove, now)?;
            }
            What::RestartScheduled { .. } => {
                self.total += 1;
                let (total, max) = (self.total, self.max_total);
                Invariant::Limits.check(max.is_none_or(|max| total <= max), || {
                    format!("a{slot}: restart {total} of all agents, {max:?} are allowed")
                })?;
                let ledger = &mut self.ledgers[slot];
                ledger.pending = Pending::Decided;
                let said = std::mem::take(&mut ledger.said);
                if let Some(grove) = forest.group_of(slot).filter(|_| said != Said::Restarts) {
                    self.charge(forest, grove, now)?;
                }
            }
            What::Revived => {
                self.clear(slot);
                self.clear_groups_above(forest, slot);
            }
            What::Stopped { goal } => {
                // Only a stop by name leaves what is remembered of deaths.
                if *goal != Goal::Stopped {
                    self.clear(slot);
                }
            }
            What::RunReady
            | What::WaitStarted { .. }
            | What::WaitEnded { .. }
            | What::LimitTripped { .. }
            | What::CrashedOut { .. }
            | What::Halted { .. }
            | What::StopRequested { .. }
            | What::Rested { .. }
            | What::HeartbeatMissed { .. } => {}
        }
        Ok(())
    }

    fn clear_purses_below(&mut self, forest: &Forest, above: usize) {
        for grove in 0..self.purses.len() {
            let mut parents =
                std::iter::successors(forest.parent_of(grove), |g| forest.parent_of(*g));
            if parents.any(|parent| parent == above) {
                self.purses[grove].charges.clear();
            }
        }
    }

    fn charge(&mut self, forest: &Forest, grove: usize, now: Mono) -> Checked {
        let purse = &mut self.purses[grove];
        purse.charges.push(now);
        let Some(limit) = purse.budget else { return Ok(()) };
        let count = held(limit.span, purse.charges.iter().copied(), now);
        Invariant::Limits.check(count <= limit.max, || {
            format!("{}: {count} restarts of the group under {limit:?}", forest.groves[grove].name)
        })
    }
}

impl Ledger {
    /// An automatic restart: it may fill a window and not overflow it.
    fn restart(&mut self, slot: Slot, now: Mono, pending: Pending) -> Checked {
        Invariant::Limits.check(self.barred.is_none(), || {
            format!("a{slot} is restarted after the death that reached {:?}", self.barred)
        })?;
        self.entries.push((now, Entry::Restart));
        if pending == Pending::DecidedBefore {
            return Ok(());
        }
        for (limit, from) in &self.limits {
            if limit.measure != Measure::Restarts {
                continue;
            }
            let counted = self.counted_for(limit, *from);
            let count = held(limit.span, times(counted, Entry::Restart), now);
            Invariant::Limits.check(count <= limit.max, || {
                format!("a{slot}: {count} restarts under {limit:?}")
            })?;
        }
        Ok(())
    }

    /// The entries that a limit looks at, of those from `from` on.
    fn counted_for(&self, limit: &Limit, from: usize) -> &[(Mono, Entry)] {
        let counted = self.entries.get(from..).unwrap_or_default();
        match limit.span {
            Span::Consecutive => {
                let success = counted.iter().rposition(|(_, entry)| *entry == Entry::Success);
                &counted[success.unwrap_or(0)..]
            }
            Span::Rolling(_) | Span::Tumbling(_) | Span::Lifetime => counted,
        }
    }

    fn counted_death(&mut self, now: Mono) {
        self.entries.push((now, Entry::CountedDeath));
        for (limit, from) in &self.limits {
            let counted = self.counted_for(limit, *from);
            if limit.measure == Measure::Deaths
                && held(limit.span, times(counted, Entry::CountedDeath), now) >= limit.max
            {
                self.barred = Some(*limit);
            }
        }
    }
}

fn times(entries: &[(Mono, Entry)], wanted: Entry) -> impl Iterator<Item = Mono> {
    entries.iter().filter(move |(_, entry)| *entry == wanted).map(|(at, _)| *at)
}

/// How many of these moments a span holds at `now`.
fn held(span: Span, times: impl Iterator<Item = Mono>, now: Mono) -> u32 {
    let mut count = 0;
    let mut window = None;
    for at in times {
        match span {
            Span::Rolling(within) => count += u32::from(now.since(at) < within),
            Span::Tumbling(within) => match window {
                Some(first) if at.since(first) < within => count += 1,
                Some(_) | None => (window, count) = (Some(at), 1),
            },
            Span::Consecutive | Span::Lifetime => count += 1,
        }
    }
    match (span, window) {
        (Span::Tumbling(within), Some(first)) if now.since(first) >= within => 0,
        (Span::Rolling(_) | Span::Tumbling(_) | Span::Consecutive | Span::Lifetime, _) => count,
    }
}

/// Whether an end shows that the agent works.
fn is_success(policy: &Policy, class: Class, ran: Duration) -> bool {
    let stable = match policy.reset {
        Reset::Stable | Reset::Beat => ran >= policy.stable_after,
        Reset::Success | Reset::Window => false,
    };
    let short_done = policy.short_done == ShortDone::Death && ran < policy.stable_after;
    class != Class::Broke && (stable || (class == Class::Done && !short_done))
}
