//! Reading an agent's log: the last lines, one run, and on as it grows, across segments.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use defib_core::RunId;

use super::runs::index;
use super::segment::last_line_start;
use super::{Place, segment_path, segments};

/// How often a log is looked at again that changes meanwhile. Each time takes a rotation.
const TRIES: u32 = 100;

/// What of a log is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The last lines, of whatever run.
    LastLines(usize),
    /// One run, at most its last lines.
    Run(RunId, usize),
}

/// A reader of one agent's log. It follows rotation by itself.
///
/// Its place is a number of bytes, not of lines, and so is exact in the middle of a line too: what was
/// read of an unfinished line is passed over where the line was carried over to the next segment.
#[derive(Debug)]
pub struct LogReader {
    folder: PathBuf,
    at: Place,
    run: Option<RunId>,
    end: Option<Place>,
    /// Whether it ends where the log happened to end when it was opened: perhaps inside a line, which
    /// may be carried over.
    until_now: bool,
    /// What it was opened for, until it has read: where it begins may be pruned before that.
    unread: Option<Extent>,
    open: Option<(u64, File)>,
}

impl LogReader {
    /// A reader that stands where the extent begins, and goes on as the log grows.
    pub fn open(folder: &Path, extent: Extent) -> io::Result<LogReader> {
        again(|| LogReader::find(folder, extent, false))
    }

    /// A reader that stands where the extent begins, and ends where the log ends at this moment: it
    /// comes to an end however fast the agent writes, and has no more lines than were asked for.
    pub fn open_until_now(folder: &Path, extent: Extent) -> io::Result<LogReader> {
        again(|| LogReader::find(folder, extent, true))
    }

    fn find(folder: &Path, extent: Extent, until_now: bool) -> io::Result<LogReader> {
        let (start, run, lines) = match extent {
            Extent::LastLines(lines) => (None, None, lines),
            Extent::Run(run, lines) => {
                let noted = index(folder).into_iter().find(|(known, _)| *known == run);
                let start = noted.map(|(_, place)| place);
                // The first run may not have written yet.
                let first = || (run == RunId(1) && !folder.exists()).then_some(Place::FIRST);
                let Some(start) = start.or_else(first) else {
                    return Err(io::Error::new(io::ErrorKind::NotFound, "its output is not kept"));
                };
                (Some(start), Some(run), lines)
            }
        };
        let end = run.and_then(|run| end_of_run(folder, run));
        let numbers = segments(folder);
        let first = Place { segment: numbers.first().copied().unwrap_or(1), offset: 0 };
        let start = start.unwrap_or(first).max(first);
        let until_now = until_now && end.is_none();
        let end = if until_now { Some(end_of(folder, &numbers, start)?) } else { end };
        let at = last_lines(folder, &numbers, start, end, lines)?;
        if until_now && end_of(folder, &numbers, start)? < end.unwrap_or(start) {
            // An unfinished line was carried over meanwhile: the lines were counted without it.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (folder, unread) = (folder.to_owned(), until_now.then_some(extent));
        Ok(LogReader { folder, at, run, end, until_now, unread, open: None })
    }

    /// A reader that goes on where another one stood, within a run if that did.
    pub fn resume(folder: &Path, at: Place, run: Option<RunId>) -> LogReader {
        let end = run.and_then(|run| end_of_run(folder, run));
        let folder = folder.to_owned();
        LogReader { folder, at, run, end, until_now: false, unread: None, open: None }
    }

    /// A reader that goes on where another one stood, and ends where the log ends at this moment.
    pub fn resume_until_now(folder: &Path, at: Place, run: Option<RunId>) -> io::Result<LogReader> {
        let mut reader = LogReader::resume(folder, at, run);
        if reader.end.is_none() {
            reader.end = Some(again(|| end_of(folder, &segments(folder), at))?);
            reader.until_now = true;
        }
        Ok(reader)
    }

    /// Where it stands: behind everything that was read.
    pub fn place(&self) -> Place {
        self.at
    }

    /// Whether everything of the extent was read, and no more will come.
    pub fn is_over(&self) -> bool {
        self.end.is_some_and(|end| self.at >= end)
    }

    /// Reads on. Nothing means that there is nothing more for now.
    pub fn read(&mut self, most: usize) -> io::Result<Vec<u8>> {
        if let Some(extent) = self.unread.take()
            && self.file()?.is_none()
        {
            // The log has gone on so far that its beginning is not kept any more.
            *self = LogReader::open_until_now(&self.folder, extent)?;
            self.unread = None;
        }
        while !self.is_over() {
            let mut bytes = self.read_here(most)?;
            if bytes.is_empty() {
                // The end of this segment: go on with the next one, if it has begun. An older one
                // that was removed meanwhile is passed over.
                let next = segments(&self.folder).into_iter().find(|n| *n > self.at.segment);
                // The writer may have added to this segment before it began the next.
                bytes = self.read_here(most)?;
                if bytes.is_empty() {
                    self.look_for_the_end();
                    match next.map(|next| self.continued_in(next)).transpose()?.flatten() {
                        Some(place) => self.go_on_at(place)?,
                        None => break,
                    }
                    continue;
                }
            }
            // The next run is noted before it writes: what was read may be its output, but then its
            // beginning can be seen by now.
            self.look_for_the_end();
            if let Some(end) = self.end.filter(|end| end.segment == self.at.segment) {
                let left = end.offset.saturating_sub(self.at.offset);
                bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            }
            self.at.offset += bytes.len() as u64;
            return Ok(bytes);
        }
        Ok(Vec::new())
    }

    /// Goes on in the next segment. What was carried over there of a line that was to be read is read
    /// there.
    fn go_on_at(&mut self, place: Place) -> io::Result<()> {
        if let Some(end) = self.end.filter(|end| self.until_now && end.segment == self.at.segment)
            && let Some(full) = self.file()?
        {
            let carried = end.offset.saturating_sub(full.metadata()?.len());
            self.end = Some(Place { segment: place.segment, offset: carried });
        }
        self.at = place;
        Ok(())
    }

    fn look_for_the_end(&mut self) {
        if self.end.is_none() {
            self.end = self.run.and_then(|run| end_of_run(&self.folder, run));
        }
    }

    /// Where in the next segment to go on, with all of this one read. Nothing means that an unfinished
    /// line is just being carried over.
    fn continued_in(&mut self, next: u64) -> io::Result<Option<Place>> {
        let begin = |offset: u64| Ok(Some(Place { segment: next, offset }));
        let at = self.at.offset;
        let Some(full) = self.file()? else { return begin(0) };
        let size = full.metadata()?.len();
        if size < at {
            // What was read beyond its end was carried over.
            return begin(at - size);
        }
        let line_start = last_line_start(full, size)?;
        if line_start == 0 || line_start == size {
            return begin(0);
        }
        let unfinished = bytes_of(full, line_start, size - line_start)?;
        let carried = match File::open(segment_path(&self.folder, next)) {
            Ok(file) => bytes_of(&file, 0, unfinished.len() as u64)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return begin(0),
            Err(error) => return Err(error),
        };
        if carried == unfinished {
            begin(carried.len() as u64)
        } else if unfinished.starts_with(&carried) {
            Ok(None)
        } else {
            begin(0)
        }
    }

    fn read_here(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let (Place { segment, offset }, end) = (self.at, self.end);
        let Some(file) = self.file()? else { return Ok(Vec::new()) };
        let most = match end {
            Some(end) if end.segment == segment => {
                (most as u64).min(end.offset.saturating_sub(offset))
            }
            Some(_) | None => most as u64,
        };
        bytes_of(file, offset, most)
    }

    /// The segment that it stands in, where that is still kept. One that is open stays readable.
    fn file(&mut self) -> io::Result<Option<&File>> {
        if self.open.as_ref().is_none_or(|(number, _)| *number != self.at.segment) {
            self.open = match File::open(segment_path(&self.folder, self.at.segment)) {
                Ok(file) => Some((self.at.segment, file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
        }
        Ok(self.open.as_ref().map(|(_, file)| file))
    }
}

/// Looks again where a log was not what it had just been: what was its last segment has become shorter,
/// because an unfinished line was carried over to the next, or has gone.
fn again<T>(mut look: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut left = TRIES;
    loop {
        match look() {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && left > 0 => left -= 1,
            found => return found,
        }
    }
}

/// The last bytes of one run, as many as are kept with its death.
pub(crate) fn last_of_run(folder: &Path, run: RunId) -> io::Result<Vec<u8>> {
    let most = defib_history::TAIL_MAX;
    let mut reader = LogReader::open(folder, Extent::Run(run, most))?;
    let mut tail = Vec::new();
    loop {
        let more = reader.read(most)?;
        if more.is_empty() {
            return Ok(tail);
        }
        tail.extend(more);
        tail.drain(..tail.len().saturating_sub(most));
    }
}

/// At most so many bytes from an offset on.
pub(super) fn bytes_of(mut file: &File, from: u64, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Where the output of a run ends, once another has begun.
fn end_of_run(folder: &Path, run: RunId) -> Option<Place> {
    index(folder).into_iter().find(|(known, _)| *known > run).map(|(_, place)| place)
}

/// Where the last `lines` lines between two places begin.
fn last_lines(
    folder: &Path,
    numbers: &[u64],
    start: Place,
    end: Option<Place>,
    lines: usize,
) -> io::Result<Place> {
    if lines == 0 {
        return end.map_or_else(|| end_of(folder, numbers, start), Ok);
    }
    let mut missing = lines;
    let mut block = vec![0; 1 << 16];
    let mut is_last_byte = true;
    for number in numbers.iter().rev().copied() {
        if number < start.segment || end.is_some_and(|end| number > end.segment) {
            continue;
        }
        let Ok(file) = File::open(segment_path(folder, number)) else { continue };
        let from = if number == start.segment { start.offset } else { 0 };
        let size = file.metadata()?.len();
        let mut to = match end {
            Some(end) if end.segment == number => end.offset.min(size),
            Some(_) | None => size,
        };
        while to > from {
            let begin = to.saturating_sub(block.len() as u64).max(from);
            let part = &mut block[..usize::try_from(to - begin).unwrap_or(0)];
            file.read_exact_at(part, begin)?;
            for (at, byte) in part.iter().enumerate().rev() {
                // The end of the last line begins no other.
                if *byte == b'\n' && !is_last_byte {
                    missing -= usize::from(missing > 0);
                    if missing == 0 {
                        return Ok(Place { segment: number, offset: begin + at as u64 + 1 });
                    }
                }
                is_last_byte = false;
            }
            to = begin;
        }
    }
    Ok(start)
}

/// Where the log ends for now.
fn end_of(folder: &Path, numbers: &[u64], start: Place) -> io::Result<Place> {
    let Some(last) = numbers.last().copied() else { return Ok(start) };
    match std::fs::metadata(segment_path(folder, last)) {
        Ok(meta) => Ok(Place { segment: last, offset: meta.len() }.max(start)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
        Err(error) => Err(error),
    }
}
