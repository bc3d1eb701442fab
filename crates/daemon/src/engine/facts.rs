//! Ranks what is known of agents by event number: of two facts the newer one counts.
//!
//! After a reboot three files tell how agents rested: the intents (lives, as of one event number, the
//! mark), the history and the journal. Any of them may be behind. Stored lives hold everything up to
//! the mark, so only events after the mark change them, whichever file has these events.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use defib_core::{Goal, Life, Name, Record, RunId, What};
use defib_history::{Event, EventFilter, History, Intent, Intents, Reader};

use super::drain::ends_rest;

/// The key of the event number that the stored lives are as of.
const MARK: &str = "lives-as-of";
/// Number of events after which the mark is stored, even if no agent came to rest.
pub(super) const MARK_EVERY: u64 = 4096;

/// Stores that the lives on disk are as of this event.
pub(super) fn mark(seq: u64) -> Intent {
    Intent::Keep { key: MARK.to_owned(), value: seq.to_string() }
}

/// The event number that the stored lives are as of. None: an older build stored them.
pub(super) fn marked(intents: &Intents) -> Option<u64> {
    intents.kept.get(MARK)?.parse().ok()
}

/// The records among events, by event number.
pub(super) fn records(events: &[Event]) -> BTreeMap<u64, Record> {
    events.iter().filter_map(|event| Some((event.seq, event.record()?))).collect()
}

/// The records that the history has after this event. None where it cannot be read: the journal has
/// the newest of them.
pub(super) fn after(history: &History, seq: u64) -> BTreeMap<u64, Record> {
    let mut found = BTreeMap::new();
    let filter = EventFilter { after: Some(seq), ..EventFilter::default() };
    let _ = Reader::open(history.path()).and_then(|reader| {
        reader.each_event(&filter, |event| {
            found.extend(event.record().filter(decides).map(|record| (event.seq, record)));
            ControlFlow::Continue(())
        })
    });
    found
}

/// Whether a record says how an agent rests, or that it does not.
fn decides(record: &Record) -> bool {
    let mut life = Life::blank();
    life.recall(&record.what);
    life != Life::blank() || ends_rest(&record.what)
}

/// Brings lives up to date with the events after the mark. Without a mark all of the journal counts.
/// Returns the goals that are newer than the stored ones.
pub(super) fn recall(
    lives: &mut BTreeMap<Name, Life>,
    mark: Option<u64>,
    journal: BTreeMap<u64, Record>,
    history: BTreeMap<u64, Record>,
) -> Vec<Intent> {
    for record in journal.values() {
        let life = lives.entry(record.agent.clone()).or_insert_with(Life::blank);
        life.number_from(record.run.unwrap_or(RunId(0)));
    }
    let mut newer = history;
    newer.extend(journal);
    let mut stopped = BTreeSet::new();
    for (_, record) in newer.into_iter().filter(|(seq, _)| *seq > mark.unwrap_or(0)) {
        lives.entry(record.agent.clone()).or_insert_with(Life::blank).recall(&record.what);
        if record.what == (What::Stopped { goal: Goal::Stopped }) {
            stopped.insert(record.agent);
        } else if ends_rest(&record.what) {
            stopped.remove(&record.agent);
        }
    }
    // An agent that was stopped after its goal was last stored stays stopped. An older build did not
    // store goals in the order of events.
    let stopped = stopped.into_iter().filter(|_| mark.is_some());
    let stop = |agent: Name| {
        lives.entry(agent.clone()).or_insert_with(Life::blank).want(Goal::Stopped);
        Intent::Goal { agent, goal: Goal::Stopped }
    };
    stopped.map(stop).collect()
}

#[cfg(test)]
mod tests {
    use defib_core::record::{Cause, Rest, Trip};
    use defib_core::{Class, Now};
    use defib_history::Stamp;

    use super::*;
    use crate::journal::Journal;

    fn name() -> Name {
        Name::parse("a").unwrap()
    }

    fn event(seq: u64, what: What) -> Event {
        let stamp = Stamp { seq, now: Now::default(), boot: "b".into(), project: None };
        Event::of_record(stamp, &Record { agent: name(), run: Some(RunId(1)), what })
    }

    /// Goal: no cut of the journal undoes a rest. Method: the journal is cut at every byte; either
    /// the stored life or the history has the rest, as it is within 100 ms of the event.
    #[test]
    fn journal_cut_at_any_byte_undoes_no_rest() {
        let rests = [
            What::CrashedOut { by: Trip::Window },
            What::Halted { reason: Class::Config },
            What::Rested { rest: Rest::Failed },
            What::Stopped { goal: Goal::Stopped },
        ];
        for rest in rests {
            let started = || What::RunStarted { cause: Cause::Restart, fresh: false, restarts: 1 };
            let scheduled = || What::RestartScheduled { delay_ms: 1, attempt: 1, gauge: None };
            let events = [
                event(1, started()),
                event(2, scheduled()),
                event(3, started()),
                event(4, scheduled()),
                event(5, started()),
                event(6, rest.clone()),
            ];
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("journal");
            let (mut journal, _) = Journal::open(&path, b"");
            for event in &events {
                journal.push(event);
            }
            journal.write().unwrap();
            let whole = std::fs::read(&path).unwrap();
            let mut rested = Life::blank();
            rested.recall(&rest);
            if rest == (What::Stopped { goal: Goal::Stopped }) {
                rested.want(Goal::Stopped);
            }
            rested.number_from(RunId(1));
            for cut in 0..=whole.len() {
                std::fs::write(&path, &whole[..cut]).unwrap();
                let (_, left) = Journal::open(&path, b"");
                // The life is stored as of event 6, and the history has nothing.
                let mut lives = BTreeMap::from([(name(), rested.clone())]);
                recall(&mut lives, Some(6), records(&left), BTreeMap::new());
                assert_eq!(lives[&name()], rested, "cut at {cut}");
                // No life is stored, and the history has everything.
                let mut lives = BTreeMap::from([(name(), Life::blank())]);
                recall(&mut lives, Some(0), records(&left), records(&events));
                lives.get_mut(&name()).unwrap().number_from(RunId(1));
                assert_eq!(lives[&name()], rested, "cut at {cut}");
            }
        }
    }

    #[test]
    fn start_after_a_stop_is_not_undone_by_the_stop() {
        let stop = event(1, What::Stopped { goal: Goal::Stopped });
        let what = What::RunStarted { cause: Cause::Operator, fresh: false, restarts: 0 };
        let start = event(2, what);
        let mut lives = BTreeMap::new();
        recall(&mut lives, Some(0), records(&[stop]), records(&[start]));
        let mut up = Life::blank();
        up.number_from(RunId(1));
        assert_eq!(lives[&name()], up);
    }
}
