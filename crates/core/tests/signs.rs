//! What runs show of themselves: it moves their deadlines, and comes before them however late it is
//! heard of.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test says what it expects, and ends where it is wrong"
)]

mod bench;

use bench::{Bench, agent, ms, plain, secs};
use defib_core::policy::Heartbeat;
use defib_core::run::Status;
use defib_core::{Class, Input, Now, Outbox, Policy, Preset, State, What};

fn default() -> Policy {
    plain(Preset::Default)
}

/// The classes of its deaths, and how long it lived each time.
fn deaths(bench: &Bench) -> Vec<(Class, std::time::Duration)> {
    let deaths = bench.told("a").filter_map(|what| match what {
        What::RunDied { class, ran_s, .. } => Some((*class, ran_s.0)),
        _ => None,
    });
    deaths.collect()
}

#[test]
fn an_extension_moves_the_deadline_of_silence_and_of_a_stop_and_is_not_cut_short() {
    let heartbeat = Some(Heartbeat { ttl: secs(10), grace: secs(0) });
    let policy = Policy { heartbeat, silent_for: Some(secs(20)), ..default() };
    let mut bench = Bench::solo(&policy);
    let (agent, run) = (bench.id("a"), bench.run("a"));
    bench.tell(Input::Extended { agent, run, by: secs(100) }).unwrap();
    bench.pass(secs(50));
    bench.tell(Input::BeatSeen { agent, run }).unwrap();
    bench.pass(ms(49_999));
    assert_eq!(bench.runs("a"), 1);
    bench.pass(ms(1));
    assert_eq!(deaths(&bench)[0].0, Class::Timeout);

    let mut bench = Bench::solo(&default());
    bench.deaf.insert("a");
    let (agent, run, scope) = (bench.id("a"), bench.run("a"), bench.scope("a"));
    bench.tell(Input::StopAsked { scope, kill: false }).unwrap();
    bench.tell(Input::Extended { agent, run, by: secs(30) }).unwrap();
    bench.pass(ms(29_999));
    assert_eq!(bench.state("a"), State::Stopping);
    bench.pass(ms(1));
    assert_eq!(bench.state("a"), State::Stopped);
}

#[test]
fn a_run_that_has_ended_is_held_to_nothing_while_it_is_examined() {
    let heartbeat = Some(Heartbeat { ttl: secs(10), grace: secs(0) });
    let bounds = [
        Policy { heartbeat, ..default() },
        Policy { silent_for: Some(secs(10)), ..default() },
        Policy { max_runtime: Some(secs(10)), ..default() },
    ];
    for policy in bounds {
        let mut bench = Bench::solo(&policy);
        let (agent, run) = (bench.id("a"), bench.run("a"));
        bench.pass(secs(9));
        bench.tell(Input::Ended { agent, run }).unwrap();
        bench.pass(secs(5));
        bench.tell(Input::ProbeFailed { agent, run }).unwrap();
        assert_eq!(bench.state("a"), State::Running, "{policy:?}");
        bench.tell(Input::Exited { agent, run, report: Status::Exited(1).into() }).unwrap();
        // Its examination is no part of its life.
        assert_eq!(deaths(&bench), [(Class::Error, secs(9))], "{policy:?}");
    }
    // Heard of only after its time: that it has ended comes first.
    let mut bench = Bench::solo(&Policy { heartbeat, ..default() });
    let (agent, run) = (bench.id("a"), bench.run("a"));
    let now = bench.clock();
    let late = Now { mono: now.mono + secs(25), wall: now.wall + secs(25) };
    let mut out = Outbox::default();
    bench.supervisor.handle(late, Input::Ended { agent, run }, &mut out).unwrap();
    assert!(out.records.is_empty(), "{:?}", out.records);
    assert_eq!(bench.supervisor.next_deadline(), None);
}

#[test]
fn a_beat_that_is_heard_of_late_still_counts_before_its_silence_does() {
    let heartbeat = Some(Heartbeat { ttl: secs(10), grace: secs(0) });
    let mut bench = Bench::solo(&Policy { heartbeat, ..default() });
    let (agent, run) = (bench.id("a"), bench.run("a"));
    let late = bench.clock().mono + secs(25);
    let now = Now { mono: late, wall: bench.clock().wall + secs(25) };
    let mut out = Outbox::default();
    bench.supervisor.handle(now, Input::BeatSeen { agent, run }, &mut out).unwrap();
    assert!(out.records.is_empty(), "{:?}", out.records);
    assert_eq!(bench.supervisor.next_deadline(), Some(late + secs(10)));
}

#[test]
fn all_that_is_heard_of_late_is_heard_before_anybody_is_ended_for_silence() {
    let heartbeat = Some(Heartbeat { ttl: secs(10), grace: secs(0) });
    let policy = Policy { heartbeat, ..default() };
    let mut bench = Bench::fleet(vec![agent("a", &policy), agent("b", &policy)], Vec::new());
    let now = bench.clock();
    let late = Now { mono: now.mono + secs(25), wall: now.wall + secs(25) };
    let mut out = Outbox::default();
    for name in ["a", "b"] {
        let (agent, run) = (bench.id(name), bench.run(name));
        bench.supervisor.handle(late, Input::BeatSeen { agent, run }, &mut out).unwrap();
    }
    bench.supervisor.handle(late, Input::Tick, &mut out).unwrap();
    assert!(out.records.is_empty(), "{:?}", out.records);
}

#[test]
fn a_run_that_has_finished_its_work_is_held_to_no_sign_of_life_and_ends_as_its_record_says() {
    let heartbeat = Some(Heartbeat { ttl: secs(10), grace: secs(0) });
    let bounds = [
        Policy { heartbeat, ..default() },
        Policy { silent_for: Some(secs(10)), ..default() },
        Policy { max_runtime: Some(secs(10)), ..default() },
    ];
    for policy in bounds {
        let mut bench = Bench::solo(&policy);
        bench.deaf.insert("a");
        let (agent, run) = (bench.id("a"), bench.run("a"));
        bench.tell(Input::Lingered { agent, run }).unwrap();
        bench.tell(Input::FinishSeen { agent, run, finished: true }).unwrap();
        bench.pass(secs(60));
        bench.tell(Input::ProbeFailed { agent, run }).unwrap();
        let spent_until = Some(bench.clock().wall + secs(3600));
        bench.tell(Input::AllowanceSeen { agent, spent_until }).unwrap();
        assert_eq!(bench.state("a"), State::Running, "{policy:?}");
        bench.tell(Input::Lingered { agent, run }).unwrap();
        assert_eq!(bench.state("a"), State::Stopping, "{policy:?}");
        bench.end_as("a", Class::Done, None);
        assert_eq!(bench.state("a"), State::Done, "{policy:?}");
        assert_eq!(deaths(&bench), [(Class::Done, secs(60))], "{policy:?}");
    }
}

#[test]
fn work_after_the_final_record_counts_again() {
    let mut bench = Bench::solo(&Policy { silent_for: Some(secs(10)), ..default() });
    let (agent, run) = (bench.id("a"), bench.run("a"));
    bench.tell(Input::FinishSeen { agent, run, finished: true }).unwrap();
    bench.pass(secs(60));
    bench.tell(Input::FinishSeen { agent, run, finished: false }).unwrap();
    bench.tell(Input::Lingered { agent, run }).unwrap();
    bench.pass(ms(9_999));
    assert_eq!(bench.state("a"), State::Running);
    bench.pass(ms(1));
    assert_eq!(deaths(&bench)[0].0, Class::Timeout);

    let mut bench = Bench::solo(&default());
    let (agent, run) = (bench.id("a"), bench.run("a"));
    bench.tell(Input::FinishSeen { agent, run, finished: true }).unwrap();
    let spent_until = Some(bench.clock().wall + secs(3600));
    bench.tell(Input::AllowanceSeen { agent, spent_until }).unwrap();
    assert_eq!(bench.state("a"), State::Running);
    bench.tell(Input::FinishSeen { agent, run, finished: false }).unwrap();
    assert_eq!(bench.state("a"), State::Waiting);
}
