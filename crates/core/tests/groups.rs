//! Groups beyond the strategies: order, collateral, overlapping trouble.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::unchecked_time_subtraction,
    reason = "a test says what it expects, and ends where it is wrong"
)]

mod bench;

use bench::{Bench, agent, group, ms, name, plain, secs};
use defib_core::limit::{Limit, Span};
use defib_core::policy::Ready;
use defib_core::record::WaitReason;
use defib_core::{
    Class, GroupSpec, Input, Policy, Preset, Reason, State, Strategy, Topology, What,
};

fn slow() -> Policy {
    // A second of backoff, so that there is time to look.
    let mut policy = plain(Preset::Aide);
    policy.limits = vec![Limit::restarts(100, Span::Lifetime)];
    policy
}

fn trio(strategy: Strategy) -> Bench {
    let agents = ["a", "b", "c"].map(|who| agent(who, &slow())).to_vec();
    let spec = GroupSpec { budget: None, ..group("g", strategy, &["a", "b", "c"]) };
    Bench::fleet(agents, vec![spec])
}

fn states(bench: &Bench) -> [State; 3] {
    ["a", "b", "c"].map(|who| bench.state(who))
}

fn runs(bench: &Bench) -> [usize; 3] {
    ["a", "b", "c"].map(|who| bench.runs(who))
}

#[test]
fn members_start_in_order_each_when_the_one_before_is_ready() {
    let notify = Policy { ready: Ready::WhenTold, ..slow() };
    let agents = ["a", "b", "c"].map(|who| agent(who, &notify)).to_vec();
    let mut bench = Bench::fleet(agents, vec![group("g", Strategy::OneForOne, &["a", "b", "c"])]);
    for ready in ["a", "b", "c"] {
        assert_eq!(bench.state(ready), State::Starting);
        let (agent, run) = (bench.id(ready), bench.run(ready));
        bench.tell(Input::Readied { agent, run }).unwrap();
    }
    assert_eq!(states(&bench), [State::Running; 3]);
}

#[test]
fn a_member_that_fails_to_start_does_not_hold_up_a_one_for_one_group() {
    let notify = Policy { ready: Ready::WhenTold, ..slow() };
    let agents = vec![agent("a", &notify), agent("b", &slow()), agent("c", &slow())];
    let mut bench = Bench::fleet(agents, vec![group("g", Strategy::OneForOne, &["a", "b", "c"])]);
    assert_eq!(states(&bench), [State::Starting, State::Waiting, State::Waiting]);
    bench.exit("a", 1);
    assert_eq!(states(&bench), [State::Backoff, State::Running, State::Running]);
}

#[test]
fn a_group_restart_waits_for_the_slowest_stop_and_stays_open_to_requests() {
    let mut bench = trio(Strategy::OneForAll);
    bench.deaf.insert("c");
    bench.exit("a", 1);
    bench.pass(secs(5));
    assert_eq!(states(&bench), [State::Waiting, State::Stopping, State::Stopping]);
    let scope = bench.scope("b");
    bench.tell(Input::StopAsked { scope, kill: false }).unwrap();
    bench.pass(secs(5));
    assert_eq!(states(&bench), [State::Running, State::Stopped, State::Running]);
    assert_eq!(runs(&bench), [2, 1, 2], "the one that was stopped stays down");
}

#[test]
fn the_whole_group_waits_for_the_dead_members_delay() {
    let mut bench = trio(Strategy::OneForAll);
    bench.exit("c", 1);
    assert_eq!(states(&bench), [State::Waiting, State::Waiting, State::Backoff]);
    bench.pass(ms(999));
    assert_eq!(runs(&bench), [1, 1, 1]);
    bench.pass(ms(1));
    assert_eq!(runs(&bench), [2, 2, 2]);
}

#[test]
fn collateral_members_end_as_group_and_are_charged_nothing() {
    let mut bench = trio(Strategy::OneForAll);
    for _ in 0..20 {
        bench.exit("b", 1);
        bench.pass(secs(300));
    }
    for who in ["a", "c"] {
        let counted = bench.told(who).filter(|what| {
            matches!(what, What::RunDied { class, counted, .. } if *class != Class::Group || *counted)
        });
        assert_eq!(counted.count(), 0);
        assert_eq!(bench.supervisor.sight(bench.id(who)).restarts, 0);
    }
}

#[test]
fn a_member_that_dies_while_its_group_restarts_is_not_counted_again() {
    let mut bench = trio(Strategy::OneForAll);
    bench.deaf.insert("c");
    bench.exit("a", 1);
    bench.exit("b", 1);
    let deaths: Vec<(Class, bool)> = bench
        .told("b")
        .filter_map(|what| match what {
            What::RunDied { class, counted, .. } => Some((*class, *counted)),
            _ => None,
        })
        .collect();
    assert_eq!(deaths, [(Class::Group, false)]);
    bench.pass(secs(10));
    assert_eq!(runs(&bench), [2, 2, 2]);
}

#[test]
fn a_failed_start_during_a_group_restart_counts_again_and_is_retried() {
    let notify = Policy { ready: Ready::WhenTold, ..slow() };
    let agents = vec![agent("a", &slow()), agent("b", &notify), agent("c", &slow())];
    let spec = GroupSpec { budget: None, ..group("g", Strategy::OneForAll, &["a", "b", "c"]) };
    let mut bench = Bench::fleet(agents, vec![spec]);
    let (b, run) = (bench.id("b"), bench.run("b"));
    bench.tell(Input::Readied { agent: b, run }).unwrap();
    bench.exit("c", 1);
    bench.pass(secs(1));
    assert_eq!(states(&bench), [State::Running, State::Starting, State::Waiting]);
    bench.exit("b", 1);
    assert_eq!(states(&bench), [State::Waiting, State::Backoff, State::Waiting]);
    bench.pass(secs(1));
    assert_eq!(runs(&bench), [3, 3, 1]);
    let run = bench.run("b");
    bench.tell(Input::Readied { agent: b, run }).unwrap();
    assert_eq!(states(&bench), [State::Running; 3]);
    assert_eq!(runs(&bench), [3, 3, 2]);
}

#[test]
fn members_at_rest_stay_at_rest_when_their_group_restarts() {
    let mut bench = trio(Strategy::OneForAll);
    bench.exit("a", 0);
    bench.end_as("c", Class::Broke, None);
    bench.exit("b", 1);
    bench.pass(secs(1));
    assert_eq!(states(&bench), [State::Done, State::Running, State::Halted]);
}

#[test]
fn a_member_that_waits_for_the_world_outside_goes_on_waiting() {
    let mut policy = plain(Preset::Default);
    policy.limits.clear();
    let agents = ["a", "b"].map(|who| agent(who, &policy)).to_vec();
    let mut bench = Bench::fleet(agents, vec![group("g", Strategy::OneForAll, &["a", "b"])]);
    bench.end_as("a", Class::Quota, Some(secs(3600)));
    bench.exit("b", 1);
    bench.pass(secs(1));
    let reason = bench.supervisor.sight(bench.id("a")).reason;
    assert_eq!(reason, Some(Reason::Wait(WaitReason::Cause(Class::Quota))));
    assert_eq!(bench.state("b"), State::Running);
}

#[test]
fn an_operators_restart_of_a_group_goes_in_order_and_costs_nothing() {
    let mut bench = trio(Strategy::OneForOne);
    for _ in 0..10 {
        let from = bench.log.len();
        let scope = bench.scope("g");
        bench.tell(Input::RestartAsked { scope, fresh: false }).unwrap();
        let died = bench.order(from, |what| matches!(what, What::RunDied { .. }));
        let started = bench.order(from, |what| matches!(what, What::RunStarted { .. }));
        assert_eq!(died, ["c", "b", "a"]);
        assert_eq!(started, ["a", "b", "c"]);
    }
    assert_eq!(bench.supervisor.total_restarts(), 0);
}

#[test]
fn revive_of_a_group_brings_all_its_fallen_members_back_in_order() {
    let agents = ["a", "b", "c"].map(|who| agent(who, &slow())).to_vec();
    let budget = Some(Limit::restarts(0, Span::Rolling(secs(60))));
    let spec = GroupSpec { budget, ..group("g", Strategy::OneForOne, &["a", "b", "c"]) };
    let mut bench = Bench::fleet(agents, vec![spec]);
    bench.exit("b", 1);
    assert_eq!(states(&bench), [State::CrashedOut; 3]);
    let (scope, from) = (bench.scope("g"), bench.log.len());
    bench.tell(Input::ReviveAsked(scope)).unwrap();
    assert_eq!(bench.order(from, |what| matches!(what, What::RunStarted { .. })), ["a", "b", "c"]);
}

#[test]
fn a_budget_that_was_edited_starts_whole_and_one_that_was_not_goes_on() {
    let limit = |max, span| Some(Limit::restarts(max, span));
    let minute = Span::Tumbling(secs(60));
    let edits = [(limit(2, minute), 2), (limit(3, minute), 1), (limit(2, Span::Lifetime), 1)];
    for (edited, count) in edits {
        let agents = ["a", "b", "c"].map(|who| agent(who, &slow())).to_vec();
        let trio = group("g", Strategy::OneForOne, &["a", "b", "c"]);
        let spec = GroupSpec { budget: limit(2, minute), ..trio.clone() };
        let mut bench = Bench::fleet(agents.clone(), vec![spec]);
        bench.exit("a", 1);
        let groups = vec![GroupSpec { budget: edited, ..trio }];
        bench
            .tell(Input::Apply(Box::new(Topology { agents, groups, ..Topology::default() })))
            .unwrap();
        bench.exit("b", 1);
        let spent = bench.supervisor.spent();
        assert_eq!(spent[&name("g")].count(&edited.unwrap(), bench.clock().mono), count);
    }
}

#[test]
fn nobody_in_a_one_for_one_group_delays_anothers_restart() {
    let mut bench = trio(Strategy::OneForOne);
    bench.deaf.insert("a");
    let scope = bench.scope("a");
    bench.tell(Input::StopAsked { scope, kill: false }).unwrap();
    bench.exit("b", 1);
    bench.exit("c", 1);
    assert_eq!(bench.pass_to_next(), secs(1));
    assert_eq!(states(&bench), [State::Stopping, State::Running, State::Running]);
}

#[test]
fn nested_groups_start_and_stop_as_one_order() {
    let agents = ["e", "d", "c", "b", "a"].map(|who| agent(who, &slow())).to_vec();
    let groups = vec![
        group("outer", Strategy::OneForOne, &["a", "mid", "e"]),
        group("mid", Strategy::OneForOne, &["b", "inner"]),
        group("inner", Strategy::OneForOne, &["c", "d"]),
    ];
    let mut bench = Bench::fleet(agents, groups);
    let started = bench.order(0, |what| matches!(what, What::RunStarted { .. }));
    assert_eq!(started, ["a", "b", "c", "d", "e"]);
    let from = bench.log.len();
    bench.tell(Input::DownAsked(defib_core::Scope::All)).unwrap();
    let died = bench.order(from, |what| matches!(what, What::RunDied { .. }));
    assert_eq!(died, ["e", "d", "c", "b", "a"]);
}
