//! What the self-healing supervisor's document says of its types.

use std::sync::Arc;
use std::time::Instant;

use defib_tasks::weft::{
    AgentConfig, AgentSupervisor, RestartBudget, RestartStrategy, RestartTracker,
};
use defib_tasks::{Context, Error, State, What};
use tokio::sync::Notify;
use tokio::time::advance;

use crate::{Log, ms, plain, rest, secs, until};

const THREE: RestartBudget = RestartBudget { max_restarts: 3, within_secs: 30 };

#[test]
fn the_default_strategy_is_one_for_one_and_the_default_budget_five_in_60_seconds() {
    assert_eq!(RestartStrategy::default(), RestartStrategy::OneForOne);
    assert_eq!(RestartBudget::default(), RestartBudget { max_restarts: 5, within_secs: 60 });
}

#[test]
fn should_restart_goes_by_strategy_and_exit_code() {
    let tracker = RestartTracker::new();
    for (strategy, on_zero, on_one) in [
        (RestartStrategy::OneForOne, true, true),
        (RestartStrategy::OneForAll, true, true),
        (RestartStrategy::RestForOne, true, true),
        (RestartStrategy::Permanent, false, false),
        (RestartStrategy::Transient, false, true),
    ] {
        let restarts = [0, 1].map(|code| tracker.should_restart(strategy, code));
        assert_eq!(restarts, [on_zero, on_one], "{strategy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn record_restart_says_false_once_the_budget_is_exceeded() {
    let budget = RestartBudget::default();
    let mut tracker = RestartTracker::new();
    for left in (0..5).rev() {
        assert!(!tracker.is_exhausted(&budget));
        assert!(tracker.record_restart(&budget));
        assert_eq!(tracker.remaining(&budget), left);
    }
    assert!(tracker.is_exhausted(&budget));
    assert!(!tracker.record_restart(&budget));
    assert_eq!(tracker.restart_count, 5, "what was refused is not counted");
}

#[tokio::test(start_paused = true)]
async fn the_window_resets_once_within_secs_have_passed_since_its_first_restart() {
    let mut tracker = RestartTracker::new();
    advance(secs(100)).await;
    for _ in 0..3 {
        assert!(tracker.record_restart(&THREE));
        advance(secs(5)).await;
    }
    let first = tracker.window_start;
    advance(ms(14_999)).await;
    assert!(!tracker.record_restart(&THREE));
    advance(ms(1)).await;
    assert_eq!(tracker.remaining(&THREE), 3);
    assert!(tracker.record_restart(&THREE));
    assert_eq!((tracker.restart_count, tracker.backoff_ms), (1, 100));
    assert_eq!(tracker.window_start - first, secs(30));
    assert_eq!(tracker.last_restart, Some(tracker.window_start));
}

#[test]
fn backoff_is_100_ms_doubled_up_to_30_s() {
    let mut tracker = RestartTracker::new();
    assert_eq!(tracker.next_backoff_ms(), 100, "before the first");
    let mut delays = Vec::new();
    let plenty = RestartBudget { max_restarts: u32::MAX, within_secs: 3600 };
    for _ in 0..11 {
        assert!(tracker.record_restart(&plenty));
        assert_eq!(tracker.backoff_ms, tracker.next_backoff_ms());
        delays.push(tracker.backoff_ms);
    }
    assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
    tracker.restart_count = u32::MAX;
    assert_eq!(tracker.next_backoff_ms(), 30_000, "nothing overflows");
}

#[test]
fn the_documented_fields_are_the_truth() {
    let now = Instant::now();
    let tracker = RestartTracker {
        restart_count: 2,
        window_start: now,
        last_restart: Some(now),
        backoff_ms: 200,
    };
    assert_eq!(tracker.remaining(&THREE), 1);
    assert_eq!(tracker.next_backoff_ms(), 200);
}

/// An agent that ends with a code when it is told to.
fn agent(name: &str, code: i32, end: &Arc<Notify>) -> AgentConfig {
    let end = end.clone();
    AgentConfig::new(name, move |context: Context| {
        let end = end.clone();
        async move {
            tokio::select! {
                () = context.stopped() => 0,
                () = end.notified() => code,
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn spawn_supervised_applies_the_dead_agents_own_strategy() {
    for (strategy, code, runs) in [
        (RestartStrategy::OneForOne, 1, [1, 2, 1]),
        (RestartStrategy::OneForOne, 0, [1, 2, 1]),
        (RestartStrategy::OneForAll, 1, [2, 2, 2]),
        (RestartStrategy::RestForOne, 1, [1, 2, 2]),
        (RestartStrategy::Permanent, 1, [1, 1, 1]),
        (RestartStrategy::Transient, 0, [1, 1, 1]),
        (RestartStrategy::Transient, 1, [1, 2, 1]),
    ] {
        let end = Arc::new(Notify::new());
        let never = Arc::new(Notify::new());
        let supervisor = AgentSupervisor::start_with(plain()).unwrap();
        let spawn = |config, strategy| supervisor.spawn_supervised(config, strategy, THREE);
        spawn(agent("a", 1, &never), RestartStrategy::OneForOne).unwrap();
        spawn(agent("b", code, &end), strategy).unwrap();
        spawn(agent("c", 1, &never), RestartStrategy::OneForAll).unwrap();
        let handle = supervisor.handle();
        until(&handle, "c", |sight| sight.state == State::Running).await;
        end.notify_one();
        tokio::time::sleep(secs(10)).await;
        let seen: Vec<u64> =
            handle.sights().await.unwrap().iter().map(|(_, sight)| sight.run).collect();
        assert_eq!(seen, runs, "{strategy:?} after {code}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_budget_stops_the_supervisor_and_tells() {
    let never = Arc::new(Notify::new());
    let (builder, log) = Log::of(plain());
    let supervisor = AgentSupervisor::start_with(builder).unwrap();
    let crash = AgentConfig::new("crash", |_| async { 1 });
    supervisor.spawn_supervised(agent("a", 1, &never), RestartStrategy::OneForOne, THREE).unwrap();
    supervisor.spawn_supervised(crash, RestartStrategy::OneForOne, THREE).unwrap();
    let handle = supervisor.handle();
    rest(&handle).await;
    assert_eq!(log.delays_ms(), [100, 200, 400]);
    for (name, sight) in handle.sights().await.unwrap() {
        assert_eq!(sight.state, State::CrashedOut, "{name}");
    }
    assert!(log.has(|what| matches!(what, What::Escalated { to: None, .. })));
}

#[tokio::test(start_paused = true)]
async fn a_parent_restarts_a_child_that_escalates_within_its_own_budget() {
    let never = Arc::new(Notify::new());
    let (builder, log) = Log::of(plain());
    let root = AgentSupervisor::start_with(builder).unwrap();
    root.spawn_supervised(agent("beside", 1, &never), RestartStrategy::OneForOne, THREE).unwrap();
    let once = RestartBudget { max_restarts: 1, within_secs: 60 };
    let child = root.child("child", once).unwrap();
    child.spawn_supervised(agent("a", 1, &never), RestartStrategy::OneForOne, once).unwrap();
    let crash = AgentConfig::new("crash", |_| async { 1 });
    child.spawn_supervised(crash, RestartStrategy::OneForOne, once).unwrap();
    let handle = root.handle();
    rest(&handle).await;
    // Once by its own budget, once by the parent, once more by its own; then all is over.
    assert_eq!(handle.sight("crash").await.unwrap().run, 4);
    assert_eq!(handle.sight("a").await.unwrap().run, 2, "the child was restarted as a whole");
    assert_eq!(handle.sight("beside").await.unwrap().run, 1);
    for (name, sight) in handle.sights().await.unwrap() {
        assert_eq!(sight.state, State::CrashedOut, "{name}");
    }
    assert!(log.has(|what| matches!(what, What::Escalated { to: None, .. })));
}

#[tokio::test(start_paused = true)]
async fn a_name_is_taken_once() {
    let never = Arc::new(Notify::new());
    let supervisor = AgentSupervisor::start().unwrap();
    let spawn = |name| {
        let config = agent(name, 1, &never);
        supervisor.spawn_supervised(config, RestartStrategy::OneForOne, THREE)
    };
    spawn("a").unwrap();
    assert!(spawn("a").is_err());
    assert!(spawn("supervisor").is_err());
    assert!(spawn("no name").is_err());
}

#[tokio::test(start_paused = true)]
async fn a_child_takes_the_names_of_all_its_groups() {
    let never = Arc::new(Notify::new());
    let supervisor = AgentSupervisor::start_with(plain()).unwrap();
    supervisor.child("child", THREE).unwrap();
    for taken in ["child", "child.agents", "child.restarts", "supervisor.agents"] {
        let spawned =
            supervisor.spawn_supervised(agent(taken, 1, &never), RestartStrategy::OneForOne, THREE);
        assert_eq!(spawned, Err(Error::NameTaken(taken.into())));
        assert!(supervisor.child(taken, THREE).is_err(), "{taken}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_is_free_again_once_nothing_is_left_of_its_agent() {
    let never = Arc::new(Notify::new());
    let supervisor = AgentSupervisor::start_with(plain()).unwrap();
    let handle = supervisor.handle();
    let spawn = |name: &str| {
        let config = agent(name, 1, &never);
        supervisor.spawn_supervised(config, RestartStrategy::OneForOne, THREE)
    };
    spawn("a").unwrap();
    until(&handle, "a", |sight| sight.state == State::Running).await;
    handle.remove("a").await.unwrap();
    spawn("a").unwrap();
    let sight = until(&handle, "a", |sight| sight.state == State::Running).await;
    assert_eq!(sight.run, 2);
    let idle = |name: &str| {
        defib_tasks::Task::new(name, |context: Context| async move { context.stopped().await })
    };
    handle.add(idle("b")).await.unwrap();
    assert_eq!(spawn("b"), Err(Error::NameTaken("b".into())), "whoever added it");
    // What is refused takes no name.
    assert!(handle.add(idle("c").after(["nobody"])).await.is_err());
    spawn("c").unwrap();
    until(&handle, "c", |sight| sight.state == State::Running).await;
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_that_ends_says_so_to_whoever_spawns() {
    let never = Arc::new(Notify::new());
    let supervisor = AgentSupervisor::start_with(plain()).unwrap();
    let slow = AgentConfig::new("slow", |context: Context| async move {
        context.stopped().await;
        tokio::time::sleep(secs(5)).await;
    });
    supervisor.spawn_supervised(slow, RestartStrategy::OneForOne, THREE).unwrap();
    let handle = supervisor.handle();
    until(&handle, "slow", |sight| sight.state == State::Running).await;
    let ending = tokio::spawn(async move { handle.shutdown().await });
    tokio::time::sleep(secs(1)).await;
    let late =
        supervisor.spawn_supervised(agent("late", 1, &never), RestartStrategy::OneForOne, THREE);
    assert_eq!(late, Err(Error::Ended));
    assert_eq!(supervisor.child("late", THREE).err(), Some(Error::Ended));
    ending.await.unwrap();
}
