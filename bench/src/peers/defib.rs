//! defib, as its users run it: a config file and `up --detach`.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{DEFIB, Supervisor};
use crate::job::{Job, Launch, Stop};

pub(crate) struct Defib {
    program: PathBuf,
}

impl Defib {
    pub(crate) fn new(program: &Path) -> Defib {
        Defib { program: program.to_owned() }
    }

    /// A command to the daemon of this folder.
    pub(crate) fn command(&self, folder: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(folder).env("NO_COLOR", "1");
        // Sockets have short paths, and a run that is itself an agent's has marks of its own.
        command.env("DEFIB_HOME", folder.join("h"));
        for name in ["DEFIB_RUN_KEY", "DEFIB_HOME_KEY", "CLAUDECODE", "CLAUDE_CODE_CHILD_SESSION"] {
            command.env_remove(name);
        }
        command
    }
}

/// No delay and no limit. Nothing that a run needs for its safety is turned off.
const HEAD: &str = r#"[project]
name = "bench"
[defaults]
restart = "always"
backoff = { kind = "none" }
limits = []
stop_timeout = "5s"
log = { max_size = "50M", keep = 40 }
"#;

impl Supervisor for Defib {
    fn name(&self) -> &'static str {
        DEFIB
    }

    fn program(&self) -> &Path {
        &self.program
    }

    fn prepare(&self, job: &Job) -> io::Result<Launch> {
        let mut config = HEAD.to_owned();
        for agent in &job.agents {
            // A String takes whatever is written to it.
            let _ = write!(config, "[agent.{}]\ncommand = {:?}\n", agent.name, agent.words);
        }
        super::write(job, "defib.toml", &config)?;
        let first = job.agents.first().map(|agent| agent.name.as_str()).unwrap_or_default();
        Ok(Launch {
            start: self.command(&job.folder, &["up", "--detach"]),
            detaches: true,
            stop: Stop::Run(vec![self.command(&job.folder, &["down", "--all"])]),
            logs: Some((job.folder.join("h/logs").join(first), ".log")),
        })
    }

    fn captures(&self) -> bool {
        true
    }
}
