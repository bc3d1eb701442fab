//! What a run proves itself with: 256 random bits that only the run knows.
//!
//! The daemon knows a token by its hash alone, so that nothing it keeps, writes or shows lets
//! anybody act for an agent.

use rustix::rand::GetRandomFlags;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// How long a token is, as text.
const DIGITS: usize = 64;

/// The hash of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct TokenHash([u8; 32]);

impl TokenHash {
    /// The hash of what somebody showed.
    pub(crate) fn of(token: &str) -> TokenHash {
        TokenHash(Sha256::digest(token.as_bytes()).into())
    }

    /// Where the token stands in what its run wrote, if it does.
    pub(crate) fn found_in(self, bytes: &[u8]) -> Option<&str> {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let words = bytes.split(|byte| !is_digit(byte)).filter(|word| word.len() == DIGITS);
        let mut words = words.filter_map(|word| std::str::from_utf8(word).ok());
        words.find(|word| TokenHash::of(word) == self)
    }

    /// The tokens in what was written that stand behind their variable's name. Of a run that is long
    /// over nobody knows the hash any more.
    pub(crate) fn named_in(bytes: &[u8]) -> impl Iterator<Item = &str> {
        const NAME: &[u8] = b"DEFIB_TOKEN=";
        let starts = bytes.windows(NAME.len()).enumerate().filter(|(_, word)| *word == NAME);
        let tokens = starts.filter_map(|(at, _)| bytes.get(at + NAME.len()..)?.get(..DIGITS));
        tokens.filter_map(|token| std::str::from_utf8(token).ok())
    }

    /// As text, to be a key of something.
    pub(crate) fn hex(self) -> String {
        hex(&self.0)
    }

    /// The hash that a text stands for.
    pub(crate) fn from_hex(text: &str) -> Option<TokenHash> {
        if text.len() != DIGITS || !text.is_ascii() {
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
        assert_eq!(first.len(), DIGITS);
        assert_ne!(first, second);
        assert_ne!(hash, other);
        assert_eq!(TokenHash::of(&first), hash);
        assert_eq!(TokenHash::from_hex(&hash.hex()), Some(hash));
        assert_eq!(TokenHash::from_hex("+1"), None);
    }

    #[test]
    fn a_token_of_a_run_that_is_forgotten_is_found_by_its_name() {
        let (token, _) = mint().unwrap();
        let text = format!("A=1\nDEFIB_TOKEN={token}\nDEFIB_TOKEN=short");
        assert_eq!(TokenHash::named_in(text.as_bytes()).collect::<Vec<_>>(), [token.as_str()]);
    }

    #[test]
    fn a_token_is_found_by_its_hash_and_no_other_number_is() {
        let ((token, hash), (other, _)) = (mint().unwrap(), mint().unwrap());
        for text in [format!("DEFIB_TOKEN={token}"), format!("{other}\n{{\"t\":\"{token}\"}}\r\n")]
        {
            assert_eq!(hash.found_in(text.as_bytes()), Some(token.as_str()), "{text}");
        }
        for text in [other.clone(), format!("{token}0"), token[1..].to_owned(), String::new()] {
            assert_eq!(hash.found_in(text.as_bytes()), None, "{text}");
        }
    }
}
