//! How one agent stands, as far as somebody who is told is concerned.
//!
//! A standing is what the events add up to, and what was last said of it: what is told next is the
//! difference. So what happens and passes while nothing may be said is not said, and what is still
//! the case when something may be, is.

use std::time::Duration;

use defib_config::config::Event as Topic;
use defib_core::record::{Rest, WaitReason};
use defib_core::{Goal, Name, Wall, What};
use defib_history::Event;
use serde::{Deserialize, Serialize};

use super::message::{Death, cut};
use crate::notices::{BURN_ALARM, NOTIFIED};

/// An agent that has been ready for so long is well.
pub(crate) const SETTLED: Duration = Duration::from_secs(10);
/// An agent that is not to run for so long is down.
const LONG: Duration = Duration::from_secs(60);

/// How an agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Condition {
    /// Neither well nor in a state that is told: it starts, or has died and is started again.
    Trying,
    /// As it should be, or as somebody wanted it.
    Well,
    /// In a state that is told.
    Bad(Topic),
}

/// What is to be said of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Telling {
    pub(crate) agent: Name,
    pub(crate) topic: Topic,
    /// Since when it is so.
    pub(crate) at: Wall,
}

/// How one agent stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Standing {
    condition: Condition,
    /// Since when.
    since: Wall,
    /// Whether it came into a state that is told, and that has not been said.
    news: bool,
    /// Whether it was revived, and that has not been said.
    revived: bool,
    /// What people believe is the matter with it.
    pub(crate) told: Option<Topic>,
    /// When it is well, if nothing happens until then.
    well_at: Option<Wall>,
    /// When each topic was last told.
    lasts: Vec<(Topic, Wall)>,
    pub(crate) run: Option<u64>,
    pub(crate) death: Option<Death>,
    /// The limit that tripped, for people.
    pub(crate) limit: Option<String>,
    pub(crate) waits_for: Option<String>,
    /// How long it stays down.
    pub(crate) delay: Option<Duration>,
    /// That it burned, where that has not been said.
    #[serde(default)]
    pub(crate) burned: Option<Burned>,
}

/// That an agent spent far above what is usual for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Burned {
    at: Wall,
    pub(crate) unit: String,
    pub(crate) per_minute: f64,
    pub(crate) baseline: f64,
    /// Whether it was stopped for it.
    pub(crate) stopped: bool,
}

impl Burned {
    /// What the event of an alarm says.
    fn told(event: &Event) -> Option<Burned> {
        Some(Burned {
            at: event.at,
            unit: event.body.get("unit")?.as_str()?.to_owned(),
            per_minute: event.body.get("per_minute")?.as_f64()?,
            baseline: event.body.get("baseline")?.as_f64()?,
            stopped: event.body.get("stopped")?.as_bool()?,
        })
    }
}

impl Standing {
    pub(crate) fn new(at: Wall) -> Standing {
        Standing {
            condition: Condition::Trying,
            since: at,
            news: false,
            revived: false,
            told: None,
            well_at: None,
            lasts: Vec::new(),
            run: None,
            death: None,
            limit: None,
            waits_for: None,
            delay: None,
            burned: None,
        }
    }

    /// That of an agent of which nothing bad is known.
    pub(crate) fn well(at: Wall) -> Standing {
        Standing { condition: Condition::Well, ..Standing::new(at) }
    }

    /// Takes in an event about the agent.
    pub(crate) fn hear(&mut self, event: &Event) {
        self.run = event.run.map(|run| run.0).or(self.run);
        if event.kind == NOTIFIED {
            // The daemon has said which of the records of one decision matters.
            let what = event.body.get("what");
            if let Some(topic) = what.as_ref().and_then(|what| topic_of(what.as_str()?)) {
                self.turn_bad(topic, event.at);
            }
            return;
        }
        if event.kind == BURN_ALARM {
            self.burned = Burned::told(event);
            return;
        }
        let Some(record) = event.record() else { return };
        match record.what {
            What::RunReady => {
                if self.condition != Condition::Well {
                    self.well_at = Some(event.at + SETTLED);
                }
            }
            What::RunDied { class, exit_code, signal, evidence, .. } => {
                self.well_at = None;
                self.death = Some(Death {
                    class: class.word().to_owned(),
                    exit_code,
                    signal: signal.map(|signal| signal.to_string()),
                    evidence: evidence.as_deref().map(cut),
                });
                if self.condition == Condition::Well {
                    self.turn(Condition::Trying, event.at);
                }
            }
            What::RestartScheduled { delay_ms, .. } => {
                let delay = Duration::from_millis(delay_ms);
                if delay >= LONG && !matches!(self.condition, Condition::Bad(_)) {
                    self.delay = Some(delay);
                    self.turn_bad(Topic::Down, event.at);
                }
            }
            What::WaitStarted { reason, .. } => self.waits_for = Some(reason.word().to_owned()),
            What::WaitEnded { reason } => {
                if self.condition == Condition::Bad(Topic::Waiting) {
                    self.turn(Condition::Trying, event.at);
                    // The run that stood at the prompt goes on.
                    self.well_at = (reason == WaitReason::Prompt).then_some(event.at);
                }
            }
            What::LimitTripped { gauge, .. } => {
                let text = serde_json::to_value(gauge).map(|gauge| limit_shown(&gauge));
                self.limit = text.ok().flatten();
            }
            What::Revived => {
                self.revived = true;
                self.limit = None;
                self.turn(Condition::Trying, event.at);
            }
            What::Rested { rest: Rest::Done | Rest::Idle } => self.turn(Condition::Well, event.at),
            What::Rested { rest: Rest::Failed } => {
                self.delay = None;
                self.turn_bad(Topic::Down, event.at);
            }
            What::Stopped { goal: Goal::Stopped | Goal::Down } => {
                // Whoever did that knows.
                self.turn(Condition::Well, event.at);
                (self.told, self.revived, self.burned) = (None, false, None);
            }
            What::RunStarted { .. }
            | What::Stopped { goal: Goal::Up }
            | What::StopRequested { .. }
            | What::CrashedOut { .. }
            | What::Halted { .. }
            | What::Escalated { .. }
            | What::GroupRestarted { .. }
            | What::HeartbeatMissed { .. } => {}
        }
    }

    fn turn_bad(&mut self, topic: Topic, at: Wall) {
        if self.condition != Condition::Bad(topic) {
            self.turn(Condition::Bad(topic), at);
            self.news = true;
        }
    }

    fn turn(&mut self, condition: Condition, at: Wall) {
        (self.condition, self.since, self.well_at, self.news) = (condition, at, None, false);
    }

    /// Lets time pass.
    pub(crate) fn settle(&mut self, now: Wall) {
        if let Some(at) = self.well_at.filter(|at| *at <= now) {
            self.turn(Condition::Well, at);
        }
    }

    /// What is to be said of it, whenever that may be: what matters most comes first.
    pub(crate) fn owed(&self, on: &[Topic]) -> impl Iterator<Item = Topic> {
        let topic = match self.condition {
            Condition::Bad(topic) if self.news => Some(topic),
            Condition::Well if self.told.is_some() => Some(Topic::Recovered),
            Condition::Bad(_) | Condition::Well | Condition::Trying => None,
        };
        let revived = self.revived.then_some(Topic::Revived);
        let burned = self.burned.as_ref().map(|_| Topic::BurnAlarm);
        [topic, burned, revived].into_iter().flatten().filter(move |topic| on.contains(topic))
    }

    /// From when on it may be said, after what was said of it before.
    pub(crate) fn may_be_told(&self, topic: Topic, cooldown: Duration, now: Wall) -> Wall {
        let last = self.lasts.iter().find(|(told, _)| *told == topic).map(|(_, at)| *at);
        match last {
            // A clock that was set back makes nobody wait.
            Some(last) if last <= now => last + cooldown,
            Some(_) | None => now,
        }
    }

    /// What to say of it now.
    pub(crate) fn telling(&self, agent: &Name, topic: Topic) -> Telling {
        let burned = self.burned.as_ref().filter(|_| topic == Topic::BurnAlarm);
        Telling { agent: agent.clone(), topic, at: burned.map_or(self.since, |burned| burned.at) }
    }

    /// It has been said.
    pub(crate) fn say(&mut self, topic: Topic, now: Wall) {
        self.lasts.retain(|(told, _)| *told != topic);
        self.lasts.push((topic, now));
        match topic {
            Topic::Revived => self.revived = false,
            Topic::BurnAlarm => self.burned = None,
            Topic::Recovered => (self.told, self.revived) = (None, false),
            Topic::CrashedOut | Topic::Halted | Topic::Waiting | Topic::Escalated | Topic::Down => {
                // That it was revived before is no news any more.
                (self.told, self.news, self.revived) = (Some(topic), false, false);
            }
        }
    }

    /// When time alone changes something about it.
    pub(crate) fn next_change(&self) -> Option<Wall> {
        self.well_at
    }

    /// Whether nothing about it needs to be remembered.
    pub(crate) fn is_plain(&self, on: &[Topic], cooldown: Duration, now: Wall) -> bool {
        let is_over = |(_, at): &(Topic, Wall)| *at > now || now.since(*at) >= cooldown;
        self.condition == Condition::Well
            && self.owed(on).next().is_none()
            && self.lasts.iter().all(is_over)
    }

    /// What people believe is the matter with it; for tests.
    #[cfg(test)]
    pub(crate) fn is_bad(&self) -> Option<Topic> {
        match self.condition {
            Condition::Bad(topic) => Some(topic),
            Condition::Trying | Condition::Well => None,
        }
    }
}

/// The topics that the daemon's notices have words for.
fn topic_of(word: &str) -> Option<Topic> {
    let all = [Topic::CrashedOut, Topic::Halted, Topic::Escalated, Topic::Waiting];
    all.into_iter().find(|topic| topic.word() == word)
}

/// A limit's numbers for people: `5 deaths in 60 s`.
fn limit_shown(gauge: &serde_json::Value) -> Option<String> {
    let what = ["deaths", "restarts"].into_iter().find(|key| gauge[*key].is_u64())?;
    let count = gauge[what].as_u64()?;
    let within = match gauge["within_s"].as_f64() {
        Some(within) => format!(" in {within} s"),
        None => String::new(),
    };
    let what = if count == 1 { what.trim_end_matches('s') } else { what };
    Some(format!("{count} {what}{within}"))
}
