//! The two clocks the core is handed, and nothing that could read one.
//!
//! [`Mono`] orders everything: windows, delays and deadlines are measured on it, so that a step of
//! the wall clock moves none of them. [`Wall`] is only ever used for a moment that somebody stated
//! in civil time, such as the reset of a quota.

use core::ops::Add;
use core::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment on a clock that never goes back and goes on while the machine is suspended.
///
/// The origin is arbitrary; only differences mean anything.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Mono(u64);

impl Mono {
    /// The origin of the clock.
    pub const ZERO: Mono = Mono(0);

    /// The moment `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Mono {
        Mono(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this moment is; zero if it is not after it.
    pub const fn since(self, earlier: Mono) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Mono {
    type Output = Mono;

    /// Saturates: a deadline beyond the end of the clock is one that never comes.
    fn add(self, span: Duration) -> Mono {
        Mono(self.0.saturating_add(nanos(span)))
    }
}

/// A moment in civil time, in milliseconds since the Unix epoch, UTC.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Wall(i64);

impl Wall {
    /// The moment `millis` milliseconds after the Unix epoch.
    pub const fn from_millis(millis: i64) -> Wall {
        Wall(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// How long after `earlier` this moment is; zero if it is not after it.
    pub const fn since(self, earlier: Wall) -> Duration {
        let millis = self.0.saturating_sub(earlier.0);
        if millis <= 0 { Duration::ZERO } else { Duration::from_millis(millis.unsigned_abs()) }
    }
}

impl Add<Duration> for Wall {
    type Output = Wall;

    fn add(self, span: Duration) -> Wall {
        Wall(self.0.saturating_add_unsigned(millis(span)))
    }
}

/// The time that comes with an input: both clocks, read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Now {
    /// What decisions are measured on.
    pub mono: Mono,
    /// What stated times are compared with.
    pub wall: Wall,
}

/// A span as JSON says it: seconds, without a fraction where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seconds(pub Duration);

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.subsec_nanos() == 0 {
            serializer.serialize_u64(self.0.as_secs())
        } else {
            serializer.serialize_f64(self.0.as_secs_f64())
        }
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Seconds, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(seconds).map(Seconds).map_err(D::Error::custom)
    }
}

/// Whole milliseconds of a span, saturating.
pub fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_past_the_end_of_the_clock_saturates() {
        assert_eq!(Mono::from_nanos(5) + Duration::MAX, Mono::from_nanos(u64::MAX));
        assert_eq!(Wall::from_millis(5) + Duration::MAX, Wall::from_millis(i64::MAX));
    }

    #[test]
    fn a_moment_before_another_is_no_time_after_it() {
        assert_eq!(Mono::ZERO.since(Mono::from_nanos(9)), Duration::ZERO);
        assert_eq!(Wall::from_millis(-7).since(Wall::from_millis(9)), Duration::ZERO);
    }
}
