//! `defib down`.

use std::time::Duration;

use defib_core::Name;
use serde_json::json;

use super::status::{is_down, statuses};
use super::{ConfigFile, Context};
use crate::failure::Failure;
use crate::output;

/// Stop this project's agents in reverse order; with --all, the daemon too
#[derive(Debug, clap::Args)]
pub(crate) struct Down {
    #[command(flatten)]
    file: ConfigFile,
    /// Every project, and the daemon with them
    #[arg(long)]
    all: bool,
}

impl Down {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        if self.all {
            if !client.is_up() {
                return output::print("no daemon is running\n");
            }
            client.close()?;
            return output::print("all agents are down, and the daemon with them\n");
        }
        let project = self.file.config()?.project;
        let names: Vec<Name> = client.insist("/api/v1/down", &json!({ "project": project }))?;
        loop {
            let now = statuses(context, &[])?;
            let ours = now.iter().filter(|status| status.project == project);
            let left = ours.filter(|status| !is_down(status)).count();
            if left == 0 {
                return output::print(&format!("{project} is down: {} agents\n", names.len()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
