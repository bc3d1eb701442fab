//! What happened, counted: a fold of the records, for totals and for metrics. Nothing is counted
//! anywhere else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use defib_core::record::Cause;
use defib_core::{Class, Mono, Name, Verdict, What};
use defib_history::Event;

/// Something that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Happened {
    /// A run began; by itself after a death, or not.
    Began { restart: bool },
    /// A run ended.
    Died(Class),
    /// After a death that is restarted, a run was ready again.
    Recovered(Duration),
    /// It is down until a person does something about it.
    Lost,
}

/// The types of the events that mean something here. Of the others there may be far more: what agents
/// spend is told event by event.
pub(crate) const KINDS: [&str; 8] = [
    "run-started",
    "run-died",
    "run-ready",
    "crashed-out",
    "halted",
    "stopped",
    "rested",
    "revived",
];

/// Since when those are down who will be restarted: nothing else has to be remembered.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    down: BTreeMap<Name, (Arc<str>, Mono)>,
}

impl Tally {
    /// What an event means, where it means something.
    pub(crate) fn add(&mut self, event: &Event) -> Option<Happened> {
        let record = event.record()?;
        let agent = record.agent;
        match record.what {
            What::RunStarted { cause, .. } => {
                let restart = match cause {
                    Cause::Restart | Cause::Group => true,
                    Cause::Up
                    | Cause::Wait
                    | Cause::Operator
                    | Cause::Trigger
                    | Cause::Revive
                    | Cause::Fund => false,
                };
                Some(Happened::Began { restart })
            }
            What::RunDied { class, verdict, .. } => {
                match verdict {
                    // One that dies again before it was ready has been down since the first time.
                    Verdict::Restart => {
                        let since = (event.boot.clone(), event.mono);
                        self.down.entry(agent).or_insert(since);
                    }
                    Verdict::Wait
                    | Verdict::Rest
                    | Verdict::Halt
                    | Verdict::CrashOut
                    | Verdict::Escalate => drop(self.down.remove(&agent)),
                }
                Some(Happened::Died(class))
            }
            What::RunReady => {
                let (boot, since) = self.down.remove(&agent)?;
                // Clocks of two boots have nothing to do with one another.
                (boot == event.boot).then(|| Happened::Recovered(event.mono.since(since)))
            }
            what @ (What::CrashedOut { .. }
            | What::Halted { .. }
            | What::Stopped { .. }
            | What::Rested { .. }
            | What::Revived) => {
                self.down.remove(&agent);
                what.is_permanent_death().then_some(Happened::Lost)
            }
            What::RestartScheduled { .. }
            | What::WaitStarted { .. }
            | What::WaitEnded { .. }
            | What::LimitTripped { .. }
            | What::StopRequested { .. }
            | What::Escalated { .. }
            | What::GroupRestarted { .. }
            | What::HeartbeatMissed { .. } => None,
        }
    }
}
