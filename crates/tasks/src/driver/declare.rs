//! Tasks and groups that come and go while others run.

use defib_core::{AgentId, AgentSpec, Input, Name, Scope, Topology};

use super::{Driver, Entry, Reply, answer_to};
use crate::error::Error;
use crate::plan::{Plan, Planned, project};

/// What is to be added, where, and who wants to know.
pub(super) type Addition = (Plan, Option<Name>, Reply<()>);

impl Driver {
    /// Declares what is there from the first. Names have been checked.
    pub(crate) fn begin(&mut self, plan: Plan, max_total_restarts: Option<u32>) {
        self.groups = plan.groups;
        self.max_total_restarts = max_total_restarts;
        self.declare(plan.tasks);
        self.tell_of_no_request(Input::UpAsked(Scope::All));
    }

    /// Adds what can be added, all of it in one declaration, and starts it.
    pub(super) fn add_all(&mut self, additions: Vec<Addition>) {
        if additions.is_empty() {
            return;
        }
        let mut tasks = Vec::new();
        let mut added: Vec<(Vec<Name>, Reply<()>)> = Vec::new();
        for (plan, into, reply) in additions {
            // Those that come together must not share a name either.
            let is_new = |name: &Name| tasks.iter().any(|task: &Planned| task.spec.name == *name);
            let known = |name: &Name| self.is_known(name) || is_new(name);
            // A group may have come just before.
            let is_group = |name: &Name| self.groups.iter().any(|group| group.name == *name);
            let missing = into.as_ref().filter(|into| !is_group(into));
            let answer = match (self.closing, missing) {
                (true, _) => Err(Error::Ended),
                (false, Some(into)) => Err(Error::Unknown(into.to_string())),
                (false, None) => plan.check(known),
            };
            if let Err(error) = answer {
                plan.names().for_each(|name| self.roster.free(name));
                answer_to(reply, Err(error));
                continue;
            }
            let into = self.groups.iter_mut().find(|group| Some(&group.name) == into.as_ref());
            if let Some(into) = into {
                into.members.extend(plan.top.iter().cloned());
            }
            self.groups.extend(plan.groups);
            tasks.extend(plan.tasks);
            added.push((plan.top, reply));
        }
        if added.is_empty() {
            return;
        }
        self.declare(tasks);
        for (names, reply) in added {
            for name in names {
                if let Some((scope, _)) = self.scope(name.as_str()) {
                    self.tell_of_no_request(Input::UpAsked(scope));
                }
            }
            answer_to(reply, Ok(()));
        }
    }

    /// Takes a task away; answers when its run is over.
    pub(super) fn remove(&mut self, name: &str, reply: Reply<()>) {
        let agent = match self.find(name) {
            Ok(agent) => agent,
            Err(error) => {
                answer_to(reply, Err(error));
                return;
            }
        };
        let mut agents = self.declared();
        agents.retain(|spec| spec.name.as_str() != name);
        for group in &mut self.groups {
            group.members.retain(|member| member.as_str() != name);
        }
        self.apply(agents);
        self.wait_until_settled(vec![agent], reply);
    }

    /// Nothing is left of the task.
    pub(super) fn forget(&mut self, agent: AgentId) {
        if let Some(place) = self.entries.get_mut(agent.index())
            && let Some(entry) = place.take()
            && !entry.at_rest
        {
            self.restless -= 1;
        }
        self.roster.free(self.core.name(agent));
        self.watched.remove(&agent);
    }

    fn is_known(&self, name: &Name) -> bool {
        let is_there =
            |agent: AgentId| self.entries.get(agent.index()).is_some_and(Option::is_some);
        self.groups.iter().any(|group| group.name == *name)
            || self.core.known(name).is_some_and(is_there)
    }

    /// Declares tasks beside those that are there.
    fn declare(&mut self, tasks: Vec<Planned>) {
        let mut agents = self.declared();
        let mut entries = Vec::with_capacity(tasks.len());
        for Planned { spec, recipe, purse } in tasks {
            let entry = Entry {
                recipe,
                purse,
                after: spec.after.clone().into(),
                strategy: spec.strategy,
                live: None,
                at_rest: true,
                last_death: None,
            };
            entries.push((spec.name.clone(), entry));
            agents.push(spec);
        }
        self.apply(agents);
        for (name, entry) in entries {
            let Some(agent) = self.core.agent(&name) else { continue };
            if self.entries.len() <= agent.index() {
                self.entries.resize_with(agent.index() + 1, || None);
            }
            self.entries[agent.index()] = Some(entry);
        }
    }

    fn apply(&mut self, agents: Vec<AgentSpec>) {
        let groups = self.groups.clone();
        let topology = Topology { agents, groups, max_total_restarts: self.max_total_restarts };
        self.tell_of_no_request(Input::Apply(Box::new(topology)));
    }

    /// What is declared: the core knows nearly all of it.
    fn declared(&self) -> Vec<AgentSpec> {
        let entries = self.core.declared().filter_map(|(agent, name)| {
            let entry = self.entries.get(agent.index())?.as_ref()?;
            let mut spec = AgentSpec::new(name.clone(), project(), self.policy(agent));
            spec.after = entry.after.to_vec();
            spec.strategy = entry.strategy;
            Some(spec)
        });
        entries.collect()
    }
}
