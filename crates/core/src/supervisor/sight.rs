//! What can be seen of an agent: its state, in the words that people and scripts know.

use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::Supervisor;
use crate::agent::{Phase, Sign};
use crate::class::Class;
use crate::name::{AgentId, RunId};
use crate::record::{Trip, WaitReason};
use crate::time::Mono;

/// The state of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Declared, its trigger not yet come.
    Idle,
    /// A run has been ordered and is not ready.
    Starting,
    /// A run is ready.
    Running,
    /// A respawn is due at a known time.
    Backoff,
    /// Held until a moment or an event.
    Waiting,
    /// A run is ending.
    Stopping,
    /// At rest because somebody said so, or after a failure that is not to be restarted.
    Stopped,
    /// At rest because it has finished.
    Done,
    /// At rest until something has been put right.
    Halted,
    /// At rest until it is revived.
    CrashedOut,
}

impl State {
    /// The word by which JSON and people call it.
    pub const fn word(self) -> &'static str {
        match self {
            State::Idle => "idle",
            State::Starting => "starting",
            State::Running => "running",
            State::Backoff => "backoff",
            State::Waiting => "waiting",
            State::Stopping => "stopping",
            State::Stopped => "stopped",
            State::Done => "done",
            State::Halted => "halted",
            State::CrashedOut => "crashed-out",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Why an agent is in its state, where that is not plain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// What it waits for.
    Wait(WaitReason),
    /// It failed and is not to be restarted.
    Failed,
    /// What has to be put right.
    Halt(Class),
    /// What ended its restarts.
    Trip(Trip),
}

/// What can be seen of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sight {
    /// Its state.
    pub state: State,
    /// Why it is in it.
    pub reason: Option<Reason>,
    /// Its latest run.
    pub run: Option<RunId>,
    /// Its own automatic restarts since `up` or `revive`.
    pub restarts: u32,
    /// When something will happen to it by itself.
    pub next_at: Option<Mono>,
}

impl Sight {
    /// An agent of which nothing is known but that it is declared.
    pub const NEW: Sight =
        Sight { state: State::Idle, reason: None, run: None, restarts: 0, next_at: None };
}

impl Supervisor {
    /// The run of an agent that is not over, if there is one.
    pub fn live_run(&self, id: AgentId) -> Option<RunId> {
        self.life(id).phase.run().map(|run| run.id)
    }

    /// Whether an agent's run has printed the record that ends its work, and lives.
    pub fn has_finished(&self, id: AgentId) -> bool {
        self.life(id).phase.run().is_some_and(|run| run.finished.is_some())
    }

    /// How long ago an agent's run last beat, or began, where beats are asked of it or have come.
    pub fn beat_age(&self, id: AgentId, now: Mono) -> Option<Duration> {
        let run = self.life(id).phase.run()?;
        let asked = self.policy(id).heartbeat.is_some();
        (asked || run.sign == Sign::Beat).then(|| now.since(run.silent_since))
    }

    /// What can be seen of an agent.
    ///
    /// # Panics
    /// If the id is of another supervisor.
    pub fn sight(&self, id: AgentId) -> Sight {
        let life = self.life(id);
        let (state, reason, next_at) = match &life.phase {
            Phase::Idle => (State::Idle, None, None),
            Phase::Waiting { reason, until, .. } => {
                (State::Waiting, Some(Reason::Wait(*reason)), until.due())
            }
            Phase::Backoff { until, .. } => (State::Backoff, None, Some(*until)),
            Phase::Starting(_) => (State::Starting, None, None),
            Phase::Running(run) if run.prompted.is_some() => {
                (State::Waiting, Some(Reason::Wait(WaitReason::Prompt)), None)
            }
            Phase::Running(_) => (State::Running, None, None),
            Phase::Stopping { .. } => (State::Stopping, None, None),
            Phase::Stopped { failed } => (State::Stopped, failed.then_some(Reason::Failed), None),
            Phase::Done => (State::Done, None, None),
            Phase::Halted(class) => (State::Halted, Some(Reason::Halt(*class)), None),
            Phase::CrashedOut(trip) => (State::CrashedOut, Some(Reason::Trip(*trip)), None),
        };
        let run = (life.last_run.0 > 0).then_some(life.last_run);
        Sight { state, reason, run, restarts: life.counters.restarts, next_at }
    }
}
