//! The notify socket: readiness, beats and words by datagrams.

use std::os::unix::net::UnixDatagram;
use std::path::Path;

use defib_e2e::{await_some, field, proc};

use crate::bench;

const BY_NOTIFY: &str = "ready = \"notify\"\nrestart = \"never\"";

#[test]
fn whoever_waits_for_a_ready_agent_starts_when_it_says_so() {
    let bench = bench();
    let (said, go) = (bench.file("said"), bench.file("go"));
    let script = format!(
        "notify STATUS=loading|X_OTHER=1 touch {said} await {go} notify READY=1|STATUS=up forever"
    );
    bench.declare(&[
        bench.agent("a", &script, BY_NOTIFY),
        bench.agent("b", "forever", "after = [\"a\"]"),
    ]);
    std::thread::scope(|scope| {
        scope.spawn(|| bench.defib(&["up", "--detach"]).good());
        await_some("its word", || Path::new(&said).exists().then_some(()));
        bench.await_status("a", |status| status["status_text"] == "loading");
        assert_eq!(bench.status("a")["state"], "starting");
        assert_eq!(bench.status("b")["state"], "waiting");
        std::fs::write(&go, "").unwrap();
    });
    let events = bench.events();
    let ready = field(&events.of("a", "run-ready"), "seq");
    assert!(field(&events.of("b", "run-started"), "seq") > ready);
    bench.await_status("a", |status| status["status_text"] == "up");
}

#[test]
fn what_a_stranger_says_does_not_count() {
    let bench = bench();
    let go = bench.file("go");
    let script = format!("env NOTIFY_SOCKET await {go} notify STATUS=mine print done forever");
    bench.declare(&[bench.agent("a", &script, BY_NOTIFY)]);
    std::thread::scope(|scope| {
        scope.spawn(|| bench.defib(&["up", "--detach"]));
        let path = await_some("the path", || {
            let log = bench.log("a");
            let path = log.lines().find_map(|line| line.strip_prefix("NOTIFY_SOCKET="))?;
            Some(path.to_owned())
        });
        assert!(path.len() <= bench.home().join("defib.sock").as_os_str().len());
        let stranger = UnixDatagram::unbound().unwrap();
        stranger.send_to(b"READY=1\nSTATUS=forged", &path).unwrap();
        stranger.send_to(&[0xff; 5000], &path).unwrap();
        std::fs::write(&go, "").unwrap();
        // Datagrams are read in their order.
        bench.await_status("a", |status| status["status_text"] == "mine");
        assert_eq!(bench.status("a")["state"], "starting");
        proc::kill(u32::try_from(field(&bench.status("a"), "pid")).unwrap(), "KILL");
    });
}

#[test]
fn what_is_said_while_there_is_no_daemon_is_heard_by_the_next() {
    let bench = bench();
    let (go, said) = (bench.file("go"), bench.file("said"));
    let script = format!("print begun await {go} notify READY=1|STATUS=heard touch {said} forever");
    bench.declare(&[bench.agent("a", &script, BY_NOTIFY)]);
    std::thread::scope(|scope| {
        scope.spawn(|| bench.defib(&["up", "--detach"]));
        bench.await_log("a", |log| log.contains("begun"));
        let (_, daemon) = bench.who();
        proc::kill(daemon, "STOP");
        std::fs::write(&go, "").unwrap();
        await_some("its word", || Path::new(&said).exists().then_some(()));
        proc::kill(daemon, "KILL");
        bench.successor_of(daemon);
    });
    let status = bench.await_state("a", "running");
    assert_eq!((&status["run"], &status["status_text"]), (&1.into(), &"heard".into()));
}

#[test]
fn the_last_word_of_a_run_is_heard_before_its_end() {
    let bench = bench();
    let script = "notify READY=1|STATUS=last-words exit 1";
    let events = bench.up(&[bench.agent("a", script, BY_NOTIFY)]);
    let (ready, died) = (events.of("a", "run-ready"), events.of("a", "run-died"));
    assert!(field(&ready, "seq") < field(&died, "seq"));
    assert_eq!(bench.status("a")["status_text"], "last-words");
}

#[test]
fn a_watchdog_is_fed_or_triggered_by_datagrams() {
    let bench = bench();
    let settings = "heartbeat = { ttl = \"10m\" }\nrestart = \"never\"";
    let events = bench.up(&[bench.agent(
        "a",
        "env WATCHDOG_USEC notify WATCHDOG=1 notify WATCHDOG=trigger forever",
        settings,
    )]);
    let died = events.of("a", "run-died");
    assert_eq!(died["class"], "timeout");
    assert_eq!(died["evidence"], "it triggered its own watchdog");
    assert!(bench.log("a").contains("WATCHDOG_USEC=600000000"));
}

#[test]
fn more_time_is_granted_to_who_asks_for_it() {
    let bench = bench();
    let settings = "heartbeat = { ttl = \"1s\" }\nrestart = \"never\"";
    bench.up(&[bench.agent("a", "notify EXTEND_TIMEOUT_USEC=600000000 forever", settings)]);
    let status = bench.await_status("a", |status| {
        status["uptime_s"].as_f64().is_some_and(|age| age > 3.0) || status["state"] != "running"
    });
    assert_eq!(status["state"], "running", "{}", bench.account());
}

#[test]
fn the_tool_that_others_use_is_understood() {
    if !Path::new("/usr/bin/systemd-notify").exists() {
        return;
    }
    let bench = bench();
    let script = "run '/usr/bin/systemd-notify --ready --status=by-the-tool' forever";
    let events = bench.up(&[bench.agent("a", script, BY_NOTIFY)]);
    events.of("a", "run-ready");
    assert_eq!(bench.status("a")["status_text"], "by-the-tool");
    bench.await_log("a", |log| log.contains("ran 0"));
}
