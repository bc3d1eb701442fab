//! What is declared: tasks and groups of them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use defib_core::limit::Limit;
use defib_core::policy::{Mode, Policy};
use defib_core::{GroupSpec, Preset, Strategy};

use crate::agent_loop::{AgentLoop, Looping};
use crate::context::Context;
use crate::end::IntoEnd;
use crate::run::Recipe;

/// Says whether a task has anything left to spend.
pub(crate) type Purse = Arc<dyn Fn() -> bool + Send + Sync>;

/// Changes a policy.
pub(crate) type Edit = Box<dyn FnOnce(&mut Policy) + Send>;

/// A task to keep alive: a name, how its runs begin, and the policy by which it is restarted.
///
/// ```
/// use defib_tasks::{Failure, Preset, Task};
///
/// let task = Task::new("poller", |context| async move {
///     while !context.is_stopping() {
///         context.beat();
///         tokio::time::sleep(std::time::Duration::from_secs(1)).await;
///     }
///     Ok::<(), Failure>(())
/// })
/// .preset(Preset::Ecology);
/// ```
#[must_use = "a task does nothing before it is given to a supervisor"]
pub struct Task {
    pub(crate) name: Box<str>,
    pub(crate) recipe: Arc<dyn Recipe>,
    pub(crate) policy: Option<Arc<Policy>>,
    /// What is changed of the supervisor's policy, where it has none of its own.
    pub(crate) edits: Vec<Edit>,
    pub(crate) after: Vec<Box<str>>,
    pub(crate) strategy: Option<Strategy>,
    pub(crate) purse: Option<Purse>,
}

impl Task {
    /// A task each run of which is one call of `begin`.
    pub fn new<F, R>(name: impl Into<Box<str>>, begin: F) -> Task
    where
        F: Fn(Context) -> R + Send + Sync + 'static,
        R: Future + Send + 'static,
        R::Output: IntoEnd,
    {
        Task {
            name: name.into(),
            recipe: Arc::new(begin),
            policy: None,
            edits: Vec::new(),
            after: Vec::new(),
            strategy: None,
            purse: None,
        }
    }

    /// A task that goes round and round: see [`AgentLoop`].
    pub fn looping<L: AgentLoop>(name: impl Into<Box<str>>, looping: Looping<L>) -> Task {
        Task::new(name, looping.into_recipe())
    }

    /// The policy by which it is restarted; without one, the supervisor's.
    pub fn policy(mut self, policy: impl Into<Arc<Policy>>) -> Task {
        self.policy = Some(policy.into());
        self.edits.clear();
        self
    }

    /// The rule set by which it is restarted.
    pub fn preset(self, preset: Preset) -> Task {
        self.policy(preset.policy())
    }

    /// After which ends it is restarted.
    pub fn restart(self, mode: Mode) -> Task {
        self.edit(move |policy| policy.mode = mode)
    }

    /// The limits that end its restarts, instead of those of its rule set.
    pub fn limits(self, limits: impl Into<Vec<Limit>>) -> Task {
        let limits = limits.into();
        self.edit(|policy| policy.limits = limits)
    }

    /// How long a run may take to end after it has been asked to, before it is aborted. Zero aborts
    /// at once: right for a task that does not look at [`Context::stopped`].
    pub fn stop_timeout(self, span: Duration) -> Task {
        self.edit(move |policy| policy.stop_timeout = span)
    }

    /// Changes the policy: the one it was given, else the supervisor's.
    pub fn edit(mut self, change: impl FnOnce(&mut Policy) + Send + 'static) -> Task {
        match &mut self.policy {
            Some(policy) => change(Arc::make_mut(policy)),
            None => self.edits.push(Box::new(change)),
        }
        self
    }

    /// It starts when these are ready.
    pub fn after<N: Into<Box<str>>>(mut self, names: impl IntoIterator<Item = N>) -> Task {
        self.after.extend(names.into_iter().map(Into::into));
        self
    }

    /// What its group does when this task has to be restarted, instead of the group's own strategy.
    pub fn strategy(mut self, strategy: Strategy) -> Task {
        self.strategy = Some(strategy);
        self
    }

    /// It is restarted only while it has something left to spend. Asked after each run, by the
    /// supervisor itself: the answer has to come at once.
    pub fn solvent_while(mut self, purse: impl Fn() -> bool + Send + Sync + 'static) -> Task {
        self.purse = Some(Arc::new(purse));
        self
    }
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task").field("name", &self.name).finish_non_exhaustive()
    }
}

/// An ordered set of tasks and groups with a strategy and a budget. Members start in order and stop
/// in reverse.
///
/// ```
/// use defib_tasks::{Group, Strategy, Task};
///
/// let group = Group::new("pipeline", Strategy::RestForOne)
///     .task(Task::new("ingest", |context| async move { context.stopped().await }))
///     .task(Task::new("publish", |context| async move { context.stopped().await }));
/// ```
#[derive(Debug)]
#[must_use = "a group does nothing before it is given to a supervisor"]
pub struct Group {
    pub(crate) name: Box<str>,
    pub(crate) strategy: Strategy,
    pub(crate) budget: Option<Limit>,
    pub(crate) members: Vec<Member>,
}

#[derive(Debug)]
pub(crate) enum Member {
    Task(Task),
    Group(Group),
}

impl Group {
    /// A group without members, with a budget of five restarts in any 60 s.
    pub fn new(name: impl Into<Box<str>>, strategy: Strategy) -> Group {
        Group {
            name: name.into(),
            strategy,
            budget: Some(GroupSpec::DEFAULT_BUDGET),
            members: Vec::new(),
        }
    }

    /// Adds a task behind the members it has.
    pub fn task(mut self, task: Task) -> Group {
        self.members.push(Member::Task(task));
        self
    }

    /// Adds a group behind the members it has.
    pub fn group(mut self, group: Group) -> Group {
        self.members.push(Member::Group(group));
        self
    }

    /// How many restarts it may make before it has failed; nothing is no bound.
    pub fn budget(mut self, budget: impl Into<Option<Limit>>) -> Group {
        self.budget = budget.into();
        self
    }
}
