//! The two clocks, and timers on them.
//!
//! Decisions are measured on the time since boot, which counts suspend; stated times are compared with
//! the wall clock, which people set. A timer here fires late after a suspend, never not at all.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use defib_core::{Mono, Now, Wall};
use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec,
};

/// What time it is.
pub fn now() -> Now {
    let mono = rustix::time::clock_gettime(ClockId::Boottime);
    // The time since boot is never negative.
    let seconds = u64::try_from(mono.tv_sec).unwrap_or(0);
    let nanos = seconds * 1_000_000_000 + u64::try_from(mono.tv_nsec).unwrap_or(0);
    Now { mono: Mono::from_nanos(nanos), wall: wall() }
}

/// How long the machine has slept since it was started: the one clock counts that, the other does not.
pub fn slept() -> Duration {
    let span = |clock| Duration::try_from(rustix::time::clock_gettime(clock)).unwrap_or_default();
    span(ClockId::Boottime).saturating_sub(span(ClockId::Monotonic))
}

/// The wall clock, by the standard library and so by the C library: whoever moves the clock of one
/// program, as tests do, moves this one too.
fn wall() -> Wall {
    let millis = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    Wall::from_millis(match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => millis(since),
        Err(before) => -millis(before.duration()),
    })
}

/// What this boot is called: times since boot are only comparable within it.
pub fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// A timer on the time since boot. Its descriptor is readable when it has fired.
#[derive(Debug)]
pub struct BootTimer(OwnedFd);

impl BootTimer {
    /// One that is not set.
    pub fn new() -> Result<BootTimer, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        rustix::time::timerfd_create(TimerfdClockId::Boottime, flags).map(BootTimer)
    }

    /// Fires at this moment (at once if it has passed), or not at all.
    pub fn set(&self, at: Option<Mono>) -> Result<(), Errno> {
        // A timer of zero is none; the first nanosecond after boot has long passed.
        let nanos = at.map_or(0, |at| at.as_nanos().max(1));
        let value = Timespec {
            tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(nanos % 1_000_000_000).unwrap_or(0),
        };
        let spec = Itimerspec { it_interval: Timespec::default(), it_value: value };
        rustix::time::timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &spec).map(drop)
    }

    /// Whether it has fired since it was last asked.
    pub fn fired(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }
}

impl AsFd for BootTimer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Tells when somebody has set the wall clock. Its descriptor is readable then.
#[derive(Debug)]
pub struct ClockSteps(OwnedFd);

impl ClockSteps {
    /// Watches from now on.
    pub fn new() -> Result<ClockSteps, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let steps = ClockSteps(rustix::time::timerfd_create(TimerfdClockId::Realtime, flags)?);
        steps.watch()?;
        Ok(steps)
    }

    fn watch(&self) -> Result<(), Errno> {
        // A moment that does not come; what comes is that the clock was set.
        let never = Timespec { tv_sec: i64::from(i32::MAX) * 64, tv_nsec: 0 };
        let spec = Itimerspec { it_interval: Timespec::default(), it_value: never };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        match rustix::time::timerfd_settime(&self.0, flags, &spec) {
            // It was set between the last reading and now; the next reading says so.
            Ok(_) | Err(Errno::CANCELED) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Whether the clock was set since it was last asked.
    pub fn stepped(&self) -> bool {
        let stepped = rustix::io::read(&self.0, &mut [0; 8]) == Err(Errno::CANCELED);
        if stepped {
            let _ = self.watch();
        }
        stepped
    }
}

impl AsFd for ClockSteps {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags};

    #[test]
    fn a_timer_in_the_past_fires_once_and_one_that_is_not_set_never() {
        let timer = BootTimer::new().unwrap();
        assert!(!timer.fired());
        timer.set(Some(Mono::ZERO)).unwrap();
        let mut polled = [PollFd::new(&timer, PollFlags::IN)];
        let ten_seconds = Timespec { tv_sec: 10, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut polled, Some(&ten_seconds)), Ok(1));
        assert!(timer.fired());
        assert!(!timer.fired());
        timer.set(Some(Mono::from_nanos(u64::MAX))).unwrap();
        timer.set(None).unwrap();
        assert!(!timer.fired());
    }

    #[test]
    fn the_clocks_run_and_the_boot_has_a_name() {
        let (first, second) = (now(), now());
        assert!(second.mono >= first.mono);
        assert!(first.wall.as_millis() > 1_600_000_000_000);
        assert_eq!(boot_id(), boot_id());
        assert!(boot_id().is_some());
        assert!(!ClockSteps::new().unwrap().stepped());
    }
}
