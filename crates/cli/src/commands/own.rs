//! `defib self`: for the agent itself, from inside of its run.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::client::Client;
use crate::failure::{Code, Failure};

/// For an agent itself: say from inside of its run that it lives, is ready, what it does, or that it
/// wants to end
///
/// defib gives every run `DEFIB_SOCKET` and `DEFIB_TOKEN`, by which it can speak for itself and for
/// nothing else. The token ends with the run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples, in a script that defib runs:
  defib self ready
  defib self beat
  defib self spend 2.5 scrip
  defib self status \"reviewing PR 17 of 40\"
  defib self shutdown --reason \"nothing left to do\"")]
pub(crate) struct Own {
    #[command(subcommand)]
    word: Word,
}

#[derive(Debug, Subcommand)]
enum Word {
    /// Show that it lives: with a `heartbeat`, silence for longer than its `ttl` ends the run
    Beat,
    /// Say that it is ready, for those that start `after` it; for `ready = "notify"`
    Ready,
    /// Say what it is doing, for `defib status`
    Status {
        /// What it is doing, in a line
        #[arg(value_name = "TEXT")]
        text: String,
    },
    /// Say what it has spent, in any unit: `scrip`, `usd`, `tokens`
    ///
    /// Returns when that is stored. A balance of zero or below does not end the run, but no other one
    /// begins until somebody gives it more.
    Spend {
        /// How much
        #[arg(value_name = "N")]
        amount: f64,
        /// Of what
        #[arg(value_name = "UNIT")]
        unit: String,
    },
    /// Ask to stay down: when the run ends it is not started again, whatever `restart` says
    ///
    /// Returns when the wish is stored. The agent then ends by itself; after its `stop_timeout` it
    /// is stopped.
    Shutdown {
        /// Why, for `defib why`
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

impl Own {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let (Some(socket), Some(token)) = (variable("DEFIB_SOCKET"), variable("DEFIB_TOKEN"))
        else {
            let message = "this is for an agent that runs under defib, and this is none: \
                           DEFIB_SOCKET and DEFIB_TOKEN are not set";
            let hint =
                "call it from inside of an agent's run; people use `defib stop` and the like";
            return Err(Failure::new(Code::Usage, message).hint(hint));
        };
        let (path, body) = match &self.word {
            Word::Beat => ("beat", Value::Null),
            Word::Ready => ("ready", Value::Null),
            Word::Spend { amount, unit } => ("spend", json!({ "amount": amount, "unit": unit })),
            Word::Status { text } => ("status", json!({ "text": text })),
            Word::Shutdown { reason } => ("shutdown", json!({ "reason": reason })),
        };
        let client = Client::for_agent(&PathBuf::from(socket), token)?;
        let path = format!("/api/v1/self/{path}");
        let _: Value = match self.word {
            // Said twice, it would be spent twice: it is not said again where an answer was lost.
            Word::Spend { .. } => client.post(&path, &body)?,
            Word::Beat | Word::Ready | Word::Status { .. } | Word::Shutdown { .. } => {
                client.insist(&path, &body)?
            }
        };
        Ok(())
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
