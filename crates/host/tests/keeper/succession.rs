//! Daemons come and go; what the keeper holds stays.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use defib_host::ChannelError;
use defib_host::output::{Moved, read_some};
use defib_host::protocol::{How, Leftovers, News, Request, Stage, VERSION};
use rustix::process::Signal;

use crate::harness::{
    FIXTURE, Keeper, WAYS, await_file, await_readable, await_that, key, left_facts, lives, order,
    pid, read_all, read_line,
};

#[test]
fn reports_are_told_in_order_to_each_new_daemon_until_they_are_acknowledged() {
    let keeper = Keeper::start(&[]);
    let mut daemon = keeper.welcomed();
    for (agent, code) in [("c", 3), ("a", 1), ("b", 2)] {
        let mut order = order(agent, 1, &[]);
        order.argv = vec!["sh".into(), "-c".into(), format!("echo last words; exit {code}")];
        daemon.spawn(order);
        daemon.exit_of(&key(agent, 1));
    }
    daemon.leave();
    for expected in [vec!["c", "a", "b"], vec!["c", "b"], vec!["b"], vec![]] {
        let mut daemon = keeper.daemon();
        let mut told = Vec::new();
        for (news, fd) in daemon.told_at_first() {
            match news {
                News::Exited { key, end } => {
                    let codes = (0..).zip(["", "a", "b", "c"]);
                    let code = { codes }.find(|(_, agent)| *agent == key.agent.as_str());
                    assert_eq!(Some(end.how), code.map(|(code, _)| How::Exited(code)));
                    told.push((key.agent.as_str().to_owned(), fd.unwrap()));
                }
                News::Welcome { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        let names: Vec<&str> = told.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, expected);
        let acknowledged = ["a", "c", "b"].into_iter().find(|name| names.contains(name));
        if let Some(agent) = acknowledged {
            daemon.ask(Request::Acknowledge(key(agent, 1)));
        }
        if names.len() == 1 {
            // Nobody has read it so far, and nothing of it is lost.
            assert_eq!(read_all(&told[0].1), "last words\n");
        }
        daemon.leave();
    }
}

#[test]
fn bytes_are_kept_for_the_next_daemon_until_they_are_let_go() {
    let keeper = Keeper::start(&[]);
    let mut daemon = keeper.welcomed();
    let large = vec![7; 3 << 20];
    for (key, bytes) in [("token", b"secret".to_vec()), ("large", large.clone()), ("x", vec![1])] {
        daemon.ask(Request::Keep { key: key.to_owned(), bytes });
    }
    daemon.ask(Request::Keep { key: "x".to_owned(), bytes: Vec::new() });
    daemon.leave();
    let mut daemon = keeper.daemon();
    let told: Vec<News> = daemon.told_at_first().into_iter().map(|(news, _)| news).collect();
    let kept = |key: &str, bytes: &[u8]| News::Kept { key: key.to_owned(), bytes: bytes.to_vec() };
    let [News::Welcome { daemons_before: 1, keeper_pid, version: VERSION }, rest @ ..] =
        told.as_slice()
    else {
        panic!("no welcome")
    };
    assert_eq!(*keeper_pid, keeper.process.id());
    assert!(rest == [kept("large", &large), kept("token", b"secret")]);
}

#[test]
fn what_a_daemon_said_before_its_death_counts_though_nothing_can_be_sent_to_it() {
    let keeper = Keeper::start(&[]);
    let mut daemon = keeper.welcomed();
    // While it is stopped all of this comes to it as one. It answers the spawn before it reads on.
    rustix::process::kill_process(keeper.pid(), Signal::STOP).unwrap();
    daemon.ask(Request::Spawn(Box::new(order("a", 1, &["idle"]))));
    daemon.ask(Request::Keep { key: "token".to_owned(), bytes: b"secret".to_vec() });
    drop(daemon.channel);
    rustix::process::kill_process(keeper.pid(), Signal::CONT).unwrap();
    let told: Vec<News> =
        keeper.daemon().told_at_first().into_iter().map(|(news, _)| news).collect();
    let kept = News::Kept { key: "token".to_owned(), bytes: b"secret".to_vec() };
    assert!(told.contains(&kept), "{told:?}");
    let held = told.iter().filter(|news| matches!(news, News::Held { .. })).count();
    assert_eq!(held, 1, "{told:?}");
}

#[test]
fn a_run_is_never_spawned_twice_and_an_agent_never_has_two() {
    let keeper = Keeper::start(&[]);
    let mut daemon = keeper.welcomed();
    let (first, output) = daemon.spawn(order("a", 5, &["idle"]));
    read_line(&output);
    let (again, _) = daemon.spawn(order("a", 5, &["idle"]));
    assert_eq!(first, again);
    for run in [6, 4] {
        daemon.ask(Request::Spawn(Box::new(order("a", run, &["idle"]))));
        let (news, _) = daemon.try_next().unwrap();
        let (errno, stage) = (libc::EBUSY, Stage::Process);
        match run {
            6 => assert_eq!(news, News::NotSpawned { key: key("a", 6), errno, stage }),
            _ => assert_eq!(news, News::Unknown(key("a", 4))),
        }
    }
    daemon.ask(Request::Kill(key("a", 5)));
    daemon.exit_of(&key("a", 5));
    daemon.ask(Request::Spawn(Box::new(order("a", 5, &["idle"]))));
    assert_eq!(daemon.exit_of(&key("a", 5)).how, How::Signaled(9));
    daemon.ask(Request::Acknowledge(key("a", 5)));
    for run in [5, 4] {
        daemon.ask(Request::Spawn(Box::new(order("a", run, &["idle"]))));
        assert_eq!(daemon.try_next().unwrap().0, News::Unknown(key("a", run)));
    }
    daemon.spawn(order("a", 6, &["idle"]));
}

/// The cgroups that a keeper has made, its own and its agents'.
fn cgroups(keeper: &Keeper) -> Vec<String> {
    let hex: Vec<String> = keeper.home_key.bytes().map(|byte| format!("{byte:02x}")).collect();
    let place = format!("*/defib-{}-*", hex.concat());
    let mut find = Command::new("find");
    let found = find.args(["/sys/fs/cgroup", "-type", "d", "-path", &place]).output().unwrap();
    String::from_utf8_lossy(&found.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn an_agent_is_forgotten_when_the_end_of_its_last_run_is_acknowledged_and_not_before() {
    for way in WAYS {
        let keeper = Keeper::start(way);
        let mut daemon = keeper.welcomed();
        let before = cgroups(&keeper);
        let (first, output) = daemon.spawn(order("a", 5, &["idle"]));
        read_line(&output);
        daemon.ask(Request::Forget(key("a", 5).agent));
        daemon.ask(Request::Spawn(Box::new(order("a", 4, &["idle"]))));
        assert_eq!(daemon.try_next().unwrap().0, News::Unknown(key("a", 4)), "{way:?}");
        let (again, _) = daemon.spawn(order("a", 5, &["idle"]));
        assert_eq!(first, again, "{way:?}");
        daemon.ask(Request::Kill(key("a", 5)));
        daemon.exit_of(&key("a", 5));
        daemon.ask(Request::Forget(key("a", 5).agent));
        daemon.ask(Request::Spawn(Box::new(order("a", 5, &["idle"]))));
        assert_eq!(daemon.exit_of(&key("a", 5)).how, How::Signaled(9), "{way:?}");
        daemon.ask(Request::Forget(key("a", 5).agent));
        daemon.ask(Request::Acknowledge(key("a", 5)));
        // Where the kernel was late it is done with the next tidying.
        await_that("its cgroup is removed", || {
            daemon.ask(Request::Tidy);
            daemon.has_ended(&key("a", 5));
            cgroups(&keeper) == before
        });
        daemon.spawn(order("a", 1, &["idle"]));
    }
}

#[test]
fn one_that_is_back_before_it_is_forgotten_is_not_forgotten() {
    let keeper = Keeper::start(&[]);
    let mut daemon = keeper.welcomed();
    daemon.spawn(order("a", 1, &["show"]));
    daemon.exit_of(&key("a", 1));
    daemon.ask(Request::Forget(key("a", 1).agent));
    daemon.spawn(order("a", 2, &["idle"]));
    daemon.ask(Request::Acknowledge(key("a", 1)));
    daemon.ask(Request::Kill(key("a", 2)));
    daemon.exit_of(&key("a", 2));
    daemon.ask(Request::Acknowledge(key("a", 2)));
    daemon.ask(Request::Spawn(Box::new(order("a", 2, &["idle"]))));
    assert_eq!(daemon.try_next().unwrap().0, News::Unknown(key("a", 2)));
}

#[test]
fn an_inquiry_says_what_is_known() {
    let keeper = Keeper::start(&[]);
    let mut daemon = keeper.welcomed();
    let (pid, output) = daemon.spawn(order("a", 1, &["idle"]));
    read_line(&output);
    daemon.ask(Request::Inquire(key("a", 1)));
    let (news, fd) = daemon.try_next().unwrap();
    assert_eq!(news, News::Held { key: key("a", 1), pid, terminal: false });
    assert!(fd.is_none(), "this daemon has had its output since it was told of the run");
    daemon.ask(Request::Inquire(key("b", 1)));
    assert_eq!(daemon.try_next().unwrap().0, News::Unknown(key("b", 1)));
}

#[test]
fn a_killed_daemon_comes_back_agents_live_on_and_no_output_is_lost() {
    for way in WAYS {
        let keeper = Keeper::start(way);
        let mut daemon = keeper.welcomed();
        let (agent, mut output) = daemon.spawn(order("a", 1, &["lines", "300000"]));
        let mut text = Vec::new();
        let mut buffer = [0; 4096];
        for before in 1..=20 {
            // Reads a little, and dies with the rest unread.
            while let Moved::Bytes(bytes) = read_some(&output, &mut buffer).unwrap() {
                text.extend_from_slice(&buffer[..bytes]);
                if text.len() > before * 50_000 {
                    break;
                }
            }
            daemon.kill();
            // The keeper's end is closed once it has seen that the daemon has gone.
            while daemon.try_next().is_ok() {}
            daemon = keeper.daemon();
            let mut told = daemon.told_at_first();
            assert_eq!(told.len(), 2);
            let (news, fd) = told.pop().unwrap();
            assert_eq!(news, News::Held { key: key("a", 1), pid: agent, terminal: false });
            output = fd.unwrap();
            let Some((News::Welcome { daemons_before, .. }, _)) = told.pop() else { panic!() };
            assert_eq!(daemons_before, before as u64);
            assert!(lives(agent));
            if before > 3 {
                break;
            }
        }
        loop {
            match read_some(&output, &mut buffer).unwrap() {
                Moved::Bytes(bytes) => text.extend_from_slice(&buffer[..bytes]),
                Moved::WouldBlock => await_readable(&output, "output"),
                Moved::End => break,
            }
        }
        let lines = String::from_utf8(text).unwrap();
        assert!(lines.lines().map(|line| line.parse::<u64>().unwrap()).eq(0..300_000));
        daemon.exit_of(&key("a", 1));
    }
}

#[test]
fn the_listener_outlives_the_daemon_and_connections_wait_for_the_next() {
    let keeper = Keeper::start(&[]);
    let daemon = keeper.welcomed();
    daemon.kill();
    let _client = UnixStream::connect(keeper.path("listener")).unwrap();
    let daemon = keeper.daemon();
    await_readable(&daemon.listener, "a connection");
    assert!(rustix::net::accept(&daemon.listener).is_ok());
}

#[test]
fn a_daemon_that_sends_garbage_is_replaced_and_agents_live_on() {
    let keeper = Keeper::start(&[]);
    let mut daemon = keeper.welcomed();
    let (agent, output) = daemon.spawn(order("a", 1, &["idle"]));
    read_line(&output);
    for garbage in [&[255; 5][..], &[1, 0, 0, 0, 0, 99], &[2, 0, 0, 0, 1, 8, 8]] {
        rustix::io::write(&daemon.channel, garbage).unwrap();
        await_that("the daemon is killed", || !lives(daemon.pid));
        assert_eq!(daemon.try_next().map(drop), Err(ChannelError::Closed));
        daemon = keeper.daemon();
        let told = daemon.told_at_first();
        let held = News::Held { key: key("a", 1), pid: agent, terminal: false };
        assert!(told.iter().any(|(news, _)| *news == held), "{told:?}");
        assert!(lives(agent));
    }
}

#[test]
fn close_takes_the_keeper_along_with_the_daemon_and_leaves_nothing() {
    for way in WAYS {
        let mut keeper = Keeper::start(way);
        let mut daemon = keeper.welcomed();
        let (agent, output) = daemon.spawn(order("a", 1, &["stubborn"]));
        read_line(&output);
        // Its last request, sent and gone: what a daemon said before it ended counts.
        daemon.ask(Request::Close);
        daemon.kill();
        assert_eq!(keeper.wait().code(), Some(0));
        assert!(!lives(agent));
        assert_eq!(cgroups(&keeper), [""; 0]);
    }
}

#[test]
fn term_asks_the_daemon_to_close_and_a_second_one_ends_everything() {
    for way in WAYS {
        let mut keeper = Keeper::start(way);
        let mut daemon = keeper.welcomed();
        let (agent, output) = daemon.spawn(order("a", 1, &["stubborn"]));
        read_line(&output);
        rustix::process::kill_process(keeper.pid(), Signal::TERM).unwrap();
        assert_eq!(daemon.try_next().unwrap().0, News::CloseAsked);
        assert!(lives(agent));
        // A daemon that dies of it leaves the request to the next.
        daemon.kill();
        let mut daemon = keeper.daemon();
        daemon.told_at_first();
        assert_eq!(daemon.try_next().unwrap().0, News::CloseAsked);
        rustix::process::kill_process(keeper.pid(), Signal::HUP).unwrap();
        rustix::process::kill_process(keeper.pid(), Signal::INT).unwrap();
        assert_eq!(keeper.wait().code(), Some(1));
        assert!(!lives(agent));
        assert!(!lives(daemon.pid));
    }
}

#[test]
fn a_replacement_is_used_and_one_that_does_not_work_is_not() {
    let keeper = Keeper::start(&[]);
    let mut daemon = keeper.welcomed();
    let copy = keeper.path("copy");
    std::fs::copy(FIXTURE, &copy).unwrap();
    let exe = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    let original = exe(daemon.pid);
    let (agent, output) = daemon.spawn(order("a", 1, &["idle"]));
    read_line(&output);
    for (program, expected) in [
        ("/no/such/program", original.as_path()),
        ("/bin/false", &original),
        (copy.as_str(), copy.as_ref()),
    ] {
        daemon.ask(Request::Replace { program: program.to_owned() });
        daemon.leave();
        daemon = keeper.daemon();
        daemon.told_at_first();
        assert_eq!(exe(daemon.pid), expected, "{program}");
    }
    assert!(lives(agent));
}

#[test]
fn when_the_keeper_is_killed_its_children_die_the_rest_is_swept_and_strangers_live() {
    for way in WAYS {
        let mut keeper = Keeper::start(way);
        let mut daemon = keeper.welcomed();
        let ready = keeper.path("ready");
        let mut hiding = order("a", 1, &["leave", "idle"]);
        hiding.env.push(("READY".to_owned(), ready.clone()));
        hiding.leftovers = Leftovers::Keep;
        let (first, _) = daemon.spawn(hiding);
        let (hidden, _) = left_facts(&await_file(ready));
        let stranger = |key: &str| {
            let mut command = Command::new("sleep");
            command.arg("1000").env(defib_host::HOME_KEY, key).spawn().unwrap()
        };
        // One like ours but longer, and one of no home.
        let mut strangers = [stranger(&format!("{}0", keeper.home_key)), stranger("")];
        keeper.process.kill().unwrap();
        keeper.wait();
        // The daemon outlives it, and sees the end of its channel.
        await_that("the direct child is dead", || !lives(first));
        while daemon.try_next().is_ok() {}
        assert!(lives(daemon.pid));
        assert!(lives(hidden));
        assert_eq!(keeper.sweep(), "killed 1 left 0\n", "{way:?}");
        assert!(!lives(hidden), "{way:?}");
        assert!(lives(daemon.pid));
        for stranger in &mut strangers {
            assert!(lives(stranger.id()), "{way:?}");
            stranger.kill().unwrap();
            stranger.wait().unwrap();
        }
        rustix::process::kill_process(pid(daemon.pid), Signal::KILL).unwrap();
    }
}

#[test]
fn what_a_keeper_of_another_login_left_is_swept_by_its_cgroup_too() {
    let unified = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    let login = unified.iter().filter(|tree| Path::new(tree).join("cgroup.procs").exists());
    let login = login.map(|tree| format!("{tree}/login-{}", std::process::id())).next();
    let Some(login) = login.filter(|login| std::fs::create_dir(login).is_ok()) else {
        eprintln!("skipped: no cgroups that can be made");
        return;
    };
    let mut command = Command::new("sh");
    let enter = format!("echo $$ > {login}/cgroup.procs && exec \"$0\" \"$@\"");
    command.args(["-c", &enter, FIXTURE]);
    let mut keeper = Keeper::start_by(command, &[]);
    let mut daemon = keeper.welcomed();
    let ready = keeper.path("ready");
    let mut hiding = order("a", 1, &[]);
    // Nothing but its cgroup says whose it is.
    let script = format!("setsid -f {FIXTURE} unmarked left; exec sleep 1000");
    hiding.argv = vec!["sh".to_owned(), "-c".to_owned(), script];
    hiding.env.push(("READY".to_owned(), ready.clone()));
    daemon.spawn(hiding);
    let (hidden, _) = left_facts(&await_file(ready));
    keeper.process.kill().unwrap();
    keeper.wait();
    assert!(lives(hidden));
    keeper.sweep();
    let is_swept = !lives(hidden);
    let _ = rustix::process::kill_process(pid(hidden), Signal::KILL);
    let _ = rustix::process::kill_process(pid(daemon.pid), Signal::KILL);
    assert!(is_swept);
    await_that("the login is over", || std::fs::remove_dir(&login).is_ok());
}

#[test]
fn a_daemon_that_keeps_dying_is_started_again_and_again() {
    let mut keeper = Keeper::start(&["broken"]);
    let children = format!("/proc/{0}/task/{0}/children", keeper.process.id());
    let mut seen = std::collections::BTreeSet::new();
    await_that("four daemons were started", || {
        let text = std::fs::read_to_string(&children).unwrap();
        seen.extend(text.split_ascii_whitespace().map(str::to_owned));
        seen.len() >= 4
    });
    assert!(keeper.process.try_wait().unwrap().is_none());
}
