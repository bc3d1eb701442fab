//! The groups as people see them: a tree, with the state that concerns them most.

use std::collections::{BTreeMap, BTreeSet};

use defib_config::config;
use defib_core::limit::Tally;
use defib_core::time::Seconds;
use defib_core::{Mono, Name, State};
use defib_host::clock::now;

use super::Engine;
use crate::recipe::Project;
use crate::wire::{GroupBudget, GroupMember, GroupStatus};

impl Engine {
    /// The top groups of every project, with all that is below them.
    pub(super) fn groups(&self) -> Vec<GroupStatus> {
        let (spent, at) = (self.supervisor.spent(), now().mono);
        let mut all = Vec::new();
        for project in self.projects.values() {
            let groups = &project.config.groups;
            let below: BTreeSet<&Name> = groups.iter().flat_map(|group| &group.members).collect();
            let top = groups.iter().filter(|group| !below.contains(&group.name));
            all.extend(top.map(|group| self.group(project, group, &spent, at)));
        }
        all
    }

    fn group(
        &self,
        project: &Project,
        group: &config::Group,
        spent: &BTreeMap<Name, Tally>,
        at: Mono,
    ) -> GroupStatus {
        let member = |name: &Name| {
            // No group is in itself, so this ends.
            let inner = project.config.groups.iter().find(|inner| inner.name == *name);
            let group = inner.map(|inner| self.group(project, inner, spent, at));
            let state = group.as_ref().map_or_else(|| self.state_of(name), |group| group.state);
            GroupMember { name: name.clone(), state, group }
        };
        let members: Vec<GroupMember> = group.members.iter().map(member).collect();
        let states = members.iter().map(|member| member.state);
        let budget = group.budget.as_ref().map(|limit| GroupBudget {
            max: limit.max,
            within_s: limit.within().map(Seconds),
            used: spent.get(&group.name).map_or(0, |tally| tally.count(limit, at)),
        });
        GroupStatus {
            name: group.name.clone(),
            project: project.config.project.clone(),
            strategy: group.strategy,
            budget,
            state: states.max_by_key(|state| concern(*state)).unwrap_or(State::Idle),
            members,
        }
    }

    fn state_of(&self, name: &Name) -> State {
        // One that is declared and not enabled is not in the core.
        self.supervisor.agent(name).map_or(State::Idle, |id| self.supervisor.sight(id).state)
    }
}

/// How much a state concerns people.
const fn concern(state: State) -> u8 {
    match state {
        State::Done => 0,
        State::Stopped => 1,
        State::Idle => 2,
        State::Running => 3,
        State::Stopping => 4,
        State::Starting => 5,
        State::Waiting => 6,
        State::Backoff => 7,
        State::Halted => 8,
        State::CrashedOut => 9,
    }
}
