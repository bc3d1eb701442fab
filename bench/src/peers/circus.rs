//! circus.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use super::Supervisor;
use crate::job::{Job, Launch, Stop};

pub(crate) struct Circus {
    program: PathBuf,
}

impl Circus {
    pub(crate) fn new(installed: &Path) -> Circus {
        Circus { program: installed.join("py/bin/circusd") }
    }
}

impl Supervisor for Circus {
    fn name(&self) -> &'static str {
        "circus"
    }

    fn program(&self) -> &Path {
        &self.program
    }

    fn prepare(&self, job: &Job) -> io::Result<Launch> {
        let folder = job.folder.display();
        // It looks for dead children at intervals; its own is five seconds.
        let mut config = format!(
            "[circus]\ncheck_delay = 0.1\nstatsd = False\nendpoint = ipc://{folder}/endpoint\n\
             pubsub_endpoint = ipc://{folder}/pubsub\n"
        );
        for agent in &job.agents {
            // A String takes whatever is written to it.
            let _ = write!(
                config,
                "[watcher:{}]\ncmd = {}\nnumprocs = 1\nwarmup_delay = 0\nmax_retry = -1\n\
                 graceful_timeout = 5\n",
                agent.name,
                agent.line()
            );
        }
        let config = super::write(job, "circus.ini", &config)?;
        let mut start = Command::new(&self.program);
        start.arg(config);
        Ok(Launch::in_front(start, Stop::Signal(Signal::TERM)))
    }

    fn most(&self) -> usize {
        200
    }
}
