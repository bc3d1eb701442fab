//! What a daemon leaves to its successor, and what a reboot leaves.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test says what it expects, and ends where it is wrong"
)]

mod bench;

use bench::{Bench, agent, group, ms, name, plain, secs};
use defib_core::policy::{Heartbeat, Mode, Ready, Trigger};
use defib_core::{
    AgentSpec, Ask, Class, Continuity, Effect, Goal, GroupSpec, Input, Life, Policy, Preset, RunId,
    Scope, Settings, Snapshot, State, Strategy, Supervisor, Topology, What,
};

fn default() -> Policy {
    plain(Preset::Default)
}

fn of(agents: Vec<AgentSpec>) -> Topology {
    Topology { agents, ..Topology::default() }
}

fn solo() -> Topology {
    of(vec![agent("a", &default())])
}

fn found(bench: &mut Bench, who: &str, run: Option<u64>) {
    let agent = bench.supervisor.known(&name(who)).unwrap();
    bench.tell(Input::Found { agent, run: run.map(RunId) }).unwrap();
}

#[test]
fn windows_delays_and_counts_survive_a_daemon_whose_agents_ran_on() {
    let mut bench = Bench::solo(&default());
    assert_eq!(bench.crash_loop("a", 2), [100, 200, 400]);
    bench.succeed(solo(), Continuity::Unbroken);
    found(&mut bench, "a", Some(4));
    assert_eq!(bench.state("a"), State::Running);
    assert_eq!(bench.crash_loop("a", 100), [800], "and the fifth death trips");
    assert_eq!(bench.state("a"), State::CrashedOut);
}

#[test]
fn a_restart_that_was_due_while_no_daemon_was_there_comes_at_once() {
    let mut bench = Bench::solo(&plain(Preset::Aivex));
    bench.exit("a", 1);
    bench.succeed(of(vec![agent("a", &plain(Preset::Aivex))]), Continuity::Unbroken);
    bench.pass(secs(10));
    assert_eq!(bench.state("a"), State::Running);
}

#[test]
fn a_run_that_ended_while_nobody_could_see_is_lost_and_restarted() {
    let mut bench = Bench::solo(&default());
    bench.succeed(solo(), Continuity::Unbroken);
    found(&mut bench, "a", None);
    let lost = bench
        .told("a")
        .any(|what| matches!(what, What::RunDied { class: Class::Lost, counted: true, .. }));
    assert!(lost);
    bench.pass(ms(100));
    assert_eq!(bench.runs("a"), 2);
}

#[test]
fn orders_that_may_not_have_gone_out_are_given_again() {
    // The stop was decided, but the daemon died before it could order anything.
    let mut supervisor = Supervisor::new(Settings::default());
    let mut bench = Bench::solo(&default());
    bench.deaf.insert("a");
    let scope = bench.scope("a");
    bench.tell(Input::StopAsked { scope, kill: false }).unwrap();
    bench.succeed(solo(), Continuity::Unbroken);
    let from = bench.effects.len();
    found(&mut bench, "a", Some(1));
    assert!(matches!(
        bench.effects[from..],
        [Effect::StoreGoal { goal: Goal::Stopped, .. }, Effect::Signal { ask: Ask::Stop, .. }]
    ));

    // The spawn was decided, but not ordered: the host knows of no run.
    let mut out = defib_core::Outbox::default();
    let now = bench.clock();
    supervisor.handle(now, Input::Apply(Box::new(solo())), &mut out).unwrap();
    supervisor.handle(now, Input::UpAsked(Scope::All), &mut out).unwrap();
    let snapshot = supervisor.snapshot();
    let mut successor =
        Supervisor::restore(Settings::default(), solo(), snapshot, Continuity::Unbroken, now);
    let agent = successor.agent(&name("a")).unwrap();
    out.clear();
    successor.handle(now, Input::Found { agent, run: None }, &mut out).unwrap();
    assert!(out.effects.contains(&Effect::Spawn { agent, run: RunId(1), fresh: false }));
}

#[test]
fn a_run_that_the_daemon_does_not_know_is_killed() {
    let mut bench = Bench::solo(&default());
    bench.exit("a", 0);
    bench.succeed(solo(), Continuity::Unbroken);
    let from = bench.effects.len();
    found(&mut bench, "a", Some(9));
    assert!(
        bench.effects[from..]
            .iter()
            .any(|effect| matches!(effect, Effect::Signal { run: RunId(9), ask: Ask::Kill, .. }))
    );
}

#[test]
fn silence_while_no_daemon_listened_is_excused() {
    let heartbeat = Some(Heartbeat { ttl: secs(10), grace: secs(0) });
    let policy = Policy { heartbeat, ..default() };
    let mut bench = Bench::solo(&policy);
    bench.pass(secs(9));
    let topology = of(vec![agent("a", &policy)]);
    let snapshot = bench.supervisor.snapshot();
    let mut later = bench.clock();
    later.mono = later.mono + secs(60);
    later.wall = later.wall + secs(60);
    let mut successor =
        Supervisor::restore(Settings::default(), topology, snapshot, Continuity::Unbroken, later);
    let mut out = defib_core::Outbox::default();
    successor.handle(later, Input::Tick, &mut out).unwrap();
    assert!(out.records.is_empty());
    assert_eq!(successor.next_deadline(), Some(later.mono + secs(10)));
}

#[test]
fn what_was_removed_while_no_daemon_was_there_ends_and_its_numbers_are_not_used_again() {
    let mut bench = Bench::solo(&default());
    bench.succeed(Topology::default(), Continuity::Unbroken);
    found(&mut bench, "a", Some(1));
    assert!(matches!(bench.effects.last(), Some(Effect::Forget { .. })));
    bench.succeed(Topology::default(), Continuity::Unbroken);
    bench.tell(Input::Apply(Box::new(solo()))).unwrap();
    bench.tell(Input::UpAsked(Scope::All)).unwrap();
    assert_eq!(bench.run("a"), RunId(2));
}

#[test]
fn an_agent_declared_again_while_its_run_is_ending_comes_back() {
    let mut bench = Bench::solo(&default());
    bench.deaf.insert("a");
    bench.tell(Input::Apply(Box::default())).unwrap();
    bench.tell(Input::Apply(Box::new(solo()))).unwrap();
    bench.tell(Input::UpAsked(Scope::All)).unwrap();
    assert_eq!(bench.state("a"), State::Stopping);
    bench.pass(secs(10));
    assert_eq!((bench.state("a"), bench.runs("a")), (State::Running, 2));
    assert!(!bench.effects.iter().any(|effect| matches!(effect, Effect::Forget { .. })));
}

#[test]
fn whoever_waited_for_something_that_is_no_longer_declared_goes_on() {
    let mut web = agent("web", &default());
    web.after = vec![name("db")];
    let manual = Policy { trigger: Trigger::Manual, ..default() };
    let mut bench = Bench::fleet(vec![web.clone(), agent("db", &manual)], Vec::new());
    assert_eq!(bench.state("web"), State::Waiting);
    bench.tell(Input::Apply(Box::new(of(vec![web])))).unwrap();
    assert_eq!(bench.state("web"), State::Running);
}

#[test]
fn an_ordered_stop_goes_on_when_a_member_leaves_the_group() {
    let agents = vec![agent("a", &default()), agent("b", &default())];
    let groups = vec![group("g", Strategy::OneForOne, &["a", "b"])];
    let mut bench = Bench::fleet(agents.clone(), groups);
    bench.deaf.extend(["a", "b"]);
    let scope = bench.scope("g");
    bench.tell(Input::StopAsked { scope, kill: false }).unwrap();
    bench.tell(Input::Apply(Box::new(of(agents)))).unwrap();
    bench.pass(secs(10));
    assert_eq!([bench.state("a"), bench.state("b")], [State::Stopped; 2]);
}

#[test]
fn a_reboot_is_a_free_respawn_and_leaves_rests_as_they_are() {
    let revived = Policy { revive_on_boot: true, ..default() };
    let topology = || {
        let mut agents: Vec<AgentSpec> = ["up", "waits", "stopped", "fallen", "halted", "done"]
            .map(|w| agent(w, &default()))
            .to_vec();
        agents.push(agent("revived", &revived));
        of(agents)
    };
    let mut bench = Bench::new(Settings::default(), topology());
    bench.tell(Input::UpAsked(Scope::All)).unwrap();
    bench.crash_loop("up", 3);
    bench.end_as("waits", Class::Quota, Some(secs(3600)));
    let scope = bench.scope("stopped");
    bench.tell(Input::StopAsked { scope, kill: false }).unwrap();
    bench.crash_loop("fallen", 100);
    bench.crash_loop("revived", 100);
    bench.end_as("halted", Class::Auth, None);
    bench.exit("done", 0);
    bench.succeed(topology(), Continuity::Reboot);
    bench.tell(Input::Booted).unwrap();
    for (who, state) in [
        ("up", State::Running),
        ("waits", State::Running),
        ("stopped", State::Stopped),
        ("fallen", State::CrashedOut),
        ("revived", State::Running),
        ("halted", State::Halted),
        ("done", State::Done),
    ] {
        assert_eq!(bench.state(who), state, "{who}");
    }
    assert_eq!(bench.run("up"), RunId(6), "run numbers go on");
    assert_eq!(bench.crash_loop("up", 100), [100, 200, 400, 800], "the window is empty");
}

#[test]
fn what_is_never_restarted_is_not_started_again_by_a_reboot() {
    let never = Policy { mode: Mode::Never, ..default() };
    let cron = Policy { trigger: Trigger::Cron, ..never.clone() };
    let held = Policy { ready: Ready::WhenTold, ..never.clone() };
    for closes in [false, true] {
        let topology = || {
            let waits = AgentSpec { after: vec![name("held")], ..agent("waits", &never) };
            of(vec![agent("once", &never), agent("cron", &cron), agent("held", &held), waits])
        };
        let mut bench = Bench::new(Settings::default(), topology());
        bench.tell(Input::UpAsked(Scope::All)).unwrap();
        let scope = bench.scope("cron");
        bench.tell(Input::StartAsked(scope)).unwrap();
        assert_eq!(bench.state("waits"), State::Waiting);
        if closes {
            bench.tell(Input::CloseAsked).unwrap();
        }
        bench.succeed(topology(), Continuity::Reboot);
        bench.tell(Input::Booted).unwrap();
        for (who, state, runs) in
            [("once", State::Stopped, 1), ("cron", State::Idle, 1), ("held", State::Stopped, 1)]
        {
            assert_eq!((bench.state(who), bench.runs(who)), (state, runs), "{who}");
        }
        // It has not run yet, and waits for one that failed.
        assert_eq!(bench.runs("waits"), 0);
        assert!(matches!(bench.state("waits"), State::Waiting), "{:?}", bench.state("waits"));
        bench.tell(Input::UpAsked(Scope::All)).unwrap();
        assert_eq!((bench.state("once"), bench.runs("once")), (State::Running, 2), "for a person");
    }
}

#[test]
fn whoever_lived_when_the_machine_went_runs_again_whatever_started_it() {
    let by = |trigger| Policy { trigger, ..default() };
    let topology = || {
        of(vec![
            agent("boot", &default()),
            agent("manual", &by(Trigger::Manual)),
            agent("cron", &by(Trigger::Cron)),
            agent("stopped", &by(Trigger::Manual)),
            agent("closed", &by(Trigger::Manual)),
            agent("idle", &by(Trigger::Cron)),
        ])
    };
    let mut bench = Bench::new(Settings::default(), topology());
    bench.tell(Input::UpAsked(Scope::All)).unwrap();
    for who in ["manual", "cron", "stopped"] {
        let scope = bench.scope(who);
        bench.tell(Input::StartAsked(scope)).unwrap();
    }
    let scope = bench.scope("stopped");
    bench.deaf.insert("stopped");
    bench.tell(Input::StopAsked { scope, kill: false }).unwrap();
    bench.succeed(topology(), Continuity::Reboot);
    bench.tell(Input::Booted).unwrap();
    for (who, state, runs) in [
        ("boot", State::Running, 2),
        ("manual", State::Running, 2),
        ("cron", State::Running, 2),
        ("stopped", State::Stopped, 1),
        ("idle", State::Idle, 0),
    ] {
        assert_eq!((bench.state(who), bench.runs(who)), (state, runs), "{who}");
    }
    // One that ended in order with all others waits for its trigger again.
    let scope = bench.scope("closed");
    bench.tell(Input::StartAsked(scope)).unwrap();
    bench.tell(Input::CloseAsked).unwrap();
    bench.succeed(topology(), Continuity::Reboot);
    bench.tell(Input::Booted).unwrap();
    assert_eq!((bench.state("closed"), bench.runs("closed")), (State::Idle, 1));
}

#[test]
fn what_was_closed_in_order_comes_back_at_the_next_start() {
    let topology = || of(vec![agent("a", &default()), agent("b", &default())]);
    let mut bench = Bench::new(Settings::default(), topology());
    bench.tell(Input::UpAsked(Scope::All)).unwrap();
    let scope = bench.scope("b");
    bench.tell(Input::StopAsked { scope, kill: false }).unwrap();
    bench.tell(Input::CloseAsked).unwrap();
    assert_eq!(bench.state("a"), State::Stopped);
    bench.succeed(topology(), Continuity::Reboot);
    bench.tell(Input::Booted).unwrap();
    assert_eq!([bench.state("a"), bench.state("b")], [State::Running, State::Stopped]);
}

#[test]
fn a_daemon_that_dies_while_closing_is_succeeded_by_one_that_goes_on_closing() {
    let mut bench = Bench::solo(&default());
    bench.deaf.insert("a");
    bench.tell(Input::CloseAsked).unwrap();
    bench.succeed(solo(), Continuity::Unbroken);
    found(&mut bench, "a", Some(1));
    bench.pass(secs(10));
    assert_eq!((bench.state("a"), bench.runs("a")), (State::Stopped, 1));
}

#[test]
fn the_order_is_that_of_the_declaration_however_an_agent_became_known() {
    let trio = || of(["z", "m", "a"].map(|who| agent(who, &default())).to_vec());
    let listed = |bench: &Bench| -> Vec<String> {
        bench.supervisor.declared().map(|(_, name)| name.to_string()).collect()
    };
    let mut bench = Bench::new(Settings::default(), trio());
    bench.tell(Input::UpAsked(Scope::All)).unwrap();
    bench.tell(Input::DownAsked(Scope::All)).unwrap();

    // Of the next daemon's agents none is declared when it begins, and all are known.
    bench.succeed(Topology::default(), Continuity::Reboot);
    bench.tell(Input::Booted).unwrap();
    assert_eq!(listed(&bench), [""; 0]);
    let from = bench.log.len();
    bench.tell(Input::Apply(Box::new(trio()))).unwrap();
    bench.tell(Input::UpAsked(Scope::All)).unwrap();
    assert_eq!(listed(&bench), ["z", "m", "a"]);
    assert_eq!(bench.order(from, |what| matches!(what, What::RunStarted { .. })), ["z", "m", "a"]);
    let from = bench.log.len();
    bench.tell(Input::DownAsked(Scope::All)).unwrap();
    let asked = bench.order(from, |what| matches!(what, What::StopRequested { .. }));
    assert_eq!(asked, ["a", "m", "z"]);

    // Whoever is put in front is in front, and whoever is named twice stands where it is named first.
    let moved = ["new", "a", "z", "m", "a"].map(|who| agent(who, &default())).to_vec();
    bench.tell(Input::Apply(Box::new(of(moved)))).unwrap();
    assert_eq!(listed(&bench), ["new", "a", "z", "m"]);
    let from = bench.log.len();
    bench.tell(Input::UpAsked(Scope::All)).unwrap();
    let started = bench.order(from, |what| matches!(what, What::RunStarted { .. }));
    assert_eq!(started, ["new", "a", "z", "m"]);
    let from = bench.log.len();
    bench.tell(Input::CloseAsked).unwrap();
    let asked = bench.order(from, |what| matches!(what, What::StopRequested { .. }));
    assert_eq!(asked, ["m", "z", "a", "new"]);
}

#[test]
fn what_groups_have_spent_survives_a_daemon_and_not_a_down() {
    let agents = vec![agent("a", &default()), agent("b", &default())];
    let limit = defib_core::limit::Limit::restarts(1, defib_core::limit::Span::Lifetime);
    let spec = GroupSpec { budget: Some(limit), ..group("g", Strategy::OneForOne, &["a", "b"]) };
    let topology = Topology { agents, groups: vec![spec], ..Topology::default() };
    let mut bench = Bench::new(Settings::default(), topology.clone());
    bench.tell(Input::UpAsked(Scope::All)).unwrap();
    bench.exit("a", 1);
    bench.pass(ms(100));
    bench.succeed(topology, Continuity::Unbroken);
    found(&mut bench, "a", Some(2));
    found(&mut bench, "b", Some(1));
    bench.exit("b", 1);
    assert_eq!(bench.state("b"), State::CrashedOut);
    bench.tell(Input::DownAsked(Scope::All)).unwrap();
    bench.tell(Input::UpAsked(Scope::All)).unwrap();
    bench.exit("b", 1);
    assert_eq!(bench.state("b"), State::Backoff);
}

#[test]
fn a_wish_to_end_survives_a_reboot() {
    let mut bench = Bench::solo(&default());
    let (agent, run) = (bench.id("a"), bench.run("a"));
    bench.tell(Input::ShutdownWished { agent, run }).unwrap();
    bench.succeed(solo(), Continuity::Reboot);
    bench.tell(Input::Booted).unwrap();
    assert_eq!(bench.state("a"), State::Done);
}

#[test]
fn a_run_that_is_only_known_to_have_lived_is_lost_after_the_time_that_it_did() {
    let mut life = Life::blank();
    life.was_running(RunId(3), false, secs(90));
    let totals = Supervisor::new(Settings::default()).totals();
    let snapshot = Snapshot { lives: [(name("a"), life)].into(), spent: [].into(), totals };
    let mut bench = Bench::new(Settings::default(), Topology::default());
    // The machine has been up for less time than the run lived.
    bench.resume(snapshot, solo(), Continuity::Reboot);
    bench.tell(Input::Booted).unwrap();
    let ran = bench.told("a").find_map(|what| match what {
        What::RunDied { class: Class::Lost, ran_s, .. } => Some(ran_s.0),
        _ => None,
    });
    assert_eq!(ran, Some(secs(90)));
    assert_eq!(bench.run("a"), RunId(4));
}

#[test]
fn a_stop_that_a_dead_daemon_may_not_have_sent_has_its_whole_time() {
    let mut bench = Bench::solo(&default());
    bench.deaf.insert("a");
    let scope = bench.scope("a");
    bench.tell(Input::StopAsked { scope, kill: false }).unwrap();
    let snapshot = bench.supervisor.snapshot();
    let mut later = bench.clock();
    later.mono = later.mono + secs(60);
    let successor =
        Supervisor::restore(Settings::default(), solo(), snapshot, Continuity::Unbroken, later);
    assert_eq!(successor.next_deadline(), Some(later.mono + secs(10)));
}
