//! Agents that go round and round: one iteration after another, errors counted, state kept.
//!
//! A loop that fails `pause_after` times in a row ends its run: it is paused, and what becomes of
//! it then is its policy's affair. Its next run begins with a fresh loop, an error count of zero,
//! and the state that the last one left.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use defib_core::Class;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::context::Context;
use crate::end::{End, Failure, IntoFailure};

/// What a loop does after an iteration that went well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The next one, at once.
    Again,
    /// The next one, after a while. A request to stop cuts the while short.
    After(Duration),
    /// Nothing: the work is done.
    Done,
    /// Nothing, whatever the policy says: the agent wants to be left alone.
    Shutdown,
}

/// An agent that works in iterations.
///
/// ```
/// use defib_tasks::{AgentLoop, Context, Failure, Looping, Next, Supervisor, Task};
///
/// #[derive(Default)]
/// struct Memory {
///     seen: u32,
/// }
///
/// struct Counter;
///
/// impl AgentLoop for Counter {
///     type State = Memory;
///     type Error = Failure;
///
///     async fn iterate(&mut self, memory: &mut Memory, _: &Context) -> Result<Next, Failure> {
///         memory.seen += 1;
///         match memory.seen {
///             2 => panic!("a bug"),
///             5 => Ok(Next::Done),
///             _ => Ok(Next::Again),
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), defib_tasks::Error> {
/// let looping = Looping::new(Memory::default(), || Counter);
/// let memory = looping.state();
/// let supervisor = Supervisor::builder().task(Task::looping("counter", looping)).start()?;
/// supervisor.all_at_rest().await?;
/// assert_eq!(memory.lock().await.seen, 5, "the panic lost nothing");
/// # Ok(())
/// # }
/// ```
pub trait AgentLoop: Send + 'static {
    /// What outlives a run: handed from one loop to the next.
    type State: Send + 'static;
    /// What an iteration fails with.
    type Error: IntoFailure;

    /// One iteration. A success is a beat: it sets the count of errors to zero, and where the policy
    /// has it so, the backoff too.
    fn iterate(
        &mut self,
        state: &mut Self::State,
        context: &Context,
    ) -> impl Future<Output = Result<Next, Self::Error>> + Send;
}

/// How an [`AgentLoop`] is run: how a fresh one is made, what state it has, when it is paused.
pub struct Looping<L: AgentLoop> {
    make: Box<dyn Fn() -> L + Send + Sync>,
    state: Arc<Mutex<L::State>>,
    pause_after: u32,
    iteration_timeout: Option<Duration>,
}

impl<L: AgentLoop> Looping<L> {
    /// How many errors in a row pause a loop that does not say.
    pub const PAUSE_AFTER: u32 = 5;

    /// Loops made by `make`, one for each run, on one state.
    pub fn new(state: L::State, make: impl Fn() -> L + Send + Sync + 'static) -> Looping<L> {
        Looping {
            make: Box::new(make),
            state: Arc::new(Mutex::new(state)),
            pause_after: Looping::<L>::PAUSE_AFTER,
            iteration_timeout: None,
        }
    }

    /// Pauses the loop after so many errors in a row; at least one.
    #[must_use]
    pub fn pause_after(self, errors: u32) -> Looping<L> {
        Looping { pause_after: errors.max(1), ..self }
    }

    /// An iteration that takes longer has failed, of `timeout`.
    #[must_use]
    pub fn iteration_timeout(self, span: Duration) -> Looping<L> {
        Looping { iteration_timeout: Some(span), ..self }
    }

    /// The state, to look at between iterations.
    pub fn state(&self) -> Arc<Mutex<L::State>> {
        self.state.clone()
    }

    pub(crate) fn into_recipe(
        self,
    ) -> impl Fn(Context) -> Pin<Box<dyn Future<Output = End> + Send>> + Send + Sync {
        let looping = Arc::new(self);
        move |context| {
            let looping = looping.clone();
            Box::pin(async move { looping.run(&context).await })
        }
    }

    async fn run(&self, context: &Context) -> End {
        let mut agent = (self.make)();
        let mut errors = 0;
        while !context.is_stopping() {
            match self.iterate(&mut agent, context).await {
                Ok(next) => {
                    errors = 0;
                    context.beat();
                    match next {
                        // An iteration that awaits nothing must not keep others from their turn.
                        Next::Again => tokio::task::yield_now().await,
                        Next::After(span) => {
                            let _ = timeout(span, context.stopped()).await;
                        }
                        Next::Done => return End::Done,
                        Next::Shutdown => return End::Voluntary,
                    }
                }
                Err(failure) => {
                    errors += 1;
                    if errors >= self.pause_after {
                        let message =
                            format!("{} (error {errors} in a row: paused)", failure.message());
                        return End::Failed(failure.saying(message));
                    }
                    tokio::task::yield_now().await;
                }
            }
        }
        End::Done
    }

    async fn iterate(&self, agent: &mut L, context: &Context) -> Result<Next, Failure> {
        let mut state = self.state.lock().await;
        let iteration = agent.iterate(&mut state, context);
        let Some(span) = self.iteration_timeout else {
            return iteration.await.map_err(IntoFailure::into_failure);
        };
        match timeout(span, iteration).await {
            Ok(outcome) => outcome.map_err(IntoFailure::into_failure),
            Err(_) => {
                Err(Failure::of(Class::Timeout, format!("an iteration took longer than {span:?}")))
            }
        }
    }
}

impl<L: AgentLoop> std::fmt::Debug for Looping<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Looping").field("pause_after", &self.pause_after).finish_non_exhaustive()
    }
}
