//! The short form of fuzzing, which runs with every change. `scripts/nightly` takes minutes per parser.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::Duration;

use defib_fuzz::{Target, all, fuzz, replay};

#[test]
fn no_parser_minds_what_nobody_expects() {
    for target in all() {
        let outcome = fuzz(&target, 1, Duration::from_secs(1), 20_000);
        assert_eq!(outcome.finding, None, "{}", target.name);
        assert!(outcome.tried > 0);
        println!("{}: {}", target.name, outcome.tried);
    }
}

#[test]
fn no_input_of_the_corpus_is_a_finding() {
    for target in all() {
        let outcome = replay(&target).unwrap();
        assert_eq!(outcome.finding, None, "{}", target.name);
        assert!(outcome.tried > 0, "{} has no corpus", target.name);
    }
}

#[test]
fn a_parser_that_panics_is_found_out() {
    let fragile = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        // The planted bug: a byte position that may be inside of a character.
        if text.len() > 12 && text.starts_with("READY") {
            let _ = &text[..12];
        }
    };
    let seeds = vec!["READY=1\nSTATUS=ééé".as_bytes().to_vec()];
    let target = Target { name: "fragile", seeds, run: fragile };
    let outcome = fuzz(&target, 1, Duration::from_secs(30), 1_000_000);
    assert!(outcome.finding.unwrap().what.contains("panicked"));
}
