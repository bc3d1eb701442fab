//! An agent's log as the scribe has it: which run writes, where that began, and the files, open or not.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use defib_core::{Name, RunId};
use defib_host::output::{Moved, read_some, splice_terminal};
use rustix::io::Errno;

use super::scribe::Source;
use super::segment::{Rotation, SegmentWriter, Unwritten};
use super::{Place, folder};
use crate::terminal::Terminals;

/// How much is taken from a terminal at a time, in bytes. The kernel holds less than that for one.
const BLOCK: usize = 1 << 14;

/// An agent's log, and where its present run began.
pub(super) struct Log {
    writer: Option<Box<SegmentWriter>>,
    run: RunId,
    start: Place,
    /// Whether that is on disk. It is not for the first run of all before it writes or ends: a thousand
    /// agents that start do not wait for a thousand folders.
    noted: bool,
    rotation: Rotation,
    /// How much was lost since the last byte in the log, and why, until the log says so.
    lost: Option<Box<(u64, String)>>,
    /// Whether its turn to be closed will come.
    pub(super) in_line: bool,
}

impl Log {
    /// The log of an agent whose run begins.
    pub(super) const fn new(run: RunId, rotation: Rotation) -> Log {
        let start = Place::FIRST;
        Log { writer: None, run, start, noted: false, rotation, lost: None, in_line: false }
    }

    /// A run begins. One that is there already goes on.
    pub(super) fn begin(&mut self, home: &Path, agent: &Name, run: RunId, rotation: Rotation) {
        self.rotation = rotation;
        if self.run != run {
            if !self.noted {
                // It has ended without a word, and is noted all the same.
                let _ = self.writer(home, agent);
            }
            (self.run, self.noted) = (run, false);
        }
        if self.is_open() || folder(home, agent).exists() {
            // Where it cannot be noted now, it is when it writes.
            let _ = self.writer(home, agent);
        }
    }

    /// Whether it holds files open.
    pub(super) fn is_open(&self) -> bool {
        self.writer.is_some()
    }

    /// Closes its files. They are opened anew when there is more to write or to read.
    pub(super) fn close(&mut self) {
        self.writer = None;
    }

    /// Notes that output could not be written. The log says so before anything else is written to it.
    pub(super) fn lose(&mut self, bytes: u64, why: &str) {
        let lost = self.lost.get_or_insert_default();
        lost.0 = lost.0.saturating_add(bytes);
        why.clone_into(&mut lost.1);
    }

    /// The last bytes of the present run, at most so many.
    pub(super) fn tail(&mut self, home: &Path, agent: &Name, most: usize) -> Vec<u8> {
        if !self.noted || self.writer(home, agent).is_err() {
            return Vec::new();
        }
        let tail = self.writer.as_ref().map(|writer| writer.tail_since(self.start, most as u64));
        tail.and_then(Result::ok).unwrap_or_default()
    }

    /// Open, with the present run noted.
    fn writer(&mut self, home: &Path, agent: &Name) -> io::Result<&mut SegmentWriter> {
        // A new run begins in files that are there.
        let noted = self.noted;
        let mut writer = match self.writer.take().filter(|writer| noted || !writer.was_removed()) {
            Some(writer) => writer,
            None => Box::new(SegmentWriter::open(&folder(home, agent), self.rotation)?),
        };
        writer.set_rotation(self.rotation);
        if let Some(lost) = &self.lost {
            // Before the next run is noted: the loss was in the one before it.
            writer.mark_loss(lost.0, &lost.1)?;
            self.lost = None;
        }
        if self.noted {
            // What was cut short meanwhile has nothing of it behind its end.
            self.start = self.start.min(writer.place());
        } else {
            self.start = writer.begin_run(self.run)?;
            self.noted = true;
        }
        Ok(self.writer.insert(writer))
    }

    /// Moves what a source has to the log, and shows it where that is a terminal.
    pub(super) fn take_from(
        &mut self,
        home: &Path,
        source: &Source,
        terminals: &Terminals,
    ) -> Result<Moved, Unwritten> {
        let writer = self.writer(home, &source.agent)?;
        if !source.terminal {
            return Ok(writer.splice_from(source.output.as_fd(), None)?);
        }
        if let Some(relay) = &source.relay {
            // Each byte is in the terminal, in the relay or in the file at any time. A kill between two
            // of these calls leaves the rest to the next daemon.
            let came = match splice_terminal(&source.output, &relay.write, BLOCK) {
                Err(Errno::INVAL) => None,
                came => Some(came.map_err(io::Error::from)?),
            };
            let mut show = |bytes: &[u8]| terminals.wrote(&source.agent, source.run, bytes);
            let moved = writer.splice_from(relay.read.as_fd(), Some(&mut show))?;
            match (moved, came) {
                (Moved::Bytes(_), _) => return Ok(moved),
                (_, Some(Moved::End)) => return Ok(Moved::End),
                (_, Some(_)) => return Ok(Moved::WouldBlock),
                // This kernel cannot splice from a terminal, and the relay is empty.
                (_, None) => {}
            }
        }
        let mut block = [0; BLOCK];
        let moved = read_some(&source.output, &mut block).map_err(io::Error::from)?;
        if let Moved::Bytes(read) = moved {
            terminals.wrote(&source.agent, source.run, &block[..read]);
            writer.append(&block[..read])?;
        }
        Ok(moved)
    }
}
