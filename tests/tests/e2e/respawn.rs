//! An agent dies and is replaced.

use defib_e2e::{await_that, field, is, pid_in, proc};

use crate::bench;

#[test]
fn a_killed_agent_is_replaced_with_the_same_folder_environment_and_command() {
    let mut bench = bench();
    bench.set("PASSED", "from the caller");
    std::fs::create_dir(bench.project().join("work")).unwrap();
    let settings = "cwd = \"work\"\nenv = { FOO = \"bar baz\" }\nenv_pass = [\"PASSED\"]";
    let script = "cwd argv env FOO env PASSED env PATH stdin tty open-files forever";
    let events = bench.up(&[bench.agent("a", script, settings)]);
    bench.await_log("a", |log| log.contains("open files"));
    let before = bench.status("a");
    let pid = pid_in(&before);
    proc::kill(pid, "KILL");
    let death = events.of_run("a", 1, "run-died");
    assert_eq!(death["signal"], "SIGKILL");
    events.of_run("a", 2, "run-ready");
    bench.await_log("a", |log| log.matches("open files").count() == 2);
    let of_run = |run: &str| bench.defib(&["logs", "--run", run, "a"]).good().out;
    let (first, second) = (of_run("1"), of_run("2"));
    assert_eq!(first, second);
    let folder = bench.project().join("work").display().to_string();
    for line in [folder.as_str(), "FOO=bar baz", "PASSED=from the caller", "stdin \"\""] {
        assert!(first.lines().any(|said| said == line), "{line}: {first}");
    }
    assert!(first.contains("no terminal, input /dev/null"), "{first}");
    assert!(first.contains("open files 0 1 2 3\n"), "nothing of ours is open in it: {first}");
    let after = bench.status("a");
    assert_ne!(pid_in(&after), pid);
    assert_eq!(after["command"], before["command"]);
    assert_eq!((field(&after, "run"), field(&after, "restarts")), (2, 1));
    assert!(!proc::lives(pid));
}

#[test]
fn an_agent_with_a_terminal_gets_a_new_one_for_every_run() {
    let bench = bench();
    let events = bench.up(&[bench.agent("a", "tty print ready forever", "pty = true")]);
    bench.await_log("a", |log| log.contains("ready"));
    proc::kill(bench.pid("a"), "KILL");
    events.of_run("a", 2, "run-ready");
    bench.await_log("a", |log| log.matches("ready").count() == 2);
    let of_run = |run: &str| bench.defib(&["logs", "--run", run, "a"]).good().out;
    let (first, second) = (of_run("1"), of_run("2"));
    for log in [&first, &second] {
        assert!(log.starts_with("terminal /dev/pts/"), "{log}");
        assert!(log.contains("rows 40 columns 120"), "{log}");
    }
    assert_eq!(second.matches("ready").count(), 1, "nothing of the first run: {second}");
    let terminal = |pid: u32| std::fs::read_link(format!("/proc/{pid}/fd/0"));
    assert!(terminal(bench.pid("a")).unwrap().starts_with("/dev/pts"));
}

#[test]
fn five_quick_deaths_crash_an_agent_out_and_revive_brings_it_back() {
    let bench = bench();
    // Each life ends with another code, so that five deaths are told from one told five times.
    let dying = "command = [\"/bin/sh\", \"-c\", \"echo $DEFIB_RUN >> lives; [ -e go ] && exec sleep 1000; exit $((10 + DEFIB_RUN))\"]";
    let events = bench.up(&[format!("[agent.a]\n{dying}\n"), bench.agent("b", "forever", "")]);
    events.of("a", "crashed-out");
    let status = bench.status("a");
    assert_eq!(status["state"], "crashed-out");
    assert_eq!(field(&status, "restarts"), 4);
    assert!(status["pid"].is_null());
    let codes: Vec<u64> =
        bench.history("a").iter().map(|run| field(&run["death"], "exit_code")).collect();
    assert_eq!(codes, [11, 12, 13, 14, 15]);
    let tripped = events.of("a", "limit-tripped");
    assert_eq!((field(&tripped, "deaths"), field(&tripped, "max")), (5, 5), "{tripped}");
    events.find("one notice", |events| {
        let told = events.iter().filter(|event| event["type"] == "notified").count();
        assert!(told <= 1, "{events:#?}");
        (told == 1).then_some(())
    });

    let refused = bench.defib(&["start", "a"]).bad(6);
    assert!(refused.err.contains("revive"), "{refused:?}");
    bench.defib(&["restart", "a"]).bad(6);
    let why = bench.defib(&["why", "a"]).good();
    assert!(why.out.contains("5 of 5 deaths within 1m"), "{}", why.out);
    assert!(why.out.contains("defib revive a"), "{}", why.out);

    std::fs::write(bench.project().join("go"), "").unwrap();
    bench.defib(&["revive", "a"]).good();
    let status = bench.await_state("a", "running");
    assert_eq!((field(&status, "run"), field(&status, "restarts")), (6, 0));
    await_that("six lives", || {
        std::fs::read_to_string(bench.project().join("lives")).unwrap() == "1\n2\n3\n4\n5\n6\n"
    });
    // The windows are empty: one more death is the first.
    proc::kill(pid_in(&status), "KILL");
    events.of_run("a", 7, "run-ready");
    assert_eq!(field(&bench.status("b"), "run"), 1);
}

#[test]
fn whatever_ends_for_good_is_notified_once_whoever_dies_meanwhile() {
    let bench = bench();
    let lasting = "limits = [{ deaths = 1, within = \"1h\" }]";
    let events = bench.up(&[
        bench.agent("a", "exit 1", ""),
        bench.agent("h", "exit 2", "exit_codes = { 2 = \"config\" }"),
        bench.agent(
            "e",
            "exit 1",
            "limits = [{ deaths = 2, within = \"1h\", then = \"escalate\" }]",
        ),
        bench.agent("d", "exit 0", ""),
        bench.agent("l", "forever", lasting),
    ]);
    for (name, what, run) in [("a", "crashed-out", 5), ("h", "halted", 1), ("e", "crashed-out", 2)]
    {
        let notified = events.of(name, "notified");
        assert_eq!(notified["what"], what, "{notified}");
        assert_eq!(notified["channels"], serde_json::json!([]), "{notified}");
        assert_eq!(field(&notified, "run"), run, "{notified}");
    }
    // One that ends while nobody looks is told of by the next daemon, and by that one only.
    let (_, daemon) = bench.who();
    let pid = bench.pid("l");
    proc::kill(daemon, "STOP");
    proc::kill(pid, "KILL");
    proc::await_gone(pid);
    proc::kill(daemon, "KILL");
    bench.successor_of(daemon);
    events.of("l", "notified");
    bench.kill_daemon();
    // A revival that comes to nothing is another matter, and told again.
    bench.defib(&["revive", "--no-wait", "a"]).good();
    events.of_run("a", 10, "notified");
    let counts = events.find("all of it", |events| {
        let of = |name: &str| events.iter().filter(|event| is(event, name, "notified")).count();
        Some(["a", "h", "e", "d", "l"].map(of))
    });
    assert_eq!(counts, [2, 1, 1, 0, 1]);
}

#[test]
fn up_in_front_says_who_has_crashed_out() {
    let bench = bench();
    bench.declare(&[bench.agent("a", "exit 1", ""), bench.agent("b", "forever", "")]);
    let mut command = bench.command(&["up"]);
    let mut front = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let said = std::io::BufReader::new(front.stdout.take().unwrap());
    let said: Vec<String> = std::io::BufRead::lines(said)
        .map(Result::unwrap)
        .inspect(|line| {
            if line.starts_with("a is crashed-out") {
                proc::kill(front.id(), "INT");
            }
        })
        .collect();
    front.wait().unwrap();
    let told = said.iter().filter(|line| line.starts_with("a is crashed-out")).count();
    assert_eq!(told, 1, "{said:#?}");
}
