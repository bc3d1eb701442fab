//! What Gemini CLI says it used: `--output-format stream-json`. Its result has the session's tokens,
//! all of them in one number or model by model, and no cost.

use serde_json::Value;

use super::{Running, Used, count};

#[derive(Debug, Default)]
pub(super) struct Tally {
    session: Option<String>,
    tokens: Running,
}

impl Tally {
    pub(super) fn take(&mut self, record: &Value) {
        match record["type"].as_str() {
            Some("init") => self.session = record["session_id"].as_str().map(str::to_owned),
            Some("result") => {
                self.tokens.take(self.session.as_deref(), tokens(&record["stats"]));
            }
            Some(_) | None => {}
        }
    }

    pub(super) fn used(&self) -> Used {
        Used { tokens: self.tokens.total(), usd: 0.0 }
    }
}

/// Versions differ in where they say it.
fn tokens(stats: &Value) -> f64 {
    let models = stats["models"].as_object().into_iter().flat_map(|models| models.values());
    let of_model =
        |model: &Value| count(&model["tokens"]["total"]).max(count(&model["total_tokens"]));
    let by_model: f64 = models.map(of_model).sum();
    count(&stats["total_tokens"]).max(by_model)
}
