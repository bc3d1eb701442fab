//! What Claude Code says it used: `--output-format stream-json`.
//!
//! Each step of the model is told with its usage, some of them several times under one message id.
//! What ends a turn has the cost of the session so far and, in `modelUsage`, every token of it,
//! subagents included; steps count only until then.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Running, Used, count, counts};

/// So many steps of one turn are told apart.
const STEPS: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Tokens of turns that are over.
    before: f64,
    /// Tokens of each step of the present turn, by message id.
    steps: BTreeMap<String, f64>,
    models: Running,
    cost: Running,
}

impl Tally {
    pub(super) fn take(&mut self, record: &Value) {
        match record["type"].as_str() {
            Some("assistant") => self.step(&record["message"]),
            Some("result") => self.turn(record),
            Some(_) | None => {}
        }
    }

    fn step(&mut self, message: &Value) {
        let Some(id) = message["id"].as_str() else { return };
        let tokens = of_usage(&message["usage"]);
        if let Some(known) = self.steps.get_mut(id) {
            *known = known.max(tokens);
        } else if self.steps.len() < STEPS {
            self.steps.insert(id.to_owned(), tokens);
        }
    }

    fn turn(&mut self, record: &Value) {
        let session = record["session_id"].as_str();
        self.cost.take(session, count(&record["total_cost_usd"]));
        let steps: f64 = std::mem::take(&mut self.steps).values().sum();
        let models = record["modelUsage"].as_object();
        let tokens: f64 = models.into_iter().flat_map(|models| models.values()).map(of_model).sum();
        if tokens > 0.0 {
            self.models.take(session, tokens);
            self.before = (self.before + steps).max(self.models.total());
        } else {
            self.before += steps.max(of_usage(&record["usage"]));
        }
    }

    pub(super) fn used(&self) -> Used {
        let tokens = self.before + self.steps.values().sum::<f64>();
        Used { tokens, usd: self.cost.total(), estimated: 0.0 }
    }
}

fn of_usage(usage: &Value) -> f64 {
    let fields =
        ["input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];
    counts(usage, &fields)
}

fn of_model(model: &Value) -> f64 {
    let fields =
        ["inputTokens", "outputTokens", "cacheCreationInputTokens", "cacheReadInputTokens"];
    counts(model, &fields)
}
