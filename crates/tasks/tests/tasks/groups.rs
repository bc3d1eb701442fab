//! Groups: who is restarted, in which order, and when a group has failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use defib_tasks::{Context, Failure, Group, Limit, Span, State, Strategy, Task, What};
use tokio::sync::Notify;

use crate::{Log, ms, plain, secs, until};

/// A member that fails when it is told to.
fn member(name: &str, fail: Option<Arc<Notify>>) -> Task {
    Task::new(name, move |context: Context| {
        let fail = fail.clone();
        async move {
            let failing = async {
                match &fail {
                    Some(fail) => fail.notified().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = context.stopped() => Ok(()),
                () = failing => Err(Failure::new("a bug")),
            }
        }
    })
}

fn pipeline(strategy: Strategy) -> (Group, Arc<Notify>) {
    let fail = Arc::new(Notify::new());
    let group = Group::new("g", strategy)
        .task(member("a", None))
        .task(member("b", Some(fail.clone())))
        .task(member("c", None))
        .task(member("d", None));
    (group, fail)
}

fn died(what: &What) -> bool {
    matches!(what, What::RunDied { .. })
}

fn started(what: &What) -> bool {
    matches!(what, What::RunStarted { .. })
}

#[tokio::test(start_paused = true)]
async fn each_strategy_restarts_its_members_in_order_after_stopping_them_in_reverse() {
    for (strategy, deaths, starts) in [
        (Strategy::OneForOne, vec!["b"], vec!["b"]),
        (Strategy::OneForAll, vec!["b", "d", "c", "a"], vec!["a", "b", "c", "d"]),
        (Strategy::RestForOne, vec!["b", "d", "c"], vec!["b", "c", "d"]),
    ] {
        let (group, fail) = pipeline(strategy);
        let (builder, log) = Log::of(plain().group(group));
        let supervisor = builder.start().unwrap();
        until(&supervisor, "d", |sight| sight.state == State::Running).await;
        assert_eq!(log.order(0, started), ["a", "b", "c", "d"]);
        let from = log.len();
        fail.notify_one();
        let last = *starts.last().unwrap();
        until(&supervisor, last, |sight| sight.run == 2 && sight.state == State::Running).await;
        assert_eq!(log.order(from, died), deaths, "{strategy}");
        assert_eq!(log.order(from, started), starts, "{strategy}");
        for (name, sight) in supervisor.sights().await.unwrap() {
            let restarts = u32::from(name == "b");
            assert_eq!(
                sight.restarts, restarts,
                "{name} of {strategy}: others are charged nothing"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_budget_is_exhausted_goes_down_and_everything_else_runs_on() {
    let (group, fail) = pipeline(Strategy::OneForAll);
    let group = group.budget(Limit::restarts(2, Span::Rolling(secs(60))));
    let (builder, log) = Log::of(plain().group(group).task(member("outside", None)));
    let supervisor = builder.start().unwrap();
    for run in 2..=3 {
        fail.notify_one();
        until(&supervisor, "d", |sight| sight.run == run && sight.state == State::Running).await;
    }
    let from = log.len();
    fail.notify_one();
    for name in ["a", "b", "c", "d"] {
        until(&supervisor, name, |sight| sight.state == State::CrashedOut).await;
    }
    assert_eq!(log.order(from, died), ["b", "d", "c", "a"]);
    assert_eq!(supervisor.sight("outside").await.unwrap().state, State::Running);
    assert!(log.has(|what| matches!(what, What::Escalated { to: None, .. })));
    supervisor.revive("g").await.unwrap();
    assert_eq!(supervisor.sight("a").await.unwrap().state, State::Running);
}

#[tokio::test(start_paused = true)]
async fn a_failed_group_is_restarted_by_its_parent() {
    let (inner, fail) = pipeline(Strategy::OneForOne);
    let inner = inner.budget(Limit::restarts(0, Span::Lifetime));
    let outer = Group::new("outer", Strategy::OneForAll).task(member("first", None)).group(inner);
    let (builder, log) = Log::of(plain().group(outer));
    let supervisor = builder.start().unwrap();
    until(&supervisor, "d", |sight| sight.state == State::Running).await;
    let from = log.len();
    fail.notify_one();
    until(&supervisor, "d", |sight| sight.run == 2 && sight.state == State::Running).await;
    assert_eq!(log.order(from, started), ["first", "a", "b", "c", "d"]);
}

#[tokio::test(start_paused = true)]
async fn who_comes_after_another_starts_when_that_is_ready_and_stops_before_it() {
    let database = Task::new("database", |context: Context| async move {
        tokio::time::sleep(secs(3)).await;
        context.ready();
        context.stopped().await;
    })
    .edit(|policy| policy.ready = defib_tasks::Ready::WhenTold);
    let (builder, log) =
        Log::of(plain().task(member("web", None).after(["database"])).task(database));
    let supervisor = builder.start().unwrap();
    let began = tokio::time::Instant::now();
    until(&supervisor, "web", |sight| sight.state == State::Running).await;
    assert_eq!(began.elapsed(), secs(3));
    let from = log.len();
    supervisor.shutdown().await;
    assert_eq!(log.order(from, died), ["web", "database"]);
}

#[tokio::test(start_paused = true)]
async fn runs_of_one_task_never_overlap_and_the_next_begins_when_nothing_is_left_of_the_last() {
    struct Alive(Arc<AtomicU32>);
    impl Drop for Alive {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let alive = Arc::new(AtomicU32::new(0));
    let counted = alive.clone();
    let task = Task::new("a", move |context: Context| {
        let alive = Alive(counted.clone());
        let before = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            assert_eq!(before, 0, "two runs at once");
            let _alive = alive;
            if context.run().is_multiple_of(3) {
                context.stopped().await;
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(ms(10)).await;
            assert!(context.run() % 3 == 1, "a bug");
            Err::<(), _>(Failure::new("an error"))
        }
    })
    .policy(crate::eager());
    let supervisor = plain().task(task).start().unwrap();
    for turn in 1..=10 {
        until(&supervisor, "a", |sight| sight.run == 3 * turn).await;
        supervisor.restart("a").await.unwrap();
    }
    assert_eq!(alive.load(Ordering::SeqCst), 1);
    supervisor.shutdown().await;
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}
