//! Groups: an ordered set of agents and groups with a strategy and a budget.
//!
//! A tree hangs from each top group. Its agents stand in one order, that of their start, and every
//! group below is a stretch of it. So a strategy is a stretch too: what it restarts is a range.

use alloc::vec::Vec;
use core::iter::successors;
use core::ops::Range;

use super::Supervisor;
use crate::agent::{Launch, Phase, Why};
use crate::limit::{Gauge, Limit, Tally};
use crate::name::{AgentId, GroupId, Name};
use crate::record::{Cause, Trip, WaitReason, What};
use crate::time::{Mono, millis};
use crate::topology::Strategy;
use crate::verdict::{Restart, Until};

/// A group as the supervisor keeps it.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) name: Name,
    pub(crate) parent: Option<GroupId>,
    pub(crate) top: GroupId,
    pub(crate) strategy: Strategy,
    pub(crate) budget: Option<Limit>,
    pub(crate) spent: Tally,
    /// A top group: all agents of the tree, in the order of their start.
    pub(crate) order: Vec<AgentId>,
    /// Its own agents, as a stretch of its top group's order.
    pub(crate) range: Range<usize>,
}

impl Group {
    fn gauge(&self, now: Mono) -> Option<Gauge> {
        let limit = self.budget?;
        Some(Gauge { limit, count: self.spent.count(&limit, now) })
    }

    /// The budget, where one more restart would exceed it.
    fn overdrawn(&self, now: Mono) -> Option<Gauge> {
        self.gauge(now).filter(|gauge| gauge.left() == 0)
    }

    fn charge(&mut self, now: Mono) {
        if let Some(limit) = self.budget {
            self.spent.add(&limit, now);
        }
    }
}

impl Supervisor {
    /// The agent's group, where its budget allows no restart any more.
    pub(super) fn overdrawn_group_of(&self, id: AgentId) -> Option<(GroupId, Gauge)> {
        let group = self.agents[id.index()].place?.group;
        let gauge = self.groups[group.index()].overdrawn(self.now.mono)?;
        Some((group, gauge))
    }

    /// The agent is restarted after its delay, by its group where it has one. That costs the group
    /// one restart, however many agents it concerns.
    pub(super) fn restart_after(&mut self, id: AgentId, restart: Restart) {
        self.total_restarts = self.total_restarts.saturating_add(1);
        let agent = &self.agents[id.index()];
        let Some(place) = agent.place else {
            self.back_off(id, restart, Cause::Restart);
            return;
        };
        let own = agent.strategy;
        let group = &mut self.groups[place.group.index()];
        group.charge(self.now.mono);
        let strategy = own.unwrap_or(group.strategy);
        let range = strategy.reach(place.at..place.at + 1, &group.range);
        if range.len() == 1 {
            self.back_off(id, restart, Cause::Restart);
        } else {
            self.restart_range(place.group, strategy, range, id, restart, Cause::Restart);
        }
    }

    /// The agent's own limit passes its failure up.
    pub(super) fn escalate(&mut self, id: AgentId, gauge: Gauge, restart: Restart) {
        if let Some(place) = self.agents[id.index()].place {
            self.fail(place.group, id, Trip::of(&gauge.limit), restart);
        } else {
            self.tell(id, What::Escalated { group: None, to: None });
            self.crash_out(id, Trip::of(&gauge.limit));
        }
    }

    /// The group would have to restart the agent and may not.
    pub(super) fn overdraw(&mut self, group: GroupId, gauge: Gauge, id: AgentId, restart: Restart) {
        let name = self.groups[group.index()].name.clone();
        self.tell_trip(id, Some(name), gauge);
        self.fail(group, id, Trip::Group, restart);
    }

    /// The group has failed: its parent deals with it as with a member that died; at the root it
    /// stays down.
    fn fail(&mut self, group: GroupId, id: AgentId, trip: Trip, restart: Restart) {
        let now = self.now.mono;
        let failed = &self.groups[group.index()];
        let (name, parent, range) = (failed.name.clone(), failed.parent, failed.range.clone());
        let to = parent.map(|parent| self.groups[parent.index()].name.clone());
        self.tell(id, What::Escalated { group: Some(name), to });
        let Some(parent) = parent else {
            self.take_down(group, id, trip);
            return;
        };
        if let Some(gauge) = self.groups[parent.index()].overdrawn(now) {
            self.overdraw(parent, gauge, id, restart);
            return;
        }
        self.total_restarts = self.total_restarts.saturating_add(1);
        self.groups[parent.index()].charge(now);
        let strategy = self.groups[parent.index()].strategy;
        let range = strategy.reach(range, &self.groups[parent.index()].range);
        self.empty_budgets_below(parent, &range);
        self.agents[id.index()].life.counters.clear_windows();
        self.restart_range(parent, strategy, range, id, restart, Cause::Group);
    }

    /// A parent's restart is a fresh start for the groups below it that it restarts.
    fn empty_budgets_below(&mut self, parent: GroupId, range: &Range<usize>) {
        for at in 0..self.groups.len() {
            let group = &self.groups[at];
            let inside = range.start <= group.range.start && group.range.end <= range.end;
            let above = |id: &GroupId| self.groups[id.index()].parent;
            if inside && successors(group.parent, above).any(|id| id == parent) {
                self.groups[at].spent.clear();
            }
        }
    }

    /// Ends every agent in a stretch and starts them again in order, after the dead one's delay.
    fn restart_range(
        &mut self,
        group: GroupId,
        strategy: Strategy,
        range: Range<usize>,
        id: AgentId,
        restart: Restart,
        cause: Cause,
    ) {
        let resume_at = self.now.mono + restart.delay;
        let top = self.groups[group.index()].top;
        let others: Vec<AgentId> = self.groups[top.index()].order[range]
            .iter()
            .copied()
            .filter(|other| *other != id && self.takes_part(*other))
            .collect();
        let told = What::GroupRestarted {
            group: self.groups[group.index()].name.clone(),
            strategy,
            delay_ms: millis(restart.delay),
            members: u32::try_from(others.len() + 1).unwrap_or(u32::MAX),
            gauge: self.groups[group.index()].gauge(self.now.mono),
        };
        self.tell(id, told);
        self.join_sequence(id);
        self.back_off(id, restart, cause);
        for other in &others {
            self.hold_for_group(*other, resume_at);
        }
        self.begin_ordered_stop(&others, Why::Group { resume_at, fresh: false });
    }

    /// Whether a restart of its group concerns the agent: it lives, or is about to. What rests, was
    /// stopped or needs a person stays as it is, and so does what waits for the world outside.
    fn takes_part(&self, id: AgentId) -> bool {
        match &self.life(id).phase {
            // A run that has finished its work rests soon: to start it again would do the work twice.
            Phase::Starting(run) | Phase::Running(run) => run.finished.is_none(),
            Phase::Backoff { .. } => true,
            Phase::Waiting { reason, .. } => *reason == WaitReason::Dependency,
            Phase::Stopping { why, .. } => match why {
                Why::Group { .. } | Why::Unresponsive | Why::Restart { .. } => true,
                Why::Asked
                | Why::Removed
                | Why::GroupFailed
                | Why::Overspent
                | Why::SpentUp
                | Why::Wished
                | Why::Lingered => false,
            },
            Phase::Idle
            | Phase::Stopped { .. }
            | Phase::Done
            | Phase::Halted(_)
            | Phase::CrashedOut(_) => false,
        }
    }

    /// An agent that has no run waits for its turn in the group's restart.
    fn hold_for_group(&mut self, id: AgentId, resume_at: Mono) {
        let then = match self.life(id).phase {
            Phase::Waiting { then, .. } => then,
            Phase::Backoff { then, .. } => Launch { cause: Cause::Group, ..then },
            Phase::Idle
            | Phase::Starting(_)
            | Phase::Running(_)
            | Phase::Stopping { .. }
            | Phase::Stopped { .. }
            | Phase::Done
            | Phase::Halted(_)
            | Phase::CrashedOut(_) => return,
        };
        self.join_sequence(id);
        let until = if resume_at > self.now.mono { Until::Mono(resume_at) } else { Until::Told };
        self.hold(id, WaitReason::Dependency, until, then);
    }

    /// The group stays down: its agents end in reverse order and are crashed out.
    fn take_down(&mut self, group: GroupId, id: AgentId, trip: Trip) {
        self.crash_out(id, trip);
        let Group { top, ref range, .. } = self.groups[group.index()];
        let others: Vec<AgentId> = self.groups[top.index()].order[range.clone()]
            .iter()
            .copied()
            .filter(|other| *other != id)
            .filter(|other| self.takes_part(*other) || self.life(*other).phase.held_for().is_some())
            .collect();
        for other in others.iter().rev() {
            if self.life(*other).phase.run().is_none() {
                self.crash_out(*other, Trip::Group);
            }
        }
        self.begin_ordered_stop(&others, Why::GroupFailed);
    }
}

impl Strategy {
    /// What is restarted for a member that stands at `member` in a group that spans `group`.
    fn reach(self, member: Range<usize>, group: &Range<usize>) -> Range<usize> {
        match self {
            Strategy::OneForOne => member,
            Strategy::OneForAll => group.clone(),
            Strategy::RestForOne => member.start..group.end,
        }
    }
}
