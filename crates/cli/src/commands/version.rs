//! `defib version`.

use defib_daemon::wire::DaemonInfo;
use serde_json::json;

use super::Context;
use crate::failure::{Code, Failure};
use crate::output;

/// Print the version of this program and of the daemon
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  defib version\n  defib version --json | jq .daemon.version")]
pub(crate) struct Version {
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Version {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let ours = env!("CARGO_PKG_VERSION");
        // Where there is no home, there is no daemon in it.
        let answer = context.client().ok().map(|client| client.get::<DaemonInfo>("/api/v1/daemon"));
        let (info, failure) = match answer.transpose() {
            Ok(info) => (info, None),
            Err(failure) if failure.is(Code::NoDaemon) => (None, None),
            Err(failure) => (None, Some(failure)),
        };
        if self.json {
            let daemon = info.as_ref().map(|info| {
                json!({ "pid": info.pid, "version": info.version, "started_at": info.started_at })
            });
            let keeper = info.as_ref().map(|info| json!({ "pid": info.keeper_pid }));
            output::json(&json!({ "version": ours, "daemon": daemon, "keeper": keeper }))?;
        } else {
            output::print(&match (info, &failure) {
                (Some(info), _) => {
                    format!("defib {ours}; the daemon is {} (pid {})\n", info.version, info.pid)
                }
                (None, None) => format!("defib {ours}; no daemon is running\n"),
                (None, Some(_)) => format!("defib {ours}\n"),
            })?;
        }
        failure.map_or(Ok(()), Err)
    }
}
