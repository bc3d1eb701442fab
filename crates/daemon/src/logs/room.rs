//! Room in pipes: whoever writes much gets a large one, as long as there are some.

use std::os::fd::AsFd;

use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};

/// How much a large pipe holds: as much as anybody may ask for. Whoever writes to one seldom waits until
/// we have come round, also while others have the processors.
pub(super) const LARGE: usize = 1 << 20;

/// How many pipes may be large. A user may have only so many pages in pipes; past that, every new
/// pipe of that user, anybody's, is tiny. So ours take at most a quarter.
pub(super) struct PipeRoom {
    taken: usize,
    most: usize,
}

impl PipeRoom {
    /// Asks the system what a user may have.
    pub(super) fn new() -> PipeRoom {
        let pages = std::fs::read_to_string("/proc/sys/fs/pipe-user-pages-soft").ok();
        let pages = pages.and_then(|text| text.trim().parse::<usize>().ok()).unwrap_or(0);
        // Zero means no bound to the kernel; then it is memory that is bounded.
        let pages = if pages == 0 { 16384 } else { pages };
        PipeRoom { taken: 0, most: pages / 4 / (LARGE / rustix::param::page_size()).max(1) }
    }

    /// Makes a pipe large, if one more may be. Says whether it is.
    pub(super) fn enlarge(&mut self, pipe: impl AsFd) -> bool {
        if self.taken >= self.most {
            return false;
        }
        let is_large = fcntl_setpipe_size(pipe, LARGE).is_ok();
        if is_large {
            self.taken += 1;
        } else {
            // The system has less room than it says. What is large stays so, and no other is tried.
            self.most = self.taken;
        }
        is_large
    }

    /// Whether a pipe is large already: an earlier daemon has made it so.
    pub(super) fn recognise(&mut self, pipe: impl AsFd) -> bool {
        let is_large = fcntl_getpipe_size(pipe).is_ok_and(|size| size >= LARGE);
        self.taken += usize::from(is_large);
        is_large
    }

    /// A pipe that may have been large has gone.
    pub(super) fn give_back(&mut self, was_large: bool) {
        self.taken -= usize::from(was_large);
    }
}

#[cfg(test)]
mod tests {
    use rustix::pipe::pipe;

    use super::*;

    #[test]
    fn large_pipes_come_to_an_end_and_come_back() {
        let mut room = PipeRoom { taken: 0, most: 1 };
        let pipes = [pipe().unwrap().0, pipe().unwrap().0];
        assert!(!room.recognise(&pipes[0]));
        assert!(room.enlarge(&pipes[0]));
        assert_eq!(fcntl_getpipe_size(&pipes[0]), Ok(LARGE));
        assert!(!room.enlarge(&pipes[1]));
        room.give_back(false);
        assert!(!room.enlarge(&pipes[1]));
        room.give_back(true);
        assert!(room.enlarge(&pipes[1]));
    }

    #[test]
    fn those_of_an_earlier_daemon_count() {
        let (large, other) = (pipe().unwrap().0, pipe().unwrap().0);
        assert!(PipeRoom { taken: 0, most: 1 }.enlarge(&large));
        let mut room = PipeRoom { taken: 0, most: 1 };
        assert!(room.recognise(&large) && !room.enlarge(&other));
        room.give_back(true);
        assert!(room.enlarge(&other));
    }

    #[test]
    fn what_is_no_pipe_stays_as_it_is() {
        let mut room = PipeRoom { taken: 0, most: 3 };
        assert!(!room.recognise(std::fs::File::open("/dev/null").unwrap()));
        assert_eq!(room.taken, 0);
    }
}
