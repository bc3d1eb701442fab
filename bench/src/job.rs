//! What a supervisor is given to do, and how it is started and stopped.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::processes;

/// What a supervised child does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Duty {
    /// Waits for a signal.
    Wait,
    /// Exits 1 at once.
    Crash,
    /// Writes so many lines of 100 bytes, then waits.
    Write { lines: u64 },
}

/// One child to be kept running.
#[derive(Debug, Clone)]
pub(crate) struct Agent {
    pub(crate) name: String,
    /// Its command: none of the words has a space in it.
    pub(crate) words: Vec<String>,
}

impl Agent {
    /// The child that tells its beginnings to `report` under this number.
    pub(crate) fn new(id: usize, duty: Duty, report: &Path) -> Agent {
        let (word, lines) = match duty {
            Duty::Wait => ("wait", None),
            Duty::Crash => ("crash", None),
            Duty::Write { lines } => ("write", Some(lines)),
        };
        let mut words = vec![
            processes::child_program().display().to_string(),
            word.to_owned(),
            report.display().to_string(),
            id.to_string(),
        ];
        words.extend(lines.map(|lines| lines.to_string()));
        Agent { name: format!("a{id:05}"), words }
    }

    /// The command as one line.
    pub(crate) fn line(&self) -> String {
        self.words.join(" ")
    }
}

/// Children to be kept running, and a folder for whatever that takes.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) folder: PathBuf,
    pub(crate) agents: Vec<Agent>,
    /// Whether output is to be captured; where a supervisor can do without, it does.
    pub(crate) capture: bool,
}

/// How a supervisor is started and stopped, once its files are written.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) start: Command,
    /// Whether the command ends when it has started everything.
    pub(crate) detaches: bool,
    pub(crate) stop: Stop,
    /// Below here is each captured line of the first agent, in files whose names end like this.
    pub(crate) logs: Option<(PathBuf, &'static str)>,
}

/// How everything is stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The end of its standard input.
    EndOfInput,
    /// A signal to it.
    Signal(Signal),
    /// Commands, one after the other.
    Run(Vec<Command>),
}

/// A supervisor that was started.
#[derive(Debug)]
pub(crate) struct Running {
    process: Option<Child>,
    stop: Stop,
    pub(crate) logs: Option<(PathBuf, &'static str)>,
}

impl Launch {
    /// A supervisor that stays in front.
    pub(crate) fn in_front(start: Command, stop: Stop) -> Launch {
        Launch { start, detaches: false, stop, logs: None }
    }

    /// Starts it. Returns when a command that detaches has ended, and at once otherwise.
    pub(crate) fn start(mut self, folder: &Path) -> io::Result<Running> {
        let said = std::fs::File::create(folder.join("said.txt"))?;
        self.start.stdout(said.try_clone()?).stderr(said).process_group(0);
        self.start.stdin(match self.stop {
            Stop::EndOfInput => Stdio::piped(),
            Stop::Signal(_) | Stop::Run(_) => Stdio::null(),
        });
        let mut process = spawn(&mut self.start)?;
        if self.detaches && !await_end(&mut process, Duration::from_secs(120))? {
            let said = std::fs::read_to_string(folder.join("said.txt")).unwrap_or_default();
            let first: String = said.trim().chars().take(300).collect();
            return Err(io::Error::other(format!("it did not start: {first}")));
        }
        let process = (!self.detaches).then_some(process);
        Ok(Running { process, stop: self.stop, logs: self.logs })
    }
}

impl Running {
    /// Asks it to stop everything; that may take longer.
    pub(crate) fn stop(&mut self) -> io::Result<()> {
        match &mut self.stop {
            Stop::EndOfInput => {
                drop(self.process.as_mut().and_then(|process| process.stdin.take()));
            }
            Stop::Signal(signal) => {
                let pid =
                    self.process.as_ref().map(Child::id).and_then(|id| i32::try_from(id).ok());
                if let Some(pid) = pid {
                    processes::send(pid, *signal);
                }
            }
            Stop::Run(commands) => {
                for command in commands {
                    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                    let mut process = spawn(command.process_group(0))?;
                    await_end(&mut process, Duration::from_secs(60))?;
                }
            }
        }
        Ok(())
    }
}

/// Held while something is started. Who ends everything takes it and keeps it.
pub(crate) static STARTING: Mutex<()> = Mutex::new(());

fn spawn(command: &mut Command) -> io::Result<Child> {
    let _held = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

/// Waits for a command. Says whether it ended well and in time.
fn await_end(process: &mut Child, patience: Duration) -> io::Result<bool> {
    let end = Instant::now() + patience;
    loop {
        if let Some(status) = process.try_wait()? {
            return Ok(status.success());
        }
        if Instant::now() > end {
            process.kill()?;
            process.wait()?;
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
