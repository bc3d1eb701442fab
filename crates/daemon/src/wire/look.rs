//! What people look at: groups, lifelines, what a run uses, what it all adds up to.

use defib_core::time::Seconds;
use defib_core::{Class, Name, RunId, Signal, State, Strategy};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::words::{ClassWord, MomentWord, NameWord, StateWord, StrategyWord};

/// A group and everything below it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GroupStatus {
    /// Its name.
    #[schema(value_type = NameWord)]
    pub name: Name,
    /// The project it belongs to.
    #[schema(value_type = NameWord)]
    pub project: Name,
    /// What it restarts when a member has to be.
    #[schema(value_type = StrategyWord)]
    pub strategy: Strategy,
    /// How many restarts it may make.
    pub budget: Option<GroupBudget>,
    /// Of all states of its agents, the one that concerns people most.
    #[schema(value_type = StateWord)]
    pub state: State,
    /// Its agents and groups, in the order they start.
    pub members: Vec<GroupMember>,
}

/// How many restarts a group may make.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GroupBudget {
    /// So many at the most.
    pub max: u32,
    /// In any stretch of this length.
    #[schema(value_type = Option<f64>)]
    pub within_s: Option<Seconds>,
    /// How many of them are used.
    pub used: u32,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GroupMember {
    /// Its name.
    #[schema(value_type = NameWord)]
    pub name: Name,
    /// Its state.
    #[schema(value_type = StateWord)]
    pub state: State,
    /// What is below it, where it is a group.
    #[schema(no_recursion)]
    pub group: Option<GroupStatus>,
}

/// What a live run uses at this moment, with all that descends from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunUsage {
    /// Whose.
    #[schema(value_type = NameWord)]
    pub agent: Name,
    /// Which run; null where none lives, and then there are no figures.
    #[schema(value_type = Option<u64>)]
    pub run: Option<RunId>,
    /// When it was looked at.
    #[schema(value_type = MomentWord)]
    pub at: String,
    /// Memory in use: that of its cgroup, or what its processes have resident together.
    pub memory_bytes: Option<u64>,
    /// CPU time so far.
    pub cpu_s: Option<f64>,
    /// How many processes it has.
    pub processes: Option<u32>,
}

/// What agents lived through in a stretch of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Lifelines {
    /// Where the stretch begins.
    #[schema(value_type = MomentWord)]
    pub since: String,
    /// Where it ends.
    #[schema(value_type = MomentWord)]
    pub until: String,
    /// The agents of this page, in the order of `agents`.
    pub agents: Vec<Lifeline>,
}

/// What one agent lived through.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Lifeline {
    /// Who.
    #[schema(value_type = NameWord)]
    pub agent: Name,
    /// The project it belongs to.
    #[schema(value_type = NameWord)]
    pub project: Name,
    /// What it is doing now.
    #[schema(value_type = StateWord)]
    pub state: State,
    /// Its runs that touch the stretch, oldest first.
    pub runs: Vec<Bar>,
    /// When it was dead on purpose: backoff and waits, oldest first.
    pub waits: Vec<Pause>,
    /// Whether there were more runs than are shown; then the newest are.
    pub more: bool,
}

/// One run on a lifeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Bar {
    /// Which.
    #[schema(value_type = u64)]
    pub run: RunId,
    /// When it began.
    #[schema(value_type = MomentWord)]
    pub started_at: String,
    /// When it ended; null while it lives.
    #[schema(value_type = Option<MomentWord>)]
    pub ended_at: Option<String>,
    /// What it died of.
    #[schema(value_type = Option<ClassWord>)]
    pub class: Option<Class>,
    /// The exit code, where there was one.
    pub exit_code: Option<i32>,
    /// The signal, where one ended it.
    #[schema(value_type = Option<String>)]
    pub signal: Option<Signal>,
}

/// A wait on a lifeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Pause {
    /// When it began.
    #[schema(value_type = MomentWord)]
    pub from: String,
    /// When it ended or will end; null where nobody knows.
    #[schema(value_type = Option<MomentWord>)]
    pub until: Option<String>,
    /// For what: `backoff`, or what a wait is for, such as `quota`.
    pub reason: String,
}

/// What everything adds up to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TotalsStatus {
    /// Since when it was counted.
    #[schema(value_type = MomentWord)]
    pub since: String,
    /// Runs that began.
    pub runs: u64,
    /// Runs that ended, whatever of.
    pub deaths: u64,
    /// Automatic restarts.
    pub restarts: u64,
    /// Deaths that needed a person: those that ended in `crashed-out` or `halted`, and failures of agents
    /// that are never restarted.
    pub permanent_deaths: u64,
    /// Deaths after which the agent was ready again by itself.
    pub recoveries: u64,
    /// From a death to the next run that is ready, on average.
    pub mean_recovery_s: Option<f64>,
    /// The same: half took longer.
    pub median_recovery_s: Option<f64>,
}
