//! Invariant 1, where a spawn is ordered: the agent has no live run and the number is a new one.

use defib_core::RunId;

use super::{Checked, Invariant};
use crate::fleet::forest::Slot;
use crate::fleet::keeper::Keeper;

/// A spawn is ordered. Says whether it is one that the host knows already: of a run that lives, or
/// of one whose end it still has to report.
pub(crate) fn spawn(keeper: &Keeper, slot: Slot, run: RunId) -> Result<bool, super::Breach> {
    let cell = &keeper.cells[slot];
    if cell.process.is_none() && keeper.report(slot, run).is_some() {
        return Ok(true);
    }
    if let Some(process) = &cell.process {
        only(process.run == run, || {
            format!("a{slot}: run {run} is ordered while run {} lives", process.run)
        })?;
        return Ok(true);
    }
    only(run > cell.latest, || {
        format!("a{slot}: run {run} is ordered, and run {} was there before", cell.latest)
    })?;
    Ok(false)
}

fn only(holds: bool, what: impl FnOnce() -> String) -> Checked {
    Invariant::OneRun.check(holds, what)
}
