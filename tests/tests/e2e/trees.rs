//! What a run leaves behind is gone before the next begins.

use defib_e2e::proc;

use crate::bench;

#[test]
fn an_agent_that_ends_well_leaves_nothing_running_either() {
    let bench = bench();
    let left = bench.file("left");
    let script = format!("double-fork 'ignore TERM count {left} forever' await-text {left} exit 0");
    let events = bench.up(&[bench.agent("a", &script, "")]);
    events.of("a", "rested");
    events.of("a", "leftovers-ended");
    let text = std::fs::read_to_string(left).unwrap();
    let pid: u32 = text.trim().split(' ').nth(1).unwrap().parse().unwrap();
    assert!(!proc::lives(pid));
    assert_eq!(bench.status("a")["state"], "done");
}

#[test]
fn nothing_stays_unwaited_for() {
    let bench = bench();
    let script = "double-fork 'sleep 1' double-fork 'sleep 1' child 'sleep 1' sleep 5 exit 1";
    let events = bench.up(&[bench.agent("a", script, "limits = []")]);
    events.of_run("a", 10, "run-ready");
    bench.defib(&["stop", "a"]).good();
    let (keeper, _) = bench.who();
    defib_e2e::await_that("no dead child of the keeper", || {
        proc::all().all(|pid| proc::parent(pid) != Some(keeper) || proc::lives(pid))
    });
}
