//! A file with ten mistakes gives ten diagnostics, and people can read them.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use defib_config::{Report, Severity, parse_in};

const TEXT: &str = include_str!("fixtures/ten-mistakes.toml");

#[test]
fn ten_mistakes_are_ten_diagnostics() {
    let outcome = parse_in(Path::new("/srv/night"), TEXT);
    assert_eq!(outcome.config, None);
    let errors = outcome.diagnostics.iter().filter(|d| d.severity == Severity::Error);
    assert_eq!(errors.count(), 10, "{:#?}", outcome.diagnostics);
    assert_eq!(outcome.diagnostics.len(), 10);
}

#[test]
fn they_are_shown_with_their_lines() {
    let outcome = parse_in(Path::new("/srv/night"), TEXT);
    let report = Report::new("defib.toml", TEXT, &outcome.diagnostics);
    insta::assert_snapshot!(report.render(false));
}
