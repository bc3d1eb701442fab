//! Stopping: asked first, aborted later, in reverse order; and nothing is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use defib_tasks::{Context, Error, Failure, Group, State, Strategy, Task, What};
use tokio::time::Instant;

use crate::{Log, plain, secs, until};

/// A task that takes a while to end, or does not end at all.
fn slow(name: &str, seconds: Option<u64>) -> Task {
    Task::new(name, move |context: Context| async move {
        context.stopped().await;
        match seconds {
            Some(seconds) => tokio::time::sleep(secs(seconds)).await,
            None => std::future::pending().await,
        }
    })
}

fn died(what: &What) -> bool {
    matches!(what, What::RunDied { .. })
}

#[tokio::test(start_paused = true)]
async fn shutdown_asks_members_in_reverse_order_and_waits_for_each() {
    let group = Group::new("g", Strategy::OneForOne)
        .task(slow("a", Some(1)))
        .task(slow("b", Some(2)))
        .task(slow("c", Some(4)));
    let (builder, log) = Log::of(plain().group(group));
    let supervisor = builder.start().unwrap();
    until(&supervisor, "c", |sight| sight.state == State::Running).await;
    let began = Instant::now();
    supervisor.shutdown().await;
    assert_eq!(began.elapsed(), secs(7), "one after the other");
    assert_eq!(log.order(0, died), ["c", "b", "a"]);
    let restarted = |what: &What| matches!(what, What::RestartScheduled { .. });
    assert!(!log.has(restarted), "what was asked to end is not restarted");
}

#[tokio::test(start_paused = true)]
async fn a_hung_task_is_aborted_after_its_stop_timeout() {
    let task = slow("a", None).stop_timeout(secs(3));
    let supervisor = plain().task(task).task(slow("b", Some(1))).start().unwrap();
    until(&supervisor, "a", |sight| sight.state == State::Running).await;
    let began = Instant::now();
    supervisor.stop("a").await.unwrap();
    assert_eq!(began.elapsed(), secs(3));
    let sight = supervisor.sight("a").await.unwrap();
    assert_eq!((sight.state, sight.run), (State::Stopped, 1));
    assert_eq!(supervisor.sight("b").await.unwrap().state, State::Running);
}

#[tokio::test(start_paused = true)]
async fn a_stop_timeout_of_zero_and_a_kill_abort_at_once() {
    let supervisor =
        plain().task(slow("a", None).stop_timeout(secs(0))).task(slow("b", None)).start().unwrap();
    let began = Instant::now();
    supervisor.stop("a").await.unwrap();
    supervisor.kill("b").await.unwrap();
    assert_eq!(began.elapsed(), secs(0));
}

#[tokio::test(start_paused = true)]
async fn more_time_that_was_asked_for_is_given() {
    let task = Task::new("a", |context: Context| async move {
        context.stopped().await;
        context.extend(secs(60));
        tokio::time::sleep(secs(50)).await;
    });
    let supervisor = plain().task(task).start().unwrap();
    let began = Instant::now();
    supervisor.stop("a").await.unwrap();
    assert_eq!(began.elapsed(), secs(50));
}

#[tokio::test(start_paused = true)]
async fn shutdown_during_backoff_starts_nothing_any_more() {
    let task = Task::new("a", |_| async { Err::<(), _>(Failure::new("a bug")) })
        .edit(|policy| policy.backoff.base = secs(20));
    let (builder, log) = Log::of(plain().task(task));
    let supervisor = builder.start().unwrap();
    until(&supervisor, "a", |sight| sight.state == State::Backoff).await;
    let began = Instant::now();
    supervisor.shutdown().await;
    assert_eq!(began.elapsed(), secs(0), "there is nothing to wait for");
    tokio::time::sleep(secs(3600)).await;
    let started = log.order(0, |what| matches!(what, What::RunStarted { .. }));
    assert_eq!(started.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_was_stopped_stays_stopped_until_it_is_started() {
    let supervisor = plain().task(slow("a", Some(0))).start().unwrap();
    supervisor.stop("a").await.unwrap();
    tokio::time::sleep(secs(100_000)).await;
    assert_eq!(supervisor.sight("a").await.unwrap().state, State::Stopped);
    supervisor.start("a").await.unwrap();
    let sight = supervisor.sight("a").await.unwrap();
    assert_eq!((sight.state, sight.run, sight.restarts), (State::Running, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_manual_restart_counts_towards_no_limit() {
    let supervisor = plain().task(slow("a", Some(0))).start().unwrap();
    for _ in 0..50 {
        supervisor.restart("a").await.unwrap();
    }
    let sight = supervisor.sight("a").await.unwrap();
    assert_eq!((sight.state, sight.run, sight.restarts), (State::Running, 51, 0));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_supervisor_ends_its_tasks() {
    struct Alive(Arc<AtomicU32>);
    impl Drop for Alive {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let alive = Arc::new(AtomicU32::new(0));
    let tasks = (0..100).map(|number| {
        let alive = alive.clone();
        Task::new(format!("t{number}"), move |_| {
            alive.fetch_add(1, Ordering::SeqCst);
            let alive = Alive(alive.clone());
            async move {
                std::future::pending::<()>().await;
                drop(alive);
            }
        })
    });
    let supervisor = plain().tasks(tasks).start().unwrap();
    let handle = supervisor.handle();
    until(&supervisor, "t99", |sight| sight.state == State::Running).await;
    while alive.load(Ordering::SeqCst) < 100 {
        tokio::task::yield_now().await;
    }
    drop(supervisor);
    handle.ended().await;
    tokio::time::sleep(secs(1)).await;
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    assert_eq!(handle.sights().await.unwrap_err(), Error::Ended);
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_that_has_ended_says_so() {
    let supervisor = plain().task(slow("a", Some(0))).start().unwrap();
    let mut events = supervisor.events(10);
    let mut sight = supervisor.watch("a").await.unwrap();
    supervisor.shutdown().await;
    supervisor.shutdown().await;
    assert_eq!(supervisor.stop("a").await, Err(Error::Ended));
    assert_eq!(supervisor.add(slow("b", None)).await, Err(Error::Ended));
    while events.next().await.is_some() {}
    while sight.changed().await.is_ok() {}
    assert_eq!(sight.borrow().state, State::Stopped);
}
