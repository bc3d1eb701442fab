//! `defib demo`, as somebody runs it who has nothing but the program.

use std::path::Path;

use defib_e2e::{Bench, Ran, await_that, proc};

use crate::bench;

/// Where it puts what it needs, and what is still there.
fn left_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn a_folder_of_its_own() -> Bench {
    let mut bench = bench();
    std::fs::create_dir(bench.project().join("t")).unwrap();
    let folder = bench.file("t");
    bench.set("TMPDIR", &folder);
    bench
}

/// Processes that know the folder: keeper, daemon, agents, and what those leave behind.
fn processes(bench: &Bench) -> Vec<u32> {
    let folder = bench.file("t");
    let mentions = |pid: &u32| {
        let told = ["cmdline", "environ"].into_iter().filter_map(|file| proc::read(*pid, file));
        told.into_iter().any(|bytes| proc::holds(&bytes, &format!("{folder}/defib-demo-")))
    };
    proc::all().filter(mentions).collect()
}

#[test]
fn the_demo_shows_restarts_a_crash_loop_why_and_revive_and_leaves_nothing() {
    let bench = a_folder_of_its_own();
    let ran = bench.defib(&["demo"]).good();
    let place = |text: &str| {
        ran.out.find(text).unwrap_or_else(|| panic!("{text:?} is missing: {}", ran.out))
    };
    let told = [
        "crashloop=LOOP_DETECTED(4)",
        "5 of 5 deaths within 1m",
        "`defib revive crashloop`",
        "`defib stop slow-to-stop`",
        "slow-to-stop=STOPPED(0)",
        "That is defib",
    ];
    let places = told.map(place);
    assert!(places.is_sorted(), "{places:?} {}", ran.out);
    let last = ran.out.lines().rfind(|line| line.starts_with("[DEMO]")).unwrap();
    for restarted in ["flaky", "hung", "forker"] {
        assert!(!last.contains(&format!("{restarted}=RUNNING(0)")), "{restarted}: {last}");
    }
    assert_eq!(left_in(&bench.project().join("t")), [""; 0]);
    await_that("everything has ended", || processes(&bench).is_empty());
}

#[test]
fn ctrl_c_ends_the_demo_early_and_leaves_nothing() {
    let bench = a_folder_of_its_own();
    let lines = bench.lines(&["demo"]);
    lines.until(|line| line.contains("healthy=RUNNING"));
    await_that("its processes", || processes(&bench).len() > 6);
    proc::kill(lines.pid(), "INT");
    assert_eq!(lines.end().0, Some(0));
    assert_eq!(left_in(&bench.project().join("t")), [""; 0]);
    await_that("everything has ended", || processes(&bench).is_empty());
    // The folder of somebody else is not taken, and not removed.
    let theirs = format!("{}/defib-demo-", bench.file("t"));
    let mut shell = std::process::Command::new("/bin/sh");
    let line = format!("mkdir {theirs}$$ && exec {} demo", defib_e2e::defib_path().display());
    shell.args(["-c", &line]).env("TMPDIR", bench.file("t"));
    let ran = Ran::to_end(shell).bad(1);
    assert!(ran.err.contains("TMPDIR"), "{}", ran.err);
    assert_eq!(left_in(&bench.project().join("t")).len(), 1);
}
