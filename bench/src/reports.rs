//! What children tell of their beginnings: records appended to a file or a FIFO.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{CWD, FileType, Mode};
use rustix::time::{ClockId, Timespec};

/// One beginning of a child.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begin {
    /// On the monotonic clock.
    pub(crate) at_ns: u64,
    pub(crate) pid: i32,
    pub(crate) id: usize,
}

const RECORD: usize = 24;

impl Begin {
    fn parse(record: &[u8]) -> Option<Begin> {
        let word = |at: usize| Some(u64::from_ne_bytes(record.get(at..at + 8)?.try_into().ok()?));
        let (pid, id) = (i32::try_from(word(8)?).ok()?, usize::try_from(word(16)?).ok()?);
        Some(Begin { at_ns: word(0)?, pid, id })
    }
}

/// The clock that children tell.
pub(crate) fn now_ns() -> u64 {
    let time = rustix::time::clock_gettime(ClockId::Monotonic);
    // The time since boot is never negative.
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// A FIFO: who reads it is woken by each beginning.
#[derive(Debug)]
pub(crate) struct Bell {
    path: PathBuf,
    fifo: File,
}

impl Bell {
    pub(crate) fn new(path: PathBuf) -> io::Result<Bell> {
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        // Open for writing too, or it would be at its end whenever no child has it open.
        let fifo = File::options().read(true).write(true).open(&path)?;
        Ok(Bell { path, fifo })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The next beginning, if there is one in time.
    pub(crate) fn next(&mut self, patience: Duration) -> io::Result<Option<Begin>> {
        let timeout = Timespec::try_from(patience).unwrap_or_default();
        let mut polled = [PollFd::from_borrowed_fd(self.fifo.as_fd(), PollFlags::IN)];
        match rustix::event::poll(&mut polled, Some(&timeout)) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut record = [0; RECORD];
        self.fifo.read_exact(&mut record)?;
        Ok(Begin::parse(&record))
    }

    /// The next beginning of this child, if there is one in time.
    pub(crate) fn next_of(&mut self, id: usize, patience: Duration) -> io::Result<Option<Begin>> {
        let end = Instant::now() + patience;
        loop {
            match self.next(end.saturating_duration_since(Instant::now()))? {
                Some(begin) if begin.id != id => {}
                other => return Ok(other),
            }
        }
    }
}

/// A plain file: for beginnings by the thousand, which are only counted.
#[derive(Debug)]
pub(crate) struct Tally {
    path: PathBuf,
}

impl Tally {
    pub(crate) fn new(path: PathBuf) -> io::Result<Tally> {
        File::create(&path)?;
        Ok(Tally { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How many beginnings there were.
    pub(crate) fn count(&self) -> usize {
        let bytes = std::fs::metadata(&self.path).map_or(0, |facts| facts.len());
        usize::try_from(bytes).unwrap_or(0) / RECORD
    }

    /// All of them.
    pub(crate) fn all(&self) -> io::Result<Vec<Begin>> {
        Ok(std::fs::read(&self.path)?.chunks_exact(RECORD).filter_map(Begin::parse).collect())
    }

    /// Waits until there are so many. Says whether it came to that.
    pub(crate) fn await_count(&self, wanted: usize, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        while self.count() < wanted {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }
}
