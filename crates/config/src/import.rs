//! A foreign file as a `defib.toml` that says the same.

use std::path::Path;

use crate::diagnostic::{Diagnostic, Findings, Severity};
use crate::foreign::{self, Format, Options};
use crate::load::{folder_of, lowered};
use crate::report::Report;

/// What became of an import.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// The `defib.toml`; there exactly when there is no error among the diagnostics.
    pub toml: Option<String>,
    /// What is wrong with the file, and what of it has no equal, in its order.
    pub diagnostics: Vec<Diagnostic>,
}

/// Imports the text of the file at `path`, which is not read. What has no equal is a comment at the
/// top, with its line.
pub fn import(path: &Path, text: &str, options: &Options) -> Imported {
    let mut findings = Findings::default();
    let format = options.format.unwrap_or_else(|| Format::detect(path, text));
    let folder = folder_of(path);
    let entries = foreign::read(format, text, &folder, options, &mut findings);
    let written = entries.map(|entries| {
        let written = foreign::write_toml(&entries);
        // What is written must be right; the place of a mistake is in the file it came from.
        let _ = lowered(format, entries, &folder, options, &mut findings);
        written
    });
    let fine = !findings.has_errors();
    let diagnostics = findings.into_diagnostics(text);
    let toml = written.filter(|_| fine).map(|written| comments(text, &diagnostics) + &written);
    Imported { toml, diagnostics }
}

fn comments(text: &str, diagnostics: &[Diagnostic]) -> String {
    let report = Report::new("", text, diagnostics);
    let warnings = diagnostics.iter().filter(|found| found.severity == Severity::Warning);
    let lines: String = warnings
        .map(|found| {
            let line = report.position(found.span).line;
            format!("# line {line}: {}\n", on_one_line(&found.message))
        })
        .collect();
    if lines.is_empty() { lines } else { lines + "\n" }
}

/// Escapes control characters: a message may quote any text of the file, and a TOML comment may contain none.
fn on_one_line(message: &str) -> String {
    let escaped = message
        .chars()
        .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() });
    escaped.collect()
}
