//! Who looks at tasks, and who waits for something to become of them.

use defib_core::record::WaitReason;
use defib_core::{AgentId, Reason, State};
use tokio::sync::watch;

use super::{Driver, Reply, answer_to};
use crate::sight::{Sight, is_at_rest};

/// Somebody who waits.
pub(super) enum Waiter {
    /// Until these have become what they were asked to.
    Settled { agents: Vec<AgentId>, reply: Reply<()> },
    /// Until every task is at rest.
    Rest { reply: Reply<()> },
}

impl Driver {
    pub(super) fn sight(&self, agent: AgentId) -> Sight {
        let seen = self.core.sight(agent);
        let entry = self.entries.get(agent.index()).and_then(Option::as_ref);
        Sight {
            state: seen.state,
            reason: seen.reason,
            run: seen.run.map_or(0, |run| run.0),
            restarts: seen.restarts,
            next_at: seen.next_at.map(|next| self.clock.instant(next)),
            last_death: entry.and_then(|entry| entry.last_death.clone()),
        }
    }

    pub(super) fn sights(&self) -> Vec<(String, Sight)> {
        self.core.declared().map(|(agent, name)| (name.to_string(), self.sight(agent))).collect()
    }

    pub(super) fn watch(&mut self, agent: AgentId) -> watch::Receiver<Sight> {
        let sight = self.sight(agent);
        let sender = self.watched.entry(agent).or_insert_with(|| watch::channel(sight).0);
        sender.subscribe()
    }

    /// Something has changed about a task.
    pub(super) fn notice(&mut self, agent: AgentId) {
        let at_rest = is_at_rest(self.core.sight(agent).state);
        if let Some(entry) = self.entry(agent)
            && entry.at_rest != at_rest
        {
            entry.at_rest = at_rest;
            if at_rest {
                self.restless -= 1;
            } else {
                self.restless += 1;
            }
        }
        if !self.watched.contains_key(&agent) {
            return;
        }
        let sight = self.sight(agent);
        if let Some(sender) = self.watched.get(&agent) {
            if sender.is_closed() {
                self.watched.remove(&agent);
            } else {
                sender.send_if_modified(|seen| {
                    let differs = *seen != sight;
                    *seen = sight;
                    differs
                });
            }
        }
    }

    pub(super) fn wait_until_settled(&mut self, agents: Vec<AgentId>, reply: Reply<()>) {
        self.waiters.push(Waiter::Settled { agents, reply });
        self.answer_those_who_wait();
    }

    pub(super) fn wait_for_rest(&mut self, reply: Reply<()>) {
        self.waiters.push(Waiter::Rest { reply });
        self.answer_those_who_wait();
    }

    /// Answers everybody whose time has come. What has still to be told to the core may change that.
    pub(super) fn answer_those_who_wait(&mut self) {
        if self.waiters.is_empty() || !self.news.is_empty() {
            return;
        }
        let core = &self.core;
        let unsettled = |agent: &AgentId| {
            let sight = core.sight(*agent);
            match sight.state {
                State::Starting | State::Stopping => true,
                State::Waiting => sight.reason == Some(Reason::Wait(WaitReason::Dependency)),
                State::Idle
                | State::Running
                | State::Backoff
                | State::Stopped
                | State::Done
                | State::Halted
                | State::CrashedOut => false,
            }
        };
        let restless = self.restless > 0;
        let (waiting, answered): (Vec<Waiter>, Vec<Waiter>) =
            self.waiters.drain(..).partition(|waiter| match waiter {
                Waiter::Settled { agents, .. } => agents.iter().any(unsettled),
                Waiter::Rest { .. } => restless,
            });
        self.waiters = waiting;
        for Waiter::Settled { reply, .. } | Waiter::Rest { reply } in answered {
            answer_to(reply, Ok(()));
        }
    }
}
