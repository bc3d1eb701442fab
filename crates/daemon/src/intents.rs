//! Stores intents on a thread, so that the engine does not wait for the disk.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use defib_history::{History, HistoryError, Intent};

use crate::wire::{ErrorCode, ErrorDetail};

/// Called with the outcome: whether the intents are on disk.
type Then = Box<dyn FnOnce(Result<(), HistoryError>) + Send>;

/// A thread that stores intents in order and reports when they are on disk.
#[derive(Debug, Clone)]
pub(crate) struct IntentDesk {
    orders: Sender<(Vec<Intent>, Then)>,
}

/// The result of a change that takes effect even if the disk does not take it.
#[derive(Debug)]
pub(crate) struct Done<T> {
    pub(crate) value: T,
    /// Whether the change is on disk. If it is not, the daemon keeps trying to store it.
    pub(crate) stored: Result<(), HistoryError>,
}

impl IntentDesk {
    /// Starts the thread.
    pub(crate) fn start(history: Arc<History>) -> io::Result<IntentDesk> {
        let (orders, inbox) = channel::<(Vec<Intent>, Then)>();
        thread::Builder::new().name("intents".to_owned()).spawn(move || {
            while let Ok((mut intents, then)) = inbox.recv() {
                let mut thens = vec![then];
                // Orders that came meanwhile share the same commit.
                while let Ok((more, then)) = inbox.try_recv() {
                    intents.extend(more);
                    thens.push(then);
                }
                let outcome = if intents.is_empty() {
                    history.settle_intents()
                } else {
                    history.store_intents(intents.clone())
                };
                // A failing disk must not keep a stop from being carried out: the caller learns of
                // the failure, and the history tries again.
                if outcome.is_err() {
                    history.store_later(intents);
                }
                for then in thens {
                    then(outcome.clone());
                }
            }
        })?;
        Ok(IntentDesk { orders })
    }

    /// Stores intents, then calls `then` with the outcome. Without intents the outcome is that of
    /// everything that was to be stored before.
    pub(crate) fn store(
        &self,
        intents: Vec<Intent>,
        then: impl FnOnce(Result<(), HistoryError>) + Send + 'static,
    ) {
        // The desk ends only with the process.
        let _ = self.orders.send((intents, Box::new(then)));
    }
}

/// The error for a change that is in effect and could not be stored.
pub(crate) fn in_effect_unstored(change: &str, why: &HistoryError) -> ErrorDetail {
    let message = format!(
        "{change} took effect, but it is not stored: {why}. If defib ends before it is stored, the \
         change is lost"
    );
    let hint = "free space in the home folder, then repeat the command; defib also keeps trying";
    ErrorDetail { code: ErrorCode::NotStored, message, hint: Some(hint.to_owned()) }
}

/// The error for a change that was refused because it could not be stored.
pub(crate) fn refused_unstored(change: &str, why: impl std::fmt::Display) -> ErrorDetail {
    let message = format!("{change} was not done, because it cannot be stored: {why}");
    let hint = "free space in the home folder, then repeat the command".to_owned();
    ErrorDetail { code: ErrorCode::NotStored, message, hint: Some(hint) }
}
