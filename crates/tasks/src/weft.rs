//! The self-healing supervisor of `WeftOS`: its strategies, budget, tracker and supervisor.
//!
//! The fields are the documented ones and are the truth; the rules are the core's: tumbling windows,
//! the backoff of the rule set `weft`, and what its modes restart.

mod supervisor;

use std::time::{Duration, Instant};

use defib_core::limit::{Limit, Span, Tally};
use defib_core::policy::{Mode, Order, Policy};
use defib_core::rng::Jitter;
use defib_core::run::Status;
use defib_core::time::millis;
use defib_core::{Mono, Preset, Strategy};

pub use supervisor::{AgentConfig, AgentSupervisor};

/// What happens when an agent fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RestartStrategy {
    /// Restarts the failed child alone.
    #[default]
    OneForOne,
    /// Restarts all children if one fails.
    OneForAll,
    /// Restarts the failed child and all that were started after it.
    RestForOne,
    /// Does not restart: the agent stays dead. Erlang calls that *temporary*.
    Permanent,
    /// Restarts only if the exit code is not zero.
    Transient,
}

impl RestartStrategy {
    /// After which ends it restarts.
    pub const fn mode(self) -> Mode {
        match self {
            RestartStrategy::OneForOne
            | RestartStrategy::OneForAll
            | RestartStrategy::RestForOne => Mode::Always,
            RestartStrategy::Permanent => Mode::Never,
            RestartStrategy::Transient => Mode::OnFailure,
        }
    }

    /// Whom it restarts.
    pub const fn reach(self) -> Strategy {
        match self {
            RestartStrategy::OneForOne
            | RestartStrategy::Permanent
            | RestartStrategy::Transient => Strategy::OneForOne,
            RestartStrategy::OneForAll => Strategy::OneForAll,
            RestartStrategy::RestForOne => Strategy::RestForOne,
        }
    }

    /// It and a budget as a policy for a [`Task`](crate::Task).
    pub fn policy(self, budget: RestartBudget) -> Policy {
        Policy { mode: self.mode(), limits: vec![budget.limit()], ..Preset::Weft.policy() }
    }
}

/// How many restarts there may be in a window. When it is exhausted, the supervisor escalates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RestartBudget {
    /// How many restarts.
    pub max_restarts: u32,
    /// In how long a window, which begins with its first restart.
    pub within_secs: u64,
}

impl Default for RestartBudget {
    fn default() -> RestartBudget {
        RestartBudget { max_restarts: 5, within_secs: 60 }
    }
}

impl RestartBudget {
    /// The same as a limit.
    pub const fn limit(&self) -> Limit {
        let within = Duration::from_secs(self.within_secs);
        Limit::restarts(self.max_restarts, Span::Tumbling(within)).escalating()
    }
}

/// What is kept of one agent's restarts.
///
/// ```
/// use defib_tasks::weft::{RestartBudget, RestartStrategy, RestartTracker};
///
/// let budget = RestartBudget { max_restarts: 3, within_secs: 30 };
/// let mut tracker = RestartTracker::new();
/// let mut delays = Vec::new();
/// while tracker.should_restart(RestartStrategy::OneForOne, 1) && tracker.record_restart(&budget) {
///     delays.push(tracker.backoff_ms);
/// }
/// assert_eq!(delays, [100, 200, 400]);
/// assert!(tracker.is_exhausted(&budget));
/// assert_eq!(tracker.remaining(&budget), 0);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestartTracker {
    /// Restarts in the window.
    pub restart_count: u32,
    /// When the window began.
    pub window_start: Instant,
    /// When the last restart was.
    pub last_restart: Option<Instant>,
    /// The delay before the last restart; zero before the first.
    pub backoff_ms: u64,
}

impl RestartTracker {
    /// A tracker of nothing yet.
    pub fn new() -> RestartTracker {
        let window_start = now();
        RestartTracker { restart_count: 0, window_start, last_restart: None, backoff_ms: 0 }
    }

    /// Records a restart, with its delay in `backoff_ms`; says false, and records nothing, where
    /// that would exceed the budget.
    pub fn record_restart(&mut self, budget: &RestartBudget) -> bool {
        if self.is_exhausted(budget) {
            return false;
        }
        let (limit, now) = (budget.limit(), now());
        let moment = self.moment(now);
        let mut tally = self.tally();
        tally.add(&limit, moment);
        if tally.first() == Some(moment) {
            self.window_start = now;
        }
        self.restart_count = tally.count(&limit, moment);
        self.last_restart = Some(now);
        self.backoff_ms = self.next_backoff_ms();
        true
    }

    /// Whether the budget is used up. Once `within_secs` have passed it is not any more.
    pub fn is_exhausted(&self, budget: &RestartBudget) -> bool {
        self.remaining(budget) == 0
    }

    /// How many restarts are left in the window.
    pub fn remaining(&self, budget: &RestartBudget) -> u32 {
        let limit = budget.limit();
        limit.max.saturating_sub(self.tally().count(&limit, self.moment(now())))
    }

    /// `100 ms × 2^(restart_count − 1)`, 30 s at the most; 100 ms before the first restart.
    pub fn next_backoff_ms(&self) -> u64 {
        let mut plain = Jitter::OFF;
        millis(Preset::Weft.policy().backoff.delay(self.restart_count.into(), &mut plain))
    }

    /// Whether the strategy restarts after this exit code. The budget is another matter.
    pub fn should_restart(&self, strategy: RestartStrategy, exit_code: i32) -> bool {
        let policy = strategy.policy(RestartBudget::default());
        policy.order(policy.class_of(Status::Exited(exit_code))) == Order::Restart
    }

    /// What has been counted, on a clock that began with the window.
    fn tally(&self) -> Tally {
        Tally::tumbling(Mono::ZERO, self.restart_count)
    }

    fn moment(&self, now: Instant) -> Mono {
        Mono::ZERO + now.saturating_duration_since(self.window_start)
    }
}

impl Default for RestartTracker {
    fn default() -> RestartTracker {
        RestartTracker::new()
    }
}

/// The time on tokio's clock, so that tests can move it.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
