//! What is declared, checked: every name is one, no name is taken twice, nobody waits for nobody.

use std::collections::BTreeSet;
use std::sync::Arc;

use defib_core::{AgentSpec, GroupSpec, Name, Policy};

use crate::error::Error;
use crate::run::Recipe;
use crate::task::{Group, Member, Purse, Task};

/// Tasks and groups as the core knows them, and how runs of the tasks begin.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) tasks: Vec<Planned>,
    pub(crate) groups: Vec<GroupSpec>,
    /// What is in no group of this plan, in order: to be started, or put into a group that is there.
    pub(crate) top: Vec<Name>,
}

pub(crate) struct Planned {
    pub(crate) spec: AgentSpec,
    pub(crate) recipe: Arc<dyn Recipe>,
    pub(crate) purse: Option<Purse>,
}

impl Plan {
    pub(crate) fn of(
        members: impl IntoIterator<Item = Member>,
        default: &Arc<Policy>,
    ) -> Result<Plan, Error> {
        let mut plan = Plan::default();
        for member in members {
            let name = plan.add(member, default)?;
            plan.top.push(name);
        }
        Ok(plan)
    }

    fn add(&mut self, member: Member, default: &Arc<Policy>) -> Result<Name, Error> {
        match member {
            Member::Task(task) => self.add_task(task, default),
            Member::Group(group) => self.add_group(group, default),
        }
    }

    fn add_task(&mut self, task: Task, default: &Arc<Policy>) -> Result<Name, Error> {
        let name = parse(&task.name)?;
        let mut policy = task.policy.unwrap_or_else(|| default.clone());
        for edit in task.edits {
            edit(Arc::make_mut(&mut policy));
        }
        let mut spec = AgentSpec::new(name.clone(), project(), policy);
        spec.strategy = task.strategy;
        for other in &task.after {
            spec.after.push(parse(other)?);
        }
        self.tasks.push(Planned { spec, recipe: task.recipe, purse: task.purse });
        Ok(name)
    }

    fn add_group(&mut self, group: Group, default: &Arc<Policy>) -> Result<Name, Error> {
        let name = parse(&group.name)?;
        let mut members = Vec::with_capacity(group.members.len());
        for member in group.members {
            members.push(self.add(member, default)?);
        }
        let Group { strategy, budget, .. } = group;
        self.groups.push(GroupSpec { name: name.clone(), strategy, budget, members });
        Ok(name)
    }

    /// Every name that the plan declares.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        let tasks = self.tasks.iter().map(|task| &task.spec.name);
        tasks.chain(self.groups.iter().map(|group| &group.name))
    }

    /// Whether every name is free and everybody that is waited for is there, `known` being who is.
    pub(crate) fn check(&self, known: impl Fn(&Name) -> bool) -> Result<(), Error> {
        let mut names = BTreeSet::new();
        for name in self.names() {
            if known(name) || !names.insert(name) {
                return Err(Error::NameTaken(name.to_string()));
            }
        }
        let mut waited_for = self.tasks.iter().flat_map(|task| &task.spec.after);
        match waited_for.find(|name| !known(name) && !names.contains(name)) {
            Some(name) => Err(Error::Unknown(name.to_string())),
            None => Ok(()),
        }
    }
}

/// The project that all tasks of a program are in.
pub(crate) fn project() -> Name {
    parse("tasks").unwrap_or_else(|_| unreachable!("it is five letters"))
}

pub(crate) fn parse(text: &str) -> Result<Name, Error> {
    Name::parse(text).map_err(|why| Error::BadName { name: text.to_owned(), why })
}
