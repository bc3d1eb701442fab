//! Places in a text: spans of bytes, and the lines and columns people count in.
//!
//! A [`Span`] that leaves this crate lies inside its text, on character boundaries. Asking for a
//! position costs at most one block of text, however long the line: a file on a single line of
//! ten megabytes is not read again for every mistake in it. Nothing here knows what the text means.

use std::ops::Range;

/// A stretch of a text, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

impl Span {
    /// The very beginning of a text.
    pub const START: Span = Span { start: 0, end: 0 };

    /// The part of the span that lies inside `text`, on character boundaries and on one line:
    /// a marker under the first line of a long table says as much as one under all of it.
    pub(crate) fn fitted_to(self, text: &str) -> Span {
        let start = text.floor_char_boundary(self.start.min(text.len()));
        let end = text.ceil_char_boundary(self.end.clamp(start, text.len()));
        let first_line = text[start..end].split(['\n', '\r']).next().unwrap_or("");
        Span { start, end: start + first_line.len() }
    }
}

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Span {
        Span { start: range.start, end: range.end }
    }
}

impl From<Span> for Range<usize> {
    fn from(span: Span) -> Range<usize> {
        span.start..span.end
    }
}

/// A line and a column, both counted from 1, the column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

/// How many bytes lie between two places whose characters have been counted beforehand.
const BLOCK: usize = 1024;

/// A text and where its lines begin.
#[derive(Debug)]
pub(crate) struct Lines<'t> {
    text: &'t str,
    /// The first byte of each line.
    starts: Vec<usize>,
    /// How many characters begin before each multiple of [`BLOCK`].
    chars_before: Vec<usize>,
}

impl<'t> Lines<'t> {
    pub(crate) fn new(text: &'t str) -> Lines<'t> {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(newlines.map(|(at, _)| at + 1)).collect();
        let mut count = 0;
        let mut chars_before = Vec::with_capacity(text.len() / BLOCK + 1);
        for block in text.as_bytes().chunks(BLOCK) {
            chars_before.push(count);
            count += chars_beginning_in(block);
        }
        chars_before.push(count);
        Lines { text, starts, chars_before }
    }

    /// Where a byte is. A byte order mark is no character of the first line.
    pub(crate) fn position(&self, offset: usize) -> Position {
        let offset = offset.min(self.text.len());
        // The first line begins at 0, so there is always one at or before the offset.
        let index = self.starts.partition_point(|start| *start <= offset) - 1;
        let line_start = self.starts[index].max(self.first_byte());
        Position {
            line: index + 1,
            column: (self.chars_up_to(offset) + 1)
                .saturating_sub(self.chars_up_to(line_start))
                .max(1),
        }
    }

    /// The bytes of a line, counted from 1, with its ending.
    pub(crate) fn span_of(&self, line: usize) -> Span {
        let start = self.starts.get(line - 1).copied();
        let end = self.starts.get(line).copied();
        Span { start: start.unwrap_or(self.text.len()), end: end.unwrap_or(self.text.len()) }
    }

    /// Where the text begins: after a byte order mark, if it has one.
    pub(crate) fn first_byte(&self) -> usize {
        if self.text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len_utf8() } else { 0 }
    }

    pub(crate) fn text(&self) -> &'t str {
        self.text
    }

    fn chars_up_to(&self, offset: usize) -> usize {
        let block = offset / BLOCK;
        self.chars_before[block] + chars_beginning_in(&self.text.as_bytes()[block * BLOCK..offset])
    }
}

/// What some editors put before a text, and what is no part of it.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// How many characters have their first byte here.
fn chars_beginning_in(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| (**byte & 0xc0) != 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    fn at(text: &str, offset: usize) -> (usize, usize) {
        let Position { line, column } = Lines::new(text).position(offset);
        (line, column)
    }

    #[test]
    fn columns_are_counted_in_characters_from_one() {
        assert_eq!(at("", 0), (1, 1));
        assert_eq!(at("ab", 2), (1, 3));
        assert_eq!(at("é = 1", "é = ".len()), (1, 5));
        assert_eq!(at("a\n\tb", 3), (2, 2));
        assert_eq!(at("a\r\nb", 3), (2, 1));
        assert_eq!(at("a\n", 2), (2, 1));
        assert_eq!(at("a", 99), (1, 2));
    }

    #[test]
    fn a_byte_order_mark_takes_no_column() {
        assert_eq!(at("\u{feff}a", 3), (1, 1));
        assert_eq!(at("\u{feff}a", 0), (1, 1));
        assert_eq!(at("\u{feff}a\nb", 5), (2, 1));
    }

    #[test]
    fn a_span_keeps_to_its_text_and_to_one_line() {
        let text = "aé\nb";
        let fitted = |start, end| Span { start, end }.fitted_to(text);
        assert_eq!(fitted(0, 5), Span { start: 0, end: 3 });
        assert_eq!(fitted(2, 2), Span { start: 1, end: 3 });
        assert_eq!(fitted(9, 12), Span { start: 5, end: 5 });
        assert_eq!(fitted(4, 2), Span { start: 4, end: 4 });
    }

    proptest! {
        #[test]
        fn a_position_is_what_counting_by_hand_gives(text in "(\\PC|\n|\r){0,40}", repeat in 1usize..120, at in 0usize..4000) {
            let text = text.replace(BYTE_ORDER_MARK, "").repeat(repeat);
            let offset = text.floor_char_boundary(at.min(text.len()));
            let before = &text[..offset];
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
            prop_assert_eq!(Lines::new(&text).position(offset), Position { line, column });
            let span = Lines::new(&text).span_of(line);
            prop_assert!(span.start <= offset && offset <= span.end);
        }
    }
}
