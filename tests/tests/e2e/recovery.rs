//! What a daemon had not put on disk when it ended is found again by the next one, or said to be missing.

use defib_e2e::{Bench, Disk, await_some, await_that, field, pid_in, proc};

use crate::{FAKE_AGENT, bench};

/// Says what it dies of in Python's words, without a Python.
const TRACEBACK: &str = "printf 'Traceback (most recent call last):\\n  File \"work.py\", line 3, in <module>\\n    step()\\nValueError: the very reason\\n'";

#[test]
fn a_daemon_that_dies_on_a_full_disk_comes_back_and_no_death_is_missing() {
    let Some(disk) = Disk::mount("16m") else {
        eprintln!("skipped: only root can mount a small disk");
        return;
    };
    let bench = Bench::below(disk.path(), FAKE_AGENT);
    drop(bench.up(&[bench.agent("victim", "forever", "limits = []")]));
    bench.await_state("victim", "running");
    disk.fill();
    // More events than fit into what is left of a page.
    let mut run = 0;
    for _ in 0..12 {
        let status = bench
            .await_status("victim", |now| now["state"] == "running" && field(now, "run") > run);
        run = field(&status, "run");
        proc::kill(pid_in(&status), "KILL");
    }
    bench.await_status("victim", |now| now["state"] == "running" && field(now, "run") > run);
    bench.kill_daemon();
    let status = bench.await_state("victim", "running");
    assert_eq!(field(&status, "run"), run + 1, "it was adopted");
    std::fs::remove_file(disk.ballast()).unwrap();
    await_that("all of it in the history", || {
        let runs = bench.history("victim");
        let dead = runs.iter().filter(|run| run["death"].is_object()).count();
        (runs.len() as u64, dead as u64) == (run + 1, run)
    });
    drop(bench);
}

#[test]
fn no_run_number_is_used_again_when_the_history_is_lost() {
    let bench = bench();
    let settings = "limits = []\n[[rule]]\nkind = \"generic\"\nmatch = \"^FATAL: license\"\nclass = \"config\"";
    let go = bench.file("go");
    let script = format!(
        "[agent.a]\ncommand = [\"/bin/sh\", \"-c\", \"if [ -e {go} ]; then echo fine so far; sleep 1000; fi; echo FATAL: license; sleep 1000\"]\n{settings}\n"
    );
    drop(bench.up(&[script]));
    bench.await_log("a", |log| log.contains("FATAL"));
    bench.kill_both();
    for extra in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(bench.home().join(format!("history.db{extra}")));
    }
    std::fs::write(&go, "").unwrap();
    bench.defib(&["up", "--detach"]).good();
    let status = bench.await_state("a", "running");
    assert_eq!(field(&status, "run"), 2, "{status}");
    bench.await_log("a", |log| log.contains("fine so far"));
    let said = bench.defib(&["logs", "a", "--run", "1"]).good().out;
    assert!(said.contains("FATAL") && !said.contains("fine"), "{said}");
    proc::kill(pid_in(&status), "KILL");
    bench.await_status("a", |now| now["state"] == "running" && now["run"] == 3);
    // The journal had what the history has not any more.
    let runs: Vec<u64> = bench.history("a").iter().map(|run| field(run, "run")).collect();
    assert_eq!(runs, [1, 2, 3]);
    // Without that there are still the numbers in the log.
    bench.kill_both();
    for gone in ["history.db", "history.db-wal", "history.db-shm", "journal"] {
        let _ = std::fs::remove_file(bench.home().join(gone));
    }
    bench.defib(&["up", "--detach"]).good();
    let status = bench.await_state("a", "running");
    assert_eq!(field(&status, "run"), 4, "{status}");
}

#[test]
fn the_last_words_of_a_run_are_kept_though_the_daemon_dies_with_it() {
    let bench = bench();
    let agent = format!(
        "[agent.a]\ncommand = [\"/bin/sh\", \"-c\", {}]\nlimits = []\nbackoff = {{ kind = \"fixed\", base = \"1h\", cap = \"1h\" }}\n",
        serde_json::to_string(&format!("{TRACEBACK}; exit 1")).unwrap()
    );
    let (_, daemon) = {
        let events = bench.up(&[agent]);
        let who = bench.who();
        events.of("a", "run-died");
        proc::kill(who.1, "KILL");
        who
    };
    bench.successor_of(daemon);
    let trace = await_some("its trace", || {
        let runs = bench.history("a");
        runs.first()?["death"]["trace"].as_str().map(str::to_owned)
    });
    assert!(trace.contains("ValueError: the very reason"), "{trace}");
    await_that("it in the status", || bench.status("a")["last_death"]["trace"].is_string());
}

#[test]
fn the_last_words_of_a_run_are_kept_though_nobody_saw_it_end() {
    let bench = bench();
    let agent = format!(
        "[agent.a]\ncommand = [\"/bin/sh\", \"-c\", {}]\n",
        serde_json::to_string(&format!("{TRACEBACK}; sleep 1000")).unwrap()
    );
    drop(bench.up(&[agent]));
    bench.await_log("a", |log| log.contains("ValueError"));
    bench.kill_both();
    bench.defib(&["up", "--detach"]).good();
    await_that("the trace of the run that was lost", || {
        let runs = bench.history("a");
        let lost = runs.iter().find(|run| run["run"] == 1);
        lost.is_some_and(|run| run["death"]["class"] == "lost" && run["death"]["trace"].is_string())
    });
}

#[test]
fn whoever_was_revived_is_not_crashed_out_again_after_a_reboot() {
    let bench = bench();
    let quota = bench.file("quota");
    let agent = format!(
        "[agent.a]\ncommand = [\"/bin/sh\", \"-c\", \"if [ -e {quota} ]; then exit 75; fi; exit 1\"]\nexit_codes = {{ 75 = \"quota\" }}\nlimits = [{{ deaths = 1, within = \"60s\" }}]\n"
    );
    drop(bench.up(&[agent]));
    bench.await_state("a", "crashed-out");
    // That is stored a moment later.
    await_that("it on disk", || {
        ["intent.db", "intent.db-wal"].iter().any(|file| {
            let bytes = std::fs::read(bench.home().join(file)).unwrap_or_default();
            bytes.windows(10).any(|word| word == b"CrashedOut")
        })
    });
    std::fs::write(&quota, "").unwrap();
    bench.defib(&["revive", "a", "--no-wait"]).good();
    bench.await_state("a", "waiting");
    // All of it is in the history, and the next daemon's journal begins anew.
    assert_eq!(bench.history("a").len(), 2);
    bench.kill_daemon();
    bench.await_state("a", "waiting");
    bench.kill_both();
    bench.defib(&["up", "--detach"]).good();
    let status = bench.await_status("a", |now| field(now, "run") > 2);
    assert_ne!(status["state"], "crashed-out", "{status}");
}
