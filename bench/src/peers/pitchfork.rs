//! pitchfork.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Supervisor;
use crate::job::{Job, Launch, Stop};

pub(crate) struct Pitchfork {
    program: PathBuf,
}

impl Pitchfork {
    pub(crate) fn new(installed: &Path) -> Pitchfork {
        Pitchfork { program: installed.join("cargo/bin/pitchfork") }
    }

    /// All that it keeps is below the job's folder.
    fn command(&self, job: &Job, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(&job.folder);
        for name in ["HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"] {
            command.env(name, &job.folder);
        }
        command
    }
}

impl Supervisor for Pitchfork {
    fn name(&self) -> &'static str {
        "pitchfork"
    }

    fn program(&self) -> &Path {
        &self.program
    }

    fn prepare(&self, job: &Job) -> io::Result<Launch> {
        let mut config = String::new();
        for agent in &job.agents {
            // A String takes whatever is written to it.
            let _ = write!(
                config,
                "[daemons.{}]\nrun = \"exec {}\"\nretry = 1000000000\nready_delay = 0\n",
                agent.name,
                agent.line()
            );
        }
        super::write(job, "pitchfork.toml", &config)?;
        Ok(Launch {
            start: self.command(job, &["start", "--all"]),
            detaches: true,
            stop: Stop::Run(vec![self.command(job, &["supervisor", "stop"])]),
            logs: None,
        })
    }

    fn most(&self) -> usize {
        200
    }
}
