//! Loops: iterations, counted errors, the pause, and the state that outlives a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use defib_tasks::{AgentLoop, Class, Context, Failure, Looping, Next, Preset, State, Task};
use tokio::time::Instant;

use crate::{Log, plain, rest, secs, until};

/// Does in each iteration what its script says, in turn; the script goes on across runs.
struct Scripted {
    script: &'static [Deed],
    /// How many iterations this very loop has made.
    iterations: u32,
}

#[derive(Clone, Copy)]
enum Deed {
    Well,
    Fail,
    Panic,
    Hang,
    Finish,
    Leave,
    Sleep(u64),
}

#[derive(Default)]
struct Memory {
    at: usize,
    /// Of each iteration, which one of its loop it was.
    seen: Vec<u32>,
}

impl AgentLoop for Scripted {
    type State = Memory;
    type Error = Failure;

    async fn iterate(&mut self, memory: &mut Memory, _: &Context) -> Result<Next, Failure> {
        self.iterations += 1;
        memory.seen.push(self.iterations);
        let deed = self.script[memory.at];
        memory.at += 1;
        match deed {
            Deed::Well => Ok(Next::Again),
            Deed::Fail => Err(Failure::new("a bug")),
            Deed::Panic => panic!("a worse bug"),
            Deed::Hang => std::future::pending().await,
            Deed::Finish => Ok(Next::Done),
            Deed::Leave => Ok(Next::Shutdown),
            Deed::Sleep(seconds) => Ok(Next::After(secs(seconds))),
        }
    }
}

fn scripted(script: &'static [Deed]) -> Looping<Scripted> {
    Looping::new(Memory::default(), move || Scripted { script, iterations: 0 })
}

#[tokio::test(start_paused = true)]
async fn so_many_errors_in_a_row_pause_a_loop_and_a_success_forgets_them() {
    use Deed::{Fail, Finish, Well};
    let looping = scripted(&[Fail, Fail, Well, Fail, Fail, Well, Fail, Fail, Fail, Finish]);
    let memory = looping.state();
    let task = Task::looping("a", looping.pause_after(3));
    let supervisor = plain().task(task).start().unwrap();
    let sight = until(&supervisor, "a", |sight| sight.state == State::Backoff).await;
    let death = sight.last_death.unwrap();
    assert_eq!(death.class, Class::Error);
    assert_eq!(death.evidence.as_deref(), Some("a bug (error 3 in a row: paused)"));
    assert_eq!(memory.lock().await.at, 9);
    rest(&supervisor).await;
    assert_eq!(supervisor.sight("a").await.unwrap().state, State::Done);
}

#[tokio::test(start_paused = true)]
async fn a_restart_is_a_fresh_loop_with_no_errors_and_the_state_of_the_last() {
    use Deed::{Fail, Finish, Panic, Well};
    let looping = scripted(&[Well, Fail, Panic, Fail, Well, Fail, Fail, Fail, Finish]);
    let memory = looping.state();
    let supervisor = plain().task(Task::looping("a", looping.pause_after(2))).start().unwrap();
    rest(&supervisor).await;
    let seen = memory.lock().await.seen.clone();
    assert_eq!(seen, [1, 2, 3, 1, 2, 3, 4, 1, 2], "each run counts from one, on one memory");
    assert_eq!(supervisor.sight("a").await.unwrap().run, 3);
}

#[tokio::test(start_paused = true)]
async fn an_iteration_that_takes_too_long_is_a_timeout() {
    let looping = scripted(&[Deed::Hang, Deed::Finish]).pause_after(1).iteration_timeout(secs(30));
    let supervisor = plain().task(Task::looping("a", looping)).start().unwrap();
    let began = Instant::now();
    let sight = until(&supervisor, "a", |sight| sight.state == State::Backoff).await;
    assert_eq!(began.elapsed(), secs(30));
    assert_eq!(sight.last_death.unwrap().class, Class::Timeout);
}

#[tokio::test(start_paused = true)]
async fn a_successful_iteration_resets_the_backoff_where_the_policy_has_it_so() {
    use Deed::{Fail, Finish, Well};
    let looping = scripted(&[Fail, Fail, Fail, Well, Fail, Fail, Finish]).pause_after(1);
    let task = Task::looping("a", looping).preset(Preset::Ecology);
    let (builder, log) = Log::of(plain().task(task));
    let supervisor = builder.start().unwrap();
    rest(&supervisor).await;
    assert_eq!(log.delays_ms(), [5000, 10_000, 20_000, 5000, 10_000]);
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_leaves_is_not_restarted_even_under_always() {
    let task = Task::looping("a", scripted(&[Deed::Leave])).restart(defib_tasks::Mode::Always);
    let supervisor = plain().task(task).start().unwrap();
    rest(&supervisor).await;
    let sight = supervisor.sight("a").await.unwrap();
    assert_eq!((sight.state, sight.run), (State::Done, 1));
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_a_loop_between_iterations_and_cuts_its_sleep_short() {
    let looping = scripted(&[Deed::Well, Deed::Sleep(1000), Deed::Panic]);
    let supervisor = plain().task(Task::looping("a", looping)).start().unwrap();
    tokio::time::sleep(secs(10)).await;
    let began = Instant::now();
    supervisor.stop("a").await.unwrap();
    assert_eq!(began.elapsed(), secs(0));
    assert_eq!(supervisor.sight("a").await.unwrap().state, State::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_awaits_nothing_keeps_nobody_from_its_turn() {
    struct Busy(Arc<AtomicU32>);
    impl AgentLoop for Busy {
        type State = ();
        type Error = Failure;
        async fn iterate(&mut self, (): &mut (), _: &Context) -> Result<Next, Failure> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(Next::Again)
        }
    }
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    let looping = Looping::new((), move || Busy(counted.clone()));
    let supervisor = plain().task(Task::looping("busy", looping)).start().unwrap();
    while count.load(Ordering::SeqCst) < 1000 {
        tokio::task::yield_now().await;
    }
    supervisor.shutdown().await;
}
