//! Starting: who may start now, who has to wait, and who is told when that changes.
//!
//! Two things hold an agent back: the agents it names in `after`, which have to be ready, and, while
//! its group is started or restarted in order, the members before it. Restarts of its own are not
//! ordered: no agent's crash delays another agent's restart.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use super::Supervisor;
use crate::agent::{Launch, Phase, Run, Trial, Why};
use crate::class::Class;
use crate::input::{Effect, Goal};
use crate::name::{AgentId, RunId};
use crate::policy::{Ready, Trigger};
use crate::record::{Cause, WaitReason, What};
use crate::time::Mono;
use crate::verdict::Until;

impl Supervisor {
    /// The daemon or the machine came up: starts what should be up and has not begun, and whoever lived
    /// when nobody was there any more, whatever had started it.
    pub(super) fn boot(&mut self) {
        let mut cut_short = BTreeSet::new();
        if mem::take(&mut self.rebooted) {
            cut_short = self.ids().filter(|id| self.wake_after_reboot(*id)).collect();
        }
        let is_due = |id: &AgentId| {
            let agent = &self.agents[id.index()];
            agent.life.goal == Goal::Up
                && matches!(agent.life.phase, Phase::Idle | Phase::Stopped { failed: false })
                && (agent.policy.trigger == Trigger::Boot || cut_short.contains(id))
        };
        let due: Vec<AgentId> = self.in_start_order().filter(is_due).collect();
        self.launch_in_order(&due, Launch { cause: Cause::Up, fresh: false });
    }

    /// Starts many: in the order of their groups, and with the pauses that their policies want.
    pub(super) fn launch_in_order(&mut self, ids: &[AgentId], then: Launch) {
        for id in ids {
            self.join_sequence(*id);
        }
        let mut gaps = Duration::ZERO;
        for id in ids {
            let gap = self.agents[id.index()].policy.start_gap;
            let not_before = self.now.mono + if gap.is_zero() { gap } else { gaps };
            gaps = gaps.saturating_add(gap);
            self.launch_at(*id, then, not_before);
        }
    }

    /// Makes the agent part of an ordered start of its group.
    pub(super) fn join_sequence(&mut self, id: AgentId) {
        let agent = &mut self.agents[id.index()];
        agent.life.sequenced = agent.place.is_some();
        self.touch(id);
    }

    /// Starts the agent now, or holds it until nothing keeps it back any more.
    pub(super) fn launch(&mut self, id: AgentId, then: Launch) {
        self.launch_at(id, then, Mono::ZERO);
    }

    pub(super) fn launch_at(&mut self, id: AgentId, then: Launch, not_before: Mono) {
        let agent = &self.agents[id.index()];
        if agent.life.goal != Goal::Up || self.closing {
            self.settle(id);
            return;
        }
        if agent.life.broke {
            self.halt(id, Class::Broke);
            return;
        }
        if let Some(until) = self.spent_until(id) {
            self.hold_until_allowed(id, until, then);
            return;
        }
        if let Some((reason, until)) = self.parked(id, then.cause) {
            self.hold(id, reason, until, then);
            return;
        }
        let early = not_before > self.now.mono;
        if early || self.is_held_back(id) {
            let until = if early { Until::Mono(not_before) } else { Until::Told };
            self.hold(id, WaitReason::Dependency, until, then);
            return;
        }
        if let Some(reason) = self.life(id).phase.held_for() {
            self.tell(id, What::WaitEnded { reason });
        }
        self.spawn(id, then);
    }

    /// Holds the agent until it is its turn. Nothing is told where nothing changes.
    pub(super) fn hold(&mut self, id: AgentId, reason: WaitReason, until: Until, then: Launch) {
        if self.life(id).phase == (Phase::Waiting { reason, until, then }) {
            return;
        }
        if let Some(before) = self.life(id).phase.held_for().filter(|before| *before != reason) {
            self.tell(id, What::WaitEnded { reason: before });
        }
        self.wait(id, reason, until, then);
    }

    fn spawn(&mut self, id: AgentId, then: Launch) {
        let now = self.now.mono;
        let trial = if self.begins_trial(id) { Trial::Open } else { Trial::None };
        let agent = &mut self.agents[id.index()];
        let life = &mut agent.life;
        if life.generation != agent.generation {
            life.generation = agent.generation;
            life.counters.clear();
        }
        match then.cause {
            Cause::Restart => life.counters.note_restart(&agent.policy, now),
            Cause::Up | Cause::Revive => life.counters.restarts = 0,
            Cause::Group | Cause::Wait | Cause::Operator | Cause::Trigger | Cause::Fund => {}
        }
        life.last_run = RunId(life.last_run.0 + 1);
        let (run, restarts) = (life.last_run, life.counters.restarts);
        let Launch { cause, fresh } = then;
        self.tell(id, What::RunStarted { cause, fresh, restarts });
        self.set_phase(id, Phase::Starting(Run { trial, ..Run::new(run, fresh, now) }));
        self.order(Effect::Spawn { agent: id, run, fresh });
    }

    /// The host says that the run exists.
    pub(super) fn spawned(&mut self, id: AgentId, run: RunId) {
        if !self.is_current(id, run) {
            return;
        }
        let agent = &mut self.agents[id.index()];
        if let Some(run) = agent.life.phase.run_mut() {
            run.spawned = true;
        }
        let at_spawn = agent.policy.ready == Ready::AtSpawn;
        self.touch(id);
        if at_spawn {
            self.become_ready(id);
        }
    }

    /// The host says that the run is ready.
    pub(super) fn readied(&mut self, id: AgentId, run: RunId) {
        if self.is_current(id, run) {
            self.become_ready(id);
        }
    }

    fn become_ready(&mut self, id: AgentId) {
        if let Phase::Starting(run) = &self.life(id).phase {
            let run = Run { spawned: true, ..run.clone() };
            self.tell(id, What::RunReady);
            self.set_phase(id, Phase::Running(run));
        }
    }

    /// The agent's trigger came. It is ignored unless the agent is at rest and should be up.
    pub(super) fn triggered(&mut self, id: AgentId) {
        let Some(agent) = self.agents.get(id.index()) else {
            return;
        };
        let at_rest = match agent.life.phase {
            Phase::Idle | Phase::Done | Phase::Stopped { .. } => true,
            Phase::Waiting { .. }
            | Phase::Backoff { .. }
            | Phase::Starting(_)
            | Phase::Running(_)
            | Phase::Stopping { .. }
            | Phase::Halted(_)
            | Phase::CrashedOut(_) => false,
        };
        if at_rest && agent.life.goal == Goal::Up && agent.declared {
            self.launch(id, Launch { cause: Cause::Trigger, fresh: false });
        }
    }

    /// What the agent waited for has come. Its turn among others does not come that way.
    pub(super) fn wait_over(&mut self, id: AgentId) {
        let phase = self.agents.get(id.index()).map(|agent| &agent.life.phase);
        if let Some(Phase::Waiting { reason: WaitReason::Cause(_), then, .. }) = phase {
            self.launch(id, *then);
        }
    }

    /// The agent's balance is known.
    pub(super) fn balance(&mut self, id: AgentId, empty: bool) {
        let Some(agent) = self.agents.get_mut(id.index()) else {
            return;
        };
        if agent.life.broke == empty {
            return;
        }
        agent.life.broke = empty;
        let funded = !empty && agent.life.phase == Phase::Halted(Class::Broke);
        self.touch(id);
        if funded && self.life(id).goal == Goal::Up {
            self.launch(id, Launch { cause: Cause::Fund, fresh: false });
        }
    }

    fn is_held_back(&self, id: AgentId) -> bool {
        let agent = &self.agents[id.index()];
        let not_ready = |other: &AgentId| {
            let other = &self.agents[other.index()];
            other.declared && !other.life.phase.is_ready()
        };
        if agent.after.iter().any(not_ready) {
            return true;
        }
        let Some(place) = agent.place.filter(|_| agent.life.sequenced) else {
            return false;
        };
        let order = &self.groups[place.top.index()].order;
        order.iter().enumerate().any(|(at, other)| {
            let other = &self.agents[other.index()].life;
            let ending = matches!(
                other.phase,
                Phase::Stopping { why: Why::Group { .. } | Why::Restart { ordered: true, .. }, .. }
            );
            ending || (at < place.at && other.sequenced)
        })
    }

    /// Something changed with an agent: whoever waited for that goes on.
    pub(super) fn tell_those_who_wait_for(&mut self, id: AgentId) {
        self.continue_stops_around(id);
        self.try_again(id);
        for at in 0..self.agents[id.index()].dependents.len() {
            let dependent = self.agents[id.index()].dependents[at];
            self.try_again(dependent);
        }
        let Some(place) = self.agents[id.index()].place else {
            return;
        };
        for at in 0..self.groups[place.top.index()].order.len() {
            let member = self.groups[place.top.index()].order[at];
            if self.life(member).sequenced && !self.try_again(member) {
                return;
            }
        }
    }

    /// Launches an agent that waits for its turn. Says whether those after it may be tried.
    pub(super) fn try_again(&mut self, id: AgentId) -> bool {
        let Phase::Waiting { reason: WaitReason::Dependency, until: Until::Told, then } =
            self.life(id).phase
        else {
            return !self.life(id).sequenced;
        };
        self.launch(id, then);
        !self.life(id).sequenced
    }
}
