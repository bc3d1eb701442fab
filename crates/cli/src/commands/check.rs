//! `defib check`.

use std::fmt::Write as _;

use defib_config::config::{Agent, Isolation, ProbeTarget};
use defib_config::{Config, Loaded, Report};
use defib_daemon::wire::DaemonInfo;
use defib_daemon::{NO_NAMESPACES, held_warning};
use defib_host::protocol::COMMANDING_VERSION;

use super::timeline::policy_line;
use super::warnings;
use super::{ConfigFile, Context};
use crate::failure::{Code, Failure};
use crate::output;

/// Validate a config file; nothing is started or stopped
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every mistake is shown at once, with its line and what to do about it. The exit code is 0 if the \
file is valid and 3 if it is not.

Examples:
  defib check
  defib check -f night/defib.toml
  defib check -f weave.toml
  defib check --json | jq '.[].message'")]
pub(crate) struct Check {
    #[command(flatten)]
    file: ConfigFile,
    /// Print what was found as a JSON array
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let loaded = self.file.load()?;
        let origin = self.file.path().display().to_string();
        if self.json {
            output::print(&told(&loaded)?)?;
        } else {
            anstream::eprint!("{}", loaded.render(true));
        }
        match &loaded.outcome.config {
            Some(_) if self.json => Ok(()),
            Some(config) => {
                let is_set = |name: &str| std::env::var_os(name).is_some();
                warnings::warn(config);
                let said = unset(config, is_set).into_iter().chain(held(context, config));
                for line in said.chain(not_isolated(config)) {
                    anstream::eprintln!("warning: {line}");
                }
                for line in warnings::missed(config, is_set) {
                    anstream::eprintln!("hint: {line}");
                }
                output::print(&summary(&origin, config))
            }
            None => Err(Failure::told(Code::Config)),
        }
    }
}

/// The variables of channels and figures that are not set here: nothing could be sent without them.
fn unset(config: &Config, is_set: impl Fn(&str) -> bool) -> Vec<String> {
    let mut lines = Vec::new();
    for notify in &config.notify {
        let name = &notify.name;
        for variable in notify.variables().filter(|variable| !is_set(variable)) {
            lines.push(format!(
                "[notify.{name}] names {variable}, which is not set here; `defib up` needs it"
            ));
        }
    }
    for variable in config.metrics.variables().filter(|variable| !is_set(variable)) {
        lines.push(format!(
            "[metrics] needs {variable}, which is not set here; `defib up` needs it"
        ));
    }
    lines
}

/// A warning if the running keeper is too old to run the exec probes of this file.
fn held(context: &Context, config: &Config) -> Option<String> {
    let has_command = |agent: &&Agent| {
        let probe = agent.probe.as_ref().filter(|_| agent.enabled);
        probe.is_some_and(|probe| matches!(probe.target, ProbeTarget::Exec(_)))
    };
    let held = config.agents.iter().filter(has_command).map(|agent| agent.name.as_str());
    let held: Vec<&str> = held.collect();
    if held.is_empty() {
        return None;
    }
    // Without a daemon, `defib up` starts a keeper of this version.
    let info: DaemonInfo = context.client().ok()?.get("/api/v1/daemon").ok()?;
    let is_old = info.keeper_protocol.is_none_or(|version| version < COMMANDING_VERSION);
    is_old.then(|| held_warning(&held))
}

/// A warning if agents of this file ask for namespaces and this machine does not permit them.
fn not_isolated(config: &Config) -> Option<String> {
    let asks = |agent: &&Agent| agent.enabled && agent.isolation == Some(Isolation::Namespaces);
    let names = config.agents.iter().filter(asks).map(|agent| agent.name.as_str());
    let names: Vec<&str> = names.collect();
    let impossible = !names.is_empty() && !defib_host::sandbox::support().namespaces;
    impossible.then(|| format!("{} will not start: {NO_NAMESPACES}", names.join(", ")))
}

/// What was found, as JSON. Where there are many files, each thing says whose it is.
fn told(loaded: &Loaded) -> Result<String, Failure> {
    let mut all = Vec::new();
    for file in loaded.files() {
        let origin = file.path.display().to_string();
        let report = Report::new(&origin, &file.text, &file.outcome.diagnostics);
        for told in report.told() {
            let mut told =
                serde_json::to_value(told).map_err(|error| Failure::new(Code::Failed, error))?;
            if !loaded.parts.is_empty() {
                told["file"] = origin.as_str().into();
            }
            all.push(told);
        }
    }
    let text = serde_json::to_string_pretty(&all);
    text.map(|text| text + "\n").map_err(|error| Failure::new(Code::Failed, error))
}

/// What a valid file declares, a line an agent.
fn summary(origin: &str, config: &Config) -> String {
    let mut text = format!(
        "{origin} is valid: project {}, {}, {}\n",
        config.project,
        output::count(config.agents.len(), "agent"),
        output::count(config.groups.len(), "group"),
    );
    let width = config.agents.iter().map(|a| a.name.as_str().chars().count()).max().unwrap_or(0);
    for agent in &config.agents {
        let name = agent.name.as_str();
        // A String takes whatever is written to it.
        let _ = writeln!(text, "  {name:width$}  {}", policy_line(agent.preset, &agent.policy));
    }
    text
}
