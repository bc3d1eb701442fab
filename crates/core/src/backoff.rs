//! How long to wait before the next try.
//!
//! `delay(n) = min(jitter(base × factor^(n − 1 + first_exponent)), cap)`; `linear` is `base × n`,
//! `fixed` is `base`, `none` is zero. Delays are whole milliseconds, so that what a record says is
//! what was waited.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::rng::Jitter;
use crate::time::millis;

/// The shape of the growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Growth {
    /// Each delay is `factor` times the one before.
    Exponential,
    /// Each delay is `base` longer than the one before.
    Linear,
    /// Every delay is `base`.
    Fixed,
    /// No delay at all.
    None,
}

/// A rule for delays between consecutive failures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Backoff {
    /// The shape of the growth.
    pub growth: Growth,
    /// The first delay, where `first_exponent` is zero.
    pub base: Duration,
    /// The multiplier of `exponential`.
    pub factor: f64,
    /// No delay is longer than this.
    pub cap: Duration,
    /// The part of a delay by which it may vary, either way: 0 to 1.
    pub jitter: f64,
    /// The exponent of the first delay.
    pub first_exponent: u32,
}

impl Backoff {
    /// No delay, ever.
    pub const NONE: Backoff = Backoff {
        growth: Growth::None,
        base: Duration::ZERO,
        factor: 2.0,
        cap: Duration::from_secs(300),
        jitter: 0.0,
        first_exponent: 0,
    };

    /// What the world outside gets to come back: 5 s, doubling, up to 5 minutes.
    pub const ENVIRONMENT: Backoff = Backoff {
        growth: Growth::Exponential,
        base: Duration::from_secs(5),
        factor: 2.0,
        cap: Duration::from_secs(300),
        jitter: 0.1,
        first_exponent: 0,
    };

    /// The delay before the restart that follows the `n`-th consecutive failure, counted from 1.
    ///
    /// Never overflows, and draws a chance only where there is jitter.
    #[expect(clippy::cast_precision_loss, reason = "beyond 2^53 ms every delay is the cap")]
    pub fn delay(&self, n: u64, jitter: &mut Jitter) -> Duration {
        let n = n.max(1);
        let base_ms = millis(self.base) as f64;
        let plain_ms = match self.growth {
            Growth::None => return Duration::ZERO,
            Growth::Fixed => base_ms,
            Growth::Linear => base_ms * n as f64,
            Growth::Exponential => {
                base_ms * power(self.factor, (n - 1).saturating_add(self.first_exponent.into()))
            }
        };
        let jittered_ms = plain_ms * jitter.factor(self.jitter);
        Duration::from_millis(round(jittered_ms)).min(self.cap)
    }
}

/// `base` to the power of `exponent`, by squaring; infinite where it does not fit.
fn power(base: f64, mut exponent: u64) -> f64 {
    let (mut square, mut product) = (base, 1.0);
    while exponent > 0 {
        if exponent & 1 == 1 {
            product *= square;
        }
        square *= square;
        exponent >>= 1;
    }
    product
}

/// The nearest whole number; zero for what is negative or no number, the largest for what is too big.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn round(value: f64) -> u64 {
    (value + 0.5) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, proptest};

    #[test]
    fn no_attempt_overflows() {
        let mut jitter = Jitter::seeded(1);
        for growth in [Growth::Exponential, Growth::Linear, Growth::Fixed] {
            for first_exponent in [0, u32::MAX] {
                let rule = Backoff { growth, first_exponent, ..Backoff::ENVIRONMENT };
                for n in [1 << 32, u64::MAX] {
                    assert!(rule.delay(n, &mut jitter) <= rule.cap);
                }
            }
        }
    }

    #[test]
    fn a_factor_below_one_or_an_infinite_product_is_still_a_delay() {
        let mut jitter = Jitter::seeded(1);
        let shrinking = Backoff { factor: 0.5, jitter: 0.0, ..Backoff::ENVIRONMENT };
        assert_eq!(shrinking.delay(2, &mut jitter), Duration::from_millis(2500));
        assert_eq!(shrinking.delay(1 << 40, &mut jitter), Duration::ZERO);
        let instant = Backoff { base: Duration::ZERO, jitter: 0.0, ..Backoff::ENVIRONMENT };
        // Zero times infinity is no number; it must not become a wait.
        assert_eq!(instant.delay(1 << 40, &mut jitter), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn jitter_stays_in_its_fraction_and_under_the_cap(seed: u64, n in 1u64..40, part in 0.0..1.0f64) {
            let rule = Backoff { jitter: part, ..Backoff::ENVIRONMENT };
            let plain = Backoff { jitter: 0.0, cap: Duration::MAX, ..rule };
            let got = rule.delay(n, &mut Jitter::seeded(seed)).as_secs_f64();
            let mid = plain.delay(n, &mut Jitter::seeded(seed)).as_secs_f64();
            prop_assert!(got <= 300.0);
            prop_assert!(got >= (mid * (1.0 - part)).min(300.0) - 0.001);
            prop_assert!(got <= (mid * (1.0 + part)) + 0.001);
        }
    }
}
