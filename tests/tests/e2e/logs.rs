//! What agents write: whole lines, in order, across rotation, runs and readers.

use std::path::Path;

use defib_e2e::{Bench, Disk, await_that, proc, whole_lines};

use crate::{FAKE_AGENT, bench};

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
fn the_last_lines_of_an_agent_that_writes_on_are_so_many_and_come_to_an_end() {
    let bench = bench();
    bench.up(&[bench.agent("a", "flood", "log = { max_size = \"1M\", keep = 2 }")]);
    await_that("it has rotated", || bench.segments("a").len() > 1);
    for _ in 0..10 {
        for arguments in [&["-n", "2"][..], &["-n", "2", "--run", "1"]] {
            let ran = bench.defib(&[&["logs", "a"], arguments].concat());
            // A line that the agent was just writing is one of them.
            let lines = ran.good().out.lines().count();
            assert_eq!(lines, 2, "{arguments:?}");
        }
    }
    // Whoever asks for all of them gets those of one moment.
    bench.defib(&["logs", "-n", "1000000", "a"]).good();
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
fn what_is_kept_of_an_agent_that_is_gone_can_be_looked_at() {
    let bench = bench();
    drop(bench.up(&[bench.agent("b", "print other forever", "")]));
    bench.defib(&["run", "--name", "adhoc1", "--", FAKE_AGENT, "print", "kept", "forever"]).good();
    bench.await_log("adhoc1", |log| log == "kept\n");
    bench.defib(&["rm", "adhoc1"]).good();
    bench.defib(&["status", "adhoc1"]).bad(5);
    assert_eq!(bench.history("adhoc1")[0]["run"], 1);
    assert_eq!(bench.defib(&["logs", "adhoc1"]).good().out, "kept\n");
    assert_eq!(bench.defib(&["logs", "--run", "1", "adhoc1"]).good().out, "kept\n");
    // Also beside one that is there.
    bench.await_log("b", |log| log == "other\n");
    let both = bench.defib(&["logs", "adhoc1", "b"]).good().out;
    assert_eq!(both, "adhoc1 | kept\nb      | other\n");
    // Who never was is not found, and who was meant is guessed.
    for command in ["history", "logs"] {
        let said = bench.defib(&[command, "bb"]).bad(5);
        assert!(said.err.contains("did you mean b?"), "{said:?}");
        bench.defib(&[command, "b/b/b"]).bad(5);
    }
}

#[test]
fn a_run_after_somebody_removed_the_logs_is_written_down_where_it_is_found() {
    let bench = bench();
    let events = bench.up(&[bench.agent("a", "env DEFIB_RUN forever", "")]);
    bench.await_log("a", |log| log == "DEFIB_RUN=1\n");
    std::fs::remove_dir_all(bench.home().join("logs/a")).unwrap();
    proc::kill(bench.pid("a"), "KILL");
    events.of_run("a", 2, "run-ready");
    bench.await_log("a", |log| log == "DEFIB_RUN=2\n");
    assert_eq!(bench.defib(&["logs", "--run", "2", "a"]).good().out, "DEFIB_RUN=2\n");
}

#[test]
fn a_death_after_a_rotation_has_its_cause_where_no_full_file_is_kept() {
    let bench = bench();
    let limit = "ERROR: You have hit your usage limit. Try again in 3 hours.";
    // The last words fill the file.
    let write = format!("yes | head -c 2000; echo '{limit}'; exit 1");
    let agent = format!("[agent.a]\ncommand = '''{write}'''\nshell = true\nkind = \"codex\"\n");
    let settings = "restart = \"never\"\nlog = { max_size = \"2K\", keep = 0 }\n";
    let events = bench.up(&[agent + settings]);
    let died = events.of("a", "run-died");
    assert_eq!((&died["class"], &died["evidence"]), (&"quota".into(), &limit.into()), "{died}");
    assert!(bench.segments("a").len() > 1, "it did rotate");
}

#[test]
fn what_is_kept_of_an_agent_that_is_gone_is_neither_held_up_nor_killed_by_what_it_writes() {
    let mut bench = bench();
    bench.may_leave_processes();
    let (go, done) = (bench.file("go"), bench.file("done"));
    let kept = format!("count {} await {go} lines 100000 touch {done} forever", bench.file("kept"));
    let leaving =
        bench.agent("a", &format!("double-fork '{kept}' forever"), "leftovers = \"keep\"");
    let staying = bench.agent("b", "forever", "");
    drop(bench.up(&[leaving, staying.clone()]));
    let kept = defib_e2e::await_some("the grandchild", || {
        let text = std::fs::read_to_string(bench.project().join("kept")).ok()?;
        text.trim().split(' ').nth(1)?.parse::<u32>().ok()
    });
    bench.declare(&[staying]);
    bench.defib(&["reload"]).good();
    await_that("the agent is gone", || bench.defib(&["status", "a"]).code == 5);
    std::fs::write(go, "").unwrap();
    await_that("all is written", || Path::new(&done).exists());
    assert!(proc::lives(kept), "it is kept");
    assert_eq!(bench.status("b")["state"], "running");
    proc::kill(kept, "KILL");
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
    assert_eq!(bench.status("a")["last_death"]["trace"], trace.as_str());
    bench.kill_daemon();
    assert_eq!(bench.status("a")["last_death"]["trace"], trace.as_str(), "also by the next daemon");
    std::fs::write(bench.project().join("crash.py"), "import sys\nsys.exit(3)\n").unwrap();
    bench.defib(&["start", "a"]).good();
    let after = bench
        .await_status("a", |status| status["run"] == 2 && status["last_death"]["exit_code"] == 3);
    assert!(after["last_death"]["trace"].is_null(), "it is not that of another run: {after}");
}

#[test]
fn follow_goes_on_across_rotation_and_respawn_with_nothing_missing_or_twice() {
    let bench = bench();
    let go = bench.file("go");
    let settings = "limits = []\nlog = { max_size = \"64K\", keep = 10000 }";
    bench.up(&[bench.agent("a", &format!("await {go} lines 5000 exit 1"), settings)]);
    let follower = bench.lines(&["logs", "-f", "-n", "1000000", "a"]);
    std::fs::write(go, "").unwrap();
    for _run in 0..6 {
        assert_eq!(whole_lines(&follower.take(5000)), 5000);
    }
    assert!(bench.segments("a").len() > 3, "it did rotate");
}

#[test]
fn whoever_follows_sees_a_line_as_far_as_it_was_written() {
    let bench = bench();
    let go = bench.file("go");
    bench.up(&[bench.agent("a", &format!("raw is-it- await {go} print so? forever"), "")]);
    bench.await_log("a", |log| log == "is-it-");
    let mut command = bench.command(&["logs", "-f", "a"]);
    let mut follower = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut output = follower.stdout.take().unwrap();
    let mut bytes = [0; 6];
    std::io::Read::read_exact(&mut output, &mut bytes).unwrap();
    assert_eq!(&bytes, b"is-it-");
    std::fs::write(go, "").unwrap();
    let mut bytes = [0; 4];
    std::io::Read::read_exact(&mut output, &mut bytes).unwrap();
    assert_eq!(&bytes, b"so?\n");
    follower.kill().unwrap();
    follower.wait().unwrap();
}

#[test]
fn whoever_follows_a_run_is_done_when_the_next_one_begins() {
    let bench = bench();
    let script = "env DEFIB_RUN raw unfinished forever";
    bench.up(&[bench.agent("a", script, "")]);
    bench.await_log("a", |log| log.contains("unfinished"));
    let follower = bench.lines(&["logs", "-f", "--run", "1", "a"]);
    assert_eq!(follower.next(), "DEFIB_RUN=1");
    proc::kill(bench.pid("a"), "KILL");
    let (code, rest, complaint) = follower.end();
    assert_eq!((code, rest), (Some(0), vec!["unfinished".to_owned()]), "{complaint}");
}

#[test]
fn a_run_that_says_nothing_has_an_empty_log_whoever_asks_and_when() {
    let bench = bench();
    let go = bench.file("go");
    let script = format!("await {go} env DEFIB_RUN forever");
    let (late, silent) = (bench.agent("late", &script, ""), bench.agent("silent", "forever", ""));
    let events = bench.up(&[late, silent]);
    for name in ["late", "silent"] {
        events.of_run(name, 1, "run-ready");
        assert!(bench.segments(name).is_empty(), "a log is made for who has something to say");
        assert_eq!(bench.defib(&["logs", name, "--run", "1"]).good().out, "");
        bench.defib(&["logs", name, "--run", "2"]).bad(5);
    }
    let follower = bench.lines(&["logs", "-f", "--run", "1", "late"]);
    // The next daemon does not know either where a run began that has not written.
    bench.kill_daemon();
    std::fs::write(go, "").unwrap();
    assert_eq!(follower.next(), "DEFIB_RUN=1");
    for name in ["late", "silent"] {
        proc::kill(bench.pid(name), "KILL");
        bench.await_status(name, |status| status["run"] == 2);
    }
    assert_eq!(follower.end().0, Some(0));
    bench.await_log("late", |log| log == "DEFIB_RUN=1\nDEFIB_RUN=2\n");
    assert_eq!(bench.defib(&["logs", "late", "--run", "1"]).good().out, "DEFIB_RUN=1\n");
    for run in ["1", "2"] {
        assert_eq!(bench.defib(&["logs", "silent", "--run", run]).good().out, "");
    }
    bench.defib(&["logs", "silent", "--run", "3"]).bad(5);
}

#[test]
fn the_logs_of_several_come_with_names_in_front() {
    let bench = bench();
    bench.up(&[
        bench.agent("news", "env DEFIB_RUN print two fail-until 2 n forever", ""),
        bench.agent("x", "print one raw rest forever", ""),
        bench.agent("other", "print other forever", ""),
        "[group.both]\nmembers = [\"news\", \"x\"]\n".to_owned(),
    ]);
    bench.await_log("news", |log| log.matches("two").count() == 2);
    bench.await_log("x", |log| log.ends_with("rest"));
    bench.await_log("other", |log| log == "other\n");
    let logs = |arguments: &[&str]| bench.defib(&[&["logs"], arguments].concat()).good().out;
    let news = "news | DEFIB_RUN=1\nnews | two\nnews | DEFIB_RUN=2\nnews | two\n";
    let x = "x    | one\nx    | rest\n";
    assert_eq!(logs(&["news", "x"]), format!("{news}{x}"));
    assert_eq!(logs(&["x", "news"]), format!("{x}{news}"), "in the order of the names");
    assert_eq!(logs(&["both"]), format!("{news}{x}"), "a group's name means its members");
    assert_eq!(logs(&["both", "x", "news"]), format!("{news}{x}"), "each once");
    assert_eq!(logs(&["-n", "1", "both"]), "news | two\nx    | rest\n");
    assert_eq!(logs(&["--run", "2", "both"]), "news | DEFIB_RUN=2\nnews | two\n");
    let all = logs(&["-n", "1"]);
    assert_eq!(all, "news  | two\nx     | rest\nother | other\n", "none means all of the project");
    bench.defib(&["logs", "--run", "7", "both"]).bad(5);
    bench.defib(&["logs", "x", "nobody"]).bad(5);
    let mut elsewhere = bench.command(&["logs"]);
    elsewhere.current_dir("/");
    defib_e2e::Ran::to_end(elsewhere).bad(2);
}

#[test]
fn the_lines_of_several_that_are_followed_come_as_they_are_written() {
    let bench = bench();
    let step = |number: u32| bench.file(&format!("step{number}"));
    let go = |number: u32| std::fs::write(step(number), "").unwrap();
    let a = format!("raw a- await {} print 1 await {} print 3 forever", step(1), step(3));
    let b = format!("await {} print 2 await {} print 4 forever", step(2), step(4));
    bench.up(&[bench.agent("a", &a, ""), bench.agent("bb", &b, "")]);
    bench.await_log("a", |log| log == "a-");
    let follower = bench.lines(&["logs", "-f"]);
    for (number, line) in ["a  | a-1", "bb | 2", "a  | 3", "bb | 4"].iter().enumerate() {
        go(u32::try_from(number).unwrap() + 1);
        assert_eq!(follower.next(), *line);
    }
}

#[test]
fn names_are_coloured_on_a_terminal_only() {
    let bench = bench();
    bench.up(&[
        bench.agent("a", "print one forever", ""),
        bench.agent("b", "print two forever", ""),
    ]);
    bench.await_log("a", |log| !log.is_empty());
    bench.await_log("b", |log| !log.is_empty());
    let told = |force: bool| {
        let mut command = bench.command(&["logs", "a", "b"]);
        command.env_remove("NO_COLOR").env("TERM", "xterm");
        if force {
            command.env("CLICOLOR_FORCE", "1");
        }
        defib_e2e::Ran::to_end(command).good().out
    };
    assert_eq!(told(false), "a | one\nb | two\n");
    assert!(told(true).starts_with("\u{1b}[36ma |\u{1b}[0m one\n"), "{:?}", told(true));
}

#[test]
fn after_a_full_disk_the_torn_line_has_an_end_and_a_line_that_says_what_is_lost() {
    let Some(disk) = Disk::mount("16m") else {
        println!("NOT TRIED: a disk that can be full needs root");
        return;
    };
    for pty in ["", "pty = true"] {
        let bench = Bench::below(disk.path(), FAKE_AGENT);
        let line = "while :; do echo 0123456789012345678901234567890123456789; sleep 0.001; done";
        let log = "log = { max_size = \"64M\" }";
        let agent = format!("[agent.a]\ncommand = '''{line}'''\nshell = true\n{log}\n{pty}\n");
        let events = bench.up(&[agent]);
        bench.await_log("a", |log| log.lines().count() > 3);
        disk.fill();
        events.of("a", "output-lost");
        std::fs::remove_file(disk.ballast()).unwrap();
        let log = bench.await_log("a", |log| {
            log.split_once("[defib: ").is_some_and(|(_, rest)| rest.lines().count() > 3)
        });
        let marker = log.lines().position(|line| line.starts_with("[defib: ")).expect("a marker");
        let lines: Vec<&str> = log.lines().collect();
        assert!(
            lines[marker].ends_with(']') && lines[marker].contains("bytes of output are lost here")
        );
        assert!(
            lines[..marker - 1].iter().all(|line| line.len() == 40),
            "whole up to the torn one"
        );
        assert!(log.contains(&format!("\n{}\n", lines[marker])), "on a line of its own");
        drop(bench);
    }
}
