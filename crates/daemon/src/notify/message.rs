//! What somebody is told: one thing, or a digest of many, in words and in numbers.
//!
//! A message is complete when it is made, and is kept as it is until it has been delivered: its `id`
//! is how a receiver knows one that comes twice.

use std::collections::BTreeMap;

use defib_config::config::Event as Topic;
use defib_core::screen::one_line;
use defib_core::span::Shown;
use defib_core::{Name, Wall};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::standing::{Burned, Standing, Telling};
use crate::wire::stamp;

/// A digest names so many; of the others it gives the number.
const NAMED: usize = 10;
/// No piece of text that an agent wrote is longer in a message.
const LONGEST: usize = 300;
/// What a digest calls itself.
pub(crate) const DIGEST: &str = "digest";
/// What a test calls itself.
pub(crate) const TEST: &str = "test";

/// Something that somebody is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Message {
    /// Its own, also when it is delivered twice.
    pub(crate) id: String,
    /// What it is about, in the word that `on` has for it; or `digest`, or `test`.
    pub(crate) event: String,
    /// The channel that it goes to.
    pub(crate) channel: Name,
    /// The project that the channel is of.
    pub(crate) project: Name,
    /// The machine.
    pub(crate) host: String,
    /// When it happened; of a digest, when that was made.
    pub(crate) at: String,
    /// Whom it is about; nothing in a digest.
    pub(crate) agent: Option<Name>,
    /// Its latest run, where it had one.
    pub(crate) run: Option<u64>,
    /// All of it, for people.
    pub(crate) text: String,
    /// What to do about it.
    pub(crate) hint: Option<String>,
    /// What its last run died of, where that matters.
    pub(crate) death: Option<Death>,
    /// How many of what are in a digest.
    pub(crate) counts: BTreeMap<String, u64>,
    /// The first of those in a digest.
    pub(crate) agents: Vec<Line>,
}

/// What a run died of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Death {
    pub(crate) class: String,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<String>,
    pub(crate) evidence: Option<String>,
}

/// One of those in a digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) agent: Name,
    pub(crate) event: String,
    pub(crate) text: String,
}

/// Whose messages they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sender {
    pub(crate) channel: Name,
    pub(crate) project: Name,
    pub(crate) host: String,
}

impl Sender {
    fn blank(&self, id: String, event: &str, at: Wall) -> Message {
        Message {
            id,
            event: event.to_owned(),
            channel: self.channel.clone(),
            project: self.project.clone(),
            host: self.host.clone(),
            at: stamp(at),
            agent: None,
            run: None,
            text: String::new(),
            hint: None,
            death: None,
            counts: BTreeMap::new(),
            agents: Vec::new(),
        }
    }

    /// A message about one agent.
    pub(crate) fn single(&self, id: String, telling: &Telling, standing: &Standing) -> Message {
        let Telling { topic, at, .. } = telling;
        let agent = telling.agent.written();
        let death = standing.death.clone().filter(|_| is_of_a_death(*topic));
        Message {
            run: standing.run,
            text: sentence(telling, standing),
            hint: hint(&agent, *topic, standing),
            agent: Some(agent),
            death,
            ..self.blank(id, topic.word(), *at)
        }
    }

    /// A message about many.
    pub(crate) fn digest(
        &self,
        id: String,
        now: Wall,
        tellings: &[(Telling, &Standing)],
    ) -> Message {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for (telling, _) in tellings {
            *counts.entry(telling.topic.word().to_owned()).or_default() += 1;
        }
        let line = |(telling, standing): &(Telling, &Standing)| Line {
            agent: telling.agent.written(),
            event: telling.topic.word().to_owned(),
            text: sentence(telling, standing),
        };
        let agents: Vec<Line> = tellings.iter().take(NAMED).map(line).collect();
        let total: Vec<String> =
            counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
        let names: Vec<&str> = agents.iter().map(|line| line.agent.as_str()).collect();
        let more = match tellings.len() - agents.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!("{}: {}{more}", total.join(", "), names.join(", "));
        let hint = Some("`defib status` shows all of them".to_owned());
        Message { text, hint, counts, agents, ..self.blank(id, DIGEST, now) }
    }

    /// A message that only shows that messages arrive.
    pub(crate) fn test(&self, id: String, now: Wall) -> Message {
        let text = format!("this is a test of channel {}; all is well", self.channel);
        Message { text, ..self.blank(id, TEST, now) }
    }
}

/// Whether what a run died of has to do with it.
const fn is_of_a_death(topic: Topic) -> bool {
    match topic {
        Topic::CrashedOut | Topic::Halted | Topic::Waiting | Topic::Escalated | Topic::Down => true,
        Topic::Revived | Topic::Recovered | Topic::BurnAlarm => false,
    }
}

fn sentence(telling: &Telling, standing: &Standing) -> String {
    let agent = telling.agent.written();
    let died = standing.death.as_ref().map(Death::shown);
    let because = died.map(|died| format!(": {died}")).unwrap_or_default();
    match telling.topic {
        Topic::CrashedOut => match &standing.limit {
            Some(limit) => format!("{agent} has crashed out after {limit}{because}"),
            None => format!("{agent} has crashed out{because}"),
        },
        Topic::Halted => format!("{agent} is halted and needs a fix{because}"),
        Topic::Waiting => match standing.waits_for.as_deref() {
            Some("prompt") => format!("{agent} stands at a prompt that only a person can answer"),
            Some(reason) => format!("{agent} waits: {reason}{because}"),
            None => format!("{agent} waits{because}"),
        },
        Topic::Escalated => format!("{agent} has failed, and so has its group{because}"),
        Topic::Down => match standing.delay {
            Some(delay) => format!("{agent} is down for {} more{because}", Shown(delay)),
            None => format!("{agent} is down, and is not started again{because}"),
        },
        Topic::BurnAlarm => match &standing.burned {
            Some(Burned { unit, per_minute, baseline, stopped, .. }) => {
                let stopped = if *stopped { "; it was stopped for that" } else { "" };
                format!(
                    "{agent} burns: {per_minute} {unit} in a minute, where {baseline} are \
                     usual{stopped}"
                )
            }
            None => format!("{agent} burns"),
        },
        Topic::Revived => format!("{agent} was revived"),
        Topic::Recovered => match standing.told {
            Some(told) => format!("{agent} is well again; it was {}", told.word()),
            None => format!("{agent} is well again"),
        },
    }
}

fn hint(agent: &Name, topic: Topic, standing: &Standing) -> Option<String> {
    let is_stopped = standing.burned.as_ref().is_some_and(|burned| burned.stopped);
    match topic {
        Topic::BurnAlarm => {
            let then = if is_stopped { "revive" } else { "stop" };
            let does = if is_stopped { "puts it back" } else { "ends it" };
            Some(format!(
                "`defib ledger {agent}` shows what it spent; `defib {then} {agent}` {does}"
            ))
        }
        Topic::CrashedOut | Topic::Halted => {
            Some(format!("`defib why {agent}` says why; `defib revive {agent}` puts it back"))
        }
        Topic::Waiting | Topic::Escalated | Topic::Down => {
            Some(format!("`defib why {agent}` says why"))
        }
        Topic::Revived | Topic::Recovered => None,
    }
}

impl Death {
    fn shown(&self) -> String {
        let mut text = self.class.clone();
        if let Some(signal) = &self.signal {
            text = format!("{text}, {signal}");
        } else if let Some(code) = self.exit_code {
            text = format!("{text}, exit code {code}");
        }
        match &self.evidence {
            Some(evidence) => format!("{text}, {evidence:?}"),
            None => text,
        }
    }
}

/// The beginning of what an agent wrote, without control sequences.
pub(crate) fn cut(text: &str) -> String {
    let text = &one_line(text);
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

impl Message {
    /// One line that says what it is about: a mail's subject, a desktop's headline.
    pub(crate) fn subject(&self) -> String {
        match &self.agent {
            Some(agent) => format!("defib: {agent} {}", self.event),
            None => format!("defib: {} of {}", self.event, self.project),
        }
    }

    /// Whether somebody should look.
    pub(crate) fn is_trouble(&self) -> bool {
        !["recovered", "revived", TEST].contains(&self.event.as_str())
    }

    /// All of it as plain text.
    pub(crate) fn plain(&self) -> String {
        let mut text = format!("{}\n", self.text);
        for line in &self.agents {
            text.push_str(&format!("- {}\n", line.text));
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("\n{hint}\n"));
        }
        text.push_str(&format!("\nproject {} on {}, {}\n", self.project, self.host, self.at));
        text
    }

    /// As an incoming webhook of Slack's takes it.
    pub(crate) fn slack(&self) -> Value {
        let section =
            |text: String| json!({ "type": "section", "text": { "type": "mrkdwn", "text": text } });
        let mark = if self.is_trouble() { ":rotating_light:" } else { ":white_check_mark:" };
        let text = escaped(&self.text);
        let mut blocks = vec![section(format!("{mark} {text}"))];
        if !self.agents.is_empty() {
            let lines = self.agents.iter().map(|line| format!("• {}", escaped(&cut(&line.text))));
            // A section holds 3,000 characters.
            let lines: String = lines.collect::<Vec<_>>().join("\n").chars().take(2_900).collect();
            blocks.push(section(lines));
        }
        if let Some(hint) = &self.hint {
            blocks.push(section(escaped(hint)));
        }
        let foot = format!("{} · {} · {}", escaped(&self.host), self.project, self.at);
        blocks.push(json!({ "type": "context", "elements": [{ "type": "mrkdwn", "text": foot }] }));
        json!({ "text": text, "blocks": blocks })
    }
}

/// The three characters that mean something to Slack.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
