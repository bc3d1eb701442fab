//! `defib status`, also `defib ps`.

use std::collections::BTreeMap;

use anstyle::{AnsiColor, Style};
use defib_core::State;
use defib_core::span::Shown;
use defib_daemon::wire::{AgentStatus, ChannelFailure, DaemonInfo};
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
        let statuses = statuses(context, &self.names)?;
        if self.json {
            return output::json(&statuses);
        }
        if statuses.is_empty() {
            return output::print("no agents; `defib up` brings a project up\n");
        }
        let now = Timestamp::now();
        output::print(&(overview(&statuses, now) + &failing(&statuses, now)))?;
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

/// A line a channel by which nobody can be told of what becomes of these agents.
fn failing(statuses: &[AgentStatus], now: Timestamp) -> String {
    let all = statuses.iter().flat_map(|status| {
        status.channels_failing.iter().map(|failure| ((&status.project, &failure.channel), failure))
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

/// What is to be said of every agent, or of those named.
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
pub(crate) fn overview_within(statuses: &[AgentStatus], now: Timestamp, columns: usize) -> String {
    let without = |count: usize| overview_without(statuses, now, &LEFT_OUT[..count]);
    let fits = (0..LEFT_OUT.len()).map(without).find(|text| width(text) <= columns);
    let text = fits.unwrap_or_else(|| without(LEFT_OUT.len()));
    text.lines().map(|line| cut(line, columns) + "\n").collect()
}

/// A line an agent.
pub(crate) fn overview(statuses: &[AgentStatus], now: Timestamp) -> String {
    overview_without(statuses, now, &[])
}

fn overview_without(statuses: &[AgentStatus], now: Timestamp, without: &[&str]) -> String {
    let mut rows: Vec<Vec<Cell>> = statuses.iter().map(|status| row(status, now)).collect();
    let mut head = vec!["AGENT", "STATE", "PID", "RUN", "RESTARTS", "UPTIME", "LAST ACTIVITY"];
    head.extend(["LAST DEATH", "NEXT"]);
    // Few agents say anything of themselves.
    if statuses.iter().any(|status| status.status_text.is_some()) {
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

fn row(status: &AgentStatus, now: Timestamp) -> Vec<Cell> {
    let number = |number: Option<String>| Cell::new(number.unwrap_or_default());
    let state = match &status.reason {
        Some(reason) => format!("{} ({reason})", status.state),
        None => status.state.to_string(),
    };
    let flapping = if status.flapping { " flapping" } else { "" };
    let death = status.last_death.as_ref().map(|death| {
        let how = match (death.exit_code, death.signal) {
            (Some(code), _) => format!(" exit {code}"),
            (None, Some(signal)) => format!(" {signal}"),
            (None, None) => String::new(),
        };
        format!("{}{how}, {}", death.class, ago(&death.at, now))
    });
    vec![
        Cell::new(status.name.as_str()),
        Cell::styled(format!("{state}{flapping}"), tone(status.state)),
        number(status.pid.map(|pid| pid.to_string())),
        number(status.run.map(|run| run.to_string())),
        Cell::new(status.restarts.to_string()),
        number(status.uptime_s.map(|uptime| Shown(coarse(uptime.0)).to_string())),
        number(status.last_activity_at.as_ref().map(|at| ago(at, now))),
        number(death),
        number(status.next_at.as_ref().map(|at| until(at, now))),
        number(status.status_text.clone()),
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
pub(crate) fn status_line(project: &str, statuses: &[AgentStatus]) -> String {
    let word = |status: &AgentStatus| match status.state {
        State::Starting | State::Running | State::Stopping => "RUNNING",
        State::Backoff | State::Waiting => "RESTARTING",
        State::Idle | State::Stopped | State::Done => "STOPPED",
        State::CrashedOut if status.loop_detected => "LOOP_DETECTED",
        State::CrashedOut | State::Halted => "CRASHED",
    };
    let agents: Vec<String> = statuses
        .iter()
        .map(|status| format!("{}={}({})", status.name.plain(), word(status), status.restarts))
        .collect();
    format!("[{}] {}", project.to_uppercase(), agents.join(" "))
}

/// Whether an agent has no process and will get none by itself.
pub(crate) fn is_down(status: &AgentStatus) -> bool {
    !matches!(
        status.state,
        State::Starting | State::Running | State::Stopping | State::Backoff | State::Waiting
    )
}

/// Whether an agent has come to where only time or a person changes something.
pub(crate) fn is_settled(status: &AgentStatus) -> bool {
    !matches!(status.state, State::Starting)
}
