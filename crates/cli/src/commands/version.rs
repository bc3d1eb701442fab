//! `defib version`.

use defib_daemon::wire::DaemonInfo;
use serde_json::json;

use super::Context;
use crate::failure::{Code, Failure};
use crate::output;

/// Print the version of this program and of the daemon
#[derive(Debug, clap::Args)]
pub(crate) struct Version {
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Version {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let ours = env!("CARGO_PKG_VERSION");
        let info =
            match context.client().and_then(|client| client.get::<DaemonInfo>("/api/v1/daemon")) {
                Ok(info) => Some(info),
                Err(failure) if failure.is(Code::NoDaemon) => None,
                Err(failure) => return Err(failure),
            };
        if self.json {
            let daemon = info.as_ref().map(|info| {
                json!({ "pid": info.pid, "version": info.version, "started_at": info.started_at })
            });
            let keeper = info.as_ref().map(|info| json!({ "pid": info.keeper_pid }));
            return output::json(&json!({ "version": ours, "daemon": daemon, "keeper": keeper }));
        }
        output::print(&match info {
            Some(info) => {
                format!("defib {ours}; the daemon is {} (pid {})\n", info.version, info.pid)
            }
            None => format!("defib {ours}; no daemon is running\n"),
        })
    }
}
