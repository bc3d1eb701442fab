//! Signals by number and by name, as Linux counts them.

use alloc::string::String;
use core::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A signal. In JSON and for people it is `SIGKILL`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(pub i32);

const NAMES: [(&str, i32); 31] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
];

impl Signal {
    /// The polite request to end.
    pub const TERM: Signal = Signal(15);
    /// The end.
    pub const KILL: Signal = Signal(9);

    /// The signal that `TERM`, `SIGTERM`, `sigterm` or `15` names.
    pub fn parse(text: &str) -> Option<Signal> {
        if let Ok(number) = text.parse::<i32>() {
            return (1..=64).contains(&number).then_some(Signal(number));
        }
        let bare = match text.get(..3) {
            Some(prefix) if prefix.eq_ignore_ascii_case("SIG") => &text[3..],
            Some(_) | None => text,
        };
        let found = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(bare));
        found.map(|(_, number)| Signal(*number))
    }

    /// Every name, without the `SIG`.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => write!(f, "SIG{name}"),
            None => write!(f, "SIG{}", self.0),
        }
    }
}

impl Serialize for Signal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Signal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Signal, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bare = text.strip_prefix("SIG").unwrap_or(&text);
        Signal::parse(bare).ok_or_else(|| D::Error::custom("no such signal"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_signal_is_known_by_name_with_or_without_its_prefix_and_by_number() {
        for text in ["KILL", "SIGKILL", "sigkill", "kill", "9"] {
            assert_eq!(Signal::parse(text), Some(Signal::KILL), "{text}");
        }
        for text in ["", "SIG", "SIGNOPE", "0", "65", "-9", "ü"] {
            assert_eq!(Signal::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_shown_is_read_back_also_for_realtime_signals() {
        for number in 1..=64 {
            let json = serde_json::to_string(&Signal(number)).unwrap();
            assert_eq!(serde_json::from_str::<Signal>(&json).unwrap(), Signal(number));
        }
        assert_eq!(Signal(15).to_string(), "SIGTERM");
    }
}
