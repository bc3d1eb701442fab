//! A pane below the list: why, what an agent writes, or events. Lines, a place in them, a search.
//!
//! No more lines are kept than [`MOST_LINES`]; whoever looks back further asks `defib logs`.

use std::collections::VecDeque;

use defib_core::Name;
use defib_core::screen::{Colours, Screen, one_line};
use unicode_width::UnicodeWidthChar;

/// So many lines are kept.
pub(crate) const MOST_LINES: usize = 5_000;
/// No line of a log is longer here; the rest of it is left out.
const LONGEST: usize = 4_096;
/// How far left and right go at a time.
const SIDESTEP: usize = 16;

/// What a pane shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The post-mortem of the selected agent.
    Why,
    /// What the selected agent writes.
    Logs,
    /// What was decided and has happened, of all agents.
    Events,
}

/// A pane.
#[derive(Debug)]
pub(crate) struct Pane {
    pub(crate) kind: Kind,
    /// Whose it is, where it is one agent's.
    pub(crate) agent: Option<Name>,
    lines: VecDeque<String>,
    /// A text that is broken into lines by the width there is; only a post-mortem is.
    text: Option<String>,
    /// Removes control sequences from a log.
    screen: Screen,
    /// What has come of a line whose end has not.
    unfinished: String,
    /// How many lines are below the last that is shown. At zero, a log is followed.
    below: usize,
    left: usize,
    pub(crate) search: String,
    width: usize,
    height: usize,
}

impl Pane {
    pub(crate) fn new(kind: Kind, agent: Option<Name>) -> Pane {
        Pane {
            kind,
            agent,
            lines: VecDeque::new(),
            text: None,
            screen: Screen::new(Colours::Remove),
            unfinished: String::new(),
            below: 0,
            left: 0,
            search: String::new(),
            width: 80,
            height: 10,
        }
    }

    /// Takes the size it is drawn in.
    pub(crate) fn fit(&mut self, width: usize, height: usize) {
        let top = self.top();
        self.height = height;
        if width != self.width {
            self.width = width;
            self.break_text();
        }
        if self.text.is_some() {
            // Whoever reads a text from its beginning goes on where the top was.
            self.below = self.most_below().saturating_sub(top);
        }
        self.below = self.below.min(self.most_below());
    }

    /// Shows a text, from its beginning. One that is shown already keeps its place.
    pub(crate) fn show(&mut self, text: String) {
        let top = if self.text.is_some() { self.top() } else { 0 };
        self.text = Some(text);
        self.break_text();
        self.below = self.most_below().saturating_sub(top);
    }

    /// Takes lines that are whole.
    pub(crate) fn add(&mut self, line: String) {
        self.lines.push_back(line);
        if self.below > 0 {
            // Whoever has scrolled up sees the same lines as before.
            self.below += 1;
        }
        if self.lines.len() > MOST_LINES {
            self.lines.pop_front();
        }
        self.below = self.below.min(self.most_below());
    }

    /// Takes a piece of a log, however it is cut.
    pub(crate) fn add_bytes(&mut self, bytes: &[u8]) {
        let text = self.screen.push(bytes).replace('\t', "    ");
        for piece in text.split_inclusive('\n') {
            let line = piece.trim_end_matches('\n');
            let room = LONGEST.saturating_sub(self.unfinished.len());
            self.unfinished.push_str(&line[..line.floor_char_boundary(room)]);
            if piece.ends_with('\n') {
                let line = std::mem::take(&mut self.unfinished);
                self.add(line);
            }
        }
    }

    /// Begins anew.
    pub(crate) fn clear(&mut self) {
        self.lines.clear();
        self.unfinished.clear();
        self.screen = Screen::new(Colours::Remove);
        self.text = None;
        (self.below, self.left) = (0, 0);
    }

    /// The lines that are to be seen, from the left that was scrolled to.
    pub(crate) fn visible(&self) -> impl Iterator<Item = &str> {
        let left = self.left;
        let from_left = move |line: &'_ str| line.char_indices().nth(left).map(|(at, _)| at);
        self.lines
            .iter()
            .skip(self.top())
            .take(self.height)
            .map(move |line| from_left(line).map_or("", |at| &line[at..]))
    }

    /// What has come of a line whose end has not; a prompt is one.
    pub(crate) fn unfinished(&self) -> Option<String> {
        let is_seen = self.below == 0 && !self.unfinished.is_empty();
        is_seen.then(|| self.unfinished.clone())
    }

    pub(crate) fn is_followed(&self) -> bool {
        self.below == 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.unfinished.is_empty()
    }

    /// Where in all lines the visible ones are: the first, the last, how many there are.
    pub(crate) fn place(&self) -> (usize, usize, usize) {
        let top = self.top();
        let last = (top + self.height).min(self.lines.len());
        ((top + 1).min(last), last, self.lines.len())
    }

    pub(crate) fn up(&mut self, lines: usize) {
        self.below = (self.below + lines).min(self.most_below());
    }

    pub(crate) fn down(&mut self, lines: usize) {
        self.below = self.below.saturating_sub(lines);
    }

    pub(crate) fn page(&self) -> usize {
        self.height.saturating_sub(1).max(1)
    }

    pub(crate) fn step_left(&mut self) {
        self.left = self.left.saturating_sub(SIDESTEP);
    }

    pub(crate) fn step_right(&mut self) {
        let longest = self.visible().map(|line| line.chars().count()).max().unwrap_or(0);
        if longest > self.width {
            self.left += SIDESTEP;
        }
    }

    /// Goes to the next line above the last one shown, or below the first one shown, that has what is
    /// searched for. Says whether there is one.
    pub(crate) fn seek(&mut self, is_up: bool) -> bool {
        if self.search.is_empty() {
            return false;
        }
        let wanted = self.search.to_lowercase();
        let has = |at: &usize| self.lines[*at].to_lowercase().contains(&wanted);
        // The line that was found last stands in the middle, or as near to it as there are lines.
        let middle = self.top() + self.height / 2;
        let found = if is_up {
            (0..middle.min(self.lines.len())).rev().find(has)
        } else {
            (middle + 1..self.lines.len()).find(has)
        };
        if let Some(at) = found {
            self.centre(at);
        }
        found.is_some()
    }

    /// Goes to the last line that has what is searched for. Says whether there is one.
    pub(crate) fn seek_last(&mut self) -> bool {
        let wanted = self.search.to_lowercase();
        let found = self.lines.iter().rposition(|line| line.to_lowercase().contains(&wanted));
        if let Some(at) = found {
            self.centre(at);
        }
        found.is_some()
    }

    fn centre(&mut self, at: usize) {
        let top = at.saturating_sub(self.height / 2);
        self.below = self.most_below().saturating_sub(top);
    }

    fn top(&self) -> usize {
        self.most_below().saturating_sub(self.below)
    }

    fn most_below(&self) -> usize {
        self.lines.len().saturating_sub(self.height)
    }

    fn break_text(&mut self) {
        if let Some(text) = &self.text {
            self.lines = text.lines().flat_map(|line| broken(line, self.width)).collect();
        }
    }
}

/// Where the pieces of a line after its first begin: below the first, or below what stands after its
/// label.
fn hang(line: &str) -> usize {
    let spaces = |text: &str| text.len() - text.trim_start_matches(' ').len();
    let indent = spaces(line);
    let label = line[indent..].find("  ").filter(|end| (1..12).contains(end) && indent > 0);
    label.map_or(indent, |end| indent + end + spaces(&line[indent + end..]))
}

/// A line in pieces that fit, broken at spaces where there are any.
fn broken(line: &str, width: usize) -> Vec<String> {
    let line = one_line(&line.replace('\t', "    "));
    let indent = hang(&line);
    let indent = if indent + 20 > width { 0 } else { indent };
    let mut pieces = Vec::new();
    let mut rest = line.as_str();
    loop {
        let front = if pieces.is_empty() { 0 } else { indent };
        let fits = prefix(rest, width.saturating_sub(front).max(1));
        let piece = if fits == rest.len() {
            rest
        } else {
            let space = rest[..fits].rfind(' ').filter(|at| !rest[..*at].trim().is_empty());
            &rest[..space.unwrap_or(fits)]
        };
        pieces.push(format!("{:front$}{piece}", ""));
        rest = &rest[piece.len()..];
        if rest.is_empty() {
            return pieces;
        }
        rest = rest.trim_start_matches(' ');
    }
}

/// How many bytes of a text fit into so many columns; at least one character.
pub(crate) fn prefix(text: &str, width: usize) -> usize {
    let mut used = 0;
    for (at, character) in text.char_indices() {
        used += character.width().unwrap_or(0);
        if used > width && at > 0 {
            return at;
        }
    }
    text.len()
}
