//! The commands, one a file.

mod act;
mod attach;
mod audit;
mod autopsy;
mod caps;
mod check;
mod completions;
mod dashboard;
mod demo;
mod down;
mod events;
mod export;
mod first;
mod fund;
mod history;
mod import;
mod internal;
mod ledger;
mod logs;
mod mcp;
mod modules;
mod notify;
mod own;
mod plan;
mod replay;
mod run;
mod schema;
mod service;
mod signal;
mod simulate;
mod status;
mod timeline;
mod token;
mod top;
mod up;
mod upgrade;
mod version;
mod view;
mod warnings;
mod why;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use defib_config::{Config, Format, Loaded, Options, Watchdog};

use crate::client::Client;
use crate::failure::{Code, Failure};
use crate::home::Home;

pub(crate) use events::event_body;
pub(crate) use ledger::number;
pub(crate) use why::post_mortem;

/// What every command may need.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) home: Option<PathBuf>,
}

impl Context {
    pub(crate) fn home(&self) -> Result<Home, Failure> {
        Home::find(self.home.clone())
    }

    pub(crate) fn client(&self) -> Result<Client, Failure> {
        Client::new(self.home()?)
    }
}

/// What `defib` can be asked to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::Demo),
    Up(up::Up),
    Down(down::Down),
    #[command(visible_alias = "ps")]
    Status(status::Status),
    Top(top::Top),
    Start(act::Start),
    Stop(act::Stop),
    Restart(act::Restart),
    Revive(act::Revive),
    Run(Box<run::Run>),
    Rm(run::Rm),
    Signal(signal::Signal),
    Logs(logs::Logs),
    Attach(attach::Attach),
    Why(why::Why),
    Caps(caps::ShowCaps),
    Grant(caps::Grant),
    Revoke(caps::Revoke),
    Fund(fund::Fund),
    Ledger(ledger::Ledger),
    History(history::History),
    Events(events::Events),
    Check(check::Check),
    Plan(plan::Plan),
    Reload(plan::Reload),
    Simulate(Box<simulate::Simulate>),
    Import(import::Import),
    Export(export::Export),
    Service(service::Service),
    Autopsy(autopsy::Autopsy),
    Dashboard(dashboard::Dashboard),
    Notify(notify::Notify),
    Token(token::Token),
    Audit(audit::Audit),
    Upgrade(upgrade::Upgrade),
    #[command(name = "self")]
    Own(own::Own),
    Mcp(mcp::Mcp),
    Schema(schema::Schema),
    Completions(completions::Completions),
    Man(completions::Man),
    Version(version::Version),
    #[command(hide = true)]
    Internal(internal::Internal),
}

impl Command {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Command::Demo(demo) => demo.run(),
            Command::Up(up) => up.run(context),
            Command::Down(down) => down.run(context),
            Command::Status(status) => status.run(context),
            Command::Top(top) => top.run(context),
            Command::Start(start) => start.run(context),
            Command::Stop(stop) => stop.run(context),
            Command::Restart(restart) => restart.run(context),
            Command::Revive(revive) => revive.run(context),
            Command::Run(run) => run.run(context),
            Command::Rm(rm) => rm.run(context),
            Command::Signal(signal) => signal.run(context),
            Command::Logs(logs) => logs.run(context),
            Command::Attach(attach) => attach.run(context),
            Command::Why(why) => why.run(context),
            Command::Caps(caps) => caps.run(context),
            Command::Grant(grant) => grant.run(context),
            Command::Revoke(revoke) => revoke.run(context),
            Command::Fund(fund) => fund.run(context),
            Command::Ledger(ledger) => ledger.run(context),
            Command::History(history) => history.run(context),
            Command::Events(events) => events.run(context),
            Command::Check(check) => check.run(context),
            Command::Plan(plan) => plan.run(context),
            Command::Reload(reload) => reload.run(context),
            Command::Simulate(simulate) => simulate.run(context),
            Command::Import(import) => import.run(),
            Command::Export(export) => export.run(context),
            Command::Service(service) => service.run(context),
            Command::Autopsy(autopsy) => autopsy.run(),
            Command::Notify(notify) => notify.run(context),
            Command::Dashboard(dashboard) => dashboard.run(context),
            Command::Audit(audit) => audit.run(context),
            Command::Token(token) => token.run(context),
            Command::Upgrade(upgrade) => upgrade.run(context),
            Command::Own(own) => own.run(),
            Command::Mcp(mcp) => mcp.run(context),
            Command::Schema(schema) => schema.run(),
            Command::Completions(completions) => completions.run(),
            Command::Man(man) => man.run(),
            Command::Version(version) => version.run(context),
            Command::Internal(internal) => internal.run(context),
        }
    }
}

/// A name, or `project/name`, as a part of an address.
pub(crate) fn segment(name: &str) -> Result<String, Failure> {
    match defib_core::Name::known(name) {
        Ok(_) => {
            let escape = |byte: u8| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                    char::from(byte).to_string()
                }
                other => format!("%{other:02X}"),
            };
            Ok(name.bytes().map(escape).collect())
        }
        Err(error) => {
            Err(Failure::new(Code::NoAgent, format!("no agent is called {name:?}: {error}"))
                .hint("`defib status` shows the agents there are"))
        }
    }
}

/// Which config file is meant.
#[derive(Debug, clap::Args)]
pub(crate) struct ConfigFile {
    /// The config file: a defib.toml, an Aidefile or a folder of them, a weave.toml, a YAML of agents
    #[arg(short = 'f', long = "file", value_name = "FILE", default_value = "defib.toml")]
    file: PathBuf,
    /// What the file is, where its name leaves a doubt
    #[arg(long, value_name = "FORMAT", value_parser = Format::ALL.map(Format::word))]
    format: Option<String>,
    /// What Aidefiles run: a command, with its arguments
    #[arg(long, value_name = "CMD")]
    runner: Option<String>,
}

impl ConfigFile {
    /// The one in this folder.
    pub(crate) fn here() -> ConfigFile {
        ConfigFile::at(PathBuf::from("defib.toml"))
    }

    /// This one.
    pub(crate) fn at(file: PathBuf) -> ConfigFile {
        ConfigFile { file, format: None, runner: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.file
    }

    /// Where it lies: the same however somebody got there, also when it is gone.
    pub(crate) fn location(&self) -> Result<PathBuf, Failure> {
        let path = std::path::absolute(&self.file).map_err(|error| {
            Failure::new(Code::Failed, format!("{}: {error}", self.file.display()))
                .hint("go to a folder that is there, or give -f with a whole path")
        })?;
        let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
        Ok(match (folder, path.file_name()) {
            (Some(folder), Some(name)) => folder.join(name),
            (None, _) | (_, None) => path.canonicalize().unwrap_or(path),
        })
    }

    /// How it is read.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        let watchdog = Watchdog::from_variables(|name| std::env::var(name).ok())
            .map_err(|wrong| Failure::new(Code::Config, wrong).hint("unset it, or put it right"))?;
        let format = self.format.as_deref().and_then(Format::from_word);
        Ok(Options { format, runner: self.runner.clone(), watchdog })
    }

    /// What a command line says of it beside its name.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let said = [("--format", &self.format), ("--runner", &self.runner)];
        let said = said.into_iter().filter_map(|(flag, value)| Some((flag, value.as_ref()?)));
        // In one word each: a runner may begin with a dash.
        said.map(|(flag, value)| format!("{flag}={value}")).collect()
    }

    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        defib_config::load_with(&self.file, &self.options()?)
            .map_err(|error| Failure::new(Code::Failed, &error).hint(error.hint()))
    }

    /// What the file says. What is wrong with it is said on standard error.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let loaded = self.load()?;
        if loaded.has_diagnostics() {
            anstream::eprint!("{}", loaded.render(true));
        }
        loaded.outcome.config.ok_or_else(|| Failure::told(Code::Config))
    }
}
