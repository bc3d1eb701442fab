//! Whether everything is to end, and who has changed their mind about it.
//!
//! There are two ways to end everything. A person who takes all of it down (`down --all`) may want some
//! of it up again before it has ended: then the daemon goes on. A keeper that was told to end, ends.

use defib_core::{AgentId, Goal};
use defib_host::protocol::Request;

use super::Engine;
use super::ask::{Failed, failed};
use super::inheritance::CLOSING;
use crate::wire::{Closing, ErrorCode};

impl Engine {
    /// Whether all has ended that was to end. This is also where a daemon notices that comes after one
    /// that was killed between taking an `up` and saying that nothing is to end any more.
    pub(super) fn has_closed(&mut self) -> bool {
        if self.closing && self.wanted_again().is_some() {
            self.reopen();
        }
        // The goals are on disk first, or the disk has refused them.
        self.closing && self.pending.is_empty() && self.is_all_down()
    }

    /// Somebody wants something up again: nothing ends but what is stopped by name, and every project
    /// stays known.
    pub(super) fn reopen(&mut self) {
        if !self.closing || self.supervisor.is_closing() {
            return;
        }
        self.closing = false;
        self.withdrawn.clear();
        self.send(&Request::Keep { key: CLOSING.to_owned(), bytes: Vec::new() });
    }

    /// What was told to end begins nothing any more, and says so: nobody is to wait in vain.
    pub(super) fn check_goes_on(&self) -> Result<(), Failed> {
        if !self.supervisor.is_closing() {
            return Ok(());
        }
        let message = "the daemon is ending, and begins nothing any more".to_owned();
        let hint = "`defib up` brings it back once it has ended".to_owned();
        Err(failed(ErrorCode::Ending, message, Some(hint)))
    }

    /// Whether everything is to end, for whoever waits for that.
    pub(super) fn closing(&self) -> Closing {
        let wanted = self.wanted_again();
        let closing = self.closing && wanted.is_none();
        let turned_back =
            (!closing).then(|| wanted.map_or_else(wanted_anyway, |id| self.turned_back(id)));
        Closing { closing, turned_back }
    }

    /// The first agent that somebody wants up, unless the keeper was told to end: that leaves the goals
    /// as they are.
    fn wanted_again(&self) -> Option<AgentId> {
        if self.supervisor.is_closing() {
            return None;
        }
        let mut ids = self.supervisor.declared().map(|(id, _)| id);
        ids.find(|id| self.supervisor.goal(*id) == Goal::Up)
    }
}

/// The daemon goes on, though no agent is to be up.
fn wanted_anyway() -> Failed {
    let message = "the daemon was wanted again meanwhile".to_owned();
    let hint = "`defib status` shows what is there".to_owned();
    failed(ErrorCode::Failed, message, Some(hint))
}
