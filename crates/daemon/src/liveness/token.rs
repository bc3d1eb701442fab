//! What a run proves itself with: 256 random bits that only the run knows.
//!
//! The daemon knows a token by its hash alone, so that nothing it keeps, writes or shows lets
//! anybody act for an agent.

use rustix::rand::GetRandomFlags;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The hash of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct TokenHash([u8; 32]);

impl TokenHash {
    /// The hash of what somebody showed.
    pub(crate) fn of(token: &str) -> TokenHash {
        TokenHash(Sha256::digest(token.as_bytes()).into())
    }

    /// As text, to be a key of something.
    pub(crate) fn hex(self) -> String {
        hex(&self.0)
    }

    /// The hash that a text stands for.
    pub(crate) fn from_hex(text: &str) -> Option<TokenHash> {
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some(TokenHash(bytes))
    }
}

fn hex(bytes: &[u8; 32]) -> String {
    let digit = |value: u8| char::from(if value < 10 { b'0' + value } else { b'a' + value - 10 });
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// A new token, and what is kept of it. Nothing, if the kernel has no random bytes to give: then the
/// run has no way to speak for itself, which is better than a token that can be guessed.
pub(crate) fn mint() -> Option<(String, TokenHash)> {
    let mut bytes = [0_u8; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(more) => filled += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    let token = hex(&bytes);
    let hash = TokenHash::of(&token);
    Some((token, hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_is_another_and_is_known_by_its_hash() {
        let (first, hash) = mint().unwrap();
        let (second, other) = mint().unwrap();
        assert_eq!(first.len(), 64);
        assert_ne!(first, second);
        assert_ne!(hash, other);
        assert_eq!(TokenHash::of(&first), hash);
        assert_eq!(TokenHash::from_hex(&hash.hex()), Some(hash));
        assert_eq!(TokenHash::from_hex("+1"), None);
    }
}
