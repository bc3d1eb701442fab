//! supervisord.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use super::Supervisor;
use crate::job::{Job, Launch, Stop};

pub(crate) struct Supervisord {
    program: PathBuf,
}

impl Supervisord {
    pub(crate) fn new(installed: &Path) -> Supervisord {
        Supervisord { program: installed.join("py/bin/supervisord") }
    }
}

impl Supervisor for Supervisord {
    fn name(&self) -> &'static str {
        "supervisord"
    }

    fn program(&self) -> &Path {
        &self.program
    }

    fn prepare(&self, job: &Job) -> io::Result<Launch> {
        let folder = job.folder.display();
        let mut config = format!(
            "[supervisord]\nnodaemon = true\nlogfile = {folder}/supervisord.log\n\
             pidfile = {folder}/supervisord.pid\nminfds = 10000\nuser = root\n"
        );
        if !rustix::process::getuid().is_root() {
            config = config.replace("user = root\n", "");
        }
        for agent in &job.agents {
            let output =
                if job.capture { format!("{folder}/{}.log", agent.name) } else { "NONE".into() };
            // A String takes whatever is written to it.
            let _ = write!(
                config,
                "[program:{}]\ncommand = {}\nautorestart = true\nstartsecs = 0\n\
                 startretries = 1000000000\nstderr_logfile = NONE\nstdout_logfile = {output}\n\
                 stdout_logfile_maxbytes = 50MB\nstdout_logfile_backups = 60\n",
                agent.name,
                agent.line()
            );
        }
        let config = super::write(job, "supervisord.conf", &config)?;
        let mut start = Command::new(&self.program);
        start.arg("-c").arg(config);
        let mut launch = Launch::in_front(start, Stop::Signal(Signal::TERM));
        launch.logs = Some((job.folder.clone(), "a00000.log"));
        Ok(launch)
    }

    fn captures(&self) -> bool {
        true
    }
}
