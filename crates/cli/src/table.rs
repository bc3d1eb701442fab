//! Aligned columns for people.

use std::fmt::Write as _;

use anstyle::Style;
use defib_core::screen::one_line;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A cell: its text, on one line and without control characters, and how it looks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn new(text: impl Into<String>) -> Cell {
        Cell::styled(text, Style::new())
    }

    pub(crate) fn styled(text: impl Into<String>, style: Style) -> Cell {
        Cell { text: one_line(&text.into()), style }
    }
}

/// Rows under a head, each column as wide as its widest cell.
pub(crate) fn table(head: &[&str], rows: &[Vec<Cell>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|c| c.text.width());
        cells.chain([head[column].width()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let bold = Style::new().bold();
    let head = head.iter().map(|title| Cell::styled(*title, bold)).collect::<Vec<_>>();
    let mut text = String::new();
    for row in std::iter::once(&head).chain(rows) {
        let last = row.iter().rposition(|cell| !cell.text.is_empty()).unwrap_or(0);
        for (at, cell) in row.iter().enumerate().take(last + 1) {
            let gap = if at == 0 { "" } else { "  " };
            let pad = if at == last { 0 } else { widths[at] - cell.text.width() };
            let style = cell.style;
            // A String takes whatever is written to it.
            let _ = write!(text, "{gap}{style}{}{style:#}{:pad$}", cell.text, "");
        }
        text.push('\n');
    }
    text
}

/// How many columns of a terminal the widest line takes.
pub(crate) fn width(text: &str) -> usize {
    let plain = anstream::adapter::strip_str(text).to_string();
    plain.lines().map(UnicodeWidthStr::width).max().unwrap_or(0)
}

/// A line without what does not fit on so many columns. What sets colours is kept, so that it ends where
/// it should.
pub(crate) fn cut(line: &str, columns: usize) -> String {
    let (mut text, mut left, mut escapes) = (String::new(), columns, false);
    for c in line.chars() {
        if escapes || c == '\x1b' {
            escapes = !c.is_ascii_alphabetic();
            text.push(c);
            continue;
        }
        let wide = c.width().unwrap_or(0);
        if wide > left {
            left = 0;
        } else {
            left -= wide;
            text.push(c);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_by_what_it_takes_on_a_terminal() {
        assert_eq!(cut("abcdef", 4), "abcd");
        assert_eq!(cut("漢字漢字", 5), "漢字");
        assert_eq!(cut("\x1b[1mabc\x1b[0mdef", 2), "\x1b[1mab\x1b[0m");
        assert_eq!(width("\x1b[1m漢字\x1b[0m\nabc\n"), 4);
    }
}
