//! Errands: short-lived commands of the operator's own, which send messages. They run as the daemon.
//!
//! A command on behalf of an agent must not be an errand: the keeper runs it, as the agent.
//!
//! An errand is run on a thread where one may wait, is given a bounded time, and leaves no process
//! behind. It is no agent: nobody restarts it, and what it prints is not kept.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal};
use rustix::time::Timespec;

/// What a pipe holds before anybody reads: so much can be written without waiting.
const LARGEST_INPUT: usize = 60 << 10;

/// A command that is to be run once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Errand<'a> {
    /// The program and its arguments.
    pub(crate) words: &'a [String],
    /// All of its environment.
    pub(crate) env: &'a [(String, String)],
    /// Where it is run.
    pub(crate) cwd: &'a Path,
    /// What it reads, at most 60 KiB of it.
    pub(crate) input: &'a [u8],
    /// How long it may take.
    pub(crate) timeout: Duration,
}

impl Errand<'_> {
    /// Runs it and waits for it. What went wrong is said in a few words.
    pub(crate) fn run(&self) -> Result<(), String> {
        let Some((program, arguments)) = self.words.split_first() else {
            return Err("no command".into());
        };
        let has_input = !self.input.is_empty();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(self.cwd)
            .stdin(if has_input { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        let mut child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
        if let Some(mut input) = child.stdin.take() {
            // One that does not want to read it says by its exit code whether that is all right.
            let _ = input.write_all(&self.input[..self.input.len().min(LARGEST_INPUT)]);
        }
        let ended = await_end(&child, self.timeout);
        // Whether it ended or not: nothing that it started outlives it.
        if let Some(group) = Pid::from_raw(i32::try_from(child.id()).unwrap_or(0)) {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        let status = child.wait().map_err(|error| error.to_string())?;
        match (ended, status.code()) {
            (false, _) => {
                Err(format!("no answer within {}", defib_core::span::Shown(self.timeout)))
            }
            (true, Some(0)) => Ok(()),
            (true, Some(code)) => Err(format!("it exited with {code}")),
            (true, None) => Err(format!("it was ended: {status}")),
        }
    }
}

/// Whether a child ends in time. It is not waited for, so that its group's number stays its own.
fn await_end(child: &Child, timeout: Duration) -> bool {
    let Ok(pidfd) = rustix::process::pidfd_open(Pid::from_child(child), PidfdFlags::empty()) else {
        return false;
    };
    let mut polled = [PollFd::new(&pidfd, PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).ok();
    matches!(rustix::event::poll(&mut polled, timeout.as_ref()), Ok(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &[&str], input: &[u8], ms: u64) -> Result<(), String> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let env = [("PATH", "/usr/bin:/bin"), ("WORD", "7")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let timeout = Duration::from_millis(ms);
        Errand { words: &words, env: &env, cwd: Path::new("/"), input, timeout }.run()
    }

    #[test]
    fn a_command_answers_by_its_exit_code_and_in_time() {
        let shell = |line: &str, ms| run(&["/bin/sh", "-c", line], b"", ms);
        assert_eq!(shell("test \"$WORD\" = 7 && test \"$PWD\" = /", 60_000), Ok(()));
        assert_eq!(shell("exit 3", 60_000), Err("it exited with 3".to_owned()));
        assert_eq!(shell("sleep 60", 50), Err("no answer within 50ms".to_owned()));
        assert!(run(&["/no/such"], b"", 9_000).is_err());
    }

    #[test]
    fn a_command_reads_what_it_is_given_or_does_not() {
        let shell = |line: &str, input: &[u8]| run(&["/bin/sh", "-c", line], input, 60_000);
        assert_eq!(shell("test \"$(cat)\" = hello", b"hello"), Ok(()));
        assert_eq!(shell("exit 0", &vec![b'x'; 50_000]), Ok(()));
    }
}
