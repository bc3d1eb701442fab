//! What waits to be written: bounded, in order, and honest about what it had to drop.
//!
//! Pushing never waits. When there is no room the oldest go, because the newest say what is the case;
//! in their place stands a gap that says how many they were and that takes the number of the first
//! of them, so that the account tells of its own hole where the hole is.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::event::{Event, Stamp};
use crate::postmortem::PostMortem;

/// What was lost since the history was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost {
    /// Events that were never stored.
    pub events: u64,
    /// Post-mortems that were stored without their tail, or not at all.
    pub post_mortems: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Entry {
    Event(Arc<Event>),
    PostMortem(PostMortem),
    Gap(Gap),
}

/// Entries that were dropped, next to one another.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gap {
    /// The first event among them, and the number of the last; nothing where there is none.
    span: Option<(Stamp, u64)>,
    events: u64,
}

#[derive(Debug)]
pub(crate) struct Queue {
    entries: VecDeque<Entry>,
    max_entries: usize,
    tail_bytes: usize,
    max_tail_bytes: usize,
    lost: Lost,
    /// How many entries were dropped; gaps themselves are none.
    dropped: u64,
}

impl Queue {
    pub(crate) fn new(max_entries: usize, max_tail_bytes: usize) -> Queue {
        Queue {
            entries: VecDeque::new(),
            // A gap and the entry after it must fit.
            max_entries: max_entries.max(2),
            tail_bytes: 0,
            max_tail_bytes,
            lost: Lost::default(),
            dropped: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn lost(&self) -> Lost {
        self.lost
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Adds the newest entry.
    pub(crate) fn push(&mut self, entry: Entry) {
        self.tail_bytes += entry.tail_bytes();
        self.entries.push_back(entry);
        self.trim();
    }

    /// Takes everything out.
    pub(crate) fn take(&mut self) -> VecDeque<Entry> {
        self.tail_bytes = 0;
        std::mem::take(&mut self.entries)
    }

    /// Puts back what was taken and could not be written, before all that came since.
    pub(crate) fn put_back(&mut self, mut batch: VecDeque<Entry>) {
        self.tail_bytes += batch.iter().map(Entry::tail_bytes).sum::<usize>();
        batch.append(&mut self.entries);
        self.entries = batch;
        self.trim();
    }

    /// Drops everything, because there will be no further attempt.
    pub(crate) fn abandon(&mut self) {
        while let Some(entry) = self.pop() {
            self.count(&entry);
        }
    }

    fn trim(&mut self) {
        if self.tail_bytes > self.max_tail_bytes {
            self.drop_tails();
        }
        if self.entries.len() <= self.max_entries {
            return;
        }
        let mut gap = Gap { span: None, events: 0 };
        // One place is for the gap itself.
        while self.entries.len() >= self.max_entries {
            let Some(entry) = self.pop() else { break };
            self.count(&entry);
            gap.swallow(entry);
        }
        self.entries.push_front(Entry::Gap(gap));
    }

    /// Drops the oldest tails until half of the room is free, so that this is not done at each push.
    fn drop_tails(&mut self) {
        for entry in &mut self.entries {
            if self.tail_bytes <= self.max_tail_bytes / 2 {
                break;
            }
            if let Entry::PostMortem(found) = entry
                && let Some(tail) = found.tail.take()
            {
                self.tail_bytes -= tail.len();
                self.lost.post_mortems += 1;
            }
        }
    }

    fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.tail_bytes -= entry.tail_bytes();
        Some(entry)
    }

    fn count(&mut self, entry: &Entry) {
        let lost = match entry {
            Entry::Event(_) => &mut self.lost.events,
            Entry::PostMortem(_) => &mut self.lost.post_mortems,
            Entry::Gap(_) => return,
        };
        *lost += 1;
        self.dropped += 1;
    }
}

impl Entry {
    fn tail_bytes(&self) -> usize {
        match self {
            Entry::PostMortem(found) => found.tail.as_ref().map_or(0, Vec::len),
            Entry::Event(_) | Entry::Gap(_) => 0,
        }
    }
}

impl Gap {
    fn swallow(&mut self, entry: Entry) {
        let (span, events) = match entry {
            Entry::Event(event) => {
                let Event { seq, mono, at, boot, .. } = &*event;
                let now = defib_core::Now { mono: *mono, wall: *at };
                let stamp = Stamp { seq: *seq, now, boot: boot.clone(), project: None };
                (Some((stamp, *seq)), 1)
            }
            Entry::Gap(gap) => (gap.span, gap.events),
            Entry::PostMortem(_) => return,
        };
        self.events += events;
        if let Some((first, last)) = span {
            let first = self.span.take().map_or(first, |(first, _)| first);
            self.span = Some((first, last));
        }
    }

    /// The event that tells of it; nothing where no event was lost.
    pub(crate) fn event(&self) -> Option<Event> {
        let (first, last) = self.span.as_ref()?;
        Some(Event::gap(first.clone(), self.events, *last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use defib_core::{Name, Now, RunId};
    use serde_json::Map;

    fn event(seq: u64) -> Entry {
        let stamp = Stamp { seq, now: Now::default(), boot: "b".into(), project: None };
        Entry::Event(Arc::new(Event::new(stamp, "notified", None, None, Map::new())))
    }

    fn numbers(entries: &VecDeque<Entry>) -> Vec<String> {
        let shown = |entry: &Entry| match entry {
            Entry::Event(event) => event.seq.to_string(),
            Entry::PostMortem(_) => "p".into(),
            Entry::Gap(gap) => gap.event().map_or("gap".into(), |event| {
                format!(
                    "{}..{}:{}",
                    event.seq,
                    event.body.entries()["last_seq"],
                    event.body.entries()["events"]
                )
            }),
        };
        entries.iter().map(shown).collect()
    }

    #[test]
    fn the_oldest_go_first_and_a_gap_stands_where_they_were() {
        let mut queue = Queue::new(4, 0);
        (1..=9).for_each(|seq| queue.push(event(seq)));
        assert_eq!(queue.lost().events, 6);
        assert_eq!(numbers(&queue.take()), ["1..6:6", "7", "8", "9"]);
    }

    #[test]
    fn a_batch_put_back_stands_before_what_came_since_and_gaps_stay_in_order() {
        let mut queue = Queue::new(4, 0);
        (1..=3).for_each(|seq| queue.push(event(seq)));
        let batch = queue.take();
        (4..=6).for_each(|seq| queue.push(event(seq)));
        queue.put_back(batch);
        assert_eq!(numbers(&queue.take()), ["1..3:3", "4", "5", "6"]);
        assert_eq!((queue.lost().events, queue.dropped()), (3, 3));
    }

    #[test]
    fn a_gap_inside_the_queue_is_swallowed_by_the_one_before_it() {
        let mut queue = Queue::new(4, 0);
        (1..=6).for_each(|seq| queue.push(event(seq)));
        let batch = queue.take();
        (7..=20).for_each(|seq| queue.push(event(seq)));
        queue.put_back(batch);
        assert_eq!(numbers(&queue.take()), ["1..17:17", "18", "19", "20"]);
        assert_eq!(queue.lost().events, 17);
    }

    #[test]
    fn old_tails_go_before_any_event_does() {
        let mut queue = Queue::new(100, 1000);
        for run in 1..=5 {
            queue.push(event(run));
            let mut found = PostMortem::new(Name::parse("a").unwrap(), RunId(run));
            found.tail = Some(vec![0; 300]);
            queue.push(Entry::PostMortem(found));
        }
        assert_eq!(queue.lost(), Lost { events: 0, post_mortems: 3 });
        let kept: Vec<bool> = queue
            .take()
            .iter()
            .filter_map(|entry| match entry {
                Entry::PostMortem(found) => Some(found.tail.is_some()),
                Entry::Event(_) | Entry::Gap(_) => None,
            })
            .collect();
        assert_eq!(kept, [false, false, false, true, true]);
    }
}
