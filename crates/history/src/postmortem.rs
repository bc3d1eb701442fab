//! What is found on a run beside its death: its last output, and a stack trace in it.
//!
//! A post-mortem is bounded, and redacted before it is made: once it exists, it may be stored.

use defib_core::{Name, RunId};

use crate::redact::Redactor;
use crate::trace::find_trace;

/// How much of a run's last output is kept, in bytes.
pub const TAIL_MAX: usize = 64 * 1024;

/// What is to be kept with a run. Several for one run add up: what a later one does not say stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostMortem {
    /// Whose run.
    pub agent: Name,
    /// Which.
    pub run: RunId,
    /// Its last output, at most [`TAIL_MAX`] bytes of it; more is cut off at the front.
    pub tail: Option<Vec<u8>>,
    /// The stack trace found in it.
    pub trace: Option<String>,
}

impl PostMortem {
    /// An empty one.
    pub fn new(agent: Name, run: RunId) -> PostMortem {
        PostMortem { agent, run, tail: None, trace: None }
    }

    /// Adds the last output of the run, cut to its end and redacted, and the stack trace in it.
    #[must_use]
    pub fn with_output(mut self, output: &[u8], secrets: &Redactor) -> PostMortem {
        let clean = secrets.tail(output, TAIL_MAX);
        self.trace = find_trace(&clean);
        self.tail = Some(clean);
        self
    }
}
