//! The keeper is killed: its agents die with it, its daemon takes its place, and each of them runs once.

use std::collections::BTreeSet;
use std::process::{Child, Command};
use std::time::Duration;

use defib_e2e::{Bench, await_some, await_that, field, moment_ms, pid_in, proc};

use crate::bench;

/// A process that is not ours, whatever it looks like.
struct Stranger(Child);

impl Stranger {
    fn start(bench: &Bench) -> Stranger {
        let mut command = Command::new("sleep");
        command
            .arg("1000")
            .current_dir(bench.project())
            .env("DEFIB_AGENT", "a")
            .env("DEFIB_RUN", "1");
        Stranger(command.spawn().unwrap())
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn lines_of(bench: &Bench, file: &str) -> Vec<(u64, u32)> {
    let text = std::fs::read_to_string(bench.project().join(file)).unwrap_or_default();
    let pair = |line: &str| {
        let (run, pid) = line.split_once(' ')?;
        Some((run.parse().ok()?, pid.parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

fn check_that_each_agent_runs_once_again(kill: impl Fn(&Bench)) {
    let other = bench();
    let script = "double-fork 'ignore TERM print ready forever' forever";
    other.up(&[other.agent("a", script, "")]);
    other.await_log("a", |log| log.contains("ready"));
    await_that("keeper, daemon, agent, grandchild", || other.processes().len() == 4);
    let foreign = other.processes();

    let bench = bench();
    let mut stranger = Stranger::start(&bench);
    let (plain, tree) = (bench.file("plain"), bench.file("tree"));
    let forking = format!("double-fork 'ignore TERM ignore HUP count {tree} forever' forever");
    bench.up(&[
        bench.agent("a", &format!("count {plain} forever"), ""),
        bench.agent("b", &forking, ""),
        bench.agent("c", "forever", ""),
    ]);
    bench.defib(&["stop", "c"]).good();
    await_that("first lives", || {
        lines_of(&bench, "plain").len() + lines_of(&bench, "tree").len() == 2
    });
    let direct = [bench.pid("a"), bench.pid("b")];
    let [(_, grandchild)] = lines_of(&bench, "tree")[..] else { panic!("one grandchild") };

    kill(&bench);
    for pid in direct {
        proc::await_gone(pid);
    }
    await_that("second lives", || {
        lines_of(&bench, "plain").len() >= 2 && lines_of(&bench, "tree").len() >= 2
    });
    assert!(!proc::lives(grandchild), "swept before anything is started");
    for name in ["a", "b"] {
        let status = bench.await_state(name, "running");
        assert_eq!(field(&status, "run"), 2, "{status}");
    }
    assert_eq!(bench.status("c")["state"], "stopped", "a stop outlives both");
    for file in ["plain", "tree"] {
        let lives = lines_of(&bench, file);
        let runs: Vec<u64> = lives.iter().map(|(run, _)| *run).collect();
        assert_eq!(runs, [1, 2], "{file}");
        let alive: Vec<bool> = lives.iter().map(|(_, pid)| proc::lives(*pid)).collect();
        assert_eq!(alive, [false, true], "{file}");
    }
    // Keeper, daemon, two agents, one grandchild.
    await_that("nothing else of ours", || bench.processes().len() == 5);
    assert!(stranger.lives(), "a stranger is left alone");
    assert_eq!(other.processes(), foreign, "another home is left alone");
    for name in ["a", "b"] {
        let runs = bench.history(name);
        assert_eq!(runs.len(), 2, "{runs:#?}");
        assert!(!runs[0]["death"].is_null(), "it is said that the first run is over: {}", runs[0]);
        assert!(runs[1]["death"].is_null());
        let lived = moment_ms(&runs[0]["ended_at"]) - moment_ms(&runs[0]["started_at"]);
        let ran = Duration::from_secs_f64(runs[0]["ran_s"].as_f64().unwrap());
        let ran = i64::try_from(ran.as_millis()).unwrap();
        assert!(ran > 0 && ran.abs_diff(lived) < 100, "{}", runs[0]);
        let why = bench.defib(&["why", name]).good().out;
        assert!(why.contains("Run 1 was lost after"), "{why}");
    }
}

#[test]
fn the_keeper_s_agents_die_with_it_and_its_daemon_runs_each_once() {
    check_that_each_agent_runs_once_again(Bench::kill_keeper);
}

#[test]
fn keeper_and_daemon_killed_together_leave_nothing_that_runs_twice() {
    check_that_each_agent_runs_once_again(|bench| {
        bench.kill_both();
        bench.defib(&["up", "--detach"]).good();
    });
}

#[test]
fn keepers_may_be_killed_over_and_over_and_agents_keep_what_their_caller_gave_them() {
    let mut bench = bench();
    bench.set("A_SECRET", "value-of-the-caller");
    let lives = bench.file("lives");
    let script = format!("count {lives} env A_SECRET print told forever");
    let events = bench.up(&[bench.agent("a", &script, "env_pass = [\"A_SECRET\"]")]);
    let bounds = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let first = bounds(bench.pid("a"));
    for round in 2..=4 {
        bench.kill_keeper();
        let status = bench.await_status("a", |status| {
            status["state"] == "running" && field(status, "run") == round
        });
        assert_eq!(bounds(pid_in(&status)), first, "an agent's bounds are the caller's");
        let log = bench.await_log("a", |log| log.matches("told").count() as u64 == round);
        assert_eq!(log.matches("A_SECRET=value-of-the-caller\n").count() as u64, round, "{log}");
    }
    assert_eq!(lines_of(&bench, "lives").len(), 4);
    // Whoever follows goes on under the next keeper too.
    events.of_run("a", 4, "run-ready");
    let runs = bench.history("a");
    assert!(runs[..3].iter().all(|run| run["death"]["class"] == "lost"), "{runs:#?}");
}

#[test]
fn no_run_number_is_used_twice_whoever_is_killed_when() {
    let bench = bench();
    let lives = bench.file("lives");
    let script = format!("count {lives} sleep 3 exit 1");
    let settings = "restart = \"always\"\nlimits = []";
    bench.declare(&[bench.agent("a", &script, settings)]);
    for round in 1..=5 {
        bench.defib(&["up", "--detach"]).good();
        let before = lines_of(&bench, "lives").len();
        await_that("more lives", || lines_of(&bench, "lives").len() > before + 3 * round);
        bench.kill_both();
    }
    bench.defib(&["up", "--detach"]).good();
    bench.insist(&["stop", "a"]).good();
    let runs: Vec<u64> = lines_of(&bench, "lives").into_iter().map(|(run, _)| run).collect();
    let unique: BTreeSet<u64> = runs.iter().copied().collect();
    assert_eq!(runs.len(), unique.len(), "a number twice: {runs:?}");
    assert!(runs.is_sorted(), "{runs:?}");
    let history: Vec<u64> = bench.history("a").iter().map(|run| field(run, "run")).collect();
    let known: BTreeSet<u64> = history.iter().copied().collect();
    assert_eq!(history.len(), known.len());
    let missing: Vec<&u64> = unique.difference(&known).collect();
    assert!(missing.is_empty(), "not in the history: {missing:?}");
}

#[test]
fn a_keeper_that_nobody_needs_leaves_no_socket_that_misleads() {
    let bench = bench();
    bench.up(&[bench.agent("a", "forever", "")]);
    bench.defib(&["down", "--all"]).good();
    await_that("the end", || bench.processes().is_empty());
    assert!(!bench.home().join("defib.sock").exists());
    bench.defib(&["status"]).bad(4);
    let version =
        await_some("an answer", || Some(bench.defib(&["version", "--json"]).good().json()));
    assert!(version["daemon"].is_null() && version["keeper"].is_null(), "{version}");
}

#[test]
fn what_agents_at_rest_died_of_is_still_shown_when_their_keeper_was_killed() {
    let bench = bench();
    let once = "limits = [{ deaths = 1, within = \"1h\" }]";
    let events = bench.up(&[
        bench.agent("out", "exit 3", once),
        bench.agent("done", "exit 0", ""),
        bench.agent("stopped", "forever", ""),
        bench.agent("never", "forever", "trigger = \"manual\""),
        bench.agent("lives", "forever", ""),
    ]);
    events.of("out", "crashed-out");
    events.of("done", "rested");
    events.of("lives", "run-ready");
    bench.defib(&["stop", "stopped"]).good();
    let resting = ["out", "done", "stopped", "never"];
    let last_death = |name: &str| {
        let mut death = bench.status(name)["last_death"].take();
        // The history keeps whole milliseconds.
        if let Some(ran) = death["ran_s"].as_f64() {
            death["ran_s"] = Duration::from_secs_f64(ran).as_millis().to_string().into();
        }
        death
    };
    let before = resting.map(last_death);
    assert_eq!(before[0]["exit_code"], 3, "{}", before[0]);
    bench.kill_keeper();
    bench.await_status("lives", |status| field(status, "run") == 2);
    assert_eq!(resting.map(last_death), before);
    assert_eq!(bench.status("lives")["last_death"]["class"], "lost");
    // Nor does the next daemon of that keeper forget it.
    bench.kill_daemon();
    assert_eq!(resting.map(last_death), before);
}

#[test]
fn whoever_lived_when_the_keeper_was_killed_runs_again_however_it_was_started() {
    let bench = bench();
    let yearly = "trigger = \"cron:0 0 1 1 *\"";
    bench.up(&[
        bench.agent("by-hand", "forever", "trigger = \"manual\""),
        bench.agent("yearly", "forever", yearly),
        bench.agent("once", "forever", "trigger = \"manual\"\nrestart = \"never\""),
        bench.agent("stopped", "forever", "trigger = \"manual\""),
        bench.agent("idle", "forever", yearly),
    ]);
    for name in ["by-hand", "yearly", "once", "stopped"] {
        bench.defib(&["start", name]).good();
        bench.await_state(name, "running");
    }
    bench.defib(&["stop", "stopped"]).good();
    bench.kill_keeper();
    for name in ["by-hand", "yearly"] {
        bench
            .await_status(name, |status| status["state"] == "running" && field(status, "run") == 2);
        assert_eq!(bench.history(name)[0]["death"]["class"], "lost");
    }
    let rests = ["once", "stopped", "idle"].map(|name| bench.status(name)["state"].clone());
    assert_eq!(rests, ["stopped", "stopped", "idle"]);
}

#[test]
fn a_rest_right_before_both_die_is_not_forgotten() {
    let bench = bench();
    let once = "limits = [{ deaths = 1, within = \"1h\" }]";
    let lives = bench.file("lives");
    let events = bench.up(&[bench.agent("a", &format!("count {lives} forever"), once)]);
    let pid = bench.pid("a");
    proc::kill(pid, "KILL");
    events.of("a", "crashed-out");
    bench.kill_both();
    bench.defib(&["up", "--detach"]).good();
    assert_eq!(bench.status("a")["state"], "crashed-out");
    assert_eq!(lines_of(&bench, "lives").len(), 1);
    // And that it was revived is not forgotten either.
    bench.defib(&["revive", "a"]).good();
    await_that("another life", || lines_of(&bench, "lives").len() == 2);
    bench.kill_both();
    bench.defib(&["up", "--detach"]).good();
    let status = bench.await_state("a", "running");
    assert_eq!(field(&status, "run"), 3, "{status}");
}

#[test]
fn a_project_whose_file_is_gone_is_said_and_comes_back_with_its_history() {
    let bench = bench();
    bench.up(&[bench.agent("a", "forever", "")]);
    bench.pid("a");
    bench.kill_both();
    let (file, away) = (bench.file("defib.toml"), bench.file("away.toml"));
    std::fs::rename(&file, &away).unwrap();
    let other = format!("[project]\nname = \"other\"\n{}", bench.agent("b", "forever", ""));
    std::fs::write(bench.project().join("other.toml"), other).unwrap();
    bench.defib(&["up", "--detach", "-f", "other.toml"]).good();
    let events = bench.events();
    let said = events.find("what is missing", |events| {
        events.iter().find(|event| event["type"] == "config-unreadable").cloned()
    });
    assert_eq!((said["project"].as_str(), said["file"].as_str()), (Some("p"), Some(file.as_str())));
    assert!(said["why"].as_str().is_some_and(|why| !why.is_empty()), "{said}");
    bench.pid("b");
    std::fs::rename(away, file).unwrap();
    bench.defib(&["up", "--detach"]).good();
    let status = bench.await_state("a", "running");
    assert_eq!(field(&status, "run"), 2, "{status}");
    assert_eq!(bench.history("a").len(), 2);
}

#[test]
fn an_agent_whose_variables_came_from_the_caller_is_started_once_by_the_next_up() {
    let mut bench = bench();
    bench.set("A_SECRET", "value-of-the-caller");
    bench.set("SOME_OTHER", "another");
    let lives = bench.file("lives");
    let script = format!("count {lives} env A_SECRET env SOME_OTHER print told forever");
    let passed = |names: &str| format!("env_pass = [{names}]");
    let parts = [
        bench.agent("named", &script, &passed("\"A_SECRET\"")),
        bench.agent("matched", &script, &passed("\"A_SEC*\", \"SOME_*\"")),
    ];
    let events = bench.up(&parts);
    for round in 1..=3 {
        for name in ["named", "matched"] {
            let log = bench.await_log(name, |log| log.matches("told").count() >= round);
            assert_eq!(log.matches("A_SECRET=value-of-the-caller\n").count(), round, "{log}");
            let status = bench.await_state(name, "running");
            assert_eq!(field(&status, "run"), round as u64, "{status}");
        }
        bench.kill_both();
        bench.defib(&["up", "--detach"]).good();
    }
    events.of_run("matched", 4, "run-ready");
    assert_eq!(lines_of(&bench, "lives").len(), 8);
}

#[test]
fn what_came_up_by_itself_outlives_the_daemon_that_started_it() {
    let bench = bench();
    bench.up(&[bench.agent("a", "forever", "")]);
    bench.pid("a");
    bench.kill_both();
    let other = format!("[project]\nname = \"other\"\n{}", bench.agent("b", "forever", ""));
    std::fs::write(bench.project().join("other.toml"), other).unwrap();
    bench.defib(&["up", "--detach", "-f", "other.toml"]).good();
    let pids = [bench.pid("a"), bench.pid("b")];
    bench.kill_daemon();
    assert_eq!([bench.pid("a"), bench.pid("b")], pids);
    proc::kill(pids[0], "KILL");
    let status = bench.await_status("a", |status| status["run"] == 3);
    assert_eq!(status["project"], "p");
}
