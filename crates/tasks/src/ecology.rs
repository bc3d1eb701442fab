//! Plan 145's supervisor for simulations: its restart policy, its state, its smart deaths.
//!
//! Agents are [loops](crate::AgentLoop). One that crashes is restarted after a growing delay with
//! its state; one that has no scrip left died a smart death, and stays dead until it is funded. The
//! decisions are the core's, under the rule set `ecology`; the state is a fold of what it told.

mod state;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use defib_core::Preset;
use defib_core::backoff::Growth;
use defib_core::limit::{Limit, Span};
use defib_core::policy::{Mode, Order, Policy, Treatment};

use crate::agent_loop::{AgentLoop, Looping};
use crate::error::Error;
use crate::supervisor::{Builder, Handle, Supervisor};
use crate::task::Task;

pub use defib_core::CrashReason;
use state::Account;
pub use state::SupervisorState;

/// When agents are restarted, how often and how soon.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "the fields are those of the plan")]
pub struct RestartPolicy {
    /// Whether they are at all.
    pub enabled: bool,
    /// How often in an hour.
    pub max_restarts: u32,
    /// The delay before the first restart.
    pub initial_backoff_seconds: f64,
    /// No delay is longer.
    pub max_backoff_seconds: f64,
    /// What each delay is multiplied by for the next.
    pub backoff_multiplier: f64,
    /// Whether after runtime errors.
    pub restart_on_error: bool,
    /// Whether after timeouts of the loop.
    pub restart_on_timeout: bool,
    /// Whether after a resource was exhausted; else that is waited for.
    pub restart_on_resource_exhaustion: bool,
}

impl Default for RestartPolicy {
    fn default() -> RestartPolicy {
        RestartPolicy {
            enabled: true,
            max_restarts: 10,
            initial_backoff_seconds: 5.0,
            max_backoff_seconds: 300.0,
            backoff_multiplier: 2.0,
            restart_on_error: true,
            restart_on_timeout: true,
            restart_on_resource_exhaustion: false,
        }
    }
}

impl RestartPolicy {
    /// The same as a policy of the core.
    pub fn policy(&self) -> Policy {
        let mut policy = Preset::Ecology.policy();
        if !self.enabled {
            policy.mode = Mode::Never;
        }
        policy.limits =
            vec![Limit::restarts(self.max_restarts, Span::Rolling(Duration::from_secs(3600)))];
        policy.backoff.growth = Growth::Exponential;
        policy.backoff.base = seconds(self.initial_backoff_seconds);
        policy.backoff.cap = seconds(self.max_backoff_seconds);
        policy.backoff.factor = self.backoff_multiplier;
        for (reason, restarts) in [
            (CrashReason::Runtime, self.restart_on_error),
            (CrashReason::Timeout, self.restart_on_timeout),
        ] {
            if !restarts {
                policy.on.extend(reason.classes().map(|class| (class, Order::Halt)));
            }
        }
        if self.restart_on_resource_exhaustion {
            for class in CrashReason::Resource.classes() {
                policy.treat(class, Treatment::FAILURE);
            }
        }
        policy
    }
}

/// The simulation's supervisor: agents by their ids, all under one policy.
///
/// ```
/// use defib_tasks::ecology::{AgentSupervisor, RestartPolicy};
/// use defib_tasks::{AgentLoop, Context, Failure, Looping, Next};
///
/// struct Forager;
///
/// impl AgentLoop for Forager {
///     type State = Vec<u32>;
///     type Error = Failure;
///
///     async fn iterate(&mut self, memory: &mut Vec<u32>, _: &Context) -> Result<Next, Failure> {
///         memory.push(1);
///         if memory.len() == 3 { Err(Failure::new("a bug")) } else { Ok(Next::Shutdown) }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), defib_tasks::Error> {
/// let supervisor = AgentSupervisor::start(RestartPolicy::default())?;
/// let looping = Looping::new(vec![1, 1], || Forager).pause_after(1);
/// supervisor.spawn("forager", looping, || 100.0).await?;
/// supervisor.handle().all_at_rest().await?;
/// assert_eq!(supervisor.state().total_restarts, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AgentSupervisor {
    supervisor: Supervisor,
    policy: Arc<Policy>,
    account: Arc<Mutex<Account>>,
}

impl AgentSupervisor {
    /// Starts a supervisor of no agents, on the runtime that the caller is in.
    pub fn start(policy: RestartPolicy) -> Result<AgentSupervisor, Error> {
        AgentSupervisor::start_with(policy, Supervisor::builder())
    }

    /// Starts it with what a builder says: for instance a bound on the restarts of the whole
    /// simulation, or somebody who listens to the events.
    pub fn start_with(policy: RestartPolicy, builder: Builder) -> Result<AgentSupervisor, Error> {
        let policy = Arc::new(policy.policy());
        let account = Arc::new(Mutex::new(Account::under(&policy)));
        let kept = account.clone();
        let supervisor = builder
            .observe(move |event| {
                kept.lock().unwrap_or_else(PoisonError::into_inner).fold(event);
            })
            .start()?;
        Ok(AgentSupervisor { supervisor, policy, account })
    }

    /// Adds an agent and starts its loop. `scrip` is what it owns: at zero or below it is not
    /// restarted. It is asked after each run and has to answer at once.
    pub async fn spawn<L: AgentLoop>(
        &self,
        agent_id: &str,
        looping: Looping<L>,
        scrip: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let task = Task::looping(agent_id, looping)
            .policy(self.policy.clone())
            .solvent_while(move || scrip() > 0.0);
        self.supervisor.add(task).await
    }

    /// The numbers, now.
    pub fn state(&self) -> SupervisorState {
        self.account.lock().unwrap_or_else(PoisonError::into_inner).state()
    }

    /// What can be asked of it: to stop, start, fund, look at and end agents.
    pub fn handle(&self) -> Handle {
        self.supervisor.handle()
    }
}

/// A span that a document states in seconds; what is no span is none.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
