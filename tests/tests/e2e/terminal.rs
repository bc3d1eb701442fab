//! At a terminal: `attach`, and `up` in front.

use std::process::Command;

use defib_e2e::{Sitting, await_that, proc};
use serde_json::json;

use crate::bench;

/// A shell that shows what it reads.
fn echo(name: &str) -> String {
    let line = "echo ready $DEFIB_RUN; while read -r line; do echo \\\"got $line\\\"; done";
    format!("[agent.{name}]\ncommand = [\"/bin/sh\", \"-c\", \"{line}\"]\npty = true\n")
}

fn sit(command: &Command) -> Sitting {
    Sitting::new(command)
}

#[test]
fn attach_shows_what_was_shown_takes_what_is_typed_and_detaches() {
    let bench = bench();
    bench.up(&[echo("a")]);
    bench.await_log("a", |log| log.contains("ready 1"));
    let pid = bench.pid("a");
    let mut one = sit(&bench.command(&["attach", "a"]));
    one.await_text("ready 1");
    one.type_in("hello\r");
    one.await_text("got hello");
    // A second viewer sees what was shown before it came, and both see what comes.
    let mut two = sit(&bench.command(&["attach", "a"]));
    two.await_text("got hello");
    two.type_in("both\r");
    two.await_text("got both");
    one.await_text("got both");
    one.type_in("\x1c");
    let (status, shown) = one.end();
    assert!(status.success(), "{shown}");
    assert!(shown.ends_with("detached; a goes on\r\n"), "{shown:?}");
    two.type_in("still\r");
    two.await_text("got still");
    assert_eq!(bench.pid("a"), pid);
}

#[test]
fn a_viewer_s_size_becomes_the_terminal_s() {
    let bench = bench();
    let line = "trap 'stty size' WINCH; stty size; while :; do sleep 0.1; done";
    let agent = format!("[agent.a]\ncommand = [\"/bin/sh\", \"-c\", \"{line}\"]\npty = true\n");
    bench.up(&[agent]);
    bench.await_log("a", |log| log.contains("40 120"));
    let mut viewer = sit(&bench.command(&["attach", "a"]));
    viewer.await_text("30 100");
    viewer.resize(33, 77);
    viewer.await_text("33 77");
}

#[test]
fn a_viewer_stays_through_a_death_and_sees_a_new_terminal() {
    let bench = bench();
    bench.up(&[echo("a")]);
    let mut viewer = sit(&bench.command(&["attach", "a"]));
    viewer.await_text("ready 1");
    viewer.type_in("first life\r");
    viewer.await_text("got first life");
    proc::kill(bench.pid("a"), "KILL");
    viewer.await_text("[run 1 of a has ended]");
    viewer.await_text("ready 2");
    let (_, after) = viewer.shown.rsplit_once("has ended]").unwrap();
    assert!(!after.contains("first life"), "neither shown again nor typed again: {after:?}");
    viewer.type_in("second life\r");
    viewer.await_text("got second life");
    // A late viewer sees only the run that lives.
    let mut late = sit(&bench.command(&["attach", "a"]));
    late.await_text("got second life");
    assert!(!late.shown.contains("first life"), "{:?}", late.shown);
    bench.defib(&["stop", "a"]).good();
    let (status, shown) = viewer.end();
    assert_eq!(status.code(), Some(6), "{shown:?}");
    assert!(shown.contains("a is stopped"), "{shown:?}");
}

#[test]
fn a_viewer_outlives_the_daemon_and_sees_the_screen_again() {
    let bench = bench();
    bench.up(&[echo("a")]);
    let mut viewer = sit(&bench.command(&["attach", "a"]));
    viewer.await_text("ready 1");
    viewer.type_in("before\r");
    viewer.await_text("got before");
    bench.kill_daemon();
    let seen = viewer.shown.len();
    viewer.await_shown("the screen drawn again", |shown| shown[seen..].contains("got before"));
    viewer.type_in("after\r");
    viewer.await_text("got after");
}

#[test]
fn attach_says_what_is_missing() {
    let bench = bench();
    bench.up(&[bench.agent("plain", "forever", ""), echo("a")]);
    let ran = bench.defib(&["attach", "plain"]).bad(6);
    assert!(ran.err.contains("pty = true"), "{}", ran.err);
    bench.defib(&["attach", "nobody"]).bad(5);
    let ran = bench.defib(&["attach", "a"]).bad(2);
    assert!(ran.err.contains("no terminal"), "{}", ran.err);
    bench.defib(&["stop", "a"]).good();
    let ran = bench.defib(&["attach", "a"]).bad(6);
    assert!(ran.err.contains("defib start a"), "{}", ran.err);
}

#[test]
fn up_in_front_detaches_by_q_and_asks_on_ctrl_c() {
    let bench = bench();
    bench.declare(&[bench.agent("a", "forever", ""), bench.agent("b", "forever", "")]);
    let mut front = sit(&bench.command(&["up"]));
    front.await_shown("both running", |shown| shown.matches("running").count() >= 2);
    let pid = bench.pid("a");
    front.type_in("q");
    let (status, shown) = front.end();
    assert!(status.success(), "{shown}");
    assert!(shown.contains("detached"), "{shown}");
    assert!(proc::lives(pid));
    // The tests' commands have NO_COLOR: a colour or a weight ends in m.
    let colours = |shown: &str| {
        let codes = shown.split("\x1b[").skip(1);
        codes
            .filter(|code| {
                code.trim_start_matches(|c: char| "0123456789;".contains(c)).starts_with('m')
            })
            .count()
    };
    assert_eq!(colours(&shown), 0, "{shown:?}");

    let mut coloured = bench.command(&["up"]);
    coloured.env_remove("NO_COLOR").env("TERM", "xterm");
    let mut front = sit(&coloured);
    front.await_text("running");
    assert!(colours(&front.shown) > 0, "{:?}", front.shown);
    front.type_in("\x03");
    front.await_text("(any other key)?");
    // Any other key: nothing happens.
    front.type_in("x");
    let seen = front.shown.len();
    front.await_shown("the view again", |shown| shown[seen..].contains("running"));
    assert!(proc::lives(pid));
    front.type_in("\x03");
    front.await_shown("the question again", |shown| shown[seen..].contains("(any other key)?"));
    front.type_in("s");
    let (status, shown) = front.end();
    assert!(status.success(), "{shown}");
    assert!(shown.contains("is down"), "{shown}");
    await_that("the agent's end", || !proc::lives(pid));
}

#[test]
fn up_in_front_leaves_agents_alone_when_its_terminal_goes() {
    let bench = bench();
    bench.declare(&[bench.agent("a", "forever", "")]);
    let mut front = sit(&bench.command(&["up"]));
    front.await_text("running");
    let pid = bench.pid("a");
    drop(front);
    assert!(proc::lives(pid));
    assert_eq!(bench.pid("a"), pid);
}

#[test]
fn several_browsers_share_a_terminal_and_a_late_one_sees_what_has_scrolled_off() {
    let bench = bench();
    let command = "command = [\"sh\", \"-c\", \"seq -f line-%g 1 200; exec cat\"]\npty = true\n";
    bench.up(&[format!("[agent.a]\n{command}")]);
    bench.await_log("a", |log| log.contains("line-200"));
    let mut first = bench.viewer("a");
    first.until("the last line", |viewer| viewer.shown.contains("line-200"));
    assert_eq!(first.said[0]["type"], "shown", "{:?}", first.said);
    let mut late = bench.viewer("a");
    late.until("the last line", |viewer| viewer.shown.contains("line-200"));
    assert!(late.shown.contains("line-3\r\n"), "what has scrolled off is missing:\n{}", late.shown);
    first.say(&json!({ "type": "input", "data": "from-the-first\n" }));
    late.type_in("from-the-late\n");
    for viewer in [&mut first, &mut late] {
        viewer.until("both inputs", |viewer| {
            let twice = |text: &str| viewer.shown.matches(text).count() >= 2;
            twice("from-the-first") && twice("from-the-late")
        });
    }
    late.say(&json!({ "type": "resize", "rows": 33, "columns": 77 }));
    late.send(1, b"{ no sense");
    let pid = bench.pid("a");
    await_that("the size", || {
        let size = std::process::Command::new("stty")
            .args(["-F", &format!("/proc/{pid}/fd/0"), "size"])
            .output();
        size.is_ok_and(|size| size.stdout == b"33 77\n")
    });
    bench.defib(&["restart", "a"]).good();
    for viewer in [&mut first, &mut late] {
        viewer.until("the next run", |viewer| {
            viewer.said.iter().any(|said| said["type"] == "shown" && said["run"] == 2)
        });
        assert!(viewer.said.iter().any(|said| said["type"] == "ended" && said["run"] == 1));
    }
}
