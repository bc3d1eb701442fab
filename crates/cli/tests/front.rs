//! `defib up` in front: what signals do to it, whenever they come.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::await_that;
use rustix::process::{Pid, Signal};
use serde_json::Value;

fn defib(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("defib"));
    command.current_dir(folder).args(["--home", "h"]).args(arguments).stdin(Stdio::null());
    command
}

fn good(folder: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = defib(folder, arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    serde_json::from_slice(&good(folder, arguments)).unwrap()
}

/// Ends the daemon, also where the test did not.
struct Daemon<'d>(&'d Path);

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _ = defib(self.0, &["down", "--all"]).output();
    }
}

/// Whether a process does something of its own when this signal comes.
fn watches(process: &Child, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    caught.is_some_and(|set| set & (1 << (signal.as_raw() - 1)) != 0)
}

#[test]
fn term_stops_the_agents_of_an_up_in_front() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let file = "[agent.a]\nshell = true\nenv_pass = [\"SECRET\"]\n\
                command = \"trap 'echo ended >> told; exit 0' TERM; echo $SECRET > told; while :; do sleep 0.05; done\"\n";
    std::fs::write(path.join("defib.toml"), file).unwrap();
    let _daemon = Daemon(path);
    let mut front = defib(path, &["up", "--status-line", "1s"])
        .env("SECRET", "passed on")
        .stdout(File::create(path.join("said")).unwrap())
        .spawn()
        .unwrap();
    let told = || std::fs::read_to_string(path.join("told")).unwrap_or_default();
    await_that("the agent runs", || told() == "passed on\n");
    rustix::process::kill_process(Pid::from_child(&front), Signal::TERM).unwrap();
    assert!(front.wait().unwrap().success());
    assert_eq!(told(), "passed on\nended\n");
}

#[test]
fn an_interrupted_once_says_who_was_stopped_and_explains_only_who_had_failed_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let file = "[agent.a]\ncommand = \"sleep 1000\"\n[agent.b]\ncommand = \"sleep 1000\"\n\
                [agent.c]\nshell = true\ncommand = \"exit 3\"\n";
    std::fs::write(path.join("defib.toml"), file).unwrap();
    let _daemon = Daemon(path);
    // An earlier run of one that is stopped, which has nothing to do with it.
    good(path, &["up", "--detach"]);
    good(path, &["stop", "a"]);
    good(path, &["down"]);
    let front = defib(path, &["up", "--mode", "once"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    await_that("one has failed, two run", || {
        let Ok(output) = defib(path, &["status", "--json"]).output() else { return false };
        let shown: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let states = shown.as_array().into_iter().flatten().map(|one| one["state"].as_str());
        let states: Vec<&str> = states.flatten().collect();
        matches!(states[..], ["running", "running", "stopped" | "halted" | "crashed-out"])
    });
    rustix::process::kill_process(Pid::from_child(&front), Signal::INT).unwrap();
    let ended = front.wait_with_output().unwrap();
    let (said, complained) =
        (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert_eq!(ended.status.code(), Some(1), "{complained}");
    assert!(complained.contains("interrupted: a, b were stopped"), "{complained}");
    assert!(!complained.contains("above is why"), "{complained}");
    assert!(said.contains("exited with code 3"), "{said}");
    assert!(!said.contains("a is running.") && !said.contains("b is running."), "{said}");
}

#[test]
fn an_up_in_front_that_nobody_reads_any_more_detaches() {
    for arguments in [&["up", "--status-line", "1s"][..], &["up"]] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::write(path.join("defib.toml"), "[agent.a]\ncommand = \"sleep 1000\"\n").unwrap();
        let _daemon = Daemon(path);
        let mut front = defib(path, arguments)
            .stdout(Stdio::piped())
            .stderr(File::create(path.join("complained")).unwrap())
            .spawn()
            .unwrap();
        // As `head -1` does it.
        let mut line = String::new();
        BufReader::new(front.stdout.take().unwrap()).read_line(&mut line).unwrap();
        await_that("it ends", || front.try_wait().unwrap().is_some());
        assert_eq!(front.wait().unwrap().code(), Some(0), "{arguments:?}");
        assert_eq!(std::fs::read_to_string(path.join("complained")).unwrap(), "");
        let shown = json(path, &["status", "--json"]);
        assert_eq!(shown[0]["goal"], "up", "it runs on: {shown}");
    }
}

#[test]
fn a_demo_that_nobody_reads_any_more_ends_before_its_first_act_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = defib(folder.path(), &["demo"])
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(demo.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("Six agents come up") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it said nothing");
    }
    drop(said);
    await_that("it ends", || demo.try_wait().unwrap().is_some());
    assert_eq!(demo.wait().unwrap().code(), Some(0));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn a_signal_that_comes_before_the_project_is_up_takes_it_down_as_one_after_it_does() {
    for (signal, arguments, code) in [
        (Signal::TERM, vec!["up"], 0),
        (Signal::INT, vec!["up"], 0),
        (Signal::TERM, vec!["up", "--mode", "once"], 1),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let other = "[project]\nname = \"other\"\n[agent.b]\ncommand = \"sleep 1000\"\n";
        std::fs::write(path.join("other.toml"), other).unwrap();
        std::fs::write(path.join("defib.toml"), "[agent.a]\ncommand = \"sleep 1000\"\n").unwrap();
        let _daemon = Daemon(path);
        good(path, &["up", "--detach", "-f", "other.toml"]);
        let pid = json(path, &["version", "--json"])["daemon"]["pid"].as_i64().unwrap();
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        // A daemon that answers nobody has brought up nothing.
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
        let mut front = defib(path, &arguments).stdout(Stdio::null()).spawn().unwrap();
        await_that("it watches for signals", || watches(&front, signal));
        rustix::process::kill_process(Pid::from_child(&front), signal).unwrap();
        rustix::process::kill_process(pid, Signal::CONT).unwrap();
        let ended = front.wait().unwrap();
        assert_eq!(ended.code(), Some(code), "{signal:?} {arguments:?}");
        let shown = json(path, &["status", "--json"]);
        let state = |name: &str| {
            let found = shown.as_array().unwrap().iter().find(|one| one["name"] == name);
            found.map(|one| one["state"].clone())
        };
        assert!(state("a").is_none_or(|state| state == "stopped"), "{shown}");
        assert_eq!(state("b").unwrap(), "running", "{shown}");
    }
}
