//! The journal: events that the history has not yet on disk.
//!
//! The history commits in groups, so a daemon that is killed would lose the last of them. Every
//! event is therefore written to this file first, with one write that the kernel keeps whatever
//! becomes of us. The next daemon hands to the history what it does not have. Until it is written the
//! keeper has it, so that nobody who is to be restarted waits for a file.

use std::borrow::Cow;
use std::collections::BTreeSet;
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
    file: File,
    size: u64,
    buffer: Vec<u8>,
    /// Whether a full one is set aside, whose events may not all be in the history.
    set_aside: bool,
}

impl Journal {
    /// Opens the journal and gives back the events in it, and behind them those of `kept` that it has
    /// not. A last line that was cut short is dropped.
    pub(crate) fn open(path: &Path, kept: &[u8]) -> io::Result<(Journal, Vec<Event>)> {
        let mut text = read(&aside(path))?;
        let set_aside = !text.is_empty();
        text.extend(read(path)?);
        let mut events: Vec<Event> = events_in(&text).collect();
        let written: BTreeSet<u64> = events.iter().map(|event| event.seq).collect();
        events.extend(events_in(kept).filter(|event| !written.contains(&event.seq)));
        let mut file = open_to_append(path)?;
        if !text.is_empty() && !text.ends_with(b"\n") {
            file.write_all(b"\n")?;
        }
        let size = file.metadata()?.len();
        let journal = Journal { path: path.to_owned(), file, size, buffer: Vec::new(), set_aside };
        Ok((journal, events))
    }

    /// Forgets everything but these. Killed in between, there is the old journal or the new one.
    pub(crate) fn begin_anew(&mut self, events: &[Event]) -> io::Result<()> {
        let path = self.path.with_extension("new");
        let _ = std::fs::remove_file(&path);
        let mut new = Journal {
            path: self.path.clone(),
            file: open_to_append(&path)?,
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

    /// Sets a full journal aside. Says whether it did: then [`forget`](Journal::forget) is to be
    /// called once the history has everything that was handed to it until now.
    pub(crate) fn turn_if_full(&mut self) -> bool {
        if self.size < FULL || self.set_aside {
            return false;
        }
        let turned = std::fs::rename(&self.path, aside(&self.path))
            .and_then(|()| open_to_append(&self.path));
        let Ok(file) = turned else { return false };
        (self.file, self.size, self.set_aside) = (file, 0, true);
        true
    }

    /// The history has everything that was set aside.
    pub(crate) fn forget(&mut self) {
        self.set_aside = std::fs::remove_file(aside(&self.path)).is_err();
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

    /// Writes what was pushed, in one piece.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let result = self.file.write_all(&self.buffer);
        self.size += self.buffer.len() as u64;
        self.buffer.clear();
        self.buffer.shrink_to(USUAL);
        if result.is_err() {
            // What was written by halves must not swallow the next line.
            self.buffer.push(b'\n');
        }
        result
    }
}

fn events_in(text: &[u8]) -> impl Iterator<Item = Event> {
    let lines = text.split(|byte| *byte == b'\n');
    let lines = lines.filter_map(|line| serde_json::from_slice::<Line>(line).ok());
    lines.map(Line::into_event)
}

fn aside(path: &Path) -> PathBuf {
    path.with_extension("old")
}

fn open_to_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    }
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
        let (_, events) = Journal::open(path, kept).unwrap();
        events.iter().map(|event| event.seq).collect()
    }

    #[test]
    fn what_was_kept_and_not_written_is_behind_what_was_and_there_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, _) = Journal::open(&path, b"").unwrap();
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
}
