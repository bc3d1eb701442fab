//! `defib up`.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use defib_config::Config;
use defib_core::{Goal, Name, State};
use defib_daemon::wire::{AgentLine, DaemonInfo, Mode, UpRequest};
use serde_json::{Value, json};

use super::first;
use super::modules;
use super::status::{is_down, is_settled, lines, overview, status_line, warn_of_troubles};
use super::view::LiveView;
use super::warnings;
use super::{ConfigFile, Context};
use crate::client::Client;
use crate::failure::{Code, Failure};
use crate::interrupt::{Interrupted, Nudge};
use crate::output;

/// How long `--detach` waits for agents to have started.
const SETTLE: Duration = Duration::from_secs(30);
/// How long agents are waited for that are to go down.
const GO_DOWN: Duration = Duration::from_secs(600);
/// Nobody starts agents faster than one in this time: looking earlier would only disturb.
const QUICKEST: Duration = Duration::from_micros(100);
/// How often the live view is drawn.
const VIEW_EVERY: Duration = Duration::from_secs(1);

/// Start the daemon if none runs, and bring this project up
#[derive(Debug, clap::Args)]
#[command(after_help = "\
In front, it shows what happens. On a terminal, q detaches and Ctrl-C asks whether to stop the agents \
or to leave them running; elsewhere, INT and TERM take the project down. With --detach it returns when \
no agent is starting any more. As the first process of a container it becomes the keeper: TERM stops \
the agents in order, and they come back at the next start.

Examples:
  defib up --detach
  defib up --mode once
  defib up -f Aidefile --runner 'claude -p tidy'
  defib up -f weave.toml
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
    #[arg(long, value_name = "EVERY", value_parser = every)]
    status_line: Option<Duration>,
    /// Beside a keeper that is the first process of a container
    #[arg(long = first::BESIDE_KEEPER, hide = true)]
    beside_keeper: bool,
}

/// How often a line is printed. Faster than this, nothing else would be done.
fn every(text: &str) -> Result<Duration, String> {
    let span = defib_core::span::parse(text).map_err(|error| error.to_string())?;
    if span < VIEW_EVERY {
        return Err("the shortest is 1s".to_owned());
    }
    Ok(span)
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ModeWord {
    /// Indefinitely
    Continuous,
    /// Each agent once, without restarts; the exit code says whether all went well. Agents with a
    /// trigger of their own (`manual`, `cron`) are neither started nor waited for
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
        let is_once = matches!(self.mode, ModeWord::Once);
        if first::is_first() && !self.beside_keeper && !is_once && !context.client()?.is_up() {
            return first::become_keeper(context, &self.file);
        }
        if self.detach && !is_once {
            let Brought { project, count, .. } = self.bring_up(context)?;
            return settle(context, &project, count);
        }
        // From before the first agent on: a signal that comes while they are brought up means the same
        // as one that comes after it.
        let interrupted = crate::interrupt::watch();
        let brought = self.bring_up(context)?;
        if is_once {
            return once(context, &brought, &interrupted);
        }
        self.stay(context, brought, &interrupted)
    }

    /// Brings the project up. Beside a keeper that is the first process, a failure ends that one too:
    /// without what it was to bring up, the container has no reason to be.
    fn bring_up(&self, context: &Context) -> Result<Brought, Failure> {
        self.try_to_bring_up(context).inspect_err(|failure| {
            // A daemon that has gone was told to: the keeper ends as it is.
            let is_over = failure.is_lost() || failure.is_ending() || failure.is(Code::NoDaemon);
            if self.beside_keeper && !is_over {
                first::end_keeper();
            }
        })
    }

    fn try_to_bring_up(&self, context: &Context) -> Result<Brought, Failure> {
        let config = self.file.config()?;
        warnings::warn(&config);
        for warning in modules::check(&config) {
            anstream::eprintln!("warning: {warning}");
        }
        let has_modules = config.agents.iter().any(|agent| agent.module.is_some());
        let project = config.project.clone();
        let request = request(&self.file, config, self.mode.into())?;
        let client = context.client()?;
        let is_new = !client.is_up();
        let before = if is_new { Vec::new() } else { events(context, "last=1") };
        let names: Vec<Name> = if self.beside_keeper {
            client.await_daemon()?;
            client.insist("/api/v1/up", &request)?
        } else {
            client.bring_up(&request)?
        };
        if is_new && std::io::stdout().is_terminal() && !matches!(self.mode, ModeWord::Once) {
            say_address(&client)?;
        }
        warn_of_troubles(context);
        let heard = Heard::since(context, &before);
        Ok(Brought { project, count: names.len(), has_modules, heard })
    }

    /// Stays in front and shows what happens, until somebody decides what is to become of it.
    fn stay(
        &self,
        context: &Context,
        brought: Brought,
        interrupted: &Interrupted,
    ) -> Result<(), Failure> {
        let Brought { project, has_modules, mut heard, .. } = brought;
        let project = &project;
        let on_terminal = std::io::stdout().is_terminal();
        let every = modules::status_line_every(self.status_line, has_modules, on_terminal);
        // Beside a keeper that is the first process, that one is who is told to stop.
        let is_terminal = std::io::stdout().is_terminal()
            && std::io::stdin().is_terminal()
            && !self.beside_keeper;
        let draws = std::io::stdout().is_terminal() && every.is_none();
        let mut view = LiveView::new(draws);
        // Nothing is lost where keys cannot be read: signals still do what they do.
        let _keys = is_terminal.then(crate::tty::keys).and_then(Result::ok);
        if is_terminal {
            interrupted.listen_to_keys();
            output::print(&format!(
                "{project} is up; q detaches, Ctrl-C stops it or detaches\n\n"
            ))?;
        }
        let (mut due, mut line_due) = (Instant::now(), Instant::now());
        loop {
            if Instant::now() >= due {
                let ours = match ours(context, project) {
                    // The keeper was told to stop: what was to be shown is over.
                    Err(_) if self.beside_keeper => return Ok(()),
                    Err(_) if context.client()?.has_closed() => return say_taken_down(project),
                    ours => ours?,
                };
                let verbose = matches!(self.mode, ModeWord::Dev);
                for line in heard.notices(context, &ours, verbose) {
                    view.say(&line)?;
                }
                due = Instant::now() + VIEW_EVERY;
                match every {
                    Some(every) if Instant::now() >= line_due => {
                        output::print(&format!("{}\n", status_line(project.as_str(), &ours)))?;
                        line_due = Instant::now() + every;
                    }
                    Some(_) => {}
                    None => view.show(project.as_str(), &ours, false)?,
                }
                if every.is_some() {
                    due = due.min(line_due);
                }
                // Nobody here can ask what is to become of it, and elsewhere it was decided.
                if !is_terminal && !self.beside_keeper && was_taken_down(&ours) {
                    return say_taken_down(project);
                }
                // Whoever has seen enough, such as `head`, has detached. There is nobody to tell it to.
                if !self.beside_keeper && !output::is_read() {
                    return Ok(());
                }
            }
            let wish = match interrupted.next(due.saturating_duration_since(Instant::now())) {
                Some(_) if self.beside_keeper => Wish::GoOn,
                Some(Nudge::Interrupt) if is_terminal => {
                    view.begin_anew();
                    ask(project, interrupted)?
                }
                Some(Nudge::Interrupt | Nudge::End) => Wish::Stop,
                Some(Nudge::HangUp | Nudge::Key(b'q')) => Wish::Detach,
                Some(Nudge::Key(_)) | None => Wish::GoOn,
            };
            match wish {
                Wish::GoOn => {}
                Wish::Detach => return leave_running(project),
                Wish::Stop => return take_down(context, project),
            }
        }
    }
}

/// A project that is up, and what is needed to show it.
struct Brought {
    project: Name,
    /// How many agents it has.
    count: usize,
    has_modules: bool,
    heard: Heard,
}

/// Says where a daemon that was just started can be looked at.
fn say_address(client: &Client) -> Result<(), Failure> {
    let info: DaemonInfo = client.get("/api/v1/daemon")?;
    let Some(address) = info.address else { return Ok(()) };
    output::print(&format!("{address} is open; `defib dashboard` logs a browser in\n"))
}

/// What is to become of a project that is in front.
enum Wish {
    GoOn,
    Detach,
    Stop,
}

/// Asks what Ctrl-C meant. A second one means it.
fn ask(project: &Name, interrupted: &Interrupted) -> Result<Wish, Failure> {
    output::print(&format!(
        "\nstop every agent of {project} (s), detach and leave them running (d), or go on (any \
         other key)? "
    ))?;
    loop {
        let wish = match interrupted.next(Duration::from_secs(3600)) {
            Some(Nudge::Interrupt | Nudge::End | Nudge::Key(b's' | b'S' | b'y' | b'Y')) => {
                Wish::Stop
            }
            Some(Nudge::HangUp | Nudge::Key(b'd' | b'D' | b'q' | b'Q')) => Wish::Detach,
            Some(Nudge::Key(_)) => Wish::GoOn,
            None => continue,
        };
        output::print("\n\n")?;
        return Ok(wish);
    }
}

fn leave_running(project: &Name) -> Result<(), Failure> {
    output::print(&format!(
        "\ndetached; {project} runs on. `defib status` shows it, `defib down` takes it down\n"
    ))
}

/// What was said before is not said again: the number of the last event that was looked at.
struct Heard(u64);

impl Heard {
    /// Begins after what was there before, or where nothing answered then, with the daemon's start.
    fn since(context: &Context, before: &[Value]) -> Heard {
        let number = |event: &Value| event["seq"].as_u64();
        let last = before.last().and_then(number).or_else(|| {
            let all = events(context, "last=10000");
            all.iter().rfind(|event| event["type"] == "daemon-started").and_then(number)
        });
        Heard(last.unwrap_or(0))
    }

    /// What these agents' people have been notified of since; verbosely, all that was decided.
    fn notices(&mut self, context: &Context, ours: &[AgentLine], verbose: bool) -> Vec<String> {
        let new = events(context, &format!("after={}", self.0));
        self.0 = new.iter().filter_map(|event| event["seq"].as_u64()).fold(self.0, u64::max);
        let ours = |agent: &str| ours.iter().any(|line| line.name.as_str() == agent);
        if verbose {
            let of_ours = |event: &&Value| event["agent"].as_str().is_some_and(ours);
            return new.iter().filter(of_ours).map(super::events::line).collect();
        }
        let notified = new.iter().filter(|event| event["type"] == "notified");
        let line = |event: &Value| {
            let (agent, what) = (event["agent"].as_str()?, event["what"].as_str()?);
            ours(agent).then(|| format!("{agent} is {what}: `defib why {agent}` says why"))
        };
        notified.filter_map(line).collect()
    }
}

/// Events of the past. A daemon that is being replaced is asked again the next time.
fn events(context: &Context, which: &str) -> Vec<Value> {
    let client = context.client();
    client.and_then(|client| client.get(&format!("/api/v1/events?{which}"))).unwrap_or_default()
}

fn take_down(context: &Context, project: &Name) -> Result<(), Failure> {
    output::print(&format!("\ntaking {project} down\n"))?;
    let down = json!({ "project": project });
    let _: Vec<Name> = context.client()?.insist("/api/v1/down", &down)?;
    await_down(context, project)?;
    output::print(&format!("{project} is down\n"))
}

/// Returns when no agent of a project is left that runs or will run by itself.
fn await_down(context: &Context, project: &Name) -> Result<(), Failure> {
    let ours =
        wait_until(context, project, GO_DOWN, |ours| ours.iter().all(|line| is_down(line.state)))?;
    all_down(project, &ours)
}

/// Whether all are down; else, who is not.
fn all_down(project: &Name, ours: &[AgentLine]) -> Result<(), Failure> {
    let left: Vec<&AgentLine> = ours.iter().filter(|line| !is_down(line.state)).collect();
    if left.is_empty() {
        return Ok(());
    }
    let listed = |show: &dyn Fn(&AgentLine) -> String, between: &str| {
        left.iter().map(|line| show(line)).collect::<Vec<String>>().join(between)
    };
    let states = listed(&|line| format!("{} is {}", line.name, line.state.word()), ", ");
    let names = listed(&|line| line.name.to_string(), " ");
    let minutes = GO_DOWN.as_secs() / 60;
    let message = format!("{project} is not down after {minutes} minutes: {states}");
    Err(Failure::new(Code::Failed, message)
        .hint(format!("`defib stop --kill {names}` does not wait for them to end by themselves")))
}

fn say_taken_down(project: &Name) -> Result<(), Failure> {
    output::print(&format!("{project} was taken down\n"))
}

/// Whether somebody took the project of these agents down, and it is.
fn was_taken_down(ours: &[AgentLine]) -> bool {
    let is_gone = |line: &AgentLine| line.goal == Goal::Down && is_down(line.state);
    !ours.is_empty() && ours.iter().all(is_gone)
}

/// What is sent to the daemon of a config.
pub(crate) fn request(file: &ConfigFile, config: Config, mode: Mode) -> Result<UpRequest, Failure> {
    let path = file.location()?;
    let environment = defib_daemon::environment_for(&config, std::env::vars());
    let options = file.options()?;
    Ok(UpRequest { path, config, mode, environment, options, reload: false })
}

/// The agents of a project, whatever they are called at this moment.
fn ours(context: &Context, project: &Name) -> Result<Vec<AgentLine>, Failure> {
    let all = lines(context)?;
    Ok(all.into_iter().filter(|line| line.project == *project).collect())
}

/// Looks until all agents are as wanted, or time is up: which of them it was, the caller has to see.
fn wait_until(
    context: &Context,
    project: &Name,
    within: Duration,
    mut wanted: impl FnMut(&[AgentLine]) -> bool,
) -> Result<Vec<AgentLine>, Failure> {
    let deadline = Instant::now() + within;
    loop {
        let asked = Instant::now();
        let ours = ours(context, project)?;
        if wanted(&ours) || Instant::now() > deadline {
            return Ok(ours);
        }
        // Whoever asks about a thousand agents all the time keeps the daemon from starting them.
        std::thread::sleep((asked.elapsed() * 4).max(Duration::from_millis(20)));
    }
}

fn settle(context: &Context, project: &Name, count: usize) -> Result<(), Failure> {
    let progress = std::io::stderr().is_terminal() && count > 1;
    let mut shown = Instant::now();
    std::thread::sleep(QUICKEST * u32::try_from(count).unwrap_or(0));
    let ours = wait_until(context, project, SETTLE, |ours| {
        if progress && shown.elapsed() > Duration::from_millis(200) {
            let settled = ours.iter().filter(|line| is_settled(line.state)).count();
            eprint!("\r\x1b[K{settled} of {} have started", output::count(ours.len(), "agent"));
            shown = Instant::now();
        }
        ours.iter().all(|line| is_settled(line.state))
    })?;
    if progress {
        eprint!("\r\x1b[K");
    }
    let running = ours.iter().filter(|line| line.state == State::Running).count();
    let (all, verb) =
        (output::count(ours.len(), "agent"), if ours.len() == 1 { "is" } else { "are" });
    output::print(&format!("{project} is up: {running} of {all} {verb} running\n"))?;
    let others: Vec<AgentLine> =
        ours.into_iter().filter(|line| line.state != State::Running).collect();
    if !others.is_empty() {
        output::print(&overview(&others, jiff::Timestamp::now()))?;
    }
    Ok(())
}

/// Each agent runs once; then the daemon ends, unless it has others to look after.
fn once(context: &Context, brought: &Brought, interrupted: &Interrupted) -> Result<(), Failure> {
    let project = &brought.project;
    // Who is idle waits for a trigger of its own, which nobody here gives.
    let is_idle = |line: &AgentLine| line.state == State::Idle;
    let at_rest = |line: &AgentLine| {
        let ended =
            matches!(line.state, State::Done | State::Stopped | State::Halted | State::CrashedOut);
        ended || is_idle(line)
    };
    let is_fine = |line: &AgentLine| line.state == State::Done || is_idle(line);
    let ours = loop {
        let ours = ours(context, project)?;
        if ours.iter().all(at_rest) {
            break ours;
        }
        if interrupted.wait(Duration::from_millis(50)) {
            // Somebody may have ended while it was waited for.
            break self::ours(context, project)?;
        }
    };
    // Those run on until they are stopped: what became of them nobody has to be told.
    let cut_short: Vec<&str> =
        ours.iter().filter(|line| !at_rest(line)).map(|line| line.name.as_str()).collect();
    output::print(&overview(&ours, jiff::Timestamp::now()))?;
    let client = context.client()?;
    // Now, while there is a daemon that knows.
    for failed in ours.iter().filter(|line| at_rest(line) && !is_fine(line)) {
        let name = super::segment(failed.name.as_str())?;
        if let Ok(why) = client.get(&format!("/api/v1/agents/{name}/why")) {
            output::print(&format!("\n{}", super::post_mortem(&why, jiff::Timestamp::now())))?;
        }
    }
    let _: Vec<Name> = client.insist("/api/v1/down", &json!({ "project": project }))?;
    await_down(context, project)?;
    if lines(context)?.iter().all(|line| is_down(line.state)) {
        client.close()?;
    }
    if !cut_short.is_empty() {
        let verb = if cut_short.len() == 1 { "was" } else { "were" };
        let message = format!("interrupted: {} {verb} stopped", cut_short.join(", "));
        Err(Failure::new(Code::Failed, message))
    } else if ours.iter().all(is_fine) {
        Ok(())
    } else {
        Err(Failure::new(Code::Failed, "not every agent was done")
            .hint("above is why; `--mode once` restarts nothing"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str, state: &str) -> AgentLine {
        let line =
            json!({ "name": name, "project": "p", "state": state, "goal": "up", "restarts": 0 });
        serde_json::from_value(line).unwrap()
    }

    #[test]
    fn a_project_is_not_said_to_be_down_while_one_of_its_agents_is_not() {
        let project = Name::parse("p").unwrap();
        assert!(all_down(&project, &[agent("a", "stopped"), agent("b", "done")]).is_ok());
        assert!(all_down(&project, &[]).is_ok());
        let left = [agent("a", "stopped"), agent("b", "stopping"), agent("c", "backoff")];
        let failure = all_down(&project, &left).unwrap_err();
        assert!(failure.is(Code::Failed));
        let told = format!("{failure:?}");
        assert!(told.contains("p is not down") && !told.contains("a is"), "{told}");
        assert!(told.contains("b is stopping, c is backoff"), "{told}");
        assert!(told.contains("defib stop --kill b c"), "{told}");
    }
}
