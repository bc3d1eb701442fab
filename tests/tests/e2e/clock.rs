//! Somebody sets the clock, or the machine sleeps: windows and delays stay right.

use std::time::{Duration, Instant};

use defib_e2e::{MovedClock, field, moment_ms, now_ms, proc};

use crate::bench;

const HOUR: i64 = 3600;
/// What is measured on the right clock is far below this, and what is not is far above.
const HALF_AN_HOUR: f64 = 1800.0;
const BASE: Duration = Duration::from_secs(2);
const SLOW: &str = "limits = []\nbackoff = { kind = \"fixed\", base = \"2s\", jitter = 0.0 }";
/// So long that nothing happens for as long as a test lasts.
const LATE: &str =
    "limits = []\nbackoff = { kind = \"fixed\", base = \"1h\", cap = \"1h\", jitter = 0.0 }";

/// How far a time of ours in JSON is ahead of the clock that nobody has set, in seconds.
fn ahead(stamp: &serde_json::Value) -> i64 {
    (moment_ms(stamp) - now_ms()) / 1000
}

#[test]
fn a_delay_is_as_long_as_it_was_however_the_clock_is_set_meanwhile() {
    for step in [HOUR, -HOUR] {
        let bench = bench();
        let clock = MovedClock::start(&bench);
        let events =
            bench.up(&[bench.agent("a", "forever", SLOW), bench.agent("late", "forever", LATE)]);
        proc::kill(bench.pid("late"), "KILL");
        events.of("late", "restart-scheduled");
        let pid = bench.pid("a");
        let died = Instant::now();
        proc::kill(pid, "KILL");
        events.of("a", "restart-scheduled");
        clock.set(step);
        // Both who has scheduled it and a successor that only hears of it keep to it.
        let is_due_by_the_clock_as_it_stands = || {
            let status = bench.status("late");
            assert_eq!(status["state"], "backoff", "{status}");
            let off = ahead(&status["next_at"]) - HOUR - step;
            assert!(off.abs() < 1000, "{off} s off after a step of {step} s: {status}");
        };
        is_due_by_the_clock_as_it_stands();
        if step < 0 {
            bench.kill_daemon();
            is_due_by_the_clock_as_it_stands();
        }
        events.of_run("a", 2, "run-ready");
        assert!(died.elapsed() >= BASE, "{:?} after a step of {step} s", died.elapsed());
        let status = bench.status("a");
        assert!(status["uptime_s"].as_f64().unwrap() < HALF_AN_HOUR, "{status}");
        let off = ahead(&status["started_at"]) - step;
        assert!(off.abs() < 1000, "the clock was moved: {status}");
    }
}

#[test]
fn a_window_holds_what_it_held_however_the_clock_is_set_meanwhile() {
    let bench = bench();
    let clock = MovedClock::start(&bench);
    let events = bench.up(&[
        bench.agent("long", "forever", "limits = [{ deaths = 3, within = \"30m\" }]"),
        bench.agent("short", "forever", "limits = [{ deaths = 2, within = \"1s\" }]"),
    ]);
    let die = |name: &str, run: u64| {
        proc::kill(bench.pid(name), "KILL");
        events.of_run(name, run, "run-died")
    };
    // Forward: what is in a long window does not fall out of it.
    for (run, hours) in [(1, 0), (2, 1), (3, 2)] {
        clock.set(hours * HOUR);
        let death = die("long", run);
        assert!(death["ran_s"].as_f64().unwrap() < HALF_AN_HOUR, "{death}");
    }
    let tripped = events.of("long", "limit-tripped");
    assert_eq!((field(&tripped, "deaths"), field(&tripped, "max")), (3, 3), "{tripped}");
    assert_eq!(bench.status("long")["flapping"], true);
    // Back: what has left a short window does not come into it again.
    for (run, hours) in [(1, 0), (2, -1), (3, -2)] {
        clock.set(hours * HOUR);
        let death = die("short", run);
        assert!(death["ran_s"].as_f64().unwrap() < HALF_AN_HOUR, "{death}");
        std::thread::sleep(Duration::from_millis(1100));
        events.of_run("short", run + 1, "run-ready");
    }
    assert_eq!(bench.status("short")["state"], "running");
    for run in bench.history("short").iter().take(3) {
        assert!(run["ran_s"].as_f64().unwrap() < HALF_AN_HOUR, "{run}");
    }
}

/// The timers of a process that are set: clock, whether to a moment, and how long to go.
fn timers(pid: u32) -> Vec<(u32, bool, f64)> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    let texts = entries.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
    let timer = |text: String| {
        let value = |key: &str| {
            text.lines().find_map(|line| Some(line.strip_prefix(key)?.trim().to_owned()))
        };
        let (clock, flags) = (value("clockid:")?, value("settime flags:")?);
        let left = value("it_value:")?;
        let (whole, nanos) = left.trim_matches(['(', ')']).split_once(", ")?;
        let left = whole.parse::<f64>().ok()? + nanos.parse::<f64>().ok()? / 1e9;
        let to_a_moment = u32::from_str_radix(&flags, 8).ok()? & 1 == 1;
        (left > 0.0).then_some((clock.parse().ok()?, to_a_moment, left))
    };
    texts.filter_map(timer).collect()
}

#[test]
fn a_delay_is_waited_for_on_the_clock_that_goes_on_while_the_machine_sleeps() {
    const REALTIME: u32 = 0;
    const BOOTTIME: u32 = 7;
    let bench = bench();
    let events = bench.up(&[bench.agent("a", "forever", LATE)]);
    proc::kill(bench.pid("a"), "KILL");
    events.of("a", "restart-scheduled");
    for has_succeeded in [false, true] {
        let daemon = if has_succeeded { bench.kill_daemon() } else { bench.who().1 };
        let due = |timers: &[(u32, bool, f64)]| {
            let mut hours = timers.iter().filter(|(clock, _, _)| *clock == BOOTTIME);
            hours.any(|(_, to_a_moment, left)| *to_a_moment && (3000.0..=3600.0).contains(left))
        };
        defib_e2e::await_that("a timer for the restart", || due(&timers(daemon)));
        // The one on the wall clock tells that it was set, and is due in thousands of years.
        let others = timers(daemon).into_iter().filter(|(clock, _, _)| *clock != BOOTTIME);
        for (clock, _, left) in others {
            assert!(clock == REALTIME && left > 1e9, "clock {clock}, {left} s to go");
        }
    }
}
