//! What a run knows of itself, and what it can say to its supervisor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use defib_core::{AgentId, Input, Name, RunId};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use crate::driver::Message;

/// A run's side of its supervision. Cloning is cheap; a clone that outlives its run says nothing to
/// anybody any more.
#[derive(Debug, Clone)]
pub struct Context(Arc<Shared>);

/// What a run and its supervisor share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) name: Name,
    pub(crate) agent: AgentId,
    pub(crate) run: RunId,
    pub(crate) fresh: bool,
    pub(crate) mailbox: UnboundedSender<Message>,
    stopping: AtomicBool,
    stop: Notify,
    /// A beat is on its way: however often a run beats, one is enough until it has been heard.
    beaten: AtomicBool,
}

impl Shared {
    pub(crate) fn new(
        name: Name,
        (agent, run): (AgentId, RunId),
        fresh: bool,
        mailbox: UnboundedSender<Message>,
    ) -> Arc<Shared> {
        Arc::new(Shared {
            name,
            agent,
            run,
            fresh,
            mailbox,
            stopping: AtomicBool::new(false),
            stop: Notify::new(),
            beaten: AtomicBool::new(false),
        })
    }

    /// Asks the run to end.
    pub(crate) fn ask_to_stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.stop.notify_waiters();
    }

    /// The beat has been heard; the next one is told again.
    pub(crate) fn heard(&self) {
        self.beaten.store(false, Ordering::Release);
    }
}

impl Context {
    pub(crate) fn new(shared: Arc<Shared>) -> Context {
        Context(shared)
    }

    /// The name of the task.
    pub fn name(&self) -> &str {
        self.0.name.as_str()
    }

    /// The number of this run: 1 for the task's first.
    pub fn run(&self) -> u64 {
        self.0.run.0
    }

    /// Whether this run is to begin from nothing, because the last one had more context than it
    /// could hold.
    pub fn is_fresh(&self) -> bool {
        self.0.fresh
    }

    /// Whether the run has been asked to end.
    pub fn is_stopping(&self) -> bool {
        self.0.stopping.load(Ordering::Acquire)
    }

    /// Returns when the run has been asked to end. A run that does not end within its policy's
    /// `stop_timeout` is aborted.
    pub async fn stopped(&self) {
        let stop = self.0.stop.notified();
        tokio::pin!(stop);
        // First in line, then look: a request that comes in between is not missed.
        stop.as_mut().enable();
        if !self.is_stopping() {
            stop.await;
        }
    }

    /// Says that the run lives, and that an iteration of it was a success.
    pub fn beat(&self) {
        if !self.0.beaten.swap(true, Ordering::AcqRel) {
            self.tell(Input::BeatSeen { agent: self.0.agent, run: self.0.run });
        }
    }

    /// Says that the run is ready for those that wait for it. Only heeded where the task's policy
    /// says [`Ready::WhenTold`](defib_core::policy::Ready::WhenTold).
    pub fn ready(&self) {
        self.tell(Input::Readied { agent: self.0.agent, run: self.0.run });
    }

    /// Wishes for the end: when the run is over it is not restarted, whatever its policy and however
    /// it ends. One that does not end within `stop_timeout` is stopped.
    pub fn shutdown(&self) {
        self.tell(Input::ShutdownWished { agent: self.0.agent, run: self.0.run });
    }

    /// Asks for more time: the run is not ended for silence, nor aborted while it stops, before that
    /// has passed.
    pub fn extend(&self, by: Duration) {
        self.tell(Input::Extended { agent: self.0.agent, run: self.0.run, by });
    }

    /// Says whether the task has anything left to spend. An empty purse ends no run, but no other
    /// one is started before it is filled again.
    pub fn set_broke(&self, empty: bool) {
        self.tell(Input::BalanceSeen { agent: self.0.agent, empty });
    }

    fn tell(&self, input: Input) {
        // A supervisor that is gone needs not be told.
        let _ = self.0.mailbox.send(Message::Told(input));
    }
}
