//! The account: it survives damage and a full disk, and supervision goes on without it.

use std::path::Path;
use std::time::Instant;

use defib_e2e::{Bench, Disk, await_some, await_that, field, pid_in, proc};
use serde_json::Value;

use crate::{FAKE_AGENT, bench};

fn damage(bench: &Bench) {
    let file = bench.home().join("history.db");
    for extra in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(bench.home().join(format!("history.db{extra}")));
    }
    std::fs::write(file, vec![0xA5; 20_000]).unwrap();
}

fn set_aside(bench: &Bench) -> bool {
    let entries = std::fs::read_dir(bench.home()).unwrap();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with("history.db.")).count() > 0
}

#[test]
fn a_damaged_history_is_set_aside_loudly_and_agents_are_started_all_the_same() {
    let bench = bench();
    let events = bench.up(&[bench.agent("a", "forever", "")]);
    events.of("a", "run-ready");
    drop(events);
    bench.kill_both();
    damage(&bench);
    for command in [&["up", "--detach"][..], &["status"]] {
        let said = bench.defib(command).good().err;
        assert!(said.contains("warning: history.db was damaged"), "{said}");
    }
    let status = bench.await_state("a", "running");
    let events = bench.events();
    let said = events.find("history-damaged", |events| {
        events.iter().find(|event| event["type"] == "history-damaged").cloned()
    });
    assert_eq!(said["file"], "history.db");
    assert!(said["set_aside"].as_str().is_some_and(|path| Path::new(path).exists()), "{said}");
    assert!(set_aside(&bench));
    proc::kill(pid_in(&status), "KILL");
    bench.await_status("a", |now| now["state"] == "running" && now["run"] != status["run"]);
    assert!(bench.history("a").len() >= 2);
}

#[test]
fn a_history_that_is_damaged_while_agents_run_costs_no_agent() {
    let bench = bench();
    drop(bench.up(&[bench.agent("a", "forever", ""), bench.agent("b", "forever", "")]));
    bench.defib(&["stop", "b"]).good();
    let pid = bench.pid("a");
    let (_, daemon) = bench.who();
    proc::kill(daemon, "STOP");
    damage(&bench);
    proc::kill(daemon, "KILL");
    bench.successor_of(daemon);
    let status = bench.await_state("a", "running");
    assert_eq!((pid_in(&status), field(&status, "run")), (pid, 1));
    assert_eq!(bench.status("b")["state"], "stopped");
    bench.events().find("history-damaged", |events| {
        events.iter().find(|event| event["type"] == "history-damaged").cloned()
    });
    proc::kill(pid, "KILL");
    bench.await_status("a", |now| now["state"] == "running" && now["run"] == 2);
    assert!(set_aside(&bench));
}

#[test]
fn with_every_file_of_ours_damaged_a_project_still_comes_up() {
    let bench = bench();
    drop(bench.up(&[bench.agent("a", "print x forever", "")]));
    bench.await_log("a", |log| log == "x\n");
    bench.kill_both();
    damage(&bench);
    for name in ["intent.db", "journal", "keeper.log", "logs/a/runs.idx", "lock"] {
        std::fs::write(bench.home().join(name), vec![0xA5; 20_000]).unwrap();
    }
    for extra in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(bench.home().join(format!("intent.db{extra}")));
    }
    bench.defib(&["up", "--detach"]).good();
    let status = bench.await_state("a", "running");
    bench.await_log("a", |log| log.matches('x').count() >= 2);
    proc::kill(pid_in(&status), "KILL");
    bench.await_status("a", |now| now["state"] == "running" && now["run"] != status["run"]);
    bench.kill_daemon();
    bench.await_state("a", "running");
    bench.defib(&["history"]).good();
    bench.defib(&["logs", "a"]).good();
}

#[test]
fn a_damaged_or_vanished_file_is_said_whichever_and_whenever() {
    let bench = bench();
    drop(bench.up(&[bench.agent("a", "forever", ""), bench.agent("b", "forever", "")]));
    bench.kill_both();
    std::fs::write(bench.home().join("intent.db"), vec![0xA5; 20_000]).unwrap();
    for extra in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(bench.home().join(format!("intent.db{extra}")));
    }
    let said = bench.defib(&["up", "--detach"]).good().err;
    assert!(said.contains("warning: intent.db was damaged"), "{said}");
    let events = bench.events();
    let of = |file: &'static str| {
        events.find("what was damaged", move |events| {
            let damaged = events.iter().filter(|event| event["type"] == "history-damaged");
            damaged.into_iter().find(|event| event["file"] == file).cloned()
        })
    };
    assert!(of("intent.db")["set_aside"].is_string());
    // Somebody cleans up while it runs.
    std::fs::remove_file(bench.home().join("history.db")).unwrap();
    proc::kill(bench.pid("a"), "KILL");
    let said = of("history.db");
    assert!(said["set_aside"].is_null() && said["why"].is_string(), "{said}");
    let said = bench.defib(&["status"]).good().err;
    assert!(said.contains("warning: history.db was lost"), "{said}");
}

#[test]
fn history_is_kept_as_long_as_the_file_says_from_when_it_says_so() {
    let bench = bench();
    let agent = bench.agent("a", "sleep 5 exit 1", "limits = [{ deaths = 5, within = \"1h\" }]");
    let kept = |keep: &str| format!("[history]\nkeep = \"{keep}\"\n{agent}");
    let events = bench.up(&[kept("1h")]);
    events.of("a", "crashed-out");
    assert_eq!(bench.history("a").len(), 5);
    bench.declare(&[kept("1ms")]);
    bench.defib(&["reload"]).good();
    await_that("what is old goes", || bench.history("a").is_empty());
    assert_eq!(bench.status("a")["state"], "crashed-out", "only the account of it has gone");
}

fn beats(file: &Path) -> usize {
    std::fs::read(file).map_or(0, |bytes| bytes.len())
}

#[test]
fn agents_run_on_while_the_disk_is_full_and_all_is_well_when_there_is_space_again() {
    let Some(disk) = Disk::mount("16m") else {
        eprintln!("skipped: only root can mount a small disk");
        return;
    };
    let elsewhere = tempfile::tempdir().unwrap();
    let (beat, go) = (elsewhere.path().join("beat"), elsewhere.path().join("go"));
    let bench = Bench::below(disk.path(), FAKE_AGENT);
    let writing = format!(
        "[agent.writer]\ncommand = [\"/bin/sh\", \"-c\", \"i=0; while :; do i=$((i+1)); echo line $i of the writer; printf . >> {}; sleep 0.01; done\"]\nlog = {{ max_size = \"64K\", keep = 2 }}\n",
        beat.display()
    );
    let script = format!("await {} lines 100000 print END forever", go.display());
    let events = bench.up(&[
        writing,
        bench.agent("burst", &script, "log = { max_size = \"64K\", keep = 2 }"),
        bench.agent("victim", "forever", "limits = []"),
        bench.agent("other", "forever", ""),
    ]);
    let (writer, burst) = (bench.pid("writer"), bench.pid("burst"));
    disk.fill();
    std::fs::write(&go, "").unwrap();
    events.find("output-lost", |events| {
        events
            .iter()
            .find(|event| event["type"] == "output-lost" && event["agent"] == "burst")
            .cloned()
    });
    let said = |what: &'static str| {
        let is_of = move |event: &&Value| event["type"] == what && event["file"] == "history.db";
        events.find(what, move |events| events.iter().find(is_of).cloned())
    };
    said("history-failing");
    let warned = bench.defib(&["status"]).good().err;
    assert!(warned.contains("warning: history.db cannot be written"), "{warned}");
    // The writer is not held up by what cannot be written.
    let before = beats(&beat);
    await_that("beats of the writer", || beats(&beat) > before + 20);
    // A death is dealt with, and so is a person's wish.
    for _ in 0..3 {
        let status = bench.await_state("victim", "running");
        proc::kill(pid_in(&status), "KILL");
        bench
            .await_status("victim", |now| now["state"] == "running" && now["run"] != status["run"]);
    }
    // What is shown of the past is not all of it, and that is said.
    for command in [&["history"][..], &["events"], &["why", "victim"], &["logs", "writer"]] {
        let warned = bench.defib(command).good().err;
        assert!(warned.contains("warning: history.db cannot be written"), "{command:?}: {warned}");
    }
    let why = bench.defib(&["why", "victim"]).good().out;
    assert!(why.contains("Its last run that ended was ended by SIGKILL"), "{why}");
    assert!(why.contains("class     error: ") && why.contains("cannot be written"), "{why}");
    let json = bench.defib(&["why", "--json", "victim"]).good().json();
    assert!(json["run"].is_null() && json["agent"]["last_death"]["class"].is_string(), "{json}");
    // The stop takes effect, and its caller learns that it is not stored.
    let stopped = bench.defib(&["stop", "other"]);
    // The writer's log rotation may have freed a page for it.
    assert!(stopped.code == 0 || stopped.err.contains("not stored"), "{stopped:?}");
    assert_eq!(bench.status("other")["state"], "stopped");
    assert_eq!((bench.pid("writer"), bench.pid("burst")), (writer, burst));

    std::fs::remove_file(disk.ballast()).unwrap();
    said("history-recovered");
    // What could not be stored of people's wishes is tried again as well, by itself.
    await_that("nothing to warn of", || bench.defib(&["status"]).good().err.is_empty());
    let after = beats(&beat);
    await_that("beats with space", || beats(&beat) > after + 20);
    let last = |log: &str| log.lines().last().unwrap_or_default().to_owned();
    let now = last(&bench.log("writer"));
    bench.await_log("writer", |log| last(log) != now && log.ends_with('\n'));
    let status = bench.await_state("victim", "running");
    proc::kill(pid_in(&status), "KILL");
    bench.await_status("victim", |now| now["state"] == "running" && now["run"] != status["run"]);
    let run = field(&status, "run");
    await_that("the death in the history", || {
        bench
            .history("victim")
            .iter()
            .any(|known| field(known, "run") == run && !known["death"].is_null())
    });
    // The next daemon finds everything as it should be.
    bench.kill_daemon();
    assert_eq!(bench.status("other")["state"], "stopped");
    assert_eq!((bench.pid("writer"), bench.pid("burst")), (writer, burst));
    drop(events);
    drop(bench);
}

/// Number of bytes in a log without the marks of lost output, and the number of those marks. Before a mark
/// there may be a line end that the agent did not write.
fn without_marks(log: &[u8]) -> (u64, u64) {
    let is_mark = |line: &&[u8]| line.starts_with(b"[defib: ");
    let (marks, own): (Vec<&[u8]>, Vec<&[u8]>) =
        log.split_inclusive(|byte| *byte == b'\n').partition(is_mark);
    (own.iter().map(|line| line.len() as u64).sum(), marks.len() as u64)
}

#[test]
fn every_byte_is_in_the_log_or_told_as_lost_and_told_seldom_while_the_disk_is_full() {
    let Some(disk) = Disk::mount("16m") else {
        eprintln!("skipped: only root can mount a small disk");
        return;
    };
    let elsewhere = tempfile::tempdir().unwrap();
    let (first, second) = (elsewhere.path().join("first"), elsewhere.path().join("second"));
    let bench = Bench::below(disk.path(), FAKE_AGENT);
    let (before, after) = (first.display(), second.display());
    let script = format!("await {before} lines 50000 await {after} lines 10 forever");
    let events = bench
        .up(&[bench.agent("pipe", &script, ""), bench.agent("terminal", &script, "pty = true")]);
    let names = ["pipe", "terminal"];
    for name in names {
        events.of_run(name, 1, "run-ready");
    }
    disk.fill();
    for name in names {
        // There is no space to write down where this run begins.
        proc::kill(bench.pid(name), "KILL");
        events.of_run(name, 2, "run-ready");
    }
    let begin = Instant::now();
    std::fs::write(first, "").unwrap();
    let lost = |name: &'static str| {
        move |events: &[Value]| {
            let of_it = |event: &&Value| event["type"] == "output-lost" && event["agent"] == name;
            let told = events.iter().filter(of_it).map(|event| field(event, "bytes"));
            Some(told.collect::<Vec<u64>>()).filter(|told| !told.is_empty())
        }
    };
    for name in names {
        events.find("a loss", lost(name));
    }
    std::fs::remove_file(disk.ballast()).unwrap();
    let last = "line 0000000010 of what an agent writes";
    for (name, line_end) in [("pipe", 1), ("terminal", 2)] {
        let written = 50_000 * (last.len() + line_end);
        let all = |told: &[u64]| {
            let kept: Vec<u8> =
                bench.segments(name).into_iter().flat_map(|(_, bytes)| bytes).collect();
            let (own, marks) = without_marks(&kept);
            (told.iter().sum::<u64>() + own, marks)
        };
        let told = await_some("all that was lost", || {
            let told = events.find("a loss", lost(name));
            (all(&told).0 >= written as u64).then_some(told)
        });
        let (bytes, marks) = all(&told);
        let surplus = bytes - written as u64;
        assert!(surplus <= marks, "{name}: {surplus} bytes too many, {marks} marks, {told:?}");
        assert!(told.len() as u64 <= begin.elapsed().as_secs() + 3, "{name}: {told:?}");
    }
    std::fs::write(second, "").unwrap();
    for name in names {
        bench.await_log(name, |log| log.trim_end().ends_with(last));
        let log = bench.defib(&["logs", "--run", "2", name]).good().out;
        assert!(log.trim_end().ends_with(last), "{name}: {log}");
    }
    drop(events);
    drop(bench);
}

#[test]
fn a_daemon_that_comes_up_on_a_full_disk_adopts_its_agents() {
    let Some(disk) = Disk::mount("8m") else {
        eprintln!("skipped: only root can mount a small disk");
        return;
    };
    let bench = Bench::below(disk.path(), FAKE_AGENT);
    drop(bench.up(&[bench.agent("a", "forever", "")]));
    let pid = bench.pid("a");
    disk.fill();
    bench.kill_daemon();
    let status = bench.await_state("a", "running");
    assert_eq!(pid_in(&status), pid);
    proc::kill(pid, "KILL");
    bench.await_status("a", |now| now["state"] == "running" && now["run"] == 2);
    std::fs::remove_file(disk.ballast()).unwrap();
    bench.kill_daemon();
    bench.await_status("a", |now| now["state"] == "running" && now["run"] == 2);
    drop(bench);
}

#[test]
fn who_cannot_be_forgotten_on_disk_is_not_taken_away() {
    let Some(disk) = Disk::mount("8m") else {
        eprintln!("skipped: only root can mount a small disk");
        return;
    };
    let bench = Bench::below(disk.path(), FAKE_AGENT);
    drop(bench.up(&[bench.agent("a", "forever", "")]));
    bench.defib(&["run", "--name", "extra", "--", FAKE_AGENT, "forever"]).good();
    let pid = bench.pid("extra");
    disk.fill();
    let refused = bench.defib(&["rm", "extra"]).bad(1);
    assert!(refused.err.contains("space in the home folder"), "{refused:?}");
    assert_eq!(bench.pid("extra"), pid);
    assert!(bench.home().join("adhoc/extra.toml").exists());
    std::fs::remove_file(disk.ballast()).unwrap();
    // It is there whoever comes next, and can be taken away then.
    bench.kill_daemon();
    assert_eq!(bench.pid("extra"), pid);
    bench.defib(&["rm", "extra"]).good();
    assert!(!bench.home().join("adhoc/extra.toml").exists());
    bench.defib(&["status", "extra"]).bad(5);
    drop(bench);
}

#[test]
fn events_of_none_of_the_past_are_those_that_come() {
    let bench = bench();
    let settings = "limits = []\nrestart = \"always\"";
    let events = bench.up(&[bench.agent("a", "sleep 100 exit 1", settings)]);
    events.of("a", "run-died");
    assert_eq!(bench.defib(&["events", "-n", "0"]).good().out, "");
    let seq = |line: &str| field(&serde_json::from_str(line).unwrap(), "seq");
    let before = seq(&bench.defib(&["events", "--json", "-n", "1"]).good().out);
    let lines = bench.lines(&["events", "-f", "--json", "-n", "0"]);
    assert!(seq(&lines.next()) > before);
}

#[test]
fn events_have_numbers_that_only_grow_whoever_dies() {
    let bench = bench();
    let events =
        bench.up(&[bench.agent("a", "sleep 2 exit 1", "limits = []\nrestart = \"always\"")]);
    for round in 1..=3 {
        events.of_run("a", round * 5, "run-died");
        if round == 2 {
            bench.kill_both();
            bench.defib(&["up", "--detach"]).good();
        } else {
            bench.kill_daemon();
        }
    }
    // A number that is told twice with different contents fails in the follower.
    let told = bench.defib(&["events", "--json", "-n", "100000"]).good();
    let seqs: Vec<u64> =
        told.out.lines().map(|line| field(&serde_json::from_str(line).unwrap(), "seq")).collect();
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "numbers only grow");
    events.find("the same from the stream", |known| {
        let last = *seqs.last().unwrap();
        let streamed: Vec<u64> =
            known.iter().map(|event| field(event, "seq")).filter(|seq| *seq <= last).collect();
        (streamed == seqs).then_some(())
    });
}
