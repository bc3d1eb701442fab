//! `defib run` and `defib rm`: an agent without a file of its own.

use std::fmt::Write as _;
use std::path::PathBuf;

use defib_core::{Name, Preset};
use defib_daemon::wire::{Mode, UpRequest};

use super::{Context, segment};
use crate::failure::{Code, Failure};
use crate::output;

/// Add one agent without a config file, and start it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  defib run -- claude -p 'tidy the docs'
  defib run --name web --restart always -- python3 -m http.server 8000")]
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
    /// The command
    #[arg(required = true, last = true, value_name = "CMD")]
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
        let home = context.home()?;
        let client = context.client()?;
        client.ensure_daemon()?;
        let name = self.name()?;
        let folder = home.path().join("adhoc");
        let path = folder.join(format!("{name}.toml"));
        let text = self.toml(&name)?;
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
        std::fs::create_dir_all(&folder).map_err(failed)?;
        std::fs::write(&path, &text).map_err(failed)?;
        let environment = defib_daemon::environment_for(&config, std::env::vars());
        let request = UpRequest {
            path: path.clone(),
            config,
            mode: Mode::Continuous,
            environment,
            options: defib_config::Options::default(),
            reload: false,
        };
        client.bring_up(&request)?;
        output::print(&format!("{name} is added; `defib logs -f {name}` shows what it writes\n"))
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
