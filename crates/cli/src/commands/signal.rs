//! `defib signal`.

use defib_core::Name;
use serde_json::json;

use super::{Context, segment};
use crate::failure::Failure;
use crate::output;

/// Send a signal to an agent's process, or to those of a group's members
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  defib signal reviewer USR1\n  defib signal pipeline HUP")]
pub(crate) struct Signal {
    /// The agent, or a group
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
