//! `defib history`.

use std::collections::BTreeSet;
use std::time::Duration;

use defib_core::span::Shown;
use defib_core::{Name, span};
use defib_history::Run;
use jiff::Timestamp;
use serde_json::Value;

use super::status::{ago, warn_of_troubles};
use super::{Context, segment};
use crate::client::Client;
use crate::failure::{Code, Failure};
use crate::output;
use crate::table::{Cell, table};

/// Print runs and how they ended, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  defib history
  defib history reviewer --since 7d
  defib history --json | jq '.[0].death.trace'")]
pub(crate) struct History {
    /// The agent; none means all
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Only runs that live, or ended within this time
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = span::parse)]
    since: Duration,
    /// At most so many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 200)]
    limit: usize,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl History {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        let now = Timestamp::now();
        let since = i64::try_from(self.since.as_millis()).unwrap_or(i64::MAX);
        let since_ms = now.as_millisecond().saturating_sub(since).max(0);
        let mut path = format!("/api/v1/history?since_ms={since_ms}&limit={}", self.limit);
        if let Some(name) = &self.name {
            // An agent that never was is an error, not an empty history.
            let found = client.get::<Vec<Value>>(&format!("/api/v1/agents/{}", segment(name)?));
            if let Err(failure) = found {
                gone(&client, name, failure)?;
            }
            path.push_str(&format!("&agent={}", segment(name)?));
        }
        let runs: Vec<Value> = client.get(&path)?;
        warn_of_troubles(context);
        if self.json {
            return output::json(&runs);
        }
        if runs.is_empty() {
            return output::print("no runs yet\n");
        }
        output::print(&table(
            &["AGENT", "RUN", "STARTED", "RAN", "DEATH", "VERDICT", "EVIDENCE"],
            &rows(&runs, now),
        ))
    }
}

/// What an agent goes by that is not there any more, of which runs are kept; else, that it is not there.
pub(crate) fn gone(client: &Client, name: &str, failure: Failure) -> Result<Name, Failure> {
    if !failure.is(Code::NoAgent) {
        return Err(failure);
    }
    // A name that can be none is refused by another failure, which says less.
    let path = format!("/api/v1/history?limit=1&agent={}", segment(name)?);
    let runs: Vec<Run> = client.get(&path).unwrap_or_default();
    runs.into_iter().next().map(|run| run.agent).ok_or(failure)
}

/// One a run, newest first. Only the newest run of an agent can be alive: of another one without a
/// death, nobody knows how it ended.
fn rows(runs: &[Value], now: Timestamp) -> Vec<Vec<Cell>> {
    let mut agents = BTreeSet::new();
    let is_newest = runs.iter().map(|run| agents.insert(run["agent"].as_str()));
    let without_death = is_newest.map(|newest| if newest { "alive" } else { "not known" });
    runs.iter().zip(without_death).map(|(run, without)| row(run, without, now)).collect()
}

fn row(run: &Value, without_death: &str, now: Timestamp) -> Vec<Cell> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let death = &run["death"];
    let how = match (death["exit_code"].as_i64(), death["signal"].as_str()) {
        (Some(code), _) => format!(" exit {code}"),
        (None, Some(signal)) => format!(" {signal}"),
        (None, None) => String::new(),
    };
    let ran = run["ran_s"].as_f64().and_then(|ran| Duration::try_from_secs_f64(ran).ok());
    vec![
        Cell::new(text(&run["agent"])),
        Cell::new(run["run"].as_u64().map(|run| run.to_string()).unwrap_or_default()),
        Cell::new(run["started_at"].as_str().map(|at| ago(at, now)).unwrap_or_default()),
        Cell::new(ran.map(|ran| Shown(ran).to_string()).unwrap_or_default()),
        Cell::new(if death.is_null() {
            without_death.to_owned()
        } else {
            format!("{}{how}", text(&death["class"]))
        }),
        Cell::new(text(&run["verdict"])),
        Cell::new(text(&death["evidence"])),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_runs_whose_death_is_missing_only_an_agent_s_newest_is_alive() {
        let run = |agent: &str, run: u64| json!({ "agent": agent, "run": run, "death": null });
        let runs = [run("a", 3), run("b", 1), run("a", 2)];
        let shown =
            table(&["A", "R", "S", "R", "D", "V", "E"], &rows(&runs, Timestamp::UNIX_EPOCH));
        let ends: Vec<bool> = shown.lines().skip(1).map(|line| line.contains("alive")).collect();
        assert_eq!(ends, [true, true, false], "{shown}");
        assert!(shown.contains("not known"), "{shown}");
    }
}
