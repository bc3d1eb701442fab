//! Diagnostics as people and programs read them.
//!
//! People get the source line with a marker under the place, in the look they know from rustc;
//! programs get an object for each. Only the lines that are shown are handed to the renderer, and
//! a line too long for any screen is not shown at all, so that the cost of a diagnostic does not
//! depend on the size of the file.

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use serde::Serialize;

use crate::diagnostic::{Diagnostic, Severity};
use crate::source::{Lines, Position, Span};

/// A longer line, in bytes, is not shown: only its place is told.
const LONGEST_LINE: usize = 4096;

/// Places at most so many lines apart are shown in one piece of source.
const TOGETHER: usize = 6;

/// The diagnostics of one file, with the text they are about.
#[derive(Debug)]
pub struct Report<'r> {
    origin: &'r str,
    lines: Lines<'r>,
    diagnostics: &'r [Diagnostic],
}

/// A diagnostic as JSON says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Told<'r> {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong.
    pub message: &'r str,
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
    /// What to do about it.
    pub help: Option<&'r str>,
}

impl<'r> Report<'r> {
    /// A report on the file called `origin`, which holds `text`.
    pub fn new(origin: &'r str, text: &'r str, diagnostics: &'r [Diagnostic]) -> Report<'r> {
        Report { origin, lines: Lines::new(text), diagnostics }
    }

    /// The report for people. The last line counts errors and warnings; without any there is none.
    pub fn render(&self, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let renderer = renderer.decor_style(DecorStyle::Ascii);
        let mut out = String::new();
        for diagnostic in self.diagnostics {
            out.push_str(&renderer.render(&[self.group(diagnostic)]));
            out.push_str("\n\n");
        }
        if let Some(summary) = self.summary() {
            out.push_str(&summary);
            out.push('\n');
        }
        out
    }

    /// One line: `defib.toml: 10 errors, 1 warning`; nothing where there is nothing to count.
    pub fn summary(&self) -> Option<String> {
        let count = |severity| self.diagnostics.iter().filter(|d| d.severity == severity).count();
        let parts: Vec<_> =
            [(count(Severity::Error), "error"), (count(Severity::Warning), "warning")]
                .into_iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, word)| format!("{count} {word}{}", if count == 1 { "" } else { "s" }))
                .collect();
        (!parts.is_empty()).then(|| format!("{}: {}", self.origin, parts.join(", ")))
    }

    /// The report for programs.
    pub fn told(&self) -> Vec<Told<'r>> {
        self.diagnostics
            .iter()
            .map(|diagnostic| {
                let Position { line, column } = self.position(diagnostic.span);
                Told {
                    severity: diagnostic.severity,
                    message: &diagnostic.message,
                    line,
                    column,
                    help: diagnostic.help.as_deref(),
                }
            })
            .collect()
    }

    /// Where a span begins.
    pub fn position(&self, span: Span) -> Position {
        self.lines.position(span.start)
    }

    fn group<'d>(&'d self, diagnostic: &'d Diagnostic) -> Group<'d> {
        let level = match diagnostic.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group = Group::with_title(level.primary_title(diagnostic.message.as_str()));
        let mut marks = vec![Mark {
            span: diagnostic.span,
            label: diagnostic.label.as_deref(),
            kind: AnnotationKind::Primary,
        }];
        marks.extend(diagnostic.related.iter().map(|related| Mark {
            span: related.span,
            label: Some(related.label.as_str()),
            kind: AnnotationKind::Context,
        }));
        let mut pieces: Vec<Piece<'_>> = Vec::new();
        for mark in marks {
            let line = self.position(mark.span).line;
            match pieces.iter_mut().find(|piece| piece.is_near(line)) {
                Some(piece) => piece.take(mark, line),
                None => pieces.push(Piece { first: line, last: line, marks: vec![mark] }),
            }
        }
        for piece in pieces {
            group = self.show(group, piece);
        }
        match &diagnostic.help {
            Some(help) => group.element(Level::HELP.message(help.as_str())),
            None => group,
        }
    }

    fn show<'d>(&'d self, group: Group<'d>, piece: Piece<'d>) -> Group<'d> {
        let start = self.lines.span_of(piece.first).start;
        let end = self.lines.span_of(piece.last).end;
        if end - start > LONGEST_LINE {
            return piece.marks.iter().fold(group, |group, mark| {
                let Position { line, column } = self.position(mark.span);
                let group = group.element(Origin::path(self.origin).line(line).char_column(column));
                match mark.label {
                    Some(label) => group.element(Level::NOTE.message(label)),
                    None => group,
                }
            });
        }
        let start = if start == 0 { self.lines.first_byte() } else { start };
        let snippet = Snippet::source(self.text_of(start, end))
            .path(self.origin)
            .line_start(piece.first)
            .annotations(piece.marks.into_iter().map(|mark| {
                let span = mark.span.start.max(start) - start..mark.span.end.max(start) - start;
                mark.kind.span(span).label(mark.label)
            }));
        group.element(snippet)
    }

    fn text_of(&self, start: usize, end: usize) -> &'r str {
        // Lines begin and end on character boundaries.
        &self.lines.text()[start..end]
    }
}

/// A place to be marked.
struct Mark<'d> {
    span: Span,
    label: Option<&'d str>,
    kind: AnnotationKind,
}

/// Lines shown together.
struct Piece<'d> {
    first: usize,
    last: usize,
    marks: Vec<Mark<'d>>,
}

impl<'d> Piece<'d> {
    fn is_near(&self, line: usize) -> bool {
        line + TOGETHER >= self.first && line <= self.last + TOGETHER
    }

    fn take(&mut self, mark: Mark<'d>, line: usize) {
        self.first = self.first.min(line);
        self.last = self.last.max(line);
        self.marks.push(mark);
    }
}
