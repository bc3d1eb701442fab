//! What the keeper's sandbox does, in each way that processes are made.

use std::collections::BTreeSet;

use defib_host::protocol::{Access, How, News, Ports, Profile, Request, Stage};
use rustix::process::{Resource, Rlimit, prlimit};

use crate::harness::{Keeper, WAYS, await_that, key, lives, order, profile, read_all, read_until};

fn shell(agent: &str, run: u64, line: &str) -> defib_host::protocol::SpawnOrder {
    let mut order = order(agent, run, &[]);
    order.argv = ["/bin/sh", "-c", line].map(str::to_owned).to_vec();
    order
}

fn may(path: &str, access: Access) -> Profile {
    let mut profile = Profile { subprocess: true, ..profile() };
    profile.paths.push((path.to_owned(), access));
    profile
}

const READ: Access = Access { read: true, write: false, exec: false };
const WRITE: Access = Access { read: false, write: true, exec: false };

#[test]
fn files_can_be_read_and_written_where_the_profile_says_and_nowhere_else() {
    for way in WAYS {
        let keeper = Keeper::start(way);
        let mut daemon = keeper.welcomed();
        std::fs::write(keeper.path("secret"), "told\n").unwrap();
        let line = format!("cat {0}; echo more >> {0} && echo wrote", keeper.path("secret"));
        let folder = keeper.folder.display().to_string();
        for (run, profile, expected) in [
            (1, may("/nowhere", READ), (false, false)),
            (2, may(&folder, READ), (true, false)),
            (3, may(&folder, WRITE), (false, true)),
        ] {
            let (_, output) = daemon.spawn_confined(shell("a", run, &line), profile);
            daemon.exit_of(&key("a", run));
            let text = read_all(&output);
            assert_eq!((text.contains("told"), text.contains("wrote")), expected, "{text}");
        }
    }
}

#[test]
fn without_the_right_to_make_processes_there_is_one_and_with_it_the_keeper_ends_them_all() {
    for way in WAYS {
        let keeper = Keeper::start(way);
        let mut daemon = keeper.welcomed();
        let (_, output) = daemon.spawn_confined(shell("a", 1, "id; echo no"), profile());
        assert_ne!(daemon.exit_of(&key("a", 1)).how, How::Exited(0));
        assert!(read_all(&output).contains("fork"));
        let line = "(setsid sleep 600 & echo pid $!); exec sleep 601";
        let profile = Profile { subprocess: true, ..profile() };
        let (_, output) = daemon.spawn_confined(shell("a", 2, line), profile);
        let text = read_until(&output, |text| text.contains('\n') && text.contains("pid "));
        let left: u32 = text.trim().rsplit(' ').next().unwrap().parse().unwrap();
        await_that("the one that was left", || lives(left));
        daemon.ask(Request::Kill(key("a", 2)));
        assert_eq!(daemon.exit_of(&key("a", 2)).how, How::Signaled(libc::SIGKILL));
        await_that("nothing is left", || !lives(left));
    }
}

#[test]
fn a_program_that_may_not_be_run_is_said_to_be_so() {
    let keeper = Keeper::start(&[]);
    let mut daemon = keeper.welcomed();
    let nothing = Profile { connect: Ports::All, listen: Ports::All, ..Profile::default() };
    let order = Request::SpawnConfined(Box::new(shell("a", 1, "true")), Box::new(nothing));
    daemon.ask(order);
    let (news, _) = daemon.try_next().unwrap();
    let (errno, stage) = (libc::EACCES, Stage::Program);
    assert_eq!(news, News::NotSpawned { key: key("a", 1), errno, stage });
}

#[test]
fn runs_that_cannot_be_confined_leave_nothing_open() {
    let keeper = Keeper::start(&[]);
    let mut daemon = keeper.welcomed();
    let Some(open) = open_files(&keeper) else {
        eprintln!("skipped: nobody but root may look into a keeper");
        return;
    };
    // Both ends of a pipe can be had, and the ruleset after them cannot.
    let second = (0..).filter(|number| !open.contains(number)).nth(1).unwrap();
    let own = bound_files(&keeper, second + 1);
    for _ in 0..100 {
        let order = Request::SpawnConfined(Box::new(shell("a", 1, "true")), Box::new(profile()));
        daemon.ask(order);
        let (news, _) = daemon.try_next().unwrap();
        let News::NotSpawned { stage: Stage::Sandbox, .. } = news else {
            eprintln!("skipped: nothing here keeps a run from being confined");
            return;
        };
    }
    bound_files(&keeper, own);
    assert_eq!(open_files(&keeper), Some(open));
    let (_, output) = daemon.spawn_confined(shell("a", 1, "echo confined"), profile());
    daemon.exit_of(&key("a", 1));
    assert_eq!(read_all(&output), "confined\n");
}

/// What a keeper has open, where anybody may look.
fn open_files(keeper: &Keeper) -> Option<BTreeSet<u64>> {
    let files = std::fs::read_dir(format!("/proc/{}/fd", keeper.process.id())).ok()?;
    Some(files.flatten().filter_map(|file| file.file_name().to_str()?.parse().ok()).collect())
}

/// Bounds what a keeper may open, and says what it was bounded to.
fn bound_files(keeper: &Keeper, count: u64) -> u64 {
    let stood = std::fs::read_to_string(format!("/proc/{}/limits", keeper.process.id())).unwrap();
    let files = stood.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let bounds: Vec<u64> = files.split_whitespace().filter_map(|it| it.parse().ok()).collect();
    let bound = Rlimit { current: Some(count), maximum: Some(bounds[1]) };
    prlimit(Some(keeper.pid()), Resource::Nofile, bound).unwrap();
    bounds[0]
}

#[test]
fn those_without_a_profile_are_as_they_were() {
    let keeper = Keeper::start(&[]);
    let mut daemon = keeper.welcomed();
    daemon.spawn_confined(order("a", 1, &["idle"]), profile());
    let (_, output) =
        daemon.spawn(shell("b", 1, "grep -E 'NoNewPrivs|Seccomp:' /proc/self/status"));
    daemon.exit_of(&key("b", 1));
    let text = read_all(&output);
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    for line in text.lines() {
        assert!(own.contains(line), "{line}");
    }
    assert_eq!(text.lines().count(), 2);
}
