//! A removed socket is bound again, and a removed home never gets a second keeper.
//!
//! Each rule is checked as the user that runs the tests and, if that is root, as a user created for it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};

use defib_e2e::{Bench, PlainUser, await_that, proc};

use crate::{FAKE_AGENT, bench};

/// Checks a rule as the test's own user, and as a plain user.
fn as_each_user(word: &str, rule: impl Fn(&Bench)) {
    let is_root = rustix::process::geteuid().is_root();
    eprintln!("as {}", if is_root { "root" } else { "the plain user that runs the tests" });
    rule(&bench());
    if let Some(user) = PlainUser::new(word) {
        eprintln!("as the user {}, who was created for this", user.uid);
        rule(&user.bench(FAKE_AGENT));
    }
}

/// The number of lines that runs have appended to a file of the project.
fn count(bench: &Bench, name: &str) -> usize {
    fs::read_to_string(bench.file(name)).unwrap_or_default().lines().count()
}

/// The process that wrote a line.
fn writer(bench: &Bench, name: &str, line: usize) -> u32 {
    let text = fs::read_to_string(bench.file(name)).unwrap();
    text.lines().nth(line).unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

/// Keepers of this home that live.
fn keepers(bench: &Bench) -> Vec<u32> {
    let is_keeper = |pid: &u32| {
        proc::read(*pid, "cmdline").is_some_and(|line| proc::holds(&line, "\0internal\0keeper\0"))
    };
    bench.processes().into_iter().filter(is_keeper).collect()
}

/// Goal: whatever happens to the file, clients get in again, also with later daemons. Method: the test itself
/// connects, because the command line asks the keeper to check the file.
#[test]
fn removed_or_replaced_socket_is_bound_again_for_this_daemon_and_the_next() {
    as_each_user("soc", |bench| {
        let _events = bench.up(&[bench.agent("a", "forever", "")]);
        let (who, pid) = (bench.who(), bench.pid("a"));
        let (path, aside) = (bench.home().join("defib.sock"), bench.home().join("aside"));
        let losses: [(&str, &dyn Fn()); 6] = [
            ("removed", &|| fs::remove_file(&path).unwrap()),
            ("moved", &|| fs::rename(&path, &aside).unwrap()),
            ("replaced by a file", &|| {
                fs::remove_file(&aside).unwrap();
                fs::write(&aside, "x").unwrap();
                fs::rename(&aside, &path).unwrap();
            }),
            ("replaced by a symlink", &|| {
                fs::remove_file(&path).unwrap();
                std::os::unix::fs::symlink("/nowhere", &path).unwrap();
            }),
            ("replaced by a folder", &|| {
                fs::remove_file(&path).unwrap();
                fs::create_dir(&path).unwrap();
            }),
            ("replaced by another socket", &|| {
                fs::remove_file(&path).unwrap();
                drop(UnixListener::bind(&path).unwrap());
            }),
        ];
        for (what, lose) in losses {
            lose();
            await_that(what, || UnixStream::connect(&path).is_ok());
            let file = fs::symlink_metadata(&path).unwrap();
            assert_eq!(file.permissions().mode() & 0o777, 0o600, "{what}");
            assert_eq!(bench.look("/healthz").code, 200, "{what}");
            assert_eq!((bench.who(), bench.pid("a")), (who, pid), "{what}");
        }
        let _ = fs::remove_file(&aside);
        // The next daemon gets the last listener; one that is lost while there is no daemon comes back too.
        bench.kill_daemon();
        assert_eq!(bench.pid("a"), pid);
        proc::kill(bench.who().1, "KILL");
        fs::remove_file(&path).unwrap();
        await_that("the socket", || UnixStream::connect(&path).is_ok());
        // A command meets the gap as well.
        fs::remove_file(&path).unwrap();
        bench.defib(&["status"]).good();
        assert_eq!((bench.pid("a"), bench.who().0), (pid, who.0));
    });
}

/// Goal: with the folder removed everything lives on, and nothing is started a second time. Method: the agent
/// adds a line per run to a file outside of the home.
#[test]
fn removed_home_keeps_its_keeper_and_gets_no_second_one() {
    as_each_user("hom", |bench| {
        let script = format!("count {} forever", bench.file("runs"));
        bench.declare(&[bench.agent("a", &script, "")]);
        bench.defib(&["up", "--detach"]).good();
        await_that("a run", || count(bench, "runs") == 1);
        let ((keeper, daemon), agent) = (bench.who(), bench.pid("a"));
        fs::remove_dir_all(bench.home()).unwrap();
        let refused = |arguments: &[&str]| {
            let ran = bench.defib(arguments).bad(1);
            let named = ran.err.contains(&format!("process {keeper}"));
            assert!(named && ran.err.contains(&format!("kill {keeper}")), "{ran:#?}");
        };
        refused(&["up", "--detach"]);
        assert!(!bench.home().exists(), "a folder that was moved away can come back");
        refused(&["status"]);
        // Also in a folder that somebody else has made, and for a service manager.
        fs::create_dir(bench.home()).unwrap();
        let mut owner = std::process::Command::new("chown");
        owner.arg(format!("--reference={}", bench.project().display())).arg(bench.home());
        assert!(owner.status().unwrap().success());
        refused(&["up", "--detach"]);
        refused(&["internal", "keeper", "--home", bench.home().to_str().unwrap()]);
        refused(&["down", "--all"]);
        assert!([keeper, daemon, agent].into_iter().all(proc::lives));
        assert_eq!((keepers(bench), count(bench, "runs")), (vec![keeper], 1));
        // They still do their work.
        proc::kill(agent, "KILL");
        await_that("the next run", || count(bench, "runs") == 2);
        // What the message says works.
        proc::kill(keeper, "TERM");
        proc::await_gone(keeper);
        proc::await_gone(writer(bench, "runs", 1));
        bench.defib(&["up", "--detach"]).good();
        await_that("a run", || count(bench, "runs") == 3);
        assert_eq!(keepers(bench).len(), 1);
    });
}

#[test]
fn moved_home_is_served_where_it_is_and_when_it_is_back() {
    as_each_user("mov", |bench| {
        bench.declare(&[bench.agent("a", "forever", "")]);
        bench.defib(&["up", "--detach"]).good();
        let (who, pid) = (bench.who(), bench.pid("a"));
        let away = bench.home().with_file_name("w");
        fs::rename(bench.home(), &away).unwrap();
        let ran = bench.defib(&["up", "--detach"]).bad(1);
        assert!(ran.err.contains(&format!("process {}", who.0)), "{ran:#?}");
        assert!(UnixStream::connect(away.join("defib.sock")).is_ok());
        fs::rename(&away, bench.home()).unwrap();
        assert_eq!((bench.who(), bench.pid("a")), (who, pid));
    });
}

/// Goal: a keeper that is killed after its folder was removed leaves nothing that runs twice. Method: the agent
/// leaves a grandchild in a session of its own, which only the mark of the first folder attributes.
#[test]
fn heir_of_a_removed_home_ends_what_the_killed_keeper_left() {
    as_each_user("heir", |bench| {
        let (runs, left) = (bench.file("runs"), bench.file("left"));
        let script = format!("double-fork 'count {left} forever' count {runs} forever");
        bench.declare(&[bench.agent("a", &script, "")]);
        bench.defib(&["up", "--detach"]).good();
        await_that("a run", || count(bench, "runs") == 1 && count(bench, "left") == 1);
        let (keeper, daemon) = bench.who();
        fs::remove_dir_all(bench.home()).unwrap();
        proc::kill(keeper, "KILL");
        // The stops and goals of before are lost with the folder, so nothing is started until `up`.
        proc::await_gone(writer(bench, "runs", 0));
        proc::await_gone(writer(bench, "left", 0));
        await_that("the next daemon", || bench.defib(&["up", "--detach"]).code == 0);
        await_that("a run", || count(bench, "runs") == 2 && count(bench, "left") == 2);
        assert_eq!(keepers(bench), [daemon], "the daemon is the keeper now");
        bench.pid("a");
    });
}
