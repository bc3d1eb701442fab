//! `defib plan` and `defib reload`.

use defib_core::Name;
use defib_daemon::wire::{Mode, Plan as Changes};

use super::up::request;
use super::warnings;
use super::{ConfigFile, Context};
use crate::failure::Failure;
use crate::output;

/// Show what a reload would restart, without doing it
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  defib plan\n  defib plan --json | jq .restarted")]
pub(crate) struct Plan {
    #[command(flatten)]
    file: ConfigFile,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Apply the config file: only what changed is restarted
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What is new or changed is started, as far as nobody stopped it; all else stays as it is. `defib plan`
shows it beforehand. A project that is not up is brought up by `defib up`.

Examples:
  defib reload
  defib reload -f night/defib.toml")]
pub(crate) struct Reload {
    #[command(flatten)]
    file: ConfigFile,
}

impl Plan {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let mut request = request(&self.file, self.file.config()?, Mode::Continuous)?;
        request.reload = true;
        let changes: Changes = context.client()?.post("/api/v1/plan", &request)?;
        if self.json { output::json(&changes) } else { output::print(&shown(&changes)) }
    }
}

impl Reload {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        let config = self.file.config()?;
        warnings::warn(&config);
        let mut request = request(&self.file, config, Mode::Continuous)?;
        request.reload = true;
        let changes: Changes = client.post("/api/v1/plan", &request)?;
        output::print(&shown(&changes))?;
        let _: Vec<Name> = client.insist("/api/v1/up", &request)?;
        output::print("applied\n")
    }
}

fn shown(changes: &Changes) -> String {
    let rows = [
        ("start (new)", &changes.added),
        ("restart (command or environment changed)", &changes.restarted),
        ("start (command or environment changed)", &changes.started),
        ("changed, not running", &changes.pending),
        ("keep running (policy changed)", &changes.changed),
        ("stop (gone from the file)", &changes.removed),
    ];
    let names = |names: &[Name]| names.iter().map(Name::as_str).collect::<Vec<_>>().join(", ");
    let mut text: String = rows
        .iter()
        .filter(|(_, of)| !of.is_empty())
        .map(|(what, of)| format!("{what}: {}\n", names(of)))
        .collect();
    if text.is_empty() {
        text.push_str("nothing changes\n");
    }
    text
}
