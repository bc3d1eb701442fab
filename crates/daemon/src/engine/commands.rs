//! Commands that the keeper runs on behalf of runs: exec probes.
//!
//! The daemon never spawns such a command itself, because the command would then have the daemon's user and
//! no sandbox. A keeper that is too old to run commands gets none, and the operator is told to replace it.

use std::collections::BTreeMap;
use std::time::Duration;

use defib_config::config::ProbeTarget;
use defib_core::Name;
use defib_host::protocol::{COMMANDING_VERSION, CommandEnd, CommandOrder, Request, RunKey};
use tokio::sync::oneshot;

use super::Engine;
use crate::old_keeper::held_warning;

/// A command that a run's watcher wants.
#[derive(Debug)]
pub(crate) struct CommandAsk {
    pub(crate) key: RunKey,
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) timeout: Duration,
    /// Dropped unanswered if the command is cancelled.
    pub(crate) answer: oneshot::Sender<CommandEnd>,
}

/// The commands that the keeper was asked for and has not reported on.
pub(super) struct Commands {
    next: u64,
    waiting: BTreeMap<Name, (RunKey, u64, oneshot::Sender<CommandEnd>)>,
}

impl Default for Commands {
    fn default() -> Commands {
        // An earlier daemon's command may still be reported: its numbers must not be used again.
        Commands { next: u64::from(std::process::id()) << 32, waiting: BTreeMap::new() }
    }
}

impl Engine {
    pub(super) fn run_command(&mut self, ask: CommandAsk) {
        let CommandAsk { key, argv, env, timeout, answer } = ask;
        let id = self.supervisor.known(&key.agent);
        let lives = id.and_then(|id| self.supervisor.live_run(id)) == Some(key.run);
        if !lives || !self.keeper_runs_commands() {
            return;
        }
        let number = self.commands.next;
        self.commands.next += 1;
        self.cancel_command(&key.agent);
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self.commands.waiting.insert(key.agent.clone(), (key.clone(), number, answer));
        let order = CommandOrder { key, number, argv, env, timeout_ms };
        self.send(&Request::RunCommand(Box::new(order)));
    }

    pub(super) fn command_ended(&mut self, key: &RunKey, number: u64, end: CommandEnd) {
        let waiting = self.commands.waiting.get(&key.agent);
        if waiting.is_some_and(|(of, known, _)| of == key && *known == number)
            && let Some((_, _, answer)) = self.commands.waiting.remove(&key.agent)
        {
            // The watcher may have gone.
            let _ = answer.send(end);
        }
    }

    /// Has the keeper kill the agent's command, if it has one.
    pub(super) fn cancel_command(&mut self, agent: &Name) {
        if let Some((key, number, _)) = self.commands.waiting.remove(agent) {
            self.send(&Request::CancelCommand { key, number });
        }
    }

    pub(super) fn keeper_runs_commands(&self) -> bool {
        self.liveness.keeper_version >= COMMANDING_VERSION
    }

    /// Whether the agent has a command that is not run because the keeper is too old.
    pub(super) fn holds_command(&self, name: &Name) -> bool {
        let has_command = || {
            let probe = self.recipe(name).and_then(|(_, agent)| agent.probe.as_ref());
            probe.is_some_and(|probe| matches!(probe.target, ProbeTarget::Exec(_)))
        };
        !self.keeper_runs_commands() && has_command()
    }

    /// A warning for people if commands of declared agents are not run.
    pub(super) fn held_commands(&self) -> Option<String> {
        if self.keeper_runs_commands() {
            return None;
        }
        let declared = self.supervisor.declared().map(|(_, name)| name);
        let held: Vec<&str> =
            declared.filter(|name| self.holds_command(name)).map(Name::as_str).collect();
        (!held.is_empty()).then(|| held_warning(&held))
    }
}
