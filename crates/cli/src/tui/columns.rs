//! The columns of the list: which there is room for, how wide each is, and what stands in it.
//!
//! What matters most stays when a terminal is narrow; at 80 columns that is state, name, restarts,
//! uptime, last death and what happens next.

use std::time::Duration;

use defib_core::State;
use defib_core::screen::one_line;
use defib_core::span::Shown;
use defib_daemon::wire::AgentStatus;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use super::app::App;
use super::look::{Look, bold, dim};
use super::pane::prefix;
use super::rows::Row;
use crate::commands::number;

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    State,
    Agent,
    Restarts,
    Uptime,
    Death,
    Next,
    Beat,
    Balance,
    Group,
    Detail,
}

/// What is left out last comes first, each with the least width that it makes sense in.
const BY_WEIGHT: [(Column, usize); 10] = [
    (Column::Agent, 14),
    (Column::State, 13),
    (Column::Next, 16),
    (Column::Uptime, 6),
    (Column::Restarts, 3),
    (Column::Death, 17),
    (Column::Beat, 5),
    (Column::Balance, 12),
    (Column::Group, 12),
    (Column::Detail, 24),
];

/// The columns as they stand, from left to right.
const BY_PLACE: [Column; 10] = [
    Column::State,
    Column::Agent,
    Column::Restarts,
    Column::Uptime,
    Column::Death,
    Column::Next,
    Column::Beat,
    Column::Balance,
    Column::Group,
    Column::Detail,
];

/// The columns that there is room for, from left to right, each with its width.
pub(crate) fn fitting(app: &App, width: usize) -> Vec<(Column, usize)> {
    let agents = &app.agents;
    let is_used = |column: Column| match column {
        Column::Beat => agents.iter().any(|agent| agent.heartbeat_age_s.is_some()),
        Column::Balance => agents.iter().any(|agent| agent.balance.is_some()),
        Column::Group => agents.iter().any(|agent| agent.group.is_some()) && !app.wish.tree,
        Column::Detail => agents.iter().any(|agent| !detail(agent).is_empty()),
        Column::State
        | Column::Agent
        | Column::Restarts
        | Column::Uptime
        | Column::Death
        | Column::Next => true,
    };
    let (mut chosen, mut left) = (Vec::new(), width);
    for (column, least) in BY_WEIGHT.into_iter().filter(|(column, _)| is_used(*column)) {
        let gap = usize::from(!chosen.is_empty());
        if left >= least + gap {
            left -= least + gap;
            chosen.push((column, least));
        } else if chosen.is_empty() {
            chosen.push((column, left));
            left = 0;
        } else {
            break;
        }
    }
    // What is left over goes first to names, then to what is said at more length, then to details.
    let longest = agents.iter().map(|agent| agent.name.as_str().width()).max().unwrap_or(0);
    let depth = if app.wish.tree { 4 } else { 0 };
    let wishes = [
        (Column::Agent, (longest + depth).min(24)),
        (Column::Restarts, 8),
        (Column::Death, 26),
        (Column::Balance, 18),
        (Column::Detail, 48),
        (Column::Agent, longest + depth),
        (Column::Detail, usize::MAX),
    ];
    for (column, wish) in wishes {
        if let Some((_, width)) = chosen.iter_mut().find(|(known, _)| *known == column) {
            let more = wish.saturating_sub(*width).min(left);
            *width += more;
            left -= more;
        }
    }
    let found = |column| chosen.iter().find(|(known, _)| *known == column).copied();
    BY_PLACE.into_iter().filter_map(found).collect()
}

impl Column {
    pub(crate) const fn title(self, width: usize) -> &'static str {
        match self {
            Column::State => "STATE",
            Column::Agent => "AGENT",
            Column::Restarts if width < 8 => "RST",
            Column::Restarts => "RESTARTS",
            Column::Uptime => "UPTIME",
            Column::Death => "LAST DEATH",
            Column::Next => "NEXT",
            Column::Beat => "BEAT",
            Column::Balance => "BALANCE",
            Column::Group => "GROUP",
            Column::Detail => "DETAIL",
        }
    }

    /// Numbers stand below each other.
    pub(crate) const fn is_right(self) -> bool {
        matches!(self, Column::Restarts | Column::Uptime | Column::Beat)
    }

    /// What stands in it.
    pub(crate) fn cell(
        self,
        app: &App,
        look: Look,
        agent: &AgentStatus,
        width: usize,
    ) -> (String, Style) {
        let plain = |text: String| (text, Style::new());
        match self {
            Column::State => {
                let text = format!("{} {}", look.shape(agent.state), agent.state);
                (text, look.state(agent.state))
            }
            Column::Agent => plain(agent.name.to_string()),
            Column::Restarts if agent.restarts == 0 => ("0".to_owned(), dim()),
            Column::Restarts => (agent.restarts.to_string(), bold()),
            Column::Uptime => plain(app.uptime(agent).map(age).unwrap_or_default()),
            Column::Death => plain(death(app, agent, width).unwrap_or_default()),
            Column::Next => next(app, look, agent),
            Column::Beat => plain(app.beat_age(agent).map(age).unwrap_or_default()),
            Column::Balance => balance(look, agent),
            Column::Group => {
                (agent.group.as_ref().map(ToString::to_string).unwrap_or_default(), dim())
            }
            Column::Detail => (detail(agent), Style::new()),
        }
    }
}

/// What is to be said of a group, after its name.
pub(crate) fn group_words(row: &Row) -> String {
    let Row::Group { strategy, budget, .. } = row else { return String::new() };
    match budget {
        None => strategy.to_string(),
        Some(budget) => {
            let within = budget.within_s.map(|span| format!(" in {}", Shown(span.0)));
            let within = within.unwrap_or_default();
            format!("{strategy}, restarts {} of {}{within}", budget.used, budget.max)
        }
    }
}

fn death(app: &App, agent: &AgentStatus, width: usize) -> Option<String> {
    let death = agent.last_death.as_ref()?;
    let when = app.age(&death.at).map(age).unwrap_or_default();
    let how = match (death.exit_code, death.signal) {
        (Some(code), _) => format!(" exit {code}"),
        (None, Some(signal)) => format!(" {signal}"),
        (None, None) => String::new(),
    };
    // Where there is little room, it is said with less: first how, then the word after when.
    let forms = [
        format!("{}{how}, {when} ago", death.class),
        format!("{}, {when} ago", death.class),
        format!("{}, {when}", death.class),
    ];
    let [.., shortest] = forms.clone();
    Some(forms.into_iter().find(|form| form.width() <= width).unwrap_or(shortest))
}

fn next(app: &App, look: Look, agent: &AgentStatus) -> (String, Style) {
    let left =
        agent.next_at.as_ref().map(|at| app.until(at).map_or_else(|| "now".to_owned(), left));
    let at = |what: &str| match left.as_deref() {
        Some("now") => format!("{what} now"),
        Some(left) => format!("{what} in {left}"),
        None => String::new(),
    };
    let style = look.state(agent.state);
    match agent.state {
        State::CrashedOut | State::Halted => ("revive it: v".to_owned(), style),
        State::Waiting if agent.question.is_some() => ("answer it: a".to_owned(), style),
        State::Waiting | State::Backoff => (at("restart"), style),
        State::Stopping => (at("kill"), style),
        State::Idle | State::Done | State::Stopped => (at("start"), Style::new()),
        State::Starting | State::Running => {
            (left.map(|left| format!("in {left}")).unwrap_or_default(), Style::new())
        }
    }
}

fn balance(look: Look, agent: &AgentStatus) -> (String, Style) {
    let Some(balance) = &agent.balance else { return (String::new(), Style::new()) };
    let all: Vec<String> =
        balance.iter().map(|(unit, amount)| format!("{} {unit}", number(*amount))).collect();
    let is_broke = balance.values().any(|amount| *amount <= 0.0);
    (all.join(", "), if is_broke { look.loud() } else { Style::new() })
}

/// What the other columns have no place for.
fn detail(agent: &AgentStatus) -> String {
    let flapping = agent.flapping.then(|| "flapping".to_owned());
    let says = agent.status_text.as_ref().map(|text| format!("says: {text}"));
    let all = [flapping, agent.reason.clone(), agent.question.clone(), says];
    one_line(&all.into_iter().flatten().collect::<Vec<_>>().join("; "))
}

/// How old something is: by the second up to a minute, then by the minute.
fn age(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        _ => long(seconds),
    }
}

/// How far off something is: by the second up to an hour.
fn left(span: Duration) -> String {
    // It counts down to one, and then it happens.
    let seconds = u64::try_from(span.as_millis().div_ceil(1000)).unwrap_or(u64::MAX);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => long(seconds),
    }
}

fn long(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    if days == 0 { format!("{hours}h{minutes:02}m") } else { format!("{days}d{hours:02}h") }
}

/// A text in so many columns: cut, or with spaces after it or in front.
pub(crate) fn fit(look: Look, text: &str, width: usize, is_right: bool) -> String {
    let used = text.width();
    if used <= width {
        let pad = width - used;
        return if is_right { format!("{:pad$}{text}", "") } else { format!("{text}{:pad$}", "") };
    }
    if width == 0 {
        return String::new();
    }
    let cut = match prefix(text, width - 1) {
        // A character that is wider than all the room there is.
        end if text[..end].width() > width - 1 => "",
        end => &text[..end],
    };
    let pad = width - 1 - cut.width();
    format!("{cut}{}{:pad$}", look.ellipsis(), "")
}
