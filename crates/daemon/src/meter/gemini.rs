//! What Gemini CLI says it used: `--output-format stream-json`. Its result has the session's tokens,
//! all of them in one number or model by model, and no cost, which is
//! estimated.

use std::sync::Arc;

use serde_json::Value;

use super::prices::{Prices, Tokens};
use super::{Kind, Running, Used, count};

#[derive(Debug, Default)]
pub(super) struct Tally {
    session: Option<String>,
    tokens: Running,
    usd: Running,
    prices: Arc<Prices>,
}

impl Tally {
    pub(super) fn new(prices: Arc<Prices>) -> Tally {
        Tally { prices, ..Tally::default() }
    }

    pub(super) fn take(&mut self, record: &Value) {
        match record["type"].as_str() {
            Some("init") => self.session = record["session_id"].as_str().map(str::to_owned),
            Some("result") => {
                let stats = &record["stats"];
                self.tokens.take(self.session.as_deref(), tokens(stats));
                self.usd.take(self.session.as_deref(), self.cost(stats));
            }
            Some(_) | None => {}
        }
    }

    /// What the tokens of a session cost, model by model where those are told.
    fn cost(&self, stats: &Value) -> f64 {
        let cost = |model, tokens| self.prices.estimate(Kind::Gemini, model, tokens);
        match stats["models"].as_object().filter(|models| !models.is_empty()) {
            Some(models) => models.iter().map(|(name, own)| cost(Some(name), by_price(own))).sum(),
            None => cost(None, by_price(stats)),
        }
    }

    pub(super) fn used(&self) -> Used {
        Used { tokens: self.tokens.total(), usd: 0.0, estimated: self.usd.total() }
    }
}

/// Tokens by what they cost. All that is not input was written, thoughts among it.
fn by_price(own: &Value) -> Tokens {
    let of = |names: &[&str]| {
        let named = names.iter().map(|name| count(&own[*name]).max(count(&own["tokens"][*name])));
        named.fold(0.0, f64::max)
    };
    let (total, input) = (of(&["total_tokens", "total"]), of(&["input_tokens", "prompt"]));
    // Where only the sum is told, it is taken for output, which costs more.
    Tokens { input, cached: of(&["cached"]), output: (total - input).max(of(&["output_tokens"])) }
}

/// Versions differ in where they say it.
fn tokens(stats: &Value) -> f64 {
    let models = stats["models"].as_object().into_iter().flat_map(|models| models.values());
    let of_model =
        |model: &Value| count(&model["tokens"]["total"]).max(count(&model["total_tokens"]));
    let by_model: f64 = models.map(of_model).sum();
    count(&stats["total_tokens"]).max(by_model)
}
