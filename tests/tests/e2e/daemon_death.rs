//! The daemon may die at any moment: no agent, no death, no line goes with it.

use defib_e2e::{Ran, await_that, field, is, proc, whole_lines};
use serde_json::Value;

use crate::bench;

const LOG: &str = "log = { max_size = \"256K\", keep = 100000 }";
#[test]
fn a_death_right_before_the_daemon_s_is_in_the_history_once() {
    let bench = bench();
    let events = bench.up(&[bench.agent("a", "forever", "limits = []")]);
    for round in 1..=8 {
        let (_, daemon) = bench.who();
        let pid = bench.pid("a");
        proc::kill(pid, "KILL");
        if round % 2 == 0 {
            events.of_run("a", round, "run-died");
        }
        proc::kill(daemon, "KILL");
        bench.successor_of(daemon);
        bench
            .await_status("a", |status| status["state"] == "running" && status["run"] == round + 1);
    }
    let runs = bench.history("a");
    let numbers: Vec<u64> = runs.iter().map(|run| field(run, "run")).collect();
    assert_eq!(numbers, (1..=9).collect::<Vec<_>>());
    for run in &runs[..8] {
        assert_eq!(run["death"]["signal"], "SIGKILL", "{run}");
    }
    events.find("eight deaths", |events| {
        let deaths = events.iter().filter(|event| is(event, "a", "run-died")).count();
        (deaths == 8).then_some(())
    });
}

#[test]
fn what_an_agent_wrote_and_how_it_ended_while_no_daemon_looked_is_not_lost() {
    for terminal in ["pty = false", "pty = true"] {
        let bench = bench();
        let go = bench.file("go");
        let settings = format!("restart = \"never\"\n{terminal}");
        let script = format!("print first await {go} print last-words raw no-end exit 7");
        let events = bench.up(&[bench.agent("a", &script, &settings)]);
        bench.await_log("a", |log| log.contains("first"));
        let pid = bench.pid("a");
        let (_, daemon) = bench.who();
        proc::kill(daemon, "STOP");
        std::fs::write(&go, "").unwrap();
        proc::await_gone(pid);
        proc::kill(daemon, "KILL");
        bench.successor_of(daemon);
        let death = events.of("a", "run-died");
        assert_eq!(field(&death, "exit_code"), 7);
        let log = bench.await_log("a", |log| log.contains("no-end"));
        assert_eq!(log.replace('\r', "").trim_end(), "first\nlast-words\nno-end", "{terminal}");
        assert_eq!(bench.history("a").len(), 1);
    }
}

#[test]
fn limits_survive_the_daemon_s_death() {
    let bench = bench();
    let events = bench.up(&[bench.agent("a", "forever", "")]);
    for run in 1..=5 {
        proc::kill(bench.pid("a"), "KILL");
        events.of_run("a", run, "run-died");
        if run < 5 {
            events.of_run("a", run + 1, "run-ready");
            bench.kill_daemon();
        }
    }
    events.of("a", "crashed-out");
    let status = bench.await_state("a", "crashed-out");
    assert_eq!(field(&status, "restarts"), 4);
    bench.kill_daemon();
    assert_eq!(bench.status("a")["state"], "crashed-out");
}

#[test]
fn a_backoff_and_a_slow_start_are_gone_on_with_by_the_next_daemon() {
    let bench = bench();
    let lives = bench.file("lives");
    let slow = "backoff = { kind = \"fixed\", base = \"2s\" }";
    let events = bench.up(&[bench.agent(
        "a",
        &format!("count {lives} fail-until 2 {lives}.x forever"),
        slow,
    )]);
    let before = bench.await_state("a", "backoff");
    bench.kill_daemon();
    let after = bench.status("a");
    if after["state"] == "backoff" {
        assert!(after["next_at"].is_string(), "{after}");
    }
    assert_eq!(before["last_death"]["class"], after["last_death"]["class"]);
    events.of_run("a", 2, "run-ready");
    // It is ready when it is spawned, and counts a moment later.
    await_that("two lives", || std::fs::read_to_string(&lives).unwrap().lines().count() >= 2);
    assert_eq!(std::fs::read_to_string(&lives).unwrap().lines().count(), 2);
}

#[test]
fn upgrade_swaps_the_daemon_and_agents_run_on() {
    let bench = bench();
    let enough = bench.file("enough");
    bench.up(&[
        bench.agent("a", "forever", ""),
        bench.agent("w", &format!("lines-until {enough} forever"), LOG),
    ]);
    let before: Vec<Value> = bench.statuses().iter().map(|status| status["pid"].clone()).collect();
    let (keeper, mut daemon) = bench.who();
    for _ in 0..6 {
        let told = bench.defib(&["upgrade"]).good();
        assert!(told.out.contains("agents ran on"), "{told:?}");
        let (same, next) = bench.who();
        assert_eq!(same, keeper);
        assert_ne!(next, daemon);
        daemon = next;
    }
    // By another program: that is what it runs from then on.
    let newer = bench.project().join("newer");
    std::fs::copy(defib_e2e::defib_path(), &newer).unwrap();
    let mut upgrade = std::process::Command::new(&newer);
    upgrade.arg("upgrade").env("DEFIB_HOME", bench.home());
    Ran::to_end(upgrade).good();
    let daemon = bench.kill_daemon();
    assert_eq!(std::fs::read_link(format!("/proc/{daemon}/exe")).unwrap(), newer);
    let after: Vec<Value> = bench.statuses().iter().map(|status| status["pid"].clone()).collect();
    assert_eq!(before, after);
    std::fs::write(enough, "").unwrap();
    let log = bench.await_log("w", |log| log.contains("END "));
    let (lines, end) = log.split_once("END ").unwrap();
    assert_eq!(whole_lines(lines).to_string(), end.trim());
    await_that("no old daemon", || bench.processes().len() == 4);
}

#[test]
fn whoever_follows_goes_on_following_under_the_next_daemon() {
    let bench = bench();
    let (first, second) = (bench.file("first"), bench.file("second"));
    let script = format!("await {first} print one raw t await {second} print wo forever");
    bench.up(&[bench.agent("a", &script, "")]);
    let logs = bench.lines(&["logs", "-f", "a"]);
    let events = bench.lines(&["events", "-f", "--json"]);
    std::fs::write(first, "").unwrap();
    assert_eq!(logs.next(), "one");
    let mut told = events.until(|line| line.contains("run-ready"));
    bench.kill_daemon();
    std::fs::write(second, "").unwrap();
    assert_eq!(logs.next(), "two", "nothing missing, nothing twice");
    bench.defib(&["upgrade"]).good();
    proc::kill(bench.pid("a"), "KILL");
    assert_eq!(logs.next(), "one");
    assert_eq!(logs.next(), "two");
    told.extend(events.until(|line| line.contains("run-died")));
    let numbers: Vec<u64> =
        told.iter().map(|line| field(&serde_json::from_str(line).unwrap(), "seq")).collect();
    let all: Vec<u64> = (numbers[0]..=*numbers.last().unwrap()).collect();
    assert_eq!(numbers, all, "none missing, none twice");
}

#[test]
fn whoever_follows_a_flood_of_several_misses_no_line_though_daemons_are_killed() {
    let bench = bench();
    let enough = bench.file("enough");
    let writer = |name: &str| bench.agent(name, &format!("lines-until {enough} forever"), LOG);
    bench.up(&[writer("a"), writer("bcd")]);
    let follower = bench.lines(&["logs", "-f", "-n", "100000000"]);
    let mut lines = follower.take(1000);
    for round in 0..6 {
        if round % 3 == 2 {
            bench.defib(&["upgrade"]).good();
        } else {
            bench.kill_daemon();
        }
        lines += &follower.take(1000);
    }
    std::fs::write(enough, "").unwrap();
    let ended = std::cell::Cell::new(0);
    lines += &(follower
        .until(|line| {
            ended.set(ended.get() + u32::from(line.contains("| END ")));
            ended.get() == 2
        })
        .join("\n")
        + "\n");
    for name in ["a   | ", "bcd | "] {
        let own: String = lines
            .lines()
            .filter_map(|line| Some(line.strip_prefix(name)?.to_owned() + "\n"))
            .collect();
        let (own, end) = own.split_once("END ").expect("its end");
        assert_eq!(whole_lines(own).to_string(), end.trim(), "{name}");
    }
}

#[test]
fn whoever_follows_is_told_when_there_is_nobody_left_to_follow() {
    let bench = bench();
    bench.up(&[bench.agent("a", "print one forever", "")]);
    bench.await_log("a", |log| log == "one\n");
    let logs = bench.lines(&["logs", "-f", "a"]);
    let events = bench.lines(&["events", "-f", "--json"]);
    assert_eq!(logs.next(), "one");
    events.until(|line| line.contains("run-ready"));
    bench.defib(&["down", "--all"]).good();
    for follower in [logs, events] {
        let (code, _, complaint) = follower.end();
        assert_eq!(code, Some(0), "{complaint}");
        assert!(
            complaint.contains("the daemon in") && complaint.contains("has ended"),
            "{complaint}"
        );
    }
}

#[test]
fn a_command_that_waits_is_answered_by_the_next_daemon() {
    let bench = bench();
    let deaf = "ignore TERM print ready forever";
    let events = bench.up(&[bench.agent("a", deaf, ""), bench.agent("b", deaf, "")]);
    for name in ["a", "b"] {
        bench.await_log(name, |log| log.contains("ready"));
    }
    let through = |arguments: &[&str], name: &str| {
        let (_, daemon) = bench.who();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| bench.defib(arguments));
            events.of(name, "stop-requested");
            proc::kill(daemon, "KILL");
            waiting.join().unwrap()
        })
    };
    let stop = through(&["stop", "a"], "a").good();
    assert_eq!(stop.out, "a: stopped\n");
    through(&["down"], "b").good();
    assert_eq!(bench.status("b")["state"], "stopped");
}

#[test]
fn once_ends_well_though_the_daemon_was_killed_meanwhile() {
    let bench = bench();
    let go = bench.file("go");
    bench.declare(&[bench.agent("a", &format!("await {go} exit 0"), "")]);
    std::thread::scope(|scope| {
        let once = scope.spawn(|| bench.defib(&["up", "--mode", "once"]));
        await_that("a run", || {
            let ran = bench.defib(&["status", "--json"]);
            ran.code == 0 && ran.json()[0]["state"] == "running"
        });
        bench.kill_daemon();
        bench.kill_daemon();
        std::fs::write(go, "").unwrap();
        once.join().unwrap().good();
    });
    await_that("the daemon's end", || bench.processes().is_empty());
}

#[test]
fn a_terminal_survives_the_daemon() {
    let bench = bench();
    let go = bench.file("go");
    let script = format!("tty await {go} tty forever");
    bench.up(&[bench.agent("a", &script, "pty = true")]);
    bench.await_log("a", |log| log.contains("columns 120"));
    let pid = bench.pid("a");
    bench.kill_daemon();
    bench.defib(&["upgrade"]).good();
    std::fs::write(go, "").unwrap();
    let log = bench.await_log("a", |log| log.matches("columns 120").count() == 2);
    let lines: Vec<&str> = log.lines().map(str::trim_end).collect();
    assert_eq!(lines[0], lines[1], "the same terminal");
    assert_eq!(bench.pid("a"), pid);
}

#[test]
fn a_line_that_was_begun_under_one_daemon_is_finished_under_the_next() {
    let bench = bench();
    let go = bench.file("go");
    bench.up(&[bench.agent("a", &format!("raw one- await {go} print line forever"), "")]);
    bench.await_log("a", |log| log == "one-");
    bench.kill_daemon();
    std::fs::write(go, "").unwrap();
    bench.await_log("a", |log| log.ends_with('\n'));
    assert_eq!(bench.log("a"), "one-line\n");
    assert_eq!(bench.defib(&["logs", "--run", "1", "a"]).good().out, "one-line\n");
}
