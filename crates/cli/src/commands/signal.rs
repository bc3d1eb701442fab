//! `defib signal`.

use defib_core::Name;
use serde_json::json;

use super::{Context, segment};
use crate::failure::Failure;
use crate::output;

/// Send a signal to an agent's process
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  defib signal reviewer USR1")]
pub(crate) struct Signal {
    /// The agent
    #[arg(value_name = "NAME")]
    name: String,
    /// The signal: TERM, SIGUSR1, 9
    #[arg(value_name = "SIGNAL")]
    signal: String,
}

impl Signal {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let path = format!("/api/v1/agents/{}/signal", segment(&self.name)?);
        let name: Name = context.client()?.post(&path, &json!({ "signal": self.signal }))?;
        output::print(&format!("{name}: sent\n"))
    }
}
