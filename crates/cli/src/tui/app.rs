//! What the view knows and how news change it. Pure: what is to be done outside is given back.
//!
//! The selection is an agent, not a place: it stays on that agent however the list moves below it.

use std::time::Duration;

use defib_core::screen::one_line;
use defib_core::{Name, RunId, State};
use defib_daemon::wire::{Action, AgentStatus, CapabilityChange, GroupStatus, TotalsStatus, Why};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::pane::{Kind, MOST_LINES, Pane};
use super::rows::{Row, Wish, rows};
use crate::commands::{event_body, post_mortem};
use crate::failure::Failure;

/// Beats are told by no event: where one is shown, the list is asked for again after so long.
const BEATS_EVERY: Duration = Duration::from_secs(5);

/// Something that the daemon has told.
#[derive(Debug)]
pub(crate) enum News {
    /// Every agent and group as they are.
    Listed { agents: Vec<AgentStatus>, groups: Vec<GroupStatus> },
    /// What the last day adds up to.
    Totals(TotalsStatus),
    /// The daemon does not answer.
    Away,
    /// Events, oldest first.
    Events(Vec<Value>),
    /// A post-mortem that was asked for.
    Why { agent: Name, answer: Result<Box<Why>, Failure> },
    /// A piece of the log that is followed.
    Log { watch: u64, bytes: Vec<u8> },
    /// What became of something that was asked for.
    Done(Result<String, Failure>),
}

/// Something that is to be done outside.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    /// Do it to an agent or to a group's members.
    Act { name: Name, action: Action, kill: bool },
    /// Give an agent something to spend.
    Fund { name: Name, amount: f64, unit: String },
    /// Let an agent's next runs do something, or no longer.
    Change { name: Name, change: CapabilityChange, token: String },
    /// Ask why.
    Why(Name),
    /// Follow this log, and no other; the number comes back with its pieces.
    Follow { name: Name, watch: u64 },
    /// Follow no log.
    Unfollow,
    /// Leave the screen to an agent's terminal for a while.
    Attach(Name),
    /// Ask for the list.
    List,
    /// Draw on an empty screen.
    Redraw,
    /// End.
    Quit,
}

/// What a person is being asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Prompt {
    /// Which names to list. What it was before comes back where it is given up.
    Filter { before: String },
    /// What to search for in the pane.
    Search(String),
    /// Whether to kill.
    Kill(Name),
    /// How much to give.
    Fund { name: Name, text: String },
    /// What to grant, or after a minus to revoke.
    Change { name: Name, text: String },
}

/// What has the focus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Focus {
    List,
    Pane,
}

/// What an agent was like when its post-mortem was asked for.
type Mark = (State, Option<RunId>, u32, Option<String>);

/// Everything that the view shows.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) now: Timestamp,
    pub(crate) zone: TimeZone,
    pub(crate) agents: Vec<AgentStatus>,
    groups: Vec<GroupStatus>,
    /// What the last day adds up to, once that is known.
    pub(crate) totals: Option<TotalsStatus>,
    /// When the agents were as they are listed.
    pub(crate) listed_at: Timestamp,
    pub(crate) rows: Vec<Row>,
    pub(crate) wish: Wish,
    selected: Option<Name>,
    /// Where the selected row was last, for when what was selected is gone.
    selected_at: usize,
    /// The first row that is shown, and how many there is room for.
    first: usize,
    pub(crate) height: usize,
    pub(crate) pane: Option<Pane>,
    pub(crate) is_zoomed: bool,
    pub(crate) focus: Focus,
    pub(crate) prompt: Option<Prompt>,
    /// What became of the last thing that was asked for, and whether it went wrong.
    pub(crate) notice: Option<(String, bool)>,
    /// Since when the daemon has not answered.
    pub(crate) away: Option<Timestamp>,
    pub(crate) shows_help: bool,
    /// The last events, also while no pane shows them.
    events: Pane,
    why_mark: Option<Mark>,
    /// What the pane tells, again and again as time passes.
    why: Option<Box<Why>>,
    watch: u64,
}

impl App {
    pub(crate) fn new(now: Timestamp, zone: TimeZone) -> App {
        App {
            now,
            zone,
            agents: Vec::new(),
            groups: Vec::new(),
            totals: None,
            listed_at: now,
            rows: Vec::new(),
            wish: Wish::default(),
            selected: None,
            selected_at: 0,
            first: 0,
            height: 10,
            pane: None,
            is_zoomed: false,
            focus: Focus::List,
            prompt: None,
            notice: None,
            away: None,
            shows_help: false,
            events: Pane::new(Kind::Events, None),
            why_mark: None,
            why: None,
            watch: 0,
        }
    }

    /// Takes in what the daemon has told.
    pub(crate) fn take(&mut self, news: News) -> Vec<Effect> {
        match news {
            News::Listed { agents, groups } => {
                (self.agents, self.groups) = (agents, groups);
                (self.listed_at, self.away) = (self.now, None);
                self.arrange();
                return self.follow_selection();
            }
            News::Totals(totals) => self.totals = Some(totals),
            News::Away => {
                self.away.get_or_insert(self.now);
            }
            News::Events(events) => {
                for event in events {
                    let line = self.event_line(&event);
                    self.events_pane().add(line);
                }
            }
            News::Why { agent, answer } => {
                let Some(pane) = self.pane_of(Kind::Why) else { return Vec::new() };
                if pane.agent.as_ref() != Some(&agent) {
                    return Vec::new();
                }
                match answer {
                    Ok(why) => {
                        self.why = Some(why);
                        self.tell_why();
                    }
                    Err(failure) => pane.show(failure.to_string()),
                }
            }
            News::Log { watch, bytes } => {
                let is_wanted = watch == self.watch;
                if let Some(pane) = self.pane_of(Kind::Logs)
                    && is_wanted
                {
                    pane.add_bytes(&bytes);
                }
            }
            News::Done(answer) => {
                self.notice = Some(match answer {
                    Ok(text) => (text, false),
                    Err(failure) => (failure.to_string(), true),
                });
                return vec![Effect::List];
            }
        }
        Vec::new()
    }

    /// Takes in that time has passed.
    pub(crate) fn tick(&mut self) -> Vec<Effect> {
        self.tell_why();
        let has_beats = self.shown().any(|agent| agent.heartbeat_age_s.is_some());
        if has_beats && self.since(self.listed_at) >= BEATS_EVERY && self.away.is_none() {
            return vec![Effect::List];
        }
        Vec::new()
    }

    /// How long nothing that is shown changes by itself; none where nothing does.
    pub(crate) fn rests_for(&self) -> Option<Duration> {
        const SECOND: Duration = Duration::from_secs(1);
        const MINUTE: Duration = Duration::from_secs(60);
        // What is younger than a minute, or less than an hour away, is told by the second.
        let of = |agent: &AgentStatus| {
            let left = agent.next_at.as_ref().and_then(|at| self.until(at));
            let death = agent.last_death.as_ref().and_then(|death| self.age(&death.at));
            let ages = [self.uptime(agent), self.beat_age(agent), death];
            let is_quick = left.is_some_and(|left| left < 60 * MINUTE)
                || ages.into_iter().flatten().any(|age| age < MINUTE);
            let is_slow = left.is_some() || ages.iter().any(Option::is_some);
            match (is_quick, is_slow) {
                (true, _) => Some(SECOND),
                (false, true) => Some(MINUTE),
                (false, false) => None,
            }
        };
        self.shown().filter_map(of).min()
    }

    /// How long its run has lived.
    pub(crate) fn uptime(&self, agent: &AgentStatus) -> Option<Duration> {
        agent.uptime_s.map(|uptime| uptime.0 + self.since(self.listed_at))
    }

    /// How long ago it last showed that it lives.
    pub(crate) fn beat_age(&self, agent: &AgentStatus) -> Option<Duration> {
        agent.heartbeat_age_s.map(|age| age.0 + self.since(self.listed_at))
    }

    /// How long ago a stamp is.
    pub(crate) fn age(&self, stamp: &str) -> Option<Duration> {
        stamp.parse().ok().map(|at| self.since(at))
    }

    /// How far off a stamp is; none where it has passed.
    pub(crate) fn until(&self, stamp: &str) -> Option<Duration> {
        let at: Timestamp = stamp.parse().ok()?;
        (at > self.now).then(|| Duration::try_from(at.duration_since(self.now)).unwrap_or_default())
    }

    fn since(&self, at: Timestamp) -> Duration {
        Duration::try_from(self.now.duration_since(at)).unwrap_or_default()
    }

    /// The time of day of a moment, where the person is.
    pub(crate) fn clock(&self, at: Timestamp) -> String {
        at.to_zoned(self.zone.clone()).strftime("%H:%M:%S").to_string()
    }

    /// The agents of the rows that are shown.
    fn shown(&self) -> impl Iterator<Item = &AgentStatus> {
        self.visible().iter().filter_map(|row| match row {
            Row::Agent { at, .. } => Some(&self.agents[*at]),
            Row::Group { .. } => None,
        })
    }

    /// The rows that are shown; the others are not looked at.
    pub(crate) fn visible(&self) -> &[Row] {
        let from = self.first.min(self.rows.len());
        let to = (self.first + self.height).min(self.rows.len());
        &self.rows[from..to]
    }

    /// Takes how many rows there is room for; the selected one is among them.
    pub(crate) fn fit(&mut self, height: usize) {
        self.height = height.max(1);
        let at = self.position().unwrap_or(0);
        self.first = self.first.min(at).min(self.rows.len().saturating_sub(self.height));
        if at >= self.first + self.height {
            self.first = at + 1 - self.height;
        }
    }

    /// How many rows are above what is shown, and below it.
    pub(crate) fn hidden(&self) -> (usize, usize) {
        (self.first, self.rows.len().saturating_sub(self.first + self.height))
    }

    /// The name of a row.
    pub(crate) fn name<'a>(&'a self, row: &'a Row) -> &'a Name {
        match row {
            Row::Group { name, .. } => name,
            Row::Agent { at, .. } => &self.agents[*at].name,
        }
    }

    pub(crate) fn is_selected(&self, row: &Row) -> bool {
        self.selected.as_ref() == Some(self.name(row))
    }

    pub(crate) fn selected(&self) -> Option<&Name> {
        self.selected.as_ref()
    }

    /// The agent that is selected; none where a group is.
    pub(crate) fn selected_agent(&self) -> Option<&AgentStatus> {
        match &self.rows[self.position()?] {
            Row::Agent { at, .. } => Some(&self.agents[*at]),
            Row::Group { .. } => None,
        }
    }

    pub(crate) fn position(&self) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        self.rows.iter().position(|row| self.name(row) == selected)
    }

    /// Selects the row at this place, or the nearest.
    pub(crate) fn select(&mut self, at: usize) -> Vec<Effect> {
        self.selected_at = at.min(self.rows.len().saturating_sub(1));
        self.selected = self.rows.get(self.selected_at).map(|row| self.name(row).clone());
        self.follow_selection()
    }

    /// Makes the rows anew. Where the selected one is gone, the one in its place is selected.
    pub(crate) fn arrange(&mut self) {
        self.rows = rows(&self.agents, &self.groups, &self.wish);
        if let Some(at) = self.position() {
            self.selected_at = at;
        } else {
            self.selected_at = self.selected_at.min(self.rows.len().saturating_sub(1));
            self.selected = self.rows.get(self.selected_at).map(|row| self.name(row).clone());
        }
    }

    /// Opens a pane.
    pub(crate) fn open(&mut self, kind: Kind) -> Vec<Effect> {
        let mut effects = self.close();
        self.pane = Some(match kind {
            Kind::Why | Kind::Logs => Pane::new(kind, None),
            Kind::Events => std::mem::replace(&mut self.events, Pane::new(kind, None)),
        });
        effects.extend(self.follow_selection());
        effects
    }

    /// Closes the pane, if there is one.
    pub(crate) fn close(&mut self) -> Vec<Effect> {
        (self.focus, self.is_zoomed, self.why_mark) = (Focus::List, false, None);
        match self.pane.take() {
            Some(pane) if pane.kind == Kind::Events => {
                self.events = pane;
                Vec::new()
            }
            Some(pane) if pane.kind == Kind::Logs => {
                self.watch += 1;
                vec![Effect::Unfollow]
            }
            Some(_) | None => Vec::new(),
        }
    }

    /// A pane is about the agent that is selected.
    fn follow_selection(&mut self) -> Vec<Effect> {
        let agent = self.selected_agent().map(|agent| {
            let mark = (agent.state, agent.run, agent.restarts, agent.reason.clone());
            (agent.name.clone(), mark)
        });
        let Some(pane) = &mut self.pane else { return Vec::new() };
        let is_same = pane.agent.as_ref() == agent.as_ref().map(|(name, _)| name);
        if !is_same && pane.kind != Kind::Events {
            pane.clear();
            pane.agent = agent.as_ref().map(|(name, _)| name.clone());
        }
        match (pane.kind, agent) {
            (Kind::Events, _) => Vec::new(),
            (Kind::Why | Kind::Logs, None) => {
                pane.show("This is a group: select one of its members.".to_owned());
                vec![Effect::Unfollow]
            }
            (Kind::Logs, Some(_)) if is_same => Vec::new(),
            (Kind::Logs, Some((name, _))) => {
                self.watch += 1;
                vec![Effect::Follow { name, watch: self.watch }]
            }
            (Kind::Why, Some((_, mark))) if is_same && self.why_mark.as_ref() == Some(&mark) => {
                Vec::new()
            }
            (Kind::Why, Some((name, mark))) => {
                self.why_mark = Some(mark);
                vec![Effect::Why(name)]
            }
        }
    }

    /// Tells the post-mortem that there is as of now.
    fn tell_why(&mut self) {
        if let (Some(why), Some(pane)) = (&self.why, &mut self.pane)
            && pane.kind == Kind::Why
            && pane.agent.as_ref() == Some(&why.agent.name)
        {
            pane.show(post_mortem(why, self.now));
        }
    }

    fn pane_of(&mut self, kind: Kind) -> Option<&mut Pane> {
        self.pane.as_mut().filter(|pane| pane.kind == kind)
    }

    fn events_pane(&mut self) -> &mut Pane {
        match &mut self.pane {
            Some(pane) if pane.kind == Kind::Events => pane,
            Some(_) | None => &mut self.events,
        }
    }

    fn event_line(&self, event: &Value) -> String {
        let stamp = event["at"].as_str().unwrap_or_default();
        let at = stamp.parse().map_or_else(|_| stamp.to_owned(), |at| self.clock(at));
        one_line(&format!("{at}  {}", event_body(event)))
    }
}

/// How many events of the past are shown.
pub(crate) const PAST_EVENTS: usize = MOST_LINES / 10;
