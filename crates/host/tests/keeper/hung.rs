//! Starts that hang: on a file system that does not answer, or because the child is stopped before it
//! executes its program. The keeper goes on, gives such a start up, and reaps it when it can.

#[path = "../../../../tests/src/hung.rs"]
#[allow(unreachable_pub, reason = "the end-to-end tests use the same file")]
mod files;

use std::path::Path;
use std::process::Command;

use defib_host::protocol::{CommandEnd, CommandOrder, How, News, Profile, Request, Stage};

use crate::harness::{FIXTURE, Keeper, WAYS, await_that, key, lives, order, read_line};
use files::Hung;

/// A keeper with a spawn deadline of half a second, and a folder of its own on a file system that hangs.
fn hung(way: &[&str]) -> Option<(Keeper, String, Hung)> {
    let mut command = Command::new(FIXTURE);
    command.env("DEFIB_TEST_SPAWN_DEADLINE_MS", "500");
    let keeper = Keeper::start_by(command, way);
    let folder = keeper.path("hung");
    std::fs::create_dir(&folder).unwrap();
    let hung = Hung::over(Path::new(&folder))?;
    Some((keeper, folder, hung))
}

fn in_folder(agent: &str, run: u64, folder: &str) -> Request {
    let mut order = order(agent, run, &["idle"]);
    folder.clone_into(&mut order.cwd);
    Request::Spawn(Box::new(order))
}

/// The keeper's children that are neither the daemon nor runs: spawners and what hangs.
fn others(keeper: &Keeper, known: &[u32]) -> Vec<u32> {
    let id = keeper.process.id();
    let text = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    let all = text.split_whitespace().map(|pid| pid.parse().unwrap());
    all.filter(|pid| !known.contains(pid)).collect()
}

fn timed_out(agent: &str, run: u64, stage: Stage) -> News {
    News::NotSpawned { key: key(agent, run), errno: libc::ETIMEDOUT, stage }
}

/// Goal: a start that hangs delays no other agent, is reported after its deadline, and leaves nothing when
/// the file system is released; then the agent starts. Method: agent `a` starts in the hung folder. While it
/// hangs, `b` starts, is killed and starts again.
#[test]
fn start_on_a_hung_file_system_is_given_up_and_delays_nobody() {
    for way in WAYS {
        let Some((keeper, folder, mut hung)) = hung(way) else { return };
        let mut daemon = keeper.welcomed();
        daemon.ask(in_folder("a", 1, &folder));
        for run in 1..=2 {
            let (_, output) = daemon.spawn(order("b", run, &["idle"]));
            read_line(&output);
            daemon.ask(Request::Kill(key("b", run)));
            assert_eq!(daemon.exit_of(&key("b", run)).how, How::Signaled(9));
            daemon.ask(Request::Acknowledge(key("b", run)));
        }
        let given_up =
            daemon.find(|news, _| matches!(news, News::NotSpawned { .. }).then(|| news.clone()));
        assert_eq!(given_up, timed_out("a", 1, Stage::Folder), "{way:?}");
        // The child is stuck: it was killed, and it is still there.
        assert!(!others(&keeper, &[daemon.pid]).is_empty());
        // The agent may try again, and others start all the while.
        daemon.ask(in_folder("a", 2, &folder));
        let (b, _) = daemon.spawn(order("b", 3, &["idle"]));
        assert!(lives(b));
        daemon.find(|news, _| (*news == timed_out("a", 2, Stage::Folder)).then_some(()));
        hung.release();
        let (a, output) = daemon.spawn(order("a", 3, &["idle"]));
        read_line(&output);
        await_that("all that hung has been reaped", || {
            others(&keeper, &[daemon.pid, a, b]).len() <= 1
        });
        daemon.ask(Request::Kill(key("a", 3)));
        assert_eq!(daemon.exit_of(&key("a", 3)).how, How::Signaled(9), "{way:?}");
    }
}

#[test]
fn agent_with_three_stuck_starts_is_refused_at_once() {
    let Some((keeper, folder, mut hung)) = hung(WAYS[0]) else { return };
    let mut daemon = keeper.welcomed();
    for run in 1..=3 {
        daemon.ask(in_folder("a", run, &folder));
        assert_eq!(daemon.try_next().unwrap().0, timed_out("a", run, Stage::Folder));
    }
    let stuck = others(&keeper, &[daemon.pid]);
    daemon.ask(in_folder("a", 4, &folder));
    assert_eq!(daemon.try_next().unwrap().0, timed_out("a", 4, Stage::Process));
    // A spawner that was killed may have gone meanwhile.
    let now = others(&keeper, &[daemon.pid]);
    assert!(now.iter().all(|pid| stuck.contains(pid)), "nothing more is stuck: {stuck:?} {now:?}");
    hung.release();
    await_that("what hung has been reaped", || others(&keeper, &[daemon.pid]).len() <= 1);
    daemon.spawn(order("a", 5, &["idle"]));
}

#[test]
fn path_of_a_profile_on_a_hung_file_system_delays_nobody() {
    let Some((keeper, folder, _hung)) = hung(WAYS[0]) else { return };
    if defib_host::sandbox::support().landlock == 0 {
        eprintln!("not run: this kernel has no Landlock, so no path of a profile is opened");
        return;
    }
    let mut daemon = keeper.welcomed();
    let mut profile: Profile = crate::harness::profile();
    let access = defib_host::protocol::Access { read: true, write: false, exec: false };
    profile.paths.push((format!("{folder}/below"), access));
    let confined = order("a", 1, &["idle"]);
    daemon.ask(Request::SpawnConfined(Box::new(confined), Box::new(profile)));
    daemon.spawn(order("b", 1, &["idle"]));
    daemon.find(|news, _| (*news == timed_out("a", 1, Stage::Sandbox)).then_some(()));
}

/// Requests for a run that starts: a kill ends it soon, a signal and an inquiry wait, and the same order
/// given again starts nothing.
#[test]
fn requests_for_a_start_that_hangs_are_answered_and_start_nothing() {
    let mut command = Command::new(FIXTURE);
    command.env("DEFIB_TEST_SPAWN_DEADLINE_MS", "600000");
    let keeper = Keeper::start_by(command, WAYS[0]);
    let folder = keeper.path("hung");
    std::fs::create_dir(&folder).unwrap();
    let Some(mut hung) = Hung::over(Path::new(&folder)) else { return };
    let mut daemon = keeper.welcomed();
    daemon.ask(in_folder("a", 1, &folder));
    daemon.ask(in_folder("a", 1, &folder));
    daemon.ask(Request::Signal { key: key("a", 1), signal: 15 });
    daemon.ask(Request::Inquire(key("a", 1)));
    // The next run of the agent waits as well.
    daemon.ask(Request::Spawn(Box::new(order("a", 2, &["idle"]))));
    let (b, _) = daemon.spawn(order("b", 1, &["idle"]));
    assert_eq!(others(&keeper, &[daemon.pid, b]).len(), 3, "two spawners and one child");
    daemon.ask(Request::Kill(key("a", 1)));
    assert_eq!(daemon.try_next().unwrap().0, timed_out("a", 1, Stage::Folder));
    assert_eq!(daemon.try_next().unwrap().0, News::Unknown(key("a", 1)));
    let spawned = daemon.try_next().unwrap().0;
    assert!(matches!(spawned, News::Spawned { key: of, .. } if of == key("a", 2)));
    hung.release();
    await_that("what hung has been reaped", || others(&keeper, &[daemon.pid, b]).len() <= 2);
}

#[test]
fn daemon_that_dies_during_a_hung_start_is_replaced_and_the_run_can_be_ordered_again() {
    let mut command = Command::new(FIXTURE);
    command.env("DEFIB_TEST_SPAWN_DEADLINE_MS", "600000");
    let keeper = Keeper::start_by(command, WAYS[0]);
    let folder = keeper.path("hung");
    std::fs::create_dir(&folder).unwrap();
    let Some(mut hung) = Hung::over(Path::new(&folder)) else { return };
    let mut daemon = keeper.welcomed();
    let (b, _) = daemon.spawn(order("b", 1, &["idle"]));
    daemon.ask(in_folder("a", 1, &folder));
    daemon.kill();
    let mut daemon = keeper.daemon();
    let told = daemon.told_at_first();
    let held: Vec<u32> = told
        .iter()
        .filter_map(|(news, _)| match news {
            News::Held { pid, .. } => Some(*pid),
            _ => None,
        })
        .collect();
    assert_eq!(held, [b], "the start was given up");
    hung.release();
    let (_, output) = daemon.spawn(order("a", 1, &["idle"]));
    read_line(&output);
}

#[test]
fn keeper_ends_in_time_while_a_start_hangs() {
    let Some((mut keeper, folder, _hung)) = hung(WAYS[0]) else { return };
    let mut daemon = keeper.welcomed();
    let (b, _) = daemon.spawn(order("b", 1, &["idle"]));
    daemon.ask(in_folder("a", 1, &folder));
    daemon.ask(Request::Close);
    daemon.leave();
    assert!(keeper.wait().success());
    assert!(!lives(b));
}

#[test]
fn command_that_hangs_before_its_program_ends_at_its_deadline_and_its_run_lives_on() {
    let Some((keeper, folder, _hung)) = hung(WAYS[0]) else { return };
    let mut daemon = keeper.welcomed();
    let (a, _) = daemon.spawn(order("a", 1, &["idle"]));
    for (number, timeout_ms) in [(1, 100), (2, 60_000)] {
        let argv = vec![format!("{folder}/program")];
        let env = Vec::new();
        let order = CommandOrder { key: key("a", 1), number, argv, env, timeout_ms };
        daemon.ask(Request::RunCommand(Box::new(order)));
        let end = daemon.find(|news, _| match news {
            News::CommandEnded { number: of, end, .. } if *of == number => Some(*end),
            _ => None,
        });
        let given_up = CommandEnd::NotSpawned { errno: libc::ETIMEDOUT, stage: Stage::Program };
        assert_eq!(end, if number == 1 { CommandEnd::TimedOut } else { given_up });
    }
    assert!(lives(a));
    daemon.ask(Request::Kill(key("a", 1)));
    assert_eq!(daemon.exit_of(&key("a", 1)).how, How::Signaled(9));
}

/// Goal: a child that another process of its user stops before it executes its program delays nobody.
/// Method: a process of the same user looks for new processes of that user all the time and stops each one
/// that is still a copy of the keeper's program. It catches one in some of the starts.
#[test]
fn child_that_is_stopped_before_its_program_is_given_up_and_delays_nobody() {
    const USER: &str = "61238:61238";
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: only root can give a run another user");
        return;
    }
    let mut command = Command::new(FIXTURE);
    command.env("DEFIB_TEST_SPAWN_DEADLINE_MS", "300");
    let keeper = Keeper::start_by(command, WAYS[0]);
    let mut daemon = keeper.welcomed();
    let mut attacker = order("attacker", 1, &["stop-starting"]);
    (attacker.user, attacker.cwd) = (Some(USER.to_owned()), "/".to_owned());
    attacker.argv[0] = copy_for_all(&keeper);
    let program = attacker.argv[0].clone();
    let (_, output) = daemon.spawn(attacker);
    assert_eq!(read_line(&output), "looking");
    for run in 1.. {
        let mut victim = order("victim", run, &["idle"]);
        (victim.user, victim.cwd) = (Some(USER.to_owned()), "/".to_owned());
        // The program is looked for in many folders, which gives the attacker time.
        victim.argv[0] = "program".to_owned();
        let path = "/nowhere:".repeat(12_000) + keeper.folder.to_str().unwrap();
        victim.env = vec![("PATH".to_owned(), path)];
        daemon.ask(Request::Spawn(Box::new(victim)));
        let (b, _) = daemon.spawn(order("b", run, &["idle"]));
        assert!(lives(b), "nobody else waits");
        daemon.ask(Request::Kill(key("b", run)));
        daemon.exit_of(&key("b", run));
        let spawned = daemon.find(|news, _| match news {
            News::Spawned { key: of, .. } if *of == key("victim", run) => Some(true),
            News::NotSpawned { key: of, errno, .. } if *of == key("victim", run) => {
                assert_eq!(*errno, libc::ETIMEDOUT);
                Some(false)
            }
            _ => None,
        });
        if !spawned {
            break;
        }
        daemon.ask(Request::Kill(key("victim", run)));
        daemon.exit_of(&key("victim", run));
        assert!(run < 2000, "no start was ever stopped in time");
    }
    daemon.ask(Request::Kill(key("attacker", 1)));
    daemon.exit_of(&key("attacker", 1));
    let mut victim = order("victim", 9999, &["idle"]);
    victim.user = Some(USER.to_owned());
    victim.argv[0] = program;
    victim.cwd = "/".to_owned();
    let (pid, output) = daemon.spawn(victim);
    read_line(&output);
    await_that("what was stopped has been reaped", || {
        others(&keeper, &[daemon.pid, pid]).len() <= 1
    });
}

/// The fixture where every user can run it.
fn copy_for_all(keeper: &Keeper) -> String {
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    let copy = keeper.path("program");
    std::fs::copy(FIXTURE, &copy).unwrap();
    std::fs::set_permissions(&copy, mode(0o755)).unwrap();
    std::fs::set_permissions(&keeper.folder, mode(0o755)).unwrap();
    copy
}
