//! The digest of a day: one number that two runs of a seed have in common, or determinism is lost.

use std::hash::{Hash, Hasher};

use defib_core::{Effect, Mono, Record};

/// A running hash over records, effects and deadlines, in their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Digest(u64);

impl Digest {
    /// The digest of everything so far.
    pub(crate) fn value(&self) -> u64 {
        self.finish()
    }

    pub(crate) fn record(&mut self, record: &Record) {
        record.hash(self);
    }

    pub(crate) fn effect(&mut self, effect: &Effect) {
        effect.hash(self);
    }

    pub(crate) fn deadline(&mut self, deadline: Option<Mono>) {
        self.write_u64(deadline.map_or(0, Mono::as_nanos));
    }
}

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}
