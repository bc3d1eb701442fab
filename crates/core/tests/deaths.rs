//! What becomes of a death: mode by class, overrides, waits, counting.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::unchecked_time_subtraction,
    reason = "a test says what it expects, and ends where it is wrong"
)]

mod bench;

use bench::{Bench, ms, plain, secs};
use defib_core::limit::{Limit, Span};
use defib_core::policy::{Heartbeat, Mode, Order, Trigger};
use defib_core::record::{Rest, Trip, WaitReason};
use defib_core::run::Status;
use defib_core::{
    Class, Effect, Input, Policy, Preset, Reason, Settings, Signal, State, Topology, Verdict, What,
};

fn default() -> Policy {
    plain(Preset::Default)
}

fn last_death(bench: &Bench) -> (Class, Verdict, bool) {
    let deaths = bench.told("a").filter_map(|what| match what {
        What::RunDied { class, verdict, counted, .. } => Some((*class, *verdict, *counted)),
        _ => None,
    });
    deaths.last().unwrap()
}

#[test]
fn mode_and_class_together_decide() {
    let rows = [
        (Mode::Never, Class::Done, State::Done),
        (Mode::Never, Class::Error, State::Stopped),
        (Mode::Never, Class::Quota, State::Stopped),
        (Mode::Never, Class::Config, State::Stopped),
        (Mode::OnFailure, Class::Done, State::Done),
        (Mode::OnFailure, Class::Error, State::Backoff),
        (Mode::OnFailure, Class::Voluntary, State::Done),
        (Mode::Always, Class::Done, State::Backoff),
        (Mode::Always, Class::Error, State::Backoff),
        (Mode::Always, Class::Voluntary, State::Done),
        (Mode::Always, Class::Auth, State::Halted),
        (Mode::Always, Class::Quota, State::Waiting),
    ];
    for (mode, class, state) in rows {
        let mut bench = Bench::solo(&Policy { mode, ..default() });
        bench.end_as("a", class, None);
        assert_eq!(bench.state("a"), state, "{mode:?} {class}");
    }
}

#[test]
fn a_failure_that_is_not_restarted_is_stopped_with_its_reason() {
    let mut bench = Bench::solo(&Policy { mode: Mode::Never, ..default() });
    bench.exit("a", 1);
    assert_eq!(bench.supervisor.sight(bench.id("a")).reason, Some(Reason::Failed));
}

#[test]
fn the_operators_table_goes_before_mode_and_rule_set() {
    for (mode, class, order, state) in [
        (Mode::OnFailure, Class::Quota, Order::Halt, State::Halted),
        (Mode::OnFailure, Class::Config, Order::Restart, State::Backoff),
        (Mode::OnFailure, Class::Error, Order::Rest, State::Stopped),
        (Mode::OnFailure, Class::Error, Order::Wait, State::Waiting),
        (Mode::Never, Class::Error, Order::Restart, State::Backoff),
        (Mode::OnFailure, Class::Done, Order::Restart, State::Backoff),
    ] {
        let mut policy = Policy { mode, ..default() };
        policy.on.insert(class, order);
        let mut bench = Bench::solo(&policy);
        bench.end_as("a", class, None);
        assert_eq!(bench.state("a"), state, "{mode:?} {class} {order:?}");
    }
}

#[test]
fn a_fix_needed_that_is_restarted_all_the_same_counts() {
    // By the operator's own table.
    let mut policy = default();
    policy.on.insert(Class::Config, Order::Restart);
    policy.exit_codes.insert(2, Class::Config);
    let mut bench = Bench::solo(&policy);
    for _ in 0..5 {
        bench.exit("a", 2);
        bench.pass(secs(2));
    }
    assert_eq!(bench.state("a"), State::CrashedOut);
}

#[test]
fn the_exit_code_map_gives_the_class() {
    let mut policy = default();
    policy.exit_codes.extend([(75, Class::Quota), (3, Class::Done)]);
    for (status, class) in [
        (Status::Exited(75), Class::Quota),
        (Status::Exited(3), Class::Done),
        (Status::Exited(4), Class::Error),
        (Status::Exited(0), Class::Done),
        (Status::Signaled(Signal::KILL), Class::Error),
        (Status::Unseen, Class::Lost),
    ] {
        assert_eq!(policy.class_of(status), class, "{status:?}");
    }
}

#[test]
fn what_we_asked_for_goes_before_what_the_agent_said_and_before_the_report() {
    // Stale heartbeat: a timeout, though the report says that a signal ended it.
    let heartbeat = Some(Heartbeat { ttl: secs(10), grace: secs(5) });
    let mut bench = Bench::solo(&Policy { heartbeat, ..default() });
    bench.pass(ms(14_999));
    assert_eq!(bench.state("a"), State::Running, "the grace is added until the first beat");
    bench.pass(ms(1));
    assert_eq!(last_death(&bench), (Class::Timeout, Verdict::Restart, true));

    // An operator's stop: stopped, though the agent exits with an error on the way.
    let mut bench = Bench::solo(&default());
    bench.deaf.insert("a");
    let scope = bench.scope("a");
    bench.tell(Input::StopAsked { scope, kill: false }).unwrap();
    bench.exit("a", 1);
    assert_eq!(last_death(&bench), (Class::Stopped, Verdict::Rest, false));

    // A failed probe: a timeout, though an autopsy finds a quota in the last lines.
    let mut bench = Bench::solo(&default());
    bench.deaf.insert("a");
    let (agent, run) = (bench.id("a"), bench.run("a"));
    bench.tell(Input::ProbeFailed { agent, run }).unwrap();
    bench.end_as("a", Class::Quota, None);
    assert_eq!(last_death(&bench), (Class::Timeout, Verdict::Restart, true));

    // A wish, though the exit code is an error's.
    let mut bench = Bench::solo(&Policy { mode: Mode::Always, ..default() });
    let (agent, run) = (bench.id("a"), bench.run("a"));
    bench.tell(Input::ShutdownWished { agent, run }).unwrap();
    bench.exit("a", 1);
    assert_eq!(last_death(&bench), (Class::Voluntary, Verdict::Rest, false));
}

#[test]
fn a_wish_that_is_not_acted_on_is_carried_out_after_the_stop_timeout() {
    let mut bench = Bench::solo(&default());
    let (agent, run) = (bench.id("a"), bench.run("a"));
    bench.tell(Input::ShutdownWished { agent, run }).unwrap();
    bench.pass(ms(9999));
    assert_eq!(bench.state("a"), State::Running);
    bench.pass(ms(1));
    assert_eq!(last_death(&bench).0, Class::Voluntary);
    assert_eq!(bench.state("a"), State::Done);
}

#[test]
fn a_beat_moves_the_deadline_and_ends_the_grace() {
    let heartbeat = Some(Heartbeat { ttl: secs(10), grace: secs(60) });
    let mut bench = Bench::solo(&Policy { heartbeat, ..default() });
    let (agent, run) = (bench.id("a"), bench.run("a"));
    bench.pass(secs(69));
    bench.tell(Input::BeatSeen { agent, run }).unwrap();
    bench.pass(ms(9999));
    assert_eq!(bench.state("a"), State::Running);
    bench.pass(ms(1));
    assert_eq!(last_death(&bench).0, Class::Timeout);
}

#[test]
fn silence_a_long_life_and_a_failed_probe_are_timeouts() {
    let mut bench = Bench::solo(&Policy { silent_for: Some(secs(900)), ..default() });
    let (agent, run) = (bench.id("a"), bench.run("a"));
    bench.pass(secs(800));
    bench.tell(Input::ActivitySeen { agent, run }).unwrap();
    bench.pass(ms(899_999));
    assert_eq!(bench.runs("a"), 1);
    bench.pass(ms(1));
    assert_eq!(last_death(&bench).0, Class::Timeout);

    let mut bench = Bench::solo(&Policy { max_runtime: Some(secs(100)), ..default() });
    bench.pass(secs(100));
    assert_eq!(last_death(&bench).0, Class::Timeout);

    let mut bench = Bench::solo(&default());
    let (agent, run) = (bench.id("a"), bench.run("a"));
    bench.tell(Input::ProbeFailed { agent, run }).unwrap();
    assert_eq!(last_death(&bench).0, Class::Timeout);
}

#[test]
fn time_that_the_machine_slept_is_no_silence() {
    let heartbeat = Some(Heartbeat { ttl: secs(10), grace: secs(0) });
    let policy = Policy { heartbeat, max_runtime: Some(secs(1000)), ..default() };
    let mut bench = Bench::solo(&policy);
    bench.pass(secs(5));
    bench.sleep(secs(28_800));
    bench.pass(ms(4999));
    assert_eq!(bench.runs("a"), 1);
    bench.pass(ms(1));
    assert_eq!(last_death(&bench).0, Class::Timeout);
}

#[test]
fn time_that_the_machine_slept_is_no_life_and_no_time_to_end_in() {
    let mut bench = Bench::solo(&default());
    bench.crash_loop("a", 1);
    bench.sleep(secs(28_800));
    assert_eq!(bench.crash_loop("a", 0), [400], "it has not lived a minute");

    bench.deaf.insert("a");
    let scope = bench.scope("a");
    bench.tell(Input::StopAsked { scope, kill: false }).unwrap();
    bench.sleep(secs(3600));
    assert_eq!(bench.state("a"), State::Stopping);
    bench.pass(secs(10));
    assert_eq!(bench.state("a"), State::Stopped);
}

#[test]
fn a_run_that_overspends_is_ended_and_halts() {
    let mut bench = Bench::solo(&default());
    let (agent, run) = (bench.id("a"), bench.run("a"));
    bench.tell(Input::Overspent { agent, run }).unwrap();
    assert_eq!(last_death(&bench), (Class::Budget, Verdict::Halt, false));
    assert_eq!(bench.state("a"), State::Halted);
}

#[test]
fn who_has_spent_its_allowance_is_ended_and_waits_for_the_next_whoever_starts_it() {
    let mut bench = Bench::solo(&Policy { mode: Mode::Always, ..default() });
    let agent = bench.id("a");
    let spent_until = Some(bench.clock().wall + secs(3600));
    bench.tell(Input::AllowanceSeen { agent, spent_until }).unwrap();
    assert_eq!(last_death(&bench), (Class::Budget, Verdict::Wait, false));
    assert_eq!(bench.state("a"), State::Waiting);
    let scope = bench.scope("a");
    bench.tell(Input::StartAsked(scope)).unwrap();
    bench.pass(secs(3599));
    assert_eq!((bench.state("a"), bench.runs("a")), (State::Waiting, 1));
    bench.pass(secs(1));
    assert_eq!((bench.state("a"), bench.runs("a")), (State::Running, 2));
    bench.exit("a", 1);
    bench.pass(secs(60));
    assert_eq!(bench.runs("a"), 3, "an allowance that has come back holds nobody");
}

#[test]
fn an_allowance_that_is_raised_ends_the_wait_and_one_that_is_spent_by_the_last_word_holds_the_next()
{
    let mut bench = Bench::solo(&default());
    let agent = bench.id("a");
    bench.exit("a", 1);
    assert_eq!(bench.state("a"), State::Backoff);
    let spent_until = Some(bench.clock().wall + secs(3600));
    bench.tell(Input::AllowanceSeen { agent, spent_until }).unwrap();
    bench.pass(secs(600));
    assert_eq!((bench.state("a"), bench.runs("a")), (State::Waiting, 1));
    bench.tell(Input::AllowanceSeen { agent, spent_until: None }).unwrap();
    assert_eq!((bench.state("a"), bench.runs("a")), (State::Running, 2));
}

#[test]
fn a_quota_waits_for_its_reset_and_spends_no_crash_budget() {
    let mut bench = Bench::solo(&default());
    for _ in 0..100 {
        bench.end_as("a", Class::Quota, Some(secs(3 * 3600)));
        assert_eq!(bench.state("a"), State::Waiting);
        assert_eq!(bench.pass_to_next(), secs(3 * 3600));
        assert_eq!(bench.state("a"), State::Running);
    }
    assert_eq!(bench.supervisor.sight(bench.id("a")).restarts, 0);
    let failures = bench.view.agent(&bench::name("a")).unwrap().consecutive_failures;
    assert_eq!(failures, 0);
}

/// The end of a run at a limit with this stated reset.
fn quota_until(millis: i64) -> defib_core::run::ExitReport {
    defib_core::run::ExitReport {
        status: Status::Exited(1),
        finding: Some(defib_core::run::Finding {
            class: Class::Quota,
            evidence: None,
            resets_at: Some(defib_core::Wall::from_millis(millis)),
        }),
        spoke: true,
    }
}

#[test]
fn a_reset_in_the_past_is_now_and_one_too_far_is_in_eight_days() {
    let mut bench = Bench::solo(&default());
    bench.end("a", quota_until(5));
    assert_eq!(bench.state("a"), State::Running);
    bench.end("a", quota_until(i64::MAX));
    assert_eq!(bench.pass_to_next(), secs(8 * 86_400));
}

#[test]
fn limit_that_outlives_its_stated_reset_is_retried_at_growing_intervals() {
    let mut bench = Bench::solo(&default());
    bench.end("a", quota_until(5));
    let mut waits = Vec::new();
    for _ in 0..8 {
        bench.end("a", quota_until(5));
        waits.push(bench.pass_to_next().as_secs());
    }
    assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300]);
}

#[test]
fn a_stated_reset_follows_the_wall_clock_and_a_delay_does_not() {
    let mut bench = Bench::solo(&default());
    bench.end_as("a", Class::Quota, Some(secs(7200)));
    bench.step_wall(secs(3600));
    assert_eq!(bench.pass_to_next(), secs(3600), "the clock says it is an hour later");

    let mut bench = Bench::solo(&plain(Preset::Aivex));
    bench.exit("a", 1);
    bench.step_wall(secs(3600));
    assert_eq!(bench.pass_to_next(), secs(10));
}

#[test]
fn a_quota_without_a_reset_waits_5_10_20_to_300_seconds() {
    let mut bench = Bench::solo(&default());
    let mut waits = Vec::new();
    for _ in 0..8 {
        bench.end_as("a", Class::Quota, None);
        waits.push(bench.pass_to_next().as_secs());
    }
    assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300]);
    assert!(bench.delays_ms("a").is_empty(), "a wait is no restart");
}

#[test]
fn an_outage_has_its_own_backoff_and_never_trips_a_limit_on_deaths() {
    let limits = vec![Limit::deaths(5, secs(86_400))];
    let mut bench = Bench::solo(&Policy { limits, ..default() });
    for _ in 0..50 {
        bench.end_as("a", Class::Network, None);
        bench.pass_to_next();
    }
    assert_eq!(bench.state("a"), State::Running);
    assert_eq!(bench.delays_ms("a")[..3], [5000, 10_000, 20_000]);
    bench.exit("a", 1);
    assert_eq!(bench.delays_ms("a").last(), Some(&100), "the own backoff was not touched");
}

#[test]
fn a_full_disk_waits_until_it_is_told() {
    let mut bench = Bench::solo(&default());
    bench.end_as("a", Class::Disk, None);
    bench.pass(secs(86_400));
    assert_eq!(bench.state("a"), State::Waiting);
    let reason = bench.supervisor.sight(bench.id("a")).reason;
    assert_eq!(reason, Some(Reason::Wait(WaitReason::Cause(Class::Disk))));
    let agent = bench.id("a");
    bench.tell(Input::WaitOver(agent)).unwrap();
    assert_eq!(bench.state("a"), State::Running);
}

#[test]
fn a_full_context_restarts_as_a_fresh_session() {
    let mut bench = Bench::solo(&default());
    bench.end_as("a", Class::Context, None);
    bench.pass(ms(100));
    assert!(matches!(bench.effects.last(), Some(Effect::Spawn { fresh: true, .. })));
    bench.exit("a", 1);
    bench.pass(ms(200));
    assert!(matches!(bench.effects.last(), Some(Effect::Spawn { fresh: false, .. })));
}

#[test]
fn an_interruption_restarts_at_once_and_counts() {
    let mut bench = Bench::solo(&default());
    for _ in 0..4 {
        bench.end_as("a", Class::Interrupted, None);
        assert_eq!(bench.state("a"), State::Running);
    }
    bench.end_as("a", Class::Interrupted, None);
    assert_eq!(bench.state("a"), State::CrashedOut);
    assert_eq!(bench.delays_ms("a"), [0, 0, 0, 0], "a zero delay is scheduled too");
}

/// Goal: in `default` a clean end is never a death, but a loop of short clean ends slows down to the cap.
#[test]
fn short_clean_ends_slow_down_and_never_count_in_default() {
    let mut bench = Bench::solo(&Policy { mode: Mode::Always, ..default() });
    for _ in 0..12 {
        bench.exit("a", 0);
        bench.pass(secs(30));
        assert_eq!(bench.state("a"), State::Running);
    }
    let delays = bench.delays_ms("a");
    let cap = [30_000; 3];
    assert_eq!(delays[..9], [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600]);
    assert_eq!(delays[9..], cap);
    assert_eq!(last_death(&bench), (Class::Done, Verdict::Restart, false));
    assert!(!bench.view.agent(&bench::name("a")).unwrap().is_flapping(bench.clock().mono));

    bench.pass(secs(60));
    bench.exit("a", 0);
    assert_eq!(bench.delays_ms("a").last(), Some(&100), "a longer life ends the loop");
    bench.pass(secs(1));
    bench.exit("a", 0);
    bench.pass(secs(1));
    bench.exit("a", 1);
    bench.pass(secs(1));
    bench.exit("a", 0);
    assert_eq!(bench.delays_ms("a").last(), Some(&100), "a failure ends the loop");
}

#[test]
fn eight_counted_deaths_in_a_row_end_a_slow_loop() {
    let mut bench = Bench::solo(&default());
    // Each life is too long for five deaths in 60 s, and too short for a success.
    for death in 1..=8 {
        assert_eq!(bench.state("a"), State::Running, "before death {death}");
        bench.pass(secs(1700));
        // Trouble outside neither counts nor resets.
        bench.end_as("a", Class::Network, None);
        bench.pass(secs(300));
        bench.pass(secs(60));
        bench.exit("a", 1);
        bench.pass(secs(30));
    }
    assert_eq!(bench.state("a"), State::CrashedOut);
}

/// Goal: 30 minutes of life are a success only if the run showed that it lives.
#[test]
fn life_without_a_sign_is_not_a_success() {
    let silent = || defib_core::run::ExitReport { spoke: false, ..Status::Exited(1).into() };
    let mut bench = Bench::solo(&default());
    for _ in 0..8 {
        bench.pass(secs(3600));
        bench.end("a", silent());
    }
    assert_eq!(bench.state("a"), State::CrashedOut);

    for beats in [true, false] {
        let mut bench = Bench::solo(&default());
        for _ in 0..8 {
            bench.pass(secs(3600));
            let (agent, run) = (bench.id("a"), bench.run("a"));
            let beat = Input::BeatSeen { agent, run };
            let sign = if beats { beat } else { Input::ActivitySeen { agent, run } };
            bench.tell(sign).unwrap();
            bench.end("a", silent());
        }
        assert_eq!(bench.state("a"), State::Backoff);
        assert_eq!(bench.delays_ms("a").last(), Some(&100));
    }
}

#[test]
fn full_context_after_a_fresh_start_halts() {
    let mut bench = Bench::solo(&default());
    bench.end_as("a", Class::Context, None);
    bench.pass(secs(1));
    assert_eq!(bench.state("a"), State::Running);
    bench.end_as("a", Class::Context, None);
    assert_eq!(bench.state("a"), State::Halted);

    let on = [(Class::Context, Order::Restart)].into();
    let mut bench = Bench::solo(&Policy { on, ..default() });
    for _ in 0..3 {
        bench.end_as("a", Class::Context, None);
        bench.pass(secs(1));
    }
    assert_eq!(bench.state("a"), State::Running, "the operator's own order wins");
}

/// Goal: a budget stops further runs and does not start a finished one again.
#[test]
fn finished_run_rests_as_done_although_its_budget_is_spent() {
    let done = |evidence: Option<&str>| defib_core::run::ExitReport {
        finding: evidence.map(|text| defib_core::run::Finding {
            class: Class::Done,
            evidence: Some(text.into()),
            resets_at: None,
        }),
        ..Status::Exited(0).into()
    };
    for by_day in [true, false] {
        let spend = |bench: &mut Bench| {
            let (agent, run) = (bench.id("a"), bench.run("a"));
            let spent_until = Some(bench.clock().wall + secs(3600));
            let by_day_seen = Input::AllowanceSeen { agent, spent_until };
            let input = if by_day { by_day_seen } else { Input::Overspent { agent, run } };
            bench.tell(input).unwrap();
        };
        // The money is counted after the process has ended.
        let mut bench = Bench::solo(&default());
        let (agent, run) = (bench.id("a"), bench.run("a"));
        bench.tell(Input::Ended { agent, run }).unwrap();
        spend(&mut bench);
        assert_eq!(bench.state("a"), State::Running, "its report decides");
        bench.end("a", done(None));
        assert_eq!(bench.state("a"), State::Done);
        // The money is counted while the process ends, and its final record says that it is done.
        let mut bench = Bench::solo(&default());
        bench.deaf.insert("a");
        spend(&mut bench);
        assert_eq!(bench.state("a"), State::Stopping);
        bench.end("a", done(Some("the final record")));
        assert_eq!(bench.state("a"), State::Done);
        let agent = bench.id("a");
        bench.tell(Input::AllowanceSeen { agent, spent_until: None }).unwrap();
        assert_eq!((bench.state("a"), bench.runs("a")), (State::Done, 1));
    }
}

#[test]
fn under_always_a_short_done_counts_as_a_death_in_the_documents_and_a_long_one_does_not() {
    let always =
        Policy { mode: Mode::Always, backoff: default().backoff, ..plain(Preset::Celistra) };
    let mut bench = Bench::solo(&always);
    for _ in 0..5 {
        bench.exit("a", 0);
        bench.pass(ms(100));
    }
    assert_eq!(bench.state("a"), State::CrashedOut, "no hot loop");
    assert_eq!(bench.delays_ms("a"), [100; 4], "each waits as the first");

    let mut bench = Bench::solo(&always);
    for _ in 0..50 {
        bench.pass(secs(60));
        bench.exit("a", 0);
        bench.pass(ms(100));
    }
    assert_eq!(bench.state("a"), State::Running);
}

#[test]
fn restarts_after_done_count_towards_limits_on_restarts() {
    let limits = vec![Limit::restarts(3, Span::Lifetime)];
    let mut bench = Bench::solo(&Policy { mode: Mode::Always, limits, ..default() });
    for _ in 0..3 {
        bench.pass(secs(3600));
        bench.exit("a", 0);
        bench.pass(secs(1));
        assert_eq!(bench.state("a"), State::Running);
    }
    bench.exit("a", 0);
    assert_eq!(bench.state("a"), State::CrashedOut);
}

#[test]
fn thirty_minutes_of_life_reset_the_default_backoff_and_less_does_not() {
    let mut bench = Bench::solo(&default());
    assert_eq!(bench.crash_loop("a", 1), [100, 200]);
    bench.pass(ms(1_799_999));
    assert_eq!(bench.crash_loop("a", 0), [400]);
    bench.pass(secs(1800));
    assert_eq!(bench.crash_loop("a", 0), [100]);
}

#[test]
fn each_limit_may_trip_and_says_its_numbers() {
    let limits =
        vec![Limit::restarts(100, Span::Lifetime), Limit::restarts(2, Span::Rolling(secs(60)))];
    let mut bench = Bench::solo(&Policy { limits, ..default() });
    bench.crash_loop("a", 100);
    assert_eq!(bench.runs("a"), 3);
    let tripped = bench.log.iter().find(|(_, r)| matches!(r.what, What::LimitTripped { .. }));
    let json = serde_json::to_value(&tripped.unwrap().1).unwrap();
    assert_eq!(json["restarts"], 2);
    assert_eq!(json["max"], 2);
    assert_eq!(json["within_s"], 60);
    let scheduled = bench.log.iter().find(|(_, r)| matches!(r.what, What::RestartScheduled { .. }));
    let json = serde_json::to_value(&scheduled.unwrap().1).unwrap();
    assert_eq!(json["max"], 2, "the limit that is nearest to tripping");
    assert_eq!(json["delay_ms"], 100);
}

#[test]
fn the_total_of_restarts_bounds_all_agents_together() {
    let agents = ["a", "b", "c"].map(|who| bench::agent(who, &default())).to_vec();
    let mut bench = Bench::new(
        Settings::default(),
        Topology { agents, max_total_restarts: Some(3), ..Topology::default() },
    );
    bench.tell(Input::UpAsked(defib_core::Scope::All)).unwrap();
    for who in ["a", "b", "c"] {
        bench.exit(who, 1);
    }
    bench.pass(secs(1));
    for who in ["a", "b", "c"] {
        assert_eq!(bench.state(who), State::Running);
    }
    bench.exit("b", 1);
    assert_eq!(bench.state("b"), State::CrashedOut);
    let reason = bench.supervisor.sight(bench.id("b")).reason;
    assert_eq!(reason, Some(Reason::Trip(Trip::Total)));
    assert_eq!(bench.supervisor.total_restarts(), 3);
    bench.exit("a", 0);
    assert_eq!(bench.state("a"), State::Done, "who needs no restart is not concerned");
}

#[test]
fn an_empty_balance_vetoes_every_mode_but_not_a_rest() {
    for (mode, code, state) in [
        (Mode::Always, 0, State::Halted),
        (Mode::Always, 1, State::Halted),
        (Mode::OnFailure, 1, State::Halted),
        (Mode::OnFailure, 0, State::Done),
        (Mode::Never, 1, State::Stopped),
    ] {
        let mut bench = Bench::solo(&Policy { mode, ..default() });
        let agent = bench.id("a");
        bench.tell(Input::BalanceSeen { agent, empty: true }).unwrap();
        bench.exit("a", code);
        assert_eq!(bench.state("a"), state, "{mode:?} exit {code}");
    }
}

#[test]
fn a_cron_agent_is_idle_between_ticks_and_ignores_those_it_cannot_use() {
    let mut bench = Bench::solo(&Policy { trigger: Trigger::Cron, ..default() });
    let agent = bench.id("a");
    assert_eq!(bench.state("a"), State::Idle);
    let tick = |bench: &mut Bench| bench.tell(Input::Triggered(agent)).unwrap();
    tick(&mut bench);
    assert_eq!(bench.runs("a"), 1);
    tick(&mut bench);
    assert_eq!(bench.runs("a"), 1, "while it runs");
    bench.exit("a", 1);
    tick(&mut bench);
    assert_eq!(bench.state("a"), State::Backoff, "while it backs off");
    bench.pass(ms(100));
    bench.exit("a", 0);
    assert_eq!(bench.state("a"), State::Idle);
    assert!(bench.told("a").any(|what| *what == What::Rested { rest: Rest::Idle }));
    tick(&mut bench);
    bench.crash_loop("a", 100);
    tick(&mut bench);
    assert_eq!(bench.state("a"), State::CrashedOut, "a tick revives nobody");
}

#[test]
fn a_report_of_a_run_that_is_over_is_noted_and_dropped() {
    let mut bench = Bench::solo(&default());
    let (agent, run) = (bench.id("a"), bench.run("a"));
    bench.exit("a", 1);
    bench.pass(ms(100));
    let (before, log) = (bench.supervisor.sight(agent), bench.log.len());
    bench.tell(Input::Exited { agent, run, report: Status::Exited(1).into() }).unwrap();
    bench.tell(Input::BeatSeen { agent, run }).unwrap();
    assert_eq!(bench.supervisor.sight(agent), before);
    assert_eq!((bench.stale, bench.log.len()), (2, log));
}

#[test]
fn three_counted_deaths_in_ten_minutes_are_flapping() {
    let mut bench = Bench::solo(&default());
    for (gap, flapping) in [(0, false), (298, false), (298, true), (1, true)] {
        bench.pass(secs(gap));
        bench.exit("a", 1);
        let view = bench.view.agent(&bench::name("a")).unwrap();
        assert_eq!(view.is_flapping(bench.clock().mono), flapping);
        bench.pass(secs(1));
    }
    bench.pass(secs(600));
    assert!(!bench.view.agent(&bench::name("a")).unwrap().is_flapping(bench.clock().mono));
}

#[test]
fn an_end_of_its_own_will_is_no_failure() {
    let mut bench = Bench::solo(&default());
    bench.end_as("a", Class::Voluntary, None);
    let scope = bench.scope("a");
    bench.tell(Input::StartAsked(scope)).unwrap();
    assert_eq!(bench.crash_loop("a", 0), [100]);
}
