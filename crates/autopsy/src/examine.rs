//! One examination: what the rules make of a message, of an error as a machine states it, and of the
//! last lines.

use defib_core::{Class, Wall};
use serde_json::Value;

use crate::kind::Kind;
use crate::lines::Line;
use crate::records::object;
use crate::reset::Clock;
use crate::rules::{Rule, Sense, Shelf};
use crate::views::Views;

/// How many of the last lines may say what a failed run died of. What stands further back was
/// survived.
const LAST_LINES: usize = 24;
/// How many lines of one message are read.
const MESSAGE_LINES: usize = 4;

/// What was found, and by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) class: Class,
    pub(crate) evidence: String,
    pub(crate) resets_at: Option<Wall>,
}

impl Found {
    pub(crate) fn new(class: Class, evidence: impl Into<String>) -> Found {
        Found { class, evidence: evidence.into(), resets_at: None }
    }
}

/// What the last lines say.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) found: Option<Found>,
    /// Whether it was a rule of the user's own that found it.
    pub(crate) by_user: bool,
    /// Whether the very last line is one of an agent that goes on.
    pub(crate) alive: bool,
}

/// A rule of the user's own, ready to be tried.
#[derive(Debug)]
pub(crate) struct UserPattern {
    pub(crate) kind: Option<Kind>,
    pub(crate) rule: Rule,
}

/// The rules for one kind and the clock of one death.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Examiner<'a> {
    pub(crate) kind: Kind,
    pub(crate) shelf: Shelf,
    pub(crate) user: &'a [UserPattern],
    pub(crate) clock: Clock<'a>,
    /// Whether the exit code was 0: then only what surely contradicts it counts.
    pub(crate) zero: bool,
}

/// What a message means, and whether a user's rule says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Meaning {
    sense: Sense,
    by_user: bool,
}

impl Examiner<'_> {
    /// What the rules make of a message of the agent's own.
    pub(crate) fn sense(&self, text: &str) -> Option<Sense> {
        self.meaning(text, true).map(|meaning| meaning.sense)
    }

    /// What a message means that is known to be about a failure.
    pub(crate) fn said(&self, text: &str) -> Option<Found> {
        let lines = text.lines().filter(|line| !line.trim().is_empty()).take(MESSAGE_LINES);
        lines.map(|line| crate::lines::plain(line.as_bytes())).find_map(|line| {
            match self.meaning(&line, true)?.sense {
                Sense::Class(Class::Done) | Sense::Alive => None,
                Sense::Class(class) => Some(self.found(class, &line, text)),
            }
        })
    }

    /// What a code word in a field stands for.
    pub(crate) fn word(&self, word: &str, field: &str) -> Option<Found> {
        let class = self.shelf.word(word)?;
        Some(Found::new(class, format!("{field}: {word}")))
    }

    /// What an HTTP status in a field stands for.
    pub(crate) fn status(&self, status: &Value, field: &str) -> Option<Found> {
        let number = match status {
            Value::Number(number) => u16::try_from(number.as_u64()?).ok()?,
            Value::String(text) => text.parse().ok()?,
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
        };
        let class = self.shelf.status(number)?;
        Some(Found::new(class, format!("{field}: {number}")))
    }

    /// What an error object means: its message first, then its type or name, then its status.
    pub(crate) fn fault(&self, record: &Value, field: &str) -> Option<Found> {
        let inner = ["error", "err", "exception"].iter().find_map(|key| record.get(key));
        let inner = inner.filter(|value| !value.is_null()).unwrap_or(record);
        let inner = inner.get("error").filter(|value| value.is_object()).unwrap_or(inner);
        let data = inner.get("data").unwrap_or(inner);
        let parts = [data, inner, record];
        let fields = |keys: &'static [&'static str]| {
            parts.into_iter().flat_map(move |part| keys.iter().filter_map(|key| part.get(key)))
        };
        let texts = || {
            let stated = fields(&["message", "msg", "detail", "details", "error"]);
            inner.as_str().into_iter().chain(stated.filter_map(Value::as_str))
        };
        let by_text = || texts().find_map(|text| self.said(text));
        let by_word = || {
            let words = fields(&["type", "code", "status", "name", "reason", "error"]);
            words.filter_map(Value::as_str).find_map(|word| self.word(word, field))
        };
        let by_status = || {
            let keys = &["statusCode", "status_code", "error_status", "status", "code"];
            fields(keys).find_map(|status| self.status(status, field))
        };
        // A quota by its code is one whatever the message dwells on.
        let found = match (by_text(), by_word()) {
            (Some(text), Some(word)) if word.class == Class::Quota => {
                Some(Found { class: Class::Quota, ..text })
            }
            (text, word) => text.or(word),
        };
        let mut found = found.or_else(by_status)?;
        if found.resets_at.is_none() && has_reset(found.class) {
            found.resets_at = parts.into_iter().find_map(|part| self.reset_field(part, 3));
        }
        Some(found)
    }

    /// The time that a field of a record states, at whatever depth.
    fn reset_field(&self, value: &Value, depth: u8) -> Option<Wall> {
        const KEYS: &[&str] = &[
            "resetsat",
            "resetat",
            "resettime",
            "quotaresettimestamp",
            "resetsinseconds",
            "retryafter",
            "retrydelay",
            "retryafterseconds",
        ];
        let inside = |value: &Value| self.reset_field(value, depth.checked_sub(1)?);
        match value {
            Value::Object(fields) => {
                let stated = fields.iter().find_map(|(key, value)| {
                    let key: String = key.chars().filter(char::is_ascii_alphanumeric).collect();
                    let known = KEYS.contains(&key.to_ascii_lowercase().as_str());
                    if known { self.clock.field(value) } else { None }
                });
                stated.or_else(|| fields.values().find_map(inside))
            }
            Value::Array(values) => values.iter().find_map(inside),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }

    /// What the last lines say, the last one first.
    pub(crate) fn lines(&self, lines: &[Line<'_>]) -> Said {
        let mut said = Said::default();
        let trusted = self.shelf.lines_after_zero();
        let window = if self.zero { trusted.max(1) } else { LAST_LINES };
        let from = lines.len().saturating_sub(window);
        for (at, line) in lines.iter().enumerate().skip(from).rev() {
            if line.text.starts_with('{') {
                if let Some(found) = self.logged(line.raw) {
                    said.found = Some(found);
                    return said;
                }
                continue;
            }
            let Some(meaning) = self.meaning(&line.text, false) else {
                continue;
            };
            match meaning.sense {
                Sense::Alive => said.alive |= at + 1 == lines.len(),
                // A line of success is one only where nothing else says otherwise.
                Sense::Class(Class::Done) if !self.zero => {}
                Sense::Class(class) => {
                    // A message may go on for a line or two, with the time in one of those.
                    let rest = lines[at..].iter().take(3).map(|line| line.text.as_str());
                    let whole = rest.collect::<Vec<_>>().join("\n");
                    said.found = Some(self.found(class, &line.text, &whole));
                    said.by_user = meaning.by_user;
                    return said;
                }
            }
        }
        said
    }

    /// What an error among the lines says that is written as JSON.
    fn logged(&self, raw: &[u8]) -> Option<Found> {
        if self.zero && self.shelf.lines_after_zero() == 0 {
            return None;
        }
        let record = object(raw)?;
        let is = |key: &str, words: &[&str]| {
            let value = record.get(key).and_then(Value::as_str);
            value.is_some_and(|value| words.iter().any(|word| value.eq_ignore_ascii_case(word)))
        };
        let levels = &["error", "fatal", "critical", "panic", "err"];
        // Pino counts its levels: 50 is an error.
        let numbered = record.get("level").and_then(Value::as_u64).is_some_and(|level| level >= 50);
        let failed = is("level", levels)
            || is("severity", levels)
            || is("levelname", levels)
            || is("type", &["error"])
            || numbered
            || (record.get("error").is_some_and(|error| !error.is_null())
                && record.get("level").is_none());
        if failed { self.fault(&record, "error") } else { None }
    }

    /// What one line means. `certain` says that it is known to be about a failure.
    fn meaning(&self, text: &str, certain: bool) -> Option<Meaning> {
        let views = Views::of(text, certain);
        let user = self.user.iter().filter(|rule| rule.kind.is_none_or(|kind| kind == self.kind));
        let user = user.map(|pattern| &pattern.rule);
        let plain = std::iter::once(&text);
        let mut by_user = user
            .filter(|rule| plain.clone().chain(&views.texts).any(|view| rule.regex.is_match(view)));
        if let Some(rule) = by_user.next() {
            return Some(Meaning { sense: rule.sense, by_user: true });
        }
        let trusting = certain || !self.zero || self.shelf.lines_after_zero() > 0;
        let by_rule = views.texts.iter().find_map(|view| {
            let mut rules = self.shelf.rules().filter(|rule| trusting || rule.after_zero);
            rules.find(|rule| rule.regex.is_match(view)).map(|rule| rule.sense)
        });
        let by_word = || views.words.iter().find_map(|word| self.shelf.word(word));
        let by_status = || self.shelf.status(views.status?);
        let known = || by_word().or_else(by_status).map(Sense::Class);
        let sense = by_rule.or_else(|| if trusting { known() } else { None })?;
        Some(Meaning { sense, by_user: false })
    }

    fn found(&self, class: Class, line: &str, whole: &str) -> Found {
        let resets_at = if has_reset(class) { self.clock.stated(whole) } else { None };
        Found { class, evidence: line.trim().to_owned(), resets_at }
    }
}

/// Whether a time in a message about this is the time when it goes away.
const fn has_reset(class: Class) -> bool {
    matches!(class, Class::Quota | Class::Throttle | Class::Budget | Class::Overload)
}
