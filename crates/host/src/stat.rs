//! What `/proc/PID/stat` says of a process.
//!
//! Invariant: any bytes give facts or none. It refuses to say whose they are: whoever must not mistake one
//! process for another holds it before they are read.

use std::fmt::Display;
use std::str::FromStr;

use crate::descent::read;

/// The line, and where its third field begins.
pub(crate) struct Stat {
    line: Vec<u8>,
    third: usize,
}

impl Stat {
    /// Of a process, if it is there.
    pub(crate) fn of(pid: impl Display) -> Option<Stat> {
        Stat::parse(read(&format!("/proc/{pid}/stat"))?)
    }

    pub(crate) fn parse(line: Vec<u8>) -> Option<Stat> {
        // The name is in parentheses and may hold anything, parentheses too.
        let third = line.iter().rposition(|byte| *byte == b')')? + 1;
        Some(Stat { line, third })
    }

    /// What the process's program calls itself, as far as the kernel keeps it.
    pub(crate) fn program(&self) -> String {
        let name = self.line.get(..self.third.saturating_sub(1)).unwrap_or_default();
        let begin = name.iter().position(|byte| *byte == b'(').map_or(name.len(), |at| at + 1);
        String::from_utf8_lossy(name.get(begin..).unwrap_or_default()).into_owned()
    }

    /// A field that is a number, by its place in proc(5), of those after the name.
    pub(crate) fn number<T: FromStr>(&self, place: usize) -> Option<T> {
        self.field(place)?.parse().ok()
    }

    /// A process that is dead but not waited for does not live.
    pub(crate) fn lives(&self) -> bool {
        !matches!(self.field(3), None | Some("Z" | "X"))
    }

    pub(crate) fn parent<T: FromStr>(&self) -> Option<T> {
        self.number(4)
    }

    pub(crate) fn session<T: FromStr>(&self) -> Option<T> {
        self.number(6)
    }

    fn field(&self, place: usize) -> Option<&str> {
        let fields = self.line.get(self.third..)?.split(u8::is_ascii_whitespace);
        let field = fields.filter(|field| !field.is_empty()).nth(place.checked_sub(3)?)?;
        str::from_utf8(field).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_past_a_name_with_parentheses() {
        let own = Stat::of(std::process::id()).unwrap();
        assert_eq!(own.parent(), Some(std::os::unix::process::parent_id()));
        assert!(own.lives());
        let odd = Stat::parse(b"7 (a) b) Z 1 7 9 0 -1\n".to_vec()).unwrap();
        assert_eq!((odd.parent(), odd.session(), odd.lives()), (Some(1), Some(9), false));
        assert_eq!(odd.program(), "a) b");
        assert_eq!((odd.number::<u64>(8), odd.number::<i64>(8)), (None, Some(-1)));
        assert_eq!((odd.number::<u64>(9), odd.number::<u64>(2)), (None, None));
    }

    #[test]
    fn any_bytes_give_facts_or_none() {
        assert!(Stat::parse(b"1 (a".to_vec()).is_none());
        for line in [&b")"[..], b"1 (a) ", b"1 (a)\xff 1"] {
            let stat = Stat::parse(line.to_vec()).unwrap();
            assert!(!stat.lives() && stat.session::<u32>().is_none(), "{line:?}");
        }
    }
}
