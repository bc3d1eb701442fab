//! `defib notify`.

use clap::Subcommand;
use defib_daemon::wire::ChannelTest;
use serde_json::json;

use super::Context;
use crate::failure::{Code, Failure};
use crate::output;

/// See that those who are to be told are reached
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Channels are the [notify.NAME] tables of projects that are up. The exit code is 1 if a message did \
not arrive.

Examples:
  defib notify test
  defib notify test ops
  defib notify test night/ops --json")]
pub(crate) struct Notify {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Send a test message through each channel, and say what came of it
    Test {
        /// Only through this channel
        #[arg(value_name = "NAME")]
        name: Option<String>,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
}

impl Notify {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let What::Test { name, json } = &self.what;
        let client = context.client()?;
        let tests: Vec<ChannelTest> =
            client.post("/api/v1/notify/test", &json!({ "channel": name }))?;
        if *json {
            output::json(&tests)?;
        } else {
            output::print(&tests.iter().map(line).collect::<String>())?;
        }
        if tests.is_empty() {
            return Err(match name {
                Some(name) => Failure::new(Code::Failed, format!("no channel is called {name:?}"))
                    .hint("channels are the [notify.NAME] tables of projects that are up"),
                None => Failure::new(Code::Failed, "no project that is up has a channel")
                    .hint("add a [notify.NAME] table to the config file, then `defib reload`"),
            });
        }
        match tests.iter().filter(|test| !test.delivered).count() {
            0 => Ok(()),
            _ if *json => Err(Failure::told(Code::Failed)),
            missed => Err(Failure::new(
                Code::Failed,
                format!("{missed} of {} did not arrive", tests.len()),
            )
            .hint("put right what is said above, then `defib reload`")),
        }
    }
}

fn line(test: &ChannelTest) -> String {
    let ChannelTest { project, channel, way, took_ms, why, .. } = test;
    match why {
        None => format!("{project}/{channel}: delivered by {way} in {took_ms} ms\n"),
        Some(why) => format!("{project}/{channel}: NOT delivered by {way}: {why}\n"),
    }
}
