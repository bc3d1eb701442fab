//! `AgentSupervisor`: agents spawned one by one into a group, each with its own strategy and budget.
//!
//! The strategy applied is the dead agent's own. An agent whose budget is exhausted takes the
//! supervisor down with it, which tells its parent: there it counts as a child that failed.

use std::future::Future;
use std::sync::Arc;

use defib_core::Strategy;
use defib_core::limit::{Limit, Span, Then};

use super::{RestartBudget, RestartStrategy};
use crate::context::Context;
use crate::end::IntoEnd;
use crate::error::Error;
use crate::supervisor::{Builder, Handle, Supervisor};
use crate::task::{Group, Member, Task};

/// An agent to spawn: a name, and how its runs begin.
#[derive(Debug)]
pub struct AgentConfig(Task);

impl AgentConfig {
    /// An agent each run of which is one call of `begin`. Its future may give an exit code, nothing,
    /// or a `Result`.
    pub fn new<F, R>(name: impl Into<Box<str>>, begin: F) -> AgentConfig
    where
        F: Fn(Context) -> R + Send + Sync + 'static,
        R: Future + Send + 'static,
        R::Output: IntoEnd,
    {
        AgentConfig(Task::new(name, begin))
    }
}

/// A supervisor of agents that may have a parent.
///
/// ```
/// use defib_tasks::weft::{AgentConfig, AgentSupervisor, RestartBudget, RestartStrategy};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), defib_tasks::Error> {
/// let supervisor = AgentSupervisor::start()?;
/// let agent_config = AgentConfig::new("batch", |_| async { 1 });
/// supervisor.spawn_supervised(
///     agent_config,
///     RestartStrategy::OneForOne,
///     RestartBudget { max_restarts: 3, within_secs: 30 },
/// )?;
/// supervisor.handle().all_at_rest().await?;
/// assert_eq!(supervisor.handle().sight("batch").await?.run, 4, "three restarts");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct AgentSupervisor {
    /// Whoever holds the last of these ends everything.
    supervisor: Arc<Supervisor>,
    name: Box<str>,
}

impl AgentSupervisor {
    /// The name of the group that a supervisor without a parent is.
    pub const ROOT: &str = "supervisor";

    /// Starts a supervisor without a parent, on the runtime that the caller is in.
    pub fn start() -> Result<AgentSupervisor, Error> {
        AgentSupervisor::start_with(Supervisor::builder())
    }

    /// Starts it beside what a builder has already.
    pub fn start_with(builder: Builder) -> Result<AgentSupervisor, Error> {
        let supervisor = Arc::new(builder.group(level(AgentSupervisor::ROOT)).start()?);
        Ok(AgentSupervisor { supervisor, name: AgentSupervisor::ROOT.into() })
    }

    /// A supervisor below this one, which hears of its failure and restarts it, within `budget`. When that
    /// is exhausted too, this one escalates. It takes the names `name.agents` and `name.restarts` too.
    pub fn child(&self, name: &str, budget: RestartBudget) -> Result<AgentSupervisor, Error> {
        let restarts = Limit { then: Then::CrashOut, ..budget.limit() };
        let around = format!("{name}.restarts");
        let around = Group::new(around, Strategy::OneForOne).budget(restarts).group(level(name));
        // The order is given, and can no longer be refused: what is spawned into the child comes after it.
        self.supervisor.insert(Member::Group(around), Some(&self.name))?;
        Ok(AgentSupervisor { name: name.into(), ..self.clone() })
    }

    /// Spawns an agent, behind those that were spawned before it. Where that cannot be, because its name
    /// is taken or the supervisor ends, this says so at once.
    pub fn spawn_supervised(
        &self,
        agent_config: AgentConfig,
        strategy: RestartStrategy,
        budget: RestartBudget,
    ) -> Result<(), Error> {
        let AgentConfig(task) = agent_config;
        let task = task.policy(strategy.policy(budget)).strategy(strategy.reach());
        self.supervisor.insert(Member::Task(task), Some(&agents_of(&self.name)))?;
        Ok(())
    }

    /// What can be asked of it: to stop, start, look at and end agents.
    pub fn handle(&self) -> Handle {
        self.supervisor.handle()
    }
}

/// One supervisor: a group of its agents, whose budgets are their own, inside of one that makes no
/// restarts itself. So whatever fails in it, an agent's budget or a child's, it has failed.
fn level(name: &str) -> Group {
    let agents = Group::new(agents_of(name), Strategy::OneForOne).budget(None);
    let none = Limit::restarts(0, Span::Lifetime);
    Group::new(name, Strategy::OneForOne).budget(none).group(agents)
}

fn agents_of(name: &str) -> String {
    format!("{name}.agents")
}
