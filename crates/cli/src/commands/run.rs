//! `defib run` and `defib rm`: an agent without a file of its own.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use defib_config::{Format, Options, Report};
use defib_core::{Name, Preset};
use defib_daemon::wire::{AgentStatus, Mode, Plan, UpRequest};

use serde_json::Value;

use super::warnings;
use super::{Context, segment};
use crate::client::Client;
use crate::failure::{Code, Failure};
use crate::output;

/// Add one agent without a config file, and start it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  defib run -- claude -p 'tidy the docs'
  defib run --name web --restart always -- python3 -m http.server 8000
  defib run --from spawn.json

A spawn request is a JSON object: name, command, args, cwd, env and any other key of [agent.NAME];
autoRestart, maxDeaths (5), windowSeconds (60) and respawnOnZero say what becomes of its deaths.")]
pub(crate) struct Run {
    /// Its name; else that of the program, with a number where another has it
    #[arg(long)]
    name: Option<String>,
    /// The rule set
    #[arg(long, value_parser = Preset::ALL.map(Preset::word))]
    preset: Option<String>,
    /// After which ends it is started again
    #[arg(long, value_parser = ["always", "on-failure", "never"])]
    restart: Option<String>,
    /// A terminal of its own
    #[arg(long)]
    pty: bool,
    /// The folder it runs in; else this one
    #[arg(long)]
    cwd: Option<PathBuf>,
    /// A variable for it
    #[arg(long = "env", value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// A spawn request to read it all from
    #[arg(
        long,
        value_name = "FILE.json",
        conflicts_with_all = ["preset", "restart", "pty", "env", "command"]
    )]
    from: Option<PathBuf>,
    /// The command
    #[arg(required_unless_present = "from", last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Take an agent away that was added by `run`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  defib rm web")]
pub(crate) struct Rm {
    /// The agent
    #[arg(value_name = "NAME")]
    name: String,
}

impl Run {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        // A request that makes no sense starts nothing.
        let (name, text) = if let Some(file) = &self.from {
            self.requested(file)?
        } else {
            let name = self.name()?;
            let text = self.toml(&name)?;
            (name, text)
        };
        let client = context.client()?;
        client.ensure_daemon()?;
        if self.is_named() {
            if is_there(&client, &name)? {
                return Err(taken(&name));
            }
            return self.add(context, &client, &name, &text);
        }
        // The program's name is nobody's wish: the next one of it gets a number.
        let known: Vec<AgentStatus> = client.get("/api/v1/agents")?;
        let is_known = |name: &Name| {
            let of = |status: &AgentStatus| {
                status.name.plain() == *name
                    || status.project == *name
                    || status.group.as_ref().is_some_and(|group| group.plain() == *name)
            };
            known.iter().any(of)
        };
        let mut number = 1_u32;
        let mut candidate = name.clone();
        loop {
            if !is_known(&candidate) {
                let text = self.toml(&candidate)?;
                match self.add(context, &client, &candidate, &text) {
                    Err(failure) if failure.is(Code::NotInState) => {}
                    outcome => return outcome,
                }
            }
            number += 1;
            candidate = parsed(&format!("{name}-{number}"))?;
        }
    }

    /// Whether somebody has chosen its name.
    fn is_named(&self) -> bool {
        self.name.is_some() || self.from.is_some()
    }

    /// Adds it under a name that nobody seems to have.
    fn add(
        &self,
        context: &Context,
        client: &Client,
        name: &Name,
        text: &str,
    ) -> Result<(), Failure> {
        let folder = context.home()?.path().join("adhoc");
        let path = folder.join(format!("{name}.toml"));
        let failed = |error: std::io::Error| {
            Failure::new(Code::Failed, format!("cannot write {}: {error}", path.display()))
                .hint("see that there is space, and that the folder is yours")
        };
        let outcome = defib_config::parse_in(&folder, text);
        let Some(config) = outcome.config else {
            let origin = path.display().to_string();
            let report = defib_config::Report::new(&origin, text, &outcome.diagnostics);
            anstream::eprint!("{}", report.render(true));
            return Err(Failure::told(Code::Usage));
        };
        warnings::warn(&config);
        let environment = defib_daemon::environment_for(&config, std::env::vars());
        let request = UpRequest {
            path: path.clone(),
            config,
            mode: Mode::Continuous,
            environment,
            options: defib_config::Options::default(),
            reload: false,
        };
        // Whether it can be applied is known before its file is there.
        let _: Plan = client.post("/api/v1/plan", &request)?;
        match defib_daemon::adhoc::keep_new(&path, text) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // Another has been faster, or its agent was never added: then nobody misses it.
                if !self.is_named() || is_there(client, name)? {
                    return Err(taken(name));
                }
                defib_daemon::adhoc::keep(&path, text).map_err(failed)?;
            }
            kept => kept.map_err(failed)?,
        }
        // Another project may have an agent of that name.
        let names = client.bring_up(&request).inspect_err(|failure| {
            if !failure.is_lost() {
                let _ = std::fs::remove_file(&path);
            }
        })?;
        let name = names.last().unwrap_or(name);
        output::print(&format!("{name} is added; `defib logs -f {name}` shows what it writes\n"))
    }

    /// The name and the config file that a spawn request stands for.
    fn requested(&self, file: &Path) -> Result<(Name, String), Failure> {
        let text = std::fs::read_to_string(file).map_err(|error| {
            Failure::new(Code::Failed, format!("cannot read {}: {error}", file.display()))
                .hint("--from takes a JSON file; `defib run --help` says what is in it")
        })?;
        let options = Options { format: Some(Format::Celistra), ..Options::default() };
        let imported = defib_config::import(file, &text, &options);
        let origin = file.display().to_string();
        let report = Report::new(&origin, &text, &imported.diagnostics);
        anstream::eprint!("{}", report.render(true));
        if imported.toml.is_none() {
            return Err(Failure::told(Code::Config));
        }
        // The same once more, at home in the caller's folder and under the name that was asked for.
        let failed = |error: std::io::Error| Failure::new(Code::Failed, error);
        let here = std::env::current_dir().map_err(failed)?;
        let mut request: Value =
            serde_json::from_str(&text).map_err(|error| Failure::new(Code::Config, error))?;
        let theirs = ["cwd", "workingDirectory"].iter().find_map(|key| request[key].as_str());
        let cwd = here.join(self.cwd.as_deref().or(theirs.map(Path::new)).unwrap_or(Path::new("")));
        if let Some(keys) = request.as_object_mut() {
            keys.remove("workingDirectory");
            keys.insert("cwd".to_owned(), cwd.to_string_lossy().into());
            keys.extend(self.name.clone().map(|name| ("name".to_owned(), name.into())));
        }
        let toml = defib_config::import(file, &request.to_string(), &options).toml;
        let config = toml.as_deref().and_then(|toml| defib_config::parse_in(&here, toml).config);
        match (config, toml) {
            (Some(config), Some(toml)) => Ok((config.project, toml)),
            (None, _) | (_, None) => {
                Err(Failure::new(Code::Usage, "the name is no name")
                    .hint("give another with --name"))
            }
        }
    }

    fn name(&self) -> Result<Name, Failure> {
        let text = if let Some(name) = &self.name {
            name.clone()
        } else {
            let program = self.command.first().map(String::as_str).unwrap_or_default();
            program.rsplit('/').next().unwrap_or(program).to_owned()
        };
        parsed(&text)
    }

    /// The config file that says the same.
    fn toml(&self, name: &Name) -> Result<String, Failure> {
        // Every JSON string is a TOML string.
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let here = std::env::current_dir().map_err(|error| Failure::new(Code::Failed, error))?;
        let cwd = self.cwd.as_ref().map_or_else(|| here.clone(), |cwd| here.join(cwd));
        let words: Vec<String> = self.command.iter().map(|word| quoted(word)).collect();
        let mut text = format!("[project]\nname = {0}\n\n[agent.{0}]\n", quoted(name.as_str()));
        // A String takes whatever is written to it.
        let _ = writeln!(text, "command = [{}]", words.join(", "));
        let _ = writeln!(text, "cwd = {}", quoted(&cwd.to_string_lossy()));
        let _ = writeln!(text, "pty = {}", self.pty);
        for (key, value) in [("preset", &self.preset), ("restart", &self.restart)] {
            if let Some(value) = value {
                let _ = writeln!(text, "{key} = {}", quoted(value));
            }
        }
        let _ = writeln!(text, "\n[agent.{}.env]", quoted(name.as_str()));
        let mut given = BTreeSet::new();
        for pair in &self.env {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(Failure::new(Code::Usage, format!("{pair:?} is not NAME=VALUE"))
                    .hint(format!("`--env {pair}=value` sets it")));
            };
            if !given.insert(name) {
                return Err(Failure::new(Code::Usage, format!("{name} is given twice"))
                    .hint("each variable has one value; leave out one --env"));
            }
            let _ = writeln!(text, "{} = {}", quoted(name), quoted(value));
        }
        Ok(text)
    }
}

fn parsed(text: &str) -> Result<Name, Failure> {
    Name::parse(text).map_err(|error| {
        Failure::new(Code::Usage, format!("{text:?} is no name: {error}"))
            .hint("give one with --name")
    })
}

/// Whether an agent of this name was added without a file.
fn is_there(client: &Client, name: &Name) -> Result<bool, Failure> {
    let known: Vec<AgentStatus> = client.get("/api/v1/agents")?;
    Ok(known.iter().any(|status| status.project == *name && status.name.plain() == *name))
}

fn taken(name: &Name) -> Failure {
    Failure::new(Code::NotInState, format!("{name} is there already"))
        .hint(format!("give another --name, or take it away with `defib rm {name}`"))
}

impl Rm {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let path = format!("/api/v1/agents/{}", segment(&self.name)?);
        let name: Name = context.client()?.delete(&path)?;
        output::print(&format!("{name} is gone\n"))
    }
}
