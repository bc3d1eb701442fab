//! Agents' words for an operator's terminal: text and colours, and nothing that controls the terminal.
//!
//! A program's output can set window titles, write to the clipboard, move the cursor over earlier lines,
//! make the terminal type answers, or hide text. [`Screen`] removes all control sequences except colours,
//! across any division of the output into chunks:
//!
//! - OSC, DCS, APC, PM and SOS strings, with their text. A string without an end stops at the end of its line.
//! - CSI sequences except SGR (colours and styles). SGR 8, which hides text, is removed as well.
//! - All other escapes, C0 controls except tab and line feed, DEL, and C1 controls in both encodings.
//! - A carriage return that is not part of a line end becomes a line end, so that it hides nothing.
//! - Characters that change the reading direction, line separators and invalid UTF-8 become U+FFFD.
//!
//! Colours end with their line, and with the chunk: an output that stops in the middle leaves none behind.

use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

/// The longest SGR sequence that is passed on, in bytes.
const LONGEST_SGR: usize = 64;
/// How many bytes of SGR sequences one line can carry from a chunk to the next.
const MOST_ACTIVE: usize = 256;

const RESET: &str = "\x1b[0m";

/// Whether colours are passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    /// They stay.
    Keep,
    /// They are removed like any other sequence.
    Remove,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Text,
    /// After ESC.
    Escape,
    /// After ESC and an intermediate character, as in `ESC ( B`.
    Intermediate,
    /// In a CSI sequence; its parameters are in `parameters`.
    Control,
    /// In a string such as OSC, which a BEL, `ESC \` or the end of the line ends.
    Chars,
}

/// A filter for one stream of output.
#[derive(Debug)]
pub struct Screen {
    colours: Colours,
    state: State,
    /// The first bytes of a character that the last chunk did not end.
    partial: Vec<u8>,
    parameters: String,
    /// Whether the CSI sequence is longer than any that is passed on.
    is_long: bool,
    /// A carriage return came last: what follows decides what it means.
    returned: bool,
    /// The SGR sequences in effect on this line.
    active: String,
}

impl Screen {
    /// A filter at the beginning of a stream.
    pub const fn new(colours: Colours) -> Screen {
        Screen {
            colours,
            state: State::Text,
            partial: Vec::new(),
            parameters: String::new(),
            is_long: false,
            returned: false,
            active: String::new(),
        }
    }

    /// Filters the next chunk.
    pub fn push(&mut self, chunk: &[u8]) -> String {
        let mut shown = String::with_capacity(chunk.len());
        shown.push_str(&self.active);
        let mut bytes = mem::take(&mut self.partial);
        bytes.extend_from_slice(chunk);
        let mut rest = bytes.as_slice();
        loop {
            let (text, invalid) = match core::str::from_utf8(rest) {
                Ok(text) => (text, None),
                Err(error) => {
                    let valid = rest.get(..error.valid_up_to()).unwrap_or_default();
                    (core::str::from_utf8(valid).unwrap_or_default(), Some(error.error_len()))
                }
            };
            text.chars().for_each(|c| self.take(c, &mut shown));
            rest = rest.get(text.len()..).unwrap_or_default();
            match invalid {
                None => break,
                Some(None) => {
                    self.partial = rest.to_vec();
                    break;
                }
                Some(Some(length)) => {
                    self.take(char::REPLACEMENT_CHARACTER, &mut shown);
                    rest = rest.get(length..).unwrap_or_default();
                }
            }
        }
        if !self.active.is_empty() {
            if shown == self.active {
                shown.clear();
            } else {
                shown.push_str(RESET);
            }
        }
        shown
    }

    fn take(&mut self, c: char, shown: &mut String) {
        match (self.state, c) {
            // These end any sequence.
            (_, '\n' | '\r') => {
                self.state = State::Text;
                self.end_line(c, shown);
            }
            (_, '\x1b') => self.state = State::Escape,
            (_, '\x18' | '\x1a') => self.state = State::Text,
            (State::Chars, '\x07' | '\u{9c}') => self.state = State::Text,
            (State::Chars, _) => {}
            (_, '\u{9b}') | (State::Escape, '[') => {
                self.parameters.clear();
                (self.state, self.is_long) = (State::Control, false);
            }
            (_, '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}')
            | (State::Escape, 'P' | 'X' | ']' | '^' | '_') => self.state = State::Chars,
            (State::Escape | State::Intermediate, ' '..='/') => self.state = State::Intermediate,
            (State::Escape | State::Intermediate, '0'..='~') => self.state = State::Text,
            (State::Control, ' '..='?') => {
                self.is_long |= self.parameters.len() >= LONGEST_SGR;
                if !self.is_long {
                    self.parameters.push(c);
                }
            }
            (State::Control, '@'..='~') => {
                self.state = State::Text;
                if c == 'm' && !self.is_long {
                    self.set_colours(shown);
                }
            }
            // Terminals obey control characters inside of a sequence; here they are removed.
            (State::Control, '\0'..='\x1f' | '\x7f') => {}
            (State::Text | State::Escape | State::Intermediate | State::Control, _) => {
                self.state = State::Text;
                self.show(c, shown);
            }
        }
    }

    fn end_line(&mut self, c: char, shown: &mut String) {
        if c == '\r' {
            self.returned = true;
            return;
        }
        self.returned = false;
        if !self.active.is_empty() {
            shown.push_str(RESET);
            self.active.clear();
        }
        shown.push('\n');
    }

    fn show(&mut self, c: char, shown: &mut String) {
        let c = match c {
            '\t' => c,
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}' => {
                char::REPLACEMENT_CHARACTER
            }
            c if c.is_control() => return,
            c => c,
        };
        if self.returned {
            self.end_line('\n', shown);
        }
        shown.push(c);
    }

    fn set_colours(&mut self, shown: &mut String) {
        // A first character such as `>` makes a mode switch of it, an intermediate something else.
        let is_sgr =
            self.parameters.bytes().all(|b| b.is_ascii_digit() || matches!(b, b';' | b':'));
        if self.colours == Colours::Remove || !is_sgr {
            return;
        }
        let Some(parameters) = without_hiding(&self.parameters) else { return };
        if self.returned {
            self.end_line('\n', shown);
        }
        let sequence = ["\x1b[", parameters.as_str(), "m"].concat();
        let is_reset = parameters.bytes().all(|b| matches!(b, b'0' | b';'));
        if is_reset || self.active.len() + sequence.len() > MOST_ACTIVE {
            self.active.clear();
            shown.push_str(RESET);
        }
        if !is_reset {
            self.active.push_str(&sequence);
            shown.push_str(&sequence);
        }
    }
}

/// SGR parameters without 8 (concealed). Nothing if none are left.
fn without_hiding(parameters: &str) -> Option<String> {
    let mut kept: Vec<&str> = Vec::new();
    let mut codes = parameters.split(';');
    while let Some(code) = codes.next() {
        match code.trim_start_matches('0') {
            "8" => {}
            // A colour's own numbers follow, which may be 8.
            "38" | "48" | "58" => {
                kept.push(code);
                let Some(kind) = codes.next() else { break };
                kept.push(kind);
                let numbers = match kind.trim_start_matches('0') {
                    "5" => 1,
                    "2" => 3,
                    _ => 0,
                };
                kept.extend(codes.by_ref().take(numbers));
            }
            code if code.starts_with("8:") => {}
            _ => kept.push(code),
        }
    }
    (!kept.is_empty()).then(|| kept.join(";"))
}

/// A text for a terminal, with its colours. Those that are left on at its end are switched off.
pub fn coloured(text: &str) -> String {
    Screen::new(Colours::Keep).push(text.as_bytes())
}

/// A text for a terminal, without colours.
pub fn plain(text: &str) -> String {
    Screen::new(Colours::Remove).push(text.as_bytes())
}

/// A text for one line of a terminal, without colours: line ends and tabs are spaces.
pub fn one_line(text: &str) -> String {
    plain(text).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};
    use std::format;

    #[test]
    fn only_text_and_colours_are_left() {
        for (output, shown) in [
            ("a\tb\nc", "a\tb\nc"),
            ("\x1b[1;31mred\x1b[0m x", "\x1b[1;31mred\x1b[0m x"),
            ("\x1b[31mred\nnext", "\x1b[31mred\x1b[0m\nnext"),
            ("\x1b[31mred", "\x1b[31mred\x1b[0m"),
            ("\x1b[38;5;8mgrey\x1b[m", "\x1b[38;5;8mgrey\x1b[0m"),
            ("\x1b[38;2;8;8;8;8mx", "\x1b[38;2;8;8;8mx\x1b[0m"),
            ("\x1b[38:5:8mx", "\x1b[38:5:8mx\x1b[0m"),
            ("\x1b[8mhidden\x1b[1;08mx", "hidden\x1b[1mx\x1b[0m"),
            ("\x1b[>4;2mx\x1b[?25lx\x1b[2Jx\x1b[Hx\x1b[1;1Hx\x1b[6nx", "xxxxxx"),
            ("\x1b[1 mx\x1b[!px", "xx"),
            ("\x1b]0;title\x07a\x1b]52;c;eA==\x1b\\b\u{9d}0;t\u{9c}c", "abc"),
            ("\x1bPq#0\x1b\\a\x1b_G\x1b\\b\x1b^p\x1b\\c\x1bXs\x1b\\d", "abcd"),
            ("\u{90}q\u{9c}a\u{9f}G\u{9c}b\u{9e}p\u{9c}c\u{98}s\u{9c}d", "abcd"),
            ("\u{9b}2Ja\u{9b}31mb", "a\x1b[31mb\x1b[0m"),
            ("\x1b]never ends\nnext", "\nnext"),
            ("\x1b]0;\x1b]0;t\x07x", "x"),
            ("\x1bca\x1b7b\x1b(0c\x1b#8d\x1b=e\x1bMf", "abcdef"),
            ("a\x08\x08b\x07\0\x0b\x0c\x0e\x0f\x7f\u{85}c", "abc"),
            ("secret\rok\n", "secret\nok\n"),
            ("a\r\nb\r\r\nc\r", "a\nb\nc"),
            ("10%\x1b[2K\r20%\n", "10%\n20%\n"),
            ("a\u{202e}b\u{2066}c\u{2028}d", "a\u{fffd}b\u{fffd}c\u{fffd}d"),
            ("\x1b[3\x071mx", "\x1b[31mx\x1b[0m"),
            ("\x1b[31\x18mx", "mx"),
            ("\x1b[éx", "éx"),
            ("\x1béx", "éx"),
            ("שלום", "שלום"),
        ] {
            assert_eq!(coloured(output), shown, "{output:?}");
        }
        assert_eq!(Screen::new(Colours::Keep).push(b"\xff\x9b2Jx"), "\u{fffd}\u{fffd}2Jx");
        assert_eq!(plain("\x1b[31mred\x1b[0m\n"), "red\n");
        assert_eq!(one_line("a\x1b]0;t\x07\nb\tc"), "a b c");
    }

    #[test]
    fn a_sequence_without_an_end_takes_no_memory() {
        let mut screen = Screen::new(Colours::Keep);
        for chunk in ["\x1b[1", "\x1b]0;"] {
            screen.push(chunk.as_bytes());
            for _ in 0..1000 {
                assert_eq!(screen.push("1;".repeat(1000).as_bytes()), "");
            }
            assert!(screen.parameters.capacity() < 1000);
            assert_eq!(screen.push(b"m\nx\n").trim(), "x");
        }
    }

    /// What is on the screen in the end: colours at the borders of chunks are set anew.
    fn colourless(shown: &str) -> String {
        plain(shown)
    }

    proptest! {
        #[test]
        fn chunk_borders_change_nothing(
            parts in proptest::collection::vec(
                proptest::sample::select(std::vec![
                    "\x1b", "[", "]", "P", "\\", "m", "31", ";", "8", "\x07", "\r", "\n", "a", "é",
                    "\u{9b}", "\u{9d}", "\u{9c}", "?", ">", " ", "\u{202e}", "H", "\x18",
                ]),
                0..40,
            ),
            cuts in proptest::collection::vec(0usize..80, 0..6),
        ) {
            let text = parts.concat();
            let whole = coloured(&text);
            let mut screen = Screen::new(Colours::Keep);
            let mut shown = String::new();
            let (mut from, mut cuts) = (0, cuts);
            cuts.sort_unstable();
            for cut in cuts.into_iter().map(|cut| cut.min(text.len())).chain([text.len()]) {
                shown.push_str(&screen.push(&text.as_bytes()[from..cut.max(from)]));
                from = cut.max(from);
            }
            prop_assert_eq!(colourless(&shown), colourless(&whole), "{:?}", text);
            for part in shown.split('\x1b').skip(1) {
                let end = part.find(|c: char| !matches!(c, '[' | '0'..='9' | ';' | ':'));
                prop_assert!(end.is_some_and(|end| part[end..].starts_with('m')), "{}", format!("{shown:?}"));
            }
            let is_safe = |c: char| matches!(c, '\n' | '\t' | '\x1b') || !c.is_control();
            prop_assert!(shown.chars().all(is_safe), "{:?}", shown);
        }
    }
}
