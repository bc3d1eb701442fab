//! What can be seen of a task.

use std::sync::Arc;
use std::time::Duration;

use defib_core::class::Kind;
use defib_core::record::What;
use defib_core::{Class, Reason, Record, State, Verdict};
use tokio::time::Instant;

/// What can be seen of a task at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    /// Its state.
    pub state: State,
    /// Why it is in it, where that is not plain.
    pub reason: Option<Reason>,
    /// The number of its latest run; zero before the first.
    pub run: u64,
    /// Its automatic restarts since it was started or revived.
    pub restarts: u32,
    /// When something will happen to it by itself.
    pub next_at: Option<Instant>,
    /// Its last death.
    pub last_death: Option<Arc<Death>>,
}

impl Sight {
    /// Whether nothing will happen to the task by itself any more.
    pub fn is_at_rest(&self) -> bool {
        is_at_rest(self.state)
    }
}

/// The end of a run, as it was judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    /// The number of the run.
    pub run: u64,
    /// What it died of.
    pub class: Class,
    /// What sort of death that is.
    pub kind: Option<Kind>,
    /// How long it lived.
    pub ran: Duration,
    /// What policy made of it.
    pub verdict: Verdict,
    /// What the run said: the error's or the panic's message.
    pub evidence: Option<Box<str>>,
}

impl Death {
    /// The death that a record tells of, if it does.
    pub(crate) fn told_by(record: &Record) -> Option<Death> {
        let run = record.run.map_or(0, |run| run.0);
        if let What::RunDied { class, kind, ran_s, verdict, evidence, .. } = &record.what {
            let (ran, evidence) = (ran_s.0, evidence.clone());
            Some(Death { run, class: *class, kind: *kind, ran, verdict: *verdict, evidence })
        } else {
            None
        }
    }
}

pub(crate) const fn is_at_rest(state: State) -> bool {
    match state {
        State::Idle | State::Stopped | State::Done | State::Halted | State::CrashedOut => true,
        State::Starting | State::Running | State::Backoff | State::Waiting | State::Stopping => {
            false
        }
    }
}
