//! What a daemon does with the output of a run.
//!
//! The keeper hands over the read end of a pipe or the master of a terminal, set to not block. It
//! never reads them itself.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::pipe::SpliceFlags;
use rustix::termios::Winsize;

use crate::protocol::TerminalSize;

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
