//! Gives the fuzzer access to the daemon's private parsers of bytes from outside.
//!
//! The results only keep the compiler from removing the calls.

#![allow(missing_docs, reason = "each function is named after its input")]

use crate::wire::{ActionOptions, LogRequest, TerminalRequest, UpRequest};

pub fn notify_datagram(bytes: &[u8]) -> usize {
    crate::liveness::words(bytes).len()
}

pub fn otlp(bytes: &[u8]) -> usize {
    crate::meter::otlp::read_any(bytes)
}

pub fn meters(bytes: &[u8]) -> usize {
    crate::meter::read_any(bytes)
}

pub fn amounts(amount: f64, unit: &str) -> bool {
    crate::api::checked(amount, unit).is_ok()
}

pub fn http_names(text: &str) -> bool {
    crate::doors::read_any(text)
}

pub fn env_file(text: &str) -> usize {
    crate::recipe::read_any(text)
}

pub fn audit(text: &str) -> bool {
    matches!(crate::audit::examine_text(text), crate::audit::Verdict::Whole { .. })
}

pub fn token_hash(text: &str) -> bool {
    crate::liveness::TokenHash::from_hex(text).is_some()
}

pub fn log_frames(bytes: &[u8]) -> usize {
    let mut frames = crate::logs::Frames::default();
    frames.push(bytes);
    std::iter::from_fn(|| frames.take().ok().flatten()).count()
}

pub fn bodies(bytes: &[u8]) -> usize {
    let read = [
        serde_json::from_slice::<UpRequest>(bytes).is_ok(),
        serde_json::from_slice::<LogRequest>(bytes).is_ok(),
        serde_json::from_slice::<ActionOptions>(bytes).is_ok(),
        serde_json::from_slice::<TerminalRequest>(bytes).is_ok(),
    ];
    read.into_iter().filter(|is_one| *is_one).count()
}

pub fn journal(bytes: &[u8]) -> usize {
    crate::journal::read_any(bytes)
}

pub fn terminal(bytes: &[u8]) -> usize {
    crate::terminal::read_any(bytes)
}
