//! horust.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use super::Supervisor;
use crate::job::{Job, Launch, Stop};

pub(crate) struct Horust {
    program: PathBuf,
}

impl Horust {
    pub(crate) fn new(installed: &Path) -> Horust {
        Horust { program: installed.join("cargo/bin/horust") }
    }
}

impl Supervisor for Horust {
    fn name(&self) -> &'static str {
        "horust"
    }

    fn program(&self) -> &Path {
        &self.program
    }

    fn prepare(&self, job: &Job) -> io::Result<Launch> {
        let services = job.folder.join("services");
        std::fs::create_dir_all(&services)?;
        for agent in &job.agents {
            let text = format!(
                "command = {:?}\n[restart]\nstrategy = \"always\"\nbackoff = \"0s\"\n\
                 attempts = 1000000000\n[termination]\nsignal = \"TERM\"\nwait = \"5s\"\n",
                agent.line()
            );
            std::fs::write(services.join(format!("{}.toml", agent.name)), text)?;
        }
        let mut start = Command::new(&self.program);
        start.arg("--services-path").arg(&services);
        // Its socket would be shared with any other that runs.
        start.arg("--uds-folder-path").arg(&job.folder);
        Ok(Launch::in_front(start, Stop::Signal(Signal::TERM)))
    }

    fn most(&self) -> usize {
        200
    }
}
