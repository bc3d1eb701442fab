//! The six rule sets, to the millisecond and to the off-by-one.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::unchecked_time_subtraction,
    reason = "a test says what it expects, and ends where it is wrong"
)]

mod bench;

use bench::{Bench, ms, plain, secs};
use defib_core::backoff::{Backoff, Growth};
use defib_core::limit::{Limit, Span};
use defib_core::policy::Mode;
use defib_core::record::Trip;
use defib_core::rng::Jitter;
use defib_core::run::Status;
use defib_core::{Class, Policy, Preset, State, What};

/// The delays of a policy's backoff for the first attempts.
fn delays(policy: &Policy, attempts: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut off = Jitter::OFF;
    let delay = |n| policy.backoff.delay(n, &mut off);
    attempts.into_iter().map(delay).map(|d| u64::try_from(d.as_millis()).unwrap()).collect()
}

fn aide(growth: Growth) -> Policy {
    let mut policy = plain(Preset::Aide);
    policy.backoff.growth = growth;
    policy
}

/// Restarts without an end, to see delays past any limit.
fn unlimited(mut policy: Policy) -> Policy {
    policy.limits.clear();
    policy
}

#[test]
fn aide_exponential_is_1_2_4_to_256_then_300_seconds() {
    let expected: Vec<u64> =
        [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300].iter().map(|s| s * 1000).collect();
    let policy = aide(Growth::Exponential);
    assert_eq!(delays(&policy, 1..=11), expected);
    assert_eq!(Bench::solo(&unlimited(policy)).crash_loop("a", 10), expected);
}

#[test]
fn aide_linear_reaches_300_seconds_at_the_300th_and_stays() {
    let policy = aide(Growth::Linear);
    let expected: Vec<u64> = (1..=300).map(|s| s * 1000).chain([300_000, 300_000]).collect();
    assert_eq!(delays(&policy, 1..=302), expected);
    assert_eq!(Bench::solo(&unlimited(policy)).crash_loop("a", 301), expected);
}

#[test]
fn aide_fixed_is_one_second() {
    assert_eq!(delays(&aide(Growth::Fixed), [1, 2, 3, 1000]), [1000; 4]);
}

#[test]
fn ecology_is_5_to_160_then_300_seconds() {
    let expected: Vec<u64> = [5, 10, 20, 40, 80, 160, 300, 300].iter().map(|s| s * 1000).collect();
    assert_eq!(delays(&plain(Preset::Ecology), 1..=8), expected);
    assert_eq!(Bench::solo(&unlimited(plain(Preset::Ecology))).crash_loop("a", 7), expected);
    assert!((plain(Preset::Ecology).backoff.jitter - 0.1).abs() < f64::EPSILON);
}

#[test]
fn aivex_is_10_to_160_then_300_seconds() {
    let expected: Vec<u64> = [10, 20, 40, 80, 160, 300, 300].iter().map(|s| s * 1000).collect();
    assert_eq!(delays(&plain(Preset::Aivex), 1..=7), expected);
    assert_eq!(Bench::solo(&unlimited(plain(Preset::Aivex))).crash_loop("a", 6), expected);
}

#[test]
fn weft_is_100_to_25600_then_30000_milliseconds() {
    let expected = [100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000];
    assert_eq!(delays(&plain(Preset::Weft), 1..=11), expected);
    assert_eq!(Bench::solo(&unlimited(plain(Preset::Weft))).crash_loop("a", 10), expected);
}

#[test]
fn default_is_100_milliseconds_doubling_to_30_seconds() {
    let expected = [100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000];
    assert_eq!(delays(&plain(Preset::Default), 1..=11), expected);
}

#[test]
fn celistra_has_no_delay() {
    assert_eq!(Bench::solo(&plain(Preset::Celistra)).crash_loop("a", 3), [0, 0, 0, 0]);
}

#[test]
fn no_rule_set_overflows_at_attempt_two_to_the_32() {
    for preset in Preset::ALL {
        let policy = preset.policy();
        let far = policy.backoff.delay(1 << 32, &mut Jitter::seeded(1));
        let expected = if preset == Preset::Celistra { secs(0) } else { policy.backoff.cap };
        assert_eq!(far, expected, "{preset}");
    }
}

#[test]
fn celistra_trips_at_the_fifth_death_after_four_respawns() {
    let mut bench = Bench::solo(&plain(Preset::Celistra));
    bench.crash_loop("a", 100);
    assert_eq!(bench.runs("a"), 5);
    assert_eq!(bench.delays_ms("a").len(), 4);
    assert_eq!(bench.state("a"), State::CrashedOut);
    let last: Vec<String> = bench.types(bench.log.len() - 3, "a");
    assert_eq!(last, ["run-died", "limit-tripped", "crashed-out"]);
}

#[test]
fn a_death_exactly_60_seconds_old_is_out() {
    for (last_gap, state) in [(ms(15_000), State::Running), (ms(14_999), State::CrashedOut)] {
        let mut bench = Bench::solo(&plain(Preset::Celistra));
        for gap in [ms(0), ms(15_000), ms(15_000), ms(15_000), last_gap] {
            bench.pass(gap);
            bench.exit("a", 1);
        }
        assert_eq!(bench.state("a"), state, "the first death is {last_gap:?} + 45 s old");
    }
}

#[test]
fn an_hourly_death_never_trips_five_in_a_minute_not_even_the_hundredth() {
    for preset in [Preset::Celistra, Preset::Default] {
        let mut bench = Bench::solo(&plain(preset));
        for _ in 0..100 {
            bench.pass(secs(3600));
            bench.exit("a", 1);
        }
        bench.pass(secs(60));
        assert_eq!(bench.state("a"), State::Running);
        assert_eq!(bench.runs("a"), 101);
    }
}

#[test]
fn one_death_in_24_hours_allows_no_respawn() {
    let mut policy = plain(Preset::Celistra);
    policy.limits = vec![Limit::deaths(1, secs(86_400))];
    let mut bench = Bench::solo(&policy);
    bench.exit("a", 1);
    assert_eq!(bench.state("a"), State::CrashedOut);
    assert_eq!(bench.runs("a"), 1);
}

#[test]
fn thirty_deaths_in_a_minute_allow_29_quick_respawns() {
    let mut policy = plain(Preset::Celistra);
    policy.limits = vec![Limit::deaths(30, secs(60))];
    let mut bench = Bench::solo(&policy);
    bench.crash_loop("a", 100);
    assert_eq!(bench.runs("a"), 30);
    assert_eq!(bench.state("a"), State::CrashedOut);
}

#[test]
fn aide_allows_ten_restarts_and_gives_up_at_the_eleventh_failure() {
    let mut bench = Bench::solo(&plain(Preset::Aide));
    assert_eq!(bench.crash_loop("a", 100).len(), 10);
    assert_eq!(bench.runs("a"), 11);
    assert_eq!(bench.state("a"), State::CrashedOut);
    let by = bench.told("a").find_map(|what| match what {
        What::CrashedOut { by } => Some(*by),
        _ => None,
    });
    assert_eq!(by, Some(Trip::Count));
}

#[test]
fn aide_gets_a_fresh_budget_and_backoff_after_a_success() {
    let mut policy = plain(Preset::Aide);
    policy.mode = Mode::Always;
    let mut bench = Bench::solo(&policy);
    assert_eq!(bench.crash_loop("a", 8).len(), 9);
    bench.exit("a", 0);
    bench.pass(secs(1));
    assert_eq!(bench.state("a"), State::Running, "a success restarts after 1 s");
    let delays = bench.crash_loop("a", 100);
    // The restart after the success is the first of the ten.
    assert_eq!(delays.len(), 9);
    assert_eq!(delays[..3], [1000, 2000, 4000]);
}

#[test]
fn aide_always_restarts_every_second_for_ever_while_it_succeeds() {
    let mut policy = plain(Preset::Aide);
    policy.mode = Mode::Always;
    let mut bench = Bench::solo(&policy);
    for _ in 0..1000 {
        bench.exit("a", 0);
        assert_eq!(bench.pass_to_next(), secs(1));
    }
    assert_eq!(bench.state("a"), State::Running);
}

#[test]
fn aide_counts_a_long_life_as_no_success() {
    let mut bench = Bench::solo(&plain(Preset::Aide));
    for _ in 0..10 {
        bench.pass(secs(86_400));
        bench.exit("a", 1);
        bench.pass(secs(300));
    }
    bench.exit("a", 1);
    assert_eq!(bench.state("a"), State::CrashedOut);
}

#[test]
fn aide_with_no_restarts_allowed_gives_up_at_the_first_failure() {
    let mut policy = plain(Preset::Aide);
    policy.limits = vec![Limit::restarts(0, Span::Consecutive)];
    let mut bench = Bench::solo(&policy);
    bench.exit("a", 1);
    assert_eq!(bench.state("a"), State::CrashedOut);
}

#[test]
fn weft_allows_five_restarts_and_escalates_at_the_sixth() {
    let mut bench = Bench::solo(&plain(Preset::Weft));
    assert_eq!(bench.crash_loop("a", 100), [100, 200, 400, 800, 1600]);
    assert_eq!(bench.runs("a"), 6);
    let last = bench.types(bench.log.len() - 4, "a");
    assert_eq!(last, ["run-died", "limit-tripped", "escalated", "crashed-out"]);
}

#[test]
fn weft_starts_its_window_and_its_delays_anew_once_60_seconds_have_passed() {
    let mut bench = Bench::solo(&plain(Preset::Weft));
    assert_eq!(bench.crash_loop("a", 3), [100, 200, 400, 800]);
    // The window began with the first restart, at 100 ms.
    bench.pass(secs(60) - (bench.now() - ms(100)));
    assert_eq!(bench.crash_loop("a", 100), [100, 200, 400, 800, 1600]);
}

#[test]
fn weft_just_inside_its_window_goes_on_counting() {
    let mut bench = Bench::solo(&plain(Preset::Weft));
    bench.crash_loop("a", 3);
    bench.pass(secs(60) - (bench.now() - ms(100)) - ms(1));
    assert_eq!(bench.crash_loop("a", 0), [1600]);
}

#[test]
fn weft_without_a_window_counts_until_a_done() {
    let mut policy = unlimited(plain(Preset::Weft));
    policy.limits = vec![Limit::restarts(1000, Span::Lifetime)];
    let mut bench = Bench::solo(&policy);
    bench.crash_loop("a", 2);
    bench.pass(secs(86_400));
    assert_eq!(bench.crash_loop("a", 0), [800], "no life is long enough");
    bench.exit("a", 0);
    bench.pass_to_next();
    assert_eq!(bench.crash_loop("a", 0), [100]);
}

#[test]
fn aivex_detects_the_loop_150_seconds_after_the_first_crash() {
    let mut bench = Bench::solo(&plain(Preset::Aivex));
    let mut first = None;
    while bench.state("a") == State::Running {
        bench.exit("a", 1);
        first.get_or_insert(bench.now());
        if bench.state("a") == State::Backoff {
            bench.pass_to_next();
        }
    }
    assert_eq!(bench.state("a"), State::CrashedOut);
    assert_eq!(bench.now() - first.unwrap(), secs(150));
    assert_eq!(bench.runs("a"), 5);
}

#[test]
fn aivex_stops_after_ten_restarts_in_a_session_however_slow() {
    let mut bench = Bench::solo(&Policy { heartbeat: None, ..plain(Preset::Aivex) });
    for _ in 0..10 {
        bench.pass(secs(3600));
        bench.exit("a", 1);
        bench.pass(secs(10));
        assert_eq!(bench.state("a"), State::Running, "3600 s of life reset the delay to 10 s");
    }
    bench.pass(secs(3600));
    bench.exit("a", 1);
    assert_eq!(bench.state("a"), State::CrashedOut);
}

#[test]
fn aivex_needs_300_seconds_of_life_and_time_in_backoff_does_not_count() {
    let mut bench = Bench::solo(&Policy { heartbeat: None, ..plain(Preset::Aivex) });
    bench.crash_loop("a", 1);
    bench.pass(ms(299_999));
    assert_eq!(bench.crash_loop("a", 0), [40_000]);
    bench.pass(secs(300));
    assert_eq!(bench.crash_loop("a", 0), [10_000]);
}

#[test]
fn aivex_rests_on_0_restarts_on_1_and_halts_on_2() {
    for (code, state) in [(0, State::Done), (1, State::Backoff), (2, State::Halted)] {
        let mut bench = Bench::solo(&plain(Preset::Aivex));
        bench.exit("a", code);
        assert_eq!(bench.state("a"), state);
    }
}

#[test]
fn aivex_misses_a_heartbeat_after_120_seconds() {
    let mut bench = Bench::solo(&plain(Preset::Aivex));
    bench.pass(ms(119_999));
    assert_eq!(bench.state("a"), State::Running);
    let from = bench.log.len();
    bench.pass(ms(1));
    let told = bench.types(from, "a");
    assert_eq!(told, ["heartbeat-missed", "stop-requested", "run-died", "restart-scheduled"]);
}

#[test]
fn ecology_allows_ten_restarts_an_hour_and_the_next_is_permanent() {
    let mut policy = plain(Preset::Ecology);
    policy.backoff = Backoff::NONE;
    let mut bench = Bench::solo(&policy);
    assert_eq!(bench.crash_loop("a", 100).len(), 10);
    assert_eq!(bench.state("a"), State::CrashedOut);
    bench.pass(secs(7200));
    assert_eq!(bench.state("a"), State::CrashedOut, "an hour later it is still down");
}

#[test]
fn a_failure_to_spawn_needs_a_fix_by_default_and_is_a_death_like_another_elsewhere() {
    for preset in Preset::ALL {
        for usable in [false, true] {
            let mut bench = Bench::solo(&preset.policy());
            bench.end("a", Status::NotSpawned { usable });
            let halts = preset == Preset::Default && !usable;
            assert_eq!(bench.state("a") == State::Halted, halts, "{preset} {usable}");
        }
    }
}

#[test]
fn outside_causes_are_failures_in_the_documents_and_their_own_thing_by_default() {
    use State::{Backoff, Halted, Running, Waiting};
    let rows = [
        (Class::Network, [Backoff, Backoff, Running, Backoff, Backoff, Backoff]),
        (Class::Overload, [Backoff, Backoff, Running, Backoff, Backoff, Backoff]),
        (Class::Throttle, [Backoff, Backoff, Running, Backoff, Backoff, Backoff]),
        (Class::Quota, [Waiting, Backoff, Running, Waiting, Backoff, Backoff]),
        (Class::Disk, [Waiting, Backoff, Running, Waiting, Backoff, Backoff]),
        (Class::Oom, [Backoff, Backoff, Running, Waiting, Backoff, Backoff]),
        (Class::Budget, [Halted, Backoff, Halted, Halted, Halted, Halted]),
        (Class::Broke, [Halted, Halted, Halted, Halted, Halted, Halted]),
        (Class::Config, [Halted, Backoff, Running, Backoff, Halted, Backoff]),
        (Class::Auth, [Halted, Backoff, Running, Backoff, Backoff, Backoff]),
        (Class::Billing, [Halted, Backoff, Running, Backoff, Backoff, Backoff]),
        (Class::Error, [Backoff, Backoff, Running, Backoff, Backoff, Backoff]),
        (Class::Timeout, [Backoff, Backoff, Running, Backoff, Backoff, Backoff]),
        (Class::Context, [Backoff, Backoff, Running, Backoff, Backoff, Backoff]),
        (Class::Lost, [Backoff, Backoff, Running, Backoff, Backoff, Backoff]),
        (Class::Interrupted, [Running; 6]),
    ];
    for (class, states) in rows {
        for (preset, expected) in Preset::ALL.into_iter().zip(states) {
            let mut bench = Bench::solo(&preset.policy());
            bench.end_as("a", class, None);
            assert_eq!(bench.state("a"), expected, "{class} under {preset}");
        }
    }
}
