//! The index of runs: at which byte of which segment each begins.
//!
//! A run's line, `RUN SEGMENT OFFSET`, is added before the run writes. A line that was cut short, by a
//! full disk or a death, is none: whoever reads passes it over, and the next writer takes it away. It
//! does not grow without end, however many runs there are.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use defib_core::RunId;

use super::Place;
use super::segment::last_line_start;

/// The index of runs, beside the segments.
pub(super) const INDEX: &str = "runs.idx";
/// An index of this size is made shorter.
const LARGE: u64 = 256 << 10;
/// So many runs have an entry after that. Each is less than 64 bytes.
const MOST: usize = 4096;
/// The last so many of them even if they said nothing.
const NEWEST: usize = 2048;

/// Where each run begins, as far as it is known. Lines that make no sense are passed over.
pub(super) fn index(folder: &Path) -> Vec<(RunId, Place)> {
    let bytes = fs::read(folder.join(INDEX)).unwrap_or_default();
    let entry = |line: &str| {
        // What has no end may be a part of a number.
        let mut words = line.strip_suffix('\n')?.split(' ').map(str::parse::<u64>);
        let (run, segment, offset) = (words.next()?, words.next()?, words.next()?);
        let place = Place { segment: segment.ok()?, offset: offset.ok()? };
        words.next().is_none().then_some((RunId(run.ok()?), place))
    };
    String::from_utf8_lossy(&bytes).split_inclusive('\n').filter_map(entry).collect()
}

/// The last run that has an entry.
pub(crate) fn last_run(folder: &Path) -> Option<RunId> {
    index(folder).last().map(|(run, _)| *run)
}

/// The index of an agent's runs, for whoever adds to it.
#[derive(Debug)]
pub(super) struct RunIndex {
    last: RunId,
    /// Open, once a run was noted in it.
    file: Option<File>,
}

impl RunIndex {
    /// The index of a folder, as its last writer left it.
    pub(super) fn of(folder: &Path) -> RunIndex {
        RunIndex { last: last_run(folder).unwrap_or(RunId(0)), file: None }
    }

    /// The last run that it knows of.
    pub(super) fn last(&self) -> RunId {
        self.last
    }

    /// Notes where a run begins. Where that fails it is as if nobody had tried.
    pub(super) fn note(
        &mut self,
        folder: &Path,
        run: RunId,
        Place { segment, offset }: Place,
    ) -> io::Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => open(folder)?,
        };
        let size = file.metadata()?.len();
        if let Err(error) = file.write_all(format!("{run} {segment} {offset}\n").as_bytes()) {
            // If this fails too, the next who opens it does it.
            let _ = file.set_len(size);
            return Err(error);
        }
        (self.last, self.file) = (run, Some(file));
        if size > LARGE {
            self.shorten(folder);
        }
        Ok(())
    }

    /// The segments before this one are gone: runs of which nothing is left need no entry.
    pub(super) fn forget_before(&mut self, folder: &Path, oldest: u64) {
        let entries = index(folder);
        let gone = entries.partition_point(|(_, place)| place.segment < oldest);
        if gone > 1 {
            // The last of them may have gone on in what is kept.
            self.replace(folder, &entries[gone - 1..]);
        }
    }

    /// Leaves out runs that said nothing, the oldest first, and then those whose turn it is.
    fn shorten(&mut self, folder: &Path) {
        let entries = index(folder);
        let (old, new) = entries.split_at(entries.len().saturating_sub(NEWEST));
        // Whoever began where the next one began has said nothing.
        let pairs = old.iter().zip(entries.iter().skip(1));
        let spoke = pairs.filter(|(this, next)| this.1 != next.1).map(|(this, _)| *this);
        let kept: Vec<(RunId, Place)> = spoke.chain(new.iter().copied()).collect();
        self.replace(folder, &kept[kept.len().saturating_sub(MOST)..]);
    }

    /// Whoever reads the index meanwhile sees the old one or the new one.
    fn replace(&mut self, folder: &Path, entries: &[(RunId, Place)]) {
        let line = |(run, Place { segment, offset }): &(RunId, Place)| {
            format!("{run} {segment} {offset}\n")
        };
        let text: String = entries.iter().map(line).collect();
        let new = folder.join("runs.new");
        let written = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)
            .and_then(|mut file| file.write_all(text.as_bytes()));
        if written.and_then(|()| fs::rename(&new, folder.join(INDEX))).is_ok() {
            self.file = None;
        } else {
            // It is tried again, and takes no space until then.
            let _ = fs::remove_file(&new);
        }
    }
}

/// Opens the index to add to it, without what was cut short at its end.
fn open(folder: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.create(true).read(true).append(true).mode(0o600).open(folder.join(INDEX))?;
    let size = file.metadata()?.len();
    let whole = last_line_start(&file, size)?;
    if whole < size {
        file.set_len(whole)?;
    }
    Ok(file)
}
