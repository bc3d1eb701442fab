//! A home and a project for one test, the real `defib`, and ways to wait for what must happen.
//!
//! Waiting is for events or states, with a deadline that only a failure reaches. A [`Bench`] that is
//! dropped leaves no process behind, also when its test panics, and fails the test if the product did.

#![forbid(unsafe_code)]
#![allow(
    clippy::missing_panics_doc,
    clippy::return_self_not_must_use,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

pub mod attempt;
mod authority;
mod binary;
mod clock;
mod disk;
mod follow;
mod http;
mod hung;
mod lines;
pub mod plain;
pub mod proc;
mod ran;
mod receiver;
mod sitting;
mod sums;
mod user;
mod viewer;
mod web;

use std::fmt::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

pub use authority::Authority;
pub use binary::defib_path;
pub use clock::MovedClock;
pub use disk::Disk;
pub use follow::{Events, field, is};
pub use http::Answer;
pub use hung::Hung;
pub use lines::Lines;
pub use ran::Ran;
pub use receiver::{Mail, Mailbox, Received, Receiver};
pub use sitting::Sitting;
pub use sums::{LineCount, summed_line};
pub use user::PlainUser;

pub use viewer::Viewer;
pub use web::Web;

/// No test reaches it unless something is wrong. The machine may be busy.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// A home, a project folder, and the daemon that a test brings up in them.
pub struct Bench {
    root: TempDir,
    agent: String,
    variables: Vec<(String, String)>,
    may_leave: bool,
    /// User, group and program of every command, if these are not the test's own.
    user: Option<(u32, u32, PathBuf)>,
}

/// Begins a test. `agent` is the path of the scripted child.
pub fn bench(agent: &str) -> Bench {
    Bench::below("/tmp", agent)
}

impl Bench {
    /// A bench in a folder below another. Sockets have short paths, so this one is short too.
    pub fn below(parent: impl AsRef<Path>, agent: &str) -> Bench {
        let root = tempfile::Builder::new().prefix("d").rand_bytes(5).tempdir_in(parent).unwrap();
        std::fs::create_dir(root.path().join("p")).unwrap();
        let (agent, variables) = (agent.to_owned(), Vec::new());
        Bench { root, agent, variables, may_leave: false, user: None }
    }

    /// The daemon's folder.
    pub fn home(&self) -> PathBuf {
        self.root.path().join("h")
    }

    /// The project's folder.
    pub fn project(&self) -> PathBuf {
        self.root.path().join("p")
    }

    /// A file of the project, as text for a script.
    pub fn file(&self, name: &str) -> String {
        self.project().join(name).display().to_string()
    }

    /// Every command from now on has this variable.
    pub fn set(&mut self, name: &str, value: &str) {
        self.unset(name);
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// No command has it any more.
    pub fn unset(&mut self, name: &str) {
        self.variables.retain(|(known, _)| known != name);
    }

    /// Writes the config file. `@` as a command's first word is the scripted child.
    pub fn config(&self, text: &str) {
        std::fs::write(self.project().join("defib.toml"), text).unwrap();
    }

    /// The part of a config that declares an agent that does the script: words with single spaces,
    /// `'…'` around words with spaces in them.
    pub fn agent(&self, name: &str, script: &str, settings: &str) -> String {
        let mut words = vec![self.agent.clone()];
        words.extend(split(script));
        let words: Vec<String> =
            words.iter().map(|word| Value::from(word.as_str()).to_string()).collect();
        let mut text = format!("[agent.{name}]\ncommand = [{}]\n", words.join(", "));
        writeln!(text, "{settings}").unwrap();
        text
    }

    /// Writes a config with these parts.
    pub fn declare(&self, parts: &[String]) {
        let head = "[defaults]\nstop_timeout = \"1s\"\nbackoff = { kind = \"none\" }\n";
        self.config(&format!("{head}\n{}", parts.join("\n")));
    }

    /// Declares these agents, brings them up and begins to follow events.
    pub fn up(&self, parts: &[String]) -> Events {
        self.declare(parts);
        self.defib(&["up", "--detach"]).good();
        self.events()
    }

    /// Follows events, those of the past included.
    pub fn events(&self) -> Events {
        Events::follow(|| self.command(&["events", "-f", "--json", "-n", "1000000"]))
    }

    /// The command, to be run in the project's folder.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let program = self.user.as_ref().map_or(defib_path(), |(_, _, program)| program);
        let mut command = Command::new(program);
        if let Some((uid, gid, _)) = &self.user {
            command.uid(*uid).gid(*gid);
        }
        command.args(arguments).current_dir(self.project()).stdin(Stdio::null());
        for name in ["CLAUDECODE", "CLAUDE_CODE_CHILD_SESSION", "XDG_STATE_HOME"] {
            command.env_remove(name);
        }
        // What `check` would hint at, on machines that have it.
        for (name, _) in std::env::vars_os() {
            let upper = name.to_string_lossy().to_uppercase();
            if ["_PROXY", "_CERT_FILE", "_CA_CERTS", "_CA_BUNDLE"]
                .iter()
                .any(|it| upper.ends_with(it))
            {
                command.env_remove(name);
            }
        }
        command.env_remove("SSH_AUTH_SOCK");
        command.env("DEFIB_HOME", self.home()).env("NO_COLOR", "1");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs the command to its end.
    pub fn defib(&self, arguments: &[&str]) -> Ran {
        Ran::to_end(self.command(arguments))
    }

    /// Starts the command and looks at its lines as they come.
    pub fn lines(&self, arguments: &[&str]) -> Lines {
        Lines::of(self.command(arguments))
    }

    /// Runs a command that may meet a daemon that has just been killed, until it gets an answer.
    pub fn insist(&self, arguments: &[&str]) -> Ran {
        await_some(&format!("an answer to {arguments:?}"), || {
            let ran = self.defib(arguments);
            (!ran.err.contains("lost the daemon")).then_some(ran)
        })
    }

    /// What `status --json` says of every agent.
    pub fn statuses(&self) -> Vec<Value> {
        let told = self.insist(&["status", "--json"]).good().json();
        told.as_array().expect("an array").clone()
    }

    /// What `status --json` says of one agent.
    pub fn status(&self, name: &str) -> Value {
        self.insist(&["status", "--json", name]).good().json()[0].clone()
    }

    /// Waits until the status of an agent is as wanted, and gives it.
    pub fn await_status(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let begin = Instant::now();
        while begin.elapsed() < DEADLINE {
            last = self.status(name);
            if wanted(&last) {
                return last;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("waited in vain for {name}: {last:#}\n{}", self.account());
    }

    /// Waits until an agent is in this state.
    pub fn await_state(&self, name: &str, state: &str) -> Value {
        self.await_status(name, |status| status["state"] == state)
    }

    /// The process of an agent that runs.
    pub fn pid(&self, name: &str) -> u32 {
        let status = self
            .await_status(name, |status| status["state"] == "running" && status["pid"].is_u64());
        pid_in(&status)
    }

    /// The runs of an agent, oldest first.
    pub fn history(&self, name: &str) -> Vec<Value> {
        let told = self.insist(&["history", name, "--json", "-n", "100000"]).good().json();
        told.as_array().expect("an array").iter().rev().cloned().collect()
    }

    /// All that is known of an agent's output, as the files have it.
    pub fn log(&self, name: &str) -> String {
        let bytes: Vec<u8> = self.segments(name).into_iter().flat_map(|(_, bytes)| bytes).collect();
        String::from_utf8(bytes).expect("whole characters")
    }

    /// The segments of an agent's log, in order.
    pub fn segments(&self, name: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let folder = self.home().join("logs").join(name);
        let Ok(entries) = std::fs::read_dir(&folder) else { return Vec::new() };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut paths: Vec<PathBuf> =
            paths.filter(|path| path.extension().is_some_and(|is| is == "log")).collect();
        paths.sort();
        // One may be pruned meanwhile.
        paths
            .into_iter()
            .filter_map(|path| Some((path.clone(), std::fs::read(path).ok()?)))
            .collect()
    }

    /// Waits until an agent's log is as wanted, and gives it.
    pub fn await_log(&self, name: &str, wanted: impl Fn(&str) -> bool) -> String {
        let mut log = String::new();
        let begin = Instant::now();
        while begin.elapsed() < DEADLINE {
            log = self.log(name);
            if wanted(&log) {
                return log;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("waited in vain for output of {name}, which wrote:\n{log}\n{}", self.account());
    }

    /// Keeper and daemon, as `version --json` tells them.
    pub fn who(&self) -> (u32, u32) {
        self.who_if_any().expect("a daemon that answers")
    }

    fn who_if_any(&self) -> Option<(u32, u32)> {
        let told = self.insist(&["version", "--json"]).good().json();
        let pid = |of: &Value| u32::try_from(of["pid"].as_u64()?).ok();
        Some((pid(&told["keeper"])?, pid(&told["daemon"])?))
    }

    /// Kills the keeper and waits until its daemon, which is the next one, has started another daemon.
    pub fn kill_keeper(&self) {
        let (keeper, daemon) = self.who();
        proc::kill(keeper, "KILL");
        proc::await_gone(keeper);
        await_that("its daemon is the keeper now", || {
            self.who_if_any().is_some_and(|(keeper, _)| keeper == daemon)
        });
    }

    /// Kills the daemon and waits until its successor answers, whose process it gives.
    pub fn kill_daemon(&self) -> u32 {
        let (_, daemon) = self.who();
        proc::kill(daemon, "KILL");
        self.successor_of(daemon)
    }

    /// Waits until a daemon other than this one answers.
    pub fn successor_of(&self, daemon: u32) -> u32 {
        await_some("the next daemon", || Some(self.who().1).filter(|pid| *pid != daemon))
    }

    /// Kills keeper and daemon, and waits until both are gone.
    pub fn kill_both(&self) {
        let (keeper, daemon) = self.who();
        // Held first: each would put another in the other's place.
        for signal in ["STOP", "KILL"] {
            proc::kill(keeper, signal);
            proc::kill(daemon, signal);
        }
        proc::await_gone(keeper);
        proc::await_gone(daemon);
    }

    /// The test says itself what is left behind.
    pub fn may_leave_processes(&mut self) {
        self.may_leave = true;
    }

    /// Whatever has been said, for a test that failed.
    pub fn account(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(self.home().join(name)).unwrap_or_default();
        let events = Ran::to_end(self.command(&["events", "-n", "200"]));
        format!("events:\n{}{}keeper.log:\n{}", events.out, events.err, read("keeper.log"))
    }

    /// The processes that belong to this home: keeper, daemon, and whatever descends from a run.
    pub fn processes(&self) -> Vec<u32> {
        let home = self.home().display().to_string();
        let home_argument = format!("\0--home\0{home}\0");
        let mark = format!("DEFIB_SOCKET={home}/");
        proc::all()
            .filter(|pid| {
                proc::read(*pid, "cmdline").is_some_and(|text| proc::holds(&text, &home_argument))
                    || proc::read(*pid, "environ").is_some_and(|text| proc::holds(&text, &mark))
            })
            .filter(|pid| proc::lives(*pid))
            .collect()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let down = Ran::within(self.command(&["down", "--all"]), Duration::from_secs(30));
        let begin = Instant::now();
        let mut left = self.processes();
        while !left.is_empty() && begin.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
            left = self.processes();
        }
        let shown: Vec<String> = left.iter().map(|pid| proc::shown(*pid)).collect();
        let account = if left.is_empty() { String::new() } else { self.account() };
        while !left.is_empty() {
            // Each of the two may put another in the other's place: until none is left.
            for pid in left {
                proc::kill(pid, "KILL");
            }
            std::thread::sleep(Duration::from_millis(10));
            left = self.processes();
        }
        if std::thread::panicking() || self.may_leave {
            return;
        }
        assert!(down.is_some_and(|ran| ran.code == 0), "`down --all` did not work");
        assert!(shown.is_empty(), "left behind after `down --all`: {shown:#?}\n{account}");
    }
}

/// The process in a status.
pub fn pid_in(status: &Value) -> u32 {
    u32::try_from(status["pid"].as_u64().expect("a pid")).unwrap()
}

/// Words with single spaces; quotes hold one together.
fn split(script: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in script.split('\'').enumerate() {
        if at % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split(' ').filter(|word| !word.is_empty()).map(str::to_owned));
        }
    }
    words
}

/// Waits for something that nothing tells of.
pub fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    await_some(what, || holds().then_some(()));
}

/// Waits until there is something.
pub fn await_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < DEADLINE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A moment in our JSON, in milliseconds since 1970.
pub fn moment_ms(stamp: &Value) -> i64 {
    let text = stamp.as_str().unwrap_or_else(|| panic!("no time: {stamp}"));
    let told = Command::new("date").args(["-d", text, "+%s%3N"]).output().unwrap();
    String::from_utf8(told.stdout).unwrap().trim().parse().unwrap()
}

/// This moment, in milliseconds since 1970.
pub fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Checks that a text consists of the fake agent's numbered lines from 1 on, and gives how many.
pub fn whole_lines(text: &str) -> u64 {
    let mut count = 0;
    for line in text.lines() {
        count += 1;
        let expected = format!("line {count:010} of what an agent writes");
        assert_eq!(line, expected, "line {count}");
    }
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is whole");
    count
}
