//! The tests that plan 145 requires, by the names it gives them, and the rest of what it says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use defib_tasks::ecology::{AgentSupervisor, CrashReason, RestartPolicy};
use defib_tasks::{AgentLoop, Class, Context, Failure, Looping, Next, State};
use tokio::time::Instant;

use crate::{Log, ms, plain, rest, secs, until};

/// An agent that fails as long as its switch says so.
struct Agent {
    bugs: Arc<AtomicU32>,
    class: Class,
}

impl AgentLoop for Agent {
    type State = Vec<String>;
    type Error = Failure;

    async fn iterate(
        &mut self,
        memory: &mut Vec<String>,
        context: &Context,
    ) -> Result<Next, Failure> {
        memory.push(format!("run {}", context.run()));
        let has_bug = |bugs: u32| bugs.checked_sub(1);
        match self.bugs.fetch_update(Ordering::SeqCst, Ordering::SeqCst, has_bug) {
            Ok(_) => Err(Failure::of(self.class, "a bug")),
            Err(_) => Ok(Next::After(secs(1_000_000))),
        }
    }
}

/// A loop with so many bugs, in the order it meets them.
fn buggy(bugs: u32, class: Class) -> Looping<Agent> {
    let bugs = Arc::new(AtomicU32::new(bugs));
    Looping::new(Vec::new(), move || Agent { bugs: bugs.clone(), class }).pause_after(1)
}

fn simulation(policy: RestartPolicy) -> (AgentSupervisor, Log) {
    let (builder, log) = Log::of(plain());
    (AgentSupervisor::start_with(policy, builder).unwrap(), log)
}

#[test]
fn the_policys_defaults_are_the_plans() {
    let policy = RestartPolicy::default();
    assert!(policy.enabled && policy.restart_on_error && policy.restart_on_timeout);
    assert!(!policy.restart_on_resource_exhaustion);
    assert_eq!(policy.max_restarts, 10);
    let seconds = [policy.initial_backoff_seconds, policy.max_backoff_seconds];
    assert_eq!(seconds.map(|s| s.to_string()), ["5", "300"]);
    assert_eq!(policy.backoff_multiplier.to_string(), "2");
    assert_eq!(policy.policy(), defib_tasks::Preset::Ecology.policy(), "which is the rule set");
}

#[tokio::test(start_paused = true)]
async fn test_supervisor_detects_crashed_agent() {
    let (supervisor, _log) = simulation(RestartPolicy::default());
    supervisor.spawn("a", buggy(1, Class::Error), || 1.0).await.unwrap();
    let sight = until(&supervisor.handle(), "a", |sight| sight.state == State::Backoff).await;
    let death = sight.last_death.unwrap();
    assert_eq!(CrashReason::of(death.class), Some(CrashReason::Runtime));
    assert_eq!(death.evidence.as_deref(), Some("a bug (error 1 in a row: paused)"));
}

#[tokio::test(start_paused = true)]
async fn test_supervisor_restarts_dumb_death() {
    for class in [Class::Error, Class::Timeout] {
        let (supervisor, _log) = simulation(RestartPolicy::default());
        let began = Instant::now();
        supervisor.spawn("a", buggy(1, class), || 1.0).await.unwrap();
        until(&supervisor.handle(), "a", |sight| sight.run == 2).await;
        assert_eq!(began.elapsed(), secs(5));
    }
}

#[tokio::test(start_paused = true)]
async fn test_supervisor_no_restart_smart_death() {
    let (supervisor, _log) = simulation(RestartPolicy::default());
    let scrip = Arc::new(AtomicU32::new(0));
    let purse = scrip.clone();
    let looping = buggy(1, Class::Error);
    let owned = move || f64::from(purse.load(Ordering::SeqCst));
    supervisor.spawn("a", looping, owned).await.unwrap();
    let handle = supervisor.handle();
    rest(&handle).await;
    let sight = handle.sight("a").await.unwrap();
    assert_eq!((sight.state, sight.run), (State::Halted, 1));
    let state = supervisor.state();
    assert_eq!((state.total_restarts, state.total_permanent_deaths), (0, 1));
    scrip.store(1, Ordering::SeqCst);
    handle.fund("a").await.unwrap();
    assert_eq!(handle.sight("a").await.unwrap().state, State::Running);
}

#[tokio::test(start_paused = true)]
async fn test_supervisor_backoff_increases() {
    let (supervisor, log) = simulation(RestartPolicy::default());
    supervisor.spawn("a", buggy(8, Class::Error), || 1.0).await.unwrap();
    until(&supervisor.handle(), "a", |sight| sight.run == 9).await;
    let delays = [5000, 10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000];
    assert_eq!(log.delays_ms(), delays);
}

#[tokio::test(start_paused = true)]
async fn backoff_has_jitter() {
    let builder = plain().jitter_seed(7);
    let (builder, log) = Log::of(builder);
    let supervisor = AgentSupervisor::start_with(RestartPolicy::default(), builder).unwrap();
    supervisor.spawn("a", buggy(4, Class::Error), || 1.0).await.unwrap();
    until(&supervisor.handle(), "a", |sight| sight.run == 5).await;
    for (delay, plain) in log.delays_ms().into_iter().zip([5000, 10_000, 20_000, 40_000]) {
        assert!(delay != plain && delay.abs_diff(plain) <= plain / 10, "{delay} for {plain}");
    }
}

#[tokio::test(start_paused = true)]
async fn test_supervisor_max_restarts() {
    let policy = RestartPolicy { max_restarts: 3, ..RestartPolicy::default() };
    let (supervisor, _log) = simulation(policy);
    supervisor.spawn("a", buggy(100, Class::Error), || 1.0).await.unwrap();
    let handle = supervisor.handle();
    rest(&handle).await;
    let sight = handle.sight("a").await.unwrap();
    assert_eq!((sight.state, sight.run), (State::CrashedOut, 4));
    let state = supervisor.state();
    assert_eq!(state.agent_restart_counts["a"], 3);
    assert_eq!((state.total_restarts, state.total_permanent_deaths), (3, 1));
    tokio::time::sleep(secs(3600)).await;
    assert_eq!(supervisor.state().agent_restart_counts["a"], 0, "they are counted per hour");
    assert_eq!(supervisor.state().total_restarts, 3);
}

#[tokio::test(start_paused = true)]
async fn the_whole_simulation_has_a_limit_too() {
    let builder = plain().max_total_restarts(3);
    let supervisor = AgentSupervisor::start_with(RestartPolicy::default(), builder).unwrap();
    for agent in ["a", "b"] {
        supervisor.spawn(agent, buggy(100, Class::Error), || 1.0).await.unwrap();
    }
    rest(&supervisor.handle()).await;
    let state = supervisor.state();
    assert_eq!((state.total_restarts, state.total_permanent_deaths), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn test_restart_preserves_state() {
    let (supervisor, _log) = simulation(RestartPolicy::default());
    let looping = buggy(2, Class::Error);
    let memory = looping.state();
    supervisor.spawn("a", looping, || 1.0).await.unwrap();
    until(&supervisor.handle(), "a", |sight| sight.run == 3).await;
    tokio::time::sleep(secs(1)).await;
    assert_eq!(*memory.lock().await, ["run 1", "run 2", "run 3"]);
}

#[tokio::test(start_paused = true)]
async fn test_restart_resets_errors() {
    let (supervisor, _log) = simulation(RestartPolicy::default());
    let looping = buggy(5, Class::Error).pause_after(3);
    let memory = looping.state();
    supervisor.spawn("a", looping, || 1.0).await.unwrap();
    until(&supervisor.handle(), "a", |sight| sight.run == 2).await;
    tokio::time::sleep(secs(1)).await;
    let sight = supervisor.handle().sight("a").await.unwrap();
    assert_eq!((sight.state, sight.run), (State::Running, 2), "two errors of three, from zero on");
    assert_eq!(memory.lock().await.len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_is_exhausted_is_waited_for_unless_it_should_restart() {
    for (restart, waits) in [(false, true), (true, false)] {
        let policy =
            RestartPolicy { restart_on_resource_exhaustion: restart, ..RestartPolicy::default() };
        let (supervisor, log) = simulation(policy);
        supervisor.spawn("a", buggy(1, Class::Quota), || 1.0).await.unwrap();
        let sight = until(&supervisor.handle(), "a", |sight| sight.run == 2).await;
        assert_eq!(sight.restarts, u32::from(restart));
        assert_eq!(log.delays_ms().is_empty(), waits);
        assert_eq!(supervisor.state().crash_reasons[&CrashReason::Resource], 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_policy_does_not_restart_stays_down() {
    let base = RestartPolicy::default();
    for (policy, class, state) in [
        (RestartPolicy { enabled: false, ..base }, Class::Error, State::Stopped),
        (RestartPolicy { restart_on_error: false, ..base }, Class::Error, State::Halted),
        (RestartPolicy { restart_on_error: false, ..base }, Class::Overload, State::Halted),
        (RestartPolicy { restart_on_timeout: false, ..base }, Class::Timeout, State::Halted),
    ] {
        let (supervisor, _log) = simulation(policy);
        supervisor.spawn("a", buggy(1, class), || 1.0).await.unwrap();
        rest(&supervisor.handle()).await;
        let sight = supervisor.handle().sight("a").await.unwrap();
        assert_eq!((sight.state, sight.run), (state, 1), "{class}");
        assert_eq!(supervisor.state().total_permanent_deaths, 1, "{class}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_state_has_the_plans_numbers() {
    let (supervisor, log) = simulation(RestartPolicy::default());
    supervisor.spawn("a", buggy(3, Class::Error), || 1.0).await.unwrap();
    supervisor.spawn("b", buggy(1, Class::Timeout), || 1.0).await.unwrap();
    until(&supervisor.handle(), "a", |sight| sight.run == 4).await;
    let state = supervisor.state();
    assert_eq!((state.agent_restart_counts["a"], state.agent_restart_counts["b"]), (3, 1));
    assert_eq!(state.agent_current_backoff["a"].to_string(), "40", "20 s times two");
    assert_eq!(state.agent_current_backoff["b"].to_string(), "10");
    assert_eq!(state.agent_time_to_recovery["a"], secs(20));
    let last = log.events().into_iter().rev().find(|event| event.record.agent.as_str() == "a");
    let apart = last.unwrap().at.duration_since(state.agent_last_restart["a"]).unwrap();
    assert!(apart < ms(10));
    assert_eq!(state.total_restarts, 4);
    assert_eq!(state.crash_reasons[&CrashReason::Runtime], 3);
    assert_eq!(state.crash_reasons[&CrashReason::Timeout], 1);
}

#[tokio::test(start_paused = true)]
async fn one_agents_backoff_never_delays_another() {
    let (supervisor, _log) = simulation(RestartPolicy::default());
    let began = Instant::now();
    for agent in 0..50 {
        supervisor.spawn(&format!("a{agent}"), buggy(1, Class::Error), || 1.0).await.unwrap();
    }
    for agent in 0..50 {
        until(&supervisor.handle(), &format!("a{agent}"), |sight| sight.run == 2).await;
    }
    assert_eq!(began.elapsed(), secs(5), "all of them at once");
}
