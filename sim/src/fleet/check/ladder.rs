//! Invariant 12: a run is asked before it is killed, and has its `stop_timeout` in between.
//!
//! What counts is the signal that went out, not the one that was decided: a daemon that dies in
//! between has asked nobody. Only a person may skip the ladder.

use std::time::Duration;

use defib_core::{Ask, Record, RunId, What};

use super::{Checked, Invariant};
use crate::fleet::clock::{Moment, since};
use crate::fleet::forest::{Forest, Slot};

#[derive(Debug, Clone, Copy, Default)]
struct Rung {
    /// The run that was asked, when, and how long it has.
    asked: Option<(RunId, Moment, Duration)>,
    /// A person wants it killed.
    skipped: bool,
}

/// How far every stop has come.
#[derive(Debug)]
pub(crate) struct Ladder {
    rungs: Vec<Rung>,
}

impl Ladder {
    pub(crate) fn new(slots: usize) -> Ladder {
        Ladder { rungs: vec![Rung::default(); slots] }
    }

    pub(crate) fn record(&mut self, slot: Slot, record: &Record) {
        match &record.what {
            What::RunStarted { .. } => self.rungs[slot] = Rung::default(),
            What::StopRequested { kill, .. } => self.rungs[slot].skipped |= kill,
            What::RunReady
            | What::RunDied { .. }
            | What::RestartScheduled { .. }
            | What::WaitStarted { .. }
            | What::WaitEnded { .. }
            | What::LimitTripped { .. }
            | What::CrashedOut { .. }
            | What::Halted { .. }
            | What::Revived
            | What::Stopped { .. }
            | What::Rested { .. }
            | What::Escalated { .. }
            | What::GroupRestarted { .. }
            | What::HeartbeatMissed { .. } => {}
        }
    }

    /// A signal goes out.
    pub(crate) fn signal(
        &mut self,
        forest: &Forest,
        slot: Slot,
        run: RunId,
        ask: Ask,
        moment: Moment,
    ) -> Checked {
        // How long an agent has that is no longer declared is nobody's concern.
        let plant = &forest.plants[slot];
        let timeout = if plant.declared { plant.policy.stop_timeout } else { Duration::ZERO };
        let rung = &mut self.rungs[slot];
        let asked = rung.asked.filter(|(asked, ..)| *asked == run);
        match ask {
            Ask::Stop => {
                rung.asked = asked.or(Some((run, moment, timeout)));
                Ok(())
            }
            Ask::Kill if rung.skipped || timeout.is_zero() => Ok(()),
            Ask::Kill => {
                let had = asked.map(|(_, at, timeout)| (since(moment, at), timeout));
                Invariant::Ladder.check(had.is_some_and(|(had, timeout)| had >= timeout), || {
                    format!("a{slot}: run {run} is killed; it was asked and had, of: {had:?}")
                })
            }
        }
    }
}
