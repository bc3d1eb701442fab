//! What is on a terminal: its screen, the lines above it, and the modes its program has set.

use avt::{Color, Line, Pen};
use defib_host::protocol::TerminalSize;

use super::modes::Modes;

/// How many lines above the screen are kept.
const SCROLLBACK: usize = 1000;

/// A terminal's state, followed from what is written on it.
pub(super) struct Screen {
    terminal: avt::Terminal,
    modes: Modes,
    /// The beginning of a character whose end has not come yet.
    partial: Vec<u8>,
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (columns, rows) = self.terminal.size();
        write!(f, "Screen({columns}x{rows})")
    }
}

impl Screen {
    pub(super) fn new(size: TerminalSize) -> Screen {
        let (columns, rows) = (usize::from(size.columns.max(1)), usize::from(size.rows.max(1)));
        let terminal = avt::Terminal::with_scrollback(columns, rows, Some(SCROLLBACK));
        let terminal = terminal.expect("no side of it is zero");
        Screen { terminal, modes: Modes::default(), partial: Vec::new() }
    }

    /// Takes what was written. What is no text is shown as such, as terminals do.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.modes.feed(bytes);
        let joined;
        let mut rest = if self.partial.is_empty() {
            bytes
        } else {
            joined = [self.partial.as_slice(), bytes].concat();
            self.partial.clear();
            &joined
        };
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => return self.terminal.feed(text),
                Err(error) => {
                    let (good, bad) = rest.split_at(error.valid_up_to());
                    self.terminal.feed(std::str::from_utf8(good).unwrap_or_default());
                    let Some(wrong) = error.error_len() else {
                        self.partial = bad.to_vec();
                        return;
                    };
                    self.terminal.feed("\u{fffd}");
                    rest = bad.get(wrong..).unwrap_or_default();
                }
            }
        }
    }

    /// The lines on it.
    pub(super) fn lines(&self) -> Vec<String> {
        self.terminal.screen().visible_lines().map(Line::text).collect()
    }

    pub(super) fn resize(&mut self, size: TerminalSize) {
        self.terminal.resize(size.columns.into(), size.rows.into());
    }

    /// What draws all of it on a terminal of the same size, whatever was on that before.
    pub(super) fn drawn(&self) -> String {
        let (_, rows) = self.terminal.size();
        let mut text = String::from("\x1b[!p\x1b[?1049l\x1b[m\x1b[H\x1b[2J");
        let primary = self.terminal.primary_screen();
        let above = primary.all_lines().count().saturating_sub(rows);
        for line in primary.all_lines().take(above) {
            draw_line(line, &mut text);
        }
        if above > 0 {
            // The last of them is pushed off the screen, and no empty line after it.
            text.push_str(&"\n".repeat(rows - 1));
            text.push_str("\x1b[H");
        }
        text.push_str(&self.terminal.dump());
        self.modes.draw(&mut text);
        text
    }
}

fn draw_line(line: &Line, text: &mut String) {
    let full = line.text();
    let mut left = if line.is_wrapped() { usize::MAX } else { full.trim_end().chars().count() };
    let mut pen = Pen::default();
    for cell in line.cells().iter().filter(|cell| cell.width() > 0) {
        if left == 0 {
            break;
        }
        left -= 1;
        if cell.pen() != &pen {
            pen = *cell.pen();
            draw_pen(&pen, text);
        }
        text.push(cell.char());
    }
    if !pen.is_default() {
        text.push_str("\x1b[m");
    }
    if !line.is_wrapped() {
        text.push_str("\r\n");
    }
}

fn draw_pen(pen: &Pen, text: &mut String) {
    text.push_str("\x1b[0");
    let attributes = [
        (pen.is_bold(), 1),
        (pen.is_faint(), 2),
        (pen.is_italic(), 3),
        (pen.is_underline(), 4),
        (pen.is_blink(), 5),
        (pen.is_inverse(), 7),
        (pen.is_strikethrough(), 9),
    ];
    for (_, number) in attributes.into_iter().filter(|(is_set, _)| *is_set) {
        text.push_str(&format!(";{number}"));
    }
    for (ground, colour) in [(38, pen.foreground()), (48, pen.background())] {
        match colour {
            Some(Color::Indexed(index)) => text.push_str(&format!(";{ground};5;{index}")),
            Some(Color::RGB(rgb)) => {
                text.push_str(&format!(";{ground};2;{};{};{}", rgb.r, rgb.g, rgb.b));
            }
            None => {}
        }
    }
    text.push('m');
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: TerminalSize = TerminalSize { rows: 4, columns: 20 };

    fn screen(written: &[&[u8]]) -> Screen {
        let mut screen = Screen::new(SIZE);
        for bytes in written {
            screen.feed(bytes);
        }
        screen
    }

    /// What a viewer sees whose terminal had something else on it.
    fn seen_by_a_viewer(of: &Screen) -> avt::Terminal {
        let mut terminal = avt::Terminal::with_scrollback(20, 4, Some(SCROLLBACK)).unwrap();
        terminal.feed("\x1b[31msome other\r\nprogram's\x1b[?1049h\x1b[2;3r\x1b[3;5H");
        terminal.feed(of.drawn().as_str());
        terminal
    }

    #[test]
    fn a_viewer_sees_the_screen_and_the_lines_above_it() {
        let written = "one\r\n\x1b[1;31mtwo\x1b[m\r\nthree\r\nfour\r\nfive\r\nsix";
        let screen = screen(&[written.as_bytes()]);
        let terminal = seen_by_a_viewer(&screen);
        let shown: Vec<String> = terminal.screen().visible_lines().map(Line::text).collect();
        let shown: Vec<&str> = shown.iter().map(|line| line.trim_end()).collect();
        assert_eq!(shown, ["three", "four", "five", "six"]);
        let all: Vec<String> = terminal.screen().all_lines().map(Line::text).collect();
        let above: Vec<&str> = all.iter().map(|line| line.trim_end()).rev().skip(4).collect();
        assert_eq!(above.first(), Some(&"two"));
        assert_eq!(above.get(1), Some(&"one"));
        let two = terminal.screen().all_lines().nth(all.len() - 5).unwrap();
        assert!(two.cells()[0].pen().is_bold());
        assert_eq!(two.cells()[0].pen().foreground(), Some(Color::Indexed(1)));
        assert_eq!(terminal.cursor().position(), Some((3, 3)));
    }

    #[test]
    fn a_screen_that_was_cleared_is_drawn_empty_with_its_past_above() {
        let screen = screen(&[b"1\r\n2\r\n3\r\n4\r\n5\r\n\x1b[H\x1b[2Jnow"]);
        let terminal = seen_by_a_viewer(&screen);
        assert_eq!(terminal.screen().line(0).unwrap().text().trim_end(), "now");
        assert_eq!(terminal.screen().line(1).unwrap().text().trim_end(), "");
        assert_eq!(terminal.cursor().position(), Some((3, 0)));
    }

    #[test]
    fn a_full_screen_program_is_drawn_on_the_other_screen() {
        let screen = screen(&[b"shell\x1b[?1049h\x1b[Heditor\x1b[?2004h\x1b[?1000;1006h"]);
        let mut terminal = seen_by_a_viewer(&screen);
        assert_eq!(terminal.screen().line(0).unwrap().text().trim_end(), "editor");
        for mode in ["\x1b[?2004h", "\x1b[?1000h", "\x1b[?1006h"] {
            assert!(screen.drawn().contains(mode), "{mode:?}");
        }
        terminal.feed("\x1b[?1049l");
        assert_eq!(terminal.screen().line(0).unwrap().text().trim_end(), "shell");
    }

    #[test]
    fn a_character_in_two_blocks_is_one_and_no_bytes_are_too_odd() {
        let euro = "€".as_bytes();
        let screen = screen(&[&euro[..1], &euro[1..2], &euro[2..], b"\xff\xfe ok \xe2"]);
        let line = screen.terminal.screen().line(0).unwrap().text();
        assert_eq!(line.trim_end(), "€\u{fffd}\u{fffd} ok");
    }
}
