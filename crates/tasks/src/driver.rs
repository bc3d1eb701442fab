//! The driver: the one task that owns the core.
//!
//! It takes what runs and operators say in the order it comes, stamps the time on it, hands it to
//! the core and carries out what the core orders. It sleeps until the core's next deadline, on one
//! timer for all tasks, and waits for no run: no task can delay another's restart. Nothing is
//! decided here.

mod declare;
mod watch;

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use defib_core::run::Status;
use defib_core::{
    AgentId, Ask, Effect, GroupSpec, Input, Name, Outbox, Policy, Record, Refusal, RunId, Scope,
    Settings, Strategy, Supervisor,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::{oneshot, watch as watching};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use crate::clock::Clock;
use crate::context::Shared;
use crate::end::Fate;
use crate::error::Error;
use crate::event::{Event, Listener};
use crate::plan::Plan;
use crate::roster::Roster;
use crate::run::Recipe;
use crate::sight::{Death, Sight};
use crate::task::Purse;
use watch::Waiter;

/// How many messages are taken before the clock is looked at again.
const PORTION: usize = 256;
/// What is larger than this is given back after a burst.
const ROOM_KEPT: usize = 1024;

/// Called with each event, by the driver itself.
pub(crate) type Observer = Box<dyn FnMut(&Event) + Send>;

/// Where an answer goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// What runs and operators say.
pub(crate) enum Message {
    /// A run says something of itself.
    Told(Input),
    /// A run is over, and nothing is left of it.
    Ended { agent: AgentId, run: RunId, fate: Fate },
    /// An operator wants something of a task or a group.
    Asked { name: String, what: Wanted, reply: Reply<()> },
    /// Whether a task has anything left to spend.
    Purse { name: String, empty: bool, reply: Reply<()> },
    /// Tasks and groups are added, into a group that is there or beside all others.
    Add { plan: Plan, into: Option<Name>, reply: Reply<()> },
    /// A task is taken away.
    Remove { name: String, reply: Reply<()> },
    /// Somebody looks at a task, once or from now on.
    Look { name: String, reply: Reply<Sight> },
    /// Somebody looks at all tasks.
    LookAtAll { reply: Reply<Vec<(String, Sight)>> },
    /// Somebody looks at a task from now on.
    Watch { name: String, reply: Reply<watching::Receiver<Sight>> },
    /// Somebody waits until nothing will happen by itself any more.
    Rest { reply: Reply<()> },
    /// Somebody listens from now on.
    Listen(Listener),
    /// The supervisor is to end, in order.
    Close,
}

/// What an operator wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Start,
    Stop { kill: bool },
    Restart { fresh: bool },
    Revive,
}

/// A task, beside what the core knows of it.
struct Entry {
    recipe: Arc<dyn Recipe>,
    purse: Option<Purse>,
    /// What the core does not tell of what was declared.
    after: Box<[Name]>,
    strategy: Option<Strategy>,
    live: Option<Live>,
    at_rest: bool,
    last_death: Option<Arc<Death>>,
}

/// A run that is not over. Whoever lets go of it ends it.
struct Live {
    shared: Arc<Shared>,
    abort: AbortHandle,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

pub(crate) struct Driver {
    core: Supervisor,
    clock: Clock,
    mailbox: UnboundedReceiver<Message>,
    /// For runs to write to.
    address: UnboundedSender<Message>,
    /// What others see of the names that are taken.
    roster: Arc<Roster>,
    /// By the place of the task in the core.
    entries: Vec<Option<Entry>>,
    groups: Vec<GroupSpec>,
    max_total_restarts: Option<u32>,
    /// How many runs are not over.
    living: usize,
    /// How many tasks are not at rest.
    restless: usize,
    closing: bool,
    /// What the core has still to be told of what came of its orders.
    news: VecDeque<Input>,
    out: Outbox,
    seq: u64,
    listeners: Vec<Listener>,
    observers: Vec<Observer>,
    watched: BTreeMap<AgentId, watching::Sender<Sight>>,
    waiters: Vec<Waiter>,
}

impl Driver {
    pub(crate) fn new(
        settings: Settings,
        (mailbox, address): (UnboundedReceiver<Message>, UnboundedSender<Message>),
        roster: Arc<Roster>,
        listeners: Vec<Listener>,
        observers: Vec<Observer>,
    ) -> Driver {
        Driver {
            core: Supervisor::new(settings),
            clock: Clock::start(),
            mailbox,
            address,
            roster,
            entries: Vec::new(),
            groups: Vec::new(),
            max_total_restarts: None,
            living: 0,
            restless: 0,
            closing: false,
            news: VecDeque::new(),
            out: Outbox::default(),
            seq: 0,
            listeners,
            observers,
            watched: BTreeMap::new(),
            waiters: Vec::new(),
        }
    }

    /// Goes on until it is closed and the last run is over.
    pub(crate) async fn drive(mut self) {
        let timer = sleep_until(Instant::now());
        tokio::pin!(timer);
        let mut portion = Vec::with_capacity(PORTION);
        while !(self.closing && self.living == 0) {
            let due = self.core.next_deadline().map(|due| self.clock.instant(due));
            if let Some(due) = due
                && timer.deadline() != due
            {
                timer.as_mut().reset(due);
            }
            tokio::select! {
                // What is due goes first: a flood of messages does not hold it up.
                biased;
                () = &mut timer, if due.is_some() => self.tell_of_no_request(Input::Tick),
                _ = self.mailbox.recv_many(&mut portion, PORTION) => self.take_all(&mut portion),
            }
        }
    }

    fn take_all(&mut self, portion: &mut Vec<Message>) {
        let mut additions = Vec::new();
        for message in portion.drain(..) {
            // Additions that come together are declared together: each costs a look at every task.
            if let Message::Add { plan, into, reply } = message {
                additions.push((plan, into, reply));
                continue;
            }
            self.add_all(mem::take(&mut additions));
            self.take(message);
        }
        self.add_all(additions);
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Told(input) => {
                if let Input::BeatSeen { agent, run } = input {
                    self.heard(agent, run);
                }
                self.tell_of_no_request(input);
            }
            Message::Ended { agent, run, fate } => self.ended(agent, run, fate),
            Message::Asked { name, what, reply } => self.asked(&name, what, reply),
            Message::Purse { name, empty, reply } => {
                let answer = self.find(&name).map(|agent| {
                    self.tell_of_no_request(Input::BalanceSeen { agent, empty });
                });
                answer_to(reply, answer);
            }
            Message::Add { plan, into, reply } => self.add_all(vec![(plan, into, reply)]),
            Message::Remove { name, reply } => self.remove(&name, reply),
            Message::Look { name, reply } => {
                let answer = self.find(&name).map(|agent| self.sight(agent));
                answer_to(reply, answer);
            }
            Message::LookAtAll { reply } => answer_to(reply, Ok(self.sights())),
            Message::Watch { name, reply } => {
                let answer = self.find(&name).map(|agent| self.watch(agent));
                answer_to(reply, answer);
            }
            Message::Rest { reply } => self.wait_for_rest(reply),
            Message::Listen(listener) => self.listeners.push(listener),
            Message::Close => {
                self.closing = true;
                self.tell_of_no_request(Input::CloseAsked);
            }
        }
    }

    /// Tells the core what is no operator's request, and so is never refused.
    fn tell_of_no_request(&mut self, input: Input) {
        let _ = self.tell(input);
    }

    /// Tells the core, and then what comes of what it orders, until nothing more does.
    fn tell(&mut self, input: Input) -> Result<(), Refusal> {
        let answer = self.hand_in(input);
        while let Some(news) = self.news.pop_front() {
            // What comes of an order is no request.
            let _ = self.hand_in(news);
        }
        if self.news.capacity() > ROOM_KEPT {
            self.news = VecDeque::new();
        }
        answer
    }

    fn hand_in(&mut self, input: Input) -> Result<(), Refusal> {
        let now = self.clock.now();
        let mut out = mem::take(&mut self.out);
        let answer = self.core.handle(now, input, &mut out);
        for record in out.records.drain(..) {
            self.publish(now, record);
        }
        for effect in out.effects.drain(..) {
            self.carry_out(effect);
        }
        for agent in out.touched.drain(..) {
            self.notice(agent);
        }
        if out.records.capacity().max(out.effects.capacity()) > ROOM_KEPT {
            out = Outbox::default();
        }
        out.clear();
        self.out = out;
        self.answer_those_who_wait();
        answer
    }

    fn publish(&mut self, now: defib_core::Now, record: Record) {
        self.seq += 1;
        if let Some(death) = Death::told_by(&record)
            && let Some(agent) = self.core.known(&record.agent)
            && let Some(entry) = self.entry(agent)
        {
            entry.last_death = Some(Arc::new(death));
        }
        if self.listeners.is_empty() && self.observers.is_empty() {
            return;
        }
        let event = Event::new(self.seq, now, record);
        self.listeners.retain(|listener| listener.tell(&event));
        // An observer is somebody else's code: one that panics is not asked again.
        self.observers
            .retain_mut(|observe| catch_unwind(AssertUnwindSafe(|| observe(&event))).is_ok());
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Spawn { agent, run, fresh } => self.spawn(agent, run, fresh),
            Effect::Signal { agent, run, ask } => {
                if let Some(live) = self.live(agent, run) {
                    match ask {
                        Ask::Stop => live.shared.ask_to_stop(),
                        Ask::Kill => live.abort.abort(),
                    }
                }
            }
            // A run that was aborted and still lives does not yield: nobody can end it but itself.
            Effect::Inquire { agent, run } => {
                if self.live(agent, run).is_none() {
                    let report = Status::Unseen.into();
                    self.news.push_back(Input::Exited { agent, run, report });
                }
            }
            Effect::Forget { agent } => self.forget(agent),
            // What is wanted lives and ends with the program.
            Effect::StoreGoal { .. } => {}
        }
    }

    fn spawn(&mut self, agent: AgentId, run: RunId, fresh: bool) {
        let name = self.core.name(agent).clone();
        let address = self.address.clone();
        let Some(entry) = self.entry(agent) else { return };
        let shared = Shared::new(name, (agent, run), fresh, address);
        let abort = entry.recipe.clone().spawn(shared.clone());
        entry.live = Some(Live { shared, abort });
        self.living += 1;
        self.news.push_back(Input::Spawned { agent, run });
    }

    fn heard(&mut self, agent: AgentId, run: RunId) {
        if let Some(live) = self.live(agent, run) {
            live.shared.heard();
        }
    }

    fn ended(&mut self, agent: AgentId, run: RunId, fate: Fate) {
        if self.live(agent, run).is_none() {
            return;
        }
        let Some(entry) = self.entry(agent) else { return };
        entry.live = None;
        let purse = entry.purse.clone();
        self.living -= 1;
        if let Some(purse) = purse {
            // The purse is somebody else's code: one that panics says nothing.
            if let Ok(solvent) = catch_unwind(AssertUnwindSafe(|| purse())) {
                self.tell_of_no_request(Input::BalanceSeen { agent, empty: !solvent });
            }
        }
        let now = self.clock.now().wall;
        let report = fate.report(self.core.policy(agent), now);
        self.tell_of_no_request(Input::Exited { agent, run, report });
    }

    fn asked(&mut self, name: &str, what: Wanted, reply: Reply<()>) {
        let Some((scope, agents)) = self.scope(name) else {
            answer_to(reply, Err(Error::Unknown(name.to_owned())));
            return;
        };
        let input = match what {
            Wanted::Start => Input::StartAsked(scope),
            Wanted::Stop { kill } => Input::StopAsked { scope, kill },
            Wanted::Restart { fresh } => Input::RestartAsked { scope, fresh },
            Wanted::Revive => Input::ReviveAsked(scope),
        };
        match self.tell(input) {
            Ok(()) => self.wait_until_settled(agents, reply),
            Err(refusal) => answer_to(reply, Err(Error::refused(name, refusal))),
        }
    }

    /// Whom a name means.
    fn scope(&self, name: &str) -> Option<(Scope, Vec<AgentId>)> {
        let name = Name::parse(name).ok()?;
        if let Some(agent) = self.core.agent(&name) {
            return Some((Scope::Agent(agent), vec![agent]));
        }
        let group = self.core.group(&name)?;
        Some((Scope::Group(group), self.core.members(group).collect()))
    }

    fn find(&self, name: &str) -> Result<AgentId, Error> {
        let found = Name::parse(name).ok().and_then(|name| self.core.agent(&name));
        found.ok_or_else(|| Error::Unknown(name.to_owned()))
    }

    fn entry(&mut self, agent: AgentId) -> Option<&mut Entry> {
        self.entries.get_mut(agent.index())?.as_mut()
    }

    fn live(&self, agent: AgentId, run: RunId) -> Option<&Live> {
        let entry = self.entries.get(agent.index())?.as_ref()?;
        entry.live.as_ref().filter(|live| live.shared.run == run)
    }

    fn policy(&self, agent: AgentId) -> Arc<Policy> {
        self.core.shared_policy(agent)
    }
}

/// Answers; whoever has gone away since does not want to know.
fn answer_to<T>(reply: Reply<T>, answer: Result<T, Error>) {
    let _ = reply.send(answer);
}
