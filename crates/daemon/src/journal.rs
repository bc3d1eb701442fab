//! The journal: events that the history has not yet on disk.
//!
//! The history commits in groups, so a daemon that is killed would lose the last of them. Every
//! event is therefore written to this file first, with one write that the kernel keeps whatever
//! becomes of us. The next daemon hands to the history what it does not have. Until it is written the
//! keeper has it, so that nobody who is to be restarted waits for a file.
//!
//! A disk that fails is no reason not to supervise: nothing here fails a start, and what could not be
//! written stays with the keeper and is tried again with the next event.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use defib_core::{Name, RunId};
use defib_history::Event;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Past this size the journal is set aside, and goes when the history has everything in it.
const FULL: u64 = 4 << 20;

/// Room for what is usually written at once; a burst gives the rest back.
const USUAL: usize = 16 << 10;

/// So much waits for a disk that fails, because all of it goes to the keeper with each decision. The
/// oldest of more than that are then with the history alone, and a successor says so if it has them not.
const MOST_HELD: usize = 128 << 10;

/// An event with what `events --json` does not show. What is written is borrowed, what is read owned.
#[derive(Serialize, Deserialize)]
struct Line<'a> {
    mono_ns: u64,
    boot: Cow<'a, str>,
    project: Cow<'a, Option<Name>>,
    at_ms: i64,
    seq: u64,
    agent: Cow<'a, Option<Name>>,
    run: Option<RunId>,
    kind: Cow<'a, str>,
    body: Cow<'a, RawValue>,
}

/// The journal, open for writing.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    /// Nothing where it could not be opened, which is tried again with each write.
    file: Option<File>,
    /// How much of the file is whole lines.
    size: u64,
    /// Lines that are not in the file yet.
    buffer: Vec<u8>,
    /// Whether a full one is set aside, whose events may not all be in the history.
    set_aside: bool,
}

impl Journal {
    /// Opens the journal and gives back the events in it and in `kept`, in the order of their numbers.
    /// What is kept and not in the journal is yet to be written. A last line that was cut short is
    /// dropped. Of two with the same number the later one counts: the earlier one has not happened.
    pub(crate) fn open(path: &Path, kept: &[u8]) -> (Journal, Vec<Event>) {
        let aside = std::fs::read(aside(path)).unwrap_or_default();
        let mut text = std::fs::read(path).unwrap_or_default();
        let torn = text.iter().rev().take_while(|byte| **byte != b'\n').count();
        text.truncate(text.len() - torn);
        // What cannot be read is as good as not there, and stays: a successor says what is missing.
        let size = std::fs::metadata(path).map_or(0, |found| found.len() - torn as u64);
        let numbered = |event: Event| (event.seq, event);
        let mut events: BTreeMap<u64, Event> =
            events_in(&aside).chain(events_in(&text)).map(numbered).collect();
        let mut journal = Journal {
            path: path.to_owned(),
            file: None,
            size,
            buffer: Vec::new(),
            set_aside: !aside.is_empty(),
        };
        for event in events_in(kept) {
            if events.get(&event.seq) != Some(&event) {
                journal.push(&event);
                events.insert(event.seq, event);
            }
        }
        (journal, events.into_values().collect())
    }

    /// Forgets everything but these. Killed in between, there is the old journal or the new one. Where
    /// there can be no new one the old one is gone on with.
    pub(crate) fn begin_anew(&mut self, events: &[Event]) -> io::Result<()> {
        let path = self.path.with_extension("new");
        let _ = std::fs::remove_file(&path);
        let mut new = Journal {
            path: self.path.clone(),
            file: Some(open_to_append(&path)?),
            size: 0,
            buffer: Vec::new(),
            set_aside: self.set_aside,
        };
        for event in events {
            new.push(event);
        }
        new.write()?;
        std::fs::rename(&path, &self.path)?;
        if new.set_aside {
            new.forget();
        }
        *self = new;
        Ok(())
    }

    /// Whether one is set aside whose events may not all be in the history.
    pub(crate) fn has_set_aside(&self) -> bool {
        self.set_aside
    }

    /// Sets a full journal aside. Says whether it did: then [`forget`](Journal::forget) is to be
    /// called once the history has everything that was handed to it until now.
    pub(crate) fn turn_if_full(&mut self) -> bool {
        if self.size < FULL || self.set_aside {
            return false;
        }
        if std::fs::rename(&self.path, aside(&self.path)).is_err() {
            return false;
        }
        (self.file, self.size, self.set_aside) = (None, 0, true);
        true
    }

    /// The history has everything that was set aside. A file that cannot be removed goes when the next
    /// one takes its place.
    pub(crate) fn forget(&mut self) {
        let _ = std::fs::remove_file(aside(&self.path));
        self.set_aside = false;
    }

    /// Adds an event to what the next [`write`](Journal::write) writes.
    pub(crate) fn push(&mut self, event: &Event) {
        let line = Line {
            mono_ns: event.mono.as_nanos(),
            boot: Cow::Borrowed(&event.boot),
            project: Cow::Borrowed(&event.project),
            at_ms: event.at.as_millis(),
            seq: event.seq,
            agent: Cow::Borrowed(&event.agent),
            run: event.run,
            kind: Cow::Borrowed(&event.kind),
            body: Cow::Borrowed(event.body.raw()),
        };
        // Writing to memory does not fail, and the line has nothing that JSON does not know.
        let _ = serde_json::to_writer(&mut self.buffer, &line);
        self.buffer.push(b'\n');
    }

    /// What the next [`write`](Journal::write) writes: to be kept elsewhere until then.
    pub(crate) fn pending(&self) -> &[u8] {
        &self.buffer
    }

    /// Writes what was pushed, in one piece. What cannot be written stays pending, as far as there is
    /// room for it.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let written = self.append();
        if written.is_ok() {
            self.size += self.buffer.len() as u64;
            self.buffer.clear();
            self.buffer.shrink_to(USUAL);
        } else if self.buffer.len() > MOST_HELD {
            let beyond = self.buffer.len() - MOST_HELD / 2;
            let lines = self.buffer.iter().skip(beyond).position(|byte| *byte == b'\n');
            self.buffer.drain(..lines.map_or(self.buffer.len(), |at| beyond + at + 1));
        }
        written
    }

    fn append(&mut self) -> io::Result<()> {
        let file = if let Some(file) = self.file.take() {
            file
        } else {
            let file = open_to_append(&self.path)?;
            // What was cut short when a disk was full.
            file.set_len(self.size)?;
            file
        };
        let file = self.file.insert(file);
        let written = file.write_all(&self.buffer);
        if written.is_err() && file.set_len(self.size).is_err() {
            // Half a line must not swallow the next one: before anything is written it is cut off.
            self.file = None;
        }
        written
    }
}

fn events_in(text: &[u8]) -> impl Iterator<Item = Event> {
    let lines = text.split(|byte| *byte == b'\n');
    let lines = lines.filter_map(|line| serde_json::from_slice::<Line>(line).ok());
    lines.map(Line::into_event)
}

/// Number of events in a journal's text, for the fuzzer.
pub(crate) fn read_any(text: &[u8]) -> usize {
    events_in(text).count()
}

fn aside(path: &Path) -> PathBuf {
    path.with_extension("old")
}

fn open_to_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

impl Line<'_> {
    fn into_event(self) -> Event {
        Event {
            seq: self.seq,
            at: defib_core::Wall::from_millis(self.at_ms),
            mono: defib_core::Mono::from_nanos(self.mono_ns),
            boot: self.boot.into(),
            project: self.project.into_owned(),
            agent: self.agent.into_owned(),
            run: self.run,
            kind: self.kind.into_owned(),
            body: self.body.into_owned().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use defib_core::Now;
    use defib_history::Stamp;
    use serde_json::Map;

    use super::*;

    fn event(seq: u64) -> Event {
        let stamp = Stamp { seq, now: Now::default(), boot: "b".into(), project: None };
        Event::new(stamp, "daemon-adopted", None, None, Map::new())
    }

    fn seqs(path: &Path, kept: &[u8]) -> Vec<u64> {
        let (_, events) = Journal::open(path, kept);
        events.iter().map(|event| event.seq).collect()
    }

    #[test]
    fn what_was_kept_and_not_written_is_behind_what_was_and_there_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, _) = Journal::open(&path, b"");
        journal.push(&event(1));
        journal.push(&event(2));
        journal.write().unwrap();
        assert_eq!(journal.pending(), b"");
        journal.push(&event(3));
        let kept = journal.pending().to_vec();
        // Killed before it was written, after a part of it was, and after all of it was.
        assert_eq!(seqs(&path, &kept), [1, 2, 3]);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&whole, &kept[..kept.len() / 2]].concat()).unwrap();
        assert_eq!(seqs(&path, &kept), [1, 2, 3]);
        std::fs::write(&path, [whole, kept.clone()].concat()).unwrap();
        assert_eq!(seqs(&path, &kept), [1, 2, 3]);
        assert_eq!(seqs(&path, b"no line of ours\n"), [1, 2, 3]);
    }

    #[test]
    fn what_a_full_disk_does_not_take_is_pending_until_it_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, _) = Journal::open(&path, b"");
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        for seq in 1..=3 {
            journal.push(&event(seq));
            journal.write().unwrap_err();
        }
        let kept = journal.pending().to_vec();
        assert_eq!(events_in(&kept).map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3]);
        std::fs::remove_file(&path).unwrap();
        // A successor has all of it to write, as its predecessor had.
        let (mut next, events) = Journal::open(&path, &kept);
        assert_eq!((events.len(), next.pending()), (3, &kept[..]));
        next.write().unwrap();
        assert_eq!(seqs(&path, b""), [1, 2, 3]);
        assert_eq!(next.pending(), b"");
    }

    #[test]
    fn of_more_than_a_keeper_should_hold_the_oldest_are_let_go_line_by_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, _) = Journal::open(&path, b"");
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        for seq in 1..=5_000 {
            journal.push(&event(seq));
            journal.write().unwrap_err();
            assert!(journal.pending().len() <= MOST_HELD);
        }
        let held: Vec<u64> = events_in(journal.pending()).map(|event| event.seq).collect();
        assert!(held.len() > 100 && held.len() < 5_000, "{}", held.len());
        assert_eq!(held.last(), Some(&5_000));
        assert!(held.windows(2).all(|pair| pair[0] + 1 == pair[1]));
    }

    #[test]
    fn what_was_written_by_halves_does_not_swallow_what_comes_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, _) = Journal::open(&path, b"");
        journal.push(&event(1));
        journal.write().unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&whole, &whole[..whole.len() / 2]].concat()).unwrap();
        let (mut next, _) = Journal::open(&path, b"");
        next.push(&event(2));
        next.write().unwrap();
        assert_eq!(seqs(&path, b""), [1, 2]);
    }

    #[test]
    fn a_journal_is_set_aside_again_once_what_was_aside_is_stored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, _) = Journal::open(&path, b"");
        for seq in [1, 2] {
            journal.push(&event(seq));
            journal.write().unwrap();
            journal.size = FULL;
            assert!(journal.turn_if_full());
            assert!(!journal.turn_if_full(), "one at a time");
            assert_eq!(seqs(&path, b""), [seq]);
            journal.forget();
        }
        assert_eq!(seqs(&path, b""), [0; 0]);
    }
}
