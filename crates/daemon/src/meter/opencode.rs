//! What opencode says it used: `run --format json`. Each step ends with its own tokens and cost.

use serde_json::Value;

use super::{Used, count, counts};

#[derive(Debug, Default)]
pub(super) struct Tally {
    used: Used,
}

impl Tally {
    pub(super) fn take(&mut self, record: &Value) {
        if record["type"].as_str() == Some("step_finish") {
            let (part, tokens) = (&record["part"], &record["part"]["tokens"]);
            self.used.usd += count(&part["cost"]);
            self.used.tokens += counts(tokens, &["input", "output", "reasoning"])
                + counts(&tokens["cache"], &["read", "write"]);
        }
    }

    pub(super) fn used(&self) -> Used {
        self.used
    }
}
