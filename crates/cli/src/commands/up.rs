//! `defib up`.

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use defib_config::Config;
use defib_core::{Name, State};
use defib_daemon::wire::{AgentStatus, Mode, UpRequest};
use serde_json::json;

use super::status::{is_down, is_settled, overview, status_line, statuses};
use super::view::LiveView;
use super::{ConfigFile, Context};
use crate::failure::{Code, Failure};
use crate::output;

/// How long `--detach` waits for agents to have started.
const SETTLE: Duration = Duration::from_secs(30);

/// Start the daemon if none runs, and bring this project up
#[derive(Debug, clap::Args)]
#[command(after_help = "\
In front, it shows what happens until it is stopped: Ctrl-C takes the project down. With --detach it \
returns when no agent is starting any more.

Examples:
  defib up --detach
  defib up --mode once
  defib up --status-line 30s")]
pub(crate) struct Up {
    #[command(flatten)]
    file: ConfigFile,
    /// How the project is run
    #[arg(long, value_enum, default_value = "continuous")]
    mode: ModeWord,
    /// Return when every agent has started; the daemon goes on
    #[arg(long)]
    detach: bool,
    /// Print a line with every agent's state, so often
    #[arg(long, value_name = "EVERY", value_parser = defib_core::span::parse)]
    status_line: Option<Duration>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ModeWord {
    /// Indefinitely
    Continuous,
    /// Each agent once, without restarts; the exit code says whether all went well
    Once,
    /// Indefinitely, without start delays
    Dev,
}

impl From<ModeWord> for Mode {
    fn from(word: ModeWord) -> Mode {
        match word {
            ModeWord::Continuous => Mode::Continuous,
            ModeWord::Once => Mode::Once,
            ModeWord::Dev => Mode::Dev,
        }
    }
}

impl Up {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let config = self.file.config()?;
        for warning in warnings(&config) {
            anstream::eprintln!("warning: {warning}");
        }
        let project = config.project.clone();
        let request = request(&self.file, config, self.mode.into())?;
        let client = context.client()?;
        let names = client.bring_up(&request)?;
        if matches!(self.mode, ModeWord::Once) {
            return once(context, &project, &names);
        }
        if self.detach {
            return settle(context, &project, &names);
        }
        self.stay(context, &project, &names)
    }

    /// Stays in front and shows what happens; Ctrl-C takes the project down.
    fn stay(&self, context: &Context, project: &Name, names: &[Name]) -> Result<(), Failure> {
        let interrupted = crate::interrupt::watch();
        let draws = std::io::stdout().is_terminal() && self.status_line.is_none();
        let mut view = LiveView::new(draws);
        if draws {
            output::print(&format!("{project} is up; Ctrl-C takes it down\n\n"))?;
        }
        loop {
            let ours = ours(context, names)?;
            let every = if let Some(every) = self.status_line {
                output::print(&format!("{}\n", status_line(project.as_str(), &ours)))?;
                every
            } else {
                view.show(project.as_str(), &ours, false)?;
                Duration::from_secs(1)
            };
            if interrupted.wait(every) {
                return take_down(context, project, names);
            }
        }
    }
}

fn take_down(context: &Context, project: &Name, names: &[Name]) -> Result<(), Failure> {
    output::print(&format!("\ntaking {project} down\n"))?;
    let down = json!({ "project": project });
    let _: Vec<Name> = context.client()?.post("/api/v1/down", &down)?;
    wait_until(context, names, Duration::from_secs(600), is_down)?;
    output::print(&format!("{project} is down\n"))
}

/// What is sent to the daemon of a config.
pub(crate) fn request(file: &ConfigFile, config: Config, mode: Mode) -> Result<UpRequest, Failure> {
    let path = std::path::absolute(file.path()).map_err(|error| {
        Failure::new(Code::Failed, format!("{}: {error}", file.path().display()))
    })?;
    let environment = defib_daemon::environment_for(&config, std::env::vars());
    Ok(UpRequest { path, config, mode, environment, reload: false })
}

fn ours(context: &Context, names: &[Name]) -> Result<Vec<AgentStatus>, Failure> {
    let all = statuses(context, &[])?;
    Ok(all.into_iter().filter(|status| names.contains(&status.name)).collect())
}

/// Looks until all agents are as wanted, or time is up.
fn wait_until(
    context: &Context,
    names: &[Name],
    within: Duration,
    wanted: impl Fn(&AgentStatus) -> bool,
) -> Result<Vec<AgentStatus>, Failure> {
    let deadline = Instant::now() + within;
    loop {
        let ours = ours(context, names)?;
        if ours.iter().all(&wanted) || Instant::now() > deadline {
            return Ok(ours);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn settle(context: &Context, project: &Name, names: &[Name]) -> Result<(), Failure> {
    let ours = wait_until(context, names, SETTLE, is_settled)?;
    let running = ours.iter().filter(|status| status.state == State::Running).count();
    output::print(&format!("{project} is up: {running} of {} agents are running\n", ours.len()))?;
    let others: Vec<AgentStatus> =
        ours.into_iter().filter(|status| status.state != State::Running).collect();
    if !others.is_empty() {
        output::print(&overview(&others, jiff::Timestamp::now()))?;
    }
    Ok(())
}

/// Each agent runs once; then the daemon ends, unless it has others to look after.
fn once(context: &Context, project: &Name, names: &[Name]) -> Result<(), Failure> {
    let at_rest = |status: &AgentStatus| {
        matches!(status.state, State::Done | State::Stopped | State::Halted | State::CrashedOut)
    };
    let interrupted = crate::interrupt::watch();
    let ours = loop {
        let ours = ours(context, names)?;
        if ours.iter().all(at_rest) || interrupted.wait(Duration::from_millis(50)) {
            break ours;
        }
    };
    output::print(&overview(&ours, jiff::Timestamp::now()))?;
    let client = context.client()?;
    let _: Vec<Name> = client.post("/api/v1/down", &json!({ "project": project }))?;
    wait_until(context, names, Duration::from_secs(600), is_down)?;
    if statuses(context, &[])?.iter().all(is_down) {
        client.close()?;
    }
    if ours.iter().all(|status| status.state == State::Done) {
        Ok(())
    } else {
        Err(Failure::new(Code::Failed, "not every agent was done")
            .hint("`defib why NAME` says why"))
    }
}

/// What looks wrong with a valid config on this machine. The others start all the same.
fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    for agent in config.agents.iter().filter(|agent| agent.enabled) {
        let name = &agent.name;
        let cwd =
            agent.cwd.as_ref().map_or_else(|| config.folder.clone(), |cwd| config.folder.join(cwd));
        if !cwd.is_dir() {
            warnings.push(format!("{name}: its folder {} is not there", cwd.display()));
        }
        if let defib_config::config::Command::Words(words) = &agent.command
            && let Some(program) = words.first()
        {
            match find_program(program, &cwd) {
                None => warnings.push(format!("{name}: there is no program {program:?}")),
                Some(path) if path.metadata().is_ok_and(|file| file.len() == 0) => {
                    warnings.push(format!("{name}: {} is empty", path.display()));
                }
                Some(_) => {}
            }
        }
        for variable in agent.env_pass.iter().filter(|variable| !variable.contains('*')) {
            if std::env::var_os(variable).is_none() {
                warnings.push(format!("{name}: env_pass names {variable}, which is not set"));
            }
        }
    }
    warnings
}

fn find_program(program: &str, cwd: &Path) -> Option<std::path::PathBuf> {
    if program.contains('/') {
        return Some(cwd.join(program)).filter(|path| path.exists());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}
