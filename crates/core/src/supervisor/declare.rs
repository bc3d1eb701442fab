//! What is declared, and how a change of it reaches agents that live.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem;

use super::{Group, Supervisor};
use crate::agent::{Agent, Launch, Life, Phase, Place, Why};
use crate::input::{Effect, Goal};
use crate::limit::{Limit, Tally};
use crate::name::{AgentId, GroupId, Name};
use crate::policy::Policy;
use crate::record::{Cause, Rest};
use crate::topology::{AgentSpec, GroupSpec, Topology};

impl Supervisor {
    /// Which agent has this name.
    pub fn agent(&self, name: &Name) -> Option<AgentId> {
        let id = *self.by_name.get(name)?;
        self.agents[id.index()].declared.then_some(id)
    }

    /// Which group has this name.
    pub fn group(&self, name: &Name) -> Option<GroupId> {
        self.groups_by_name.get(name).copied()
    }

    /// Which agent has this name, or had it before it was removed.
    pub fn known(&self, name: &Name) -> Option<AgentId> {
        self.by_name.get(name).copied()
    }

    /// The name of an agent.
    ///
    /// # Panics
    /// If the id is of another supervisor.
    pub fn name(&self, id: AgentId) -> &Name {
        &self.agents[id.index()].name
    }

    /// The project of an agent.
    ///
    /// # Panics
    /// If the id is of another supervisor.
    pub fn project(&self, id: AgentId) -> &Name {
        &self.agents[id.index()].project
    }

    /// What is wanted of an agent.
    ///
    /// # Panics
    /// If the id is of another supervisor.
    pub fn goal(&self, id: AgentId) -> Goal {
        self.agents[id.index()].life.goal
    }

    /// The policy of an agent.
    ///
    /// # Panics
    /// If the id is of another supervisor.
    pub fn policy(&self, id: AgentId) -> &Policy {
        &self.agents[id.index()].policy
    }

    /// The policy of an agent, to be kept.
    ///
    /// # Panics
    /// If the id is of another supervisor.
    pub fn shared_policy(&self, id: AgentId) -> alloc::sync::Arc<Policy> {
        self.agents[id.index()].policy.clone()
    }

    /// The group that an agent is in, if it is in one.
    ///
    /// # Panics
    /// If the id is of another supervisor.
    pub fn group_of(&self, id: AgentId) -> Option<&Name> {
        let place = self.agents[id.index()].place?;
        Some(&self.groups[place.group.index()].name)
    }

    /// Every declared agent, in the order of declaration.
    pub fn declared(&self) -> impl Iterator<Item = (AgentId, &Name)> {
        self.listed.iter().map(|id| (*id, &self.agents[id.index()].name))
    }

    /// The names of every agent there ever was.
    pub fn known_names(&self) -> Vec<Name> {
        self.by_name.keys().cloned().collect()
    }

    /// The agents of a group and of the groups in it, in the order of their start.
    ///
    /// # Panics
    /// If the id is of another supervisor.
    pub fn members(&self, group: GroupId) -> impl Iterator<Item = AgentId> {
        let Group { top, range, .. } = &self.groups[group.index()];
        self.groups[top.index()].order[range.clone()].iter().copied()
    }

    /// What changes about an agent, for its successor's [`Snapshot`](super::Snapshot).
    ///
    /// # Panics
    /// If the id is of another supervisor.
    pub fn life(&self, id: AgentId) -> &Life {
        &self.agents[id.index()].life
    }

    /// Every agent there ever was.
    pub(super) fn ids(&self) -> impl DoubleEndedIterator<Item = AgentId> + use<> {
        // There are never more agents than fit: their number was a u32 when each was added.
        (0..u32::try_from(self.agents.len()).unwrap_or(u32::MAX)).map(AgentId)
    }

    /// Every declared agent, those of a group where its first member stands and in the group's order.
    pub(super) fn in_start_order(&self) -> impl Iterator<Item = AgentId> {
        let mut seen = BTreeSet::new();
        self.listed.iter().flat_map(move |id| match self.agents[id.index()].place {
            None => Vec::from([*id]),
            Some(place) if seen.insert(place.top) => self.groups[place.top.index()].order.clone(),
            Some(_) => Vec::new(),
        })
    }

    /// Takes what is declared from now on.
    pub(super) fn apply(&mut self, topology: Topology) {
        let Topology { agents, groups, max_total_restarts } = topology;
        self.max_total_restarts = max_total_restarts;
        self.edition += 1;
        let renewed: Vec<AgentId> = agents.iter().filter_map(|spec| self.declare(spec)).collect();
        let edition = self.edition;
        let removed: Vec<AgentId> = self
            .ids()
            .filter(|id| {
                let agent = &mut self.agents[id.index()];
                agent.edition != edition && mem::replace(&mut agent.declared, false)
            })
            .collect();
        self.list(&agents);
        self.link(&agents);
        self.plant(&groups);
        for id in removed {
            self.remove(id);
        }
        for id in renewed {
            self.renew(id);
        }
        // Whoever waited for something that is no longer there goes on.
        self.changed.extend(self.ids());
    }

    /// Adds an agent or changes what is declared of it. Gives it back if it lives on under another
    /// command or environment.
    fn declare(&mut self, spec: &AgentSpec) -> Option<AgentId> {
        let Some(id) = self.by_name.get(&spec.name).copied() else {
            self.add(spec, Life::new(spec.generation), true);
            return None;
        };
        let agent = &mut self.agents[id.index()];
        if mem::replace(&mut agent.edition, self.edition) == self.edition {
            return None;
        }
        agent.project = spec.project.clone();
        agent.strategy = spec.strategy;
        agent.account.clone_from(&spec.account);
        agent.life.counters.fit(&agent.policy.limits, &spec.policy.limits);
        agent.policy = spec.policy.clone();
        let renewed = mem::replace(&mut agent.generation, spec.generation) != spec.generation;
        let was_declared = mem::replace(&mut agent.declared, true);
        self.touch(id);
        if !was_declared {
            self.welcome_back(id);
        }
        (renewed && was_declared).then_some(id)
    }

    /// Adds an agent that nobody has heard of.
    pub(super) fn add(&mut self, spec: &AgentSpec, mut life: Life, declared: bool) {
        // More agents than a u32 counts do not fit any machine.
        let Ok(at) = u32::try_from(self.agents.len()) else { return };
        let id = AgentId(at);
        life.counters.fit(&[], &spec.policy.limits);
        self.agents.push(Agent {
            name: spec.name.clone(),
            project: spec.project.clone(),
            policy: spec.policy.clone(),
            after: Vec::new(),
            dependents: Vec::new(),
            strategy: spec.strategy,
            account: spec.account.clone(),
            generation: spec.generation,
            place: None,
            declared,
            edition: self.edition,
            life,
            armed: None,
            touched: false,
        });
        self.by_name.insert(spec.name.clone(), id);
        self.touch(id);
    }

    /// Notes the order of declaration. An agent keeps its id for as long as we live, wherever it is moved
    /// to, and one that was known before it was declared got its id by its name: ids say nothing of it.
    fn list(&mut self, specs: &[AgentSpec]) {
        let mut seen = BTreeSet::new();
        let ids = specs.iter().filter_map(|spec| self.agent(&spec.name));
        let mut listed: Vec<AgentId> = ids.filter(|id| seen.insert(*id)).collect();
        listed.shrink_to_fit();
        self.listed = listed;
    }

    /// Ties agents to those they start after.
    fn link(&mut self, specs: &[AgentSpec]) {
        for agent in &mut self.agents {
            agent.after.clear();
            agent.dependents.clear();
        }
        for spec in specs {
            let Some(id) = self.agent(&spec.name) else {
                continue;
            };
            for other in spec.after.iter().filter_map(|name| self.agent(name)).collect::<Vec<_>>() {
                self.agents[id.index()].after.push(other);
                self.agents[other.index()].dependents.push(id);
            }
        }
    }

    /// Builds the trees. What groups have spent is kept by their names, for as long as the budget is
    /// the same: as with an agent's limits, what was counted for another says nothing about it.
    fn plant(&mut self, specs: &[GroupSpec]) {
        let mut spent: BTreeMap<Name, (Option<Limit>, Tally)> =
            self.groups.drain(..).map(|group| (group.name, (group.budget, group.spent))).collect();
        self.groups_by_name.clear();
        for agent in &mut self.agents {
            agent.place = None;
        }
        for (at, spec) in specs.iter().enumerate() {
            let id = GroupId(u32::try_from(at).unwrap_or(u32::MAX));
            self.groups_by_name.entry(spec.name.clone()).or_insert(id);
            let kept = spent.remove(&spec.name).filter(|(budget, _)| *budget == spec.budget);
            self.groups.push(Group {
                name: spec.name.clone(),
                parent: None,
                top: id,
                strategy: spec.strategy,
                budget: spec.budget,
                spent: kept.map(|(_, spent)| spent).unwrap_or_default(),
                order: Vec::new(),
                range: 0..0,
            });
        }
        let members: BTreeSet<&Name> = specs.iter().flat_map(|spec| &spec.members).collect();
        let mut planted = BTreeSet::new();
        for spec in specs.iter().filter(|spec| !members.contains(&spec.name)) {
            if let Some(id) = self.group(&spec.name) {
                self.plant_below(id, id, specs, &mut planted);
            }
        }
        for id in self.ids() {
            let agent = &mut self.agents[id.index()];
            if agent.life.sequenced && agent.place.is_none() {
                agent.life.sequenced = false;
                self.touch(id);
            }
        }
    }

    fn plant_below(
        &mut self,
        id: GroupId,
        top: GroupId,
        specs: &[GroupSpec],
        planted: &mut BTreeSet<GroupId>,
    ) {
        if !planted.insert(id) {
            return;
        }
        let start = self.groups[top.index()].order.len();
        for member in &specs[id.index()].members {
            if let Some(agent) = self.agent(member) {
                let at = self.groups[top.index()].order.len();
                if self.agents[agent.index()].place.is_none() {
                    self.agents[agent.index()].place = Some(Place { group: id, top, at });
                    self.groups[top.index()].order.push(agent);
                }
            } else if let Some(child) = self.group(member).filter(|child| !planted.contains(child))
            {
                self.groups[child.index()].parent = Some(id);
                self.groups[child.index()].top = top;
                self.plant_below(child, top, specs, planted);
            }
        }
        self.groups[id.index()].range = start..self.groups[top.index()].order.len();
    }

    /// The agent is no longer declared: it ends and is forgotten.
    fn remove(&mut self, id: AgentId) {
        if self.life(id).phase.run().is_some() {
            self.begin_stop(id, Why::Removed);
        } else {
            self.forget(id);
        }
    }

    /// Nothing is left of the agent but the number of its last run.
    pub(super) fn forget(&mut self, id: AgentId) {
        let life = &mut self.agents[id.index()].life;
        (life.goal, life.broke) = (Goal::Down, false);
        self.settle(id);
        self.order(Effect::Forget { agent: id });
    }

    /// An agent that had been forgotten, or was about to be, is declared again: it is a new one.
    fn welcome_back(&mut self, id: AgentId) {
        self.order(Effect::StoreGoal { agent: id, goal: Goal::Up });
        let life = &mut self.agents[id.index()].life;
        life.goal = Goal::Up;
        life.counters.forget_deaths();
        if let Phase::Stopping { why, .. } = &mut life.phase {
            *why = Why::Asked;
        } else {
            self.rest(id, Rest::Idle);
        }
    }

    /// The agent's command or environment is another: it runs under the new one, with its counters
    /// at zero. Who edits the command of a fallen agent has put something right.
    fn renew(&mut self, id: AgentId) {
        if self.life(id).goal != Goal::Up {
            return;
        }
        let anew = Launch { cause: Cause::Operator, fresh: false };
        match self.life(id).phase {
            Phase::Starting(_) | Phase::Running(_) => {
                self.begin_stop(id, Why::Restart { fresh: false, ordered: false });
            }
            Phase::Backoff { .. } => self.launch(id, anew),
            Phase::Halted(_) | Phase::CrashedOut(_) => {
                self.put_back(id);
                self.launch(id, anew);
            }
            Phase::Idle
            | Phase::Waiting { .. }
            | Phase::Stopping { .. }
            | Phase::Stopped { .. }
            | Phase::Done => {}
        }
    }
}
