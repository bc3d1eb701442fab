//! `WeftOS`: `weave.toml`, strategies of one agent, budget and backoff, on the virtual clock.

use std::time::Duration;

use defib_config::{Config, Severity};
use defib_core::limit::{Limit, Span};
use defib_core::policy::Mode;
use defib_core::{State, Strategy, What};

use crate::bench::{ms, secs};
use crate::stage::{agent, clean, config, loaded, play, said, supervise};

/// The document's own block.
const BLOCK: &str = include_str!("data/weave.toml");

fn one(lines: &str) -> Config {
    config("weave.toml", &format!("{BLOCK}[[agent]]\nname = \"a\"\ncommand = \"agent\"\n{lines}\n"))
}

#[test]
fn c004_01_the_config_block_is_read_as_written() {
    let told = said("weave.toml", BLOCK);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].2.contains("no agent"), "{told:?}");
    assert_eq!(
        *one("").agents[0].policy,
        defib_core::Preset::Weft.policy(),
        "it says the defaults"
    );
}

#[test]
fn c004_02_the_file_is_one_group_of_its_agents_in_order() {
    let text = format!(
        "{BLOCK}[[agent]]\nname = \"b\"\ncommand = \"x\"\n[[agent]]\nname = \"a\"\ncommand = \"y\"\n"
    );
    let config = clean("weave.toml", &text);
    assert_eq!(config.groups.len(), 1);
    let members: Vec<&str> =
        config.groups[0].members.iter().map(defib_core::Name::as_str).collect();
    assert_eq!(members, ["b", "a"]);
}

#[test]
fn c004_03_one_for_one_is_the_default() {
    let text =
        "[[agent]]\nname = \"a\"\ncommand = \"x\"\n[[agent]]\nname = \"b\"\ncommand = \"y\"\n";
    let mut bench = supervise(&clean("weave.toml", text));
    bench.exit("a", 1);
    bench.pass(ms(100));
    assert_eq!((bench.runs("a"), bench.runs("b")), (2, 1));
}

#[test]
fn c004_04_the_default_strategy_holds_for_agents_without_one() {
    let text = "[supervisor]\ndefault_strategy = \"OneForAll\"\n[[agent]]\nname = \"a\"\ncommand = \"x\"\n\
                [[agent]]\nname = \"b\"\ncommand = \"y\"\nstrategy = \"RestForOne\"\n";
    let config = clean("weave.toml", text);
    assert_eq!(agent(&config, "a").strategy, Some(Strategy::OneForAll));
    assert_eq!(agent(&config, "b").strategy, Some(Strategy::RestForOne));
}

#[test]
fn c004_05_all_five_strategies_are_understood() {
    for (word, mode, strategy) in [
        ("OneForOne", Mode::Always, Strategy::OneForOne),
        ("OneForAll", Mode::Always, Strategy::OneForAll),
        ("RestForOne", Mode::Always, Strategy::RestForOne),
        ("Permanent", Mode::Never, Strategy::OneForOne),
        ("Transient", Mode::OnFailure, Strategy::OneForOne),
    ] {
        let config = one(&format!("strategy = \"{word}\""));
        let agent = &config.agents[0];
        assert_eq!((agent.policy.mode, agent.strategy), (mode, Some(strategy)), "{word}");
    }
}

#[test]
fn c004_06_permanent_stays_dead() {
    for end in ["exit 0", "exit 1", "signal KILL"] {
        let played = play(&one("strategy = \"Permanent\""), end);
        assert_eq!(played.runs(), 1, "{end}");
    }
}

#[test]
fn c004_07_permanent_is_said_to_mean_the_opposite_elsewhere() {
    let told =
        said("weave.toml", "[[agent]]\nname = \"a\"\ncommand = \"x\"\nstrategy = \"Permanent\"\n");
    assert_eq!((told.len(), told[0].0, told[0].1), (1, Severity::Warning, 4), "{told:?}");
    let agents =
        "[[agent]]\nname = \"a\"\ncommand = \"x\"\n[[agent]]\nname = \"b\"\ncommand = \"y\"\n";
    let told =
        said("weave.toml", &format!("[supervisor]\ndefault_strategy = \"Permanent\"\n{agents}"));
    assert_eq!((told.len(), told[0].0, told[0].1), (1, Severity::Warning, 2), "once: {told:?}");
}

#[test]
fn c004_08_transient_leaves_a_clean_exit_alone() {
    let played = play(&one("strategy = \"Transient\""), "run 1h exit 0");
    assert_eq!((played.runs(), played.state()), (1, State::Done));
}

#[test]
fn c004_09_transient_restarts_a_crash() {
    let played = play(&one("strategy = \"Transient\""), "exit 1; signal SEGV; exit 0");
    assert_eq!((played.runs(), played.state()), (3, State::Done));
}

#[test]
fn c004_10_the_other_strategies_restart_whatever_the_exit_code() {
    for word in ["OneForOne", "OneForAll", "RestForOne"] {
        let played =
            play(&one(&format!("strategy = \"{word}\"")), "exit 0; exit 1; run 1h exit 0; hang");
        assert_eq!((played.runs(), played.state()), (4, State::Running), "{word}");
    }
}

#[test]
fn c004_11_the_delay_doubles_from_a_tenth_of_a_second() {
    let played = play(&one(""), "exit 1");
    assert_eq!(played.delays_ms(), [100, 200, 400, 800, 1600]);
}

#[test]
fn c004_12_the_delay_is_at_most_thirty_seconds() {
    let played = play(&one("max_restarts = 12\nwithin_secs = 100000"), "exit 1");
    assert_eq!(played.delays_ms()[7..], [12_800, 25_600, 30_000, 30_000, 30_000]);
}

#[test]
fn c004_13_five_restarts_in_a_minute_and_no_more() {
    let played = play(&one(""), "exit 1");
    assert_eq!((played.runs(), played.state()), (6, State::CrashedOut));
}

#[test]
fn c004_14_the_budget_of_the_code_example_holds_for_its_agent() {
    let config = one("max_restarts = 3\nwithin_secs = 30");
    let limit = Limit::restarts(3, Span::Tumbling(Duration::from_secs(30))).escalating();
    assert_eq!(config.agents[0].policy.limits, [limit]);
    assert_eq!(play(&config, "exit 1").runs(), 4);
}

#[test]
fn c004_15_the_window_resets_once_it_has_elapsed() {
    let mut bench = supervise(&one(""));
    assert_eq!(bench.crash_loop("a", 4).len(), 5);
    bench.pass(secs(60));
    assert_eq!(bench.crash_loop("a", 100).len(), 5, "five more");
}

#[test]
fn c004_16_the_window_begins_with_its_first_restart() {
    let mut bench = supervise(&one(""));
    bench.exit("a", 1);
    bench.pass(ms(100));
    bench.pass(secs(50));
    assert_eq!(bench.crash_loop("a", 3).len(), 4, "the rest of the budget, late in the window");
    bench.pass(secs(60) - ms(3100));
    bench.exit("a", 1);
    assert_eq!(bench.state("a"), State::Backoff, "a minute after its first restart it is over");
}

#[test]
fn c004_17_a_new_window_begins_with_the_first_delay() {
    let mut bench = supervise(&one(""));
    assert_eq!(bench.crash_loop("a", 2), [100, 200, 400]);
    bench.pass(secs(60));
    assert_eq!(bench.crash_loop("a", 1), [100, 200]);
}

#[test]
fn c004_18_an_exhausted_budget_is_escalated() {
    let played = play(&one(""), "exit 1");
    assert!(played.told().any(|what| matches!(what, What::LimitTripped { .. })));
    assert!(played.told().any(|what| matches!(what, What::Escalated { .. })));
}

#[test]
fn c004_19_no_strategy_of_that_name_is_an_error_with_a_suggestion() {
    let text = "[[agent]]\nname = \"a\"\ncommand = \"x\"\nstrategy = \"OneForAl\"\n";
    let told = said("weave.toml", text);
    assert_eq!((told.len(), told[0].0, told[0].1), (1, Severity::Error, 4), "{told:?}");
    assert!(loaded("weave.toml", text).render(false).contains("did you mean `OneForAll`?"));
}

#[test]
fn c004_20_what_is_unknown_is_a_warning_with_its_line() {
    let text = "[supervisor]\nmax_restart = 5\n[kernel]\nx = 1\n[[agent]]\nname = \"a\"\ncommand = \"x\"\ncolour = 1\n";
    let told: Vec<_> = said("weave.toml", text).into_iter().map(|(s, line, _)| (s, line)).collect();
    assert_eq!(told, [(Severity::Warning, 2), (Severity::Warning, 3), (Severity::Warning, 8)]);
    let told = said("weave.toml", "agent = [\n  { name = \"a\", command = \"x\" },\n  \"b\",\n]\n");
    assert_eq!((told.len(), told[0].0, told[0].1), (1, Severity::Error, 3), "{told:?}");
}
