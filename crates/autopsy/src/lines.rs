//! The last lines that an agent itself wrote, as plain text.
//!
//! What a terminal would not show is taken out, and the many forms of apostrophes, dashes and dots
//! become one of each, so that a rule need not know them. Lines that only repeat something (what a
//! tool printed, a quotation, a piece of code, a prompt) are marked: no rule is ever tried on them.

use std::borrow::Cow;

use crate::kind::Kind;

/// No more of an output is looked at line by line.
pub const LINES_BYTES: usize = 64 * 1024;
/// No more lines are looked at, however short they are.
const TAIL_LINES: usize = 1500;
/// No more of a line is looked at: what a message says, it says at its beginning.
const LINE_BYTES: usize = 4 * 1024;

/// A line of output.
#[derive(Debug)]
pub(crate) struct Line<'o> {
    /// Its text, without colours and with plain punctuation.
    pub(crate) text: String,
    /// The line as it was written.
    pub(crate) raw: &'o [u8],
}

/// The lines that the agent itself wrote, in their order; blank ones are left out.
pub(crate) fn own_lines(output: &[u8], kind: Kind) -> Vec<Line<'_>> {
    let tail = &output[output.len().saturating_sub(LINES_BYTES)..];
    let mut raw: Vec<&[u8]> = tail.rsplit(|byte| *byte == b'\n').take(TAIL_LINES).collect();
    let cut = output.len() > LINES_BYTES || raw.len() == TAIL_LINES;
    if cut && raw.len() > 1 {
        // Nobody knows how the first one began.
        raw.pop();
    }
    raw.reverse();
    let texts: Vec<String> = raw.iter().map(|line| plain(line)).collect();
    let mut echo = Echo::new(kind, &texts, cut);
    let last = texts.iter().rposition(|text| !text.trim().is_empty());
    let mut lines = Vec::new();
    for (at, (text, raw)) in texts.into_iter().zip(raw).enumerate() {
        if echo.is_own(&text, Some(at) == last) {
            lines.push(Line { text, raw });
        }
    }
    lines
}

/// One line as a terminal would show it, with plain punctuation.
pub fn plain(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(4 * LINE_BYTES)];
    let text: Cow<'_, str> = String::from_utf8_lossy(bytes);
    // What stands before a carriage return has been written over.
    let text = text.trim_end_matches('\r');
    let text = text.rsplit('\r').find(|part| !part.trim().is_empty()).unwrap_or("");
    let mut shown = String::with_capacity(text.len().min(LINE_BYTES));
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        if shown.len() >= LINE_BYTES {
            break;
        }
        match character {
            '\u{1b}' => skip_escape(&mut rest),
            '\t' => shown.push('\t'),
            '\u{2018}' | '\u{2019}' | '\u{201b}' | '\u{2bc}' | '\u{b4}' | '\u{ff07}' => {
                shown.push('\'');
            }
            '\u{201c}' | '\u{201d}' => shown.push('"'),
            '\u{2010}'..='\u{2015}' | '\u{2212}' => shown.push('-'),
            '\u{2022}' | '\u{2027}' | '\u{2219}' | '\u{22c5}' | '\u{30fb}' => shown.push('·'),
            '\u{2026}' => shown.push_str("..."),
            '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{3000}' => shown.push(' '),
            '\u{200b}'..='\u{200f}' | '\u{fe0f}' | '\u{feff}' | '\u{fffd}' => {}
            control if control.is_control() => {}
            other => shown.push(other),
        }
    }
    shown.truncate(shown.trim_end().len());
    shown
}

/// Skips what follows an escape character, up to the end of its sequence.
fn skip_escape(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match rest.next() {
        // A control sequence ends with a letter or a mark of that range.
        Some('[') => while rest.next().is_some_and(|c| !('\u{40}'..='\u{7e}').contains(&c)) {},
        // A command to the terminal, such as a title or a link, ends with a bell or `ESC \`.
        Some(']' | 'P' | 'X' | '^' | '_') => {
            while let Some(character) = rest.next() {
                if character == '\u{7}' {
                    break;
                }
                if character == '\u{1b}' {
                    rest.next_if_eq(&'\\');
                    break;
                }
            }
        }
        // A choice of character set has one more character.
        Some('(' | ')' | '*' | '+' | '#' | '%' | ' ') => {
            rest.next();
        }
        Some(_) | None => {}
    }
}

/// Marks in front of a line that agents use for messages of their own.
const OWN_MARKS: &[char] = &[
    '⎿', '⏺', '●', '✗', '✖', '✘', '✕', '×', '❌', '⚠', '■', '▲', '🛑', '🚫', '❗', '⛔', '!', '💥',
];

/// A line without the marks in front of it.
pub(crate) fn unmarked(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_whitespace() || OWN_MARKS.contains(&c))
}

/// Knows, line by line, what only repeats something else.
#[derive(Debug)]
struct Echo {
    kind: Kind,
    /// Whether a fenced block is open.
    fenced: bool,
    /// Fences still to come.
    fences: usize,
    /// Inside an edit as aider writes it.
    edit: bool,
    /// Under the heading of a tool call or of a prompt.
    tool: bool,
}

impl Echo {
    fn new(kind: Kind, texts: &[String], cut: bool) -> Echo {
        let fences = texts.iter().filter(|text| is_fence(text)).count();
        // Where the beginning is missing, an odd fence closes what was opened there; else it was
        // opened by an agent that died before it could close it, and encloses nothing.
        Echo { kind, fenced: cut && fences % 2 == 1, fences, edit: false, tool: false }
    }

    fn is_own(&mut self, text: &str, last: bool) -> bool {
        if is_fence(text) {
            self.fences -= 1;
            self.fenced = !self.fenced && self.fences > 0;
            return false;
        }
        if text.starts_with("<<<<<<< ") {
            self.edit = true;
        }
        if text.starts_with(">>>>>>> ") {
            self.edit = false;
            return false;
        }
        if self.fenced || self.edit {
            return false;
        }
        if text.trim().is_empty() {
            if self.kind != Kind::Codex {
                self.tool = false;
            }
            return false;
        }
        if self.is_in_tool(text, last) {
            return false;
        }
        let own = text.trim_start();
        if own.len() < text.len() {
            // Only what a message of its own begins with makes up for an indent.
            return own.starts_with(OWN_MARKS);
        }
        !own.starts_with(['>', '|', '│', '┃', '+', '$', '`', '"', '\'', '└', '├', '╰', '┆'])
    }

    /// Whether the line belongs to a tool call or a prompt that is shown.
    fn is_in_tool(&mut self, text: &str, last: bool) -> bool {
        match self.kind {
            Kind::Codex => {
                // Codex writes the name of a section on a line of its own.
                match text {
                    "exec" | "user" | "User instructions:" => {
                        self.tool = true;
                        return true;
                    }
                    "codex" | "thinking" | "tokens used" | "--------" => self.tool = false,
                    _ => {}
                }
                self.tool && !(last && text.starts_with("ERROR: "))
            }
            Kind::Goose if text.starts_with("───") => {
                self.tool = true;
                true
            }
            Kind::Goose => self.tool,
            Kind::Claude
            | Kind::Gemini
            | Kind::Opencode
            | Kind::Aider
            | Kind::Python
            | Kind::Node
            | Kind::Generic => {
                // `⏺ Bash(make)` and the lines beneath it.
                let call = text.trim_start().strip_prefix(['⏺', '●']);
                match call {
                    Some(call) => self.tool = is_call(call.trim_start()),
                    None if !text.starts_with([' ', '\t', '⎿']) => self.tool = false,
                    None => {}
                }
                self.tool
            }
        }
    }
}

fn is_fence(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with("```") || text.starts_with("~~~")
}

/// Whether it looks like `Bash(make test)`.
fn is_call(text: &str) -> bool {
    let name = text.split('(').next().unwrap_or("");
    name.len() < text.len()
        && !name.is_empty()
        && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | ':' | '.'))
}
