//! Telling people: who is told of what, when, and by which way.
//!
//! `account` decides, on events and a time that it is handed; `deliver` makes one attempt; the
//! `herald` is the thread between them. Nothing here is waited for by the engine: the herald listens
//! to the events like any watcher, and reads in the history what it was too slow for.
//!
//! Nothing that was decided is lost with the daemon (ADR 8). A message is on disk before it goes out
//! and until it has arrived, and an account knows up to which event it has heard: the next daemon
//! reads on from there. So a message may arrive twice, with the same id, and none goes missing.

mod account;
mod deliver;
mod herald;
mod mail;
mod message;
mod standing;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use defib_core::Name;
use tokio::sync::{mpsc, oneshot, watch};

pub(crate) use deliver::Channel;
pub(crate) use herald::{Call, Herald, is_ours};

use crate::wire::{ChannelFailure, ChannelStatus, ChannelTest};

/// The channels of every project that is up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Roll {
    pub(crate) channels: Vec<Arc<Channel>>,
    /// From which event on a channel is told that nobody has heard of before. Nothing where it may
    /// have been declared to a daemon before us: then from when a config was last applied.
    pub(crate) since: Option<u64>,
}

/// The way to the herald.
#[derive(Debug, Clone)]
pub(crate) struct Heralds {
    call: mpsc::UnboundedSender<Call>,
    channels: watch::Receiver<Vec<ChannelStatus>>,
}

impl Heralds {
    /// How the channels are, as far as the herald has come.
    pub(crate) fn channels(&self) -> Vec<ChannelStatus> {
        self.channels.borrow().clone()
    }

    /// The messages of a project that have not arrived: the channels by which nobody can be told of its
    /// agents at present.
    pub(crate) fn failing(&self, project: &Name) -> Vec<ChannelFailure> {
        let channels = self.channels.borrow();
        let of_it = channels.iter().filter(|channel| channel.project == *project);
        of_it.filter_map(|channel| channel.failure.clone()).collect()
    }

    /// Sends a test message through every channel, or those of a name, and says what came of it.
    pub(crate) async fn test(&self, name: Option<String>) -> Vec<ChannelTest> {
        let (answer, answered) = oneshot::channel();
        // The herald ends only with the process.
        let _ = self.call.send(Call { name, answer });
        answered.await.unwrap_or_default()
    }
}
