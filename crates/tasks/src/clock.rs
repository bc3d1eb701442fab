//! The two clocks of a supervisor, read together.
//!
//! Everything is measured on tokio's clock, so that a test on a paused clock sees every delay and
//! waits for none. The wall clock is moved along with it where it is paused. While a machine sleeps
//! tokio's clock stands still: that time counts for nothing.

use std::time::{Duration, SystemTime};

use defib_core::{Mono, Now, Wall};
use tokio::time::Instant;

/// Reads the time since a supervisor began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    began: Instant,
    really_began: std::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { began: Instant::now(), really_began: std::time::Instant::now() }
    }

    pub(crate) fn now(&self) -> Now {
        let elapsed = self.began.elapsed();
        let ahead = elapsed.saturating_sub(self.really_began.elapsed());
        Now { mono: Mono::ZERO + elapsed, wall: wall(SystemTime::now()) + ahead }
    }

    /// A moment of the core as one to sleep until.
    pub(crate) fn instant(&self, moment: Mono) -> Instant {
        let since = moment.since(Mono::ZERO);
        // A moment beyond the end of tokio's clock is one that does not come.
        self.began.checked_add(since).unwrap_or_else(|| self.began + FAR)
    }
}

/// Thirty years.
const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);

/// A time of the system as the core has it.
pub(crate) fn wall(time: SystemTime) -> Wall {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Wall::default() + since
}

/// A time of the core as the system has it.
pub(crate) fn system_time(wall: Wall) -> SystemTime {
    SystemTime::UNIX_EPOCH + wall.since(Wall::default())
}
