//! runit, s6 and daemontools: a folder of services, each with a process of its own beside it.
//!
//! Their run scripts have the child itself for an interpreter, so that no shell is in between. All
//! three wait until a second has passed since a service's last start before they start it again.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use super::Supervisor;
use crate::job::{Job, Launch, Stop};

pub(crate) struct Scan {
    name: &'static str,
    /// The folder that holds `usr/bin`.
    root: PathBuf,
    scanner: PathBuf,
    /// What stands before the folder in the scanner's arguments.
    arguments: &'static [&'static str],
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
        Scan { name, root: root.to_owned(), scanner, arguments: &[], logger, stop }
    }

    pub(crate) fn runit(root: &Path) -> Scan {
        Scan::new(root, "runit", "runsvdir", "svlogd ./main", Way::Signal(Signal::HUP))
    }

    pub(crate) fn s6(root: &Path) -> Scan {
        let logger = "s6-log n60 s50000000 ./main";
        let scan = Scan::new(root, "s6", "s6-svscan", logger, Way::Signal(Signal::TERM));
        Scan { arguments: &["-c", "2100"], ..scan }
    }

    pub(crate) fn daemontools(root: &Path) -> Scan {
        Scan::new(root, "daemontools", "svscan", "multilog s16777215 n200 ./main", Way::Svc)
    }

    /// A command of the installed ones, which find one another and their libraries.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}/usr/bin:{path}", self.root.display()));
        let machine = format!("{}-linux-gnu", std::env::consts::ARCH);
        let libraries = ["usr/lib", "lib"].map(|lib| self.root.join(lib).join(&machine));
        command.env("LD_LIBRARY_PATH", libraries.map(|path| path.display().to_string()).join(":"));
        command
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
            script(&service.join("run"), &format!("#!{}\n", agent.line()))?;
            if job.capture {
                std::fs::create_dir_all(service.join("log/main"))?;
                let text = format!("#!/bin/sh\nexec {}\n", self.logger);
                script(&service.join("log/run"), &text)?;
                // Only svlogd reads it.
                std::fs::write(service.join("log/main/config"), "s50000000\nn60\n")?;
            }
        }
        let mut start = self.command(&self.scanner);
        start.args(self.arguments).arg(&services);
        let stop = match self.stop {
            Way::Signal(signal) => Stop::Signal(signal),
            Way::Svc => {
                let mut svc = self.command(&self.root.join("usr/bin/svc"));
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

fn script(path: &Path, text: &str) -> io::Result<()> {
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}
