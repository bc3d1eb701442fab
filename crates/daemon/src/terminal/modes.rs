//! The modes of a terminal that concern what is typed, not what is shown: mouse, pasting, focus.
//!
//! A viewer that comes later has to be told of them, or its mouse does nothing.

use std::collections::BTreeSet;

/// Mouse reports in their forms, focus reports, marks around what is pasted.
const KNOWN: [u16; 9] = [9, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 2004];
/// No sequence that sets modes is longer.
const LONGEST: usize = 64;

/// The modes that are set, followed from what is written.
#[derive(Debug, Default)]
pub(super) struct Modes {
    set: BTreeSet<u16>,
    progress: Progress,
    numbers: String,
}

/// How much of `ESC [ ? numbers (h|l)` has been seen.
#[derive(Debug, Default, Clone, Copy)]
enum Progress {
    #[default]
    Nothing,
    Escape,
    Bracket,
    Numbers,
}

impl Modes {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.progress = match (self.progress, byte) {
                (_, 0x1b) => Progress::Escape,
                (Progress::Escape, b'[') => Progress::Bracket,
                // A full reset.
                (Progress::Escape, b'c') => {
                    self.set.clear();
                    Progress::Nothing
                }
                (Progress::Bracket, b'?') => {
                    self.numbers.clear();
                    Progress::Numbers
                }
                (Progress::Numbers, b'0'..=b'9' | b';') if self.numbers.len() < LONGEST => {
                    self.numbers.push(char::from(*byte));
                    Progress::Numbers
                }
                (Progress::Numbers, b'h') => self.change(true),
                (Progress::Numbers, b'l') => self.change(false),
                (
                    Progress::Nothing | Progress::Escape | Progress::Bracket | Progress::Numbers,
                    _,
                ) => Progress::Nothing,
            };
        }
    }

    fn change(&mut self, is_set: bool) -> Progress {
        let numbers = self.numbers.split(';').filter_map(|number| number.parse().ok());
        for mode in numbers.filter(|mode| KNOWN.contains(mode)) {
            if is_set {
                self.set.insert(mode);
            } else {
                self.set.remove(&mode);
            }
        }
        Progress::Nothing
    }

    /// What sets them, and no others, on a viewer's terminal.
    pub(super) fn draw(&self, text: &mut String) {
        for mode in KNOWN {
            let letter = if self.set.contains(&mode) { 'h' } else { 'l' };
            text.push_str(&format!("\x1b[?{mode}{letter}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_followed_over_any_cut_and_others_left_alone() {
        let written =
            b"text\x1b[?1000;1006h\x1b[?25l\x1b[1000h\x1b[?2004h\x1b[?1000l\x1b[?99999999h";
        for cut in 0..written.len() {
            let mut modes = Modes::default();
            modes.feed(&written[..cut]);
            modes.feed(&written[cut..]);
            assert_eq!(modes.set, BTreeSet::from([1006, 2004]), "cut at {cut}");
        }
    }
}
