//! Stack traces: the last one in an output, as its language writes it.
//!
//! Lines are looked at one after the other, with a bounded look ahead: the time is linear in the
//! output whatever is in it. Other lines that got between those of a trace are left out. Prose that
//! only speaks of a trace is none: there must be a frame.

mod languages;
#[cfg(test)]
mod tests;

use defib_core::screen::{Colours, Screen};

use crate::postmortem::TAIL_MAX;

/// The longest trace, in bytes. Of a longer one the beginning and the end are kept.
pub const TRACE_MAX: usize = 16 * 1024;

/// What stands where the middle of a long trace was.
const CUT: &str = "\n[…]\n";

/// The last stack trace in the end of an output: Python, Rust, Node, Go or Java.
///
/// Only the last [`TAIL_MAX`] bytes are looked at. Terminal escapes are left out, what is no UTF-8
/// is replaced.
pub fn find_trace(tail: &[u8]) -> Option<String> {
    let tail = &tail[tail.len().saturating_sub(TAIL_MAX)..];
    let text = Screen::new(Colours::Remove).push(tail);
    let lines: Vec<&str> = text.lines().collect();
    let mut last = None;
    let mut at = 0;
    while at < lines.len() {
        match languages::trace_at(&lines, at) {
            Some(found) => {
                // Each takes at least its first line, so this goes on.
                at = found.end.max(at + 1);
                last = Some(found);
            }
            None => at += 1,
        }
    }
    let text = last?.lines.join("\n");
    Some(bounded(text.trim_end()))
}

/// Cuts the middle out of a long trace: the beginning says where it came from and the end what it
/// was, or the other way round, depending on the language.
fn bounded(text: &str) -> String {
    if text.len() <= TRACE_MAX {
        return text.into();
    }
    let half = (TRACE_MAX - CUT.len()) / 2;
    let mut head = half;
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    let mut tail = text.len() - half;
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    let head = text[..head].rsplit_once('\n').map_or(&text[..head], |(whole, _)| whole);
    let tail = text[tail..].split_once('\n').map_or(&text[tail..], |(_, whole)| whole);
    format!("{head}{CUT}{tail}")
}
