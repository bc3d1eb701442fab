//! The keeper: what outlives the daemon.
//!
//! It holds the live runs, the exit reports that nobody has acknowledged, what the runs said while
//! no daemon listened, the durable goals, and what a daemon leaves to its successor. It decides
//! nothing. A run is spawned once, however often that is ordered.

use std::collections::VecDeque;

use defib_core::run::ExitReport;
use defib_core::{Goal, Life, RunId};

use super::clock::Moment;
use super::forest::Slot;
use super::plan::Plan;

/// A process that lives.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) run: RunId,
    pub(crate) plan: Plan,
    /// When its spawn was decided, which may be a daemon's life before it was carried out.
    pub(crate) born: Moment,
    /// Its last beat, or its birth.
    pub(crate) beat: Moment,
    /// Whether it has beaten.
    pub(crate) beaten: bool,
    /// The last thing it did, or its birth.
    pub(crate) active: Moment,
    /// Whether it has said that it is ready.
    pub(crate) ready: bool,
}

/// What a run says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Spawned,
    Ready,
    Beat,
    Active,
    Wish,
    Overspent,
    ProbeFailed,
}

/// An exit report until somebody has acknowledged it.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) slot: Slot,
    pub(crate) run: RunId,
    pub(crate) report: ExitReport,
}

/// What is kept of one agent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    pub(crate) process: Option<Process>,
    /// The latest run that was spawned.
    pub(crate) latest: RunId,
    /// When the spawn of its latest run was decided.
    pub(crate) decided: Moment,
    /// The goal in the durable store; none was ever stored where there is nothing.
    pub(crate) goal: Option<Goal>,
    /// What the daemon's successor is to know.
    pub(crate) life: Option<Life>,
}

/// What outlives the daemon.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    pub(crate) cells: Vec<Cell>,
    pub(crate) reports: Vec<Kept>,
    /// What runs said while no daemon listened.
    pub(crate) mail: VecDeque<(Slot, RunId, Word)>,
}

impl Keeper {
    pub(crate) fn new(slots: usize) -> Keeper {
        Keeper { cells: vec![Cell::default(); slots], ..Keeper::default() }
    }

    /// The process, if it is that run and lives.
    pub(crate) fn process(&mut self, slot: Slot, run: RunId) -> Option<&mut Process> {
        self.cells[slot].process.as_mut().filter(|process| process.run == run)
    }

    /// The exit report of a run that nobody has acknowledged.
    pub(crate) fn report(&self, slot: Slot, run: RunId) -> Option<&ExitReport> {
        let kept = self.reports.iter().find(|kept| kept.slot == slot && kept.run == run)?;
        Some(&kept.report)
    }

    /// The daemon has dealt with the report.
    pub(crate) fn acknowledge(&mut self, slot: Slot, run: RunId) {
        self.reports.retain(|kept| (kept.slot, kept.run) != (slot, run));
    }

    /// The agent is gone from the supervisor, and its goal with it. Its life stays: the numbers of
    /// its runs are not to be used again.
    pub(crate) fn forget(&mut self, slot: Slot) {
        self.cells[slot].goal = None;
    }

    /// The machine went down: no process, no report and no word is left.
    pub(crate) fn lose_all_processes(&mut self) {
        for cell in &mut self.cells {
            cell.process = None;
        }
        self.reports.clear();
        self.mail.clear();
    }
}
