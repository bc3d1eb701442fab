//! What one channel has been told and is still to be told: every decision, and nothing else.
//!
//! An account is a fold of the events and the time. It knows no socket and no clock, and comes back
//! from disk as it went there, so that the next daemon goes on where the last one was: it has heard
//! everything up to `upto`, and its outbox holds what was decided and not yet delivered.
//!
//! Few messages, always: each topic of an agent at most once a cooldown, a few messages a minute, and
//! beyond that one digest, then another after twice the time. What cannot be said now is not queued:
//! who is still in a bad way when it can be said is in it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use defib_config::config::Event as Topic;
use defib_core::{Name, Wall};
use defib_history::Event;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::message::{Message, Sender};
use super::standing::{Standing, Telling};
use crate::notices::{BURN_ALARM, NOTIFIED};
use crate::post::Refused;

/// So many messages about single agents go out in one window.
const SINGLES: usize = 3;
/// The window, and the time between the first two digests.
const WINDOW: Duration = Duration::from_secs(60);
/// How long the first digest of a storm gathers.
const GATHERS: Duration = Duration::from_secs(10);
/// While so many wait to be delivered no other is made.
const MOST_WAITING: usize = 20;
/// The first delay before a message is tried again; it doubles.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// The longest of those delays.
const LONGEST_DELAY: Duration = Duration::from_secs(300);
/// The longest time that a receiver can ask us to stay away.
const LONGEST_ASKED: Duration = Duration::from_secs(3600);
/// A message that could not be delivered for so long is given up.
const GIVEN_UP: Duration = Duration::from_secs(24 * 3600);

/// What a channel wants to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) on: Vec<Topic>,
    pub(crate) cooldown: Duration,
    pub(crate) sender: Sender,
}

/// A message on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Letter {
    pub(crate) message: Message,
    /// When it was made.
    made_at: Wall,
    /// How often it was tried in vain.
    pub(crate) failures: u32,
    /// When it is tried.
    pub(crate) due: Wall,
}

/// What became of a message that was not delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is tried again in this time; so often it has failed.
    Again(Duration, u32),
    /// It is given up; so often it has failed.
    GivenUp(u32),
}

/// While there is more to tell than messages may go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Storm {
    /// When the next digest goes out.
    until: Wall,
    /// How long after that the one after it.
    then: Duration,
}

/// What one channel has been told and is still to be told.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Account {
    /// Every event up to this one has been heard.
    pub(crate) upto: u64,
    /// How many messages were made.
    made: u64,
    standings: BTreeMap<Name, Standing>,
    /// When messages about single agents were made, in the last window.
    lately: Vec<Wall>,
    storm: Option<Storm>,
    outbox: VecDeque<Letter>,
    /// What went wrong with the last attempt, if that failed.
    #[serde(default)]
    setback: Option<Setback>,
}

/// An attempt that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setback {
    pub(crate) at: Wall,
    pub(crate) why: String,
    /// How often this message was tried in vain.
    pub(crate) attempts: u32,
    /// Whether it is not tried again.
    pub(crate) given_up: bool,
}

impl Account {
    /// One that has heard everything up to an event, and was told nothing.
    pub(crate) fn beginning(upto: u64) -> Account {
        Account { upto, ..Account::default() }
    }

    /// Takes in an event. One that was heard before changes nothing.
    pub(crate) fn hear(&mut self, event: &Event, project: &Name) {
        if event.seq <= self.upto {
            return;
        }
        self.upto = event.seq;
        let Some(agent) = event.agent.as_ref().filter(|_| event.project.as_ref() == Some(project))
        else {
            return;
        };
        if let Some(standing) = self.standings.get_mut(agent) {
            standing.hear(event);
            return;
        }
        // Of most agents there is never anything to tell: only trouble makes a standing.
        let mut standing = match event.kind.as_str() {
            "run-died" | NOTIFIED | "revived" | "rested" => Standing::new(event.at),
            BURN_ALARM => Standing::well(event.at),
            _ => return,
        };
        standing.hear(event);
        self.standings.insert(agent.clone(), standing);
    }

    /// Makes the messages that are to be made now. Says whether there is one: it has to be on disk
    /// before it goes out.
    pub(crate) fn announce(&mut self, terms: &Terms, now: Wall) -> bool {
        let Terms { on, cooldown, .. } = terms;
        for standing in self.standings.values_mut() {
            standing.settle(now);
        }
        self.standings.retain(|_, standing| !standing.is_plain(on, *cooldown, now));
        let before = self.made;
        let due = |(agent, standing): (&Name, &Standing)| {
            let may = |topic: &Topic| standing.may_be_told(*topic, *cooldown, now) <= now;
            standing.owed(on).find(may).map(|topic| standing.telling(agent, topic))
        };
        let mut due: Vec<Telling> = self.standings.iter().filter_map(due).collect();
        due.sort_by_key(|telling| telling.at);
        if self.outbox.len() >= MOST_WAITING {
            return false;
        }
        match self.storm.filter(|storm| storm.until.since(now) <= WINDOW.max(*cooldown)) {
            Some(storm) if now < storm.until => {}
            Some(_) if due.is_empty() => self.storm = None,
            Some(Storm { then, .. }) => {
                self.tell(terms, &due, now);
                let longest = WINDOW.max(*cooldown);
                self.storm = Some(Storm { until: now + then, then: (then * 2).min(longest) });
            }
            None => {
                self.lately.retain(|at| *at <= now && now.since(*at) < WINDOW);
                let room = SINGLES.saturating_sub(self.lately.len()).min(due.len());
                for telling in &due[..room] {
                    self.tell(terms, std::slice::from_ref(telling), now);
                    self.lately.push(now);
                }
                let is_storm = due.len() > room;
                self.storm = is_storm.then(|| Storm { until: now + GATHERS, then: WINDOW });
            }
        }
        self.made > before
    }

    /// Makes one message of what is to be told.
    fn tell(&mut self, terms: &Terms, tellings: &[Telling], now: Wall) {
        let Terms { sender, .. } = terms;
        self.made += 1;
        let id = message_id(sender, self.made, now);
        let with = |telling: &Telling| {
            let standing = self.standings.get(&telling.agent)?;
            Some((telling.clone(), standing))
        };
        let message = match tellings {
            [one] => match self.standings.get(&one.agent) {
                Some(standing) => sender.single(id, one, standing),
                None => return,
            },
            many => {
                let many: Vec<(Telling, &Standing)> = many.iter().filter_map(with).collect();
                sender.digest(id, now, &many)
            }
        };
        for telling in tellings {
            if let Some(standing) = self.standings.get_mut(&telling.agent) {
                standing.say(telling.topic, now);
            }
        }
        self.outbox.push_back(Letter { message, made_at: now, failures: 0, due: now });
    }

    /// The message that is next to be delivered. They go one after the other.
    pub(crate) fn next_letter(&self) -> Option<&Letter> {
        self.outbox.front()
    }

    /// What went wrong with the last attempt, if that failed.
    pub(crate) fn setback(&self) -> Option<&Setback> {
        self.setback.as_ref()
    }

    /// How many messages wait to be delivered.
    pub(crate) fn count_waiting(&self) -> usize {
        self.outbox.len()
    }

    /// A message has arrived.
    pub(crate) fn delivered(&mut self, id: &str) {
        self.outbox.retain(|letter| letter.message.id != id);
        self.setback = None;
    }

    /// A message has not arrived, and its receiver may have said when to come back.
    pub(crate) fn failed(&mut self, id: &str, refused: &Refused, now: Wall) -> Option<Fate> {
        let at = self.outbox.iter().position(|letter| letter.message.id == id)?;
        let letter = self.outbox.get_mut(at)?;
        letter.failures = letter.failures.saturating_add(1);
        let failures = letter.failures;
        let given_up = now.since(letter.made_at) >= GIVEN_UP;
        let why = refused.why.clone();
        self.setback = Some(Setback { at: now, why, attempts: failures, given_up });
        if given_up {
            self.outbox.remove(at);
            return Some(Fate::GivenUp(failures));
        }
        let asked = refused.after.unwrap_or_default().min(LONGEST_ASKED);
        let delay = delay_after(id, failures).max(asked);
        letter.due = now + delay;
        Some(Fate::Again(delay, failures))
    }

    /// Something about the channel has changed: what failed is tried again at once.
    pub(crate) fn try_now(&mut self, now: Wall) {
        for letter in &mut self.outbox {
            letter.due = now;
        }
    }

    /// When time alone makes something to do, beside delivering.
    pub(crate) fn next_deadline(&self, terms: &Terms, now: Wall) -> Option<Wall> {
        if self.outbox.len() >= MOST_WAITING {
            return None;
        }
        let Terms { on, cooldown, .. } = terms;
        let storm = self.storm.map(|storm| storm.until);
        let of = |standing: &Standing| {
            let may = standing.owed(on).map(|topic| standing.may_be_told(topic, *cooldown, now));
            // In a storm the digest's time is what counts, not each agent's.
            let may = may.filter(|may| storm.is_none() || *may > now);
            may.chain(standing.next_change()).min()
        };
        self.standings.values().filter_map(of).chain(storm).min()
    }

    /// How agents stand; for tests.
    #[cfg(test)]
    pub(crate) fn standing(&self, agent: &Name) -> Option<&Standing> {
        self.standings.get(agent)
    }

    /// What waits to be delivered; for tests.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Message> {
        self.outbox.iter().map(|letter| &letter.message)
    }
}

/// The delay after so many failures: a second, doubled up to five minutes, a tenth either way.
fn delay_after(id: &str, failures: u32) -> Duration {
    let doubled = FIRST_DELAY.saturating_mul(1 << failures.saturating_sub(1).min(10));
    let whole = doubled.min(LONGEST_DELAY);
    // What a message is called is as good as chance, and the same in every test.
    let digest = Sha256::digest(format!("{id}/{failures}"));
    let permille = 900 + u32::from(digest[0]) * 200 / 255;
    whole * permille / 1000
}

/// A name that no other message has, on any machine.
fn message_id(sender: &Sender, number: u64, now: Wall) -> String {
    let Sender { channel, project, host } = sender;
    let text = format!("{host}\n{project}\n{channel}\n{number}\n{}", now.as_millis());
    let digest = Sha256::digest(text);
    digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}
