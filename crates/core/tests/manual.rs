//! What people ask for, and that it never counts.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::unchecked_time_subtraction,
    reason = "a test says what it expects, and ends where it is wrong"
)]

mod bench;

use bench::{Bench, agent, group, ms, name, plain, secs};
use defib_core::policy::{Mode, Ready, Trigger};
use defib_core::run::Status;
use defib_core::{
    Ask, Class, Effect, Goal, Input, Policy, Preset, Refusal, Remedy, Scope, State, Strategy,
    Topology, What,
};

fn default() -> Policy {
    plain(Preset::Default)
}

fn stop(bench: &mut Bench, who: &str) {
    let scope = bench.scope(who);
    bench.tell(Input::StopAsked { scope, kill: false }).unwrap();
}

fn restart(bench: &mut Bench, who: &str) -> Result<(), Refusal> {
    let scope = bench.scope(who);
    bench.tell(Input::RestartAsked { scope, fresh: false })
}

fn start(bench: &mut Bench, who: &str) -> Result<(), Refusal> {
    let scope = bench.scope(who);
    bench.tell(Input::StartAsked(scope))
}

#[test]
fn a_stop_is_stored_before_the_signal_goes_out() {
    let mut bench = Bench::solo(&default());
    let from = bench.effects.len();
    stop(&mut bench, "a");
    assert!(matches!(
        bench.effects[from..],
        [Effect::StoreGoal { goal: Goal::Stopped, .. }, Effect::Signal { ask: Ask::Stop, .. },]
    ));
    bench.pass(secs(86_400));
    assert_eq!(bench.state("a"), State::Stopped);
    assert_eq!(bench.runs("a"), 1, "no respawn");
}

#[test]
fn stop_restart_and_start_never_count() {
    let mut bench = Bench::solo(&default());
    for _ in 0..20 {
        restart(&mut bench, "a").unwrap();
        stop(&mut bench, "a");
        start(&mut bench, "a").unwrap();
    }
    assert_eq!(bench.state("a"), State::Running);
    assert_eq!(bench.supervisor.sight(bench.id("a")).restarts, 0);
    assert_eq!(bench.crash_loop("a", 100).len(), 4, "the crash budget is whole");
}

#[test]
fn the_ladder_goes_from_the_stop_signal_to_the_kill_to_the_inquiry() {
    let mut bench = Bench::solo(&default());
    bench.deaf.insert("a");
    stop(&mut bench, "a");
    bench.pass(ms(9999));
    assert_eq!(bench.state("a"), State::Stopping);
    let from = bench.effects.len();
    bench.pass(ms(1));
    assert!(matches!(bench.effects[from..], [Effect::Signal { ask: Ask::Kill, .. }]));
    assert_eq!(bench.state("a"), State::Stopped);
}

#[test]
fn a_kill_that_nobody_reports_is_inquired_about() {
    let bench = Bench::solo(&default());
    let (agent, run) = (bench.id("a"), bench.run("a"));
    let mut silent = bench.supervisor.clone();
    let mut out = defib_core::Outbox::default();
    let stop = Input::StopAsked { scope: Scope::Agent(agent), kill: true };
    silent.handle(bench.clock(), stop, &mut out).unwrap();
    out.clear();
    let due = silent.next_deadline().unwrap();
    let later = defib_core::Now { mono: due, ..bench.clock() };
    silent.handle(later, Input::Tick, &mut out).unwrap();
    assert_eq!(out.effects, [Effect::Inquire { agent, run }]);
    assert!(silent.next_deadline().unwrap() > due, "and again, if it must");
}

#[test]
fn a_second_stop_kills_and_stop_kill_skips_the_ladder() {
    let mut bench = Bench::solo(&default());
    bench.deaf.insert("a");
    stop(&mut bench, "a");
    assert_eq!(bench.state("a"), State::Stopping);
    stop(&mut bench, "a");
    assert_eq!(bench.state("a"), State::Stopped);

    let mut bench = Bench::solo(&default());
    let from = bench.effects.len();
    let scope = bench.scope("a");
    bench.tell(Input::StopAsked { scope, kill: true }).unwrap();
    let asked: Vec<_> = bench.effects[from..]
        .iter()
        .filter_map(|effect| match effect {
            Effect::Signal { ask, .. } => Some(*ask),
            _ => None,
        })
        .collect();
    assert_eq!(asked, [Ask::Kill]);
}

#[test]
fn a_stop_cancels_a_restart_and_a_wait() {
    for class in [Class::Error, Class::Quota] {
        let mut bench = Bench::solo(&default());
        bench.end_as("a", class, Some(secs(60)));
        stop(&mut bench, "a");
        assert_eq!(bench.state("a"), State::Stopped);
        bench.pass(secs(3600));
        assert_eq!(bench.runs("a"), 1);
    }
}

#[test]
fn a_start_during_a_stop_starts_again_when_the_run_has_ended() {
    let mut bench = Bench::solo(&default());
    bench.deaf.insert("a");
    stop(&mut bench, "a");
    start(&mut bench, "a").unwrap();
    assert_eq!((bench.state("a"), bench.runs("a")), (State::Stopping, 1));
    bench.pass(secs(10));
    assert_eq!((bench.state("a"), bench.runs("a")), (State::Running, 2));
}

#[test]
fn start_goes_before_a_backoff_and_a_wait() {
    for class in [Class::Error, Class::Quota] {
        let mut bench = Bench::solo(&default());
        bench.end_as("a", class, Some(secs(60)));
        start(&mut bench, "a").unwrap();
        assert_eq!(bench.state("a"), State::Running);
    }
}

#[test]
fn start_and_restart_of_a_fallen_agent_are_refused_and_name_revive() {
    for class in [Class::Error, Class::Auth] {
        let mut bench = Bench::solo(&default());
        while !matches!(bench.state("a"), State::CrashedOut | State::Halted) {
            bench.end_as("a", class, None);
            bench.pass(secs(2));
        }
        for answer in [start(&mut bench, "a"), restart(&mut bench, "a")] {
            let refusal = answer.unwrap_err();
            assert!(refusal.to_string().contains("defib revive a"), "{refusal}");
        }
        assert!(start(&mut Bench::solo(&default()), "a").is_ok(), "a running one is fine");
    }
}

#[test]
fn revive_empties_the_windows_and_is_refused_where_there_is_nothing_to_revive() {
    let mut bench = Bench::solo(&default());
    bench.crash_loop("a", 100);
    let scope = bench.scope("a");
    bench.tell(Input::ReviveAsked(scope.clone())).unwrap();
    assert_eq!(bench.state("a"), State::Running);
    assert_eq!(bench.supervisor.sight(bench.id("a")).restarts, 0);
    let refusal = bench.tell(Input::ReviveAsked(scope)).unwrap_err();
    assert!(matches!(refusal, Refusal::NotInState { remedy: Remedy::Nothing, .. }));
    assert_eq!(bench.crash_loop("a", 100), [100, 200, 400, 800], "from the beginning");
}

#[test]
fn a_broke_agent_is_not_revived_but_funded() {
    let mut bench = Bench::solo(&default());
    let agent = bench.id("a");
    bench.tell(Input::BalanceSeen { agent, empty: true }).unwrap();
    bench.exit("a", 1);
    let refusal = bench.tell(Input::ReviveAsked(Scope::Agent(agent))).unwrap_err();
    assert!(refusal.to_string().contains("defib fund a"));
    assert_eq!(bench.state("a"), State::Halted);
}

#[test]
fn up_leaves_named_stops_and_the_fallen_and_down_then_up_clears_all_three() {
    let agents = ["stopped", "fallen", "halted", "done"].map(|who| agent(who, &default())).to_vec();
    let mut bench = Bench::fleet(agents, Vec::new());
    stop(&mut bench, "stopped");
    bench.crash_loop("fallen", 100);
    bench.end_as("halted", Class::Auth, None);
    bench.exit("done", 0);
    bench.tell(Input::UpAsked(Scope::Project(name("project")))).unwrap();
    let states = ["stopped", "fallen", "halted", "done"].map(|who| bench.state(who));
    assert_eq!(states, [State::Stopped, State::CrashedOut, State::Halted, State::Running]);
    bench.tell(Input::DownAsked(Scope::Project(name("project")))).unwrap();
    for who in ["stopped", "fallen", "halted", "done"] {
        assert_eq!(bench.state(who), State::Stopped);
    }
    bench.tell(Input::UpAsked(Scope::Project(name("project")))).unwrap();
    for who in ["stopped", "fallen", "halted", "done"] {
        assert_eq!(bench.state(who), State::Running);
    }
    assert_eq!(bench.crash_loop("fallen", 100).len(), 4, "its window is empty");
}

#[test]
fn up_starts_only_what_boot_triggers_and_the_project_that_is_meant() {
    let manual = Policy { trigger: Trigger::Manual, ..default() };
    let mut other = agent("other", &default());
    other.project = name("elsewhere");
    let topology = Topology {
        agents: vec![agent("boot", &default()), agent("manual", &manual), other],
        ..Topology::default()
    };
    let mut bench = Bench::new(defib_core::Settings::default(), topology);
    bench.tell(Input::UpAsked(Scope::Project(name("project")))).unwrap();
    let states = ["boot", "manual", "other"].map(|who| bench.state(who));
    assert_eq!(states, [State::Running, State::Idle, State::Idle]);
    start(&mut bench, "manual").unwrap();
    assert_eq!(bench.state("manual"), State::Running);
}

#[test]
fn closing_ends_all_in_reverse_order_and_leaves_goals_as_they_are() {
    let agents = ["a", "b", "c"].map(|who| agent(who, &default())).to_vec();
    let mut bench = Bench::fleet(agents, vec![group("g", Strategy::OneForOne, &["a", "b", "c"])]);
    bench.exit("b", 1);
    let (from, effects) = (bench.log.len(), bench.effects.len());
    bench.tell(Input::CloseAsked).unwrap();
    assert_eq!(bench.order(from, |what| matches!(what, What::RunDied { .. })), ["c", "a"]);
    assert!(!bench.effects[effects..].iter().any(|e| matches!(e, Effect::StoreGoal { .. })));
    bench.pass(secs(3600));
    assert_eq!(["a", "b", "c"].map(|who| bench.runs(who)), [1, 1, 1], "nothing is started again");
}

#[test]
fn a_new_generation_restarts_the_agent_with_its_counters_at_zero() {
    let mut bench = Bench::solo(&default());
    bench.crash_loop("a", 2);
    let mut spec = agent("a", &default());
    spec.generation = 1;
    let topology = Topology { agents: vec![spec.clone()], ..Topology::default() };
    bench.tell(Input::Apply(Box::new(topology.clone()))).unwrap();
    assert_eq!((bench.state("a"), bench.runs("a")), (State::Running, 5));
    assert_eq!(bench.supervisor.sight(bench.id("a")).restarts, 0);
    assert_eq!(bench.crash_loop("a", 100), [100, 200, 400, 800]);
    assert_eq!(bench.state("a"), State::CrashedOut);

    bench.tell(Input::Apply(Box::new(topology))).unwrap();
    assert_eq!(bench.state("a"), State::CrashedOut, "the same again changes nothing");
    spec.generation = 2;
    let topology = Topology { agents: vec![spec], ..Topology::default() };
    bench.tell(Input::Apply(Box::new(topology))).unwrap();
    assert_eq!(bench.state("a"), State::Running, "who edits a fallen agent has mended it");
}

#[test]
fn a_changed_policy_keeps_the_run_and_what_its_limits_have_counted() {
    let mut bench = Bench::solo(&default());
    bench.crash_loop("a", 2);
    let mut policy = default();
    policy.stop_timeout = secs(1);
    let topology = Topology { agents: vec![agent("a", &policy)], ..Topology::default() };
    bench.tell(Input::Apply(Box::new(topology))).unwrap();
    assert_eq!(bench.runs("a"), 4);
    assert_eq!(bench.crash_loop("a", 100).len(), 1, "the fifth death trips as before");
}

#[test]
fn an_agent_that_is_no_longer_declared_ends_and_its_run_numbers_are_not_used_again() {
    let mut bench = Bench::solo(&default());
    let agent_id = bench.id("a");
    bench.tell(Input::Apply(Box::default())).unwrap();
    assert_eq!(bench.effects.last(), Some(&Effect::Forget { agent: agent_id }));
    assert_eq!(bench.supervisor.agent(&name("a")), None);
    assert_eq!(bench.tell(Input::StartAsked(Scope::Agent(agent_id))), Err(Refusal::Unknown));
    let topology = Topology { agents: vec![agent("a", &default())], ..Topology::default() };
    bench.tell(Input::Apply(Box::new(topology))).unwrap();
    bench.tell(Input::UpAsked(Scope::All)).unwrap();
    assert_eq!(bench.run("a").0, 2);
}

#[test]
fn a_run_is_ready_when_told_where_its_policy_says_so() {
    let mut bench = Bench::solo(&Policy { ready: Ready::WhenTold, ..default() });
    assert_eq!(bench.state("a"), State::Starting);
    let (agent, run) = (bench.id("a"), bench.run("a"));
    bench.tell(Input::Readied { agent, run }).unwrap();
    assert_eq!(bench.state("a"), State::Running);
}

#[test]
fn an_agent_starts_when_those_it_names_are_ready_and_stops_before_them() {
    let notify = Policy { ready: Ready::WhenTold, ..default() };
    let mut web = agent("web", &default());
    web.after = vec![name("db"), name("migration")];
    let once = Policy { mode: Mode::Never, ..default() };
    let agents = vec![web, agent("db", &notify), agent("migration", &once)];
    let mut bench = Bench::fleet(agents, Vec::new());
    assert_eq!(bench.state("web"), State::Waiting);
    bench.exit("migration", 0);
    assert_eq!(bench.state("web"), State::Waiting, "one of two");
    let (db, run) = (bench.id("db"), bench.run("db"));
    bench.tell(Input::Readied { agent: db, run }).unwrap();
    assert_eq!(bench.state("web"), State::Running, "a finished one is ready");
    let from = bench.log.len();
    bench.tell(Input::DownAsked(Scope::All)).unwrap();
    assert_eq!(bench.order(from, |what| matches!(what, What::RunDied { .. })), ["web", "db"]);
}

#[test]
fn many_start_with_the_pause_that_their_policy_wants() {
    let policy = Policy { heartbeat: None, ..plain(Preset::Aivex) };
    let agents = ["a", "b", "c"].map(|who| agent(who, &policy)).to_vec();
    let mut bench = Bench::fleet(agents, Vec::new());
    assert_eq!(["a", "b", "c"].map(|who| bench.runs(who)), [1, 0, 0]);
    bench.pass(secs(1));
    assert_eq!(["a", "b", "c"].map(|who| bench.runs(who)), [1, 1, 0]);
    bench.pass(secs(1));
    assert_eq!(["a", "b", "c"].map(|who| bench.runs(who)), [1, 1, 1]);
}

#[test]
fn what_is_asked_of_nobody_is_refused_and_what_is_said_of_nobody_is_dropped() {
    let mut bench = Bench::solo(&default());
    let many: Vec<_> = (0..9).map(|n| agent(&format!("n{n}"), &default())).collect();
    let stranger = {
        let other = Bench::fleet(many, Vec::new());
        other.id("n8")
    };
    assert_eq!(bench.tell(Input::StartAsked(Scope::Agent(stranger))), Err(Refusal::Unknown));
    let run = defib_core::RunId(1);
    let report = Status::Exited(0).into();
    for input in [
        Input::Exited { agent: stranger, run, report },
        Input::Spawned { agent: stranger, run },
        Input::Triggered(stranger),
        Input::WaitOver(stranger),
        Input::BalanceSeen { agent: stranger, empty: true },
        Input::Found { agent: stranger, run: Some(run) },
    ] {
        bench.tell(input).unwrap();
    }
    assert_eq!(bench.state("a"), State::Running);
}

#[test]
fn a_long_life_that_an_operator_ended_is_a_success_too() {
    let mut bench = Bench::solo(&default());
    assert_eq!(bench.crash_loop("a", 2), [100, 200, 400]);
    bench.pass(secs(1800));
    restart(&mut bench, "a").unwrap();
    assert_eq!(bench.crash_loop("a", 0), [100]);
}

#[test]
fn where_everything_is_to_end_nothing_begins_whose_time_had_come() {
    let mut bench = Bench::solo(&plain(Preset::Default));
    bench.exit("a", 1);
    assert_eq!(bench.state("a"), State::Backoff);
    bench.pass_unnoticed(secs(3600));
    bench.tell(Input::CloseAsked).unwrap();
    assert_eq!(bench.runs("a"), 1, "no run is begun only to be ended");
}
