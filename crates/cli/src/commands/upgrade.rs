//! `defib upgrade`.

use std::path::Path;
use std::time::{Duration, Instant};

use defib_daemon::wire::DaemonInfo;
use serde_json::json;

use super::Context;
use crate::failure::{Code, Failure};
use crate::output;

/// Replace the running daemon by this program; agents run on
#[derive(Debug, clap::Args)]
#[command(after_help = "Example, after a new defib was installed:\n  defib upgrade")]
pub(crate) struct Upgrade {}

impl Upgrade {
    #[expect(clippy::unused_self, reason = "every command is run this way")]
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        let before: DaemonInfo = client.get("/api/v1/daemon")?;
        let program = std::env::current_exe().map_err(|error| Failure::new(Code::Failed, error))?;
        client.post_last("/api/v1/upgrade", &json!({ "program": program }))?;
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Ok(after) = client.get::<DaemonInfo>("/api/v1/daemon")
                && after.pid != before.pid
            {
                if Path::new(&after.program) != program {
                    let what = format!("{} does not run as a daemon", program.display());
                    return Err(Failure::new(Code::Failed, what).hint(format!(
                        "{} has taken over again, and agents ran on; keeper.log in the home folder \
                         says more",
                        after.program
                    )));
                }
                let (old, new) = (before.version, after.version);
                return output::print(&format!(
                    "the daemon is now {new} (was {old}); agents ran on\n"
                ));
            }
            if Instant::now() > deadline {
                return Err(Failure::new(Code::Failed, "the new daemon has not answered in 30 s")
                    .hint("the keeper goes on trying; keeper.log in the home folder says what it says"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
