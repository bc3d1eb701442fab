//! Putting a post-mortem together: from what is known of an agent, its run and what was decided.
//!
//! Nothing is decided here. Everybody who tells people why an agent is as it is tells this.

use std::collections::BTreeMap;
use std::time::Duration;

use defib_core::span::Shown;
use defib_core::{Class, State, Wall};
use defib_history::{Event, Run, Usage};
use serde_json::Value;

use crate::denied::refused;
use crate::old_keeper::{HELD, REPLACE_KEEPER};
use crate::wire::{AgentStatus, Decision, LedgerLine, Money, Next, Why};
use crate::words::{meaning, remedy};

/// How many of a run's last lines are told.
const LAST_LINES: usize = 5;
/// No line of an agent's is told further than this.
const WIDEST: usize = 200;

/// What a post-mortem is put together from.
pub(crate) struct Facts {
    pub(crate) agent: AgentStatus,
    pub(crate) run: Option<Run>,
    /// Every event of the run but its start.
    pub(crate) events: Vec<Event>,
    /// The end of what the run wrote.
    pub(crate) tail: Vec<u8>,
    pub(crate) lines: Vec<LedgerLine>,
    pub(crate) now: Wall,
}

impl Facts {
    /// The post-mortem.
    pub(crate) fn told(self) -> Why {
        let Facts { agent, run, events, tail, lines, now } = self;
        let death = run.as_ref().and_then(|run| run.death.as_ref());
        let unwritten = agent.last_death.as_ref().filter(|_| run.is_none());
        let class = death.map(|death| death.class).or(unwritten.map(|death| death.class));
        let meaning = class.map(|class| meaning(class).to_owned());
        let used = death.and_then(|death| used(&death.used));
        let decided = events.iter().filter_map(decision).collect();
        let next = Next { at: agent.next_at.clone(), text: next(&agent, now) };
        let remedy = match agent.state {
            State::Halted => agent.reason.as_deref().and_then(Class::from_word).map(remedy),
            State::CrashedOut => Some("Look at `defib logs NAME` and put it right."),
            State::Idle
            | State::Starting
            | State::Running
            | State::Backoff
            | State::Waiting
            | State::Stopping
            | State::Stopped
            | State::Done => None,
        };
        let remedy = remedy.map(|remedy| remedy.replace("NAME", agent.name.as_str()));
        let money = money(&agent, run.as_ref(), &lines);
        let last_words = last_words(&tail);
        let denied = death.and_then(|death| refused(&agent, death.class, &tail));
        Why { agent, run, meaning, decided, used, last_words, denied, money, next, remedy, events }
    }
}

/// The last lines that a run wrote, without what would move the cursor or set colours.
fn last_words(tail: &[u8]) -> Vec<String> {
    let whole = tail.strip_suffix(b"\n").unwrap_or(tail);
    let lines = whole.rsplit(|byte| *byte == b'\n').map(defib_autopsy::plain);
    let mut last: Vec<String> =
        lines.take(LAST_LINES).map(|line| line.chars().take(WIDEST).collect()).collect();
    last.reverse();
    if last.iter().all(String::is_empty) { Vec::new() } else { last }
}

fn money(agent: &AgentStatus, run: Option<&Run>, lines: &[LedgerLine]) -> Option<Money> {
    if agent.balance.is_none() && agent.spent.is_none() {
        return None;
    }
    let mut spent_in_run: BTreeMap<String, f64> = BTreeMap::new();
    let of_run = run.map(|run| run.run);
    for line in lines.iter().filter(|line| line.run.is_some() && line.run == of_run) {
        *spent_in_run.entry(line.unit.clone()).or_default() -= line.amount;
    }
    Some(Money { balance: agent.balance.clone(), spent: agent.spent.clone(), spent_in_run })
}

/// What a run used, as far as that is known.
fn used(used: &Usage) -> Option<String> {
    let cpu = used.cpu_ms().map(|ms| format!("{} of CPU time", Shown(Duration::from_millis(ms))));
    let memory = used.memory_peak_bytes;
    let memory = memory.map(|peak| format!("{} of memory at the most", bytes(peak)));
    let all: Vec<String> = cpu.into_iter().chain(memory).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// An amount of memory in its largest unit, to a tenth.
fn bytes(amount: u64) -> String {
    const UNITS: [(&str, u64); 2] = [("GiB", 1 << 30), ("MiB", 1 << 20)];
    let found = UNITS.into_iter().find(|(_, unit)| amount >= *unit);
    let (word, unit) = found.unwrap_or(("KiB", 1 << 10));
    let (whole, tenth) = (amount / unit, amount % unit * 10 / unit);
    if tenth == 0 { format!("{whole} {word}") } else { format!("{whole}.{tenth} {word}") }
}

/// A decision with its numbers.
fn decision(event: &Event) -> Option<Decision> {
    let text = decided(&event.kind, &event.body.entries())?;
    Some(Decision { seq: event.seq, r#type: event.kind.clone(), text })
}

fn decided(kind: &str, body: &serde_json::Map<String, Value>) -> Option<String> {
    let number = |key: &str| body.get(key).and_then(Value::as_u64);
    let word = |key: &str| body.get(key).and_then(Value::as_str);
    let shown = |key: &str| body.get(key).map(Value::to_string).unwrap_or_default();
    let seconds = |key: &str| {
        let span = Duration::try_from_secs_f64(body.get(key)?.as_f64()?).ok()?;
        Some(Shown(span))
    };
    let limit = || {
        let (what, count) = match number("deaths") {
            Some(count) => ("deaths", count),
            None => ("restarts", number("restarts")?),
        };
        let within = seconds("within_s").map(|span| format!(" within {span}"));
        let within = within.unwrap_or_default();
        Some(format!("{count} of {} {what}{within}", shown("max")))
    };
    Some(match kind {
        "restart-scheduled" => {
            let numbers = limit().map(|numbers| format!(" ({numbers})")).unwrap_or_default();
            format!("restart in {}{numbers}", Shown(Duration::from_millis(number("delay_ms")?)))
        }
        "limit-tripped" => format!("a limit tripped: {}", limit()?),
        "crashed-out" => "no more automatic restarts".to_owned(),
        "halted" => format!("halt: {} has to be put right", word("reason")?),
        "wait-started" => match number("wait_ms") {
            Some(ms) => {
                let span = Shown(Duration::from_secs(ms.div_ceil(1000)));
                format!("wait {span} for {}", word("reason")?)
            }
            None => format!("wait for {}", word("reason")?),
        },
        "escalated" => "the failure is passed up".to_owned(),
        "leftovers-ended" => match number("processes")? {
            1 => "a process that it left running was ended".to_owned(),
            count => format!("{count} processes that it left running were ended"),
        },
        "heartbeat-missed" => format!("no heartbeat for {}", seconds("silent_s")?),
        "group-restarted" => {
            let (group, strategy) = (word("group")?, word("strategy")?);
            match number("members")? {
                1 => format!("group {group} restarts this one alone ({strategy})"),
                count => format!("group {group} restarts {count} members ({strategy})"),
            }
        }
        _ => return None,
    })
}

/// How far off a moment is, without what nobody reads: milliseconds of minutes.
fn until(stamp: &str, now: Wall) -> String {
    let Ok(at) = stamp.parse::<jiff::Timestamp>() else { return stamp.to_owned() };
    let span = Wall::from_millis(at.as_millisecond()).since(now);
    let coarse = if span.as_secs() < 10 {
        Duration::from_millis(u64::try_from(span.as_millis() / 100 * 100).unwrap_or(0))
    } else {
        Duration::from_secs(span.as_secs())
    };
    format!("in {}", Shown(coarse))
}

/// What happens next, and what a person can do.
fn next(agent: &AgentStatus, now: Wall) -> String {
    let name = &agent.name;
    let when = agent.next_at.as_deref().map(|at| until(at, now)).unwrap_or_default();
    match agent.state {
        State::Running | State::Starting if agent.reason.as_deref() == Some(HELD) => format!(
            "It runs, but its exec probe does not: the keeper is too old to run the probe as this \
             agent. The keeper must be restarted; {REPLACE_KEEPER}."
        ),
        State::Running | State::Starting => {
            format!("It runs. `defib logs -f {name}` shows what it writes.")
        }
        State::Backoff => format!("It starts again {when}; `defib start {name}` starts it now."),
        State::Waiting if agent.reason.as_deref() == Some("budget") => format!(
            "It has spent what it may on a day and goes on {when}. To let it spend more today, raise \
             per_day in its file and run `defib reload`."
        ),
        State::Waiting => waiting(agent, &when),
        State::Stopping => "It is ending.".to_owned(),
        State::Stopped | State::Idle | State::Done => format!("`defib start {name}` starts it."),
        State::Halted if agent.reason.as_deref() == Some("broke") => {
            let balances = agent.balance.iter().flatten();
            let empty = balances.into_iter().find(|(_, left)| **left <= 0.0);
            let unit = empty.map_or("UNIT", |(unit, _)| unit.as_str());
            format!(
                "It has nothing left. `defib fund {name} 10 {unit}` gives it something, and above \
                 zero it starts by itself."
            )
        }
        State::Halted if agent.reason.as_deref() == Some("budget") => format!(
            "Look at `defib logs {name}` for what it spent that on; `defib revive {name}` starts it \
             again, with a new allowance for the run."
        ),
        State::Halted => {
            let class = agent.reason.as_deref().and_then(Class::from_word);
            format!("{} Then `defib revive {name}`.", class.map_or("Put it right.", remedy))
                .replace("NAME", name.as_str())
        }
        State::CrashedOut => {
            let class = agent.last_death.as_ref().map(|death| death.class);
            let remedy = remedy(class.unwrap_or(Class::Error)).replace("NAME", name.as_str());
            format!(
                "It died too often to be restarted by itself. {remedy} Then `defib revive {name}`."
            )
        }
    }
}

/// What an agent waits for, and what a person can do about it.
fn waiting(agent: &AgentStatus, when: &str) -> String {
    let name = &agent.name;
    let when = if when.is_empty() { "when that has come" } else { when };
    match agent.reason.as_deref() {
        Some("prompt") => {
            let question = agent.question.as_deref().unwrap_or("something");
            format!(
                "It asks: {question}\n`defib attach {name}` to answer; it is not restarted meanwhile."
            )
        }
        Some("quota") => format!(
            "Its usage limit is reset {when}. It costs nothing until then and is started by itself, \
             with no restart spent; `defib start {name}` tries it now."
        ),
        Some("account") => format!(
            "Another agent on its account is tried first; it follows {when}. `defib start {name}` \
             starts it now."
        ),
        Some("disk") => format!(
            "It is started as soon as there is space on the disk; free some. `defib start {name}` \
             tries it now."
        ),
        Some("budget") => format!(
            "It has spent what it may for now, and goes on {when}. `defib start {name}` starts it now."
        ),
        Some("dependency") => {
            "It starts when those are ready that it names in `after`, or its turn has come."
                .to_owned()
        }
        Some(_) | None => format!("It goes on {when}; `defib start {name}` starts it now."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_run_used_is_told_as_far_as_it_is_known() {
        let known = Usage {
            cpu_user_ms: Some(1_000),
            cpu_system_ms: Some(250),
            memory_peak_bytes: Some((64 << 20) + (1 << 18)),
        };
        let told = used(&known);
        assert_eq!(told.as_deref(), Some("1.25s of CPU time, 64.2 MiB of memory at the most"));
        let told = used(&Usage { memory_peak_bytes: None, ..known });
        assert_eq!(told.as_deref(), Some("1.25s of CPU time"));
        let told = used(&Usage { cpu_system_ms: None, ..known });
        assert_eq!(told.as_deref(), Some("64.2 MiB of memory at the most"));
        assert_eq!(used(&Usage::default()), None);
        assert_eq!([512, 1 << 20, 3 << 29].map(bytes), ["0.5 KiB", "1 MiB", "1.5 GiB"]);
    }

    #[test]
    fn a_decision_is_told_with_its_numbers_and_what_is_none_is_not() {
        let told = |kind: &str, body: Value| {
            let Value::Object(body) = body else { unreachable!("it is an object") };
            decided(kind, &body)
        };
        let gauge = json!({ "delay_ms": 300_000, "deaths": 4, "max": 5, "within_s": 90.0 });
        let text = told("restart-scheduled", gauge.clone());
        assert_eq!(text.as_deref(), Some("restart in 5m (4 of 5 deaths within 1m30s)"));
        let text = told("limit-tripped", gauge);
        assert_eq!(text.as_deref(), Some("a limit tripped: 4 of 5 deaths within 1m30s"));
        let text = told("restart-scheduled", json!({ "delay_ms": 800, "restarts": 1, "max": 9 }));
        assert_eq!(text.as_deref(), Some("restart in 800ms (1 of 9 restarts)"));
        let text = told("heartbeat-missed", json!({ "silent_s": 120.5 }));
        assert_eq!(text.as_deref(), Some("no heartbeat for 2m"));
        let group = json!({ "group": "g", "strategy": "one-for-all", "members": 3 });
        let text = told("group-restarted", group);
        assert_eq!(text.as_deref(), Some("group g restarts 3 members (one-for-all)"));
        assert_eq!(told("run-died", json!({ "class": "error" })), None);
        assert_eq!(told("halted", json!({})), None);
    }
}
