//! `defib run` and `defib rm`: an agent without a file of its own.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use defib_config::{Format, Options, Report};
use defib_core::{Name, Preset};
use defib_daemon::wire::{Mode, Plan, UpRequest};

use serde_json::Value;

use super::warnings;
use super::{Context, segment};
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
    /// Its name; else that of the program
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
        let home = context.home()?;
        let client = context.client()?;
        client.ensure_daemon()?;
        let folder = home.path().join("adhoc");
        let path = folder.join(format!("{name}.toml"));
        let failed = |error: std::io::Error| {
            Failure::new(Code::Failed, format!("cannot write {}: {error}", path.display()))
        };
        let outcome = defib_config::parse_in(&folder, &text);
        let Some(config) = outcome.config else {
            let origin = path.display().to_string();
            let report = defib_config::Report::new(&origin, &text, &outcome.diagnostics);
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
        defib_daemon::adhoc::keep(&path, &text).map_err(failed)?;
        // Another project may have an agent of that name.
        let name = client.bring_up(&request)?.pop().unwrap_or(name);
        output::print(&format!("{name} is added; `defib logs -f {name}` shows what it writes\n"))
    }

    /// The name and the config file that a spawn request stands for.
    fn requested(&self, file: &Path) -> Result<(Name, String), Failure> {
        let text = std::fs::read_to_string(file).map_err(|error| {
            Failure::new(Code::Failed, format!("cannot read {}: {error}", file.display()))
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
        Name::parse(&text).map_err(|error| {
            Failure::new(Code::Usage, format!("{text:?} is no name: {error}"))
                .hint("give one with --name")
        })
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
        for pair in &self.env {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(Failure::new(Code::Usage, format!("{pair:?} is not NAME=VALUE")));
            };
            let _ = writeln!(text, "{} = {}", quoted(name), quoted(value));
        }
        Ok(text)
    }
}

impl Rm {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let path = format!("/api/v1/agents/{}", segment(&self.name)?);
        let name: Name = context.client()?.delete(&path)?;
        output::print(&format!("{name} is gone\n"))
    }
}
