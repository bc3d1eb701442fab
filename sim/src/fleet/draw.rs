//! Draws: every choice that a day makes, from one seeded sequence.
//!
//! The same seed gives the same draws in the same order; nothing else is random in the simulator.

use std::time::Duration;

use defib_core::rng::Rng;

/// A sequence of choices.
#[derive(Debug, Clone)]
pub(crate) struct Draw(Rng);

impl Draw {
    /// The choices that belong to a seed.
    pub(crate) fn new(seed: u64) -> Draw {
        // Neighbouring seeds are to have nothing in common.
        let mut rng = Rng::new(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ 0x00de_f1b0_0000_0000);
        rng.next_u64();
        Draw(rng)
    }

    /// Sixty-four bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`; zero for a bound of zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.below(high.saturating_sub(low) + 1)
    }

    /// The same for the small numbers that limits are made of.
    pub(crate) fn count(&mut self, low: u32, high: u32) -> u32 {
        u32::try_from(self.between(low.into(), high.into())).unwrap_or(high)
    }

    /// A place in a list of `len`; zero for an empty one.
    pub(crate) fn place(&mut self, len: usize) -> usize {
        usize::try_from(self.0.below(len as u64)).unwrap_or(0)
    }

    /// Whether something of that chance happens.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.0.below(1000) < per_mille
    }

    /// One of several.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.place(from.len())]
    }

    /// A span whose order of magnitude is as random as its digits, so that short ones are as
    /// common as long ones.
    pub(crate) fn spread(&mut self, low: Duration, high: Duration) -> Duration {
        let (low, high) = (micros(low).max(1), micros(high).max(1));
        let octave = self.between(low.ilog2().into(), high.ilog2().into());
        let drawn = (1 << octave) + self.below(1 << octave);
        Duration::from_micros(drawn.clamp(low, high))
    }

    /// The same in whole milliseconds: what a file can state.
    pub(crate) fn stated(&mut self, low: Duration, high: Duration) -> Duration {
        let span = self.spread(low, high);
        Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(0).max(1))
    }

    /// A span, each as likely as the other.
    pub(crate) fn span(&mut self, low: Duration, high: Duration) -> Duration {
        Duration::from_micros(self.between(micros(low), micros(high)))
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
