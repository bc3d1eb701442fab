//! `defib history`.

use std::time::Duration;

use defib_core::span;
use defib_core::span::Shown;
use jiff::Timestamp;
use serde_json::Value;

use super::status::ago;
use super::{Context, segment};
use crate::failure::Failure;
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
            // An agent that is not there is an error, not an empty history.
            let _: Vec<Value> = client.get(&format!("/api/v1/agents/{}", segment(name)?))?;
            path.push_str(&format!("&agent={}", segment(name)?));
        }
        let runs: Vec<Value> = client.get(&path)?;
        if self.json {
            return output::json(&runs);
        }
        if runs.is_empty() {
            return output::print("no runs yet\n");
        }
        let rows: Vec<Vec<Cell>> = runs.iter().map(|run| row(run, now)).collect();
        output::print(&table(
            &["AGENT", "RUN", "STARTED", "RAN", "DEATH", "VERDICT", "EVIDENCE"],
            &rows,
        ))
    }
}

fn row(run: &Value, now: Timestamp) -> Vec<Cell> {
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
            "alive".to_owned()
        } else {
            format!("{}{how}", text(&death["class"]))
        }),
        Cell::new(text(&run["verdict"])),
        Cell::new(text(&death["evidence"])),
    ]
}
