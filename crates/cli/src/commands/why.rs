//! `defib why`: the post-mortem in plain words. The daemon puts it together, this shows it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use defib_core::span::Shown;
use defib_core::{Class, Signal, State};
use defib_daemon::wire::Why as Facts;
use defib_history::rfc3339;
use jiff::Timestamp;
use serde_json::Value;

use super::ledger::number;
use super::status::{ago, warn_of_troubles};
use super::{Context, segment};
use crate::failure::Failure;
use crate::output;

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
        let mut path = format!("/api/v1/agents/{}/why", segment(&self.name)?);
        if let Some(run) = self.run {
            path.push_str(&format!("?run={run}"));
        }
        if self.json {
            let why: Value = client.get(&path)?;
            warn_of_troubles(context);
            return output::json(&why);
        }
        let why = client.get(&path)?;
        warn_of_troubles(context);
        output::print(&post_mortem(&why, Timestamp::now()))
    }
}

/// The post-mortem as people read it.
pub(crate) fn post_mortem(why: &Facts, now: Timestamp) -> String {
    let (agent, name) = (&why.agent, &why.agent.name);
    let preposition = if agent.state == State::Backoff { "in " } else { "" };
    let mut text = match &agent.reason {
        Some(reason) => format!("{name} is {preposition}{} ({reason}).\n", agent.state),
        None => format!("{name} is {preposition}{}.\n", agent.state),
    };
    // A String takes whatever is written to it.
    if let Some(said) = &agent.status_text {
        let _ = writeln!(text, "It says: {said}");
    }
    match (why.run.as_ref().map(|run| (run, run.death.as_ref())), &agent.last_death) {
        (None, None) => text.push_str("None of its runs has ended yet.\n"),
        (None, Some(death)) => {
            let how = how(death.class, death.exit_code, death.signal);
            let (ran, at) = (Shown(whole(death.ran_s.0)), ago(&death.at, now));
            let _ = writeln!(text, "\nIts last run that ended {how} after {ran}, {at}.");
            let meaning = why.meaning.as_deref().unwrap_or_default();
            let _ = writeln!(text, "  class     {}: {meaning}", death.class);
            if let Some(evidence) = &death.evidence {
                let _ = writeln!(text, "  evidence  {evidence}");
            }
            text.push_str(
                "The history does not have this death, so no more can be told of it: it cannot be \
                 written at the moment, or was lost.\n",
            );
        }
        (Some((run, None)), _) => {
            let _ = writeln!(text, "The history knows of no end of run {}.", run.run);
        }
        (Some((run, Some(death))), _) => {
            let how = how(death.class, death.exit_code, death.signal);
            let (number, ran) = (run.run, Shown(whole(death.ran_s.0)));
            let at = ago(&rfc3339(death.at), now);
            let _ = writeln!(text, "\nRun {number} {how} after {ran}, {at}.");
            let meaning = why.meaning.as_deref().unwrap_or_default();
            let _ = writeln!(text, "  class     {}: {meaning}", death.class);
            if let Some(evidence) = &death.evidence {
                let _ = writeln!(text, "  evidence  {evidence}");
            } else if death.class == Class::Error {
                text.push_str("  evidence  none but how it ended: unclassified\n");
            }
            let verdict = run.verdict.and_then(|verdict| serde_json::to_value(verdict).ok());
            let verdict = verdict.as_ref().and_then(Value::as_str).unwrap_or("none");
            let _ = writeln!(text, "  verdict   {verdict}");
            for decision in &why.decided {
                let _ = writeln!(text, "  decided   {}", decision.text);
            }
            if let Some(used) = &why.used {
                let _ = writeln!(text, "  used      {used}");
            }
            if let Some(trace) = &death.trace {
                text.push_str("\nIts last stack trace:\n");
                for line in trace.lines() {
                    let _ = writeln!(text, "  | {line}");
                }
            } else if !why.last_words.is_empty() {
                text.push_str("\nIts last words:\n");
                for line in &why.last_words {
                    let _ = writeln!(text, "  | {line}");
                }
            }
        }
    }
    if let Some(denied) = &why.denied {
        text.push_str("\nIts sandbox may have refused it something:\n");
        let _ = writeln!(text, "  | {}\n{}", denied.line, denied.text);
    }
    text.push_str(&money(why));
    for unmetered in &agent.unmetered {
        let _ =
            writeln!(text, "\nIts budget in {} is not metered: {}", unmetered.unit, unmetered.fix);
    }
    let _ = writeln!(text, "\n{}", why.next.text);
    text
}

/// How a run ended.
fn how(class: Class, exit_code: Option<i32>, signal: Option<Signal>) -> String {
    match (exit_code, signal) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was ended by {signal}"),
        (None, None) if class == Class::Lost => "was lost".to_owned(),
        (None, None) => "did not come to life".to_owned(),
    }
}

/// Without the fraction of a millisecond that nobody wants to read.
fn whole(span: Duration) -> Duration {
    Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

/// What it has, and what it spent: in the run in question, and ever.
fn money(why: &Facts) -> String {
    let Some(money) = &why.money else { return String::new() };
    let list = |amounts: &BTreeMap<String, f64>| {
        let all = amounts.iter().map(|(unit, amount)| format!("{} {unit}", number(*amount)));
        all.collect::<Vec<_>>().join(", ")
    };
    let mut text = "\n".to_owned();
    if let Some(balance) = &money.balance {
        let _ = writeln!(text, "  balance   {}", list(balance));
    }
    if let Some(spent) = &money.spent {
        let in_run = match &why.run {
            Some(run) if !money.spent_in_run.is_empty() => {
                format!("; run {}: {}", run.run, list(&money.spent_in_run))
            }
            Some(_) | None => String::new(),
        };
        let estimated = match why.agent.estimated.as_slice() {
            [] => String::new(),
            units => format!(" ({} estimated)", units.join(", ")),
        };
        let _ = writeln!(text, "  spent     {}{in_run}{estimated}", list(spent));
    }
    text
}
