//! What Codex says it used: `codex exec --json`. It tells the thread's total after each turn, cached
//! input included, and no cost, which is estimated. A thread that is taken up again goes on counting where it was, so the
//! ledger is told where each stood first and last: what earlier runs told of it is not spent again.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::prices::{Prices, Tokens};
use super::{Kind, Running, Used, count, counts};
use crate::ledger::{Told, micros};

/// So many threads of one run are told apart; a run has one.
const THREADS: usize = 16;
/// A longer id is none.
const LONGEST_ID: usize = 128;

#[derive(Debug, Default)]
pub(super) struct Tally {
    thread: Option<String>,
    tokens: Running,
    usd: Running,
    prices: Arc<Prices>,
    threads: BTreeMap<String, Told>,
}

impl Tally {
    pub(super) fn new(prices: Arc<Prices>) -> Tally {
        Tally { prices, ..Tally::default() }
    }

    pub(super) fn take(&mut self, record: &Value) {
        match record["type"].as_str() {
            Some("thread.started") => {
                self.thread = record["thread_id"].as_str().map(str::to_owned);
            }
            Some("turn.completed") => {
                let tokens = counts(&record["usage"], &["input_tokens", "output_tokens"]);
                self.tokens.take(self.thread.as_deref(), tokens);
                let usage = &record["usage"];
                let by_price = Tokens {
                    input: count(&usage["input_tokens"]),
                    cached: count(&usage["cached_input_tokens"]),
                    output: count(&usage["output_tokens"]),
                };
                let usd = self.prices.estimate(Kind::Codex, None, by_price);
                self.usd.take(self.thread.as_deref(), usd);
                self.note(micros(tokens));
            }
            Some(_) | None => {}
        }
    }

    fn note(&mut self, total: i64) {
        let Some(id) = self.thread.as_ref().filter(|id| id.len() <= LONGEST_ID) else { return };
        if let Some(told) = self.threads.get_mut(id) {
            told.last = total;
        } else if self.threads.len() < THREADS {
            self.threads.insert(id.clone(), Told { first: total, last: total });
        }
    }

    pub(super) fn threads(&self) -> BTreeMap<String, Told> {
        self.threads.clone()
    }

    pub(super) fn used(&self) -> Used {
        Used { tokens: self.tokens.total(), usd: 0.0, estimated: self.usd.total() }
    }
}
