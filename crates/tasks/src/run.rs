//! One run: the task's future, what it panics with, and the word of its end.
//!
//! However a run ends, exactly one word of it goes to the supervisor, and it goes when nothing of
//! the run is left: the future is dropped first. So no two runs of one task are ever alive at once.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use tokio::task::AbortHandle;

use crate::context::{Context, Shared};
use crate::driver::Message;
use crate::end::{End, Fate, IntoEnd};

/// How runs of a task are begun.
pub(crate) trait Recipe: Send + Sync {
    /// Begins a run, on the runtime that the caller is in.
    fn spawn(self: Arc<Self>, shared: Arc<Shared>) -> AbortHandle;
}

impl<F, R> Recipe for F
where
    F: Fn(Context) -> R + Send + Sync + 'static,
    R: Future + Send + 'static,
    R::Output: IntoEnd,
{
    fn spawn(self: Arc<Self>, shared: Arc<Shared>) -> AbortHandle {
        let context = Context::new(shared.clone());
        // The call is inside: what panics in making the future is a death like any other.
        let future = Box::pin(async move { self(context).await.into_end() });
        tokio::spawn(Run { future, word: Word { shared, fate: None } }).abort_handle()
    }
}

/// A task's future with the word of its end. The fields are dropped in this order, whether the run
/// is over, is aborted or never began.
struct Run {
    future: Pin<Box<dyn Future<Output = End> + Send>>,
    word: Word,
}

impl Future for Run {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut task::Context<'_>) -> Poll<()> {
        let future = &mut self.future;
        // Nothing of the future is used after it has panicked; it is only dropped.
        let fate = match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(task))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(end)) => Fate::Ended(end),
            Err(payload) => Fate::of_panic(payload.as_ref()),
        };
        self.word.fate = Some(fate);
        Poll::Ready(())
    }
}

/// Tells the supervisor that the run is over when it is dropped.
struct Word {
    shared: Arc<Shared>,
    fate: Option<Fate>,
}

impl Drop for Word {
    fn drop(&mut self) {
        let Shared { agent, run, mailbox, .. } = &*self.shared;
        let fate = self.fate.take().unwrap_or(Fate::Aborted);
        // A supervisor that is gone needs not be told.
        let _ = mailbox.send(Message::Ended { agent: *agent, run: *run, fate });
    }
}
