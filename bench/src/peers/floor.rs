//! The floor, as this program's own second face.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{FLOOR, Supervisor};
use crate::job::{Agent, Job, Launch, Stop};

pub(crate) struct Floor {
    program: PathBuf,
}

impl Floor {
    pub(crate) fn new() -> Floor {
        Floor { program: std::env::current_exe().unwrap_or_default() }
    }
}

impl Supervisor for Floor {
    fn name(&self) -> &'static str {
        FLOOR
    }

    fn program(&self) -> &Path {
        &self.program
    }

    fn prepare(&self, job: &Job) -> io::Result<Launch> {
        let lines: Vec<String> = job.agents.iter().map(Agent::line).collect();
        let list = super::write(job, "list", &lines.join("\n"))?;
        let mut start = Command::new(&self.program);
        start.arg("--be-floor").arg(list);
        Ok(Launch::in_front(start, Stop::EndOfInput))
    }
}
