//! Restart-on-crash as Celistra's document has it: five deaths in any 60 s, and it stops.
//!
//! A [`Restarter`] is for programs that supervise something of their own and want the rule alone;
//! [`AutoRestart`] is the same rule as a policy for a [`Task`](crate::Task).

use std::time::Duration;

use defib_core::limit::{Limit, Tally};
use defib_core::policy::{Mode, Order, Policy};
use defib_core::run::Status;
use defib_core::{Mono, Preset};
use tokio::time::Instant;

/// Counts deaths in a rolling window, and says whether there may be another respawn.
///
/// ```
/// use defib_tasks::celistra::Restarter;
///
/// let mut restarter = Restarter::default();
/// for _ in 0..4 {
///     restarter.record_death();
///     assert!(restarter.should_respawn());
/// }
/// restarter.record_death();
/// assert!(!restarter.should_respawn(), "the fifth death within 60 s ends it");
/// ```
#[derive(Debug, Clone)]
pub struct Restarter {
    limit: Limit,
    deaths: Tally,
    began: Instant,
}

impl Restarter {
    /// Stops at `max` deaths whose age is less than `window`.
    pub fn new(max: u32, window: Duration) -> Restarter {
        let limit = Limit::deaths(max, window);
        Restarter { limit, deaths: Tally::default(), began: Instant::now() }
    }

    /// Whether fewer than `max` deaths are in the window now.
    pub fn should_respawn(&self) -> bool {
        self.deaths() < self.limit.max
    }

    /// Something died now.
    pub fn record_death(&mut self) {
        self.deaths.add(&self.limit, self.now());
    }

    /// How many deaths are in the window now, `max` at the most.
    pub fn deaths(&self) -> u32 {
        self.deaths.count(&self.limit, self.now())
    }

    /// A person says that the cause has been put right: the window is empty again.
    pub fn reset(&mut self) {
        self.deaths.clear();
    }

    fn now(&self) -> Mono {
        Mono::ZERO + self.began.elapsed()
    }
}

/// Five deaths in 60 s.
impl Default for Restarter {
    fn default() -> Restarter {
        let AutoRestart { max_deaths, window_seconds, .. } = AutoRestart::default();
        Restarter::new(max_deaths, Duration::from_secs(window_seconds))
    }
}

/// What may be said of an agent's restarts when it is spawned.
///
/// ```
/// use defib_tasks::Task;
/// use defib_tasks::celistra::AutoRestart;
///
/// let websocket = AutoRestart { max_deaths: 30, ..AutoRestart::default() };
/// let task = Task::new("feed", |context| async move { context.stopped().await })
///     .policy(websocket.policy());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutoRestart {
    /// Whether it is respawned at all.
    pub auto_restart: bool,
    /// How many deaths in the window end it.
    pub max_deaths: u32,
    /// How long the window is.
    pub window_seconds: u64,
    /// Whether an exit with code 0 means "I want to be reborn".
    pub respawn_on_zero: bool,
}

impl Default for AutoRestart {
    fn default() -> AutoRestart {
        AutoRestart {
            auto_restart: true,
            max_deaths: 5,
            window_seconds: 60,
            respawn_on_zero: false,
        }
    }
}

impl AutoRestart {
    /// The same as a policy: no delay between respawns.
    pub fn policy(&self) -> Policy {
        let mode = match (self.auto_restart, self.respawn_on_zero) {
            (false, _) => Mode::Never,
            (true, false) => Mode::OnFailure,
            (true, true) => Mode::Always,
        };
        let limit = Limit::deaths(self.max_deaths, Duration::from_secs(self.window_seconds));
        Policy { mode, limits: vec![limit], ..Preset::Celistra.policy() }
    }

    /// Whether an end with this code is one to respawn after, as far as the window allows. Nothing
    /// is an end by a signal, or a panic.
    pub fn is_unexpected(&self, exit_code: Option<i32>) -> bool {
        let policy = self.policy();
        let status = Status::Exited(exit_code.unwrap_or(101));
        policy.order(policy.class_of(status)) == Order::Restart
    }
}
