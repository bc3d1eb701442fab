//! What is shown as running has a process, and what a dead keeper made is removed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use defib_e2e::{Bench, await_that, proc};

use crate::bench;

/// Checks one look at all agents, by JSON and by the table's own route.
#[track_caller]
fn none_runs_without_a_process(bench: &Bench) -> usize {
    let mut running = 0;
    for path in ["/api/v1/agents", "/api/v1/overview"] {
        let answer = bench.look(path);
        for agent in answer.json().as_array().expect("an array") {
            if agent["state"] == "running" {
                running += 1;
                assert!(agent["pid"].is_u64(), "{path}: {agent:#}");
            }
        }
    }
    running
}

/// Goal: `running` always comes with a pid. Method: agents that write and die at once are restarted without
/// a pause, so that each is mostly between two runs; every state is looked at as fast as the daemon answers.
#[test]
fn an_agent_that_is_shown_as_running_has_a_pid() {
    let bench = bench();
    let settings = "restart = \"always\"\nlimits = []";
    let line = "head -c 200000 /dev/zero | tr '\\0' 'x'; echo; exit 1";
    let part = |name: &str| {
        format!(
            "[agent.{name}]\ncommand = '''{line}'''\nshell = true\nkind = \"claude\"\n{settings}\n"
        )
    };
    let parts: Vec<String> = ["a", "b", "c", "d"].map(part).to_vec();
    bench.declare(&parts);
    bench.defib(&["up", "--detach"]);
    let begin = Instant::now();
    let (mut looks, mut running) = (0, 0);
    while begin.elapsed() < Duration::from_secs(60) && (looks < 1000 || running < 100) {
        running += none_runs_without_a_process(&bench);
        looks += 1;
    }
    println!("{looks} looks, {running} times running");
    bench.kill_daemon();
    for _ in 0..50 {
        none_runs_without_a_process(&bench);
    }
}

/// The cgroup v2 folder below which keepers of this machine make theirs, if there is one.
fn own_cgroup() -> Option<PathBuf> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?.to_owned();
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(PathBuf::from);
    let root = roots.into_iter().find(|root| root.join("cgroup.procs").exists())?;
    Some(root.join(own))
}

fn folders_of(place: &Path, pid: u32) -> Vec<String> {
    let names = std::fs::read_dir(place).unwrap().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with("defib-") && name.ends_with(&format!("-{pid}"))).collect()
}

/// Goal: the cgroup folder of a killed keeper does not stay, also if its home is gone. Method: keeper and
/// daemon of one home are killed; a keeper of another home starts.
#[test]
fn empty_cgroup_folders_of_dead_keepers_are_removed() {
    let Some(place) = own_cgroup() else {
        println!("NOT TRIED: there is no cgroup v2 here");
        return;
    };
    let mut first = bench();
    first.may_leave_processes();
    first.up(&[first.agent("a", "forever", "")]);
    let (agent, (keeper, _)) = (first.pid("a"), first.who());
    if folders_of(&place, keeper).is_empty() {
        println!("NOT TRIED: cgroup v2 is not writable here");
        return;
    }
    first.kill_both();
    proc::kill(agent, "KILL");
    proc::await_gone(agent);
    assert_eq!(folders_of(&place, keeper).len(), 1, "nobody was there to remove it");
    std::fs::remove_dir_all(first.home()).unwrap();
    let second = bench();
    second.up(&[second.agent("a", "forever", "")]);
    await_that("the dead keeper's folder is gone", || folders_of(&place, keeper).is_empty());
    let (living, _) = second.who();
    assert_eq!(folders_of(&place, living).len(), 1, "its own is there");
}
