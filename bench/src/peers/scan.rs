//! runit and daemontools: a folder of services, each with a process of its own beside it.
//!
//! Their run scripts have the child itself for an interpreter, so that no shell is in between. Both
//! wait until a second has passed since a service's last start before they start it again.

use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::Supervisor;
use crate::job::{Job, Launch, Stop};

pub(crate) struct Scan {
    name: &'static str,
    /// The folder that holds `usr/bin`.
    root: PathBuf,
    scanner: PathBuf,
    /// The logger, with what makes it rotate and keep as much as the others.
    logger: &'static str,
    stop: Way,
}

#[derive(Clone, Copy)]
enum Way {
    Signal(Signal),
    /// Each service has to be told.
    Svc,
}

impl Scan {
    fn new(
        root: &Path,
        name: &'static str,
        scanner: &str,
        logger: &'static str,
        stop: Way,
    ) -> Scan {
        let scanner = root.join("usr/bin").join(scanner);
        Scan { name, root: root.to_owned(), scanner, logger, stop }
    }

    pub(crate) fn runit(root: &Path) -> Scan {
        Scan::new(root, "runit", "runsvdir", "svlogd ./main", Way::Signal(Signal::HUP))
    }

    pub(crate) fn daemontools(root: &Path) -> Scan {
        Scan::new(root, "daemontools", "svscan", "multilog s16777215 n200 ./main", Way::Svc)
    }
}

impl Supervisor for Scan {
    fn name(&self) -> &'static str {
        self.name
    }

    fn program(&self) -> &Path {
        &self.scanner
    }

    fn prepare(&self, job: &Job) -> io::Result<Launch> {
        let services = job.folder.join("services");
        for agent in &job.agents {
            let service = services.join(&agent.name);
            std::fs::create_dir_all(&service)?;
            super::script(&service.join("run"), &format!("#!{}\n", agent.line()))?;
            if job.capture {
                std::fs::create_dir_all(service.join("log/main"))?;
                let text = format!("#!/bin/sh\nexec {}\n", self.logger);
                super::script(&service.join("log/run"), &text)?;
                // Only svlogd reads it.
                std::fs::write(service.join("log/main/config"), "s50000000\nn60\n")?;
            }
        }
        let mut start = super::unpacked(&self.root, &self.scanner);
        start.arg(&services);
        let stop = match self.stop {
            Way::Signal(signal) => Stop::Signal(signal),
            Way::Svc => {
                let mut svc = super::unpacked(&self.root, &self.root.join("usr/bin/svc"));
                svc.arg("-dx").args(job.agents.iter().map(|agent| services.join(&agent.name)));
                Stop::Run(vec![svc])
            }
        };
        let mut launch = Launch::in_front(start, stop);
        if let Some(first) = job.agents.first() {
            launch.logs = Some((services.join(&first.name).join("log/main"), ""));
        }
        Ok(launch)
    }

    fn captures(&self) -> bool {
        true
    }
}
