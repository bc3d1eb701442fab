//! What Codex says it used: `codex exec --json`. It tells the thread's total after each turn, cached
//! input included, and no cost.

use serde_json::Value;

use super::{Running, Used, counts};

#[derive(Debug, Default)]
pub(super) struct Tally {
    thread: Option<String>,
    tokens: Running,
}

impl Tally {
    pub(super) fn take(&mut self, record: &Value) {
        match record["type"].as_str() {
            Some("thread.started") => {
                self.thread = record["thread_id"].as_str().map(str::to_owned);
            }
            Some("turn.completed") => {
                let tokens = counts(&record["usage"], &["input_tokens", "output_tokens"]);
                self.tokens.take(self.thread.as_deref(), tokens);
            }
            Some(_) | None => {}
        }
    }

    pub(super) fn used(&self) -> Used {
        Used { tokens: self.tokens.total(), usd: 0.0 }
    }
}
