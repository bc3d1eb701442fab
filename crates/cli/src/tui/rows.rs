//! Which agents are listed, in which order, and below which group.
//!
//! Rows point into the list of agents; they are made anew whenever that list or a wish changes.

use std::collections::BTreeMap;

use defib_core::topology::Strategy;
use defib_core::{Name, State};
use defib_daemon::wire::{AgentStatus, GroupBudget, GroupStatus};

/// In which order agents are listed, where they are not in their groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Order {
    /// What needs a person's look first comes first, the rest as it was declared.
    #[default]
    Need,
    /// By name.
    Name,
}

/// What rows there are to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) order: Order,
    /// Below their groups.
    pub(crate) tree: bool,
    /// Only those with this in their name.
    pub(crate) filter: String,
}

/// A row of the list.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Row {
    /// A group, in the tree.
    Group {
        name: Name,
        depth: usize,
        strategy: Strategy,
        state: State,
        budget: Option<GroupBudget>,
    },
    /// The agent at this place of the list.
    Agent { at: usize, depth: usize },
}

/// The rows that are wished for.
pub(crate) fn rows(agents: &[AgentStatus], groups: &[GroupStatus], wish: &Wish) -> Vec<Row> {
    let wanted = wish.filter.to_lowercase();
    if wish.tree {
        return tree(agents, groups, &wanted);
    }
    let mut places: Vec<usize> =
        (0..agents.len()).filter(|at| matches(&agents[*at].name, &wanted)).collect();
    match wish.order {
        // The sort is stable: those of one need stay as they were declared, and do not jump about.
        Order::Need => places.sort_by_key(|at| need(&agents[*at])),
        Order::Name => places.sort_by(|one, other| agents[*one].name.cmp(&agents[*other].name)),
    }
    places.into_iter().map(|at| Row::Agent { at, depth: 0 }).collect()
}

/// How much an agent needs a person's look.
const fn need(agent: &AgentStatus) -> u8 {
    if agent.flapping {
        return 0;
    }
    match agent.state {
        State::CrashedOut | State::Halted => 1,
        State::Idle
        | State::Starting
        | State::Running
        | State::Backoff
        | State::Waiting
        | State::Stopping
        | State::Stopped
        | State::Done => 2,
    }
}

fn matches(name: &Name, wanted: &str) -> bool {
    wanted.is_empty() || name.as_str().to_lowercase().contains(wanted)
}

fn tree(agents: &[AgentStatus], groups: &[GroupStatus], wanted: &str) -> Vec<Row> {
    let mut places: BTreeMap<&Name, usize> =
        agents.iter().enumerate().map(|(at, agent)| (&agent.name, at)).collect();
    let mut rows = Vec::new();
    for group in groups {
        branch(group, 0, wanted, &mut places, &mut rows);
    }
    // Those in no group come after them, as they were declared.
    let mut alone: Vec<usize> =
        places.into_iter().filter(|(name, _)| matches(name, wanted)).map(|(_, at)| at).collect();
    alone.sort_unstable();
    rows.extend(alone.into_iter().map(|at| Row::Agent { at, depth: 0 }));
    rows
}

/// A group and what is below it; nothing where nothing of it is wanted.
fn branch(
    group: &GroupStatus,
    depth: usize,
    wanted: &str,
    places: &mut BTreeMap<&Name, usize>,
    rows: &mut Vec<Row>,
) {
    let begin = rows.len();
    rows.push(Row::Group {
        name: group.name.clone(),
        depth,
        strategy: group.strategy,
        state: group.state,
        budget: group.budget,
    });
    let is_wanted = matches(&group.name, wanted);
    // Of a group that is meant itself, every member is.
    let below = if is_wanted { "" } else { wanted };
    for member in &group.members {
        if let Some(inner) = &member.group {
            branch(inner, depth + 1, below, places, rows);
        } else if let Some(at) = places.remove(&member.name)
            && matches(&member.name, below)
        {
            rows.push(Row::Agent { at, depth: depth + 1 });
        }
    }
    if rows.len() == begin + 1 && !is_wanted {
        rows.truncate(begin);
    }
}
