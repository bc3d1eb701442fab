//! `defib why`: the post-mortem in plain words.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use defib_core::span::Shown;
use defib_core::{Class, State};
use defib_daemon::wire::{AgentStatus, LedgerLine};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::ledger::number;
use super::status::{ago, until};
use super::{Context, segment};
use crate::client::Client;
use crate::failure::{Code, Failure};
use crate::output;
use crate::words::{meaning, remedy};

/// How many of a run's last lines are shown.
const LAST_LINES: usize = 5;
/// No line of an agent's is shown further than this.
const WIDEST: usize = 200;

/// Say why an agent is as it is: what happened, what was decided and by which numbers, what to do
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  defib why reviewer\n  defib why reviewer --run 3")]
pub(crate) struct Why {
    /// The agent
    #[arg(value_name = "NAME")]
    name: String,
    /// About this run, not the last one that ended
    #[arg(long, value_name = "N")]
    run: Option<u64>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Why {
    /// About the last run of an agent that ended.
    pub(crate) fn about(name: &str) -> Why {
        Why { name: name.to_owned(), run: None, json: false }
    }

    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        let name = segment(&self.name)?;
        let statuses: Vec<AgentStatus> = client.get(&format!("/api/v1/agents/{name}"))?;
        let Some(status) = statuses.into_iter().next() else {
            return Err(super::status::need_name());
        };
        let runs: Vec<Value> = client.get(&format!("/api/v1/history?agent={name}&limit=1000"))?;
        let wanted = |run: &&Value| match self.run {
            Some(number) => run["run"].as_u64() == Some(number),
            None => !run["death"].is_null(),
        };
        let run = runs.iter().find(wanted);
        if let (Some(number), None) = (self.run, run) {
            return Err(Failure::new(
                Code::NoAgent,
                format!("{} has no run {number}", status.name),
            )
            .hint(format!("`defib history {}` lists its runs", status.name)));
        }
        let events: Vec<Value> = client.get("/api/v1/events?last=5000")?;
        let number = run.and_then(|run| run["run"].as_u64());
        let decided: Vec<&Value> = events
            .iter()
            .filter(|event| {
                event["agent"] == status.name.as_str() && event["run"].as_u64() == number
            })
            .filter(|event| event["type"] != "run-started" && event["type"] != "run-ready")
            .collect();
        let lines: Vec<LedgerLine> = if status.balance.is_some() || status.spent.is_some() {
            client.get(&format!("/api/v1/agents/{name}/ledger"))?
        } else {
            Vec::new()
        };
        if self.json {
            return output::json(&json!({ "agent": status, "run": run, "events": decided }));
        }
        let words = number.map(|number| last_words(&client, &name, number)).unwrap_or_default();
        output::print(&post_mortem(&status, run, &decided, &words, &lines, Timestamp::now()))
    }
}

fn post_mortem(
    status: &AgentStatus,
    run: Option<&Value>,
    events: &[&Value],
    last_words: &str,
    lines: &[LedgerLine],
    now: Timestamp,
) -> String {
    let name = &status.name;
    let mut text = match &status.reason {
        Some(reason) => format!("{name} is {} ({reason}).\n", status.state),
        None => format!("{name} is {}.\n", status.state),
    };
    // A String takes whatever is written to it.
    if let Some(said) = &status.status_text {
        let _ = writeln!(text, "It says: {said}");
    }
    match run.filter(|run| !run["death"].is_null()) {
        None => text.push_str("None of its runs has ended yet.\n"),
        Some(run) => {
            let death = &run["death"];
            let how = match (death["exit_code"].as_i64(), death["signal"].as_str()) {
                (Some(code), _) => format!("exited with code {code}"),
                (None, Some(signal)) => format!("was ended by {signal}"),
                (None, None) => "did not come to life".to_owned(),
            };
            let at = death["at"].as_str().map(|at| ago(at, now)).unwrap_or_default();
            let (number, class) = (&run["run"], death["class"].as_str().unwrap_or_default());
            let _ = writeln!(text, "\nRun {number} {how} after {} s, {at}.", run["ran_s"]);
            let meaning = Class::from_word(class).map(meaning).unwrap_or_default();
            let _ = writeln!(text, "  class     {class}: {meaning}");
            if let Some(evidence) = death["evidence"].as_str() {
                let _ = writeln!(text, "  evidence  {evidence}");
            }
            let _ = writeln!(text, "  verdict   {}", run["verdict"].as_str().unwrap_or("none"));
            for event in events {
                if let Some(line) = decision(event) {
                    let _ = writeln!(text, "  decided   {line}");
                }
            }
            if let Some(trace) = death["trace"].as_str() {
                text.push_str("\nIts last stack trace:\n");
                for line in trace.lines() {
                    let _ = writeln!(text, "  | {line}");
                }
            } else if !last_words.is_empty() {
                text.push_str("\nIts last words:\n");
                for line in last_words.lines() {
                    let _ = writeln!(text, "  | {line}");
                }
            }
        }
    }
    text.push_str(&money(status, run, lines));
    let _ = writeln!(text, "\n{}", next(status, now));
    text
}

/// The last lines that a run wrote, without what would move the cursor or set colours.
fn last_words(client: &Client, name: &str, run: u64) -> String {
    let mut words = Vec::new();
    let path = format!("/api/v1/agents/{name}/runs/{run}/tail");
    // What cannot be had is no reason to say nothing else.
    let _ = client.stream(&path, |bytes| {
        words.extend_from_slice(bytes);
        Ok(true)
    });
    let text = String::from_utf8_lossy(&words);
    let plain = anstream::adapter::strip_str(&text).to_string();
    let is_shown = |c: &char| *c == '\n' || *c == '\t' || !c.is_control();
    let skipped = plain.lines().count().saturating_sub(LAST_LINES);
    let lines = plain.lines().skip(skipped);
    let lines = lines.map(|line| line.chars().take(WIDEST).collect::<String>());
    lines.map(|line| line.chars().filter(is_shown).collect::<String>() + "\n").collect()
}

/// What it has, and what it spent: in the run in question, and ever.
fn money(status: &AgentStatus, run: Option<&Value>, lines: &[LedgerLine]) -> String {
    let list = |amounts: &BTreeMap<String, f64>| {
        let all = amounts.iter().map(|(unit, amount)| format!("{} {unit}", number(*amount)));
        all.collect::<Vec<_>>().join(", ")
    };
    let mut text = String::new();
    if let Some(balance) = &status.balance {
        let _ = writeln!(text, "  balance   {}", list(balance));
    }
    if let Some(spent) = &status.spent {
        let of_run = run.and_then(|run| run["run"].as_u64());
        let mut in_run: BTreeMap<String, f64> = BTreeMap::new();
        for line in lines.iter().filter(|line| line.run.map(|run| run.0) == of_run) {
            if line.run.is_some() {
                *in_run.entry(line.unit.clone()).or_default() -= line.amount;
            }
        }
        let in_run = match of_run {
            Some(run) if !in_run.is_empty() => format!("; run {run}: {}", list(&in_run)),
            Some(_) | None => String::new(),
        };
        let _ = writeln!(text, "  spent     {}{in_run}", list(spent));
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

/// A decision with its numbers.
fn decision(event: &Value) -> Option<String> {
    let limit = || {
        let (what, count) = match event["deaths"].as_u64() {
            Some(count) => ("deaths", count),
            None => ("restarts", event["restarts"].as_u64()?),
        };
        let within =
            event["within_s"].as_f64().map(|s| format!(" within {s} s")).unwrap_or_default();
        Some(format!("{count} of {} {what}{within}", event["max"]))
    };
    Some(match event["type"].as_str()? {
        "restart-scheduled" => {
            let numbers = limit().map(|numbers| format!(" ({numbers})")).unwrap_or_default();
            format!("restart in {} ms{numbers}", event["delay_ms"])
        }
        "limit-tripped" => format!("a limit tripped: {}", limit()?),
        "crashed-out" => "no more automatic restarts".to_owned(),
        "halted" => format!("halt: {} has to be put right", event["reason"].as_str()?),
        "wait-started" => match event["wait_ms"].as_u64() {
            Some(ms) => {
                let span = Shown(Duration::from_secs(ms.div_ceil(1000)));
                format!("wait {span} for {}", event["reason"].as_str()?)
            }
            None => format!("wait for {}", event["reason"].as_str()?),
        },
        "escalated" => "the failure is passed up".to_owned(),
        "leftovers-ended" => {
            format!("{} processes that it left running were ended", event["processes"])
        }
        "heartbeat-missed" => format!("no heartbeat for {} s", event["silent_s"]),
        _ => return None,
    })
}

/// What happens next, and what a person can do.
fn next(status: &AgentStatus, now: Timestamp) -> String {
    let name = &status.name;
    let when = status.next_at.as_deref().map(|at| until(at, now)).unwrap_or_default();
    match status.state {
        State::Running | State::Starting => {
            format!("It runs. `defib logs -f {name}` shows what it writes.")
        }
        State::Backoff => format!("It starts again {when}; `defib start {name}` starts it now."),
        State::Waiting if status.reason.as_deref() == Some("budget") => format!(
            "It has spent what it may on a day and goes on {when}. To let it spend more today, raise \
             per_day in its file and run `defib reload`."
        ),
        State::Waiting => waiting(status, &when),
        State::Stopping => "It is ending.".to_owned(),
        State::Stopped | State::Idle | State::Done => format!("`defib start {name}` starts it."),
        State::Halted if status.reason.as_deref() == Some("broke") => {
            let balances = status.balance.iter().flatten();
            let empty = balances.into_iter().find(|(_, left)| **left <= 0.0);
            let unit = empty.map_or("UNIT", |(unit, _)| unit.as_str());
            format!(
                "It has nothing left. `defib fund {name} 10 {unit}` gives it something, and above \
                 zero it starts by itself."
            )
        }
        State::Halted if status.reason.as_deref() == Some("budget") => format!(
            "Look at `defib logs {name}` for what it spent that on; `defib revive {name}` starts it \
             again, with a new allowance for the run."
        ),
        State::Halted => {
            let class = status.reason.as_deref().and_then(Class::from_word);
            format!("{} Then `defib revive {name}`.", class.map_or("Put it right.", remedy))
                .replace("NAME", name.as_str())
        }
        State::CrashedOut => format!(
            "It died too often to be restarted by itself. Look at `defib logs {name}`, put it right, \
             then `defib revive {name}`."
        ),
    }
}

/// What an agent waits for, and what a person can do about it.
fn waiting(status: &AgentStatus, when: &str) -> String {
    let name = &status.name;
    let when = if when.is_empty() { "when that has come" } else { when };
    match status.reason.as_deref() {
        Some("prompt") => {
            let question = status.question.as_deref().unwrap_or("something");
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
