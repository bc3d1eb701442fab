//! The account of one day, line by line, for whoever has to find out why it went wrong.
//!
//! A day without a trace pays nothing for it: a line is only made where somebody reads it.

use std::time::Duration;

use super::clock::Clock;

/// The lines of a day, if they are wanted.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn on() -> Trace {
        Trace { lines: Some(Vec::new()) }
    }

    pub(crate) fn line(&mut self, clock: &Clock, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            let mono = Duration::from_nanos(clock.now().mono.as_nanos());
            lines.push(format!("{} mono {mono:?}  {}", shown(clock.moment()), line()));
        }
    }

    pub(crate) fn take(&mut self) -> Vec<String> {
        self.lines.take().unwrap_or_default()
    }
}

/// A moment of the day, as a clock would show it.
pub(crate) fn shown(nanos: u64) -> String {
    let micros = nanos / 1000;
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{micros:06}")
}
