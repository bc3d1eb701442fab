//! What is declared: agents, groups, and how they hang together.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limit::{Limit, Span};
use crate::name::Name;
use crate::policy::Policy;

/// What a group does when a member has to be restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Restarts that member.
    OneForOne,
    /// Restarts every member.
    OneForAll,
    /// Restarts that member and those after it.
    RestForOne,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Strategy; 3] = [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne];

    /// The word by which config and people call it.
    pub const fn word(self) -> &'static str {
        match self {
            Strategy::OneForOne => "one-for-one",
            Strategy::OneForAll => "one-for-all",
            Strategy::RestForOne => "rest-for-one",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A declared agent.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentSpec {
    /// Its name.
    pub name: Name,
    /// The project it belongs to.
    pub project: Name,
    /// What becomes of its deaths.
    pub policy: Arc<Policy>,
    /// It starts when these are ready.
    pub after: Vec<Name>,
    /// Its own word on what its group does when it has to be restarted.
    pub strategy: Option<Strategy>,
    /// The credential that it shares waits for a quota with.
    pub account: Option<Arc<str>>,
    /// Changes when its command or environment does.
    pub generation: u64,
}

impl AgentSpec {
    /// An agent with a policy and nothing else.
    pub fn new(name: Name, project: Name, policy: Arc<Policy>) -> AgentSpec {
        AgentSpec {
            name,
            project,
            policy,
            after: Vec::new(),
            strategy: None,
            account: None,
            generation: 0,
        }
    }
}

/// A declared group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupSpec {
    /// Its name; agents and groups share one set of names.
    pub name: Name,
    /// What it does when a member has to be restarted.
    pub strategy: Strategy,
    /// How many restarts it may make; nothing is no bound.
    pub budget: Option<Limit>,
    /// Its agents and groups, in the order they start.
    pub members: Vec<Name>,
}

impl GroupSpec {
    /// The budget of a group that declares none: 5 restarts in any 60 s.
    pub const DEFAULT_BUDGET: Limit = Limit::restarts(5, Span::Rolling(Duration::from_secs(60)));
}

/// Everything that is declared. Names that mean nothing, and a second place for a member, are
/// passed over: whoever reads a file says so there.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Topology {
    /// The agents, in the order they start where no group says otherwise.
    pub agents: Vec<AgentSpec>,
    /// The groups.
    pub groups: Vec<GroupSpec>,
    /// Once so many automatic restarts of all agents together have been decided, each that dies is
    /// crashed out.
    pub max_total_restarts: Option<u32>,
}
