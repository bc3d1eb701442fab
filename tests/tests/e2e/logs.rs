//! What agents write: whole lines, in order, across rotation, runs and readers.

use defib_e2e::{await_that, proc};

use crate::bench;

#[test]
fn rotation_keeps_the_lines_of_the_kept_segments_whole() {
    let bench = bench();
    let settings = "log = { max_size = \"64K\", keep = 3 }";
    bench.up(&[bench.agent("a", "lines 30000 forever", settings)]);
    bench.await_log("a", |log| log.contains("line 0000030000 of what an agent writes\n"));
    let segments = bench.segments("a");
    assert!((2..=4).contains(&segments.len()), "{}", segments.len());
    for (path, bytes) in segments.iter().filter(|(_, bytes)| !bytes.is_empty()) {
        assert!(bytes.ends_with(b"\n") && bytes.starts_with(b"line "), "{}", path.display());
    }
    let log = bench.log("a");
    let numbers: Vec<u64> = log.lines().map(|line| line[5..15].parse().unwrap()).collect();
    assert_eq!(*numbers.last().unwrap(), 30000);
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "none missing, none twice");
    let last = bench.defib(&["logs", "-n", "3000", "a"]).good().out;
    assert_eq!(last.lines().count(), 3000, "across segments");
    assert!(log.ends_with(&last));
}

#[test]
fn a_run_s_output_is_found_by_its_number_and_the_last_lines_by_theirs() {
    let bench = bench();
    // The second run ends inside a line, which must not run into the third's.
    let script = "env DEFIB_RUN print second raw third fail-until 4 x forever";
    let events = bench.up(&[bench.agent("a", script, "")]);
    events.of_run("a", 4, "run-ready");
    bench.await_log("a", |log| log.matches("third").count() == 4);
    let logs = |arguments: &[&str]| bench.defib(&[&["logs", "a"], arguments].concat()).good().out;
    for run in ["1", "2", "3"] {
        let out = logs(&["--run", run]);
        assert_eq!(out, format!("DEFIB_RUN={run}\nsecond\nthird\n"));
    }
    assert_eq!(logs(&["--run", "4"]), "DEFIB_RUN=4\nsecond\nthird");
    assert_eq!(logs(&["--run", "2", "-n", "1"]), "third\n");
    assert_eq!(logs(&["-n", "2"]), "second\nthird");
    assert_eq!(logs(&["-n", "0"]), "");
    assert_eq!(logs(&[]).lines().count(), 12);
    let none = bench.defib(&["logs", "--run", "99", "a"]);
    assert_eq!(none.code, 5, "{none:?}");
    assert!(none.err.contains("99") || none.err.contains("run"), "{none:?}");
    bench.defib(&["logs", "nobody"]).bad(5);
}

#[test]
fn output_and_errors_are_in_the_order_in_which_they_were_written() {
    let bench = bench();
    let script = "print one eprint two print three eprint four forever";
    bench.up(&[bench.agent("a", script, "")]);
    let log = bench.await_log("a", |log| log.contains("four"));
    assert_eq!(log, "one\ntwo\nthree\nfour\n");
}

#[test]
fn what_is_no_text_is_kept_byte_for_byte() {
    let bench = bench();
    let command = "command = [\"/bin/sh\", \"-c\", \"printf '\\\\377\\\\000\\\\033[31mred\\\\r\\\\n'; sleep 1000\"]";
    bench.up(&[format!("[agent.a]\n{command}\n")]);
    await_that("output", || {
        bench.segments("a").iter().any(|(_, bytes)| bytes.ends_with(b"red\r\n"))
    });
    assert_eq!(bench.segments("a")[0].1, b"\xff\0\x1b[31mred\r\n");
    bench.defib(&["status"]).good();
    bench.defib(&["logs", "a"]).good();
    proc::kill(bench.pid("a"), "KILL");
    bench.await_status("a", |status| status["run"] == 2);
    bench.defib(&["why", "a"]).good();
    bench.defib(&["history", "--json"]).good().json();
}

#[test]
fn the_trace_of_a_crash_is_stored_with_its_death() {
    let bench = bench();
    let program = "import sys\ndef inner():\n    raise ValueError('the very reason')\ninner()\n";
    std::fs::write(bench.project().join("crash.py"), program).unwrap();
    let agent = "[agent.a]\ncommand = [\"python3\", \"crash.py\"]\nrestart = \"never\"\n";
    let events = bench.up(&[agent.to_owned()]);
    events.of("a", "rested");
    let trace = defib_e2e::await_some("a trace", || {
        let death = bench.history("a")[0]["death"].clone();
        death["trace"].as_str().map(str::to_owned)
    });
    assert!(trace.contains("ValueError: the very reason"), "{trace}");
    assert!(trace.contains("crash.py"), "{trace}");
    let why = bench.defib(&["why", "a"]).good();
    assert!(why.out.contains("ValueError: the very reason"), "{}", why.out);
}
