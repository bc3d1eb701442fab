//! The state of plan 145's supervisor: what its events add up to.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use defib_core::backoff::Backoff;
use defib_core::limit::{Limit, Span, Tally};
use defib_core::record::{Cause, What};
use defib_core::rng::Jitter;
use defib_core::{Mono, Policy};
use tokio::time::Instant;

use super::CrashReason;
use crate::event::Event;

/// What the supervisor has done, under the plan's names.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SupervisorState {
    /// How often each agent was restarted in the last hour.
    pub agent_restart_counts: BTreeMap<String, u32>,
    /// When each agent was last restarted.
    pub agent_last_restart: BTreeMap<String, SystemTime>,
    /// The delay, in seconds and without jitter, before the next restart of each agent that was
    /// restarted, unless an iteration succeeds before.
    pub agent_current_backoff: BTreeMap<String, f64>,
    /// How often any agent was restarted.
    pub total_restarts: u32,
    /// How many deaths were for good: of agents that reached a limit, have no scrip left, or failed in
    /// a way after which the policy does not restart.
    pub total_permanent_deaths: u32,
    /// Why agents crashed, and how often.
    pub crash_reasons: BTreeMap<CrashReason, u32>,
    /// How long the last restart of each agent took from its death on.
    pub agent_time_to_recovery: BTreeMap<String, Duration>,
}

/// What is kept to tell the state at any moment.
#[derive(Debug)]
pub(super) struct Account {
    limit: Limit,
    backoff: Backoff,
    began: Instant,
    restarts: BTreeMap<String, Tally>,
    died_after: BTreeMap<String, Duration>,
    attempts: BTreeMap<String, u64>,
    state: SupervisorState,
}

impl Account {
    pub(super) fn under(policy: &Policy) -> Account {
        let hourly = Limit::restarts(u32::MAX, Span::Rolling(Duration::from_secs(3600)));
        Account {
            limit: policy.limits.first().copied().unwrap_or(hourly),
            backoff: policy.backoff,
            began: Instant::now(),
            restarts: BTreeMap::new(),
            died_after: BTreeMap::new(),
            attempts: BTreeMap::new(),
            state: SupervisorState::default(),
        }
    }

    pub(super) fn fold(&mut self, event: &Event) {
        let agent = event.record.agent.as_str();
        let what = &event.record.what;
        self.state.total_permanent_deaths += u32::from(what.is_permanent_death());
        if let What::RunDied { class, .. } = what {
            self.died_after.insert(agent.to_owned(), event.after);
            if let Some(reason) = CrashReason::of(*class) {
                *self.state.crash_reasons.entry(reason).or_default() += 1;
            }
        } else if let What::RestartScheduled { attempt, .. } = what {
            self.attempts.insert(agent.to_owned(), *attempt);
        } else if let What::RunStarted { cause: Cause::Restart, .. } = what {
            self.restarted(agent, event);
        }
    }

    fn restarted(&mut self, agent: &str, event: &Event) {
        let name = agent.to_owned();
        let tally = self.restarts.entry(name.clone()).or_default();
        tally.add(&self.limit, Mono::ZERO + event.after);
        let attempt = self.attempts.get(agent).copied().unwrap_or(0);
        let mut plain = Jitter::OFF;
        let next = self.backoff.delay(attempt.saturating_add(1), &mut plain);
        let died_after = self.died_after.get(agent).copied().unwrap_or(event.after);
        let state = &mut self.state;
        state.total_restarts = state.total_restarts.saturating_add(1);
        state.agent_last_restart.insert(name.clone(), event.at);
        state.agent_current_backoff.insert(name.clone(), next.as_secs_f64());
        state.agent_time_to_recovery.insert(name, event.after.saturating_sub(died_after));
    }

    /// The state now: what is older than an hour does not count.
    pub(super) fn state(&self) -> SupervisorState {
        let now = Mono::ZERO + self.began.elapsed();
        let counts = self.restarts.iter();
        let counts = counts.map(|(agent, tally)| (agent.clone(), tally.count(&self.limit, now)));
        SupervisorState { agent_restart_counts: counts.collect(), ..self.state.clone() }
    }
}
