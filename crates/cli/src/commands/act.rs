//! `defib start`, `stop`, `restart` and `revive`.

use defib_daemon::wire::{Action, ActionOptions, AgentStatus};

use super::{Context, segment};
use crate::failure::Failure;
use crate::output;

/// Whom a command is about, and whether to wait.
#[derive(Debug, clap::Args)]
pub(crate) struct Targets {
    /// Agents or groups
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Return at once, not when it is so
    #[arg(long)]
    no_wait: bool,
}

/// Start agents
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  defib start reviewer\n  defib start pipeline --no-wait")]
pub(crate) struct Start {
    #[command(flatten)]
    targets: Targets,
}

/// Stop agents; they stay down until they are started
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A second stop kills what the first has not ended.

Examples:
  defib stop reviewer
  defib stop pipeline builder
  defib stop --kill reviewer")]
pub(crate) struct Stop {
    #[command(flatten)]
    targets: Targets,
    /// Without asking first
    #[arg(long)]
    kill: bool,
}

/// Restart agents; that never counts as a crash
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  defib restart reviewer\n  defib restart --fresh reviewer")]
pub(crate) struct Restart {
    #[command(flatten)]
    targets: Targets,
    /// As fresh sessions, not resumed ones
    #[arg(long)]
    fresh: bool,
}

/// Put crashed-out or halted agents back, with empty windows
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  defib why reviewer\n  defib revive reviewer")]
pub(crate) struct Revive {
    #[command(flatten)]
    targets: Targets,
}

impl Start {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        act(context, &self.targets, Action::Start, ActionOptions::default())
    }
}

impl Stop {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let options = ActionOptions { kill: self.kill, ..ActionOptions::default() };
        act(context, &self.targets, Action::Stop, options)
    }
}

impl Restart {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let options = ActionOptions { fresh: self.fresh, ..ActionOptions::default() };
        act(context, &self.targets, Action::Restart, options)
    }
}

impl Revive {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        act(context, &self.targets, Action::Revive, ActionOptions::default())
    }
}

/// Does it to each; the first failure is told at the end, when the others have been dealt with.
fn act(
    context: &Context,
    targets: &Targets,
    action: Action,
    options: ActionOptions,
) -> Result<(), Failure> {
    let client = context.client()?;
    let options = ActionOptions { no_wait: targets.no_wait, ..options };
    let mut failure = None;
    for name in &targets.names {
        let path = match segment(name) {
            Ok(name) => format!("/api/v1/agents/{name}/{}", action.word()),
            Err(error) => {
                failure.get_or_insert(error);
                continue;
            }
        };
        let mut answer = client.post::<Vec<AgentStatus>>(&path, &options);
        if answer.as_ref().is_err_and(Failure::is_lost) && client.comes_back() {
            // The next daemon goes on with what the last one had taken; to ask again does no harm.
            answer = client.post(&path, &options);
        }
        match answer {
            Ok(statuses) => {
                for status in statuses {
                    output::print(&format!("{}: {}\n", status.name, status.state))?;
                }
            }
            Err(error) => {
                failure.get_or_insert(error);
            }
        }
    }
    failure.map_or(Ok(()), Err)
}
