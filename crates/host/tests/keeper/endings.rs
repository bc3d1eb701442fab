//! A run's end is told when nothing of it is left, and what is not its own is left alone.

use std::process::Command;

use defib_host::protocol::{How, Leftovers, News, Request, SpawnOrder};
use rustix::process::Signal;

use crate::harness::{
    Daemon, FIXTURE, Keeper, WAYS, await_file, await_that, can_bind, key, left_facts, lives, order,
    pid, read_line, read_until,
};

/// An order for a run that leaves a grandchild, which writes of itself to a file.
fn leaving(keeper: &Keeper, agent: &str, run: u64, arguments: &[&str]) -> (SpawnOrder, String) {
    let ready = keeper.path(&format!("{agent}-{run}"));
    let mut order = order(agent, run, arguments);
    order.env.push(("READY".to_owned(), ready.clone()));
    (order, ready)
}

fn shell(keeper: &Keeper, agent: &str, run: u64, script: &str) -> (SpawnOrder, String) {
    let (mut order, ready) = leaving(keeper, agent, run, &[]);
    order.argv = vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()];
    (order, ready)
}

#[test]
fn a_grandchild_that_hides_and_ignores_term_is_gone_and_its_port_free_before_the_end_is_told() {
    for way in WAYS {
        let keeper = Keeper::start(way);
        let mut daemon = keeper.welcomed();
        let (order, ready) = leaving(&keeper, "a", 1, &["leave"]);
        daemon.spawn(order);
        let end = daemon.exit_of(&key("a", 1));
        let (grandchild, port) = left_facts(&std::fs::read_to_string(ready).unwrap());
        assert!(!lives(grandchild), "{way:?}");
        assert!(can_bind(port), "{way:?}");
        assert_eq!((end.how, end.leftovers_killed), (How::Exited(0), 1), "{way:?}");
    }
}

#[test]
fn a_grandchild_that_holds_the_output_open_does_not_delay_the_end() {
    for way in WAYS {
        let keeper = Keeper::start(way);
        let mut daemon = keeper.welcomed();
        let (mut order, ready) = leaving(&keeper, "a", 1, &["leave"]);
        order.leftovers = Leftovers::Keep;
        let (_, output) = daemon.spawn(order);
        let end = daemon.exit_of(&key("a", 1));
        assert_eq!((end.how, end.leftovers_killed), (How::Exited(0), 0), "{way:?}");
        let (grandchild, _) = left_facts(&std::fs::read_to_string(ready).unwrap());
        assert!(lives(grandchild), "{way:?}");
        read_until(&output, |text| text.contains("left"));
        rustix::process::kill_process(pid(grandchild), Signal::KILL).unwrap();
    }
}

#[test]
fn what_a_run_may_leave_is_left_alone_when_a_later_run_is_killed() {
    for way in WAYS {
        let keeper = Keeper::start(way);
        let mut daemon = keeper.welcomed();
        let (mut first, ready) = leaving(&keeper, "a", 1, &["leave"]);
        first.leftovers = Leftovers::Keep;
        daemon.spawn(first);
        daemon.exit_of(&key("a", 1));
        let (kept, _) = left_facts(&await_file(ready));
        let (mut second, ready) = leaving(&keeper, "a", 2, &["leave", "idle"]);
        second.leftovers = Leftovers::Keep;
        daemon.spawn(second);
        let (killed, port) = left_facts(&await_file(ready));
        daemon.ask(Request::Kill(key("a", 2)));
        let end = daemon.exit_of(&key("a", 2));
        assert_eq!((end.how, end.leftovers_killed), (How::Signaled(9), 1), "{way:?}");
        assert!(!lives(killed) && can_bind(port), "{way:?}");
        assert!(lives(kept), "{way:?}");
        rustix::process::kill_process(pid(kept), Signal::KILL).unwrap();
    }
}

#[test]
fn a_signal_reaches_the_whole_group_and_a_kill_whoever_ignores_it() {
    for way in WAYS {
        let keeper = Keeper::start(way);
        let mut daemon = keeper.welcomed();
        let script = format!("{FIXTURE} left & while ! [ -e $READY ]; do :; done; exec sleep 1000");
        let (order, ready) = shell(&keeper, "a", 1, &script);
        let (first, _) = daemon.spawn(order);
        let (stubborn, _) = left_facts(&await_file(ready));
        daemon.ask(Request::Signal { key: key("a", 1), signal: libc::SIGTERM });
        let end = daemon.exit_of(&key("a", 1));
        assert_eq!((end.how, end.leftovers_killed), (How::Signaled(15), 1), "{way:?}");
        assert!(!lives(first) && !lives(stubborn), "{way:?}");

        let (first, output) = daemon.spawn(crate::harness::order("b", 1, &["stubborn"]));
        read_line(&output);
        daemon.ask(Request::Signal { key: key("b", 1), signal: libc::SIGTERM });
        assert!(!daemon.has_ended(&key("b", 1)));
        assert!(lives(first));
        daemon.ask(Request::Kill(key("b", 1)));
        assert_eq!(daemon.exit_of(&key("b", 1)).how, How::Signaled(9));
    }
}

#[test]
fn a_stopped_process_is_killed() {
    for way in WAYS {
        let keeper = Keeper::start(way);
        let mut daemon = keeper.welcomed();
        let (first, output) = daemon.spawn(order("a", 1, &["idle"]));
        read_line(&output);
        daemon.ask(Request::Signal { key: key("a", 1), signal: libc::SIGSTOP });
        await_that("the process is stopped", || {
            let stat = std::fs::read_to_string(format!("/proc/{first}/stat")).unwrap();
            stat.contains(") T ")
        });
        assert!(!daemon.has_ended(&key("a", 1)));
        daemon.ask(Request::Kill(key("a", 1)));
        assert_eq!(daemon.exit_of(&key("a", 1)).how, How::Signaled(9));
    }
}

#[test]
fn a_run_is_killed_where_proc_shows_another_namespace_s_processes() {
    let namespace = ["--pid", "--fork", "--kill-child", "--"];
    let mut command = Command::new("unshare");
    if !command.args(namespace).arg("true").status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: unshare cannot make a process namespace here");
        return;
    }
    for way in WAYS {
        let mut command = Command::new("unshare");
        command.args(namespace).arg(FIXTURE);
        let keeper = Keeper::start_by(command, way);
        let mut daemon = keeper.welcomed();
        let (_, output) = daemon.spawn(order("a", 1, &["stubborn"]));
        read_line(&output);
        daemon.ask(Request::Kill(key("a", 1)));
        assert_eq!(daemon.exit_of(&key("a", 1)).how, How::Signaled(9), "{way:?}");
    }
}

#[test]
fn the_end_of_one_agent_does_not_touch_what_another_has_forked() {
    for way in WAYS {
        let keeper = Keeper::start(way);
        let mut daemon = keeper.welcomed();
        let leave = |daemon: &mut Daemon, agent| {
            let (order, ready) = leaving(&keeper, agent, 1, &["leave", "idle"]);
            daemon.spawn(order);
            left_facts(&await_file(ready)).0
        };
        let (of_a, of_b) = (leave(&mut daemon, "a"), leave(&mut daemon, "b"));
        daemon.ask(Request::Signal { key: key("a", 1), signal: libc::SIGKILL });
        assert_eq!(daemon.exit_of(&key("a", 1)).leftovers_killed, 1);
        assert!(!lives(of_a) && lives(of_b), "{way:?}");
    }
}

#[test]
fn an_orphan_without_our_mark_is_known_by_its_session() {
    for way in WAYS {
        let keeper = Keeper::start(way);
        let mut daemon = keeper.welcomed();
        let script = format!("{FIXTURE} unmarked left & while ! [ -e $READY ]; do :; done");
        let (order, ready) = shell(&keeper, "a", 1, &script);
        daemon.spawn(order);
        assert_eq!(daemon.exit_of(&key("a", 1)).leftovers_killed, 1, "{way:?}");
        let (orphan, port) = left_facts(&await_file(ready));
        assert!(!lives(orphan) && can_bind(port), "{way:?}");
    }
}

#[test]
fn what_cannot_be_attributed_is_told_of_once_and_not_killed_where_there_is_no_cgroup() {
    let keeper = Keeper::start(&["walk"]);
    let mut daemon = keeper.welcomed();
    // An orphan that is somebody's is no stray.
    let (order, ready) = leaving(&keeper, "other", 1, &["leave", "idle"]);
    daemon.spawn(order);
    await_file(ready);
    let script =
        format!("setsid -f {FIXTURE} unmarked left; while ! [ -e $READY ]; do :; done; exit 3");
    let strays = [1, 2].map(|run| {
        let (order, ready) = shell(&keeper, "a", run, &script);
        daemon.spawn(order);
        let end = daemon.exit_of(&key("a", run));
        assert_eq!((end.how, end.leftovers_killed), (How::Exited(3), 0));
        let (stray, _) = left_facts(&await_file(ready));
        let (told, program) = daemon.find(|news, _| match news {
            News::Stray { pid, program } => Some((*pid, program.clone())),
            _ => None,
        });
        assert_eq!(told, stray);
        assert!(FIXTURE.contains(&program) && !program.is_empty(), "{program}");
        stray
    });
    for stray in strays {
        assert!(lives(stray));
        rustix::process::kill_process(pid(stray), Signal::KILL).unwrap();
    }
}

#[test]
fn a_tree_that_forks_while_it_is_killed_is_killed() {
    for way in WAYS {
        let keeper = Keeper::start(way);
        let mut daemon = keeper.welcomed();
        // Each link of the chain forks the next into a session of its own and goes.
        let script = "link() { echo $1 > $READY; setsid -f sh -c \"$BODY\" link $(($1 + 1)); }";
        let body = "echo $1 > $READY; setsid -f sh -c \"$BODY\" link $(($1 + 1)); exit 0";
        let (mut order, ready) = shell(&keeper, "a", 1, &format!("{script}; link 0; sleep 1000"));
        order.env.push(("BODY".to_owned(), body.to_owned()));
        daemon.spawn(order);
        let links = || std::fs::read_to_string(&ready).unwrap_or_default();
        let count = || links().trim().parse::<u32>().unwrap_or(0);
        await_that("the chain has ten links", || count() >= 10);
        daemon.ask(Request::Kill(key("a", 1)));
        assert_eq!(daemon.exit_of(&key("a", 1)).how, How::Signaled(9));
        let mark = format!("{}=", defib_host::RUN_KEY);
        let of_chain = |process: &std::path::Path| {
            let environ = std::fs::read(process.join("environ")).unwrap_or_default();
            let environ = String::from_utf8_lossy(&environ).into_owned();
            environ.contains(&mark) && environ.contains(&keeper.home_key)
        };
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let left: Vec<_> = processes.map(|entry| entry.path()).filter(|p| of_chain(p)).collect();
        assert!(left.is_empty(), "{way:?}: {left:?}");
    }
}

#[test]
fn a_run_that_is_stuck_in_the_kernel_is_told_of_to_each_daemon_and_its_end_when_it_comes() {
    // A frozen process does not even die when it is killed.
    let freezer = format!("/sys/fs/cgroup/freezer/defib-test-{}", std::process::id());
    if std::fs::create_dir(&freezer).is_err() {
        eprintln!("skipped: no freezer to make a process stuck with");
        return;
    }
    let keeper = Keeper::start(&[]);
    let mut daemon = keeper.welcomed();
    let (first, output) = daemon.spawn(order("a", 1, &["idle"]));
    read_line(&output);
    std::fs::write(format!("{freezer}/cgroup.procs"), first.to_string()).unwrap();
    std::fs::write(format!("{freezer}/freezer.state"), "FROZEN").unwrap();
    daemon.ask(Request::Kill(key("a", 1)));
    let stuck = daemon.try_next().unwrap().0;
    daemon.kill();
    let mut daemon = keeper.daemon();
    daemon.told_at_first();
    // Whatever else comes first: the answer to this comes after it.
    daemon.has_ended(&key("a", 1));
    let told_again = daemon.has_heard(&News::StillAlive(key("a", 1)));
    std::fs::write(format!("{freezer}/freezer.state"), "THAWED").unwrap();
    assert_eq!(stuck, News::StillAlive(key("a", 1)));
    assert!(told_again, "a new daemon is told as well");
    assert_eq!(daemon.exit_of(&key("a", 1)).how, How::Signaled(9));
    std::fs::remove_dir(freezer).unwrap();
}
