//! What a run leaves behind is gone before the next begins.

use defib_e2e::{await_some, field, free_port, proc};

use crate::bench;

#[test]
fn a_double_forked_descendant_is_gone_before_the_respawn_and_its_port_is_free() {
    let bench = bench();
    let (port, holders) = (free_port(), bench.file("holders"));
    // A grandchild that does not get the port says so and does not count.
    let script = format!(
        "double-fork 'ignore TERM ignore HUP port {port} count {holders} forever' await-text {holders} print ready forever"
    );
    let events = bench.up(&[bench.agent("a", &script, "")]);
    let holder = |number: usize| {
        await_some("a holder of the port", || {
            let text = std::fs::read_to_string(&holders).ok()?;
            text.lines().nth(number)?.split(' ').nth(1)?.parse::<u32>().ok()
        })
    };
    let mut last = holder(0);
    assert!(std::net::TcpListener::bind(("127.0.0.1", port)).is_err(), "it holds the port");
    for run in 1..=3 {
        assert!(proc::lives(last));
        proc::kill(bench.pid("a"), "KILL");
        let ended = events.of_run("a", run, "leftovers-ended");
        assert!(field(&ended, "processes") >= 1, "{ended}");
        events.of_run("a", run + 1, "run-ready");
        assert!(!proc::lives(last), "gone before the respawn");
        last = holder(usize::try_from(run).unwrap());
    }
    assert!(!bench.log("a").contains("somebody has the port"));
    bench.defib(&["stop", "a"]).good();
    assert!(!proc::lives(last));
    std::net::TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
}

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
