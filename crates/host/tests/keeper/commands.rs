//! A command on behalf of a run has the manner of that run, a deadline, and no life beyond the run's.

use defib_host::protocol::{CommandEnd, CommandOrder, How, Leftovers, News, Request, Stage};
use rustix::io::Errno;

use crate::harness::{Daemon, Keeper, WAYS, await_file, await_that, key, lives, order, profile};

/// A script that hangs, with a child that left its session and its parent. Each writes its process id.
const HANG: &str = "(setsid sh -c 'echo $$ > \"$READY.new\"; mv \"$READY.new\" \"$READY\"; \
                    exec sleep 1000' &); exec sleep 1000";

fn command(keeper: &Keeper, number: u64, script: &str, timeout_ms: u64) -> CommandOrder {
    let path = std::env::var("PATH").unwrap();
    let ready = keeper.path(&format!("command-{number}"));
    CommandOrder {
        key: key("a", 1),
        number,
        argv: vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()],
        env: vec![("PATH".to_owned(), path), ("READY".to_owned(), ready)],
        timeout_ms,
    }
}

fn run(daemon: &mut Daemon, order: CommandOrder) {
    daemon.ask(Request::RunCommand(Box::new(order)));
}

fn end_of(daemon: &mut Daemon, wanted: u64) -> CommandEnd {
    daemon.find(|news, _| match news {
        News::CommandEnded { number, end, .. } if *number == wanted => Some(*end),
        _ => None,
    })
}

fn pid_in(file: String) -> u32 {
    await_file(file).trim().parse().unwrap()
}

#[test]
fn command_has_the_folder_umask_limits_and_marks_of_its_run() {
    for way in WAYS {
        let keeper = Keeper::start(way);
        let mut daemon = keeper.welcomed();
        let folder = std::fs::canonicalize(&keeper.folder).unwrap().display().to_string();
        let mut order = order("a", 1, &["idle"]);
        order.cwd.clone_from(&folder);
        order.umask = Some(0o027);
        order.rlimits = vec![(7, 77)];
        daemon.spawn(order);
        let show = "{ pwd; umask; ulimit -n; echo $DEFIB_RUN_KEY; } > \"$READY\"";
        run(&mut daemon, command(&keeper, 1, show, 60_000));
        assert_eq!(end_of(&mut daemon, 1), CommandEnd::Ended(How::Exited(0)), "{way:?}");
        let text = std::fs::read_to_string(keeper.path("command-1")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..3], [folder.as_str(), "0027", "77"], "{way:?}");
        assert!(lines[3].contains("a/1/"), "{way:?}: {text}");
        run(&mut daemon, command(&keeper, 2, "exit 3", 60_000));
        assert_eq!(end_of(&mut daemon, 2), CommandEnd::Ended(How::Exited(3)), "{way:?}");
    }
}

#[test]
fn command_is_killed_whole_at_its_deadline_and_its_run_lives_on() {
    for way in WAYS {
        let keeper = Keeper::start(way);
        let mut daemon = keeper.welcomed();
        let (pid, _) = daemon.spawn(order("a", 1, &["idle"]));
        // On a busy machine a short deadline may pass before the script has begun: then a longer one follows.
        let orphan = [(1, 2_000), (2, 8_000), (3, 32_000)].into_iter().find_map(|(number, ms)| {
            run(&mut daemon, command(&keeper, number, HANG, ms));
            assert_eq!(end_of(&mut daemon, number), CommandEnd::TimedOut, "{way:?}");
            let text = std::fs::read_to_string(keeper.path(&format!("command-{number}")));
            text.ok().map(|text| text.trim().parse().unwrap())
        });
        assert!(!lives(orphan.expect("a script that began")), "{way:?}");
        assert!(lives(pid) && !daemon.has_ended(&key("a", 1)), "{way:?}");
        run(&mut daemon, command(&keeper, 4, "exit 0", 60_000));
        assert_eq!(end_of(&mut daemon, 4), CommandEnd::Ended(How::Exited(0)), "{way:?}");
    }
}

#[test]
fn command_that_ends_leaves_no_process_behind() {
    for way in WAYS {
        let keeper = Keeper::start(way);
        let mut daemon = keeper.welcomed();
        daemon.spawn(order("a", 1, &["idle"]));
        let leave = HANG.replace(
            "exec sleep 1000' &); exec sleep 1000",
            "exec sleep 1000' &); \
                                  until test -e \"$READY\"; do sleep 0.05; done",
        );
        run(&mut daemon, command(&keeper, 1, &leave, 60_000));
        assert_eq!(end_of(&mut daemon, 1), CommandEnd::Ended(How::Exited(0)), "{way:?}");
        assert!(!lives(pid_in(keeper.path("command-1"))), "{way:?}");
    }
}

#[test]
fn run_has_one_command_at_a_time_and_a_dead_run_has_none() {
    let keeper = Keeper::start(&[]);
    let mut daemon = keeper.welcomed();
    daemon.spawn(order("a", 1, &["idle"]));
    run(&mut daemon, command(&keeper, 1, HANG, 600_000));
    run(&mut daemon, command(&keeper, 2, "exit 0", 60_000));
    let refused = |errno: Errno| CommandEnd::NotSpawned {
        errno: errno.raw_os_error(),
        stage: Stage::Process,
    };
    assert_eq!(end_of(&mut daemon, 2), refused(Errno::BUSY));
    daemon.ask(Request::CancelCommand { key: key("a", 1), number: 1 });
    assert_eq!(end_of(&mut daemon, 1), CommandEnd::Ended(How::Signaled(9)));
    daemon.ask(Request::Kill(key("a", 1)));
    daemon.exit_of(&key("a", 1));
    run(&mut daemon, command(&keeper, 3, "exit 0", 60_000));
    assert_eq!(end_of(&mut daemon, 3), refused(Errno::SRCH));
}

#[test]
fn command_is_gone_before_the_end_of_its_run_is_told() {
    for way in WAYS {
        for leftovers in [Leftovers::Kill, Leftovers::Keep] {
            let keeper = Keeper::start(way);
            let mut daemon = keeper.welcomed();
            let mut order = order("a", 1, &["idle"]);
            order.leftovers = leftovers;
            daemon.spawn(order);
            run(&mut daemon, command(&keeper, 1, HANG, 600_000));
            let orphan = pid_in(keeper.path("command-1"));
            daemon.ask(Request::Kill(key("a", 1)));
            daemon.exit_of(&key("a", 1));
            if leftovers == Leftovers::Kill {
                assert!(!lives(orphan), "{way:?}");
            }
            await_that("the command's orphan is gone", || !lives(orphan));
        }
    }
}

#[test]
fn command_of_a_daemon_that_died_is_killed_and_the_next_daemon_runs_its_own() {
    let keeper = Keeper::start(&[]);
    let mut daemon = keeper.welcomed();
    daemon.spawn(order("a", 1, &["idle"]));
    run(&mut daemon, command(&keeper, 1, HANG, 600_000));
    let orphan = pid_in(keeper.path("command-1"));
    daemon.kill();
    let mut daemon = keeper.daemon();
    daemon.told_at_first();
    await_that("the command's orphan is gone", || !lives(orphan));
    // The keeper may still be waiting for the last of the old command.
    let mut number = 2;
    loop {
        run(&mut daemon, command(&keeper, number, "exit 0", 60_000));
        match end_of(&mut daemon, number) {
            CommandEnd::NotSpawned { .. } => number += 1,
            end => return assert_eq!(end, CommandEnd::Ended(How::Exited(0))),
        }
    }
}

#[test]
fn command_of_a_confined_run_is_confined() {
    if defib_host::sandbox::support().landlock == 0 {
        eprintln!("not run: no Landlock here");
        return;
    }
    let keeper = Keeper::start(&[]);
    let mut daemon = keeper.welcomed();
    daemon.spawn_confined(order("a", 1, &["idle"]), profile());
    run(&mut daemon, command(&keeper, 1, "exit 0", 60_000));
    assert_eq!(end_of(&mut daemon, 1), CommandEnd::Ended(How::Exited(0)), "a shell may run");
    run(&mut daemon, command(&keeper, 2, "echo x > \"$READY\"", 60_000));
    assert_ne!(end_of(&mut daemon, 2), CommandEnd::Ended(How::Exited(0)));
    assert!(!std::path::Path::new(&keeper.path("command-2")).exists());
}
