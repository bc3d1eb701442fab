//! Supervised tasks on a paused clock: every delay is seen, none is waited for.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test says what it expects, and ends where it is wrong"
)]

mod adding;
mod celistra;
mod deaths;
mod ecology;
mod groups;
mod loops;
mod many;
mod same_as_the_core;
mod stopping;
mod storm;
mod weft;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use defib_tasks::{Builder, Event, Handle, Policy, Preset, Sight, Supervisor, What};

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A builder without jitter, so that delays are plain numbers.
pub(crate) fn plain() -> Builder {
    Supervisor::builder().jitter_seed(None)
}

/// A policy without limits and delays: whatever dies is restarted at once.
pub(crate) fn eager() -> Policy {
    Policy { limits: Vec::new(), ..Preset::Celistra.policy() }
}

/// Waits until a task looks like that.
pub(crate) async fn until(
    supervisor: &Handle,
    name: &str,
    wanted: impl FnMut(&Sight) -> bool,
) -> Sight {
    let mut sight = supervisor.watch(name).await.unwrap();
    let seen = tokio::time::timeout(secs(1_000_000), sight.wait_for(wanted)).await;
    seen.expect("it never comes to that").unwrap().clone()
}

/// Waits until every task is at rest.
pub(crate) async fn rest(supervisor: &Handle) {
    let rest = tokio::time::timeout(secs(100_000_000), supervisor.all_at_rest()).await;
    rest.expect("they never rest").unwrap();
}

/// Every event of a supervisor.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Event>>>);

impl Log {
    pub(crate) fn of(builder: Builder) -> (Builder, Log) {
        let log = Log::default();
        let kept = log.clone();
        (builder.observe(move |event| kept.0.lock().unwrap().push(event.clone())), log)
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// The tasks of which something of the kind was told since the `from`-th event, in order.
    pub(crate) fn order(&self, from: usize, wanted: impl Fn(&What) -> bool) -> Vec<String> {
        let events = self.events().split_off(from);
        let wanted = events.iter().filter(|event| wanted(&event.record.what));
        wanted.map(|event| event.record.agent.to_string()).collect()
    }

    /// The delays of the restarts that were scheduled.
    pub(crate) fn delays_ms(&self) -> Vec<u64> {
        let delay = |event: Event| match event.record.what {
            What::RestartScheduled { delay_ms, .. } => Some(delay_ms),
            _ => None,
        };
        self.events().into_iter().filter_map(delay).collect()
    }

    pub(crate) fn has(&self, wanted: impl Fn(&What) -> bool) -> bool {
        !self.order(0, wanted).is_empty()
    }
}
