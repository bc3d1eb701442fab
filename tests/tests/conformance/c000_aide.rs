//! aide: the `[daemon]` block, on the virtual clock.

use std::time::Duration;

use defib_core::backoff::Growth;
use defib_core::limit::{Limit, Span};
use defib_core::policy::{Mode, Trigger};
use defib_core::{Class, Continuity, Input, Scope, State, What};

use crate::stage::{clean, config, play, play_for, supervise, topology};

/// The document's own example of an agent that should never stop.
const UPTIME_MONITOR: &str = include_str!("data/Aidefile.uptime-monitor");
/// Its own example of a block.
const BLOCK: &str = include_str!("data/Aidefile.daemon");

fn aide(daemon: &str) -> defib_config::Config {
    clean("Aidefile", &format!("[persona]\nname = \"a\"\n[daemon]\n{daemon}\n"))
}

#[test]
fn c000_01_the_uptime_monitor_is_read_as_written() {
    let config = clean("Aidefile", UPTIME_MONITOR);
    let agent = &config.agents[0];
    assert_eq!(agent.name.as_str(), "uptime-monitor");
    assert_eq!(agent.cron.as_deref(), Some("*/5 * * * *"));
    assert_eq!((agent.policy.mode, agent.policy.trigger), (Mode::Always, Trigger::Cron));
    assert_eq!(agent.policy.limits, [Limit::restarts(100, Span::Consecutive)]);
    assert_eq!(agent.policy.backoff.growth, Growth::Exponential);
}

#[test]
fn c000_02_the_blocks_own_example_is_read_as_written() {
    let config = clean("Aidefile", BLOCK);
    assert_eq!(*config.agents[0].policy, defib_core::Preset::Aide.policy());
}

#[test]
fn c000_03_all_fields_of_the_block_are_optional() {
    assert_eq!(*aide("").agents[0].policy, defib_core::Preset::Aide.policy());
}

#[test]
fn c000_04_without_the_block_a_failure_is_not_restarted() {
    let played = play(&clean("Aidefile", "[persona]\nname = \"a\"\n"), "exit 1");
    assert_eq!((played.runs(), played.state()), (1, State::Stopped));
}

#[test]
fn c000_05_without_the_block_a_success_is_not_restarted() {
    let played = play(&clean("Aidefile", "[persona]\nname = \"a\"\n"), "exit 0");
    assert_eq!((played.runs(), played.state()), (1, State::Done));
}

#[test]
fn c000_06_always_restarts_after_success() {
    let played = play_for(&aide("restart = \"always\""), "exit 0", Duration::from_secs(10));
    assert!(played.runs() >= 10, "{}", played.runs());
    assert!(played.delays_s().iter().all(|delay| *delay == 1.0), "success keeps the first delay");
}

#[test]
fn c000_07_always_restarts_after_failure() {
    let played = play(&aide("restart = \"always\""), "exit 1");
    assert_eq!((played.runs(), played.state()), (11, State::CrashedOut));
}

#[test]
fn c000_08_on_failure_leaves_a_success_alone() {
    let played = play(&aide("restart = \"on-failure\""), "exit 1; exit 0");
    assert_eq!((played.runs(), played.state()), (2, State::Done));
}

#[test]
fn c000_09_on_failure_restarts_a_non_zero_exit() {
    for code in [1, 2, 42, 255] {
        let played = play(&aide(""), &format!("exit {code}; exit 0"));
        assert_eq!((played.runs(), played.state()), (2, State::Done), "exit {code}");
    }
}

#[test]
fn c000_10_a_panic_is_a_failure() {
    let played = play(&aide(""), "signal ABRT; exit 101; exit 0");
    assert_eq!((played.runs(), played.state()), (3, State::Done));
}

#[test]
fn c000_11_a_runner_that_cannot_be_run_is_a_failure() {
    let played = play(&aide(""), "spawn-error; exit 0");
    assert_eq!((played.runs(), played.state()), (2, State::Done));
}

#[test]
fn c000_12_an_exhausted_budget_is_a_failure() {
    let played = play(&aide(""), "class budget; exit 0");
    assert_eq!((played.runs(), played.state()), (2, State::Done));
}

#[test]
fn c000_13_never_restarts_nothing() {
    for script in ["exit 0", "exit 1", "signal KILL", "class budget"] {
        let played = play(&aide("restart = \"never\""), script);
        assert_eq!(played.runs(), 1, "{script}");
    }
}

#[test]
fn c000_14_on_failure_is_the_default_of_the_block() {
    assert_eq!(aide("max_restarts = 3").agents[0].policy.mode, Mode::OnFailure);
}

#[test]
fn c000_15_the_supervisor_gives_up_after_ten_consecutive_restarts() {
    let played = play(&aide(""), "exit 1");
    assert_eq!((played.runs(), played.state()), (11, State::CrashedOut));
}

#[test]
fn c000_16_max_restarts_is_obeyed() {
    for max in [1, 3, 100] {
        let played = play(&aide(&format!("max_restarts = {max}")), "exit 1");
        assert_eq!((played.runs(), played.state()), (max + 1, State::CrashedOut));
    }
}

#[test]
fn c000_17_a_successful_run_resets_the_counter() {
    // The restart after a success is the first of the new count.
    let nine = "exit 1; ".repeat(9);
    let script = format!("{nine}exit 0; {nine}exit 0; {nine}exit 0; exit 1");
    let played = play(&aide("restart = \"always\""), &script);
    assert_eq!((played.runs(), played.state()), (30 + 10, State::CrashedOut));
}

#[test]
fn c000_18_a_success_resets_the_backoff_too() {
    let played = play(&aide("restart = \"always\""), "exit 1; exit 1; exit 0; exit 1");
    assert_eq!(played.delays_s()[..5], [1.0, 2.0, 1.0, 1.0, 2.0]);
}

#[test]
fn c000_19_a_long_life_that_fails_is_no_success() {
    let played = play(&aide(""), "run 5h exit 1");
    assert_eq!((played.runs(), played.state()), (11, State::CrashedOut));
}

#[test]
fn c000_20_max_restarts_zero_allows_none() {
    let played = play(&aide("max_restarts = 0"), "exit 1");
    assert_eq!((played.runs(), played.state()), (1, State::CrashedOut));
}

#[test]
fn c000_21_exponential_sleeps_are_those_of_the_table() {
    let played = play(&aide("max_restarts = 11\nbackoff = \"exponential\""), "exit 1");
    let table = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0, 300.0];
    assert_eq!(played.delays_s(), table);
}

#[test]
fn c000_22_linear_sleeps_are_those_of_the_table() {
    let played = play(&aide("max_restarts = 5\nbackoff = \"linear\""), "exit 1");
    assert_eq!(played.delays_s(), [1.0, 2.0, 3.0, 4.0, 5.0]);
}

#[test]
fn c000_23_fixed_sleeps_are_those_of_the_table() {
    let played = play(&aide("max_restarts = 4\nbackoff = \"fixed\""), "exit 1");
    assert_eq!(played.delays_s(), [1.0; 4]);
}

#[test]
fn c000_24_no_sleep_is_longer_than_five_minutes() {
    for kind in ["exponential", "linear", "fixed"] {
        let played = play(&aide(&format!("max_restarts = 5000\nbackoff = \"{kind}\"")), "exit 1");
        let longest = played.delays_s().into_iter().fold(0.0, f64::max);
        assert!(longest <= 300.0, "{kind}: {longest}");
        assert_eq!(longest == 300.0, kind != "fixed", "{kind}: {longest}");
    }
}

#[test]
fn c000_25_cron_schedules_the_first_run() {
    let mut bench = supervise(&clean("Aidefile", UPTIME_MONITOR));
    assert_eq!(bench.state("uptime-monitor"), State::Idle);
    bench.tell(Input::Triggered(bench.id("uptime-monitor"))).unwrap();
    assert_eq!(bench.state("uptime-monitor"), State::Running);
}

#[test]
fn c000_26_after_the_first_run_the_policy_keeps_it_alive() {
    let mut bench = supervise(&clean("Aidefile", UPTIME_MONITOR));
    bench.tell(Input::Triggered(bench.id("uptime-monitor"))).unwrap();
    for _ in 0..3 {
        bench.exit("uptime-monitor", 0);
        assert_eq!(bench.state("uptime-monitor"), State::Backoff);
        bench.pass(Duration::from_secs(1));
        assert_eq!(bench.state("uptime-monitor"), State::Running);
    }
}

#[test]
fn c000_27_a_tick_is_ignored_while_it_runs_backs_off_or_has_given_up() {
    let text = "[persona]\nname = \"a\"\n[trigger]\non = \"cron:*/5 * * * *\"\n[daemon]\nmax_restarts = 1\n";
    let mut bench = supervise(&clean("Aidefile", text));
    let tick = Input::Triggered(bench.id("a"));
    bench.tell(tick.clone()).unwrap();
    bench.tell(tick.clone()).unwrap();
    assert_eq!(bench.runs("a"), 1, "it runs");
    bench.exit("a", 1);
    bench.tell(tick.clone()).unwrap();
    assert_eq!(bench.state("a"), State::Backoff);
    bench.pass(Duration::from_secs(1));
    bench.exit("a", 1);
    assert_eq!(bench.state("a"), State::CrashedOut);
    let _ = bench.tell(tick);
    assert_eq!((bench.state("a"), bench.runs("a")), (State::CrashedOut, 2));
}

#[test]
fn c000_28_a_cron_agent_that_is_done_waits_for_its_next_tick() {
    let text = "[persona]\nname = \"a\"\n[trigger]\non = \"cron:0 3 * * *\"\n[daemon]\n";
    let mut bench = supervise(&clean("Aidefile", text));
    bench.tell(Input::Triggered(bench.id("a"))).unwrap();
    bench.exit("a", 0);
    assert_eq!(bench.state("a"), State::Idle);
    bench.tell(Input::Triggered(bench.id("a"))).unwrap();
    assert_eq!(bench.runs("a"), 2);
}

#[test]
fn c000_29_the_counter_is_reset_by_down_and_up() {
    let mut bench = supervise(&aide("max_restarts = 2"));
    bench.crash_loop("a", 10);
    assert_eq!(bench.state("a"), State::CrashedOut);
    bench.tell(Input::DownAsked(Scope::All)).unwrap();
    bench.tell(Input::UpAsked(Scope::All)).unwrap();
    assert_eq!(bench.crash_loop("a", 10), [1000, 2000]);
}

#[test]
fn c000_44_an_up_of_what_is_up_and_a_new_daemon_leave_the_counter() {
    let config = aide("max_restarts = 3");
    let mut bench = supervise(&config);
    bench.crash_loop("a", 1);
    bench.tell(Input::UpAsked(Scope::All)).unwrap();
    let (agent, run) = (bench.id("a"), bench.run("a"));
    bench.succeed(topology(&config), Continuity::Unbroken);
    bench.tell(Input::Found { agent, run: Some(run) }).unwrap();
    assert_eq!(bench.crash_loop("a", 10), [4000], "two of three are made");
    assert_eq!(bench.state("a"), State::CrashedOut);
}

#[test]
fn c000_45_a_run_that_takes_longer_than_its_budgets_timeout_has_failed() {
    let config =
        clean("Aidefile", "[persona]\nname = \"a\"\n[daemon]\n[budget]\ntimeout = \"10m\"\n");
    let mut bench = supervise(&config);
    bench.pass(Duration::from_millis(599_999));
    assert_eq!((bench.state("a"), bench.runs("a")), (State::Running, 1));
    bench.pass(Duration::from_millis(1));
    assert!(
        bench.told("a").any(|what| matches!(what, What::RunDied { class: Class::Timeout, .. }))
    );
    bench.pass(Duration::from_secs(1));
    assert_eq!((bench.state("a"), bench.runs("a")), (State::Running, 2), "a failure is restarted");
}

#[test]
fn c000_30_the_counter_is_per_agent() {
    let other = config("Aidefile", "[persona]\nname = \"b\"\n[daemon]\nmax_restarts = 2\n");
    let mut both = aide("max_restarts = 2");
    both.agents.extend(other.agents);
    let mut bench = supervise(&both);
    bench.crash_loop("a", 10);
    assert_eq!(bench.crash_loop("b", 10).len(), 2);
}
