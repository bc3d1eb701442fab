//! Reading an agent's log: the last lines, one run, and on as it grows, across segments.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use defib_core::RunId;

use super::{Place, index, segment_path, segments};

/// What of a log is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The last lines, of whatever run.
    LastLines(usize),
    /// One run, at most its last lines.
    Run(RunId, usize),
}

/// A reader of one agent's log. It follows rotation by itself.
#[derive(Debug)]
pub struct LogReader {
    folder: PathBuf,
    at: Place,
    end: Option<Place>,
    open: Option<(u64, File)>,
}

impl LogReader {
    /// A reader that stands where the extent begins.
    pub fn open(folder: &Path, extent: Extent) -> io::Result<LogReader> {
        let (start, end, lines) = match extent {
            Extent::LastLines(lines) => (None, None, lines),
            Extent::Run(run, lines) => {
                let entries = index(folder);
                let Some(at) = entries.iter().position(|(known, _)| *known == run) else {
                    return Err(io::Error::new(io::ErrorKind::NotFound, "its output is not kept"));
                };
                (Some(entries[at].1), entries.get(at + 1).map(|(_, place)| *place), lines)
            }
        };
        let numbers = segments(folder);
        let first = Place { segment: numbers.first().copied().unwrap_or(1), offset: 0 };
        let start = start.unwrap_or(first).max(first);
        let at = last_lines(folder, &numbers, start, end, lines)?;
        Ok(LogReader { folder: folder.to_owned(), at, end, open: None })
    }

    /// Reads on. Nothing means that there is nothing more for now.
    pub fn read(&mut self, most: usize) -> io::Result<Vec<u8>> {
        loop {
            if self.end.is_some_and(|end| self.at >= end) {
                return Ok(Vec::new());
            }
            let bytes = self.read_here(most)?;
            if !bytes.is_empty() {
                self.at.offset += bytes.len() as u64;
                return Ok(bytes);
            }
            // The end of this segment: go on with the next one, if it has begun. An older one that
            // was removed meanwhile is passed over.
            let Some(next) = segments(&self.folder).into_iter().find(|n| *n > self.at.segment)
            else {
                return Ok(Vec::new());
            };
            // The writer may have added to this segment before it began the next.
            let late = self.read_here(most)?;
            if !late.is_empty() {
                self.at.offset += late.len() as u64;
                return Ok(late);
            }
            self.at = Place { segment: next, offset: 0 };
        }
    }

    fn read_here(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let file = match &mut self.open {
            Some((number, file)) if *number == self.at.segment => file,
            open => match File::open(segment_path(&self.folder, self.at.segment)) {
                Ok(file) => &mut open.insert((self.at.segment, file)).1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                Err(error) => return Err(error),
            },
        };
        let most = match self.end {
            Some(end) if end.segment == self.at.segment => {
                most.min(usize::try_from(end.offset.saturating_sub(self.at.offset)).unwrap_or(most))
            }
            Some(_) | None => most,
        };
        let mut bytes = Vec::with_capacity(most.min(1 << 16));
        file.seek(SeekFrom::Start(self.at.offset))?;
        file.take(most as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
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
    let offset = std::fs::metadata(segment_path(folder, last))?.len();
    Ok(Place { segment: last, offset }.max(start))
}
