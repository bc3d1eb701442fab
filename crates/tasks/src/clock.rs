//! The two clocks of a supervisor, read together.
//!
//! Everything is measured on tokio's clock, so that a test on a paused clock sees every delay and
//! waits for none; the wall clock goes along with it. While a machine sleeps tokio's clock stands
//! still: that time counts for nothing.

use std::time::{Duration, SystemTime};

use defib_core::{Mono, Now, Wall};
use tokio::time::Instant;

/// A difference smaller than this between the wall clock and ours is no step of it.
const DRIFT: Duration = Duration::from_millis(500);
/// Thirty years.
const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Reads the time since a supervisor began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    began: Instant,
    really_began: std::time::Instant,
    /// What the wall clock would have shown at the beginning, as it goes now.
    wall_began: SystemTime,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock {
            began: Instant::now(),
            really_began: std::time::Instant::now(),
            wall_began: SystemTime::now(),
        }
    }

    /// The time now. The wall clock follows ours until somebody moves it.
    pub(crate) fn now(&mut self) -> Now {
        let elapsed = self.began.elapsed();
        let shown = SystemTime::now();
        let wall_began = shown.checked_sub(self.really_began.elapsed()).unwrap_or(shown);
        let ahead = wall_began.duration_since(self.wall_began).unwrap_or_default();
        let behind = self.wall_began.duration_since(wall_began).unwrap_or_default();
        if ahead.max(behind) > DRIFT {
            self.wall_began = wall_began;
        }
        Now { mono: Mono::ZERO + elapsed, wall: wall(self.wall_began + elapsed) }
    }

    /// A moment of the core as one to sleep until.
    pub(crate) fn instant(&self, moment: Mono) -> Instant {
        let since = moment.since(Mono::ZERO);
        // A moment beyond the end of tokio's clock is one that does not come.
        self.began.checked_add(since).unwrap_or_else(|| self.began + FAR)
    }
}

/// A time of the system as the core has it.
pub(crate) fn wall(time: SystemTime) -> Wall {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Wall::default() + since
}

/// A time of the core as the system has it.
pub(crate) fn system_time(wall: Wall) -> SystemTime {
    SystemTime::UNIX_EPOCH + wall.since(Wall::default())
}
