//! What one agent lived through in a stretch of time: its runs, and its waits between them.
//!
//! Runs come from their table. Waits are a fold of the events from the run before the stretch on: a
//! wait that began before it is seen too, and nothing older is read.

use std::ops::ControlFlow;

use defib_core::{Name, Wall, What};
use rusqlite::params;

use crate::event::Event;
use crate::reader::{EventFilter, Reader, Take};
use crate::run::{self, Run};
use crate::trouble::HistoryError;

/// No fold goes through more events than this for each run that is shown: the newest.
const EVENTS_PER_RUN: u32 = 16;

/// What begins a wait or ends one. What an agent says and spends meanwhile is none of it, and may be
/// thousands of events a run.
const TURNS: [&str; 10] = [
    "restart-scheduled",
    "wait-started",
    "wait-ended",
    "run-started",
    "run-died",
    "crashed-out",
    "halted",
    "revived",
    "stopped",
    "rested",
];

/// Whose lifeline, and from when to when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LifelineFilter {
    /// Whose.
    pub agent: Name,
    /// Where the stretch begins.
    pub since: Wall,
    /// Where it ends.
    pub until: Wall,
    /// At most so many runs: the newest.
    pub most: u32,
}

/// What an agent lived through.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Lifeline {
    /// Its runs that touch the stretch, oldest first.
    pub runs: Vec<Run>,
    /// Its waits that touch the stretch, oldest first.
    pub waits: Vec<Wait>,
    /// Whether there were more runs than are shown.
    pub more: bool,
}

/// A stretch in which an agent was dead on purpose, or stood at a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// When it began.
    pub from: Wall,
    /// When it ended or will end, where that is known.
    pub until: Option<Wall>,
    /// For what.
    pub reason: String,
}

impl Reader {
    /// What an agent lived through.
    pub fn lifeline(&self, filter: &LifelineFilter) -> Result<Lifeline, HistoryError> {
        let LifelineFilter { agent, since, until, most } = filter;
        let columns = run::COLUMNS;
        let sql = format!(
            "SELECT {columns} FROM runs WHERE agent = ?1 AND started_ms <= ?2 \
             ORDER BY run DESC, id DESC"
        );
        let mut statement = self.connection().prepare_cached(&sql)?;
        // They come in the order of their index: what is not asked for is not read.
        let mut rows = statement.query(params![agent.as_str(), until.as_millis()])?;
        let mut found = Lifeline::default();
        // The run that the oldest wait may have begun with.
        let mut from = None;
        while let Some(row) = rows.next()? {
            let Some(run) = Run::of_row(row)? else { continue };
            from = Some(run.id);
            if run.ended_at.is_some_and(|ended| ended < *since) {
                break;
            }
            // Nobody knows how long it lived; those before it are told all the same.
            if run.ended_at.is_none() && !run.alive {
                continue;
            }
            if found.runs.len() == *most as usize {
                found.more = true;
                break;
            }
            found.runs.push(run);
        }
        found.runs.reverse();
        found.waits = self.waits(filter, from)?;
        Ok(found)
    }

    fn waits(&self, filter: &LifelineFilter, from: Option<i64>) -> Result<Vec<Wait>, HistoryError> {
        let events = EventFilter {
            // A run's number is that of the event it began with.
            after: from.and_then(|id| u64::try_from(id - 1).ok()),
            agent: Some(filter.agent.clone()),
            until: Some(filter.until),
            kinds: TURNS.map(str::to_owned).to_vec(),
            take: Take::Last(filter.most.saturating_add(2).saturating_mul(EVENTS_PER_RUN)),
            ..EventFilter::default()
        };
        let mut fold = Fold::default();
        self.each_event(&events, |event| {
            fold.add(&event);
            ControlFlow::Continue(())
        })?;
        let mut waits = fold.waits;
        waits.extend(fold.open);
        waits.retain(|wait| wait.until.is_none_or(|until| until >= filter.since));
        Ok(waits)
    }
}

/// Waits as the events add up to them.
#[derive(Default)]
struct Fold {
    waits: Vec<Wait>,
    open: Option<Wait>,
}

impl Fold {
    fn add(&mut self, event: &Event) {
        let Some(record) = event.record() else { return };
        let wait = |reason: &str, millis: Option<u64>| Wait {
            from: event.at,
            until: millis.map(|millis| event.at + std::time::Duration::from_millis(millis)),
            reason: reason.to_owned(),
        };
        match record.what {
            What::RestartScheduled { delay_ms, .. } => {
                self.close(event.at);
                self.open = Some(wait("backoff", Some(delay_ms)));
            }
            What::WaitStarted { reason, wait_ms } => {
                self.close(event.at);
                self.open = Some(wait(reason.word(), wait_ms));
            }
            What::WaitEnded { .. }
            | What::RunStarted { .. }
            | What::RunDied { .. }
            | What::CrashedOut { .. }
            | What::Halted { .. }
            | What::Revived
            | What::Stopped { .. }
            | What::Rested { .. } => self.close(event.at),
            What::RunReady
            | What::LimitTripped { .. }
            | What::StopRequested { .. }
            | What::Escalated { .. }
            | What::GroupRestarted { .. }
            | What::HeartbeatMissed { .. } => {}
        }
    }

    fn close(&mut self, at: Wall) {
        if let Some(wait) = self.open.take()
            && wait.from < at
        {
            self.waits.push(Wait { until: Some(at), ..wait });
        }
    }
}
