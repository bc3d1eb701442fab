//! Agents with `isolation = "namespaces"`.
//!
//! A machine that does not permit user namespaces cannot run most of these tests: they print that and return. Tests
//! of a plain user need root, to make that user.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use defib_e2e::plain::PlainDaemon;
use defib_e2e::{await_that, defib_path, proc};
use serde_json::Value;

use crate::{FAKE_AGENT, bench};

fn is_possible() -> bool {
    let possible = std::process::Command::new("/usr/bin/unshare")
        .args([
            "--user",
            "--map-current-user",
            "--mount",
            "--pid",
            "--fork",
            "--mount-proc",
            "true",
        ])
        .status();
    let possible = possible.is_ok_and(|status| status.success());
    if !possible {
        println!("not run: this machine does not permit user namespaces");
    }
    possible
}

fn isolated(tokens: &[&str], settings: &str) -> String {
    format!("isolation = \"namespaces\"\ncapabilities = {}\n{settings}", Value::from(tokens))
}

/// A shell as an agent, with the tokens that a shell needs.
fn shell(name: &str, line: &str, tokens: &[&str], settings: &str) -> String {
    let mut all = vec!["exec:/bin", "exec:/usr/bin", "subprocess"];
    all.extend(tokens);
    let command = Value::from(&["/bin/sh", "-c", line][..]);
    format!("[agent.{name}]\ncommand = {command}\n{}\n", isolated(&all, settings))
}

/// The processes whose command line has this text.
fn with_text(text: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(text)).count()
}

#[test]
fn an_agent_sees_the_named_files_its_own_processes_and_an_empty_network() {
    if !is_possible() {
        return;
    }
    let bench = bench();
    for (folder, file) in [("named", "named/file"), ("other", "other/file"), ("out", "out/file")] {
        fs::create_dir(bench.file(folder)).unwrap();
        fs::write(bench.file(file), folder).unwrap();
    }
    let line = "cat named/file other/file; echo; ls; echo new > out/new && cat out/file; chmod 600 out/file && echo \
                changed; cat /proc/[0-9]*/comm; cat /proc/net/dev | wc -l; test -e /home && echo home; echo seen";
    let tokens = ["read:named", "read:out", "write:out"];
    bench.up(&[shell("a", line, &tokens, "restart = \"never\"\n")]);
    let log = bench.await_log("a", |log| log.contains("seen"));
    assert!(log.contains("named") && !log.contains("other\n"), "{log}");
    assert!(log.contains("other/file: No such file"), "{log}");
    assert!(
        log.contains("changed") && fs::read_to_string(bench.file("out/new")).unwrap() == "new\n",
        "{log}"
    );
    let processes =
        log.lines().filter(|line| ["sh", "cat", "defib-confine"].contains(line)).count();
    assert!(processes >= 2 && !log.contains("systemd") && !log.contains("defib-keeper"), "{log}");
    // Two lines of titles, and one interface: its own loopback.
    assert!(log.lines().any(|line| line == "3") && !log.contains("home\n"), "{log}");
}

#[test]
fn a_run_ends_with_the_exit_code_or_the_signal_of_its_program() {
    if !is_possible() {
        return;
    }
    let bench = bench();
    let never = isolated(&[], "restart = \"never\"");
    let events = bench.up(&[
        bench.agent("code", "exit 37", &never),
        bench.agent("signal", "signal ABRT", &never),
        format!("[agent.lost]\ncommand = [\"/nowhere\"]\n{never}\n"),
    ]);
    assert_eq!(events.of("code", "run-died")["exit_code"], 37);
    assert_eq!(events.of("signal", "run-died")["signal"], "SIGABRT");
    assert_eq!(events.of("lost", "run-died")["exit_code"], 127);
}

#[test]
fn an_agent_has_its_terminal_beats_is_ready_and_speaks_for_itself() {
    if !is_possible() {
        return;
    }
    let bench = bench();
    let defib = defib_path().display().to_string();
    let script =
        format!("tty beat notify READY=1 run '{defib} self status fine' print said forever");
    let settings = "pty = true\nready = \"notify\"\nheartbeat = { ttl = \"10m\" }";
    let tokens = ["subprocess".to_owned(), format!("exec:{defib}")];
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let events = bench.up(&[bench.agent("a", &script, &isolated(&tokens, settings))]);
    events.of("a", "run-ready");
    let log = bench.await_log("a", |log| log.contains("said"));
    assert!(log.contains("terminal /dev/pts/") && log.contains("ran 0"), "{log}");
    assert_eq!(bench.status("a")["status_text"], "fine");
}

#[test]
fn stop_and_signals_reach_the_program_and_everything_dies_with_the_run_and_the_keeper() {
    if !is_possible() {
        return;
    }
    let mut bench = bench();
    bench.may_leave_processes();
    let mark = format!("{}/marked", bench.project().display());
    let line = format!(
        "trap 'echo asked; exit 5' TERM; (setsid /bin/sh -c 'sleep 1000; : {mark}' &); echo up; while :; do sleep 0.05; done"
    );
    let events = bench.up(&[shell("a", &line, &[], ""), shell("b", &line, &[], "")]);
    bench.await_log("a", |log| log.contains("up"));
    bench.await_log("b", |log| log.contains("up"));
    bench.defib(&["stop", "a"]).good();
    let died = events.of("a", "run-died");
    assert_eq!(
        (&died["exit_code"], &died["class"]),
        (&Value::from(5), &Value::from("stopped")),
        "{died}"
    );
    assert!(bench.log("a").contains("asked"));
    let pid = bench.pid("b");
    bench.kill_daemon();
    assert_eq!(bench.pid("b"), pid, "a new daemon has the same run");
    bench.defib(&["stop", "b"]).good();
    await_that("the end of every process", || with_text(&mark) == 0);
    bench.defib(&["start", "b"]).good();
    bench.await_log("b", |log| log.matches("up\n").count() == 2);
    let first = bench.pid("b");
    proc::kill(first, "KILL");
    await_that("the end of the killed run", || !fs::exists(format!("/proc/{first}/cwd")).unwrap());
    events.of_run("b", 3, "run-started");
    bench.kill_both();
    await_that("the end of every process", || with_text(&mark) == 0);
}

#[test]
fn an_exec_probe_runs_in_namespaces_as_well() {
    if !is_possible() {
        return;
    }
    let bench = bench();
    fs::write(bench.file("secret"), "x").unwrap();
    fs::create_dir(bench.file("out")).unwrap();
    let probe = "{ ls /proc | grep -c ^[0-9]; cat secret 2>&1; } > out/new; mv out/new out/seen";
    let settings = format!(
        "probe = {{ exec = {}, every = \"100ms\" }}\n",
        Value::from(&["/bin/sh", "-c", probe][..])
    );
    bench.up(&[shell("a", "sleep 1000", &["write:out"], &settings)]);
    await_that("a probe", || fs::exists(bench.file("out/seen")).unwrap());
    let seen = fs::read_to_string(bench.file("out/seen")).unwrap();
    let (count, secret) = seen.split_once('\n').unwrap();
    assert!(count.parse::<u32>().unwrap() < 8 && secret.contains("No such file"), "{seen}");
}

#[test]
fn an_agent_of_a_plain_user_has_namespaces_and_cannot_touch_the_home() {
    if !is_possible() {
        return;
    }
    let Some(user) = PlainDaemon::new() else { return };
    let home = user.at("h").display().to_string();
    let line = format!(
        "chmod 000 {home}; ls {home}; touch w/new && chmod 600 w/new && echo changed; cat /proc/1/comm; echo tried; sleep 1000"
    );
    user.config(&shell("a", &line, &["write:w"], ""));
    user.defib(&["up", "--detach"]).good();
    let log = user.await_log("a", |log| log.contains("tried"));
    assert!(log.contains("changed\ndefib-confine\n"), "{log}");
    assert!(user.defib(&["status"]).good().out.contains("running"));
    assert_eq!(fs::metadata(&home).unwrap().permissions().mode() & 0o777, 0o700);
}

/// A program that runs another in a user namespace of the same user in which no other namespace may be made.
const WITHOUT_NAMESPACES: [&str; 6] =
    ["/usr/bin/unshare", "--user", "--map-current-user", "--keep-caps", "/bin/sh", "-c"];
const LIMITED: &str = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --inh-caps=-all \
                       --ambient-caps=-all \"$0\" \"$@\"";

/// Goal: where user namespaces are not permitted, an agent that asks for them is not started, and everything says
/// why; an agent that may write and is confined by Landlock runs, and the daemon restores the mode of its home.
/// Method: keeper and daemon run in a user namespace in which no other may be made.
#[test]
fn without_user_namespaces_the_agent_is_not_started_and_status_why_check_and_caps_say_so() {
    if !is_possible() {
        return;
    }
    let Some(user) = PlainDaemon::new() else { return };
    let agent = user.copy(FAKE_AGENT).display().to_string();
    let home = user.at("h").display().to_string();
    user.config(&format!(
        "[agent.a]\ncommand = [\"{agent}\", \"forever\"]\n{}\n[agent.b]\ncommand = [\"/bin/sh\", \"-c\", \
         \"chmod 000 {home}; echo tried; sleep 1000\"]\ncapabilities = [\"write:w\", \"exec:/bin\", \
         \"exec:/usr/bin\", \"subprocess\"]\n",
        isolated(&[], "")
    ));
    let limited: Vec<&str> = WITHOUT_NAMESPACES.into_iter().chain([LIMITED]).collect();
    let checked = user.defib_by(&limited, &["check"]).good();
    assert!(checked.err.contains("a will not start"), "{checked:?}");
    let up = user.defib_by(&limited, &["up", "--detach"]);
    let why = user.defib(&["why", "a"]);
    assert!(why.out.contains("user namespaces"), "{up:?} {why:?}");
    let status = user.defib(&["status", "a", "--json"]).good().json();
    let status = status.as_array().map_or(&status, |all| &all[0]);
    assert!(status["pid"].is_null() && status["state"] != "running", "{status}");
    let caps = user.defib(&["caps", "a"]).good();
    assert!(caps.out.contains("does not permit this user to make user namespaces"), "{caps:?}");
    user.await_log("b", |log| log.contains("tried"));
    let mode = || fs::metadata(&home).map(|found| found.permissions().mode() & 0o777).unwrap();
    await_that("the mode of the home", || mode() == 0o700);
    let caps = user.defib(&["caps", "b"]).good();
    assert!(caps.out.contains("this machine does not permit mount namespaces"), "{caps:?}");
}
