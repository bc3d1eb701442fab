//! The declared tree of a day, and how a file that declares it changes.
//!
//! Agents stand in one global order, that of their slots. Groups are stretches of it and `after`
//! points backwards only, so there is never a cycle: config refuses those before the core sees them.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use defib_core::limit::{Limit, Span};
use defib_core::{AgentSpec, GroupSpec, Name, Policy, Strategy, Topology};

use super::draw::Draw;
use super::rules;

/// How deep groups are nested at most.
const DEEPEST: usize = 4;

/// An agent by its place in the global order; it keeps it when it is undeclared.
pub(crate) type Slot = usize;

/// A declared agent.
#[derive(Debug, Clone)]
pub(crate) struct Plant {
    pub(crate) name: Name,
    pub(crate) project: usize,
    pub(crate) policy: Arc<Policy>,
    pub(crate) after: Vec<Slot>,
    pub(crate) strategy: Option<Strategy>,
    pub(crate) account: Option<Arc<str>>,
    pub(crate) generation: u64,
    pub(crate) declared: bool,
}

/// A declared group.
#[derive(Debug, Clone)]
pub(crate) struct Grove {
    pub(crate) name: Name,
    pub(crate) parent: Option<usize>,
    pub(crate) strategy: Strategy,
    pub(crate) budget: Option<Limit>,
    members: Vec<Member>,
    /// An undeclared group's members belong to its parent.
    pub(crate) declared: bool,
}

#[derive(Debug, Clone, Copy)]
enum Member {
    Agent(Slot),
    Group(usize),
}

/// What a file declares, and could.
#[derive(Debug, Clone)]
pub(crate) struct Forest {
    pub(crate) plants: Vec<Plant>,
    pub(crate) groves: Vec<Grove>,
    pub(crate) projects: [Name; 2],
    /// In which order agents stand in the file.
    order: Vec<Slot>,
    /// The agent that was edited last: what was changed once is often changed back.
    pub(crate) edited: Slot,
}

/// How the file was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edit {
    Policy,
    Generation,
    Removed,
    Added,
    Grouping,
    Budget,
    After,
}

impl Forest {
    /// A random tree of up to a dozen agents.
    pub(crate) fn draw(draw: &mut Draw) -> Forest {
        let count = draw.pick(&[1, 2, 3, 4, 5, 6, 8, 10, 12]);
        let linked = draw.pick(&[0, 100, 400]);
        let mut forest = Forest {
            plants: (0..count).map(|slot| plant(draw, slot, linked)).collect(),
            groves: Vec::new(),
            projects: [name("north", 0), name("south", 0)],
            order: (0..count).collect(),
            edited: 0,
        };
        if draw.chance(200) {
            for at in (1..count).rev() {
                forest.order.swap(at, draw.place(at + 1));
            }
        }
        let mut slot = 0;
        let grouped = draw.pick(&[0, 500, 900]);
        // Some trees are little but depth: failures climb far in them.
        let nested = draw.pick(&[100, 400, 900]);
        while slot < count {
            if draw.chance(grouped) {
                let end = slot + 1 + draw.place(count - slot);
                forest.grow(draw, None, slot..end, nested, 1);
                slot = end;
            } else {
                slot += 1;
            }
        }
        if draw.chance(600) {
            let account: Arc<str> = "shared".into();
            for plant in &mut forest.plants {
                plant.account = draw.chance(900).then(|| account.clone());
            }
        }
        forest
    }

    /// Makes a group of these slots, with groups of its own.
    fn grow(
        &mut self,
        draw: &mut Draw,
        parent: Option<usize>,
        slots: Range<Slot>,
        nested: u64,
        depth: usize,
    ) -> usize {
        let Range { start: mut slot, end } = slots;
        let at = self.groves.len();
        self.groves.push(Grove {
            name: name("g", at),
            parent,
            strategy: draw.pick(&Strategy::ALL),
            budget: budget(draw, nested > 800),
            members: Vec::new(),
            declared: true,
        });
        while slot < end {
            if depth < DEEPEST && draw.chance(nested) {
                let child_end = slot + 1 + draw.place(end - slot);
                let child = self.grow(draw, Some(at), slot..child_end, nested, depth + 1);
                self.groves[at].members.push(Member::Group(child));
                slot = child_end;
            } else {
                self.groves[at].members.push(Member::Agent(slot));
                slot += 1;
            }
        }
        at
    }

    /// What the supervisor is told.
    pub(crate) fn topology(&self) -> Topology {
        let agents = self.order.iter().map(|slot| &self.plants[*slot]).filter(|p| p.declared);
        let agents = agents.map(|plant| AgentSpec {
            name: plant.name.clone(),
            project: self.projects[plant.project].clone(),
            policy: plant.policy.clone(),
            after: plant.after.iter().map(|slot| self.plants[*slot].name.clone()).collect(),
            strategy: plant.strategy,
            account: plant.account.clone(),
            generation: plant.generation,
        });
        let groups = self.groves.iter().enumerate().filter(|(_, grove)| grove.declared);
        let groups = groups.map(|(at, grove)| {
            let mut members = Vec::new();
            self.members_of(at, &mut members);
            GroupSpec {
                name: grove.name.clone(),
                strategy: grove.strategy,
                budget: grove.budget,
                members,
            }
        });
        let (agents, groups) = (agents.collect(), groups.collect());
        Topology { agents, groups, ..Topology::default() }
    }

    fn members_of(&self, grove: usize, names: &mut Vec<Name>) {
        for member in &self.groves[grove].members {
            match member {
                Member::Agent(slot) => names.push(self.plants[*slot].name.clone()),
                Member::Group(child) if self.groves[*child].declared => {
                    names.push(self.groves[*child].name.clone());
                }
                Member::Group(child) => self.members_of(*child, names),
            }
        }
    }

    /// The declared agents of a group, at any depth.
    pub(crate) fn agents_of(&self, grove: usize) -> Vec<Slot> {
        let mut slots = Vec::new();
        for member in &self.groves[grove].members {
            match member {
                Member::Agent(slot) if self.plants[*slot].declared => slots.push(*slot),
                Member::Agent(_) => {}
                Member::Group(child) => slots.extend(self.agents_of(*child)),
            }
        }
        slots
    }

    /// The group that an agent is a direct member of.
    pub(crate) fn group_of(&self, slot: Slot) -> Option<usize> {
        let holds = |grove: &Grove| {
            grove.members.iter().any(|m| matches!(m, Member::Agent(s) if *s == slot))
        };
        let group = self.groves.iter().position(holds)?;
        self.nearest_declared(Some(group))
    }

    /// The group that a group is a direct member of.
    pub(crate) fn parent_of(&self, grove: usize) -> Option<usize> {
        self.nearest_declared(self.groves[grove].parent)
    }

    fn nearest_declared(&self, mut grove: Option<usize>) -> Option<usize> {
        while let Some(at) = grove {
            if self.groves[at].declared {
                return grove;
            }
            grove = self.groves[at].parent;
        }
        None
    }

    /// The groups that an agent is in, from the inmost to the top.
    pub(crate) fn groups_above(&self, slot: Slot) -> impl Iterator<Item = usize> {
        let first = self.group_of(slot);
        std::iter::successors(first, |grove| self.parent_of(*grove))
    }

    /// Which group has this name.
    pub(crate) fn grove(&self, name: &Name) -> Option<usize> {
        self.groves.iter().position(|grove| grove.name == *name)
    }

    /// Changes the file in one place.
    pub(crate) fn edit(&mut self, draw: &mut Draw) -> Edit {
        let slot = if draw.chance(300) { self.edited } else { draw.place(self.plants.len()) };
        self.edited = slot;
        let grove = draw.place(self.groves.len());
        let has_groves = !self.groves.is_empty();
        match draw.below(10) {
            0 | 1 => {
                self.plants[slot].policy = rules::policy(draw);
                Edit::Policy
            }
            2 => {
                self.plants[slot].generation += 1;
                Edit::Generation
            }
            3 if has_groves => {
                self.groves[grove].declared ^= true;
                Edit::Grouping
            }
            4 if has_groves => {
                self.groves[grove].budget = budget(draw, false);
                self.groves[grove].strategy = draw.pick(&Strategy::ALL);
                Edit::Budget
            }
            5 => {
                self.plants[slot].after = afters(draw, slot, 400);
                Edit::After
            }
            _ => {
                self.plants[slot].declared ^= true;
                if self.plants[slot].declared { Edit::Added } else { Edit::Removed }
            }
        }
    }
}

fn plant(draw: &mut Draw, slot: Slot, linked: u64) -> Plant {
    Plant {
        name: name("a", slot),
        project: draw.place(2),
        policy: rules::policy(draw),
        after: afters(draw, slot, linked),
        strategy: draw.chance(150).then(|| draw.pick(&Strategy::ALL)),
        account: None,
        generation: 0,
        declared: draw.chance(950),
    }
}

fn afters(draw: &mut Draw, slot: Slot, linked: u64) -> Vec<Slot> {
    if slot == 0 || !draw.chance(linked) {
        return Vec::new();
    }
    let mut after: Vec<Slot> = (0..=draw.below(2)).map(|_| draw.place(slot)).collect();
    after.sort_unstable();
    after.dedup();
    after
}

fn budget(draw: &mut Draw, tight: bool) -> Option<Limit> {
    if tight {
        return Some(Limit::restarts(draw.count(0, 2), Span::Rolling(Duration::from_secs(3600))));
    }
    match draw.below(4) {
        0 => None,
        1 => Some(GroupSpec::DEFAULT_BUDGET),
        _ => {
            let within = draw.stated(Duration::from_secs(1), Duration::from_secs(7200));
            Some(rules::restarts(draw, within))
        }
    }
}

fn name(kind: &str, at: usize) -> Name {
    let text = if kind.len() > 1 { kind.to_owned() } else { format!("{kind}{at}") };
    // A few letters and digits are always a name.
    Name::parse(&text).unwrap_or_else(|bad| unreachable!("{text}: {bad}"))
}
