//! What goes wrong has the documented exit code, and a message that says what to do.

use std::os::unix::fs::PermissionsExt;

use defib_e2e::{Ran, proc};

use crate::bench;

#[test]
fn without_a_daemon_commands_say_so() {
    let bench = bench();
    bench.declare(&[bench.agent("a", "forever", "")]);
    for command in [
        &["status"][..],
        &["ps", "--json"],
        &["stop", "a"],
        &["start", "a"],
        &["restart", "a"],
        &["revive", "a"],
        &["logs", "a"],
        &["why", "a"],
        &["history"],
        &["events"],
        &["events", "-f"],
        &["signal", "a", "TERM"],
        &["rm", "a"],
        &["plan"],
        &["reload"],
        &["down"],
        &["upgrade"],
    ] {
        let ran = bench.defib(command).bad(4);
        assert!(ran.err.contains("defib up"), "{ran:?}");
    }
    bench.defib(&["down", "--all"]).good();
    bench.defib(&["version"]).good();
    assert!(!bench.home().exists(), "asking makes nothing");
}

#[test]
fn an_unknown_agent_is_named_with_those_there_are() {
    let bench = bench();
    bench.up(&[bench.agent("known", "forever", "")]);
    for command in [
        &["status", "nobody"][..],
        &["stop", "nobody"],
        &["start", "nobody"],
        &["restart", "nobody"],
        &["revive", "nobody"],
        &["logs", "nobody"],
        &["why", "nobody"],
        &["history", "nobody"],
        &["signal", "nobody", "TERM"],
        &["rm", "nobody"],
        &["stop", "not a name"],
        &["status", "../../etc/passwd"],
    ] {
        let ran = bench.defib(command);
        assert_eq!(ran.code, 5, "{ran:#?}");
        assert!(ran.err.contains("error: "), "{ran:#?}");
    }
    let ran = bench.defib(&["stop", "nobody"]).bad(5);
    assert!(ran.err.contains("nobody") && ran.err.contains("known"), "{ran:?}");
    // One unknown name does not keep the others from being dealt with.
    bench.defib(&["stop", "nobody", "known"]).bad(5);
    assert_eq!(bench.status("known")["state"], "stopped");
    // Nor does one that is no name at all.
    bench.defib(&["start", "known"]).good();
    let ran = bench.defib(&["stop", "b!d", "known"]).bad(5);
    assert!(ran.err.contains("b!d") && ran.err.contains("help: "), "{ran:?}");
    assert_eq!(bench.status("known")["state"], "stopped");
}

#[test]
fn a_name_that_was_mistyped_is_guessed_and_a_group_is_said_to_be_one() {
    let bench = bench();
    bench.up(&[
        bench.agent("reviewer", "forever", ""),
        bench.agent("builder", "forever", ""),
        "[group.pair]\nmembers = [\"reviewer\", \"builder\"]\n".to_owned(),
    ]);
    for command in [&["why", "reviewr"][..], &["stop", "reviewr"], &["signal", "reviewr", "HUP"]] {
        let ran = bench.defib(command).bad(5);
        assert!(ran.err.contains("did you mean reviewer?"), "{ran:?}");
    }
    let ran = bench.defib(&["why", "pair"]).bad(5);
    assert!(ran.err.contains("pair is a group") && ran.err.contains("builder"), "{ran:?}");
    let ran = bench.defib(&["why", "xyz"]).bad(5);
    assert!(!ran.err.contains("group"), "{ran:?}");
}

#[test]
fn a_signal_to_a_group_goes_to_its_members() {
    let bench = bench();
    let events = bench.up(&[
        bench.agent("a", "forever", ""),
        bench.agent("b", "forever", ""),
        bench.agent("c", "forever", ""),
        "[group.pair]\nmembers = [\"a\", \"b\"]\n".to_owned(),
    ]);
    let c = bench.pid("c");
    bench.defib(&["signal", "pair", "KILL"]).good();
    for name in ["a", "b"] {
        assert_eq!(events.of_run(name, 1, "run-died")["signal"], "SIGKILL");
    }
    assert_eq!(bench.pid("c"), c);
    bench.defib(&["stop", "pair"]).good();
    let ran = bench.defib(&["signal", "pair", "TERM"]).bad(6);
    assert!(ran.err.contains("no member of pair has a process"), "{ran:?}");
}

#[test]
fn check_warns_of_what_up_would_warn_of() {
    let bench = bench();
    bench.config("[agent.a]\ncommand = \"there-is-no-such-program\"\nenv_file = \".env\"\n");
    let ran = bench.defib(&["check"]).good();
    for word in ["warning: a: there is no program", "its env_file"] {
        assert!(ran.err.contains(word), "{ran:?}");
    }
}

#[test]
fn without_a_word_defib_says_what_can_be_said() {
    let bench = bench();
    let ran = bench.defib(&[]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("Usage: defib") && ran.err.contains("reload"), "{ran:?}");
    assert!(!ran.err.contains("internal"), "{ran:?}");
}

#[test]
fn every_refusal_of_run_says_what_to_do() {
    let bench = bench();
    for (command, code) in [
        (&["run", "--from", "nofile.json"][..], 1),
        (&["run", "--env", "B", "--", "true"], 2),
        (&["run", "--env", "A=1", "--env", "A=2", "--", "true"], 2),
    ] {
        let ran = bench.defib(command).bad(code);
        assert!(ran.err.contains("help: "), "{ran:?}");
    }
    assert!(!bench.home().exists(), "nothing is started for it");
}

#[test]
fn who_revives_what_was_stopped_is_told_to_start_it() {
    let bench = bench();
    bench.up(&[bench.agent("a", "forever", "")]);
    bench.defib(&["stop", "a"]).good();
    let ran = bench.defib(&["revive", "a"]).bad(6);
    assert!(ran.err.contains("`defib start a`"), "{ran:?}");
    bench.defib(&["history", "--since", "30000d"]).good();
}

#[test]
fn wrong_use_is_told_from_everything_else() {
    let bench = bench();
    for command in [
        &["no-such-command"][..],
        &["stop"],
        &["up", "--mode", "sometimes"],
        &["up", "--status-line", "often"],
        &["up", "--status-line", "0s"],
        &["run"],
        &["logs", "-n", "many", "a"],
    ] {
        bench.defib(command).bad(2);
    }
    assert!(!bench.home().exists());
}

#[test]
fn a_home_that_cannot_be_used_is_an_error_that_says_how_to_choose_another() {
    let bench = bench();
    bench.declare(&[bench.agent("a", "forever", "")]);
    std::fs::write(bench.project().join("file"), "").unwrap();
    for home in [bench.file("file"), bench.file("file/below"), "/proc/defib".to_owned()] {
        let mut command = bench.command(&["up", "--detach"]);
        command.env("DEFIB_HOME", &home);
        let ran = Ran::to_end(command).bad(1);
        assert!(ran.err.contains(&home) && ran.err.contains("DEFIB_HOME"), "{ran:?}");
    }
}

#[test]
fn an_empty_home_is_none_and_the_version_is_told_without_any() {
    let bench = bench();
    let state = bench.file("state");
    let mut command = bench.command(&["status"]);
    command.env("DEFIB_HOME", "").env("XDG_STATE_HOME", &state);
    let ran = Ran::to_end(command).bad(4);
    assert!(ran.err.contains(&state), "{ran:?}");
    let mut command = bench.command(&["version"]);
    command.env("DEFIB_HOME", "").env_remove("HOME");
    let ran = Ran::to_end(command).good();
    assert!(ran.out.starts_with("defib "), "{ran:?}");
}

#[test]
fn a_socket_s_path_that_is_too_long_is_said_before_anything_is_made() {
    let bench = bench();
    bench.declare(&[bench.agent("a", "forever", "")]);
    let home = bench.project().join("x".repeat(100));
    for arguments in [&["up", "--detach"][..], &["status"]] {
        let mut command = bench.command(arguments);
        command.arg("--home").arg(&home);
        let ran = Ran::to_end(command).bad(1);
        assert!(ran.err.contains("107") && ran.err.contains("--home"), "{ran:?}");
    }
    assert!(!home.exists());
}

#[test]
fn a_folder_that_was_there_before_keeps_its_mode_and_what_we_make_is_ours_alone() {
    let bench = bench();
    bench.declare(&[bench.agent("a", "print x forever", "")]);
    bench.defib(&["up", "--detach"]).good();
    bench.await_log("a", |log| log == "x\n");
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&bench.home()), 0o700);
    assert_eq!(mode(&bench.home().join("defib.sock")), 0o600);
    let (path, _) = bench.segments("a").remove(0);
    assert_eq!(mode(&path), 0o600);
    bench.defib(&["down", "--all"]).good();

    let shared = bench.project().join("s");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o755)).unwrap();
    let at = |arguments: &[&str]| {
        let mut command = bench.command(arguments);
        command.arg("--home").arg(&shared);
        Ran::to_end(command)
    };
    // It may be refused; it may not be changed.
    at(&["up", "--detach"]);
    let after = mode(&shared);
    at(&["down", "--all"]);
    assert_eq!(after, 0o755);
}

#[test]
fn a_home_has_one_keeper() {
    let bench = bench();
    bench.up(&[bench.agent("a", "forever", "")]);
    let pid = bench.pid("a");
    let home = bench.home().display().to_string();
    let ran = bench.defib(&["internal", "keeper", "--home", &home]).bad(1);
    assert!(ran.err.contains("already"), "{ran:?}");
    assert_eq!(bench.pid("a"), pid);
    // A daemon that no keeper started is none.
    bench.defib(&["internal", "daemon", "--home", &home]);
    assert_eq!(bench.pid("a"), pid);
}

#[test]
fn a_daemon_that_does_not_answer_is_not_waited_for_without_end() {
    let bench = bench();
    bench.up(&[bench.agent("a", "forever", "")]);
    let (_, daemon) = bench.who();
    proc::kill(daemon, "STOP");
    for arguments in [&["up", "--detach"][..], &["status"]] {
        let err = bench.defib(arguments).bad(1).err;
        assert!(err.contains("does not answer") && err.contains("keeper.log"), "{err}");
    }
    proc::kill(daemon, "CONT");
    bench.await_state("a", "running");
}

#[test]
fn down_all_waits_for_a_daemon_that_is_away_and_does_not_take_it_for_none() {
    let bench = bench();
    bench.up(&[bench.agent("a", "forever", "")]);
    let (keeper, daemon) = bench.who();
    let agent = bench.pid("a");
    proc::kill(daemon, "STOP");
    let ran = bench.defib(&["down", "--all"]).bad(1);
    assert!(ran.err.contains("does not answer") && ran.err.contains("kill -9"), "{ran:?}");
    assert!(proc::lives(keeper) && proc::lives(agent), "nothing was ended");
    // One that is just being replaced comes back, and then all of them go.
    let down = std::thread::scope(|scope| {
        let down = scope.spawn(|| bench.defib(&["down", "--all"]));
        std::thread::sleep(std::time::Duration::from_millis(100));
        proc::kill(daemon, "KILL");
        down.join().unwrap()
    });
    assert!(down.good().out.contains("all agents are down"));
    assert!(!proc::lives(keeper) && !proc::lives(agent));
    assert_eq!(bench.defib(&["down", "--all"]).good().out, "no daemon is running\n");
}

#[test]
fn a_project_that_is_not_up_is_told_from_those_that_are() {
    let bench = bench();
    bench.up(&[bench.agent("a", "forever", "")]);
    let other = bench.file("other.toml");
    let text = "[project]\nname = \"other\"\n[agent.b]\ncommand = \"sleep 1000\"\n";
    std::fs::write(&other, text).unwrap();
    let ran = bench.defib(&["down", "-f", &other]).bad(5);
    assert!(ran.err.contains("project other is not up"), "{ran:?}");
    assert!(ran.err.contains("these are: p;") && ran.err.contains("`defib up`"), "{ran:?}");
}

#[test]
fn many_ups_at_once_make_one_daemon_and_one_run_of_each_agent() {
    let bench = bench();
    let lives = bench.file("lives");
    bench.declare(&[bench.agent("a", &format!("count {lives} forever"), "")]);
    std::thread::scope(|scope| {
        let ups: Vec<_> =
            (0..6).map(|_| scope.spawn(|| bench.defib(&["up", "--detach"]))).collect();
        for up in ups {
            up.join().unwrap().good();
        }
    });
    bench.await_state("a", "running");
    assert_eq!(std::fs::read_to_string(&lives).unwrap().lines().count(), 1);
    assert_eq!(bench.processes().len(), 3, "keeper, daemon, agent");
}

#[test]
fn a_reader_that_goes_away_is_no_error_of_ours() {
    let bench = bench();
    bench.up(&[bench.agent("a", "lines 20000 forever", "")]);
    bench.await_log("a", |log| log.contains("line 0000020000"));
    let mut shell = std::process::Command::new("/bin/sh");
    let line = format!(
        "{} logs -n 20000 a | head -n 1; {} events -n 1000 | head -n 1",
        defib_e2e::defib_path().display(),
        defib_e2e::defib_path().display()
    );
    shell.args(["-c", &line]).env("DEFIB_HOME", bench.home());
    let ran = Ran::to_end(shell);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    assert!(proc::lives(bench.pid("a")));
}

#[test]
fn a_project_whose_file_is_gone_when_the_daemon_starts_anew_is_not_dropped_in_silence() {
    let bench = bench();
    bench.up(&[bench.agent("a", "forever", "")]);
    bench.kill_both();
    let file = bench.project().join("defib.toml");
    std::fs::remove_file(&file).unwrap();
    bench.defib(&["run", "--name", "other", "--", "sleep", "1000"]).good();
    bench.await_state("other", "running");
    let events = bench.defib(&["events", "--json"]).good().out;
    let said = std::fs::read_to_string(bench.home().join("keeper.log")).unwrap();
    let path = file.display().to_string();
    assert!(events.contains(&path) || said.contains(&path), "{events}\n{said}");
}
