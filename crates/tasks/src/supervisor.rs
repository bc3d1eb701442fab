//! The supervisor as a program has it: built, asked, watched, ended.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use defib_core::{Name, Policy, Preset, Settings};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

use crate::driver::{Driver, Message, Observer, Reply, Wanted};
use crate::error::Error;
use crate::event::{Event, Events, Listener};
use crate::plan::{Plan, parse};
use crate::roster::Roster;
use crate::sight::Sight;
use crate::task::{Group, Member, Task};

/// Says what is to be kept alive; [`start`](Builder::start) begins it.
#[must_use = "nothing is supervised before `start`"]
pub struct Builder {
    members: Vec<Member>,
    policy: Policy,
    settings: Settings,
    max_total_restarts: Option<u32>,
    listeners: Vec<Listener>,
    observers: Vec<Observer>,
}

impl Builder {
    /// Adds a task.
    pub fn task(mut self, task: Task) -> Builder {
        self.members.push(Member::Task(task));
        self
    }

    /// Adds many tasks.
    pub fn tasks(mut self, tasks: impl IntoIterator<Item = Task>) -> Builder {
        self.members.extend(tasks.into_iter().map(Member::Task));
        self
    }

    /// Adds a group.
    pub fn group(mut self, group: Group) -> Builder {
        self.members.push(Member::Group(group));
        self
    }

    /// The policy of tasks that have none of their own; without this, the rule set `default`.
    pub fn policy(mut self, policy: Policy) -> Builder {
        self.policy = policy;
        self
    }

    /// The rule set of tasks that have no policy of their own.
    pub fn preset(self, preset: Preset) -> Builder {
        self.policy(preset.policy())
    }

    /// Once so many automatic restarts have been made, of all tasks together, each one that dies is
    /// crashed out.
    pub fn max_total_restarts(mut self, most: u32) -> Builder {
        self.max_total_restarts = Some(most);
        self
    }

    /// The seed of all jitter, to see the same delays again; nothing is no jitter. Without this the
    /// seed is another one each time.
    pub fn jitter_seed(mut self, seed: impl Into<Option<u64>>) -> Builder {
        self.settings.jitter_seed = seed.into();
        self
    }

    /// Every event from the first on, with room for so many that have not been taken.
    pub fn events(&mut self, room: usize) -> Events {
        let (listener, events) = Listener::with_room(room);
        self.listeners.push(listener);
        events
    }

    /// Calls `observe` with every event, none left out. The supervisor itself does that: it has to be
    /// over at once. One that panics is not called again.
    pub fn observe(mut self, observe: impl FnMut(&Event) + Send + 'static) -> Builder {
        self.observers.push(Box::new(observe));
        self
    }

    /// Starts everything, on the runtime that the caller is in.
    pub fn start(self) -> Result<Supervisor, Error> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let policy = Arc::new(self.policy);
        let plan = Plan::of(self.members, &policy)?;
        plan.check(|_| false)?;
        let roster = Arc::new(Roster::default());
        roster.take(plan.names(), || Ok(()))?;
        let (address, mailbox) = unbounded_channel();
        let post = (mailbox, address.clone());
        let mut driver =
            Driver::new(self.settings, post, roster.clone(), self.listeners, self.observers);
        let driver = runtime.spawn(async move {
            driver.begin(plan, self.max_total_restarts);
            driver.drive().await;
        });
        let handle = Handle { mailbox: address, policy, roster };
        Ok(Supervisor { handle, driver: driver.abort_handle() })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("members", &self.members).finish_non_exhaustive()
    }
}

/// A supervisor and the tasks it keeps alive. Dropping it aborts them all at once; to end them in
/// order, [`shutdown`](Handle::shutdown) first. Everything that can be asked of it is on [`Handle`].
///
/// ```
/// use defib_tasks::{Failure, State, Supervisor, Task};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), defib_tasks::Error> {
/// let supervisor = Supervisor::builder()
///     .task(Task::new("flaky", |context| async move {
///         if context.run() < 3 {
///             return Err(Failure::new("not yet"));
///         }
///         context.stopped().await;
///         Ok(())
///     }))
///     .start()?;
///
/// let mut sight = supervisor.watch("flaky").await?;
/// let running = sight.wait_for(|sight| sight.run == 3).await.unwrap().clone();
/// assert_eq!(running.restarts, 2);
/// assert_eq!(running.last_death.unwrap().evidence.as_deref(), Some("not yet"));
/// supervisor.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Supervisor {
    handle: Handle,
    driver: AbortHandle,
}

impl Supervisor {
    /// Says what is to be kept alive.
    pub fn builder() -> Builder {
        let seed = RandomState::new().build_hasher().finish();
        Builder {
            members: Vec::new(),
            policy: Preset::Default.policy(),
            settings: Settings { jitter_seed: Some(seed) },
            max_total_restarts: None,
            listeners: Vec::new(),
            observers: Vec::new(),
        }
    }

    /// A handle to give to others. It does not keep the supervisor alive.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

impl Deref for Supervisor {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // The driver lets go of every run when it goes.
        self.driver.abort();
    }
}

/// What can be asked of a supervisor. A name may be that of a group: then its members are meant.
#[derive(Clone)]
pub struct Handle {
    mailbox: UnboundedSender<Message>,
    policy: Arc<Policy>,
    roster: Arc<Roster>,
}

impl Handle {
    /// Starts a task, or a group in order. Returns when it has.
    pub async fn start(&self, name: &str) -> Result<(), Error> {
        self.want(name, Wanted::Start).await
    }

    /// Stops a task, or a group in reverse order. It is not restarted before somebody starts it.
    /// Returns when it has ended.
    pub async fn stop(&self, name: &str) -> Result<(), Error> {
        self.want(name, Wanted::Stop { kill: false }).await
    }

    /// Aborts a task or a group without asking first.
    pub async fn kill(&self, name: &str) -> Result<(), Error> {
        self.want(name, Wanted::Stop { kill: true }).await
    }

    /// Stops a task or a group and starts it again. That counts towards no limit.
    pub async fn restart(&self, name: &str) -> Result<(), Error> {
        self.want(name, Wanted::Restart { fresh: false }).await
    }

    /// Puts back what was crashed out or halted, with empty windows.
    pub async fn revive(&self, name: &str) -> Result<(), Error> {
        self.want(name, Wanted::Revive).await
    }

    /// Says whether a task has anything left to spend. Without anything it is not restarted; one
    /// that was halted for that starts again once it has something.
    pub async fn set_broke(&self, name: &str, empty: bool) -> Result<(), Error> {
        self.ask(|reply| Message::Purse { name: name.to_owned(), empty, reply }).await
    }

    /// The task has something to spend again.
    pub async fn fund(&self, name: &str) -> Result<(), Error> {
        self.set_broke(name, false).await
    }

    /// Adds a task and starts it.
    pub async fn add(&self, task: Task) -> Result<(), Error> {
        self.insert(Member::Task(task), None)?.finish().await
    }

    /// Adds a task behind the members of a group and starts it.
    pub async fn add_to(&self, group: &str, task: Task) -> Result<(), Error> {
        self.insert(Member::Task(task), Some(group))?.finish().await
    }

    /// Adds a group and starts it.
    pub async fn add_group(&self, group: Group) -> Result<(), Error> {
        self.insert(Member::Group(group), None)?.finish().await
    }

    /// Ends a task and forgets it. Returns when it has ended.
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        self.ask(|reply| Message::Remove { name: name.to_owned(), reply }).await
    }

    /// What can be seen of a task now.
    pub async fn sight(&self, name: &str) -> Result<Sight, Error> {
        self.ask(|reply| Message::Look { name: name.to_owned(), reply }).await
    }

    /// What can be seen of every task now, in the order of declaration.
    pub async fn sights(&self) -> Result<Vec<(String, Sight)>, Error> {
        self.ask(|reply| Message::LookAtAll { reply }).await
    }

    /// What can be seen of a task from now on. Costs nothing for tasks that nobody watches.
    pub async fn watch(&self, name: &str) -> Result<watch::Receiver<Sight>, Error> {
        self.ask(|reply| Message::Watch { name: name.to_owned(), reply }).await
    }

    /// Every event from now on, with room for so many that have not been taken.
    pub fn events(&self, room: usize) -> Events {
        let (listener, events) = Listener::with_room(room);
        // Where the supervisor has ended, so have the events.
        let _ = self.mailbox.send(Message::Listen(listener));
        events
    }

    /// Returns when every task is at rest: done, stopped, halted or crashed out.
    pub async fn all_at_rest(&self) -> Result<(), Error> {
        self.ask(|reply| Message::Rest { reply }).await
    }

    /// Ends everything: each run is asked, and aborted when its policy's `stop_timeout` has passed;
    /// members of a group in reverse order. Returns when the last run is over. A run that never
    /// yields to the runtime cannot be ended by anybody; it is waited for.
    pub async fn shutdown(&self) {
        // A supervisor that has ended already needs not be told.
        self.roster.close(|| drop(self.mailbox.send(Message::Close)));
        self.ended().await;
    }

    /// Returns when the supervisor has ended.
    pub async fn ended(&self) {
        self.mailbox.closed().await;
    }

    /// Gives the order to add; nothing has been waited for.
    pub(crate) fn insert(&self, member: Member, into: Option<&str>) -> Result<Answer, Error> {
        let into = into.map(parse).transpose()?;
        let plan = Plan::of([member], &self.policy)?;
        let (reply, answer) = oneshot::channel();
        let names: Vec<Name> = plan.names().cloned().collect();
        let message = Message::Add { plan, into, reply };
        let order = || self.mailbox.send(message).map_err(|_| Error::Ended);
        self.roster.take(names.iter(), order)?;
        Ok(Answer(answer))
    }

    async fn want(&self, name: &str, what: Wanted) -> Result<(), Error> {
        self.ask(|reply| Message::Asked { name: name.to_owned(), what, reply }).await
    }

    async fn ask<T>(&self, message: impl FnOnce(Reply<T>) -> Message) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.mailbox.send(message(reply)).map_err(|_| Error::Ended)?;
        answer.await.map_err(|_| Error::Ended)?
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

/// The answer to an order that has been given.
pub(crate) struct Answer(oneshot::Receiver<Result<(), Error>>);

impl Answer {
    pub(crate) async fn finish(self) -> Result<(), Error> {
        self.0.await.map_err(|_| Error::Ended)?
    }
}
