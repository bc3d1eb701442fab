//! A command that was run to its end.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags};
use rustix::time::Timespec;
use serde_json::Value;

use crate::DEADLINE;

/// What a command said and how it ended.
#[derive(Debug)]
pub struct Ran {
    /// What was run.
    pub line: String,
    /// The exit code; 128 and the signal if one ended it.
    pub code: i32,
    /// What it wrote.
    pub out: String,
    /// What it complained of.
    pub err: String,
}

impl Ran {
    /// Runs it. One that does not end fails the test.
    pub fn to_end(command: Command) -> Ran {
        let line = format!("{command:?}");
        Ran::within(command, DEADLINE).unwrap_or_else(|| panic!("does not end: {line}"))
    }

    /// Runs it. Nothing, if it had to be killed.
    pub fn within(mut command: Command, limit: Duration) -> Option<Ran> {
        let line: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        let line = line.join(" ");
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("defib");
        let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
        let pid = Pid::from_child(&child);
        let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty()).expect("a pidfd");
        let mut polled = [PollFd::new(&handle, PollFlags::IN)];
        let timeout = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: 0 };
        if rustix::event::poll(&mut polled, Some(&timeout)).expect("poll") == 0 {
            child.kill().expect("kill");
            child.wait().expect("wait");
            return None;
        }
        let status = child.wait().expect("wait");
        let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(-1);
        let text = |reader: std::thread::JoinHandle<String>| reader.join().expect("output");
        Some(Ran { line, code, out: text(out), err: text(err) })
    }

    /// It must have worked.
    #[track_caller]
    pub fn good(self) -> Ran {
        assert_eq!(self.code, 0, "{self:#?}");
        self
    }

    /// It must have failed with this code, and said why and what to do.
    #[track_caller]
    pub fn bad(self, code: i32) -> Ran {
        assert_eq!(self.code, code, "{self:#?}");
        assert!(self.err.contains("error"), "it says why: {self:#?}");
        let hints = ["help: ", "Usage: ", "For more information"];
        assert!(hints.iter().any(|hint| self.err.contains(hint)), "it says what to do: {self:#?}");
        self
    }

    /// What it wrote, as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

fn reader(from: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.expect("a pipe").read_to_end(&mut bytes).expect("output");
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
