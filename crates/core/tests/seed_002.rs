//! The tests that the plan for the ecology supervisor requires, by the names it gives them.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::unchecked_time_subtraction,
    reason = "a test says what it expects, and ends where it is wrong"
)]

mod bench;

use bench::{Bench, ms, plain, secs};
use defib_core::{Class, Input, Preset, State, What};

#[test]
fn test_supervisor_detects_crashed_agent() {
    let mut bench = Bench::solo(&plain(Preset::Ecology));
    bench.exit("a", 1);
    let died =
        bench.told("a").any(|what| matches!(what, What::RunDied { class: Class::Error, .. }));
    assert!(died);
    assert_eq!(bench.state("a"), State::Backoff);
}

#[test]
fn test_supervisor_restarts_dumb_death() {
    for class in [Class::Error, Class::Timeout, Class::Lost] {
        let mut bench = Bench::solo(&plain(Preset::Ecology));
        bench.end_as("a", class, None);
        bench.pass(ms(4999));
        assert_eq!(bench.state("a"), State::Backoff);
        bench.pass(ms(1));
        assert_eq!(bench.state("a"), State::Running);
        assert_eq!(bench.runs("a"), 2);
    }
}

#[test]
fn test_supervisor_no_restart_smart_death() {
    let mut bench = Bench::solo(&plain(Preset::Ecology));
    let agent = bench.id("a");
    bench.tell(Input::BalanceSeen { agent, empty: true }).unwrap();
    assert_eq!(bench.state("a"), State::Running, "an empty purse ends no run");
    bench.exit("a", 1);
    assert_eq!(bench.state("a"), State::Halted);
    bench.pass(secs(86_400));
    assert_eq!(bench.runs("a"), 1);
    let class = bench.told("a").find_map(|what| match what {
        What::RunDied { class, counted, .. } => Some((*class, *counted)),
        _ => None,
    });
    assert_eq!(class, Some((Class::Broke, false)));
    bench.tell(Input::BalanceSeen { agent, empty: false }).unwrap();
    assert_eq!(bench.state("a"), State::Running, "funded, it starts again");
}

#[test]
fn test_supervisor_no_restart_voluntary_death() {
    let mut bench = Bench::solo(&plain(Preset::Ecology));
    let (agent, run) = (bench.id("a"), bench.run("a"));
    bench.tell(Input::ShutdownWished { agent, run }).unwrap();
    bench.exit("a", 1);
    assert_eq!(bench.state("a"), State::Done);
}

#[test]
fn test_supervisor_backoff_increases() {
    let mut bench = Bench::solo(&plain(Preset::Ecology));
    let delays = bench.crash_loop("a", 7);
    assert_eq!(delays, [5000, 10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000]);
}

#[test]
fn test_supervisor_max_restarts() {
    let mut bench = Bench::solo(&plain(Preset::Ecology));
    bench.crash_loop("a", 100);
    assert_eq!(bench.runs("a"), 11, "ten restarts, and the eleventh is refused");
    assert_eq!(bench.state("a"), State::CrashedOut);

    // Spread over more than an hour, ten are never in one.
    let mut bench = Bench::solo(&plain(Preset::Ecology));
    for _ in 0..50 {
        bench.pass(secs(400));
        bench.exit("a", 1);
    }
    bench.pass(secs(5));
    assert_eq!(bench.state("a"), State::Running);
}

#[test]
fn test_restart_preserves_state() {
    let mut bench = Bench::solo(&plain(Preset::Ecology));
    let agent = bench.id("a");
    bench.exit("a", 1);
    bench.pass(secs(5));
    assert_eq!(bench.id("a"), agent, "the same agent");
    assert_eq!(bench.run("a").0, 2, "in its next run");
    let resumed = bench
        .effects
        .iter()
        .any(|effect| matches!(effect, defib_core::Effect::Spawn { run, fresh: false, .. } if run.0 == 2));
    assert!(resumed, "which is not told to start from nothing");
}

#[test]
fn test_restart_resets_errors() {
    // A beat, a `done` and a minute of life are successful iterations; a mere spawn is none.
    let mut bench = Bench::solo(&plain(Preset::Ecology));
    assert_eq!(bench.crash_loop("a", 2), [5000, 10_000, 20_000]);
    let (agent, run) = (bench.id("a"), bench.run("a"));
    bench.tell(Input::BeatSeen { agent, run }).unwrap();
    assert_eq!(bench.crash_loop("a", 1), [5000, 10_000]);
    bench.pass(secs(60));
    assert_eq!(bench.crash_loop("a", 0), [5000]);
    bench.pass(ms(59_999));
    assert_eq!(bench.crash_loop("a", 0), [10_000]);
}
