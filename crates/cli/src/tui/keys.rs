//! Key presses: out of the bytes that a terminal sends, and the table of what each does.
//!
//! The table is what the help shows; the guide has the same rows.

/// A key that was pressed and means something somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Press {
    /// A character.
    Char(char),
    /// Enter.
    Enter,
    /// Escape.
    Escape,
    /// Tab, with or without shift: there are two places at the most.
    Tab,
    /// Takes the last character back.
    Backspace,
    /// Ctrl-U takes all of it back.
    Erase,
    /// Up.
    Up,
    /// Down.
    Down,
    /// Left.
    Left,
    /// Right.
    Right,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// To the beginning.
    Home,
    /// To the end.
    End,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-L: draw everything again.
    Redraw,
}

/// What every key does, in the order in which people look for it.
pub(crate) const TABLE: [(&str, &str); 19] = [
    ("Up Down PgUp PgDn Home End", "move, or scroll the pane that has the focus"),
    ("s  x  r", "start, stop, restart (on a group: its members)"),
    ("v", "revive what is crashed-out or halted"),
    ("k", "kill: stop without asking it first (asks you)"),
    ("f", "fund: give it something to spend (asks how much)"),
    ("c", "capability: grant one, or revoke it (asks which)"),
    ("a", "attach to its terminal; Ctrl-\\ comes back"),
    ("w  Enter", "why it is as it is"),
    ("l", "what it writes, as it writes it"),
    ("e", "events, as they happen"),
    ("Tab", "focus: list or pane"),
    ("z", "the pane alone, and back"),
    ("Left Right", "the rest of lines that are too long"),
    ("/", "filter by name; in a pane: search, n N go on"),
    ("o", "order: what needs a look first, or by name"),
    ("g", "groups as a tree, and back"),
    ("Esc", "back: search, pane, filter"),
    ("Ctrl-L", "draw everything again"),
    ("?  q  Ctrl-C", "this help; quit"),
];

/// No key sends more bytes than this; what goes on for longer is none.
const LONGEST: usize = 32;

/// Keys out of the bytes that a terminal sends, however they are cut.
#[derive(Debug, Default)]
pub(crate) struct Presses {
    pending: Vec<u8>,
}

/// What bytes begin with.
enum Found {
    /// So many bytes of a key, which means nothing here where there is none.
    Key(Option<Press>, usize),
    /// The beginning of one.
    Part,
}

impl Presses {
    /// Takes what has come, and gives the keys that are whole.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Vec<Press> {
        self.pending.extend_from_slice(bytes);
        let mut presses = Vec::new();
        while !self.pending.is_empty() {
            let Found::Key(press, length) = first(&self.pending) else { break };
            presses.extend(press);
            self.pending.drain(..length);
        }
        presses
    }

    /// Whether a key has begun and not ended. An Escape may be one, or begin one.
    pub(crate) fn is_amid(&self) -> bool {
        !self.pending.is_empty()
    }

    /// No more came for a while: an Escape was one.
    pub(crate) fn rest(&mut self) -> Option<Press> {
        let was_escape = self.pending == [0x1b];
        self.pending.clear();
        was_escape.then_some(Press::Escape)
    }
}

fn first(bytes: &[u8]) -> Found {
    match bytes {
        [b'\r' | b'\n', ..] => Found::Key(Some(Press::Enter), 1),
        [b'\t', ..] => Found::Key(Some(Press::Tab), 1),
        [0x7f | 0x08, ..] => Found::Key(Some(Press::Backspace), 1),
        [0x03, ..] => Found::Key(Some(Press::Interrupt), 1),
        [0x15, ..] => Found::Key(Some(Press::Erase), 1),
        [0x0c, ..] => Found::Key(Some(Press::Redraw), 1),
        [0x1b] => Found::Part,
        [0x1b, 0x1b, ..] => Found::Key(Some(Press::Escape), 1),
        [0x1b, b'[', rest @ ..] => sequence(rest),
        [0x1b, b'O', rest @ ..] => match rest.first() {
            None => Found::Part,
            Some(b'M') => Found::Key(Some(Press::Enter), 3),
            Some(last) => Found::Key(arrow(*last), 3),
        },
        // With Alt a key is another key, and none that means something: Alt-x must not stop an agent.
        [0x1b, rest @ ..] => match character(rest) {
            Found::Key(_, length) => Found::Key(None, length + 1),
            Found::Part => Found::Part,
        },
        [0..0x20, ..] => Found::Key(None, 1),
        bytes => character(bytes),
    }
}

/// What comes after `ESC [`: numbers, and a byte that says which key it is.
fn sequence(rest: &[u8]) -> Found {
    // The console of Linux sends a second bracket for its function keys.
    let skipped = usize::from(rest.first() == Some(&b'['));
    let end = rest.iter().skip(skipped).position(|byte| (0x40..0x7f).contains(byte));
    let Some(end) = end.map(|end| end + skipped) else {
        return if rest.len() < LONGEST { Found::Part } else { Found::Key(None, rest.len() + 2) };
    };
    let press = match (rest[end], &rest[..end]) {
        (_, [b'[', ..]) => None,
        (b'Z', _) => Some(Press::Tab),
        (b'~', number) => match number.split(|byte| *byte == b';').next() {
            Some(b"1" | b"7") => Some(Press::Home),
            Some(b"4" | b"8") => Some(Press::End),
            Some(b"5") => Some(Press::PageUp),
            Some(b"6") => Some(Press::PageDown),
            Some(_) | None => None,
        },
        (last, _) => arrow(last),
    };
    Found::Key(press, end + 3)
}

const fn arrow(last: u8) -> Option<Press> {
    match last {
        b'A' => Some(Press::Up),
        b'B' => Some(Press::Down),
        b'C' => Some(Press::Right),
        b'D' => Some(Press::Left),
        b'H' => Some(Press::Home),
        b'F' => Some(Press::End),
        _ => None,
    }
}

fn character(bytes: &[u8]) -> Found {
    let length = match bytes.first() {
        None => return Found::Part,
        Some(0xc0..0xe0) => 2,
        Some(0xe0..0xf0) => 3,
        Some(0xf0..0xf8) => 4,
        Some(_) => 1,
    };
    let Some(bytes) = bytes.get(..length) else { return Found::Part };
    match std::str::from_utf8(bytes) {
        Ok(text) => Found::Key(text.chars().next().map(Press::Char), length),
        // What is no character means nothing.
        Err(_) => Found::Key(None, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_known_however_its_bytes_are_cut() {
        let all: [(&[u8], &[Press]); 12] = [
            (b"q", &[Press::Char('q')]),
            ("東é".as_bytes(), &[Press::Char('東'), Press::Char('é')]),
            (b"\r\t\x7f\x03", &[Press::Enter, Press::Tab, Press::Backspace, Press::Interrupt]),
            (b"\x1b[A\x1bOB", &[Press::Up, Press::Down]),
            (b"\x1b[1;5C", &[Press::Right]),
            (b"\x1b[H\x1b[4~\x1b[7~", &[Press::Home, Press::End, Press::Home]),
            (b"\x1b[5~\x1b[6;2~", &[Press::PageUp, Press::PageDown]),
            (b"\x1b[Z", &[Press::Tab]),
            (b"\x1b[[Ax", &[Press::Char('x')]),
            (b"\x1b[15~\x1b[200~", &[]),
            (b"\x1bx\x1b\x1b[D", &[Press::Escape, Press::Left]),
            (b"\xff\x00a", &[Press::Char('a')]),
        ];
        for (bytes, expected) in all {
            let mut whole = Presses::default();
            assert_eq!(whole.take(bytes), expected, "{bytes:?}");
            assert!(!whole.is_amid(), "{bytes:?}");
            let mut cut = Presses::default();
            let presses: Vec<Press> =
                bytes.iter().flat_map(|byte| cut.take(std::slice::from_ref(byte))).collect();
            assert_eq!(presses, expected, "byte by byte: {bytes:?}");
        }
    }

    #[test]
    fn an_escape_is_one_when_nothing_comes_after_it() {
        let mut presses = Presses::default();
        assert_eq!(presses.take(b"\x1b"), []);
        assert!(presses.is_amid());
        assert_eq!(presses.rest(), Some(Press::Escape));
        assert_eq!(presses.take(b"\x1b["), []);
        assert_eq!(presses.rest(), None);
        assert_eq!(presses.take(b"A"), [Press::Char('A')]);
    }
}
