//! Commands that defib runs on behalf of an agent run as that agent: exec probes.
//!
//! Some tests need root, because only root can give an agent another user. Without root they print that and
//! return.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use defib_e2e::{Bench, Ran, await_some, await_that, pid_in, proc};
use serde_json::Value;

use crate::bench;

/// Numbers that no user of the machine has.
const USER: u32 = 61_234;
const GROUP: u32 = 61_235;

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let root = status.lines().any(|line| line.starts_with("Uid:\t0\t"));
    if !root {
        eprintln!("not run: only root can give an agent another user");
    }
    root
}

/// Lets everybody into the project's folder, and nobody into the daemon's home.
fn open_to_all(bench: &Bench) {
    let project = bench.project();
    for (folder, mode) in [(project.parent().unwrap(), 0o755), (&project, 0o777)] {
        std::fs::set_permissions(folder, PermissionsExt::from_mode(mode)).unwrap();
    }
}

/// A TOML list of a shell and what it does.
fn shell(script: &str) -> String {
    format!("[\"/bin/sh\", \"-c\", {}]", Value::from(script))
}

/// An agent that only sleeps, with these settings.
fn sleeper(settings: &str) -> String {
    format!("[agent.a]\ncommand = [\"/bin/sleep\", \"100000\"]\n{settings}\n")
}

/// The lines of a file, once it is there and whole.
fn await_lines(file: &str, count: usize) -> Vec<String> {
    await_some(&format!("{count} lines in {file}"), || {
        let text = std::fs::read_to_string(file).ok()?;
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        (text.ends_with('\n') && lines.len() >= count).then_some(lines)
    })
}

/// A script that shows who runs it, as one file that appears whole.
const SHOW: &str = "{ id -u; id -g; id -G; umask; ulimit -n; pwd; echo $DEFIB_AGENT; \
                    echo $DEFIB_RUN_KEY; } > seen.new && mv seen.new seen";

/// A script that hangs, with a child that left its session and its parent. Adds both process ids to `pids`.
const HANG: &str = "(setsid /bin/sh -c 'echo $$ >> orphans; exec sleep 100000' &); \
                    until test -s orphans; do sleep 0.05; done; echo $$ >> pids; exec sleep 100000";

fn first_pid(file: &str) -> u32 {
    await_lines(file, 1)[0].parse().unwrap()
}

/// Removes `seen` and waits until the next probe has made it again.
fn seen_anew(bench: &Bench) -> Vec<String> {
    let file = bench.file("seen");
    let _ = std::fs::remove_file(&file);
    await_lines(&file, 8)
}

#[test]
fn probe_has_the_user_marks_limits_umask_and_folder_of_its_agent_under_every_daemon() {
    if !is_root() {
        return;
    }
    let bench = bench();
    open_to_all(&bench);
    let settings = format!(
        "user = \"{USER}:{GROUP}\"\numask = \"027\"\nlimits_os = {{ files = 77 }}\nready = \"probe\"\n\
         probe = {{ exec = {}, every = \"100ms\", timeout = \"60s\", failures = 3 }}",
        shell(SHOW)
    );
    let events = bench.up(&[sleeper(&settings)]);
    events.of("a", "run-ready");
    let before = seen_anew(&bench);
    let folder = bench.project().canonicalize().unwrap().display().to_string();
    let (user, group) = (USER.to_string(), GROUP.to_string());
    let expected = [&user, &group, &group, "0027", "77", &folder, "a"];
    assert_eq!(before[..7], expected, "{before:?}");
    assert!(before[7].contains("a/1/"), "{before:?}");
    bench.kill_daemon();
    assert_eq!(seen_anew(&bench)[..7], expected, "under the next daemon");
    assert_eq!(bench.await_state("a", "running")["run"], 1);
}

/// The attack: an agent rewrites the script that its own probe runs. The script then tries to become root,
/// and to read and write outside of the agent's sandbox.
#[test]
fn rewritten_probe_script_gets_neither_root_nor_out_of_the_sandbox() {
    if !is_root() {
        return;
    }
    let bench = bench();
    open_to_all(&bench);
    let outside = bench.project().parent().unwrap().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::set_permissions(&outside, PermissionsExt::from_mode(0o777)).unwrap();
    let (secret, planted) = (outside.join("secret"), outside.join("planted"));
    std::fs::write(&secret, "x\n").unwrap();
    let health = bench.file("health.sh");
    std::fs::write(&health, "#!/bin/sh\nexit 0\n").unwrap();
    std::fs::set_permissions(&health, PermissionsExt::from_mode(0o755)).unwrap();
    chown(&health, Some(USER), Some(GROUP)).unwrap();
    let attack = format!(
        "#!/bin/sh\n{{ id -u; (read word < {}) 2> /dev/null && echo read || echo unread; \
         (echo x > {}) 2> /dev/null && echo wrote || echo unwritten; }} > tried.new\nmv tried.new tried\n",
        secret.display(),
        planted.display()
    );
    std::fs::write(bench.file("attack.sh"), attack).unwrap();
    let settings = format!(
        "user = \"{USER}:{GROUP}\"\ncapabilities = [\"write:.\", \"read:.\", \"exec:/usr/bin\", \
         \"exec:/bin\", \"subprocess\"]\n\
         probe = {{ exec = [\"./health.sh\"], every = \"100ms\", timeout = \"60s\", failures = 1000 }}"
    );
    let command = shell("cat attack.sh > health.sh; exec sleep 100000");
    bench.up(&[format!("[agent.a]\ncommand = {command}\n{settings}\n")]);
    let tried = await_lines(&bench.file("tried"), 3);
    assert_eq!(tried[0], USER.to_string(), "{tried:?}");
    // A kernel without Landlock cannot hold the agent itself to its paths either.
    let caps = bench.defib(&["caps", "a"]);
    if std::fs::read_to_string("/sys/kernel/security/lsm")
        .is_ok_and(|all| !all.contains("landlock"))
    {
        eprintln!("paths not checked: no Landlock here\n{}", caps.out);
        return;
    }
    assert_eq!(tried[1..], ["unread", "unwritten"], "{}", caps.out);
    assert!(!planted.exists());
}

/// Checks that a probe that hangs is killed at its deadline with all that it started, and that the agent
/// lives on.
fn assert_hanging_probe_is_killed_whole(bench: &Bench, status: &dyn Fn() -> Value) {
    let (first, orphan) = (first_pid(&bench.file("pids")), first_pid(&bench.file("orphans")));
    proc::await_gone(first);
    proc::await_gone(orphan);
    let status = status();
    assert_eq!(status["run"], 1, "{status}");
    assert!(proc::lives(pid_in(&status)), "{status}");
}

const HANGING: &str = "every = \"1s\", timeout = \"5s\", failures = 100000";

#[test]
fn hanging_probe_is_killed_whole_at_its_deadline_and_its_agent_lives_on() {
    let bench = bench();
    let settings = format!("probe = {{ exec = {}, {HANGING} }}", shell(HANG));
    bench.up(&[sleeper(&settings)]);
    assert_hanging_probe_is_killed_whole(&bench, &|| bench.await_state("a", "running"));
}

#[test]
fn probe_dies_with_its_run() {
    let bench = bench();
    let probe =
        format!("{{ exec = {}, every = \"1s\", timeout = \"1h\", failures = 3 }}", shell(HANG));
    let settings = format!("probe = {probe}\nrestart = \"always\"");
    let events = bench.up(&[sleeper(&settings)]);
    let (first, orphan) = (first_pid(&bench.file("pids")), first_pid(&bench.file("orphans")));
    proc::kill(bench.pid("a"), "KILL");
    events.of("a", "run-died");
    // The end of a run is reported when nothing of it is left, and its probe belongs to it.
    assert!(!proc::lives(first), "the probe's first process outlived its run");
    assert!(!proc::lives(orphan), "the probe's orphan outlived its run");
    let second = await_lines(&bench.file("pids"), 2)[1].parse().unwrap();
    bench.defib(&["stop", "a"]).good();
    proc::await_gone(second);
    bench.await_state("a", "stopped");
}

#[test]
fn probe_of_a_removed_setting_is_killed_at_once() {
    let bench = bench();
    let probe =
        format!("{{ exec = {}, every = \"1s\", timeout = \"1h\", failures = 3 }}", shell(HANG));
    bench.up(&[sleeper(&format!("probe = {probe}"))]);
    let first = first_pid(&bench.file("pids"));
    let pid = bench.pid("a");
    bench.declare(&[sleeper("")]);
    bench.defib(&["reload"]).good();
    proc::await_gone(first);
    assert_eq!(bench.pid("a"), pid);
}

#[test]
fn busy_probe_is_not_a_sign_of_life_of_its_agent() {
    let bench = bench();
    let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let settings = format!(
        "hang = {{ silent_for = \"2s\" }}\nrestart = \"never\"\n\
         probe = {{ exec = {}, every = \"100ms\", timeout = \"60s\", failures = 100000 }}",
        shell(busy)
    );
    let events = bench.up(&[sleeper(&settings)]);
    let died = events.of("a", "run-died");
    assert_eq!(died["class"], "timeout", "{died}");
    assert!(died["evidence"].as_str().unwrap().contains("no output, CPU time"), "{died}");
}

#[test]
fn older_keeper_runs_no_probe_and_status_why_and_check_say_how_to_replace_it() {
    let mut bench = bench();
    bench.set("DEFIB_TEST_KEEPER_VERSION", "6");
    let settings = "probe = { exec = [\"/bin/sh\", \"-c\", \"echo x >> ran\"], every = \"100ms\" }";
    bench.up(&[sleeper(settings)]);
    if !defib_e2e::defib_path().components().any(|part| part.as_os_str() == "debug") {
        eprintln!("not run: only a debug build announces an older keeper");
        return;
    }
    assert_eq!(bench.look("/api/v1/daemon").json()["keeper_protocol"], 6);
    let status = bench
        .await_status("a", |status| status["uptime_s"].as_f64().is_some_and(|uptime| uptime > 2.0));
    assert_eq!(status["state"], "running", "{status}");
    assert_eq!(status["reason"], "exec probe not run, the keeper is too old", "{status}");
    for arguments in [&["status"][..], &["why", "a"], &["check"]] {
        let ran = bench.defib(arguments).good();
        let told = format!("{}{}", ran.out, ran.err);
        assert!(told.contains("keeper must be restarted"), "{arguments:?}: {told}");
        assert!(told.contains("`defib down --all && defib up`"), "{arguments:?}: {told}");
    }
    assert!(!Path::new(&bench.file("ran")).exists(), "the probe ran");
    // With a new keeper the probe runs, and nothing is said.
    bench.defib(&["down", "--all"]).good();
    bench.unset("DEFIB_TEST_KEEPER_VERSION");
    bench.defib(&["up", "--detach"]).good();
    await_that("the probe runs", || Path::new(&bench.file("ran")).exists());
    let ran = bench.defib(&["check"]).good();
    assert!(!format!("{}{}", ran.out, ran.err).contains("keeper"), "{ran:?}");
}

/// A daemon of a plain user, in a home of its own. `None`, and said aloud, if there cannot be one.
struct Plain {
    bench: Bench,
    program: String,
}

impl Plain {
    fn new() -> Option<Plain> {
        if !is_root() {
            return None;
        }
        let bench = bench();
        open_to_all(&bench);
        let root = bench.project().parent().unwrap().to_owned();
        chown(&root, Some(USER), Some(GROUP)).unwrap();
        chown(bench.project(), Some(USER), Some(GROUP)).unwrap();
        // The build's own folder may be shut to others.
        let program = root.join("defib").display().to_string();
        std::fs::copy(defib_e2e::defib_path(), &program).unwrap();
        let plain = Plain { bench, program };
        if Command::new("setpriv").arg("--version").output().is_err() {
            eprintln!("not run: there is no setpriv here");
            return None;
        }
        Some(plain)
    }

    fn defib(&self, arguments: &[&str]) -> Ran {
        let model = self.bench.command(arguments);
        let mut command = Command::new("setpriv");
        let (user, group) = (format!("--reuid={USER}"), format!("--regid={GROUP}"));
        command.args([&user, &group, "--clear-groups", "--", &self.program]).args(arguments);
        command.current_dir(self.bench.project()).stdin(std::process::Stdio::null());
        for (name, value) in model.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Ran::to_end(command)
    }

    fn status(&self) -> Value {
        self.defib(&["status", "--json", "a"]).good().json()[0].clone()
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.defib(&["down", "--all"]);
    }
}

#[test]
fn plain_users_daemon_runs_probes_as_that_user_and_kills_them_whole() {
    let Some(plain) = Plain::new() else { return };
    let bench = &plain.bench;
    let script = format!("{SHOW}; {HANG}");
    bench.declare(&[sleeper(&format!("probe = {{ exec = {}, {HANGING} }}", shell(&script)))]);
    plain.defib(&["up", "--detach"]).good();
    let seen = await_lines(&bench.file("seen"), 8);
    let (user, group) = (USER.to_string(), GROUP.to_string());
    assert_eq!(seen[..3], [user, group.clone(), group], "{seen:?}");
    assert_eq!(seen[6], "a");
    assert!(seen[7].contains("a/1/"), "{seen:?}");
    assert_hanging_probe_is_killed_whole(bench, &|| plain.status());
}
