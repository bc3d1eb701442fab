//! What tokens cost, for CLIs that print tokens and no cost. What is made of it is an estimate.
//!
//! The built-in prices are data (`prices.json`) with a date; `[prices]` of a file goes before them. A
//! model that neither knows is priced as the most expensive one of its kind, so that a bound holds.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use defib_config::config::Price;
use serde::Deserialize;

use super::Kind;

#[derive(Debug, Deserialize)]
struct BuiltIn {
    codex: BTreeMap<String, Price>,
    gemini: BTreeMap<String, Price>,
}

static BUILT_IN: LazyLock<BuiltIn> = LazyLock::new(|| {
    // It is part of the program; a test reads it.
    serde_json::from_str(include_str!("../../prices.json"))
        .unwrap_or_else(|error| panic!("prices.json: {error}"))
});

/// What the tokens of a run cost.
#[derive(Debug, Clone, Default)]
pub(crate) struct Prices {
    /// The prices of the agent's own file, by model.
    own: BTreeMap<String, Price>,
    /// The model that the command names.
    model: Option<String>,
}

/// Tokens by what they cost.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Tokens {
    /// All that the model read, with what was cached.
    pub(super) input: f64,
    pub(super) cached: f64,
    pub(super) output: f64,
}

impl Prices {
    pub(crate) fn new(own: BTreeMap<String, Price>, model: Option<String>) -> Prices {
        Prices { own, model }
    }

    /// What tokens cost, in usd. Without a model it is the one that the command names.
    pub(super) fn estimate(&self, kind: Kind, model: Option<&str>, tokens: Tokens) -> f64 {
        let model = model.or(self.model.as_deref());
        let Some(price) = self.price(kind, model) else { return 0.0 };
        let cached = tokens.cached.min(tokens.input);
        let fresh = tokens.input - cached;
        let cached_price = price.cached.unwrap_or(price.input);
        (fresh * price.input + cached * cached_price + tokens.output * price.output) / 1e6
    }

    fn price(&self, kind: Kind, model: Option<&str>) -> Option<Price> {
        let built_in = match kind {
            Kind::Codex => &BUILT_IN.codex,
            Kind::Gemini => &BUILT_IN.gemini,
            // They say what they cost themselves.
            Kind::Claude | Kind::Opencode | Kind::Aider => return None,
        };
        let named = model.and_then(|model| closest(&self.own, model).or(closest(built_in, model)));
        let dearest = || built_in.values().copied().max_by(|a, b| a.output.total_cmp(&b.output));
        named.or_else(dearest)
    }
}

/// The price of a model, or of the longest known name that the model's name begins with.
fn closest(prices: &BTreeMap<String, Price>, model: &str) -> Option<Price> {
    let fitting = prices.iter().filter(|(known, _)| model.starts_with(known.as_str()));
    fitting.max_by_key(|(known, _)| known.len()).map(|(_, price)| *price)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_priced_by_the_file_then_by_its_name_then_as_the_dearest_of_its_kind() {
        let tokens = Tokens { input: 2e6, cached: 1e6, output: 1e6 };
        let own =
            BTreeMap::from([("gpt-9".to_owned(), Price { input: 1.0, output: 3.0, cached: None })]);
        let prices = Prices::new(own, Some("gpt-5-codex".to_owned()));
        let cost = |kind, model| prices.estimate(kind, model, tokens);
        let is = |cost: f64, usd: f64| assert!((cost - usd).abs() < 1e-9, "{cost} is not {usd}");
        is(cost(Kind::Codex, Some("gpt-9-large")), 1.0 + 1.0 + 3.0);
        is(cost(Kind::Codex, None), 1.25 + 0.125 + 10.0);
        is(cost(Kind::Codex, Some("gpt-5-mini")), 0.25 + 0.025 + 2.0);
        is(cost(Kind::Codex, Some("unheard-of")), 10.0 + 1.0 + 50.0);
        is(cost(Kind::Gemini, Some("gemini-2.5-flash-lite")), 0.1 + 0.01 + 0.4);
        is(cost(Kind::Claude, None), 0.0);
    }
}
