//! Plan 145: dumb, smart and voluntary deaths, on the virtual clock.

use std::time::Duration;

use defib_config::{Config, Severity};
use defib_core::limit::{Limit, Span};
use defib_core::{Class, CrashReason, Input, Preset, State, What};

use crate::bench::{Bench, ms, secs};
use crate::stage::{clean, play, said, supervise};

/// The document's own block.
const BLOCK: &str = include_str!("data/config.yaml");

fn with_agent(text: &str) -> Config {
    clean("config.yaml", &format!("{text}agents:\n  a: agent\n"))
}

fn policy(lines: &str) -> Config {
    with_agent(&format!("supervisor:\n  restart_policy:\n    {}\n", lines.replace('\n', "\n    ")))
}

fn block() -> Config {
    with_agent(BLOCK)
}

fn bench() -> Bench {
    supervise(&block())
}

#[test]
fn c002_01_the_config_block_is_read_as_written() {
    let told = said("config.yaml", BLOCK);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].2.contains("no agent"), "{told:?}");
    assert_eq!(*block().agents[0].policy, Preset::Ecology.policy(), "it says the defaults");
}

#[test]
fn c002_02_a_crashed_agent_is_detected() {
    let mut bench = bench();
    bench.exit("a", 1);
    assert!(bench.told("a").any(|what| matches!(what, What::RunDied { class: Class::Error, .. })));
    assert_eq!(bench.state("a"), State::Backoff);
}

#[test]
fn c002_03_a_runtime_error_is_restarted() {
    let played = play(&block(), "exit 1; exit 0");
    assert_eq!((played.runs(), played.state()), (2, State::Done));
}

#[test]
fn c002_04_a_timeout_is_restarted() {
    let config = clean("config.yaml", "agents:\n  a:\n    command: x\n    timeout_seconds: 30\n");
    let played = play(&config, "hang; exit 0");
    assert_eq!((played.runs(), played.state()), (2, State::Done));
    assert!(played.told().any(|what| matches!(what, What::RunDied { class: Class::Timeout, .. })));
}

#[test]
fn c002_05_zero_scrip_is_not_restarted() {
    let mut bench = bench();
    let agent = bench.id("a");
    bench.tell(Input::BalanceSeen { agent, empty: true }).unwrap();
    bench.exit("a", 1);
    bench.pass(secs(86_400));
    assert_eq!((bench.state("a"), bench.runs("a")), (State::Halted, 1));
}

#[test]
fn c002_06_funded_it_lives_again() {
    let mut bench = bench();
    let agent = bench.id("a");
    bench.tell(Input::BalanceSeen { agent, empty: true }).unwrap();
    bench.exit("a", 1);
    bench.tell(Input::BalanceSeen { agent, empty: false }).unwrap();
    assert_eq!(bench.state("a"), State::Running);
}

#[test]
fn c002_07_a_voluntary_shutdown_is_not_restarted() {
    let mut bench = bench();
    let (agent, run) = (bench.id("a"), bench.run("a"));
    bench.tell(Input::ShutdownWished { agent, run }).unwrap();
    bench.exit("a", 1);
    assert_eq!(bench.state("a"), State::Done);
}

#[test]
fn c002_08_backoff_doubles_from_five_seconds_to_five_minutes() {
    let played = play(&block(), "exit 1");
    let table = [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0, 300.0];
    assert_eq!(played.delays_s(), table);
}

#[test]
fn c002_09_ten_restarts_an_hour_and_no_more() {
    let played = play(&block(), "exit 1");
    assert_eq!((played.runs(), played.state()), (11, State::CrashedOut));
}

#[test]
fn c002_10_the_hour_slides() {
    let mut bench = bench();
    for _ in 0..50 {
        bench.pass(secs(400));
        bench.exit("a", 1);
    }
    bench.pass(secs(5));
    assert_eq!(bench.state("a"), State::Running, "never ten in one hour");
}

#[test]
fn c002_11_the_limit_is_permanent_once_it_trips() {
    let mut bench = bench();
    bench.crash_loop("a", 100);
    bench.pass(secs(7200));
    assert_eq!((bench.state("a"), bench.runs("a")), (State::CrashedOut, 11));
}

#[test]
fn c002_12_the_limit_is_per_agent() {
    let config = clean("config.yaml", &format!("{BLOCK}agents:\n  a: x\n  b: y\n"));
    let mut bench = supervise(&config);
    bench.crash_loop("a", 100);
    assert_eq!(bench.crash_loop("b", 100).len(), 10);
}

#[test]
fn c002_13_delays_have_jitter_of_a_tenth() {
    let config = block();
    let mut seen = Vec::new();
    for seed in 0..200 {
        let mut jitter = defib_core::rng::Jitter::seeded(seed);
        seen.push(config.agents[0].policy.backoff.delay(1, &mut jitter).as_secs_f64());
    }
    assert!(seen.iter().all(|delay| (4.5..=5.5).contains(delay)), "{seen:?}");
    let spread = seen.iter().fold(0.0, |far: f64, delay| far.max((delay - 5.0).abs()));
    assert!(spread > 0.3, "{spread}");
}

#[test]
fn c002_14_a_successful_iteration_resets_the_backoff() {
    let mut bench = bench();
    assert_eq!(bench.crash_loop("a", 2), [5000, 10_000, 20_000]);
    let (agent, run) = (bench.id("a"), bench.run("a"));
    bench.tell(Input::BeatSeen { agent, run }).unwrap();
    assert_eq!(bench.crash_loop("a", 1), [5000, 10_000]);
}

#[test]
fn c002_15_a_minute_of_life_is_a_success_too() {
    let mut bench = bench();
    bench.crash_loop("a", 2);
    bench.pass(secs(60));
    assert_eq!(bench.crash_loop("a", 0), [5000]);
}

#[test]
fn c002_16_a_mere_spawn_is_no_success() {
    let mut bench = bench();
    bench.crash_loop("a", 2);
    bench.pass(ms(59_999));
    assert_eq!(bench.crash_loop("a", 0), [40_000]);
}

#[test]
fn c002_17_a_restart_that_gives_no_live_run_is_no_success() {
    let played = play(&block(), "exit 1; spawn-error; spawn-error; exit 0");
    assert_eq!(played.delays_s(), [5.0, 10.0, 20.0]);
}

#[test]
fn c002_18_errors_can_be_left_unrestarted() {
    let config = policy("restart_on_error: false");
    let played = play(&config, "exit 1");
    assert_eq!((played.runs(), played.state()), (1, State::Halted));
    for class in CrashReason::Runtime.classes() {
        let played = play(&config, &format!("class {class}"));
        assert_eq!((played.runs(), played.state()), (1, State::Halted), "{class}");
        let played = play(&block(), &format!("class {class}; exit 0"));
        assert_eq!(played.runs(), 2, "{class} is restarted unless that is said");
    }
    let played = play(&config, "class timeout; exit 0");
    assert_eq!(played.runs(), 2, "timeouts are another matter");
}

#[test]
fn c002_19_timeouts_can_be_left_unrestarted() {
    let played = play(&policy("restart_on_timeout: false"), "class timeout");
    assert_eq!((played.runs(), played.state()), (1, State::Halted));
}

#[test]
fn c002_20_exhausted_resources_are_waited_for() {
    for class in ["oom", "disk", "quota"] {
        let mut bench = bench();
        bench.end_as("a", Class::from_word(class).unwrap(), None);
        assert_eq!(bench.state("a"), State::Waiting, "{class}");
        assert_eq!(bench.supervisor.sight(bench.id("a")).restarts, 0, "{class}");
    }
}

#[test]
fn c002_21_or_restarted_where_the_policy_says_so() {
    let config = policy("restart_on_resource_exhaustion: true");
    for class in ["oom", "disk", "quota"] {
        let played = play(&config, &format!("class {class}; exit 0"));
        assert_eq!((played.runs(), played.delays_s()), (2, vec![5.0]), "{class}");
    }
}

#[test]
fn c002_22_a_disabled_supervisor_restarts_nothing() {
    for text in
        ["supervisor:\n  enabled: false\n", "supervisor:\n  restart_policy:\n    enabled: false\n"]
    {
        let played = play(&with_agent(text), "exit 1");
        assert_eq!((played.runs(), played.state()), (1, State::Stopped), "{text}");
    }
}

#[test]
fn c002_23_the_dataclass_name_of_the_limit_is_understood() {
    let hour = Span::Rolling(Duration::from_secs(3600));
    for key in ["max_restarts", "max_restarts_per_hour"] {
        let config = policy(&format!("{key}: 3"));
        assert_eq!(config.agents[0].policy.limits, [Limit::restarts(3, hour)], "{key}");
    }
}

#[test]
fn c002_24_every_number_of_the_backoff_can_be_set() {
    let config =
        policy("initial_backoff_seconds: 0.5\nmax_backoff_seconds: 10\nbackoff_multiplier: 3");
    let played = play(&config, "exit 1");
    assert_eq!(played.delays_s()[..5], [0.5, 1.5, 4.5, 10.0, 10.0]);
}

#[test]
fn c002_25_the_whole_simulation_has_a_limit_of_its_own() {
    let text = "supervisor:\n  max_total_restarts: 3\nagents:\n  a: x\n  b: y\n";
    let mut bench = supervise(&clean("config.yaml", text));
    bench.crash_loop("a", 1);
    bench.crash_loop("b", 100);
    assert_eq!(bench.state("b"), State::CrashedOut);
    assert_eq!(bench.supervisor.total_restarts(), 3);
}

#[test]
fn c002_26_one_agents_backoff_delays_no_other() {
    let config = clean("config.yaml", &format!("{BLOCK}agents:\n  a: x\n  b: y\n"));
    let mut bench = supervise(&config);
    bench.crash_loop("a", 4);
    bench.exit("a", 1);
    bench.exit("b", 1);
    bench.pass(secs(5));
    assert_eq!((bench.state("a"), bench.state("b")), (State::Backoff, State::Running));
}

#[test]
fn c002_27_backoff_runs_from_the_death() {
    let mut bench = bench();
    bench.exit("a", 1);
    bench.pass(ms(4999));
    assert_eq!(bench.state("a"), State::Backoff);
    bench.pass(ms(1));
    assert_eq!(bench.state("a"), State::Running);
}

#[test]
fn c002_28_a_restart_is_the_same_agent_in_a_new_loop() {
    let mut bench = bench();
    let agent = bench.id("a");
    bench.exit("a", 1);
    bench.pass(secs(5));
    assert_eq!((bench.id("a"), bench.run("a").0), (agent, 2));
    let resumed = bench.effects.iter().any(|effect| {
        matches!(effect, defib_core::Effect::Spawn { run, fresh: false, .. } if run.0 == 2)
    });
    assert!(resumed, "it is not told to start from nothing");
}

#[test]
fn c002_29_a_crash_has_one_of_three_reasons() {
    let dumb =
        "error, interrupted, context, lost, network, overload, throttle, config, auth, billing";
    for (reason, word, classes) in [
        (CrashReason::Runtime, "runtime", dumb),
        (CrashReason::Timeout, "timeout", "timeout"),
        (CrashReason::Resource, "resource", "oom, quota, disk"),
    ] {
        let found: Vec<_> = reason.classes().map(Class::word).collect();
        assert_eq!(found.join(", "), classes);
        assert_eq!(serde_json::to_value(reason).unwrap(), word);
    }
    for class in ["done", "voluntary", "stopped", "group", "budget", "broke"] {
        assert_eq!(CrashReason::of(Class::from_word(class).unwrap()), None, "{class} is no crash");
    }
}

#[test]
fn c002_30_an_agent_that_restarts_often_stands_out() {
    let mut bench = bench();
    bench.crash_loop("a", 3);
    let now = bench.clock().mono;
    let view = bench.view.agent(&crate::bench::name("a")).unwrap();
    assert!(view.is_flapping(now));
    assert_eq!(view.sight.restarts, 4);
}

#[test]
fn c002_31_agents_are_a_mapping_a_list_or_commands_alone() {
    let bounded = clean(
        "config.yaml",
        "supervisor: {}\nagents:\n  a: { command: x, limits_os: { files: 64 } }\n",
    );
    assert_eq!(bounded.agents[0].limits_os.files, Some(64), "with what any agent may say");
    for text in [
        "agents:\n  a:\n    command: agent run\n    scrip: 5\n",
        "agents:\n  - name: a\n    command: [agent, run]\n    scrip: 5.0\n",
    ] {
        let config = clean("config.yaml", text);
        assert_eq!(config.agents[0].name.as_str(), "a", "{text}");
        assert_eq!(config.agents[0].budget.balance.get("scrip"), Some(&5.0), "{text}");
    }
}

#[test]
fn c002_32_what_is_unknown_is_a_warning_with_its_line() {
    let text =
        "supervisor:\n  restart_policy:\n    max_restart: 3\nworld:\n  seed: 1\nagents:\n  a: x\n";
    let told: Vec<_> =
        said("config.yaml", text).into_iter().map(|(s, line, _)| (s, line)).collect();
    assert_eq!(told, [(Severity::Warning, 3), (Severity::Warning, 4)]);
}

#[test]
fn c002_48_restarted_they_go_by_the_policys_own_backoff() {
    let config = policy(
        "restart_on_resource_exhaustion: true\ninitial_backoff_seconds: 0.5\nmax_backoff_seconds: 10\n\
         backoff_multiplier: 3\nmax_restarts: 4",
    );
    for class in ["oom", "disk", "quota"] {
        let played = play(&config, &format!("class {class}"));
        assert_eq!(played.delays_s(), [0.5, 1.5, 4.5, 10.0], "{class}");
        assert_eq!(played.state(), State::CrashedOut, "{class}");
    }
    // Which of them it was makes no difference: they are failures in a row.
    let played = play(&config, "class oom; exit 1; class quota; exit 0");
    assert_eq!(played.delays_s(), [0.5, 1.5, 4.5]);
}
