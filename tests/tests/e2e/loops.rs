//! Agents that end again and again: cleanly, or slowly enough to escape a limit over a window.

use crate::bench;

#[test]
fn clean_ends_under_always_loop_slower_and_slower_without_an_alarm() {
    let bench = bench();
    let settings = "restart = \"always\"\nbackoff = { kind = \"exponential\", base = \"20ms\" }";
    let agent = bench.agent("tick", "print tick exit 0", settings);
    let events = bench.up(&[agent]);
    let seventh = events.of_run("tick", 7, "run-died");
    assert_eq!((&seventh["class"], &seventh["counted"]), (&"done".into(), &false.into()));
    let status = bench.await_status("tick", |status| {
        status["reason"].as_str().is_some_and(|reason| reason.starts_with("looping, "))
    });
    assert_eq!(status["flapping"], false, "{status}");
    assert_eq!(status["consecutive_failures"], 0, "{status}");
    let table = bench.defib(&["status"]).good().out;
    assert!(table.contains("(looping, ") && table.contains(" runs/h)"), "{table}");
    let delays: Vec<u64> = (1..=6)
        .map(|run| events.of_run("tick", run, "restart-scheduled")["delay_ms"].as_u64().unwrap())
        .collect();
    assert!(delays.windows(2).all(|pair| pair[1] > pair[0] * 3 / 2), "{delays:?}");
}

#[test]
fn eighth_death_in_a_row_crashes_out_however_slow_the_loop_is() {
    let bench = bench();
    // No window holds five of these deaths.
    let limits = "limits = [{ deaths = 5, within = \"1ms\" }, { deaths = 8, consecutive = true }]";
    let settings = format!("{limits}\nbackoff = {{ kind = \"fixed\", base = \"5ms\" }}");
    let events = bench.up(&[bench.agent("slow", "exit 1", &settings)]);
    events.of("slow", "crashed-out");
    assert_eq!(bench.status("slow")["run"], 8);
}
