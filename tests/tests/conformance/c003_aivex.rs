//! AIVEX: the watchdog's policy, on the virtual clock.

use std::collections::BTreeMap;
use std::time::Duration;

use defib_config::config::Command;
use defib_config::{Config, Options, Watchdog};
use defib_core::limit::{Limit, Span};
use defib_core::record::Trip;
use defib_core::{Class, Input, Preset, Reason, Scope, State, What};

use crate::bench::{ms, secs};
use crate::stage::{agent, clean, play, play_for, supervise};

fn module(more: &str) -> Config {
    clean("defib.toml", &format!("[module.news]\nrunner = \"watchdog/module_runner.py\"\n{more}\n"))
}

/// A module under these variables.
fn under(variables: &[(&str, &str)], more: &str) -> Config {
    let known: BTreeMap<&str, &str> = variables.iter().copied().collect();
    let watchdog =
        Watchdog::from_variables(|name| known.get(name).map(|value| (*value).to_owned()));
    let options = Options { watchdog: watchdog.unwrap(), ..Options::default() };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("defib.toml");
    std::fs::write(
        &path,
        format!("[project]\nname = \"x\"\n[module.news]\nrunner = \"r.py\"\n{more}"),
    )
    .unwrap();
    defib_config::load_with(&path, &options).unwrap().outcome.config.unwrap()
}

#[test]
fn c003_01_a_module_is_its_runner_with_its_name() {
    let config = module("");
    let words = ["python3", "watchdog/module_runner.py", "news"].map(str::to_owned).to_vec();
    assert_eq!(config.agents[0].command, Command::Words(words));
    assert_eq!(*config.agents[0].policy, Preset::Aivex.policy());
}

#[test]
fn c003_02_exit_code_zero_is_a_clean_exit() {
    let played = play(&module(""), "exit 0");
    assert_eq!((played.runs(), played.state()), (1, State::Done));
}

#[test]
fn c003_03_exit_code_one_is_restarted_after_backoff() {
    let played = play(&module(""), "exit 1; exit 0");
    assert_eq!((played.runs(), played.delays_s()), (2, vec![10.0]));
}

#[test]
fn c003_04_exit_code_two_needs_a_manual_fix() {
    let played = play(&module(""), "exit 2");
    assert_eq!((played.runs(), played.state()), (1, State::Halted));
    assert!(played.told().any(|what| matches!(what, What::RunDied { class: Class::Config, .. })));
}

#[test]
fn c003_05_any_other_end_is_a_crash() {
    for end in ["exit 3", "signal SEGV", "spawn-error", "class network"] {
        let played = play(&module(""), &format!("{end}; exit 0"));
        assert_eq!(played.runs(), 2, "{end}");
    }
}

#[test]
fn c003_06_the_delays_are_those_of_the_list() {
    let free = "limits = [{ restarts = 7 }]";
    let played = play(&module(free), "exit 1");
    assert_eq!(played.delays_s(), [10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]);
}

#[test]
fn c003_07_five_crashes_in_five_minutes_are_a_loop() {
    let played = play(&module(""), "exit 1");
    assert_eq!((played.runs(), played.state()), (5, State::CrashedOut));
    assert!(played.told().any(|what| matches!(what, What::CrashedOut { by: Trip::Window })));
}

#[test]
fn c003_08_the_loop_is_seen_before_the_most_restarts_bind() {
    let played = play(&module(""), "exit 1");
    assert_eq!(played.ended_s(), 150.0, "10 + 20 + 40 + 80 seconds after the first crash");
}

#[test]
fn c003_09_crashes_that_are_further_apart_are_no_loop() {
    let played = play_for(&module(""), "run 70s exit 1", Duration::from_secs(700));
    assert_eq!(played.state(), State::Running);
    assert!(played.runs() >= 6, "{}", played.runs());
}

#[test]
fn c003_10_ten_restarts_are_the_most_of_a_session() {
    let played = play(&module(""), "run 400s exit 1");
    assert_eq!((played.runs(), played.state()), (11, State::CrashedOut));
    assert!(played.told().any(|what| matches!(what, What::CrashedOut { by: Trip::Count })));
}

#[test]
fn c003_11_five_minutes_of_life_reset_the_failures() {
    let played = play(&module(""), "exit 1; exit 1; run 5m exit 1; exit 0");
    assert_eq!(played.delays_s(), [10.0, 20.0, 10.0]);
    let played = play(&module(""), "exit 1; exit 1; run 299s exit 1; exit 0");
    assert_eq!(played.delays_s(), [10.0, 20.0, 40.0]);
}

#[test]
fn c003_12_suspended_restarts_wait_for_a_person() {
    let mut bench = supervise(&module(""));
    bench.crash_loop("news", 10);
    bench.pass(secs(86_400));
    assert_eq!(bench.state("news"), State::CrashedOut);
    bench.tell(Input::ReviveAsked(Scope::Agent(bench.id("news")))).unwrap();
    assert_eq!(bench.state("news"), State::Running);
}

#[test]
fn c003_13_a_stale_heartbeat_is_a_restart() {
    let mut bench = supervise(&module(""));
    bench.pass(ms(119_999));
    assert_eq!(bench.state("news"), State::Running);
    bench.pass(ms(1));
    assert!(bench.told("news").any(|what| matches!(what, What::HeartbeatMissed { .. })));
    assert!(
        bench.told("news").any(|what| matches!(what, What::RunDied { class: Class::Timeout, .. }))
    );
    assert_eq!(bench.state("news"), State::Backoff);
}

#[test]
fn c003_14_a_heartbeat_keeps_it_alive() {
    let mut bench = supervise(&module(""));
    for _ in 0..20 {
        bench.pass(secs(119));
        let (agent, run) = (bench.id("news"), bench.run("news"));
        bench.tell(Input::BeatSeen { agent, run }).unwrap();
    }
    assert_eq!((bench.state("news"), bench.runs("news")), (State::Running, 1));
}

#[test]
fn c003_15_modules_start_a_second_apart() {
    let text = "[module.news]\nrunner = \"r.py\"\n[module.chart]\nrunner = \"r.py\"\n[module.eye]\nrunner = \"r.py\"\n";
    let mut bench = supervise(&clean("defib.toml", text));
    let started = |bench: &crate::bench::Bench| ["news", "chart", "eye"].map(|who| bench.runs(who));
    assert_eq!(started(&bench), [1, 0, 0]);
    bench.pass(secs(1));
    assert_eq!(started(&bench), [1, 1, 0]);
    bench.pass(secs(1));
    assert_eq!(started(&bench), [1, 1, 1]);
}

#[test]
fn c003_16_a_crash_in_one_module_affects_no_other() {
    let text = "[module.news]\nrunner = \"r.py\"\n[module.chart]\nrunner = \"r.py\"\nheartbeat = { ttl = \"10h\" }\n";
    let mut bench = supervise(&clean("defib.toml", text));
    bench.pass(secs(1));
    bench.crash_loop("news", 10);
    assert_eq!((bench.state("news"), bench.state("chart")), (State::CrashedOut, State::Running));
    assert_eq!(bench.runs("chart"), 1);
}

#[test]
fn c003_17_without_variables_the_defaults_hold() {
    assert_eq!(*under(&[], "").agents[0].policy, Preset::Aivex.policy());
    let policy = Preset::Aivex.policy();
    assert!(policy.limits.contains(&Limit::restarts(10, Span::Lifetime)));
    assert_eq!(policy.backoff.base, Duration::from_secs(5));
    assert_eq!(policy.heartbeat.unwrap().ttl, Duration::from_secs(120));
}

#[test]
fn c003_18_the_most_restarts_can_be_overridden() {
    let config = under(&[("WATCHDOG_MAX_RESTARTS", "2")], "");
    let played = play(&config, "run 400s exit 1");
    assert_eq!((played.runs(), played.state()), (3, State::CrashedOut));
}

#[test]
fn c003_19_the_base_of_the_backoff_can_be_overridden() {
    let config = under(&[("WATCHDOG_BACKOFF", "0.5")], "");
    let played = play(&config, "exit 1; exit 1; exit 1; exit 0");
    assert_eq!(played.delays_s(), [1.0, 2.0, 4.0]);
    let config = under(&[("WATCHDOG_BACKOFF", "600")], "");
    let played = play(&config, "exit 1; exit 1; exit 0");
    assert_eq!(played.delays_s(), [300.0, 300.0], "no delay is longer than the cap");
}

#[test]
fn c003_20_the_heartbeats_ttl_can_be_overridden() {
    let config = under(&[("WATCHDOG_HEARTBEAT_TTL", "7")], "");
    let played = play(&config, "hang; exit 0");
    let died =
        played.told().any(|what| matches!(what, What::RunDied { class: Class::Timeout, .. }));
    assert_eq!((died, played.ended_s()), (true, 17.0), "7 seconds of silence and 10 of backoff");
}

#[test]
fn c003_21_what_the_file_says_goes_before_the_variables() {
    let config = under(&[("WATCHDOG_BACKOFF", "50")], "backoff = { base = \"1s\" }\n");
    assert_eq!(config.agents[0].policy.backoff.base, Duration::from_secs(1));
}

#[test]
fn c003_22_the_variables_override_no_other_rule_set() {
    let config = under(&[("WATCHDOG_BACKOFF", "50")], "[agent.other]\ncommand = \"x\"\n");
    assert_eq!(*agent(&config, "other").policy, Preset::Default.policy());
}

#[test]
fn c003_23_a_loop_and_other_ends_are_told_apart() {
    let mut bench = supervise(&module(""));
    bench.crash_loop("news", 10);
    let reason = bench.supervisor.sight(bench.id("news")).reason;
    assert_eq!(reason, Some(Reason::Trip(Trip::Window)), "LOOP_DETECTED");
    let mut bench = supervise(&module("limits = [{ restarts = 1 }]"));
    bench.crash_loop("news", 10);
    let reason = bench.supervisor.sight(bench.id("news")).reason;
    assert_eq!(reason, Some(Reason::Trip(Trip::Count)), "CRASHED");
}
