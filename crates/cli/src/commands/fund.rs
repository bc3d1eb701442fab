//! `defib fund`.

use serde_json::{Value, json};

use super::{Context, segment};
use crate::failure::{Code, Failure};
use crate::output;

/// Give an agent something to spend; one that was halted for want of it starts again
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  defib fund reviewer 10 scrip\n  defib fund reviewer 2.50 usd")]
pub(crate) struct Fund {
    /// The agent
    #[arg(value_name = "NAME")]
    name: String,
    /// How much: a number above zero
    #[arg(value_name = "AMOUNT", allow_negative_numbers = true)]
    amount: f64,
    /// Of what: scrip, usd, tokens, or a word of your own
    #[arg(value_name = "UNIT")]
    unit: String,
}

impl Fund {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let Fund { name, amount, unit } = self;
        if !amount.is_finite() || *amount <= 0.0 {
            let failure = Failure::new(Code::Usage, format!("{amount} is no amount to give"));
            return Err(failure.hint("an amount is a number above zero"));
        }
        let path = format!("/api/v1/agents/{}/fund", segment(name)?);
        let body = json!({ "amount": amount, "unit": unit });
        let receipt: Value = context.client()?.post(&path, &body)?;
        let (agent, left) = (receipt["agent"].as_str().unwrap_or(name), &receipt["balance"]);
        let left = left.as_f64().map(super::ledger::number).unwrap_or_default();
        output::print(&format!("{agent}: {left} {unit}\n"))
    }
}
