//! What a datagram on a notify socket says.
//!
//! Any bytes give words or nothing. Lines that are not known are passed over: the protocol grows.

use std::time::Duration;

/// A line that means something to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    /// `READY=1`.
    Ready,
    /// `WATCHDOG=1`.
    Beat,
    /// `WATCHDOG=trigger`: it knows by itself that it does not work.
    Trigger,
    /// `STATUS=…`.
    Text(String),
    /// `STOPPING=1`: a state, not a wish.
    Stopping,
    /// `EXTEND_TIMEOUT_USEC=…`.
    Extend(Duration),
}

/// The words of a datagram, in its order.
pub(crate) fn words(datagram: &[u8]) -> Vec<Word> {
    let lines = datagram.split(|byte| matches!(byte, b'\n' | 0));
    lines.filter_map(|line| word(&String::from_utf8_lossy(line))).collect()
}

fn word(line: &str) -> Option<Word> {
    let (name, value) = line.split_once('=')?;
    match (name, value) {
        ("READY", "1") => Some(Word::Ready),
        ("WATCHDOG", "1") => Some(Word::Beat),
        ("WATCHDOG", "trigger") => Some(Word::Trigger),
        ("STATUS", text) => Some(Word::Text(text.to_owned())),
        ("STOPPING", "1") => Some(Word::Stopping),
        ("EXTEND_TIMEOUT_USEC", micros) => {
            micros.parse().ok().map(|micros| Word::Extend(Duration::from_micros(micros)))
        }
        (_, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_lines_are_words_and_others_are_passed_over() {
        let text = "READY=1\nMAINPID=7\nSTATUS=half = way\nWATCHDOG=1\nWATCHDOG=maybe\nREADY=0\n\
                    EXTEND_TIMEOUT_USEC=1500000\nEXTEND_TIMEOUT_USEC=-1\nnonsense\nSTOPPING=1\n\
                    WATCHDOG=trigger";
        let expected = [
            Word::Ready,
            Word::Text("half = way".to_owned()),
            Word::Beat,
            Word::Extend(Duration::from_millis(1500)),
            Word::Stopping,
            Word::Trigger,
        ];
        assert_eq!(words(text.as_bytes()), expected);
        assert_eq!(words(b"STATUS=\xff\0READY=1"), [Word::Text("\u{fffd}".into()), Word::Ready]);
    }

    proptest! {
        #[test]
        fn any_bytes_give_words_or_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
            let _ = words(&bytes);
        }
    }
}
