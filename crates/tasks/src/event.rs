//! Everything that was decided, as it is decided.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use defib_core::time::Mono;
use defib_core::{Now, Record};
use futures_core::Stream;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::clock::system_time;

/// One thing that was decided or has happened, with the numbers behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its number, from 1, without gaps.
    pub seq: u64,
    /// When.
    pub at: SystemTime,
    /// How long after the start of the supervisor.
    pub after: Duration,
    /// Whom it is about, and what.
    pub record: Record,
}

impl Event {
    pub(crate) fn new(seq: u64, now: Now, record: Record) -> Event {
        Event { seq, at: system_time(now.wall), after: now.mono.since(Mono::ZERO), record }
    }
}

/// Events as they come, a [`Stream`].
///
/// A supervisor never waits for who listens: where a listener is slow and its room is full, it
/// misses what comes then. [`Events::missed`] says how much, and so does a gap in `seq`.
#[derive(Debug)]
pub struct Events {
    receiver: Receiver<Event>,
    missed: Arc<AtomicU64>,
}

impl Events {
    /// The next event; nothing when the supervisor has ended.
    pub async fn next(&mut self) -> Option<Event> {
        self.receiver.recv().await
    }

    /// The next event if there is one already.
    pub fn try_next(&mut self) -> Option<Event> {
        self.receiver.try_recv().ok()
    }

    /// How many events there was no room for.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Event>> {
        self.receiver.poll_recv(task)
    }
}

/// The supervisor's end of [`Events`].
#[derive(Debug)]
pub(crate) struct Listener {
    sender: Sender<Event>,
    missed: Arc<AtomicU64>,
}

impl Listener {
    /// A listener with room for so many events, at least one.
    pub(crate) fn with_room(room: usize) -> (Listener, Events) {
        let (sender, receiver) = channel(room.max(1));
        let missed = Arc::new(AtomicU64::new(0));
        (Listener { sender, missed: missed.clone() }, Events { receiver, missed })
    }

    /// Tells the listener. Says whether it still listens.
    pub(crate) fn tell(&self, event: &Event) -> bool {
        match self.sender.try_send(event.clone()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.missed.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(TrySendError::Closed(_)) => false,
        }
    }
}
