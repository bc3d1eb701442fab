//! Aligned columns for people.

use std::fmt::Write as _;

use anstyle::Style;

/// A cell: its text and how it looks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn new(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), style: Style::new() }
    }

    pub(crate) fn styled(text: impl Into<String>, style: Style) -> Cell {
        Cell { text: text.into(), style }
    }
}

/// Rows under a head, each column as wide as its widest cell.
pub(crate) fn table(head: &[&str], rows: &[Vec<Cell>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|c| c.text.chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let bold = Style::new().bold();
    let head = head.iter().map(|title| Cell::styled(*title, bold)).collect::<Vec<_>>();
    let mut text = String::new();
    for row in std::iter::once(&head).chain(rows) {
        let last = row.iter().rposition(|cell| !cell.text.is_empty()).unwrap_or(0);
        for (at, cell) in row.iter().enumerate().take(last + 1) {
            let gap = if at == 0 { "" } else { "  " };
            let pad = if at == last { 0 } else { widths[at] - cell.text.chars().count() };
            let style = cell.style;
            // A String takes whatever is written to it.
            let _ = write!(text, "{gap}{style}{}{style:#}{:pad$}", cell.text, "");
        }
        text.push('\n');
    }
    text
}
