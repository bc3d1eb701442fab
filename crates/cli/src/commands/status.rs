//! `defib status`, also `defib ps`.

use std::collections::BTreeMap;

use anstyle::{AnsiColor, Style};
use defib_core::State;
use defib_core::span::Shown;
use defib_daemon::wire::{AgentLine, AgentStatus, ChannelFailure, DaemonInfo};
use jiff::Timestamp;

use super::Context;
use crate::failure::Failure;
use crate::output;
use crate::table::{Cell, cut, table, width};

/// Show every agent, or those named, one line each
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  defib status
  defib status reviewer
  defib status --json | jq '.[] | select(.state != \"running\") | .name'")]
pub(crate) struct Status {
    /// Agents or groups; none means all
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl Status {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        if self.json {
            return output::json(&statuses(context, &self.names)?);
        }
        let lines = if self.names.is_empty() {
            lines(context)?
        } else {
            statuses(context, &self.names)?.into_iter().map(AgentLine::from).collect()
        };
        if lines.is_empty() {
            return output::print("no agents; `defib up` brings a project up\n");
        }
        let now = Timestamp::now();
        output::print(&(overview(&lines, now) + &unmetered(&lines) + &failing(&lines, now)))?;
        warn_of_troubles(context);
        Ok(())
    }
}

/// Says what is wrong with the daemon's own files, to those who may know.
pub(crate) fn warn_of_troubles(context: &Context) {
    let info = context.client().and_then(|client| client.get::<DaemonInfo>("/api/v1/daemon"));
    for trouble in info.into_iter().flat_map(|info| info.troubles) {
        anstream::eprintln!("warning: {trouble}");
    }
}

/// A line per agent whose budget has units that nothing measures.
fn unmetered(lines: &[AgentLine]) -> String {
    let unmetered = lines.iter().filter(|line| !line.unmetered.is_empty());
    let line = |line: &AgentLine| {
        let (name, units) = (&line.name, line.unmetered.join(" and "));
        format!(
            "{name}: its budget is not metered in {units}; `defib why {name}` says what to do\n"
        )
    };
    unmetered.map(line).collect()
}

/// A line a channel by which nobody can be told of what becomes of these agents.
fn failing(lines: &[AgentLine], now: Timestamp) -> String {
    let all = lines.iter().flat_map(|line| {
        line.channels_failing.iter().map(|failure| ((&line.project, &failure.channel), failure))
    });
    let all: BTreeMap<_, &ChannelFailure> = all.collect();
    let line = |((project, channel), failure): (_, &ChannelFailure)| {
        let ChannelFailure { at, why, attempts, given_up, .. } = failure;
        let times = if *attempts == 1 { "attempt" } else { "attempts" };
        let then = if *given_up { "given up" } else { "it is tried again" };
        let at = ago(at, now);
        format!("channel {project}/{channel} fails: {why} ({attempts} {times}, {at}; {then})\n")
    };
    let mut lines: String = all.into_iter().map(line).collect();
    if !lines.is_empty() {
        lines.push_str("`defib notify test` tries every channel and says what came of it\n");
    }
    lines
}

/// What a table shows of every agent.
pub(crate) fn lines(context: &Context) -> Result<Vec<AgentLine>, Failure> {
    context.client()?.get("/api/v1/overview")
}

/// All that is to be said of every agent, or of those named.
pub(crate) fn statuses(context: &Context, names: &[String]) -> Result<Vec<AgentStatus>, Failure> {
    let client = context.client()?;
    if names.is_empty() {
        return client.get("/api/v1/agents");
    }
    let mut all = Vec::new();
    for name in names {
        let some: Vec<AgentStatus> =
            client.get(&format!("/api/v1/agents/{}", super::segment(name)?))?;
        all.extend(some);
    }
    Ok(all)
}

/// What can be left out of an overview where there is little room, the least of all first.
const LEFT_OUT: [&str; 3] = ["LAST ACTIVITY", "RUN", "PID"];

/// A line an agent, on so many columns.
pub(crate) fn overview_within(lines: &[AgentLine], now: Timestamp, columns: usize) -> String {
    let without = |count: usize| overview_without(lines, now, &LEFT_OUT[..count]);
    let fits = (0..LEFT_OUT.len()).map(without).find(|text| width(text) <= columns);
    let text = fits.unwrap_or_else(|| without(LEFT_OUT.len()));
    text.lines().map(|line| cut(line, columns) + "\n").collect()
}

/// A line an agent.
pub(crate) fn overview(lines: &[AgentLine], now: Timestamp) -> String {
    overview_without(lines, now, &[])
}

fn overview_without(lines: &[AgentLine], now: Timestamp, without: &[&str]) -> String {
    let mut rows: Vec<Vec<Cell>> = lines.iter().map(|line| row(line, now)).collect();
    let mut head = vec!["AGENT", "STATE", "PID", "RUN", "RESTARTS", "UPTIME", "LAST ACTIVITY"];
    head.extend(["LAST DEATH", "NEXT"]);
    // Few agents say anything of themselves.
    if lines.iter().any(|line| line.status_text.is_some()) {
        head.push("SAYS");
    }
    for title in without {
        if let Some(at) = head.iter().position(|known| known == title) {
            head.remove(at);
            for row in &mut rows {
                row.remove(at);
            }
        }
    }
    table(&head, &rows)
}

fn row(line: &AgentLine, now: Timestamp) -> Vec<Cell> {
    let number = |number: Option<String>| Cell::new(number.unwrap_or_default());
    let state = match &line.reason {
        Some(reason) => format!("{} ({reason})", line.state),
        None => line.state.to_string(),
    };
    let flapping = if line.flapping { " flapping" } else { "" };
    let death = line.last_death.as_ref().map(|death| {
        let how = match (death.exit_code, death.signal) {
            (Some(code), _) => format!(" exit {code}"),
            (None, Some(signal)) => format!(" {signal}"),
            (None, None) => String::new(),
        };
        format!("{}{how}, {}", death.class, ago(&death.at, now))
    });
    vec![
        Cell::new(line.name.as_str()),
        Cell::styled(format!("{state}{flapping}"), tone(line.state)),
        number(line.pid.map(|pid| pid.to_string())),
        number(line.run.map(|run| run.to_string())),
        Cell::new(line.restarts.to_string()),
        number(line.uptime_s.map(|uptime| Shown(coarse(uptime.0)).to_string())),
        number(line.last_activity_at.as_ref().map(|at| ago(at, now))),
        number(death),
        number(line.next_at.as_ref().map(|at| until(at, now))),
        number(line.status_text.clone()),
    ]
}

/// The colour of a state.
pub(crate) fn tone(state: State) -> Style {
    let colour = match state {
        State::Running | State::Done => AnsiColor::Green,
        State::Starting | State::Stopping | State::Backoff => AnsiColor::Yellow,
        State::Waiting => AnsiColor::Cyan,
        State::Halted | State::CrashedOut => {
            return Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
        }
        State::Idle | State::Stopped => return Style::new().dimmed(),
    };
    Style::new().fg_color(Some(colour.into()))
}

/// A span without what nobody reads: milliseconds of minutes.
fn coarse(span: std::time::Duration) -> std::time::Duration {
    if span.as_secs() < 10 {
        std::time::Duration::from_millis(u64::try_from(span.as_millis() / 100 * 100).unwrap_or(0))
    } else {
        std::time::Duration::from_secs(span.as_secs())
    }
}

fn between(earlier: Timestamp, later: Timestamp) -> std::time::Duration {
    let span = later.duration_since(earlier);
    std::time::Duration::try_from(span).unwrap_or_default()
}

/// How long ago a stamp is.
pub(crate) fn ago(stamp: &str, now: Timestamp) -> String {
    match stamp.parse::<Timestamp>() {
        Ok(at) => format!("{} ago", Shown(coarse(between(at, now)))),
        Err(_) => stamp.to_owned(),
    }
}

/// How far off a stamp is.
fn until(stamp: &str, now: Timestamp) -> String {
    match stamp.parse::<Timestamp>() {
        Ok(at) => format!("in {}", Shown(coarse(between(now, at)))),
        Err(_) => stamp.to_owned(),
    }
}

/// The line that other programs read: `[PROJECT] news=RUNNING(0) chart=RESTARTING(2)`.
pub(crate) fn status_line(project: &str, lines: &[AgentLine]) -> String {
    let word = |line: &AgentLine| match line.state {
        State::Starting | State::Running | State::Stopping => "RUNNING",
        State::Backoff | State::Waiting => "RESTARTING",
        State::Idle | State::Stopped | State::Done => "STOPPED",
        State::CrashedOut if line.loop_detected => "LOOP_DETECTED",
        State::CrashedOut | State::Halted => "CRASHED",
    };
    let agents: Vec<String> = lines
        .iter()
        .map(|line| format!("{}={}({})", line.name.plain(), word(line), line.restarts))
        .collect();
    format!("[{}] {}", project.to_uppercase(), agents.join(" "))
}

/// Whether an agent in this state has no process and will get none by itself.
pub(crate) const fn is_down(state: State) -> bool {
    !matches!(
        state,
        State::Starting | State::Running | State::Stopping | State::Backoff | State::Waiting
    )
}

/// Whether an agent in this state has come to where only time or a person changes something.
pub(crate) const fn is_settled(state: State) -> bool {
    !matches!(state, State::Starting)
}
