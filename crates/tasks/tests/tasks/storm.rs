//! A task that dies without pause keeps nobody else from being restarted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use defib_tasks::{Context, Failure, Task};

use crate::{eager, ms, plain, secs};

/// On the real clock: a storm never lets a paused one go on.
async fn storm_beside_one_that_backs_off() {
    let deaths = Arc::new(AtomicU64::new(0));
    let counted = deaths.clone();
    let storm = Task::new("storm", move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Err::<(), _>(Failure::new("at once")) }
    })
    .policy(eager());
    let other = Task::new("other", |context: Context| async move {
        if context.run() <= 8 {
            return Err(Failure::new("now and then"));
        }
        context.stopped().await;
        Ok(())
    })
    .limits([])
    .edit(|policy| policy.backoff.cap = ms(5));
    let supervisor = plain().task(storm).task(other).start().unwrap();
    let mut sight = supervisor.watch("other").await.unwrap();
    let restarted = sight.wait_for(|sight| sight.run == 9);
    tokio::time::timeout(Duration::from_secs(60), restarted).await.expect("starved").unwrap();
    assert!(deaths.load(Ordering::SeqCst) > 8, "there was a storm");
    // And who asks is answered, and everything ends.
    tokio::time::timeout(secs(60), supervisor.stop("storm")).await.expect("starved").unwrap();
    let after = deaths.load(Ordering::SeqCst);
    supervisor.restart("other").await.unwrap();
    assert_eq!(deaths.load(Ordering::SeqCst), after, "what is stopped is not restarted");
    supervisor.shutdown().await;
}

#[tokio::test]
async fn a_storm_delays_no_other_restart_on_one_thread() {
    storm_beside_one_that_backs_off().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_delays_no_other_restart_on_two_threads() {
    storm_beside_one_that_backs_off().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_hangs_while_it_stops_delays_nobody() {
    let hung = Task::new("hung", |_| std::future::pending::<()>()).stop_timeout(secs(1000));
    let other = Task::new("other", |context: Context| async move {
        tokio::time::sleep(secs(1)).await;
        if context.run() <= 3 { Err(Failure::new("a bug")) } else { Ok(()) }
    });
    let supervisor = plain().task(hung).task(other).start().unwrap();
    let began = tokio::time::Instant::now();
    let handle = supervisor.handle();
    let stopping = tokio::spawn(async move { handle.stop("hung").await });
    crate::until(&supervisor, "other", |sight| sight.run == 4).await;
    assert_eq!(began.elapsed(), ms(3700));
    stopping.await.unwrap().unwrap();
    assert_eq!(began.elapsed(), secs(1000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_run_begins_when_nothing_is_left_of_the_last_on_several_threads() {
    /// Takes its time to go.
    struct Slow(Arc<AtomicU64>);
    impl Drop for Slow {
        fn drop(&mut self) {
            std::thread::sleep(ms(2));
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let (alive, overlaps) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (counted, seen) = (alive.clone(), overlaps.clone());
    let task = Task::new("a", move |context: Context| {
        let others = counted.fetch_add(1, Ordering::SeqCst);
        seen.fetch_add(others, Ordering::SeqCst);
        let slow = Slow(counted.clone());
        async move {
            std::future::pending::<()>().await;
            drop((slow, context));
        }
    })
    .stop_timeout(secs(0));
    let supervisor = plain().task(task).start().unwrap();
    // Somebody who asks without pause keeps the supervisor awake on another thread.
    let handle = supervisor.handle();
    let asking = tokio::spawn(async move { while handle.sights().await.is_ok() {} });
    for _ in 0..50 {
        let restarted = supervisor.restart("a");
        tokio::time::timeout(secs(60), restarted).await.expect("stuck").unwrap();
    }
    assert_eq!(overlaps.load(Ordering::SeqCst), 0);
    supervisor.shutdown().await;
    asking.await.unwrap();
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}
