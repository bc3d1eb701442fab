//! What people ask for: up, down, start, stop, restart, revive.
//!
//! None of it counts towards a limit. The goal is stored before anything is done about it, so that
//! a stop survives a crash of ours. Of many agents, those that can do what was asked do it; the
//! first that cannot is named in the refusal.

use alloc::vec::Vec;
use core::fmt;

use super::Supervisor;
use super::sight::State;
use crate::agent::{Launch, Phase, Rung, Why};
use crate::class::Class;
use crate::input::{Effect, Goal, Scope};
use crate::name::{AgentId, Name};
use crate::policy::Trigger;
use crate::record::{By, Cause, Rest, What};

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such agent or group.
    Unknown,
    /// The agent is not in a state for that.
    NotInState {
        /// Which agent.
        agent: Name,
        /// The state it is in.
        state: State,
        /// What would help.
        remedy: Remedy,
    },
}

/// What would help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// To revive it.
    Revive,
    /// To give it money.
    Fund,
    /// To start it: nothing keeps it down but that nobody has.
    Start,
    /// Nothing is needed.
    Nothing,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Unknown => f.write_str("no such agent or group"),
            Refusal::NotInState { agent, state, remedy } => {
                let preposition = if *state == State::Backoff { "in " } else { "" };
                write!(f, "{agent} is {preposition}{state}")?;
                match remedy {
                    Remedy::Revive => write!(f, ": `defib revive {agent}` puts it back"),
                    Remedy::Fund => write!(f, ": `defib fund {agent}` gives it money"),
                    Remedy::Start => write!(f, ": `defib start {agent}` starts it"),
                    Remedy::Nothing => f.write_str(": there is nothing to do"),
                }
            }
        }
    }
}

impl core::error::Error for Refusal {}

impl Supervisor {
    /// Brings a project up: what was stopped by name, crashed out or halted stays, unless the
    /// project was down.
    pub(super) fn up(&mut self, scope: &Scope) -> Result<(), Refusal> {
        let mut due = Vec::new();
        for id in self.targets(scope)? {
            if self.life(id).goal == Goal::Down {
                self.want(id, Goal::Up);
            }
            let agent = &self.agents[id.index()];
            if agent.life.goal != Goal::Up {
                continue;
            }
            match (&agent.life.phase, agent.policy.trigger) {
                (Phase::Idle | Phase::Done | Phase::Stopped { .. }, Trigger::Boot) => due.push(id),
                (Phase::Stopped { .. }, Trigger::Manual | Trigger::Cron) => {
                    self.rest(id, Rest::Idle);
                }
                (Phase::Stopping { why: Why::Asked, .. }, Trigger::Boot) => {
                    self.begin_stop(id, Why::Restart { fresh: false, ordered: true });
                }
                (
                    Phase::Idle
                    | Phase::Waiting { .. }
                    | Phase::Backoff { .. }
                    | Phase::Starting(_)
                    | Phase::Running(_)
                    | Phase::Stopping { .. }
                    | Phase::Done
                    | Phase::Halted(_)
                    | Phase::CrashedOut(_),
                    _,
                ) => {}
            }
        }
        self.launch_in_order(&due, Launch { cause: Cause::Up, fresh: false });
        Ok(())
    }

    /// Takes a project down, in reverse order, and forgets what it remembered of deaths.
    pub(super) fn down(&mut self, scope: &Scope) -> Result<(), Refusal> {
        let ids = self.targets(scope)?;
        for id in &ids {
            self.want(*id, Goal::Down);
            self.empty_budgets_above(*id);
            self.let_go(*id);
        }
        self.begin_ordered_stop(&ids, Why::Asked);
        Ok(())
    }

    pub(super) fn start(&mut self, scope: &Scope) -> Result<(), Refusal> {
        let mut refused = None;
        let mut due = Vec::new();
        for id in self.targets(scope)? {
            match self.life(id).phase {
                Phase::Halted(_) | Phase::CrashedOut(_) if !self.is_funded_again(id) => {
                    refused.get_or_insert(self.refusal(id));
                }
                Phase::Starting(_) | Phase::Running(_) => self.want(id, Goal::Up),
                Phase::Stopping { why, .. } => {
                    self.want(id, Goal::Up);
                    if why == Why::Asked {
                        self.begin_stop(id, Why::Restart { fresh: false, ordered: false });
                    }
                }
                Phase::Idle
                | Phase::Waiting { .. }
                | Phase::Backoff { .. }
                | Phase::Stopped { .. }
                | Phase::Done
                | Phase::Halted(_)
                | Phase::CrashedOut(_) => {
                    self.want(id, Goal::Up);
                    due.push(id);
                }
            }
        }
        self.start_now(scope, &due, false);
        refused.map_or(Ok(()), Err)
    }

    pub(super) fn stop(&mut self, scope: &Scope, kill: bool) -> Result<(), Refusal> {
        let ids = self.targets(scope)?;
        let mut queued = Vec::new();
        for id in ids.iter().rev().copied() {
            self.want(id, Goal::Stopped);
            match self.life(id).phase {
                Phase::Starting(_) | Phase::Running(_) => {
                    self.queue_stop(id, Why::Asked, kill);
                    queued.push(id);
                }
                Phase::Stopping { why, rung, .. } => {
                    // Who stops something twice means it.
                    let insists = why == Why::Asked && matches!(rung, Rung::Asked { .. });
                    self.queue_stop(id, Why::Asked, kill || insists);
                    if kill || insists {
                        self.kill(id);
                    }
                }
                Phase::Idle
                | Phase::Waiting { .. }
                | Phase::Backoff { .. }
                | Phase::Stopped { .. }
                | Phase::Done => {
                    self.tell(id, What::StopRequested { by: By::Operator, kill });
                    self.let_go(id);
                }
                Phase::Halted(_) | Phase::CrashedOut(_) => {
                    self.tell(id, What::StopRequested { by: By::Operator, kill });
                }
            }
        }
        for id in queued {
            if kill {
                self.kill(id);
            } else if self.may_stop(id) || matches!(scope, Scope::Agent(_)) {
                self.ask(id);
            }
        }
        Ok(())
    }

    pub(super) fn restart(&mut self, scope: &Scope, fresh: bool) -> Result<(), Refusal> {
        let mut refused = None;
        let (mut due, mut alive) = (Vec::new(), Vec::new());
        for id in self.targets(scope)? {
            match self.life(id).phase {
                Phase::Halted(_) | Phase::CrashedOut(_) if !self.is_funded_again(id) => {
                    refused.get_or_insert(self.refusal(id));
                    continue;
                }
                Phase::Starting(_) | Phase::Running(_) | Phase::Stopping { .. } => alive.push(id),
                Phase::Idle
                | Phase::Waiting { .. }
                | Phase::Backoff { .. }
                | Phase::Stopped { .. }
                | Phase::Done
                | Phase::Halted(_)
                | Phase::CrashedOut(_) => due.push(id),
            }
            self.want(id, Goal::Up);
        }
        match scope {
            Scope::Agent(id) => self.begin_stop(*id, Why::Restart { fresh, ordered: false }),
            Scope::Group(_) | Scope::Agents(_) | Scope::Project(_) | Scope::All => {
                self.begin_ordered_stop(&alive, Why::Restart { fresh, ordered: true });
            }
        }
        self.start_now(scope, &due, fresh);
        refused.map_or(Ok(()), Err)
    }

    /// Puts agents back that were crashed out or halted, with empty windows.
    pub(super) fn revive(&mut self, scope: &Scope) -> Result<(), Refusal> {
        let ids = self.targets(scope)?;
        let (fallen, others): (Vec<AgentId>, Vec<AgentId>) = ids.iter().partition(|id| {
            matches!(self.life(**id).phase, Phase::Halted(_) | Phase::CrashedOut(_))
        });
        let (broke, fallen): (Vec<AgentId>, Vec<AgentId>) =
            fallen.iter().partition(|id| self.life(**id).broke);
        for id in &fallen {
            self.put_back(*id);
        }
        self.launch_in_order(&fallen, Launch { cause: Cause::Revive, fresh: false });
        match (broke.first(), others.first()) {
            (Some(id), _) => Err(self.refusal(*id)),
            (None, Some(id)) if fallen.is_empty() => Err(self.refusal(*id)),
            (None, _) => Ok(()),
        }
    }

    /// Clears what keeps a fallen agent down: its own counts, and the budgets of its groups.
    pub(super) fn put_back(&mut self, id: AgentId) {
        self.want(id, Goal::Up);
        self.agents[id.index()].life.counters.clear();
        self.empty_budgets_above(id);
        self.tell(id, What::Revived);
        self.set_phase(id, Phase::Stopped { failed: false });
    }

    fn empty_budgets_above(&mut self, id: AgentId) {
        let mut group = self.agents[id.index()].place.map(|place| place.group);
        while let Some(at) = group {
            let above = &mut self.groups[at.index()];
            above.spent.clear();
            group = above.parent;
        }
    }

    /// It was halted for want of money, and has some.
    fn is_funded_again(&self, id: AgentId) -> bool {
        let life = self.life(id);
        life.phase == Phase::Halted(Class::Broke) && !life.broke
    }

    /// Ends everything in order; goals stay as they are, so that all comes back at the next start.
    pub(super) fn close(&mut self) {
        self.closing = true;
        let undeclared = self.ids().filter(|id| !self.agents[id.index()].declared);
        let ids: Vec<AgentId> = self.in_start_order().chain(undeclared).collect();
        for id in &ids {
            match self.life(*id).phase {
                Phase::Waiting { .. } | Phase::Backoff { .. } => self.settle(*id),
                Phase::Idle
                | Phase::Starting(_)
                | Phase::Running(_)
                | Phase::Stopping { .. }
                | Phase::Stopped { .. }
                | Phase::Done
                | Phase::Halted(_)
                | Phase::CrashedOut(_) => {}
            }
        }
        self.begin_ordered_stop(&ids, Why::Asked);
    }

    fn start_now(&mut self, scope: &Scope, ids: &[AgentId], fresh: bool) {
        let then = Launch { cause: Cause::Operator, fresh };
        match scope {
            Scope::Agent(_) => {
                for id in ids {
                    self.launch(*id, then);
                }
            }
            Scope::Group(_) | Scope::Agents(_) | Scope::Project(_) | Scope::All => {
                self.launch_in_order(ids, then);
            }
        }
    }

    /// Stores a goal, before anything is done about it.
    fn want(&mut self, id: AgentId, goal: Goal) {
        let life = &mut self.agents[id.index()].life;
        if life.goal != goal {
            life.goal = goal;
            self.touch(id);
            self.order(Effect::StoreGoal { agent: id, goal });
        }
    }

    /// Puts an agent that has no run to rest.
    fn let_go(&mut self, id: AgentId) {
        let phase = &self.life(id).phase;
        if phase.run().is_none() && *phase != (Phase::Stopped { failed: false }) {
            self.settle(id);
        }
    }

    fn refusal(&self, id: AgentId) -> Refusal {
        let agent = &self.agents[id.index()];
        let remedy = match agent.life.phase {
            Phase::Halted(_) | Phase::CrashedOut(_) if agent.life.broke => Remedy::Fund,
            Phase::Halted(_) | Phase::CrashedOut(_) => Remedy::Revive,
            Phase::Idle | Phase::Stopped { .. } | Phase::Done => Remedy::Start,
            Phase::Waiting { .. }
            | Phase::Backoff { .. }
            | Phase::Starting(_)
            | Phase::Running(_)
            | Phase::Stopping { .. } => Remedy::Nothing,
        };
        Refusal::NotInState { agent: agent.name.clone(), state: self.sight(id).state, remedy }
    }

    /// The agents that are meant, in the order of their start.
    fn targets(&self, scope: &Scope) -> Result<Vec<AgentId>, Refusal> {
        let declared = |id: &AgentId| self.agents.get(id.index()).is_some_and(|a| a.declared);
        match scope {
            Scope::Agent(id) if declared(id) => Ok(Vec::from([*id])),
            Scope::Agent(_) => Err(Refusal::Unknown),
            Scope::Group(id) => {
                let group = self.groups.get(id.index()).ok_or(Refusal::Unknown)?;
                Ok(self.groups[group.top.index()].order[group.range.clone()].to_vec())
            }
            Scope::Agents(ids) => {
                let ours = |id: &AgentId| ids.contains(id);
                Ok(self.in_start_order().filter(ours).collect())
            }
            Scope::Project(name) => {
                let ours = |id: &AgentId| self.agents[id.index()].project == *name;
                Ok(self.in_start_order().filter(ours).collect())
            }
            Scope::All => Ok(self.in_start_order().collect()),
        }
    }
}
