//! The clocks of the simulated machine.
//!
//! The world runs on [`Moment`]s: time in which the machine is awake. From that follow both clocks
//! that the supervisor sees. A suspend moves them ahead of the world, a reboot sets the monotonic
//! one back to nearly nothing, and a step moves the wall clock alone.

use std::time::Duration;

use defib_core::{Mono, Now, Wall};

/// Nanoseconds in which the machine was awake, since the day began.
pub(crate) type Moment = u64;

/// The moment that is `span` later.
pub(crate) fn after(moment: Moment, span: Duration) -> Moment {
    moment.saturating_add(nanos(span))
}

/// How long after `earlier` a moment is.
pub(crate) fn since(moment: Moment, earlier: Moment) -> Duration {
    Duration::from_nanos(moment.saturating_sub(earlier))
}

/// Both clocks of the machine, and the world's own.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    moment: Moment,
    /// What the monotonic clock showed when the machine last booted.
    boot_mono: u64,
    /// When the machine last booted.
    boot: Moment,
    /// How long it has slept since.
    slept: u64,
    /// What the wall clock shows beyond the moment.
    wall_ahead_ms: i64,
}

/// When the day begins, in civil time.
const DAWN_MS: i64 = 1_760_000_000_000;

impl Clock {
    pub(crate) fn new(boot_mono: Duration) -> Clock {
        Clock { moment: 0, boot_mono: nanos(boot_mono), boot: 0, slept: 0, wall_ahead_ms: DAWN_MS }
    }

    pub(crate) fn moment(&self) -> Moment {
        self.moment
    }

    /// What the supervisor is handed.
    pub(crate) fn now(&self) -> Now {
        let mono = self.boot_mono + (self.moment - self.boot) + self.slept;
        let awake_ms = i64::try_from(self.moment / 1_000_000).unwrap_or(i64::MAX);
        Now {
            mono: Mono::from_nanos(mono),
            wall: Wall::from_millis(awake_ms.saturating_add(self.wall_ahead_ms)),
        }
    }

    /// When the monotonic clock will show that, if the machine stays awake; now, if it has.
    pub(crate) fn moment_of(&self, mono: Mono) -> Moment {
        let ahead = mono.as_nanos().saturating_sub(self.now().mono.as_nanos());
        self.moment.saturating_add(ahead)
    }

    /// Time passes until `moment`.
    pub(crate) fn run_until(&mut self, moment: Moment) {
        self.moment = self.moment.max(moment);
    }

    /// The machine is suspended: both clocks go on and the world does not.
    pub(crate) fn sleep(&mut self, span: Duration) {
        self.slept = self.slept.saturating_add(nanos(span));
        self.step(i64::try_from(span.as_millis()).unwrap_or(0));
    }

    /// Somebody sets the wall clock.
    pub(crate) fn step(&mut self, by_ms: i64) {
        self.wall_ahead_ms = self.wall_ahead_ms.saturating_add(by_ms);
    }

    /// The machine starts anew: its monotonic clock shows `boot_mono`.
    pub(crate) fn reboot(&mut self, boot_mono: Duration) {
        (self.boot, self.boot_mono, self.slept) = (self.moment, nanos(boot_mono), 0);
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
