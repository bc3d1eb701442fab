//! Everything is to end, and somebody wants some of it up again before it has.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use defib_e2e::proc;

use crate::bench;

/// Ends only when it is killed, and is waited for until then.
const DEAF: (&str, &str) = ("ignore TERM print ready forever", "stop_timeout = \"1h\"");

#[test]
fn whoever_wants_something_up_again_ends_a_down_all_and_the_daemon_goes_on() {
    let again: [(&[&str], &str); 4] = [
        (&["up", "--detach"], "was started again meanwhile"),
        (&["start", "deaf"], "deaf was started again meanwhile"),
        (&["restart", "deaf"], "deaf was started again meanwhile"),
        (&["run", "--name", "new", "--", "sleep", "1000"], "new was started again meanwhile"),
    ];
    for (again, said) in again {
        let bench = bench();
        let events =
            bench.up(&[bench.agent("deaf", DEAF.0, DEAF.1), bench.agent("other", "forever", "")]);
        bench.await_log("deaf", |log| log == "ready\n");
        let (keeper, pid) = (bench.who().0, bench.pid("deaf"));
        let down = bench.lines(&["down", "--all"]);
        events.of("deaf", "stop-requested");
        let again = bench.lines(again);
        let (code, _, err) = down.end();
        assert_eq!(code, Some(1), "{err}");
        assert!(err.contains(said), "{err}");
        proc::kill(pid, "KILL");
        let (code, out, err) = again.end();
        assert_eq!(code, Some(0), "{out:?} {err}");

        // Whatever comes to rest now, and whichever daemon it is under, nothing ends with it.
        let names: Vec<String> = bench.statuses().iter().map(|one| name(one).to_owned()).collect();
        let mut stop = vec!["stop", "--kill"];
        stop.extend(names.iter().map(String::as_str));
        bench.defib(&stop).good();
        assert_eq!(bench.who().0, keeper);
        bench.kill_daemon();
        bench.defib(&["up", "--detach"]).good();
        assert_eq!(bench.who().0, keeper);
        for status in bench.statuses() {
            assert_eq!(status["state"], "stopped", "a named stop stays: {status}");
        }
    }
}

#[test]
fn a_daemon_that_was_told_to_end_begins_nothing_and_up_waits_for_its_end() {
    let bench = bench();
    let events =
        bench.up(&[bench.agent("deaf", DEAF.0, DEAF.1), bench.agent("other", "forever", "")]);
    bench.await_log("deaf", |log| log == "ready\n");
    let (keeper, pid) = (bench.who().0, bench.pid("deaf"));
    proc::kill(keeper, "TERM");
    events.of("deaf", "stop-requested");
    let begins: [&[&str]; 6] = [
        &["start", "deaf", "other"],
        &["restart", "other"],
        &["revive", "other"],
        &["run", "--name", "new", "--", "sleep", "1000"],
        &["reload"],
        &["upgrade"],
    ];
    for begins in begins {
        let ran = bench.defib(begins).bad(1);
        let (is, helps) = ("the daemon is ending", "`defib up` brings it back once it has ended");
        assert!(ran.err.contains(is) && ran.err.contains(helps), "{begins:?}: {ran:?}");
        assert_eq!(ran.out, "", "{begins:?}");
    }
    assert!(!bench.home().join("adhoc/new.toml").exists(), "what was refused leaves nothing");
    // All else goes on, and a stop by name outlives it.
    bench.defib(&["stop", "other"]).good();
    assert_eq!(bench.status("deaf")["state"], "stopping");

    let mut up = bench.command(&["up", "--detach"]);
    let mut up = up.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(up.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("the daemon is ending"), "{said}");
    proc::kill(pid, "KILL");
    let up = up.wait_with_output().unwrap();
    assert!(up.status.success(), "{up:?}");
    assert_ne!(bench.who().0, keeper);
    assert_eq!(bench.await_state("deaf", "running")["run"], 2);
    assert_eq!(bench.status("other")["state"], "stopped");
    bench.defib(&["stop", "--kill", "deaf"]).good();
}

fn name(status: &serde_json::Value) -> &str {
    status["name"].as_str().unwrap()
}
