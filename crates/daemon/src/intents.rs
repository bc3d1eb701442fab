//! Storing what is wanted without making the engine wait for the disk.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use defib_history::{History, Intent};

/// What is done when intents are on disk.
type Then = Box<dyn FnOnce() + Send>;

/// A thread that stores intents in the order they come and says when they are safe.
#[derive(Debug, Clone)]
pub(crate) struct IntentDesk {
    orders: Sender<(Vec<Intent>, Then)>,
}

impl IntentDesk {
    /// Starts it.
    pub(crate) fn start(history: Arc<History>) -> io::Result<IntentDesk> {
        let (orders, inbox) = channel::<(Vec<Intent>, Then)>();
        thread::Builder::new().name("intents".to_owned()).spawn(move || {
            while let Ok((mut intents, then)) = inbox.recv() {
                let mut thens = vec![then];
                // What has come meanwhile shares the same trip to the disk.
                while let Ok((more, then)) = inbox.try_recv() {
                    intents.extend(more);
                    thens.push(then);
                }
                // A disk that fails must not keep a stop from being carried out: it is said by the
                // history itself, and supervision goes on.
                if history.store_intents(intents.clone()).is_err() {
                    history.store_later(intents);
                }
                for then in thens {
                    then();
                }
            }
        })?;
        Ok(IntentDesk { orders })
    }

    /// Stores intents, then does something.
    pub(crate) fn store(&self, intents: Vec<Intent>, then: impl FnOnce() + Send + 'static) {
        // The desk ends only with the process.
        let _ = self.orders.send((intents, Box::new(then)));
    }
}
