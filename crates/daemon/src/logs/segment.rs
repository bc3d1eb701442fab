//! Writing an agent's log: one open segment, rotation at line ends, the index of runs.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use defib_core::RunId;
use defib_host::output::{Moved, splice_to};

use super::reader::bytes_of;
use super::runs::{RunIndex, index};
use super::{Place, TAIL, segment_path, segments};

/// A line that is longer than this may be split by a rotation: it would fill any memory.
const LONGEST_LINE: u64 = 1 << 20;
/// How much is moved at once, so that one flooding agent does not hold up the others. Nor itself: its
/// pipe is locked for as long as it takes.
pub(super) const CHUNK: usize = 64 << 10;

/// When a log begins its next segment, and how many it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// A segment that has reached this size is full.
    pub max_size: u64,
    /// How many full segments are kept beside the open one. Where that is none, the last one stays until
    /// the open one is long enough for a tail.
    pub keep: u32,
}

/// A log cannot be written.
#[derive(Debug)]
pub(super) struct Unwritten {
    pub(super) error: io::Error,
    /// How much was read for it, is not in it, and can be read by nobody else.
    pub(super) bytes: u64,
}

impl Unwritten {
    fn of(bytes: &[u8], error: io::Error) -> Unwritten {
        Unwritten { error, bytes: bytes.len() as u64 }
    }
}

impl From<io::Error> for Unwritten {
    /// Nothing was read for it.
    fn from(error: io::Error) -> Unwritten {
        Unwritten::of(&[], error)
    }
}

impl From<Unwritten> for io::Error {
    fn from(unwritten: Unwritten) -> io::Error {
        unwritten.error
    }
}

/// The log of one agent, open for writing.
#[derive(Debug)]
pub struct SegmentWriter {
    folder: PathBuf,
    rotation: Rotation,
    number: u64,
    file: File,
    size: u64,
    /// Whether a full segment that is not to be kept is there until the open one is long enough for a
    /// tail: whoever dies after a rotation has said why before it.
    spares: bool,
    runs: RunIndex,
}

/// Receives the bytes that were just moved to the log.
type Viewer<'a> = &'a mut dyn FnMut(&[u8]);

impl SegmentWriter {
    /// Opens an agent's log where its last writer left it, whatever became of that.
    pub fn open(folder: &Path, rotation: Rotation) -> io::Result<SegmentWriter> {
        fs::create_dir_all(folder)?;
        let numbers = segments(folder);
        let number = numbers.last().copied().unwrap_or(1);
        let spares = rotation.keep == 0 && numbers.len() > 1;
        let file = open_segment(folder, number)?;
        finish_a_rotation_that_was_cut_short(folder, number, &file)?;
        let size = file.metadata()?.len();
        let runs = RunIndex::of(folder);
        let folder = folder.to_owned();
        Ok(SegmentWriter { folder, rotation, number, file, size, spares, runs })
    }

    /// Changes when the log rotates.
    pub fn set_rotation(&mut self, rotation: Rotation) {
        self.rotation = rotation;
    }

    /// Whether somebody has removed the open segment: what is written to it nobody can read.
    pub(super) fn was_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|meta| meta.nlink() == 0)
    }

    /// Where the next byte goes.
    pub fn place(&self) -> Place {
        Place { segment: self.number, offset: self.size }
    }

    /// Notes that a run begins here, and says where that is. A run that is noted already began where
    /// it was noted. The index is read only then: it may be long.
    pub fn begin_run(&mut self, run: RunId) -> io::Result<Place> {
        // Somebody may have cut the log short: then it goes on where it ends, and whoever began behind
        // that begins there.
        self.size = self.size.min(self.file.metadata()?.len());
        if run <= self.runs.last() {
            let noted = index(&self.folder).into_iter().rfind(|(noted, _)| *noted == run);
            return Ok(noted.map_or_else(|| self.place(), |(_, place)| place.min(self.place())));
        }
        self.end_line()?;
        let place = self.place();
        self.runs.note(&self.folder, run, place)?;
        Ok(place)
    }

    /// Moves what is in a pipe to the log, without a copy. What was moved is in the file, also if
    /// this process dies the moment after. `look` is called with the bytes, read back from the file.
    pub(super) fn splice_from(
        &mut self,
        pipe: BorrowedFd<'_>,
        look: Option<Viewer<'_>>,
    ) -> io::Result<Moved> {
        let moved = splice_to(pipe, &self.file, self.size, CHUNK)?;
        if let Moved::Bytes(bytes) = moved {
            if let Some(look) = look {
                // Somebody who has cut the file short meanwhile has also taken it from the viewers.
                look(&bytes_of(&self.file, self.size, bytes as u64).unwrap_or_default());
            }
            self.size += bytes as u64;
            self.rotate_if_full()?;
        }
        Ok(moved)
    }

    /// Appends bytes that were read from a terminal, as many as there is space for.
    pub(super) fn append(&mut self, mut bytes: &[u8]) -> Result<(), Unwritten> {
        while !bytes.is_empty() {
            match self.file.write_at(bytes, self.size) {
                Ok(written) if written > 0 => {
                    self.size += written as u64;
                    bytes = &bytes[written..];
                }
                Ok(_) => return Err(Unwritten::of(bytes, io::ErrorKind::WriteZero.into())),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Unwritten::of(bytes, error)),
            }
        }
        Ok(self.rotate_if_full()?)
    }

    /// The last bytes of the current run, at most `most`, from as many segments as that takes. What is
    /// not there any more is passed over.
    pub(super) fn tail_since(&self, start: Place, most: u64) -> io::Result<Vec<u8>> {
        let begin = |number| if number == start.segment { start.offset } else { 0 };
        let mut parts = vec![last_bytes(&self.file, begin(self.number), most)?];
        let mut missing = most.saturating_sub(parts[0].len() as u64);
        if missing > 0 && start.segment < self.number {
            let earlier = segments(&self.folder).into_iter().rev();
            let of_the_run = |number: &u64| (start.segment..self.number).contains(number);
            for number in earlier.filter(of_the_run) {
                let Ok(segment) = File::open(segment_path(&self.folder, number)) else { continue };
                let Ok(part) = last_bytes(&segment, begin(number), missing) else { continue };
                missing = missing.saturating_sub(part.len() as u64);
                parts.push(part);
                if missing == 0 {
                    break;
                }
            }
        }
        parts.reverse();
        Ok(parts.concat())
    }

    /// A run that ended without a line end must not run into the next one.
    fn end_line(&mut self) -> io::Result<()> {
        if self.size > 0 && self.byte_at(self.size - 1)? != b'\n' {
            self.append(b"\n")?;
        }
        Ok(())
    }

    /// Says in the log that output was lost, on a line of its own: all of the line, or nothing.
    pub(super) fn mark_loss(&mut self, bytes: u64, why: &str) -> io::Result<()> {
        let is_torn = self.size > 0 && self.byte_at(self.size - 1)? != b'\n';
        let end = if is_torn { "\n" } else { "" };
        let line = format!("{end}[defib: {bytes} bytes of output are lost here: {why}]\n");
        if let Err(error) = self.file.write_all_at(line.as_bytes(), self.size) {
            let _ = self.file.set_len(self.size);
            return Err(error);
        }
        self.size += line.len() as u64;
        self.rotate_if_full()
    }

    fn byte_at(&self, offset: u64) -> io::Result<u8> {
        let mut byte = [0];
        self.file.read_exact_at(&mut byte, offset)?;
        Ok(byte[0])
    }

    fn rotate_if_full(&mut self) -> io::Result<()> {
        if self.size >= self.rotation.max_size {
            self.rotate()?;
        }
        if self.spares && self.size >= TAIL as u64 {
            self.prune();
        }
        Ok(())
    }

    /// Begins the next segment at the beginning of a line: what the full one has of an unfinished
    /// line is written to the next first, and only then taken from the full one.
    fn rotate(&mut self) -> io::Result<()> {
        let line_start = last_line_start(&self.file, self.size)?;
        if line_start == 0 && self.size < self.rotation.max_size.saturating_add(LONGEST_LINE) {
            // All of it is one line; perhaps its end comes.
            return Ok(());
        }
        let kept = if line_start == 0 { self.size } else { line_start };
        let mut carried = vec![0; usize::try_from(self.size - kept).unwrap_or(0)];
        self.file.read_exact_at(&mut carried, kept)?;
        let next = open_segment(&self.folder, self.number + 1)?;
        next.write_all_at(&carried, 0)?;
        self.file.set_len(kept)?;
        (self.file, self.number, self.size) = (next, self.number + 1, carried.len() as u64);
        self.prune();
        Ok(())
    }

    fn prune(&mut self) {
        let keep = u64::from(self.rotation.keep);
        self.spares = keep == 0 && self.size < TAIL as u64;
        let oldest = self.number.saturating_sub(keep.max(self.spares.into()));
        for number in segments(&self.folder).into_iter().take_while(|number| *number < oldest) {
            // A segment that cannot be removed now is removed after the next rotation.
            let _ = fs::remove_file(segment_path(&self.folder, number));
        }
        self.runs.forget_before(&self.folder, oldest);
    }
}

/// The last bytes of a segment from `begin` on, at most `most`. There are none where somebody has cut it
/// short before that.
fn last_bytes(segment: &File, begin: u64, most: u64) -> io::Result<Vec<u8>> {
    let size = segment.metadata()?.len();
    let from = begin.max(size.saturating_sub(most)).min(size);
    bytes_of(segment, from, size - from)
}

/// Where the unfinished last line of a segment begins; its size where there is none, zero where the
/// line is longer than any that is carried over.
pub(super) fn last_line_start(file: &File, size: u64) -> io::Result<u64> {
    let from = size.saturating_sub(LONGEST_LINE);
    let mut end = size;
    let mut block = vec![0; 4096];
    while end > from {
        let start = end.saturating_sub(block.len() as u64).max(from);
        let part = &mut block[..usize::try_from(end - start).unwrap_or(0)];
        file.read_exact_at(part, start)?;
        if let Some(at) = part.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// The last writer may have died after it had carried an unfinished line over and before it had
/// taken it from the full segment.
fn finish_a_rotation_that_was_cut_short(folder: &Path, number: u64, open: &File) -> io::Result<()> {
    let before = segment_path(folder, number.saturating_sub(1));
    let Ok(full) = OpenOptions::new().read(true).write(true).open(before) else { return Ok(()) };
    let size = full.metadata()?.len();
    let line_start = last_line_start(&full, size)?;
    if line_start == 0 || line_start == size {
        return Ok(());
    }
    let mut unfinished = vec![0; usize::try_from(size - line_start).unwrap_or(0)];
    full.read_exact_at(&mut unfinished, line_start)?;
    let carried_len = usize::try_from(open.metadata()?.len()).unwrap_or(usize::MAX);
    if carried_len > unfinished.len() {
        return Ok(());
    }
    let mut carried = vec![0; carried_len];
    open.read_exact_at(&mut carried, 0)?;
    // The next segment has all of the line, or a part, or nothing yet.
    if unfinished.starts_with(&carried) {
        open.write_all_at(&unfinished, 0)?;
        full.set_len(line_start)?;
    }
    Ok(())
}

fn open_segment(folder: &Path, number: u64) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(segment_path(folder, number))
}

#[cfg(test)]
mod tests;
