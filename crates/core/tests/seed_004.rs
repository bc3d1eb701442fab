//! What the self-healing supervisor's document says is covered by its tests: every strategy, budget
//! exhaustion, backoff, window reset and escalation.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::unchecked_time_subtraction,
    reason = "a test says what it expects, and ends where it is wrong"
)]

mod bench;

use bench::{Bench, agent, group, ms, name, plain, secs};
use defib_core::limit::{Limit, Span};
use defib_core::policy::Mode;
use defib_core::record::Trip;
use defib_core::{GroupSpec, Policy, Preset, Reason, State, Strategy, What};

fn weft() -> Policy {
    plain(Preset::Weft)
}

/// Four agents in one group, the failures of which are their own.
fn pipeline(strategy: Strategy) -> Bench {
    let agents = ["a", "b", "c", "d"].map(|who| agent(who, &weft())).to_vec();
    Bench::fleet(agents, vec![group("g", strategy, &["a", "b", "c", "d"])])
}

fn runs(bench: &Bench) -> [usize; 4] {
    ["a", "b", "c", "d"].map(|who| bench.runs(who))
}

fn budget(max: u32, seconds: u64) -> Limit {
    Limit::restarts(max, Span::Rolling(secs(seconds)))
}

#[test]
fn one_for_one_restarts_only_the_failed_child() {
    let mut bench = pipeline(Strategy::OneForOne);
    bench.exit("b", 1);
    bench.pass(ms(100));
    assert_eq!(runs(&bench), [1, 2, 1, 1]);
}

#[test]
fn one_for_all_restarts_all_children_in_order_after_stopping_them_in_reverse() {
    let mut bench = pipeline(Strategy::OneForAll);
    let from = bench.log.len();
    bench.exit("b", 1);
    let died = bench.order(from, |what| matches!(what, What::RunDied { .. }));
    assert_eq!(died, ["b", "d", "c", "a"]);
    bench.pass(ms(100));
    assert_eq!(runs(&bench), [2, 2, 2, 2]);
    let started = bench.order(from, |what| matches!(what, What::RunStarted { .. }));
    assert_eq!(started, ["a", "b", "c", "d"]);
}

#[test]
fn rest_for_one_restarts_the_failed_child_and_those_after_it() {
    let mut bench = pipeline(Strategy::RestForOne);
    let from = bench.log.len();
    bench.exit("b", 1);
    bench.pass(ms(100));
    assert_eq!(runs(&bench), [1, 2, 2, 2]);
    assert_eq!(bench.order(from, |what| matches!(what, What::RunStarted { .. })), ["b", "c", "d"]);
}

#[test]
fn permanent_stays_dead_whatever_it_died_of() {
    for code in [0, 1] {
        let mut bench = Bench::solo(&Policy { mode: Mode::Never, ..weft() });
        bench.exit("a", code);
        bench.pass(secs(3600));
        assert_eq!(bench.runs("a"), 1);
    }
}

#[test]
fn transient_restarts_only_after_a_non_zero_exit() {
    for (code, runs) in [(0, 1), (1, 2)] {
        let mut bench = Bench::solo(&Policy { mode: Mode::OnFailure, ..weft() });
        bench.exit("a", code);
        bench.pass(ms(100));
        assert_eq!(bench.runs("a"), runs);
    }
}

#[test]
fn the_other_three_restart_after_exit_zero_too() {
    let mut bench = Bench::solo(&weft());
    bench.exit("a", 0);
    bench.pass(ms(100));
    assert_eq!(bench.runs("a"), 2);
}

#[test]
fn a_child_may_bring_its_own_strategy() {
    let mut agents = ["a", "b", "c", "d"].map(|who| agent(who, &weft())).to_vec();
    agents[1].strategy = Some(Strategy::RestForOne);
    let group = group("g", Strategy::OneForOne, &["a", "b", "c", "d"]);
    let mut bench = Bench::fleet(agents, vec![group]);
    bench.exit("a", 1);
    bench.pass(ms(100));
    assert_eq!(runs(&bench), [2, 1, 1, 1]);
    bench.exit("b", 1);
    bench.pass(ms(100));
    assert_eq!(runs(&bench), [2, 2, 2, 2]);
}

#[test]
fn the_default_budget_is_five_restarts_in_sixty_seconds() {
    assert_eq!(weft().limits[0].max, 5);
    assert_eq!(weft().limits[0].span, Span::Tumbling(secs(60)));
}

#[test]
fn an_exhausted_budget_escalates_and_the_supervisor_stops_itself() {
    let mut bench = pipeline(Strategy::OneForOne);
    let from = bench.log.len();
    bench.crash_loop("b", 100);
    let escalated = bench.order(from, |what| matches!(what, What::Escalated { .. }));
    assert_eq!(escalated, ["b"]);
    for who in ["a", "b", "c", "d"] {
        assert_eq!(bench.state(who), State::CrashedOut, "{who}");
    }
    let died = bench.order(bench.log.len() - 9, |what| matches!(what, What::RunDied { .. }));
    assert_eq!(died, ["d", "c", "a"], "in reverse order");
}

#[test]
fn the_backoff_doubles_from_100_milliseconds() {
    let mut bench = Bench::solo(&weft());
    assert_eq!(bench.crash_loop("a", 100), [100, 200, 400, 800, 1600]);
}

#[test]
fn the_backoff_is_capped_at_30_seconds() {
    let mut bench = Bench::solo(&Policy { limits: Vec::new(), ..weft() });
    assert_eq!(bench.crash_loop("a", 19).last(), Some(&30_000));
}

#[test]
fn the_window_resets_itself_once_it_has_elapsed() {
    let mut bench = Bench::solo(&weft());
    for _ in 0..20 {
        bench.crash_loop("a", 3);
        bench.pass(secs(60));
    }
    assert_eq!(bench.state("a"), State::Running);
}

#[test]
fn a_failed_group_is_charged_to_its_parent_which_applies_its_own_strategy() {
    let agents = ["a", "b", "c", "d"].map(|who| agent(who, &weft())).to_vec();
    let inner = GroupSpec {
        budget: Some(budget(1, 60)),
        ..group("inner", Strategy::OneForOne, &["b", "c"])
    };
    let outer = group("outer", Strategy::RestForOne, &["a", "inner", "d"]);
    let mut bench = Bench::fleet(agents, vec![inner, outer]);
    bench.exit("b", 1);
    bench.pass(ms(100));
    assert_eq!(runs(&bench), [1, 2, 1, 1], "the first is the inner group's own");
    bench.exit("c", 1);
    bench.pass(ms(100));
    assert_eq!(runs(&bench), [1, 3, 2, 2], "the second takes the inner group and what follows it");
    bench.exit("c", 1);
    bench.pass(ms(200));
    assert_eq!(runs(&bench), [1, 3, 3, 2], "a parent's restart has emptied the inner budget");
}

#[test]
fn escalation_goes_through_any_depth_and_stops_at_the_root() {
    let policy = Policy { limits: vec![Limit::restarts(0, Span::Lifetime).escalating()], ..weft() };
    let mut groups = vec![GroupSpec {
        budget: Some(budget(0, 60)),
        ..group("g0", Strategy::OneForOne, &["a", "b"])
    }];
    for depth in 1..8 {
        let child = format!("g{}", depth - 1);
        let spec = group(&format!("g{depth}"), Strategy::OneForAll, &[&child]);
        groups.push(GroupSpec { budget: Some(budget(0, 60)), ..spec });
    }
    let agents = vec![agent("a", &policy), agent("b", &weft()), agent("outside", &weft())];
    let mut bench = Bench::fleet(agents, groups);
    bench.exit("a", 1);
    let passed_up: Vec<Option<String>> = bench
        .told("a")
        .filter_map(|what| match what {
            What::Escalated { to, .. } => Some(to.as_ref().map(ToString::to_string)),
            _ => None,
        })
        .collect();
    assert_eq!(passed_up.len(), 8);
    assert_eq!(passed_up.last(), Some(&None));
    assert_eq!(bench.state("a"), State::CrashedOut);
    assert_eq!(bench.state("b"), State::CrashedOut);
    assert_eq!(bench.state("outside"), State::Running, "everything else runs on");
}

#[test]
fn a_parent_that_still_has_budget_brings_the_failed_child_back() {
    let policy = Policy { limits: vec![Limit::restarts(1, Span::Lifetime).escalating()], ..weft() };
    let agents = vec![agent("a", &policy), agent("b", &weft())];
    let inner = group("inner", Strategy::OneForOne, &["a"]);
    let outer = group("outer", Strategy::OneForAll, &["inner", "b"]);
    let mut bench = Bench::fleet(agents, vec![inner, outer]);
    bench.crash_loop("a", 0);
    bench.exit("a", 1);
    assert_eq!(bench.state("a"), State::Backoff, "the parent restarts it");
    bench.pass(secs(1));
    assert_eq!((bench.runs("a"), bench.runs("b")), (3, 2));
    bench.crash_loop("a", 0);
    assert_eq!(bench.runs("a"), 4, "with its own window empty");
}

#[test]
fn a_group_restart_costs_the_budget_one_and_its_siblings_nothing() {
    let agents = ["a", "b", "c", "d"].map(|who| agent(who, &weft())).to_vec();
    let spec = GroupSpec {
        budget: Some(budget(3, 60)),
        ..group("g", Strategy::OneForAll, &["a", "b", "c", "d"])
    };
    let mut bench = Bench::fleet(agents, vec![spec]);
    for restarts in 1..=3u32 {
        bench.exit("b", 1);
        bench.pass(secs(1));
        assert_eq!(runs(&bench), [restarts as usize + 1; 4]);
        for who in ["a", "c", "d"] {
            let restarts = bench.supervisor.sight(bench.id(who)).restarts;
            assert_eq!(restarts, 0, "{who} was not charged");
        }
    }
    bench.exit("b", 1);
    assert_eq!(bench.state("b"), State::CrashedOut);
    let reason = bench.supervisor.sight(bench.id("b")).reason;
    assert_eq!(reason, Some(Reason::Trip(Trip::Group)));
}

#[test]
fn an_agent_without_a_group_that_escalates_is_crashed_out_and_says_so() {
    let mut bench = Bench::solo(&weft());
    bench.crash_loop("a", 100);
    assert!(bench.told("a").any(|what| *what == What::Escalated { group: None, to: None }));
    assert_eq!(bench.view.agent(&name("a")).unwrap().sight.state, State::CrashedOut);
}

#[test]
fn a_restart_empties_no_budget_above_the_group_that_makes_it() {
    let once = Limit::restarts(1, Span::Lifetime);
    let policy = Policy { limits: Vec::new(), ..weft() };
    let budgets = [("top", "parent", once), ("parent", "child", once)];
    let mut groups: Vec<GroupSpec> = budgets
        .map(|(who, member, limit)| GroupSpec {
            budget: Some(limit),
            ..group(who, Strategy::OneForOne, &[member])
        })
        .to_vec();
    groups.push(GroupSpec {
        budget: Some(budget(0, 60)),
        ..group("child", Strategy::OneForOne, &["a"])
    });
    let mut bench = Bench::fleet(vec![agent("a", &policy)], groups);
    let mut restarts = 0;
    for _ in 0..20 {
        bench.exit("a", 1);
        if bench.state("a") == State::CrashedOut {
            break;
        }
        bench.pass(secs(60));
        restarts += 1;
    }
    assert_eq!(restarts, 3, "the parent's, the top's, and the parent's once more");
}
