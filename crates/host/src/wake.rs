//! Waking a loop from another thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::EventfdFlags;
use rustix::io::Errno;

/// A descriptor that is readable once somebody has called [`Waker::wake`]. Any number of calls
/// before it is taken are one.
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// One that nobody has called.
    pub fn new() -> Result<Waker, Errno> {
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Waker)
    }

    /// Wakes whoever waits for it, now or later. Never blocks.
    pub fn wake(&self) {
        // It can only fail by being full, and then it is readable anyway.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Whether it was called since it was last asked.
    pub fn taken(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_calls_are_one_wakeup() {
        let waker = Waker::new().unwrap();
        assert!(!waker.taken());
        waker.wake();
        waker.wake();
        assert!(waker.taken());
        assert!(!waker.taken());
    }
}
