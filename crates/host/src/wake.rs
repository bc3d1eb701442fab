//! Waking a loop from another thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::EventfdFlags;
use rustix::io::Errno;

/// A descriptor that is readable once somebody has called [`Waker::wake`]. Any number of calls
/// before it is taken are one, and only the first asks the kernel for something.
#[derive(Debug)]
pub struct Waker {
    descriptor: OwnedFd,
    /// Whether it was called since it was last taken.
    called: AtomicBool,
}

impl Waker {
    /// One that nobody has called.
    pub fn new() -> Result<Waker, Errno> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let descriptor = rustix::event::eventfd(0, flags)?;
        Ok(Waker { descriptor, called: AtomicBool::new(false) })
    }

    /// Wakes whoever waits for it, now or later. Never blocks.
    pub fn wake(&self) {
        if !self.called.swap(true, Ordering::AcqRel) {
            // It can only fail by being full, and then it is readable anyway.
            let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
        }
    }

    /// Takes the calls: whoever has done so looks for what there is to do. What was there before a call
    /// is seen then, also if the call came so late that it did not count.
    pub fn take(&self) {
        // Who calls after this look makes the descriptor readable, and is taken then.
        if !self.called.load(Ordering::Acquire) {
            return;
        }
        // The descriptor first: a call between the two is one that is taken. The other way round its
        // mark would stay, and nobody would be woken again.
        let _ = rustix::io::read(&self.descriptor, &mut [0; 8]);
        self.called.swap(false, Ordering::AcqRel);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec};

    fn is_readable(waker: &Waker) -> bool {
        let mut set = [PollFd::new(waker, PollFlags::IN)];
        rustix::event::poll(&mut set, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn two_calls_are_one_wakeup_and_after_it_comes_the_next() {
        let waker = Waker::new().unwrap();
        assert!(!is_readable(&waker));
        for _ in 0..2 {
            waker.wake();
            waker.wake();
            assert!(is_readable(&waker));
            waker.take();
            assert!(!is_readable(&waker));
        }
    }

    /// Whoever is woken and looks afterwards finds everything, however the two meet.
    #[test]
    fn no_call_is_lost_between_two_threads() {
        const COUNT: u32 = 200_000;
        let waker = Waker::new().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..COUNT {
                    sender.send(number).unwrap();
                    waker.wake();
                }
            });
            let mut next = 0;
            let patience = Timespec { tv_sec: 30, tv_nsec: 0 };
            while next < COUNT {
                let mut set = [PollFd::new(&waker, PollFlags::IN)];
                let woken = rustix::event::poll(&mut set, Some(&patience)).unwrap();
                assert_eq!(woken, 1, "asleep with {next} of {COUNT} seen");
                waker.take();
                while let Ok(number) = receiver.try_recv() {
                    assert_eq!(number, next);
                    next += 1;
                }
            }
        });
    }
}
