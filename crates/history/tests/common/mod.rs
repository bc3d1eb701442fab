//! What the tests of the history share: events to store, and waiting with a deadline.

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "it is a test")]

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use defib_core::record::Cause;
use defib_core::time::Seconds;
use defib_core::{Class, Mono, Name, Now, Record, RunId, Verdict, Wall, What};
use defib_history::{Event, History, Opened, Options, Stamp, Trouble};
use tempfile::TempDir;

/// Long enough for anything that comes at all.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

pub(crate) fn home() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.db");
    (folder, path)
}

/// Options under which it is the time of the tests' events: none of them is too old.
pub(crate) fn options() -> Options {
    Options { now: Box::new(|| at(0).wall), ..Options::default() }
}

pub(crate) fn open(path: &std::path::Path) -> (History, Opened) {
    History::open(path, options()).unwrap()
}

/// Options that hand every trouble to the test.
pub(crate) fn watched(options: Options) -> (Options, Receiver<Trouble>) {
    let (tell, told) = channel();
    let on_trouble = Box::new(move |trouble: &Trouble| drop(tell.send(trouble.clone())));
    (Options { on_trouble, ..options }, told)
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !so() {
        assert!(Instant::now() < deadline, "it never came: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The time of a test: the event's number in seconds after a fixed moment.
pub(crate) fn at(seq: u64) -> Now {
    let wall = Wall::from_millis(1_700_000_000_000) + Duration::from_secs(seq);
    Now { mono: Mono::from_nanos(seq * 1_000_000_000), wall }
}

pub(crate) fn stamp(seq: u64) -> Stamp {
    Stamp { seq, now: at(seq), boot: "boot-1".into(), project: Some(name("night")) }
}

pub(crate) fn event(seq: u64, agent: &str, run: u64, what: What) -> Event {
    let record = Record { agent: name(agent), run: Some(RunId(run)), what };
    Event::of_record(stamp(seq), &record)
}

pub(crate) fn host_event(seq: u64, kind: &str) -> Event {
    Event::new(stamp(seq), kind, None, None, serde_json::Map::new())
}

pub(crate) fn started(seq: u64, agent: &str, run: u64) -> Event {
    event(seq, agent, run, What::RunStarted { cause: Cause::Up, fresh: false, restarts: 0 })
}

pub(crate) fn died(seq: u64, agent: &str, run: u64, exit_code: i32) -> Event {
    let class = if exit_code == 0 { Class::Done } else { Class::Error };
    let what = What::RunDied {
        class,
        kind: class.kind(),
        exit_code: Some(exit_code),
        signal: None,
        ran_s: Seconds(Duration::from_millis(1500)),
        verdict: Verdict::Restart,
        counted: true,
        consecutive_failures: 1,
        evidence: Some("exit code".into()),
    };
    event(seq, agent, run, what)
}
