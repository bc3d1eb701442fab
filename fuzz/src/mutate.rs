//! Changes to seeds. The same seed number gives the same inputs.

use defib_core::rng::Rng;

/// The longest input.
const LONGEST: usize = 16 << 10;

/// Pieces that mean something to one parser or another.
const WORDS: [&[u8]; 36] = [
    b"\0",
    b"\n",
    b"\r\n",
    b"=",
    b"\"",
    b"{",
    b"}",
    b"[",
    b"]]",
    b":",
    b"/",
    b"..",
    b"%2e%2e%2f",
    b"-1",
    b"0",
    b"1e400",
    b"9223372036854775808",
    b"18446744073709551616",
    b"NaN",
    b"\xff\xff\xff\xff",
    b"\x7f",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    "\u{feff}".as_bytes(),
    "\u{202e}".as_bytes(),
    "é\u{301}".as_bytes(),
    b"\x1b[2J",
    b"\x1b]0;",
    b"null",
    b"99999999h",
    b"999999999d23h59m",
    b"* * * * *",
    b"31 2",
    b"resets 3:45pm",
    b"{\"type\":\"result\",",
    b"READY=1",
    b"agent.",
];

/// Gives inputs without end.
#[derive(Debug)]
pub struct Mutator {
    rng: Rng,
    seeds: Vec<Vec<u8>>,
}

impl Mutator {
    /// One that begins with these.
    pub fn new(seed: u64, seeds: Vec<Vec<u8>>) -> Mutator {
        Mutator { rng: Rng::new(seed), seeds }
    }

    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.rng.next_u64() % bound).unwrap_or(0)
    }

    /// The next input.
    pub fn input(&mut self) -> Vec<u8> {
        let at = self.below(self.seeds.len());
        let mut bytes = self.seeds.get(at).cloned().unwrap_or_default();
        for _ in 0..=self.below(8) {
            self.change(&mut bytes);
        }
        bytes.truncate(LONGEST);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len() + 1);
        let end = (at + self.below(32)).min(bytes.len());
        match self.below(9) {
            0 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << (self.rng.next_u64() % 8);
                }
            }
            1 => {
                let any = self.rng.next_u64().to_le_bytes()[0];
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = any;
                }
            }
            2 => drop(bytes.drain(at..end)),
            3 => {
                let piece = bytes.get(at..end).unwrap_or_default().to_vec();
                let to = self.below(bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
            4 | 5 => {
                let word = WORDS[self.below(WORDS.len())];
                bytes.splice(at..at, word.iter().copied());
            }
            6 => {
                let word = WORDS[self.below(WORDS.len())];
                bytes.splice(at..end, word.iter().copied());
            }
            7 => {
                // The end of another seed.
                let other = self.below(self.seeds.len());
                let other = self.seeds.get(other).cloned().unwrap_or_default();
                let from = self.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(other.get(from..).unwrap_or_default());
            }
            _ => {
                // Much of the same.
                let piece = bytes.get(at..end).unwrap_or_default().to_vec();
                let times = self.below(200);
                bytes.splice(at..at, piece.repeat(times));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_inputs_and_no_two_are_alike_for_long() {
        let seeds = vec![b"[agent.a]\ncommand = \"x\"\n".to_vec(), b"READY=1".to_vec()];
        let inputs = |seed| {
            let mut mutator = Mutator::new(seed, seeds.clone());
            (0..200).map(|_| mutator.input()).collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        let mut distinct = inputs(2);
        distinct.sort();
        distinct.dedup();
        assert!(distinct.len() > 150, "{}", distinct.len());
    }
}
