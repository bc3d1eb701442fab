//! What an agent is given, what it is never given, and what is said when something is missing.

use std::collections::BTreeMap;

use defib_e2e::{field, pid_in, proc};

use crate::bench;

fn variables(log: &str) -> BTreeMap<String, String> {
    let pairs = log.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn an_agent_gets_a_clean_base_what_is_passed_and_what_defib_tells_it() {
    let mut bench = bench();
    for (name, value) in [
        ("CLAUDECODE", "1"),
        ("CLAUDE_CODE_CHILD_SESSION", "1"),
        ("CLAUDE_OTHER", "kept"),
        ("NOT_NAMED", "never"),
        ("NAMED", "n"),
        ("HTTPS_PROXY", "p"),
        ("GITHUB_TOKEN", "t"),
        ("GITHUB_TOKEN_ADMIN", "never"),
        ("LC_ALL", "C"),
        ("TZ", "UTC"),
    ] {
        bench.set(name, value);
    }
    std::fs::write(bench.project().join(".env"), "# note\nexport FROM_FILE=\"f\"\nBOTH=file\n")
        .unwrap();
    let settings = "env = { BOTH = \"env\", PLAIN = \"x\" }\nenv_pass = [\"NAMED\", \"*_PROXY\", \"CLAUDE*\", \"GITHUB_TOKEN?\", \"NOT_SET?\"]\nenv_file = \".env\"";
    let script = "environ print ready fail-until 2 times forever";
    let events = bench.up(&[bench.agent("a", script, settings)]);
    events.of_run("a", 2, "run-ready");
    bench.await_log("a", |log| log.matches("ready").count() == 2);
    let of_run = |run: &str| variables(&bench.defib(&["logs", "--run", run, "a"]).good().out);
    let (first, second) = (of_run("1"), of_run("2"));
    let state = bench.home().join("state/a");
    let text = |path: std::path::PathBuf| path.display().to_string();
    for (name, value) in [
        ("NAMED", "n"),
        ("HTTPS_PROXY", "p"),
        ("CLAUDE_OTHER", "kept"),
        ("GITHUB_TOKEN", "t"),
        ("FROM_FILE", "f"),
        ("BOTH", "env"),
        ("PLAIN", "x"),
        ("LC_ALL", "C"),
        ("TZ", "UTC"),
        ("DEFIB_AGENT", "a"),
        ("DEFIB_MODE", "continuous"),
        ("DEFIB_STATE_DIR", &text(state.clone())),
        ("DEFIB_HEARTBEAT_FILE", &text(state.join("heartbeat"))),
        ("DEFIB_SOCKET", &text(bench.home().join("defib.sock"))),
    ] {
        for run in [&first, &second] {
            assert_eq!(run.get(name).map(String::as_str), Some(value), "{name}");
        }
    }
    for name in [
        "CLAUDECODE",
        "CLAUDE_CODE_CHILD_SESSION",
        "NOT_NAMED",
        "GITHUB_TOKEN_ADMIN",
        "NOT_SET",
        "NO_COLOR",
        "DEFIB_HOME",
        "DEFIB_KEEPER_FD",
    ] {
        assert_eq!(first.get(name), None, "{name}");
    }
    let told = |run: &BTreeMap<String, String>| {
        ["DEFIB_RUN", "DEFIB_RESTARTS", "DEFIB_LAST_CLASS", "DEFIB_LAST_EXIT"]
            .map(|name| run[name].clone())
    };
    assert_eq!(told(&first), ["1", "0", "", ""]);
    assert_eq!(told(&second), ["2", "1", "error", "1"]);
    assert!(state.is_dir(), "it is there before the agent is");
}

#[test]
fn the_state_folder_is_kept_across_runs() {
    let bench = bench();
    let line = "[agent.a]\ncommand = [\"/bin/sh\", \"-c\", \"echo x >> $DEFIB_STATE_DIR/own; cat $DEFIB_STATE_DIR/own | wc -l; sleep 1000\"]\n";
    let events = bench.up(&[line.to_owned()]);
    bench.await_log("a", |log| log.contains('1'));
    proc::kill(bench.pid("a"), "KILL");
    events.of_run("a", 2, "run-ready");
    bench.await_log("a", |log| log == "1\n2\n");
}

#[test]
fn a_variable_that_is_missing_halts_that_agent_with_a_reason_that_names_it() {
    let mut bench = bench();
    bench.declare(&[
        bench.agent("needs", "env NEEDED_KEY forever", "env_pass = [\"NEEDED_KEY\"]"),
        bench.agent("other", "forever", ""),
    ]);
    let up = bench.defib(&["up", "--detach"]).good();
    assert!(up.err.contains("needs") && up.err.contains("NEEDED_KEY"), "{up:?}");
    bench.await_state("other", "running");
    let status = bench.await_state("needs", "halted");
    assert_eq!(status["last_death"]["class"], "config");
    assert!(status["last_death"]["evidence"].as_str().unwrap().contains("NEEDED_KEY"), "{status}");
    let why = bench.defib(&["why", "needs"]).good();
    assert!(why.out.contains("NEEDED_KEY"), "{}", why.out);
    bench.defib(&["start", "needs"]).bad(6);
    // Once it is set, `up` is all that is needed.
    bench.set("NEEDED_KEY", "now it is");
    bench.defib(&["up", "--detach"]).good();
    bench.await_state("needs", "running");
    bench.await_log("needs", |log| log.contains("NEEDED_KEY=now it is"));
}

#[test]
fn a_pipe_that_nobody_writes_to_holds_up_nobody_wherever_a_file_was_expected() {
    let bench = bench();
    for name in [".env", "beat"] {
        pipe(&bench.project().join(name));
    }
    bench.declare(&[
        bench.agent("a", "forever", "env_file = \".env\""),
        bench.agent(
            "b",
            "forever",
            "heartbeat = { file = \"beat\", ttl = \"1h\" }\ncapabilities = [\"workspace_rw\"]",
        ),
        bench.agent("other", "forever", ""),
    ]);
    let up = bench.defib(&["up", "--detach"]).good();
    assert!(up.err.contains("a: its env_file") && up.err.contains("no regular file"), "{up:?}");
    bench.await_state("other", "running");
    bench.await_state("b", "running");
    let status = bench.await_state("a", "halted");
    let evidence = status["last_death"]["evidence"].as_str().unwrap();
    assert!(evidence.contains(".env") && evidence.contains("no regular file"), "{status}");
    let why = bench.defib(&["why", "a"]).good().out;
    assert!(why.contains("copy what it gives"), "{why}");
    // A run that has its variables is taken over by the next daemon, whatever has become of the file.
    let file = bench.project().join(".env");
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, "KEY=value\n").unwrap();
    bench.defib(&["revive", "a"]).good();
    let pid = bench.pid("a");
    std::fs::remove_file(&file).unwrap();
    pipe(&file);
    bench.kill_daemon();
    assert_eq!(bench.pid("a"), pid);
    proc::kill(bench.pid("other"), "KILL");
    bench.await_status("other", |status| status["run"] == 2 && status["state"] == "running");
}

#[test]
fn a_project_s_file_that_has_become_a_pipe_keeps_no_daemon_from_starting() {
    let bench = bench();
    bench.up(&[bench.agent("a", "forever", "")]);
    bench.kill_both();
    let file = bench.project().join("defib.toml");
    std::fs::remove_file(&file).unwrap();
    pipe(&file);
    bench.defib(&["run", "--name", "other", "--", "sleep", "1000"]).good();
    bench.await_state("other", "running");
    let said = std::fs::read_to_string(bench.home().join("keeper.log")).unwrap();
    assert!(said.contains("no regular file"), "{said}");
}

/// Makes a pipe that nobody writes to.
fn pipe(path: &std::path::Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

#[test]
fn what_env_pass_brings_is_shown_and_stored_nowhere() {
    let mut bench = bench();
    let secrets =
        ["sk-ant-0123456789abcdef", "AbCd/EfGh+012345/67==", "postgres://u:p4ssw0rd@host/db"];
    for (name, secret) in ["KEY_A", "KEY_B", "KEY_C"].into_iter().zip(secrets) {
        bench.set(name, secret);
    }
    let in_file = "value-from-the-env-file";
    std::fs::write(bench.project().join(".env"), format!("KEY_D={in_file}\n")).unwrap();
    // An agent that tells everybody: its own log is its own affair, our account is ours.
    let script = "env KEY_A env KEY_B env KEY_C env KEY_D eprint 'Traceback (most recent call last):' fail-until 2 x forever";
    let settings = "env_pass = [\"KEY_*\"]\nenv_file = \".env\"";
    let events = bench.up(&[bench.agent("a", script, settings)]);
    events.of_run("a", 2, "run-ready");
    bench.await_log("a", |log| secrets.iter().all(|secret| log.matches(secret).count() == 2));
    bench.kill_daemon();
    bench.defib(&["stop", "a"]).good();
    bench.defib(&["start", "a"]).good();
    let commands: [&[&str]; 9] = [
        &["status"],
        &["status", "--json"],
        &["history"],
        &["history", "--json"],
        &["events", "--json", "-n", "10000"],
        &["why", "a"],
        &["why", "a", "--json"],
        &["plan", "--json"],
        &["version", "--json"],
    ];
    let all = secrets.iter().chain([&in_file]);
    for command in commands {
        let ran = bench.defib(command).good();
        for secret in all.clone() {
            assert!(!ran.out.contains(secret) && !ran.err.contains(secret), "{secret} in {ran:#?}");
        }
    }
    let (keeper, daemon) = bench.who();
    for pid in [keeper, daemon] {
        for file in ["environ", "cmdline"] {
            let bytes = proc::read(pid, file).unwrap();
            for secret in all.clone() {
                assert!(!proc::holds(&bytes, secret), "{secret} in {file} of {}", proc::shown(pid));
            }
        }
    }
    // Nothing of it is on disk, but for what the agent itself wrote to its log.
    let mut folders = vec![bench.home()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.starts_with(bench.home().join("logs")) || !path.is_file() {
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            for secret in all.clone() {
                assert!(!proc::holds(&bytes, secret), "{secret} in {}", path.display());
            }
        }
    }
}

#[test]
fn what_looks_wrong_at_the_start_is_a_warning_and_the_others_start() {
    let bench = bench();
    std::fs::write(bench.project().join("empty.sh"), "").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bench.project().join("empty.sh"), mode).unwrap();
    bench.declare(&[
        bench.agent("good", "forever", ""),
        "[agent.missing]\ncommand = [\"no-such-program-anywhere\"]\n".to_owned(),
        bench.agent("nowhere", "forever", "cwd = \"not/there\""),
        "[agent.empty]\ncommand = [\"./empty.sh\"]\n".to_owned(),
        bench.agent("unset", "forever", "env_pass = [\"NOBODY_SETS_THIS\"]"),
    ]);
    let up = bench.defib(&["up", "--detach"]).good();
    for (name, what) in [
        ("missing", "no-such-program-anywhere"),
        ("nowhere", "not/there"),
        ("empty", "empty.sh"),
        ("unset", "NOBODY_SETS_THIS"),
    ] {
        let warning = up.err.lines().find(|line| line.starts_with(&format!("warning: {name}:")));
        assert!(warning.is_some_and(|line| line.contains(what)), "{name}: {}", up.err);
    }
    assert_eq!(up.err.lines().count(), 4, "{}", up.err);
    assert_eq!(field(&bench.await_state("good", "running"), "run"), 1);
    for name in ["missing", "nowhere", "unset"] {
        let status = bench.await_state(name, "halted");
        assert_eq!(status["last_death"]["class"], "config", "{status}");
        assert!(status["last_death"]["evidence"].is_string(), "{status}");
    }
    let why = bench.defib(&["why", "missing"]).good();
    assert!(why.out.contains("did not come to life"), "{}", why.out);
    // It is put right: revive is enough.
    std::fs::create_dir_all(bench.project().join("not/there")).unwrap();
    bench.defib(&["revive", "nowhere"]).good();
    assert!(proc::lives(pid_in(&bench.await_state("nowhere", "running"))));
}

/// How a process is scheduled, as far as this kernel says.
fn scheduling(of: &str) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{of}/sched")).unwrap_or_default();
    let told = |line: &&str| {
        ["policy", "prio", "se.slice"].iter().any(|name| {
            line.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with(':'))
        })
    };
    text.lines().filter(told).map(str::to_owned).collect()
}

#[test]
fn agents_and_keepers_are_scheduled_as_everything_else_is_and_daemons_more_promptly() {
    let bench = bench();
    bench.up(&[bench.agent("a", "forever", "")]);
    let usual = scheduling("self");
    let check = || {
        let (keeper, daemon) = bench.who();
        assert_eq!(scheduling(&bench.pid("a").to_string()), usual);
        assert_eq!(scheduling(&keeper.to_string()), usual);
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut version = release.split('.').map_while(|part| part.parse::<u32>().ok());
        let knows_slices = (version.next(), version.next()) >= (Some(6), Some(12));
        if knows_slices && usual.iter().any(|line| line.starts_with("se.slice")) {
            let prompt = scheduling(&daemon.to_string());
            assert!(prompt.iter().any(|line| line.ends_with(" 100000")), "{prompt:?}");
        }
    };
    check();
    // The daemon, which is prompt, becomes the next keeper.
    bench.kill_keeper();
    bench.await_state("a", "running");
    check();
}
