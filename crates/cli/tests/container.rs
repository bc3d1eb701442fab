//! `defib up` as the first process of a container: the keeper is who is told to stop.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

mod common;

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use common::await_that;
use rustix::process::{Pid, Signal};

/// A process namespace of its own, with `defib up` as its first process.
struct Container {
    outside: Child,
    /// The first process, by its number out here.
    first: u32,
}

impl Container {
    /// Nothing where there can be none.
    fn start(folder: &Path, arguments: &[&str]) -> Option<Container> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root can make a process namespace");
            return None;
        }
        let said = File::options().create(true).append(true).open(folder.join("said")).unwrap();
        let mut outside = Command::new("unshare")
            .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
            .arg(assert_cmd::cargo::cargo_bin("defib"))
            .args(["--home", "h", "up"])
            .args(arguments)
            .current_dir(folder)
            .env("SECRET", "a-secret-of-the-container")
            .stdin(Stdio::null())
            .stdout(said.try_clone().unwrap())
            .stderr(said)
            .spawn()
            .unwrap();
        let id = outside.id();
        let children = format!("/proc/{id}/task/{id}/children");
        let mut first = None;
        await_that("a first process", || {
            let text = std::fs::read_to_string(&children).unwrap_or_default();
            first = text.trim().parse().ok();
            first.is_some() || outside.try_wait().unwrap().is_some()
        });
        Some(Container { outside, first: first.unwrap_or(0) })
    }

    /// Somebody from outside does something inside, as `kubectl exec` does.
    fn exec(&self, folder: &Path, arguments: &[&str]) -> Output {
        Command::new("nsenter")
            .args(["--target", &self.first.to_string(), "--pid", "--mount"])
            .arg(format!("--wd={}", folder.display()))
            .arg(assert_cmd::cargo::cargo_bin("defib"))
            .args(["--home", "h"])
            .args(arguments)
            .output()
            .unwrap()
    }

    fn read(&self, file: &str) -> String {
        let bytes = std::fs::read(format!("/proc/{}/{file}", self.first)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether the first process keeps TERM until somebody asks for it. Before it is ours (`defib`, and
    /// then `defib-keeper`) it is `unshare`, which does so too, for a moment.
    fn holds_term(&self) -> bool {
        let status = self.read("status");
        if !status.starts_with("Name:\tdefib") {
            return false;
        }
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        let blocked = blocked.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        blocked.is_some_and(|set| set & (1 << (Signal::TERM.as_raw() - 1)) != 0)
    }

    /// Stops it as a container is stopped, and says how it ended.
    fn stop(mut self) -> Option<i32> {
        let first = Pid::from_raw(i32::try_from(self.first).unwrap()).unwrap();
        rustix::process::kill_process(first, Signal::TERM).unwrap();
        self.end()
    }

    fn end(&mut self) -> Option<i32> {
        let mut code = None;
        await_that("the container ends", || {
            code = self.outside.try_wait().unwrap();
            code.is_some()
        });
        code.and_then(|code| code.code())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.outside.kill();
        let _ = self.outside.wait();
    }
}

/// An agent that says when it starts and when it is stopped.
fn agent(name: &str, settings: &str) -> String {
    format!(
        "[agent.{name}]\nshell = true\n{settings}\ncommand = \"trap 'echo -{name} >> told; exit 0' TERM; \
         echo +{name}$SECRET >> told; while :; do sleep 0.05; done\"\n"
    )
}

#[test]
fn term_to_the_container_stops_the_agents_in_order_and_they_come_back_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let told = || std::fs::read_to_string(path.join("told")).unwrap_or_default();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let file = agent("first", "env_pass = [\"SECRET\"]")
        + &agent("second", "after = [\"first\"]")
        + &agent("third", "");
    std::fs::write(path.join("defib.toml"), file).unwrap();
    let arguments = ["--file", "defib.toml", "--status-line", "1s"];
    let Some(container) = Container::start(path, &arguments) else { return };
    await_that("three agents run", || told().lines().count() == 3);
    assert!(told().contains("+firsta-secret-of-the-container\n"), "{}", told());
    assert!(container.read("cmdline").contains("keeper"), "{}", container.read("cmdline"));
    assert!(!container.read("environ").contains("a-secret"), "it is in the first process");
    let said = || std::fs::read_to_string(path.join("said")).unwrap();
    await_that("the front shows", || said().contains("first=RUNNING(0)"));
    // Whoever is let in from outside may do as an operator may.
    let output = container.exec(path, &["stop", "third"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    await_that("the third is stopped", || told().ends_with("-third\n"));

    std::fs::remove_file(path.join("told")).unwrap();
    assert_eq!(container.stop(), Some(0), "{}", said());
    assert_eq!(lines(&told()), ["-second", "-first"], "{}", said());

    std::fs::remove_file(path.join("told")).unwrap();
    let container = Container::start(path, &arguments).unwrap();
    await_that("two agents run", || told().lines().count() == 2);
    let output = container.exec(path, &["status", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let state = |name: &str| {
        let all = shown.as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap()["state"].clone()
    };
    assert_eq!(state("third"), "stopped", "what an operator stopped stays so");
    assert_ne!(state("first"), "stopped");
    assert!(!told().contains("third"), "{}", told());
    assert_eq!(container.stop(), Some(0));
}

#[test]
fn inside_of_the_container_agents_are_kin_however_they_fork_and_the_front_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let defib = assert_cmd::cargo::cargo_bin("defib");
    let home = path.join("h");
    let tries = format!("{} --home {} down", defib.display(), home.display());
    let file = format!(
        "[agent.rogue]\nshell = true\ncommand = \"{tries}; echo $? > child; \
         setsid -f sh -c 'sleep 0.2; {tries}; echo $? > orphan'; exec sleep 1000\"\n"
    );
    std::fs::write(path.join("defib.toml"), file).unwrap();
    let Some(container) = Container::start(path, &["--status-line", "1s"]) else { return };
    let read = |name: &str| std::fs::read_to_string(path.join(name)).unwrap_or_default();
    await_that("both have tried", || !read("child").is_empty() && !read("orphan").is_empty());
    assert_eq!((read("child").trim(), read("orphan").trim()), ("1", "1"));
    await_that("it runs on", || read("said").contains("rogue=RUNNING(0)"));
    // A daemon that came later knows the front too.
    let version = container.exec(path, &["version", "--json"]);
    let version: serde_json::Value = serde_json::from_slice(&version.stdout).unwrap();
    assert_eq!(version["keeper"]["pid"], 1);
    let daemon = version["daemon"]["pid"].to_string();
    let killed = Command::new("nsenter")
        .args(["--target", &container.first.to_string(), "--pid", "--mount", "kill", "-9", &daemon])
        .status();
    assert!(killed.unwrap().success());
    let before = read("said").len();
    await_that("the front shows on", || read("said")[before..].contains("rogue=RUNNING(0)"));
    assert_eq!(container.stop(), Some(0));
}

#[test]
fn a_container_that_is_stopped_while_it_starts_ends_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let many: String = (0..50).map(|number| agent(&format!("a{number}"), "")).collect();
    std::fs::write(path.join("defib.toml"), many).unwrap();
    for round in 0..6 {
        // The daemon of a new home, and one that brings back what it knows.
        if round % 2 == 0 {
            let _ = std::fs::remove_dir_all(path.join("h"));
        }
        let Some(container) = Container::start(path, &[]) else { return };
        await_that("TERM is held", || container.holds_term());
        assert_eq!(container.stop(), Some(0));
    }
    // Here it is for certain that TERM comes first: the file is given only after it.
    let text = std::fs::read(path.join("defib.toml")).unwrap();
    assert!(Command::new("mkfifo").arg(path.join("later")).status().unwrap().success());
    let container = Container::start(path, &["--file", "later", "--format", "defib"]).unwrap();
    await_that("TERM is held", || container.holds_term());
    let first = Pid::from_raw(i32::try_from(container.first).unwrap()).unwrap();
    rustix::process::kill_process(first, Signal::TERM).unwrap();
    std::fs::write(path.join("later"), text).unwrap();
    let mut container = container;
    assert_eq!(container.end(), Some(0));
}

#[test]
fn a_front_that_comes_when_the_container_is_stopped_already_does_not_hurry_the_agents() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let read = |name: &str| std::fs::read_to_string(path.join(name)).unwrap_or_default();
    // It takes its time when it is stopped, until somebody lets it go.
    let slow = "[project]\nname = \"old\"\n[agent.slow]\nshell = true\nstop_timeout = \"1h\"\ncommand = \
                \"trap 'echo stopping >> told; until [ -e go ]; do sleep 0.05; done; echo stopped >> told; \
                exit 0' TERM; echo started >> told; while :; do sleep 0.05; done\"\n";
    std::fs::write(path.join("defib.toml"), slow).unwrap();
    std::fs::write(path.join("go"), "").unwrap();
    let Some(container) = Container::start(path, &[]) else { return };
    await_that("it runs", || read("told") == "started\n");
    assert_eq!(container.stop(), Some(0));

    // The next container brings it back, though its front has yet to read what else is to come up.
    for name in ["told", "go"] {
        std::fs::remove_file(path.join(name)).unwrap();
    }
    assert!(Command::new("mkfifo").arg(path.join("later")).status().unwrap().success());
    let mut container = Container::start(path, &["--file", "later", "--format", "defib"]).unwrap();
    let other = "[project]\nname = \"new\"\n[agent.a]\ncommand = \"sleep 1000\"\n";
    std::fs::write(path.join("later"), other).unwrap();
    await_that("it runs again", || read("told") == "started\n");
    let first = Pid::from_raw(i32::try_from(container.first).unwrap()).unwrap();
    rustix::process::kill_process(first, Signal::TERM).unwrap();
    await_that("it is being stopped", || read("told").ends_with("stopping\n"));
    std::fs::write(path.join("later"), other).unwrap();
    await_that("the front is refused", || read("said").contains("the daemon is ending"));
    std::fs::write(path.join("go"), "").unwrap();
    assert_eq!(container.end(), Some(0), "{}", read("said"));
    assert_eq!(read("told"), "started\nstopping\nstopped\n", "{}", read("said"));
}

#[test]
fn a_container_whose_project_cannot_be_brought_up_ends_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let said = || std::fs::read_to_string(path.join("said")).unwrap();
    std::fs::write(path.join("defib.toml"), "[agent.a]\ncomand = \"x\"\n").unwrap();
    let Some(mut container) = Container::start(path, &[]) else { return };
    assert_eq!(container.end(), Some(3));
    assert_eq!(said().matches("1 error").count(), 1, "{}", said());
    // Another project of this home says otherwise about what is the daemon's.
    let sleeps = "\n[agent.a]\ncommand = \"sleep 1000\"\n";
    let one = format!("[project]\nname = \"one\"\n[history]\nkeep = \"30d\"{sleeps}");
    std::fs::write(path.join("defib.toml"), one).unwrap();
    let container = Container::start(path, &["--detach"]).unwrap();
    await_that("it is up", || said().contains("one is up"));
    assert_eq!(container.stop(), Some(0));
    let two = format!("[project]\nname = \"two\"\n[history]\nkeep = \"20d\"{sleeps}");
    std::fs::write(path.join("two.toml"), two).unwrap();
    let mut container = Container::start(path, &["-f", "two.toml"]).unwrap();
    assert_eq!(container.end(), Some(1), "{}", said());
    assert!(said().contains("error: "), "{}", said());
}

#[test]
fn on_a_terminal_ctrl_c_stops_the_container_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let told = || std::fs::read_to_string(path.join("told")).unwrap_or_default();
    std::fs::write(path.join("defib.toml"), agent("only", "")).unwrap();
    let has_script = Command::new("script").arg("--version").output().is_ok();
    if !rustix::process::geteuid().is_root() || !has_script {
        eprintln!("SKIPPED: this takes root, and `script` of util-linux");
        return;
    }
    let defib = assert_cmd::cargo::cargo_bin("defib");
    // The shell that `script` takes may be one that stays, hears of Ctrl-C too, and ends by it.
    let inside = format!(
        "exec unshare --pid --fork --mount-proc --kill-child {} --home h up",
        defib.display()
    );
    let mut terminal = Command::new("script")
        .args(["--quiet", "--return", "--command", &inside, "/dev/null"])
        .current_dir(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    await_that("the agent runs", || told() == "+only\n");
    let mut keys = terminal.stdin.take().unwrap();
    std::io::Write::write_all(&mut keys, b"\x03").unwrap();
    let mut ended = None;
    await_that("it ends", || {
        ended = terminal.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!((told().as_str(), ended.unwrap().code()), ("+only\n-only\n", Some(0)));
}
