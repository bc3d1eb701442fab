//! What is going to happen, in the order of its moments; of two at one moment, the older one first.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use defib_core::RunId;

use super::clock::Moment;
use super::forest::Slot;
use super::plan::Odd;
use super::weather::Fault;

/// Why a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// As it had planned.
    Own,
    /// It was asked to.
    Asked,
    /// It was killed.
    Killed,
}

/// Something that is going to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The host says that the run exists.
    Spawned(Slot, RunId),
    /// The run says that it is ready.
    Ready(Slot, RunId),
    /// The run beats.
    Beat(Slot, RunId),
    /// The run does something.
    Active(Slot, RunId),
    /// The run does something out of the ordinary.
    Odd(Slot, RunId, Odd),
    /// The process ends.
    Ends(Slot, RunId, End),
    /// An exit report arrives, perhaps for the second time.
    Report(Slot, RunId, bool),
    /// A fault that comes by itself.
    Fault(Fault),
    /// A daemon comes up, if there is none.
    DaemonUp,
    /// In a calm world: what only ends when told is told.
    Relief,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    at: Moment,
    number: u64,
    event: Event,
}

impl Ord for Entry {
    /// The earliest is the greatest, because a heap gives its greatest first.
    fn cmp(&self, other: &Entry) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What is going to happen.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Entry>,
    number: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, at: Moment, event: Event) {
        self.number += 1;
        self.heap.push(Entry { at, number: self.number, event });
    }

    /// When the next thing happens.
    pub(crate) fn next(&self) -> Option<Moment> {
        self.heap.peek().map(|entry| entry.at)
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.heap.pop().map(|entry| entry.event)
    }
}
