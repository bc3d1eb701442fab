//! `defib down`.

use defib_core::Name;
use serde_json::json;

use super::{ConfigFile, Context};
use crate::client::Closed;
use crate::failure::{Code, Failure};
use crate::output;

/// Stop this project's agents in reverse order; with --all, the daemon too
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A file that is gone or broken is known by its path.

Examples:
  defib down
  defib down -f night/defib.toml
  defib down --all")]
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
            if !client.is_there()? {
                return output::print("no daemon is running\n");
            }
            return match client.close()? {
                Closed::Gone => output::print("all agents are down, and the daemon with them\n"),
                Closed::TurnedBack(failure) => Err(failure),
            };
        }
        // Who cannot read the file any more still wants its agents to end.
        let config = self.file.config();
        let project = config.as_ref().ok().map(|config| config.project.clone());
        let file = self.file.location()?;
        // It answers when it is so, or when somebody wants it up again.
        let down = json!({ "project": project, "file": file, "wait": true });
        let names: Vec<Name> = match (client.insist("/api/v1/down", &down), config) {
            (Err(unknown), Err(failure)) if unknown.is(Code::NoAgent) => {
                return Err(failure.hint(
                    "`defib down --all` ends every project, `defib stop NAME` one agent; neither \
                     needs the file",
                ));
            }
            (answer, _) => answer?,
        };
        let shown = project.map_or_else(|| file.display().to_string(), |name| name.to_string());
        output::print(&format!("{shown} is down: {}\n", output::count(names.len(), "agent")))
    }
}
