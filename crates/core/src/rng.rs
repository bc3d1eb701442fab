//! Chance, where it is wanted: small, seeded, and part of a snapshot, so that the same inputs give
//! the same delays.

use core::time::Duration;

use serde::{Deserialize, Serialize};

/// A splitmix64 sequence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rng(u64);

impl Rng {
    /// The sequence that belongs to a seed.
    pub const fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; zero for a bound of zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// A number from −1 to 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
    pub fn symmetric(&mut self) -> f64 {
        let unit = (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        2.0 * unit - 1.0
    }
}

/// What keeps many agents from coming back at one moment; can be switched off to see plain numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jitter(Option<Rng>);

impl Jitter {
    /// None: every number is plain.
    pub const OFF: Jitter = Jitter(None);

    /// The jitter that belongs to a seed.
    pub const fn seeded(seed: u64) -> Jitter {
        Jitter(Some(Rng::new(seed)))
    }

    /// What to multiply a delay by so that it varies by `part` of itself, either way.
    pub fn factor(&mut self, part: f64) -> f64 {
        match &mut self.0 {
            Some(rng) if part > 0.0 => 1.0 + part * rng.symmetric(),
            Some(_) | None => 1.0,
        }
    }

    /// What to wait beyond a stated reset: 60 to 120 s.
    pub fn after_reset(&mut self) -> Duration {
        match &mut self.0 {
            Some(rng) => Duration::from_millis(60_000 + rng.below(60_001)),
            None => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_in_their_bounds() {
        let mut rng = Rng::new(7);
        for _ in 0..10_000 {
            assert!(rng.below(6) < 6);
            assert!((-1.0..=1.0).contains(&rng.symmetric()));
        }
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn the_wait_beyond_a_reset_is_one_to_two_minutes() {
        let mut jitter = Jitter::seeded(3);
        for _ in 0..10_000 {
            assert!((60..=120).contains(&jitter.after_reset().as_secs()));
        }
        let mut off = Jitter::OFF;
        assert_eq!(off.after_reset(), Duration::ZERO);
    }
}
