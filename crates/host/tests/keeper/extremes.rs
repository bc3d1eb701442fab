//! Many of them, nothing lost, nothing leaked; and the keeper as the first process of all.

use std::process::Command;

use defib_host::Flushed;
use defib_host::protocol::{How, News, Request};
use rustix::event::{PollFd, PollFlags};

use crate::harness::{FIXTURE, Keeper, WAYS, await_that, key, lives, order, read_line, seconds};

/// `None`: nobody but root may look into a keeper.
fn open_files(keeper: &Keeper) -> Option<usize> {
    let files = std::fs::read_dir(format!("/proc/{}/fd", keeper.process.id()));
    assert!(files.is_ok() || !rustix::process::geteuid().is_root());
    files.ok().map(Iterator::count)
}

/// A spawner is a process of the keeper's own, idle or about to end.
fn is_spawner(pid: &str) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.is_empty() || name.trim() == "defib-spawner"
}

#[test]
fn a_thousand_agents_live_at_once_and_leave_no_descriptor_behind() {
    for (way, count) in WAYS.into_iter().zip([1000, 1000, 100]) {
        let keeper = Keeper::start(way);
        let mut daemon = keeper.welcomed();
        let before = open_files(&keeper);
        for number in 0..count {
            let mut order = order(&format!("agent-{number}"), 1, &[]);
            order.argv = vec!["sleep".to_owned(), "1000".to_owned()];
            daemon.ask(Request::Spawn(Box::new(order)));
        }
        let mut pids = Vec::new();
        for _ in 0..count {
            let pid = daemon.find(|news, _| match news {
                News::Spawned { pid, .. } => Some(*pid),
                News::NotSpawned { errno, .. } => panic!("{errno}"),
                _ => None,
            });
            pids.push(pid);
        }
        assert!(pids.iter().all(|pid| lives(*pid)));
        for number in 0..count {
            daemon.ask(Request::Kill(key(&format!("agent-{number}"), 1)));
        }
        for _ in 0..count {
            let (ended, end) = daemon.find(|news, _| match news {
                News::Exited { key, end } => Some((key.clone(), end.clone())),
                _ => None,
            });
            assert_eq!(end.how, How::Signaled(9));
            daemon.ask(Request::Acknowledge(ended));
        }
        assert!(pids.iter().all(|pid| !lives(*pid)));
        assert!(!daemon.has_ended(&key("agent-0", 1)));
        assert_eq!(open_files(&keeper), before, "{way:?}");
    }
}

#[test]
fn a_daemon_that_is_slow_to_hear_of_many_costs_no_more_descriptors_than_there_are() {
    const COUNT: usize = 1500;
    // Two for each run, and some of the keeper's own.
    let limited = format!("ulimit -n {}; exec \"$0\" \"$@\"", 2 * COUNT + 120);
    let mut command = Command::new("sh");
    command.args(["-c", &limited, FIXTURE]);
    let keeper = Keeper::start_by(command, WAYS[0]);
    let mut daemon = keeper.welcomed();
    for number in 0..COUNT {
        let mut order = order(&format!("agent-{number}"), 1, &[]);
        order.argv = vec!["sleep".to_owned(), "1000".to_owned()];
        daemon.ask(Request::Spawn(Box::new(order)));
    }
    // Nobody reads until as many have been spawned as can be without that.
    let (mut before, mut looks) = (0, 0);
    await_that("the keeper has nothing to do", || {
        let now = open_files(&keeper).unwrap_or(0);
        looks = if std::mem::replace(&mut before, now) == now { looks + 1 } else { 0 };
        looks == 100
    });
    for _ in 0..COUNT {
        daemon.find(|news, _| match news {
            News::Spawned { .. } => Some(()),
            News::NotSpawned { errno, .. } => panic!("{errno}"),
            _ => None,
        });
    }
}

#[test]
fn run_after_run_leaves_no_descriptor_and_no_dead_process_behind() {
    for way in WAYS {
        let keeper = Keeper::start(way);
        let mut daemon = keeper.welcomed();
        let before = open_files(&keeper);
        for run in 1..=300 {
            let mut order = order("a", run, &[]);
            order.argv = vec![if run % 10 == 0 { "no-such-program" } else { "true" }.to_owned()];
            daemon.ask(Request::Spawn(Box::new(order)));
            daemon.find(|news, _| match news {
                News::Exited { end, .. } => {
                    assert_eq!(end.how, How::Exited(0));
                    Some(())
                }
                News::NotSpawned { .. } => Some(()),
                _ => None,
            });
            daemon.ask(Request::Acknowledge(key("a", run)));
        }
        daemon.has_ended(&key("a", 1));
        assert_eq!(open_files(&keeper), before, "{way:?}");
        let id = keeper.process.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        let mut children: Vec<&str> = children.split_whitespace().collect();
        children.retain(|child| !is_spawner(child));
        assert_eq!(children, [daemon.pid.to_string()], "{way:?}");
    }
}

#[test]
fn as_the_first_process_it_reaps_orphans_and_heeds_term() {
    for way in WAYS {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child", "--"]);
        let possible = { command }.arg("true").status().is_ok_and(|status| status.success());
        if !possible {
            eprintln!("skipped: unshare cannot make a process namespace here");
            return;
        }
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child", "--", FIXTURE]);
        let keeper = Keeper::start_by(command, way);
        let mut daemon = keeper.daemon();
        let told = daemon.told_at_first();
        assert!(matches!(told[0].0, News::Welcome { keeper_pid: 1, .. }), "{told:?}");
        let mut order = order("a", 1, &[]);
        // Fifty orphans that end, and then one that says how many dead ones it sees.
        let script = "i=0; while [ $i -lt 50 ]; do setsid -f true; i=$((i+1)); done; \
                      while grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null; do :; done; \
                      echo none; exec sleep 1000";
        order.argv = vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()];
        let (_, output) = daemon.spawn(order);
        let text = crate::harness::read_until(&output, |text| text.contains("none\n"));
        assert!(text.ends_with("none\n"), "{text}");
        // The keeper's number outside the namespace.
        let id = keeper.process.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        let first = crate::harness::pid(children.trim().parse().unwrap());
        rustix::process::kill_process(first, rustix::process::Signal::TERM).unwrap();
        daemon.find(|news, _| (*news == News::CloseAsked).then_some(()));
        daemon.ask(Request::Kill(key("a", 1)));
        daemon.exit_of(&key("a", 1));
        daemon.ask(Request::Close);
        daemon.leave();
        let mut keeper = keeper;
        assert_eq!(keeper.wait().code(), Some(0));
    }
}

#[test]
fn a_flood_of_requests_whose_answers_nobody_reads_costs_bounded_memory() {
    let keeper = Keeper::start(&[]);
    let mut daemon = keeper.welcomed();
    let (agent, output) = daemon.spawn(order("a", 1, &["idle"]));
    read_line(&output);
    // Until neither side takes any more: the keeper has stopped reading.
    let (mut asked, mut bytes) = (0_u64, 0);
    let nobody = key(&"n".repeat(60), 1);
    loop {
        assert!(bytes < 16 << 20, "the keeper reads on");
        while daemon.channel.queued_bytes() < 1 << 16 {
            let before = daemon.channel.queued_bytes();
            daemon.channel.send(&Request::Inquire(nobody.clone()), &[]).unwrap();
            bytes += daemon.channel.queued_bytes() - before;
            asked += 1;
        }
        if daemon.channel.flush().unwrap() == Flushed::Blocked {
            let mut polled = [PollFd::new(&daemon.channel, PollFlags::OUT)];
            if rustix::event::poll(&mut polled, Some(&seconds(1))) == Ok(0) {
                break;
            }
        }
    }
    let usage = defib_host::usage::usage(keeper.process.id()).unwrap();
    assert!(usage.resident_bytes < 32 << 20, "{usage:?}");
    // Agents are taken care of all the same.
    rustix::process::kill_process(crate::harness::pid(agent), rustix::process::Signal::KILL)
        .unwrap();
    await_that("the agent is waited for", || {
        !std::path::Path::new(&format!("/proc/{agent}")).exists()
    });
    for _ in 0..asked {
        daemon.channel.flush().unwrap();
        daemon.find(|news, _| (*news == News::Unknown(nobody.clone())).then_some(()));
    }
    assert_eq!(daemon.exit_of(&key("a", 1)).how, How::Signaled(9));
}

/// Run with `--ignored --nocapture`, in a release build.
#[test]
#[ignore = "a measurement, not a rule"]
fn cost_of_a_run_beside_a_bare_spawn_and_wait() {
    const COUNT: u32 = 300;
    let floor = || {
        let bench = Command::new(FIXTURE).args(["bench", &COUNT.to_string()]).output().unwrap();
        let text = String::from_utf8(bench.stdout).unwrap();
        text.trim().rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    for (way, idle) in [(WAYS[0], 0), (WAYS[0], 1000), (WAYS[1], 0), (WAYS[1], 1000)] {
        let keeper = Keeper::start(way);
        let mut daemon = keeper.welcomed();
        for number in 0..idle {
            let mut order = order(&format!("idle-{number}"), 1, &[]);
            order.argv = vec!["sleep".to_owned(), "1000".to_owned()];
            daemon.spawn(order);
        }
        let mut runs = 1..;
        // In turns, so that what else the machine does hits both; the least of each is the cost.
        let (mut costs, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..10 {
            floors.push(floor());
            let begin = std::time::Instant::now();
            for run in runs.by_ref().take(COUNT as usize) {
                let mut order = order("a", run, &[]);
                order.argv = vec!["/bin/true".to_owned()];
                daemon.ask(Request::Spawn(Box::new(order)));
                daemon.find(|news, _| matches!(news, News::Spawned { .. }).then_some(()));
                daemon.exit_of(&key("a", run));
                daemon.ask(Request::Acknowledge(key("a", run)));
            }
            costs.push(begin.elapsed().as_secs_f64() * 1e9 / f64::from(COUNT));
        }
        let least = |of: &[f64]| of.iter().copied().fold(f64::INFINITY, f64::min) / 1e3;
        let (cost, floor) = (least(&costs), least(&floors));
        let ratio = cost / floor;
        println!("{way:?}, {idle} idle: {cost:.1} us, floor {floor:.1} us, ratio {ratio:.2}");
        let rollup = format!("/proc/{}/smaps_rollup", keeper.process.id());
        let rollup = std::fs::read_to_string(rollup).unwrap();
        println!("keeper: {}", rollup.lines().find(|line| line.starts_with("Pss:")).unwrap());
    }
}
