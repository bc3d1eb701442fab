//! An event: one numbered thing that was decided or has happened.
//!
//! The decisions are the core's [`Record`]s; the daemon adds events of its own (`daemon-started`,
//! `config-applied`, …). Both are the same thing here: a few columns, a type, and a flat body of
//! numbers. A record goes in and comes out as it was, so that a replay folds into the same view.

use std::sync::Arc;

use defib_core::{Mono, Name, Now, Record, RunId, Wall};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::body::Body;
use crate::stamp;
use crate::usage::Usage;

/// The keys of an event's JSON that its body cannot have.
const OWN_KEYS: [&str; 5] = ["seq", "at", "agent", "run", "type"];

/// One thing that was decided or has happened.
///
/// In JSON it is a line of `events --json`: `seq`, `at`, `agent`, `run`, `type`, then its body.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its number; the daemon counts, and never uses a number twice.
    pub seq: u64,
    /// When, in civil time.
    #[serde(with = "stamp")]
    pub at: Wall,
    /// When, on the clock that decisions are measured on. Means something within one `boot` only.
    #[serde(skip)]
    pub mono: Mono,
    /// The boot of the machine that `mono` belongs to.
    #[serde(skip)]
    pub boot: Arc<str>,
    /// The project of the agent, where it is of one.
    #[serde(skip)]
    pub project: Option<Name>,
    /// Whom it is about, where it is about one agent.
    pub agent: Option<Name>,
    /// Its latest run, where it had one.
    pub run: Option<RunId>,
    /// What happened, in the past tense: `run-died`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The numbers that belong to it.
    #[serde(flatten)]
    pub body: Body,
}

/// What the engine puts on an event: its number, its time, and where the time was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// The number.
    pub seq: u64,
    /// Both clocks.
    pub now: Now,
    /// The boot of the machine, for which `now.mono` is valid.
    pub boot: Arc<str>,
    /// The project of the agent, where there is one.
    pub project: Option<Name>,
}

impl Event {
    /// The event of a record of the core.
    pub fn of_record(stamp: Stamp, record: &Record) -> Event {
        Event::of_record_with(stamp, record, Usage::default())
    }

    /// The event of a record of the core, with what the run used that no decision needs.
    pub fn of_record_with(stamp: Stamp, record: &Record, used: Usage) -> Event {
        // No record has a key that is an event's own, beside its type.
        let (kind, body) = Body::tagged(&record.what, used.known());
        Event::made(stamp, kind, Some(record.agent.clone()), record.run, body)
    }

    /// The event that stands where events are missing: with the number of the first of them.
    pub fn gap(first: Stamp, events: u64, last_seq: u64) -> Event {
        let mut body = Map::new();
        body.insert("what".into(), "history".into());
        body.insert("events".into(), events.into());
        body.insert("last_seq".into(), last_seq.into());
        Event::new(first, "output-lost", None, None, body)
    }

    /// An event of the daemon's own. A body cannot say what the event itself says: such keys are
    /// left out of it.
    pub fn new(
        stamp: Stamp,
        kind: &str,
        agent: Option<Name>,
        run: Option<RunId>,
        mut body: Map<String, Value>,
    ) -> Event {
        for key in OWN_KEYS {
            body.remove(key);
        }
        Event::made(stamp, String::from(kind), agent, run, body.into())
    }

    fn made(
        stamp: Stamp,
        kind: String,
        agent: Option<Name>,
        run: Option<RunId>,
        body: Body,
    ) -> Event {
        let Stamp { seq, now, boot, project } = stamp;
        Event { seq, at: now.wall, mono: now.mono, boot, project, agent, run, kind, body }
    }

    /// Both clocks, as they stood.
    pub fn now(&self) -> Now {
        Now { mono: self.mono, wall: self.at }
    }

    /// What the run used whose death this is, as far as that is known.
    pub fn used(&self) -> Usage {
        serde_json::from_str(self.body.text()).unwrap_or_default()
    }

    /// The record of the core that this is, for a fold; nothing where the core does not know the
    /// type.
    pub fn record(&self) -> Option<Record> {
        let agent = self.agent.clone()?;
        let mut what = self.body.entries();
        what.insert("type".into(), Value::String(self.kind.clone()));
        let what = serde_json::from_value(Value::Object(what)).ok()?;
        Some(Record { agent, run: self.run, what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use defib_core::What;
    use serde_json::json;

    fn stamp() -> Stamp {
        let now = Now { mono: Mono::from_nanos(7), wall: Wall::from_millis(1_700_000_000_042) };
        Stamp { seq: 9, now, boot: "b".into(), project: None }
    }

    #[test]
    fn an_event_is_a_line_of_events_json() {
        let Value::Object(body) = json!({ "deaths": 4, "max": 5, "type": "no", "seq": 0 }) else {
            unreachable!("it is an object");
        };
        let agent = Name::parse("web").unwrap();
        let event = Event::new(stamp(), "limit-tripped", Some(agent), Some(RunId(3)), body);
        assert_eq!(
            serde_json::to_string(&event).unwrap(),
            r#"{"seq":9,"at":"2023-11-14T22:13:20.042Z","agent":"web","run":3,"type":"limit-tripped","deaths":4,"max":5}"#
        );
        let host = Event::new(stamp(), "daemon-started", None, None, Map::new());
        assert_eq!(
            serde_json::to_string(&host).unwrap(),
            r#"{"seq":9,"at":"2023-11-14T22:13:20.042Z","agent":null,"run":null,"type":"daemon-started"}"#
        );
        assert_eq!(host.record(), None);
        let read: Event = serde_json::from_str(&serde_json::to_string(&event).unwrap()).unwrap();
        assert_eq!((read.seq, read.at, read.body), (event.seq, event.at, event.body));
    }

    #[test]
    fn an_event_of_the_cores_type_with_a_broken_body_is_no_record() {
        let agent = Name::parse("web").unwrap();
        let event = Event::new(stamp(), "run-died", Some(agent.clone()), None, Map::new());
        assert_eq!(event.record(), None);
        let whole = Event::new(stamp(), "revived", Some(agent), None, Map::new());
        assert_eq!(whole.record().map(|record| record.what), Some(What::Revived));
    }
}
