//! The ways of a project: up, once, in front, down, back again; and of an agent without a file.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use defib_e2e::{Ran, await_that, defib_path, field, pid_in, proc};
use serde_json::Value;

use crate::{FAKE_AGENT, bench};

#[test]
fn term_to_the_keeper_is_an_orderly_stop_after_which_agents_come_back() {
    let bench = bench();
    let lives = bench.file("lives");
    let events = bench.up(&[
        bench.agent("a", &format!("count {lives} forever"), ""),
        bench.agent("deaf", "ignore TERM print ready forever", ""),
        bench.agent("stopped", "forever", ""),
        bench.agent("done", "exit 0", ""),
        bench.agent("out", "exit 1", ""),
    ]);
    bench.defib(&["stop", "stopped"]).good();
    bench.await_log("deaf", |log| log.contains("ready"));
    events.of("out", "crashed-out");
    let (keeper, daemon) = bench.who();
    let pids = [bench.pid("a"), bench.pid("deaf")];
    proc::kill(keeper, "TERM");
    proc::await_gone(keeper);
    for pid in pids.into_iter().chain([daemon]) {
        assert!(!proc::lives(pid), "{}", proc::shown(pid));
    }
    bench.defib(&["status"]).bad(4);

    bench.defib(&["up", "--detach"]).good();
    for name in ["a", "deaf"] {
        assert_eq!(field(&bench.await_state(name, "running"), "run"), 2);
    }
    assert_eq!(bench.status("stopped")["state"], "stopped", "goals are unchanged");
    assert_eq!(bench.status("out")["state"], "crashed-out", "only revive brings it back");
    let death = events.of_run("a", 1, "run-died");
    assert_eq!(
        (&death["class"], &death["signal"]),
        (&"stopped".into(), &"SIGTERM".into()),
        "{death}"
    );
    assert_eq!(events.of_run("deaf", 1, "run-died")["signal"], "SIGKILL");
    await_that("two lives", || std::fs::read_to_string(&lives).unwrap().lines().count() == 2);
}

#[test]
fn a_second_term_to_the_keeper_does_not_wait() {
    let bench = bench();
    let events =
        bench.up(&[bench.agent("a", "ignore TERM print ready forever", "stop_timeout = \"1h\"")]);
    bench.await_log("a", |log| log.contains("ready"));
    let (keeper, _) = bench.who();
    proc::kill(keeper, "TERM");
    events.of("a", "stop-requested");
    proc::kill(keeper, "TERM");
    proc::await_gone(keeper);
    assert!(bench.processes().is_empty());
}

#[test]
fn down_then_up_clears_stops_and_crashes() {
    let bench = bench();
    let go = bench.file("go");
    let events = bench.up(&[
        bench.agent("a", "forever", ""),
        bench.agent("stopped", "forever", ""),
        bench.agent("out", &format!("rest-if {go} exit 1"), ""),
    ]);
    bench.defib(&["stop", "stopped"]).good();
    events.of("out", "crashed-out");
    let pid = bench.pid("a");
    assert_eq!(bench.status("out")["flapping"], true);
    bench.defib(&["down"]).good();
    assert!(!proc::lives(pid));
    assert!(bench.statuses().iter().all(|status| status["pid"].is_null()));
    let out = bench.status("out");
    assert_eq!((&out["flapping"], field(&out, "consecutive_failures")), (&Value::Bool(false), 0));
    std::fs::write(go, "").unwrap();
    bench.defib(&["up", "--detach"]).good();
    for name in ["a", "stopped", "out"] {
        bench.await_state(name, "running");
    }
}

#[test]
fn down_survives_the_daemon_and_the_keeper() {
    let bench = bench();
    bench.up(&[bench.agent("a", "forever", "restart = \"always\"")]);
    bench.defib(&["down"]).good();
    bench.kill_daemon();
    assert_eq!(bench.status("a")["state"], "stopped");
    bench.kill_both();
    // Another project brings the daemon up: this one stays down.
    let other = bench.project().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("defib.toml"), bench.agent("b", "forever", "")).unwrap();
    let file = other.join("defib.toml").display().to_string();
    bench.defib(&["up", "--detach", "-f", &file]).good();
    bench.await_state("b", "running");
    let status = bench.statuses();
    let ours = status.iter().find(|status| status["name"] == "a").expect("it is still declared");
    assert_eq!(ours["state"], "stopped", "{ours}");
}

#[test]
fn agents_stop_in_the_reverse_of_their_order() {
    let bench = bench();
    let events = bench.up(&[
        bench.agent("first", "forever", ""),
        bench.agent("second", "ignore TERM print ready forever", "after = [\"first\"]"),
        bench.agent("third", "forever", "after = [\"second\"]"),
    ]);
    bench.await_log("second", |log| log.contains("ready"));
    bench.defib(&["down"]).good();
    let died = |name: &str| field(&events.of(name, "run-died"), "seq");
    assert!(died("third") < died("second"), "third before second");
    assert!(died("second") < died("first"), "second before first, however long it takes");
}

#[test]
fn the_order_is_that_of_the_file_under_every_daemon() {
    let bench = bench();
    let names =
        || -> Vec<Value> { bench.statuses().iter().map(|status| status["name"].clone()).collect() };
    let trio = ["z", "m", "a"].map(|name| bench.agent(name, "forever", ""));
    bench.up(&trio);
    assert_eq!(names(), ["z", "m", "a"]);
    bench.defib(&["down", "--all"]).good();
    // The next daemon knows of all three before any of them is declared.
    let events = bench.up(&trio);
    assert_eq!(names(), ["z", "m", "a"]);
    let started = |name| field(&events.of_run(name, 2, "run-started"), "seq");
    assert!(["z", "m", "a"].map(started).is_sorted());
    // Whoever is put at the top is at the top from the next reload on.
    let [z, m, a] = trio;
    bench.declare(&[bench.agent("new", "forever", ""), z, m, a]);
    bench.defib(&["reload"]).good();
    assert_eq!(names(), ["new", "z", "m", "a"]);
    bench.defib(&["down"]).good();
    let asked = |name, run| field(&events.of_run(name, run, "stop-requested"), "seq");
    let asked = [asked("a", 2), asked("m", 2), asked("z", 2), asked("new", 1)];
    assert!(asked.is_sorted(), "{asked:?}");
}

#[test]
fn once_runs_each_agent_once_and_says_by_its_exit_code_whether_all_went_well() {
    let bench = bench();
    let lives = bench.file("lives");
    bench.declare(&[
        bench.agent("a", &format!("count {lives} exit 0"), "restart = \"always\""),
        bench.agent("b", &format!("sleep 300 count {lives} exit 0"), ""),
    ]);
    bench.defib(&["up", "--mode", "once"]).good();
    assert_eq!(std::fs::read_to_string(&lives).unwrap().lines().count(), 2);
    await_that("the daemon's end", || bench.processes().is_empty());

    bench.declare(&[
        bench.agent("a", &format!("count {lives} exit 0"), ""),
        bench.agent("b", &format!("count {lives} exit 3"), "restart = \"always\""),
    ]);
    let ran = bench.defib(&["up", "--mode", "once"]).bad(1);
    assert!(ran.out.contains("exit 3"), "{ran:?}");
    assert_eq!(std::fs::read_to_string(&lives).unwrap().lines().count(), 4);
    await_that("the daemon's end", || bench.processes().is_empty());

    bench.declare(&[
        bench.agent("a", "exit 0", ""),
        "[agent.b]\ncommand = [\"/no/such/program\"]\n".into(),
    ]);
    bench.defib(&["up", "--mode", "once"]).bad(1);
    await_that("the daemon's end", || bench.processes().is_empty());
}

#[test]
fn up_right_after_once_or_down_all_works() {
    let bench = bench();
    for _ in 0..4 {
        bench.declare(&[bench.agent("a", "exit 0", "")]);
        bench.defib(&["up", "--mode", "once"]).good();
        bench.declare(&[bench.agent("a", "forever", "")]);
        bench.defib(&["up", "--detach"]).good();
        bench.await_state("a", "running");
        bench.defib(&["down", "--all"]).good();
        bench.defib(&["up", "--detach"]).good();
        bench.await_state("a", "running");
        bench.defib(&["down", "--all"]).good();
    }
}

#[test]
fn in_front_without_a_terminal_up_prints_status_lines_and_an_interrupt_takes_the_project_down() {
    for signal in ["INT", "TERM"] {
        let bench = bench();
        bench.declare(&[
            "[project]\nname = \"night\"\n".to_owned(),
            bench.agent("runs", "forever", ""),
            bench.agent("done", "exit 0", ""),
            bench.agent("out", "exit 1", ""),
            bench.agent("halted", "exit 0", "env_pass = [\"NOBODY_SETS_THIS\"]"),
        ]);
        let mut command = bench.command(&["up", "--status-line", "1s"]);
        let mut front = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        defib_e2e::await_some("the daemon", || {
            let ran = bench.defib(&["status", "--json", "out"]);
            (ran.code == 0 && ran.json()[0]["state"] == "crashed-out").then_some(())
        });
        let pid = bench.pid("runs");
        // What is printed every so often is printed at least once more.
        let mut output = front.stdout.take().unwrap();
        let mut text = String::new();
        await_that("a status line", || {
            let mut buffer = [0; 4096];
            let read = output.read(&mut buffer).unwrap();
            text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
            text.contains("out=LOOP_DETECTED(4)")
        });
        let line = text.lines().find(|line| line.contains("LOOP_DETECTED")).unwrap();
        assert_eq!(
            line,
            "[NIGHT] runs=RUNNING(0) done=STOPPED(0) out=LOOP_DETECTED(4) halted=CRASHED(0)"
        );
        proc::kill(front.id(), signal);
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        proc::await_gone(front.id());
        assert!(front.wait().unwrap().success());
        assert!(!proc::lives(pid));
        assert_eq!(bench.status("runs")["state"], "stopped");
    }
}

#[test]
fn a_front_that_is_killed_leaves_its_agents_running() {
    let bench = bench();
    bench.declare(&[bench.agent("a", "forever", "")]);
    let mut command = bench.command(&["up"]);
    let mut front = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    await_that("an agent", || {
        let ran = bench.defib(&["status", "--json"]);
        ran.code == 0 && ran.json()[0]["state"] == "running"
    });
    let pid = bench.pid("a");
    front.kill().unwrap();
    front.wait().unwrap();
    assert_eq!(pid_in(&bench.await_state("a", "running")), pid);
    assert!(proc::lives(pid));
}

#[test]
fn the_daemon_keeps_none_of_the_caller_s_descriptors_and_not_its_session() {
    let bench = bench();
    bench.declare(&[bench.agent("a", "open-files forever", "")]);
    let (reader, writer) = std::io::pipe().unwrap();
    // A shell gives the pipe to `up` under a number that nobody closes on exec.
    let mut shell = Command::new("/bin/sh");
    let line = format!("exec {} up --detach 7>&1 9>&1", defib_path().display());
    shell.args(["-c", &line]).current_dir(bench.project()).env("DEFIB_HOME", bench.home());
    shell.stdin(Stdio::null()).stdout(OwnedFd::from(writer)).stderr(Stdio::null());
    assert!(shell.status().unwrap().success());
    drop(shell);
    // It ends when nobody has the other end open any more.
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut reader = reader;
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        sender.send(text).unwrap();
    });
    let text = ended.recv_timeout(defib_e2e::DEADLINE);
    let (keeper, daemon) = bench.who();
    let open = |pid: u32| {
        let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let mut open: Vec<String> = entries
            .filter_map(|entry| {
                Some(std::fs::read_link(entry.ok()?.path()).ok()?.display().to_string())
            })
            .collect();
        open.sort();
        open
    };
    assert!(
        text.is_ok(),
        "somebody holds it: keeper {:?}, daemon {:?}",
        open(keeper),
        open(daemon)
    );
    let log = bench.await_log("a", |log| log.contains("open files"));
    assert_eq!(log, "open files 0 1 2 3\n");
    assert_ne!(proc::session(keeper), proc::session(std::process::id()));
    assert!(proc::session(keeper).is_some_and(|leader| leader != 0));
    assert_eq!(std::fs::read_link(format!("/proc/{keeper}/cwd")).unwrap().to_str(), Some("/"));
}

#[test]
fn once_does_not_wait_for_agents_with_a_trigger_of_their_own() {
    let bench = bench();
    bench.declare(&[
        bench.agent("a", "exit 0", ""),
        bench.agent("by-hand", "forever", "trigger = \"manual\""),
        bench.agent("yearly", "forever", "trigger = \"cron:0 0 1 1 *\""),
    ]);
    let ran = bench.defib(&["up", "--mode", "once"]).good();
    assert!(ran.out.contains("by-hand") && ran.out.contains("idle"), "{ran:?}");
}

#[test]
fn in_front_without_a_terminal_up_ends_when_its_project_is_taken_down_elsewhere() {
    for down in [&["down"][..], &["down", "--all"]] {
        let bench = bench();
        bench.declare(&[bench.agent("a", "forever", "")]);
        let front = bench.lines(&["up"]);
        front.until(|line| line.contains("a=RUNNING"));
        bench.defib(&["stop", "a"]).good();
        bench.defib(&["start", "a"]).good();
        bench.defib(down).good();
        let (code, rest, complaint) = front.end();
        assert_eq!((code, complaint.as_str()), (Some(0), ""), "{down:?}: {rest:?}");
        assert!(rest.last().is_some_and(|line| line.ends_with("was taken down")), "{rest:?}");
    }
}

#[test]
fn run_adds_an_agent_without_a_file_and_rm_takes_it_away() {
    let bench = bench();
    let lives = bench.file("lives");
    std::fs::create_dir(bench.project().join("sub")).unwrap();
    let mut command =
        bench.command(&["run", "--name", "extra", "--env", "FOO=b a\"r", "--", FAKE_AGENT]);
    command.args(["count", &lives, "cwd", "env", "FOO", "print", "two words", "forever"]);
    command.current_dir(bench.project().join("sub"));
    Ran::to_end(command).good();
    let status = bench.await_state("extra", "running");
    let log = bench.await_log("extra", |log| log.contains("two words"));
    assert_eq!(log, format!("{}\nFOO=b a\"r\ntwo words\n", bench.project().join("sub").display()));
    // It is an agent like any other.
    proc::kill(pid_in(&status), "KILL");
    bench.await_status("extra", |status| status["state"] == "running" && status["run"] == 2);
    bench.kill_daemon();
    assert_eq!(field(&bench.status("extra"), "run"), 2);
    bench.kill_both();
    bench.defib(&["run", "--name", "other", "--", "sleep", "1000"]).good();
    bench.await_status("extra", |status| status["state"] == "running" && status["run"] == 3);

    let pid = bench.pid("extra");
    bench.defib(&["rm", "extra"]).good();
    proc::await_gone(pid);
    bench.defib(&["status", "extra"]).bad(5);
    bench.kill_both();
    bench.defib(&["run", "--name", "third", "--", "sleep", "1000"]).good();
    bench.await_state("other", "running");
    bench.defib(&["status", "extra"]).bad(5);
    assert_eq!(std::fs::read_to_string(&lives).unwrap().lines().count(), 3);
}

#[test]
fn an_agent_that_is_removed_leaves_no_cgroup_behind_and_its_numbers_go_on() {
    let bench = bench();
    let run = |name| drop(bench.defib(&["run", "--name", name, "--", "sleep", "1000"]).good());
    run("other");
    run("extra");
    let cgroup = proc::read(pid_in(&bench.await_state("extra", "running")), "cgroup").unwrap();
    let cgroup = String::from_utf8(cgroup).unwrap();
    let place = cgroup.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    let folders =
        ["", "/unified"].map(|tree| PathBuf::from(format!("/sys/fs/cgroup{tree}{place}")));
    let folder = folders.into_iter().find(|folder| place.contains("extra@") && folder.exists());
    bench.defib(&["rm", "extra"]).good();
    match folder {
        Some(folder) => await_that("its cgroup is gone", || !folder.exists()),
        None => eprintln!("skipped: no cgroups that can be made"),
    }
    bench.kill_daemon();
    run("extra");
    assert_eq!(field(&bench.await_state("extra", "running"), "run"), 2);
}

#[test]
fn a_second_run_of_a_program_leaves_the_first_alone() {
    let bench = bench();
    bench.defib(&["run", "--", "sleep", "1000"]).good();
    let first = bench.pid("sleep");
    let second = bench.defib(&["run", "--", "sleep", "2000"]).good();
    assert!(second.out.contains("sleep-2 is added"), "{second:?}");
    bench.pid("sleep-2");
    let file = bench.home().join("adhoc/sleep.toml");
    let before = std::fs::read(&file).unwrap();
    let ran = bench.defib(&["run", "--name", "sleep", "--", "true"]).bad(6);
    assert!(ran.err.contains("sleep is there already"), "{ran:?}");
    assert!(ran.err.contains("`defib rm sleep`"), "{ran:?}");
    assert_eq!(std::fs::read(&file).unwrap(), before);
    assert_eq!(bench.pid("sleep"), first);
}

#[test]
fn rm_leaves_agents_alone_that_a_file_declares() {
    let bench = bench();
    bench.up(&[bench.agent("only", "forever", "")]);
    let pid = bench.pid("only");
    bench.defib(&["rm", "only"]).bad(6);
    bench.defib(&["rm", "nobody"]).bad(5);
    assert_eq!(pid_in(&bench.await_state("only", "running")), pid);
}

#[test]
fn run_with_the_name_of_a_project_leaves_that_project_alone() {
    let bench = bench();
    bench.up(&["[project]\nname = \"night\"\n".to_owned(), bench.agent("a", "forever", "")]);
    let pid = bench.pid("a");
    bench.defib(&["run", "--name", "night", "--", "sleep", "1000"]);
    bench.defib(&["run", "--name", "a", "--", "sleep", "1000"]).bad(3);
    assert_eq!(pid_in(&bench.await_state("a", "running")), pid);
}

#[test]
fn a_second_project_of_the_same_name_does_not_take_the_first_one_down() {
    let bench = bench();
    for folder in ["x/work", "y/work"] {
        let folder = bench.project().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
    }
    let (first, second) = (bench.file("x/work/defib.toml"), bench.file("y/work/defib.toml"));
    std::fs::write(&first, bench.agent("a", "forever", "")).unwrap();
    std::fs::write(&second, bench.agent("b", "forever", "")).unwrap();
    bench.defib(&["up", "--detach", "-f", &first]).good();
    let pid = bench.pid("a");
    bench.defib(&["up", "--detach", "-f", &second]).bad(3);
    assert_eq!(pid_in(&bench.await_state("a", "running")), pid);
}

#[test]
fn once_of_one_project_leaves_another_s_agents_running() {
    let bench = bench();
    bench.up(&[bench.agent("a", "forever", "")]);
    let pid = bench.pid("a");
    let other = bench.project().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("defib.toml"), bench.agent("b", "exit 0", "")).unwrap();
    let file = other.join("defib.toml").display().to_string();
    bench.defib(&["up", "--mode", "once", "-f", &file]).good();
    assert_eq!(pid_in(&bench.await_state("a", "running")), pid);
}

#[test]
fn signal_reaches_the_agent_and_its_death_says_so() {
    let bench = bench();
    let events = bench.up(&[bench.agent("a", "forever", ""), bench.agent("b", "exit 0", "")]);
    bench.defib(&["signal", "a", "USR1"]).good();
    let death = events.of_run("a", 1, "run-died");
    assert_eq!((&death["signal"], &death["exit_code"]), (&"SIGUSR1".into(), &Value::Null));
    assert_eq!(death["class"], "error");
    events.of_run("a", 2, "run-ready");
    bench.defib(&["signal", "a", "9"]).good();
    assert_eq!(events.of_run("a", 2, "run-died")["signal"], "SIGKILL");
    bench.defib(&["signal", "a", "NONSENSE"]).bad(2);
    bench.defib(&["signal", "nobody", "TERM"]).bad(5);
    events.of("b", "rested");
    bench.defib(&["signal", "b", "TERM"]).bad(6);
}

#[test]
fn restart_gives_a_new_run_that_never_counts_as_a_crash() {
    let bench = bench();
    let events = bench.up(&[bench.agent("a", "forever", ""), bench.agent("done", "exit 0", "")]);
    for run in 1..=6 {
        let pid = bench.pid("a");
        bench.defib(&["restart", "a"]).good();
        let status = bench.await_state("a", "running");
        assert_eq!((field(&status, "run"), field(&status, "restarts")), (run + 1, 0));
        assert!(!proc::lives(pid));
    }
    events.of("done", "rested");
    bench.defib(&["restart", "done"]).good();
    events.of_run("done", 2, "rested");
    bench.defib(&["start", "done"]).good();
    events.of_run("done", 3, "rested");
}

#[test]
fn a_group_s_name_means_its_members_and_one_for_all_restarts_them_together() {
    let bench = bench();
    let group = "[group.pair]\nstrategy = \"one-for-all\"\nmembers = [\"a\", \"b\"]\n".to_owned();
    let events =
        bench.up(&[bench.agent("a", "forever", ""), bench.agent("b", "forever", ""), group]);
    proc::kill(bench.pid("a"), "KILL");
    events.of_run("a", 2, "run-ready");
    events.of_run("b", 2, "run-ready");
    assert_eq!(events.of_run("b", 1, "run-died")["class"], "group");
    bench.defib(&["stop", "pair"]).good();
    let statuses = bench.defib(&["status", "--json", "pair"]).good().json();
    let states: Vec<&Value> =
        statuses.as_array().unwrap().iter().map(|status| &status["state"]).collect();
    assert_eq!(states, ["stopped", "stopped"]);
    bench.defib(&["start", "pair"]).good();
    bench.await_state("a", "running");
    bench.await_state("b", "running");
}

#[test]
fn a_run_that_outlives_its_time_is_ended_and_replaced() {
    let bench = bench();
    let events = bench.up(&[bench.agent("a", "ignore TERM forever", "max_runtime = \"500ms\"")]);
    let death = events.of_run("a", 1, "run-died");
    assert_eq!(death["class"], "timeout", "{death}");
    events.of_run("a", 2, "run-ready");
}

#[test]
fn an_agent_with_a_manual_trigger_waits_to_be_started() {
    let bench = bench();
    let events = bench.up(&[
        bench.agent("a", "exit 0", "trigger = \"manual\""),
        bench.agent("off", "forever", "enabled = false"),
    ]);
    assert_eq!(bench.status("a")["state"], "idle");
    bench.defib(&["start", "a"]).good();
    events.of("a", "rested");
    assert_eq!(bench.history("a").len(), 1);
    bench.defib(&["status", "off"]).bad(5);
}

/// The keeper as the first process of a container.
#[test]
fn as_the_first_process_the_keeper_reaps_orphans_and_term_ends_it_in_order() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can make a process namespace");
        return;
    }
    let mut bench = bench();
    bench.may_leave_processes();
    std::fs::create_dir(bench.home()).unwrap();
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--mount-proc", "--kill-child"]).arg(defib_path());
    unshare.args(["internal", "keeper", "--home"]).arg(bench.home());
    let mut container = unshare.stdin(Stdio::null()).spawn().unwrap();
    await_that("the socket", || bench.home().join("defib.sock").exists());
    let script = "double-fork 'sleep 20' double-fork 'ignore TERM forever' pid forever";
    let events = bench.up(&[
        bench.agent("a", script, ""),
        bench.agent("b", "double-fork 'sleep 1' exit 1", "limits = []"),
    ]);
    assert_eq!(bench.who().0, 1, "it is the first process");
    events.of_run("b", 10, "run-died");
    let log = bench.await_log("a", |log| log.ends_with('\n'));
    assert_eq!(log.trim(), bench.status("a")["pid"].to_string(), "pids are those inside");
    let first = proc::all().find(|pid| proc::parent(*pid) == Some(container.id())).unwrap();
    let inside = |parent: u32| proc::all().filter(move |pid| proc::parent(*pid) == Some(parent));
    bench.defib(&["stop", "b"]).good();
    await_that("no dead child", || inside(first).all(proc::lives));
    proc::kill(first, "TERM");
    proc::await_gone(container.id());
    assert!(container.wait().unwrap().success());
    assert_eq!(events.of_run("a", 1, "run-died")["class"], "stopped");
}
