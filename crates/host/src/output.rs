//! The output of a run: the descriptors that the keeper holds, and how a daemon moves bytes out of them.
//!
//! The keeper hands over the read end of a pipe or the master of a terminal, both nonblocking. The
//! keeper never reads them itself. For a terminal the keeper also holds a [`Relay`]: bytes that a
//! daemon has taken out of the master are in that pipe or in the log, never only in the daemon's memory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::pipe::SpliceFlags;
use rustix::termios::Winsize;

use crate::protocol::TerminalSize;

/// The descriptors of a run's output.
#[derive(Debug)]
pub struct RunOutput {
    /// The read end of the run's pipe, or the master of its terminal.
    pub source: OwnedFd,
    /// The pipe behind a terminal's master. Boxed because few runs have one. `None` for a pipe, and for
    /// a terminal that a keeper before version 7 opened.
    pub relay: Option<Box<Relay>>,
}

/// A pipe between the master of a terminal and the log. The keeper holds both ends, so the bytes in it
/// outlive the daemon.
#[derive(Debug)]
pub struct Relay {
    /// The end that the log is filled from.
    pub read: OwnedFd,
    /// The end that the master is emptied into.
    pub write: OwnedFd,
}

impl RunOutput {
    /// The descriptors in the order in which a message carries them. The source is last, because a
    /// daemon before version 7 takes the last descriptor and closes the others.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let relay = self.relay.as_ref().map(|relay| [relay.read.as_fd(), relay.write.as_fd()]);
        relay.into_iter().flatten().chain([self.source.as_fd()]).collect()
    }

    /// Takes the descriptors that came with a message. `None` if the message carried none.
    pub fn from_descriptors(mut descriptors: Vec<OwnedFd>) -> Option<RunOutput> {
        let source = descriptors.pop()?;
        let ends: Result<[OwnedFd; 2], _> = descriptors.try_into();
        let relay = ends.ok().map(|[read, write]| Box::new(Relay { read, write }));
        Some(RunOutput { source, relay })
    }
}

/// What became of moving bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// This many bytes were moved.
    Bytes(usize),
    /// There is nothing to move for now.
    WouldBlock,
    /// Nobody holds the other end any more. This says nothing about whether the run has ended.
    End,
}

/// Moves at most `most` bytes from a pipe to a place in a file, without copying them through this
/// process. The kernel refuses a file that is open for appending, so the place is given.
pub fn splice_to(pipe: impl AsFd, file: impl AsFd, at: u64, most: usize) -> Result<Moved, Errno> {
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    loop {
        let mut place = at;
        let moved =
            rustix::pipe::splice(pipe.as_fd(), None, file.as_fd(), Some(&mut place), most, flags);
        match moved {
            Ok(0) => return Ok(Moved::End),
            Ok(bytes) => return Ok(Moved::Bytes(bytes)),
            Err(Errno::AGAIN) => return Ok(Moved::WouldBlock),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Moves at most `most` bytes from a terminal's master into a pipe, without copying them through this
/// process. Fails with [`Errno::INVAL`] on a kernel that cannot splice from a terminal.
pub fn splice_terminal(master: impl AsFd, pipe: impl AsFd, most: usize) -> Result<Moved, Errno> {
    let mut hung_up = false;
    loop {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        match rustix::pipe::splice(master.as_fd(), None, pipe.as_fd(), None, most, flags) {
            // The kernel looks for bytes first and for the hang-up second. Bytes that were written
            // between the two looks are found by the second call.
            Ok(0) | Err(Errno::IO) if !hung_up => hung_up = true,
            Ok(0) | Err(Errno::IO) => return Ok(Moved::End),
            Ok(bytes) => return Ok(Moved::Bytes(bytes)),
            Err(Errno::AGAIN) => return Ok(Moved::WouldBlock),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Reads from a pipe or a terminal's master. A terminal says by an error that its end has come.
pub fn read_some(output: impl AsFd, buffer: &mut [u8]) -> Result<Moved, Errno> {
    loop {
        match rustix::io::read(output.as_fd(), &mut *buffer) {
            Ok(0) | Err(Errno::IO) => return Ok(Moved::End),
            Ok(bytes) => return Ok(Moved::Bytes(bytes)),
            Err(Errno::AGAIN) => return Ok(Moved::WouldBlock),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Sets the size of a terminal, by its master; those inside get the signal WINCH.
pub fn set_window_size(master: impl AsFd, size: TerminalSize) -> Result<(), Errno> {
    let TerminalSize { rows, columns } = size;
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(master, size)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;
    use crate::launch::{Output, new_pipe, new_terminal};

    #[test]
    fn descriptors_make_the_same_output_again_and_an_old_keeper_sends_one() {
        let size = TerminalSize { rows: 24, columns: 80 };
        let Output { ours: terminal, theirs: _theirs } = new_terminal(size).unwrap();
        let Output { ours: pipe, theirs: _others } = new_pipe().unwrap();
        for (output, count) in [(terminal, 3), (pipe, 1)] {
            let sent: Vec<OwnedFd> =
                output.descriptors().iter().map(|fd| fd.try_clone_to_owned().unwrap()).collect();
            assert_eq!(sent.len(), count);
            let again = RunOutput::from_descriptors(sent).unwrap();
            assert_eq!(again.relay.is_some(), count == 3);
            let is_terminal = rustix::termios::isatty(&again.source);
            assert_eq!(is_terminal, count == 3, "the source is last");
        }
        assert!(RunOutput::from_descriptors(Vec::new()).is_none());
    }

    #[test]
    fn all_that_was_written_before_a_hang_up_goes_through_the_relay() {
        let size = TerminalSize { rows: 24, columns: 80 };
        let Output { ours, theirs } = new_terminal(size).unwrap();
        let relay = ours.relay.unwrap();
        assert_eq!(splice_terminal(&ours.source, &relay.write, 1 << 14), Ok(Moved::WouldBlock));
        let mut slave = std::fs::File::from(theirs);
        slave.write_all(&[b'x'; 3000]).unwrap();
        drop(slave);
        let mut moved = 0;
        loop {
            match splice_terminal(&ours.source, &relay.write, 1 << 14).unwrap() {
                Moved::Bytes(bytes) => moved += bytes,
                Moved::WouldBlock => {}
                Moved::End => break,
            }
        }
        assert_eq!(moved, 3000);
        let mut text = vec![0; 4096];
        assert_eq!(std::fs::File::from(relay.read).read(&mut text).unwrap(), 3000);
    }
}
