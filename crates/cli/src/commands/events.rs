//! `defib events`.

use serde_json::Value;

use super::Context;
use super::status::warn_of_troubles;
use crate::client::{Client, Ended};
use crate::failure::{Code, Failure};
use crate::output;

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
    /// The last so many; 0 for none of the past
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    last: usize,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

impl Events {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        warn_of_troubles(context);
        if !self.follow {
            let events = self.past(&client)?;
            return events.iter().try_for_each(|event| self.show(event).map(drop));
        }
        // Without any of the past it is those after the newest, also where a daemon ends before there is
        // another.
        let newest = || Ok(newest(&client)?.map_or(0, |event| seq_of(&event).unwrap_or(0)));
        let mut after = (self.last == 0).then(newest).transpose()?;
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
                        after = seq_of(&event).or(after);
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

    fn past(&self, client: &Client) -> Result<Vec<Value>, Failure> {
        if self.last == 0 {
            // That there is no daemon is said all the same.
            return newest(client).map(|_| Vec::new());
        }
        client.get(&format!("/api/v1/events?last={}", self.last))
    }

    /// Says whether the reader wants more.
    fn show(&self, event: &Value) -> Result<bool, Failure> {
        if self.json {
            return output::line(&event.to_string());
        }
        output::line(&line(event))
    }
}

/// The newest event, if there is one.
fn newest(client: &Client) -> Result<Option<Value>, Failure> {
    Ok(client.get::<Vec<Value>>("/api/v1/events?last=1")?.pop())
}

fn seq_of(event: &Value) -> Option<u64> {
    event["seq"].as_u64()
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
