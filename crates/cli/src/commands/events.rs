//! `defib events` and `defib history`.

use std::time::Duration;

use defib_core::span;
use defib_core::span::Shown;
use jiff::Timestamp;
use serde_json::Value;

use super::status::ago;
use super::{Context, segment};
use crate::client::Ended;
use crate::failure::{Code, Failure};
use crate::output;
use crate::table::{Cell, table};

/// Print every decision, oldest first
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  defib events
  defib events -f --json | jq 'select(.type == \"crashed-out\")'")]
pub(crate) struct Events {
    /// Go on as they happen
    #[arg(short, long)]
    follow: bool,
    /// The last so many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    last: usize,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

impl Events {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        if !self.follow {
            let events: Vec<Value> = client.get(&format!("/api/v1/events?last={}", self.last))?;
            return events.iter().try_for_each(|event| self.show(event).map(drop));
        }
        let mut after = None;
        loop {
            let from = match after {
                Some(seq) => format!("after={seq}"),
                None => format!("last={}", self.last),
            };
            let mut buffer = Vec::new();
            let streamed = client.stream(&format!("/api/v1/events?{from}&follow=true"), |bytes| {
                buffer.extend_from_slice(bytes);
                while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = buffer.drain(..=end).collect();
                    let data = line.strip_prefix(b"data: ");
                    if let Some(event) =
                        data.and_then(|data| serde_json::from_slice::<Value>(data).ok())
                    {
                        after = event["seq"].as_u64().or(after);
                        if !self.show(&event)? {
                            return Ok(false);
                        }
                    }
                }
                Ok(true)
            });
            match streamed {
                // It was replaced, or has ended, or we were too slow for it.
                Ok(Ended::Lost | Ended::Complete) => {}
                Ok(Ended::Enough) => return Ok(()),
                Err(failure) if failure.is_lost() => {}
                // It ended after it was seen to be there.
                Err(failure) if after.is_some() && failure.is(Code::NoDaemon) => {}
                Err(failure) => return Err(failure),
            }
            if !client.has_successor() {
                client.say_ended();
                return Ok(());
            }
        }
    }

    /// Says whether the reader wants more.
    fn show(&self, event: &Value) -> Result<bool, Failure> {
        if self.json {
            return output::raw(format!("{event}\n").as_bytes());
        }
        output::raw(format!("{}\n", line(event)).as_bytes())
    }
}

/// An event as a line for people.
pub(crate) fn line(event: &Value) -> String {
    format!("{}  {}", event["at"].as_str().unwrap_or_default(), event_body(event))
}

/// An event on one line, without when it was.
pub(crate) fn event_body(event: &Value) -> String {
    let word = |key: &str| event[key].as_str().unwrap_or_default();
    let rest: Vec<String> = event
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, value)| {
            !["seq", "at", "agent", "run", "type"].contains(&key.as_str()) && !value.is_null()
        })
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let run = event["run"].as_u64().map(|run| format!("#{run}")).unwrap_or_default();
    let (agent, kind) = (word("agent"), word("type"));
    format!("{agent:16} {run:>5}  {kind:18} {}", rest.join(" "))
}

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
    /// Only runs of so long
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
        let since_ms = now.as_millisecond().saturating_sub(since);
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
