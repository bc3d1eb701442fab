//! s6: a supervisor process for each service.
//!
//! They are started by a shell, because the packaged `s6-svscan` only looks for them in `/usr/bin`,
//! and nothing is installed there. It waits a second before it starts a service again.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::Supervisor;
use crate::job::{Job, Launch, Stop};

pub(crate) struct S6 {
    /// The folder that holds `usr/bin`.
    root: PathBuf,
    program: PathBuf,
}

impl S6 {
    pub(crate) fn new(root: &Path) -> S6 {
        S6 { root: root.to_owned(), program: root.join("usr/bin/s6-supervise") }
    }
}

impl Supervisor for S6 {
    fn name(&self) -> &'static str {
        "s6"
    }

    fn program(&self) -> &Path {
        &self.program
    }

    fn prepare(&self, job: &Job) -> io::Result<Launch> {
        let services = job.folder.join("services");
        // On TERM each of them stops its service and goes.
        let mut text = "#!/bin/sh\ntrap 'kill -TERM $all' TERM\n".to_owned();
        for agent in &job.agents {
            let service = services.join(&agent.name);
            std::fs::create_dir_all(service.join("main"))?;
            super::script(&service.join("run"), &format!("#!{}\n", agent.line()))?;
            let service = service.display();
            let logger = format!("| s6-log n60 s50000000 {service}/main ");
            let logger = if job.capture { logger.as_str() } else { "" };
            // A String takes whatever is written to it.
            let _ = writeln!(text, "s6-supervise {service} {logger}& all=\"$all $!\"");
        }
        text.push_str("wait\nwait\n");
        let scan = job.folder.join("scan");
        super::script(&scan, &text)?;
        let start = super::unpacked(&self.root, &scan);
        let mut launch = Launch::in_front(start, Stop::Signal(Signal::TERM));
        let first = job.agents.first().map(|agent| services.join(&agent.name).join("main"));
        launch.logs = first.map(|folder| (folder, ""));
        Ok(launch)
    }

    fn captures(&self) -> bool {
        true
    }
}
