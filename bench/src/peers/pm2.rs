//! PM2.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::Supervisor;
use crate::job::{Job, Launch, Stop};

pub(crate) struct Pm2 {
    program: PathBuf,
}

impl Pm2 {
    pub(crate) fn new(installed: &Path) -> Pm2 {
        Pm2 { program: installed.join("npm/node_modules/.bin/pm2") }
    }

    fn command(&self, job: &Job, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(&job.folder).env("PM2_HOME", job.folder.join("pm2"));
        command
    }
}

impl Supervisor for Pm2 {
    fn name(&self) -> &'static str {
        "pm2"
    }

    fn program(&self) -> &Path {
        &self.program
    }

    fn prepare(&self, job: &Job) -> io::Result<Launch> {
        let apps: Vec<_> = job
            .agents
            .iter()
            .map(|agent| {
                json!({
                    "name": agent.name,
                    "script": agent.words.first(),
                    "args": agent.words.get(1..).unwrap_or_default(),
                    "interpreter": "none",
                    "exec_mode": "fork",
                    "autorestart": true,
                    "restart_delay": 0,
                    "min_uptime": 0,
                    "max_restarts": 1_000_000_000,
                    "vizion": false,
                    "pmx": false,
                    "out_file": "/dev/null",
                    "error_file": "/dev/null",
                })
            })
            .collect();
        super::write(job, "ecosystem.json", &json!({ "apps": apps }).to_string())?;
        Ok(Launch {
            start: self.command(job, &["start", "ecosystem.json", "--silent"]),
            detaches: true,
            stop: Stop::Run(vec![self.command(job, &["kill", "--silent"])]),
            logs: None,
        })
    }

    fn most(&self) -> usize {
        200
    }
}
