//! Diagnostics: what is wrong with a file, where, and what to do about it.
//!
//! Every part of the crate reports into one [`Findings`], so that a file's mistakes are shown all
//! at once. A mistake that is found twice, say by two agents that share a default, is kept once.
//! Beyond [`MAX_KEPT`] only the number is kept: nobody reads more, and a broken file of megabytes
//! must not become gigabytes of complaints.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::source::Span;

/// How many diagnostics of one file are kept.
pub const MAX_KEPT: usize = 1000;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file can be used, but hardly means what it says.
    Warning,
}

/// Another place that belongs to a diagnostic.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Related {
    /// Where.
    pub span: Span,
    /// What it has to do with it.
    pub label: String,
}

/// One thing that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, in plain words.
    pub message: String,
    /// Where.
    pub span: Span,
    /// What is said beside the marker.
    pub label: Option<String>,
    /// Other places that belong to it.
    pub related: Vec<Related>,
    /// What to do about it.
    pub help: Option<String>,
}

impl Diagnostic {
    /// Says something beside the marker.
    pub(crate) fn label(&mut self, label: impl Into<String>) -> &mut Diagnostic {
        self.label = Some(label.into());
        self
    }

    /// Says what to do.
    pub(crate) fn help(&mut self, help: impl Into<String>) -> &mut Diagnostic {
        self.help = Some(help.into());
        self
    }

    /// Points at another place as well.
    pub(crate) fn related(&mut self, span: Span, label: impl Into<String>) -> &mut Diagnostic {
        self.related.push(Related { span, label: label.into() });
        self
    }
}

/// Everything found in one file so far.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    kept: Vec<Diagnostic>,
    /// Places and messages of all that are kept.
    seen: HashSet<(Span, String)>,
    errors: usize,
    errors_left_out: usize,
    warnings_left_out: usize,
    /// Takes what is not kept, so that a caller need not know the difference.
    spare: Option<Diagnostic>,
}

impl Findings {
    /// Notes a mistake that makes the file unusable.
    pub(crate) fn error(&mut self, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.errors += 1;
        self.note(Severity::Error, span, message.into())
    }

    /// Notes something that is allowed, but hardly meant.
    pub(crate) fn warning(&mut self, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.note(Severity::Warning, span, message.into())
    }

    /// Whether more findings would only be counted. Then a costly message is not worth its making.
    pub(crate) fn is_full(&self) -> bool {
        self.kept.len() >= MAX_KEPT
    }

    /// Whether the file is unusable.
    pub(crate) fn has_errors(&self) -> bool {
        self.errors > 0
    }

    fn note(&mut self, severity: Severity, span: Span, message: String) -> &mut Diagnostic {
        let diagnostic =
            Diagnostic { severity, message, span, label: None, related: Vec::new(), help: None };
        if self.is_full() {
            match severity {
                Severity::Error => self.errors_left_out += 1,
                Severity::Warning => self.warnings_left_out += 1,
            }
            return self.spare.insert(diagnostic);
        }
        if !self.seen.insert((span, diagnostic.message.clone())) {
            return self.spare.insert(diagnostic);
        }
        self.kept.push(diagnostic);
        let last = self.kept.len() - 1;
        &mut self.kept[last]
    }

    /// Everything found, in the order of the text, each once, with spans that fit the text.
    pub(crate) fn into_diagnostics(self, text: &str) -> Vec<Diagnostic> {
        let mut list = self.kept;
        for diagnostic in &mut list {
            diagnostic.span = diagnostic.span.fitted_to(text);
            for related in &mut diagnostic.related {
                related.span = related.span.fitted_to(text);
            }
        }
        list.sort_by_key(|diagnostic| (diagnostic.span.start, diagnostic.severity));
        let end = Span { start: text.len(), end: text.len() };
        for (severity, count, word) in [
            (Severity::Error, self.errors_left_out, "errors"),
            (Severity::Warning, self.warnings_left_out, "warnings"),
        ] {
            if count > 0 {
                list.push(Diagnostic {
                    severity,
                    message: format!("{count} more {word} are not listed"),
                    span: end,
                    label: None,
                    related: Vec::new(),
                    help: Some("put right those above first".to_owned()),
                });
            }
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_found_twice_is_told_once_and_the_text_gives_the_order() {
        let mut findings = Findings::default();
        findings.error(Span { start: 5, end: 6 }, "late").help("later");
        findings.warning(Span { start: 1, end: 2 }, "early");
        findings.error(Span { start: 5, end: 6 }, "late");
        let list = findings.into_diagnostics("0123456789");
        let told: Vec<_> = list.iter().map(|d| d.message.as_str()).collect();
        assert_eq!(told, ["early", "late"]);
        assert_eq!(list[1].help.as_deref(), Some("later"));
    }

    #[test]
    fn beyond_the_bound_only_the_number_is_kept() {
        let mut findings = Findings::default();
        for at in 0..MAX_KEPT + 7 {
            findings.error(Span { start: at, end: at }, format!("mistake {at}"));
        }
        let list = findings.into_diagnostics(&" ".repeat(MAX_KEPT + 7));
        assert_eq!(list.len(), MAX_KEPT + 1);
        assert_eq!(list[MAX_KEPT].message, "7 more errors are not listed");
    }
}
