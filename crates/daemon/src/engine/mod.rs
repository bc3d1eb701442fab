//! The engine: one thread, sole owner of the core.
//!
//! Everything that happens comes to it as news of the keeper, as a request, or as the passing of
//! time, one at a time. Each is handed to the core with the time it was taken at, and what comes out
//! is dealt with in one fixed order: what a successor must know goes to the keeper, records are
//! numbered and written to the journal, then orders are given. Nothing here waits for a disk, an
//! agent or a client.

mod ask;
mod capabilities;
mod closing;
mod commands;
mod death;
mod drain;
mod facts;
mod group;
mod inheritance;
mod meanwhile;
mod money;
mod names;
mod own;
mod preparing;
mod recovery;
mod reload;
mod secrets;
mod session;
mod site;
mod start;
mod states;
mod status;
mod timetable;
mod trouble;
mod vigil;

use capabilities::Capabilities;
use death::Dying;
use inheritance::CLOSING;
use money::Money;
use preparing::took_too_long;
use secrets::Secrets;
use session::Sessions;
use states::States;
use timetable::Timetable;
use trouble::Troubles;
use vigil::Liveness;

pub(crate) use ask::{Answer, Ask};
pub(crate) use start::{Beginning, Setup};

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use defib_autopsy::{Autopsy, Kind};
use defib_core::run::Status;
use defib_core::{Effect, Input, Name, Outbox, RunId, Supervisor, View};
use defib_history::{Event, History, HistoryError, Intent, Usage};
use defib_host::clock::{BootTimer, ClockSteps, now};
use defib_host::output::RunOutput;
use defib_host::protocol::{News, Request, RunKey};
use defib_host::wake::Waker;
use defib_host::{Channel, Flushed};
use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::{broadcast, mpsc, watch};

use crate::coroner::Coroner;
use crate::doors::Site;
use crate::intents::IntentDesk;
use crate::journal::Journal;
use crate::ledger::Ledger;
use crate::liveness::{Owns, TokenHash};
use crate::logs::{Activity, Scribe, ScribeEvent, Source};
use crate::metrics::Target;
use crate::names::{Names, Shown};
use crate::notify::Roll;
use crate::recipe::Project;
use crate::will::Will;
use crate::words::stage_word;

/// How many events a slow watcher may be behind before it has to catch up from the history.
const WATCHERS_BEHIND: usize = 4096;

/// The way to the engine, for everyone else in the daemon.
#[derive(Debug, Clone)]
pub(crate) struct EngineHandle {
    asks: Sender<Ask>,
    wake: Arc<Waker>,
    events: broadcast::Sender<Arc<Event>>,
    growth: broadcast::Sender<Name>,
    history: Arc<History>,
    ledger: Ledger,
    shown: Shown,
}

impl EngineHandle {
    /// A way to an engine that is not there yet, and where that will find what it is asked.
    fn open(
        history: Arc<History>,
        ledger: Ledger,
        wake: Arc<Waker>,
    ) -> (EngineHandle, Receiver<Ask>) {
        let (asks, inbox) = channel();
        let handle = EngineHandle {
            asks,
            wake,
            events: broadcast::Sender::new(WATCHERS_BEHIND),
            growth: broadcast::Sender::new(1024),
            history,
            ledger,
            shown: Shown::default(),
        };
        (handle, inbox)
    }

    /// Hands a request over. The answer comes the way that the request carries.
    pub(crate) fn tell(&self, ask: Ask) {
        // The engine ends only with the process.
        let _ = self.asks.send(ask);
        self.wake.wake();
    }

    /// Wakes the engine: somebody has left something for it.
    pub(crate) fn wake(&self) {
        self.wake.wake();
    }

    /// The names of agents whose logs grow, from now on.
    pub(crate) fn growth(&self) -> broadcast::Receiver<Name> {
        self.growth.subscribe()
    }

    /// What keys are shown as.
    pub(crate) fn shown(&self) -> &Shown {
        &self.shown
    }

    /// What agents have and spend.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Stores an intent; returns when it is on disk.
    pub(crate) fn store(&self, intent: Intent) -> Result<(), HistoryError> {
        self.history.store_intent(intent)
    }

    /// Stores intents together; returns when they are on disk.
    pub(crate) fn store_all(&self, intents: Vec<Intent>) -> Result<(), HistoryError> {
        self.history.store_intents(intents)
    }

    /// Stores an intent when there is time.
    pub(crate) fn store_later(&self, intent: Intent) {
        self.history.store_later([intent]);
    }

    /// Waits until everything that was decided before is in the history.
    pub(crate) fn flush_history(&self) {
        // A disk that fails is said elsewhere; what is there is shown.
        let _ = self.history.flush(Duration::from_secs(2));
    }

    /// Every event from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<Event>> {
        self.events.subscribe()
    }
}

/// The first process of a run.
struct Process {
    pid: u32,
    /// The pipe that it writes to, if nobody has read from it but this daemon.
    output: Option<Arc<OwnedFd>>,
}

/// Where an agent is declared.
struct Declared {
    project: Name,
    /// Its place in that.
    at: u32,
    /// What sort of program it is, which is asked at each death.
    kind: Kind,
}

/// Which of those have something to say that seldom do. Everything else is looked at anyway.
struct Woken {
    by_timer: bool,
    by_clock: bool,
}

impl Woken {
    /// Nobody knows.
    const ALL: Woken = Woken { by_timer: true, by_clock: true };
}

/// Orders that wait until a goal is on disk.
struct Pending {
    ticket: Option<u64>,
    effects: Vec<Effect>,
}

/// The engine.
pub(crate) struct Engine {
    home: PathBuf,
    boot: Arc<str>,
    supervisor: Supervisor,
    view: View,
    keeper: Channel<Request, News>,
    history: Arc<History>,
    intents: IntentDesk,
    journal: Journal,
    money: Money,
    scribe: Scribe,
    activity: Activity,
    coroner: Coroner,
    /// Runs that have ended, until what they left has been looked at.
    dying: Vec<Dying>,
    sessions: Sessions,
    /// What those ask who stand at a prompt.
    questions: BTreeMap<Name, String>,
    timetable: Timetable,
    /// The rules by which each project's dead are examined.
    rules: BTreeMap<Name, Arc<Autopsy>>,
    handle: EngineHandle,
    asks: Receiver<Ask>,
    wake: Arc<Waker>,
    timer: BootTimer,
    clock_steps: ClockSteps,
    projects: BTreeMap<Name, Project>,
    names: Names,
    declared: BTreeMap<Name, Declared>,
    processes: BTreeMap<Name, Process>,
    /// The stack trace that was found after an agent's last death: which run's, and the trace. Kept
    /// here so that looking at 1,000 agents asks the disk nothing.
    traces: BTreeMap<Name, (RunId, String)>,
    /// What an agent's last run that ended used, likewise.
    used: BTreeMap<Name, (RunId, Usage)>,
    /// The most memory that the keeper was seen to have had, in bytes.
    keepers_peak: u64,
    /// What must not be stored of what those agents write that have any.
    secrets: BTreeMap<Name, Secrets>,
    /// What each agent's latest run says of itself, and is known by.
    own: Owns,
    next_token: Option<(String, TokenHash)>,
    states: States,
    liveness: Liveness,
    capabilities: Capabilities,
    commands: commands::Commands,
    preparing: preparing::Preparing,
    seq: u64,
    /// The event number as of which lives are stored, or are about to be.
    marked: u64,
    /// Whose life is on disk: of those that have come to rest, and of those that wished for it.
    stored_lives: BTreeSet<Name>,
    /// Events that are noted and not yet told.
    unpublished: Vec<Arc<Event>>,
    out: Outbox,
    pending: VecDeque<Pending>,
    next_ticket: u64,
    info: crate::wire::DaemonInfo,
    troubles: Troubles,
    closing: bool,
    /// Projects that are not to come back at the next start.
    withdrawn: Vec<Name>,
    leave: bool,
    /// What is to be started anew, while an `up` is awaited.
    dawn: Option<start::Dawn>,
    /// Where the doors are told where to be.
    site: watch::Sender<Option<Site>>,
    /// Takes listeners that replace the one that the daemon began with.
    rebound: mpsc::UnboundedSender<OwnedFd>,
    /// Where the herald is told who is to be told.
    roll: watch::Sender<Roll>,
    /// Where the exporter is told whom figures are sent to.
    export: watch::Sender<Option<Target>>,
}

impl Engine {
    /// Works until everything is closed, which ends the process, or until the keeper is killed.
    pub(crate) fn work(mut self: Box<Self>) -> Will {
        defib_host::be_prompt();
        if self.journal.has_set_aside() {
            self.settle_journal();
        }
        let mut woken = Woken::ALL;
        loop {
            self.note_sleep();
            if woken.by_timer {
                let _ = self.timer.fired();
            }
            if self.dawn.as_ref().is_some_and(|dawn| dawn.until <= now().mono) {
                self.rise();
            }
            self.hear_vigil();
            if woken.by_clock && self.clock_steps.stepped() {
                self.handle(Input::Tick);
                self.plan_ticks();
            }
            loop {
                match self.keeper.receive() {
                    Ok(Some((news, descriptors))) => self.hear(news, descriptors),
                    Ok(None) => break,
                    Err(_) => return self.bequeath(),
                }
            }
            self.wake.take();
            while let Ok(ask) = self.asks.try_recv() {
                self.answer(ask);
            }
            if self.dawn.is_none() {
                self.hear_troubles();
            }
            self.give_up_on_tails();
            self.give_up_preparing();
            self.look_around();
            self.handle(Input::Tick);
            if self.leave {
                self.leave();
            }
            if self.has_closed() {
                self.finish();
            }
            self.arm_timer();
            self.publish();
            self.prepare_token();
            self.release();
            // Last: what the keeper said at the beginning may have been read, and not been heeded.
            woken = self.wait();
        }
    }

    fn wait(&self) -> Woken {
        let readable = PollFlags::IN;
        let keeper =
            if self.keeper.queued_bytes() > 0 { readable | PollFlags::OUT } else { readable };
        let mut set = [
            PollFd::from_borrowed_fd(self.keeper.as_fd(), keeper),
            PollFd::from_borrowed_fd(self.timer.as_fd(), readable),
            PollFd::from_borrowed_fd(self.clock_steps.as_fd(), readable),
            PollFd::from_borrowed_fd(self.wake.as_fd(), readable),
        ];
        match poll(&mut set, None) {
            Ok(_) => {
                let [_, timer, clock, _] = set.map(|polled| !polled.revents().is_empty());
                Woken { by_timer: timer, by_clock: clock }
            }
            Err(_) => Woken::ALL,
        }
    }

    fn arm_timer(&mut self) {
        // A timer that cannot be set would be a kernel that has lost its way.
        let tails = self.dying.iter().map(|dying| dying.give_up);
        let dawn = self.dawn.as_ref().map(|dawn| dawn.until);
        let looks = self.next_look(now());
        let deadlines = self.supervisor.next_deadline().into_iter().chain(self.next_preparation());
        let _ = self.timer.set(tails.chain(dawn).chain(looks).chain(deadlines).min());
    }

    /// Hands an input to the core and deals with what comes out.
    fn handle(&mut self, input: Input) {
        let at = self.heed();
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        // Only requests of people can be refused; those go through `ask_core`.
        let _ = self.supervisor.handle(at, input, &mut out);
        self.drain(&mut out);
        self.out = out;
    }

    fn hear(&mut self, news: News, mut descriptors: Vec<OwnedFd>) {
        match news {
            News::Spawned { key: RunKey { agent, run }, pid, terminal } => {
                let key = RunKey { agent: self.at_hand(agent), run };
                let output = RunOutput::from_descriptors(descriptors);
                let output = output.map(|output| self.capture(&key, output, terminal));
                let output = output.filter(|_| !terminal);
                self.processes.insert(key.agent.clone(), Process { pid, output });
                self.put_off_tidying();
                self.attend(&key, pid);
                if let Some(agent) = self.supervisor.known(&key.agent) {
                    self.handle(Input::Spawned { agent, run: key.run });
                }
            }
            News::NotSpawned { key, errno, stage } => {
                let error = std::io::Error::from_raw_os_error(errno);
                let usable =
                    !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied);
                let evidence = if error.kind() == ErrorKind::TimedOut {
                    took_too_long(stage_word(stage))
                } else {
                    format!("{}: {error}", stage_word(stage))
                };
                self.died(&key, Status::NotSpawned { usable }, Some(evidence.into()));
                self.send(&Request::Acknowledge(key));
            }
            News::Exited { key, end } => {
                self.liveness.stuck.remove(&key.agent);
                self.exited(&key, end, RunOutput::from_descriptors(descriptors));
            }
            News::Unknown(key) => self.died(&key, Status::Unseen, None),
            News::CloseAsked => {
                self.keep_closing();
                self.handle(Input::CloseAsked);
            }
            News::StillAlive(key) => self.is_stuck(key),
            News::Stray { pid, program } => {
                self.tell("stray-seen", None, [("pid", pid.into()), ("program", program.into())]);
            }
            News::Listening { agent, path: _ } => {
                if let Some(socket) = descriptors.pop() {
                    let agent = self.at_hand(agent);
                    self.liveness.vigil.hold(agent, socket);
                }
            }
            // Its run goes on without: the path that it was told leads nowhere. The next one tries.
            News::NotListening { agent, errno: _ } => {
                self.liveness.sockets.remove(&agent);
            }
            News::CommandEnded { key, number, end } => self.command_ended(&key, number, end),
            // The API ends only with the process.
            News::Rebound => drop(descriptors.pop().map(|listener| self.rebound.send(listener))),
            // These come only at the start of a connection.
            News::Welcome { .. } | News::Held { .. } | News::Kept { .. } | News::AllTold => {}
        }
    }

    /// A name as everybody else here has it: what is kept of thousands shares its memory.
    fn at_hand(&self, name: Name) -> Name {
        match self.supervisor.known(&name) {
            Some(agent) => self.supervisor.name(agent).clone(),
            None => name,
        }
    }

    /// Has a run's output captured, and gives back what it comes from.
    fn capture(&self, key: &RunKey, output: RunOutput, terminal: bool) -> Arc<OwnedFd> {
        let rotation = self.rotation_of(&key.agent);
        // Others on its account may wait for a sign that it works.
        let shares = self.recipe(&key.agent).is_some_and(|(_, agent)| agent.account.is_some());
        let RunKey { agent, run } = key.clone();
        let RunOutput { source, relay } = output;
        let output = Arc::new(source);
        let mut source = Source::new(agent, run, output.clone(), terminal);
        source.relay = relay;
        source.listened_for = shares;
        self.scribe.attach(source, rotation);
        self.meter(key);
        output
    }

    fn is_current(&self, key: &RunKey) -> bool {
        let id = self.supervisor.known(&key.agent);
        id.is_some_and(|id| self.supervisor.sight(id).run == Some(key.run))
    }

    fn send(&mut self, request: &Request) {
        // What cannot be sent now is sent when the keeper reads again; a broken channel is noticed
        // by whoever reads it.
        let _ = self.keeper.send(request, &[]);
    }

    fn hear_scribe(&mut self, event: ScribeEvent) {
        match event {
            ScribeEvent::Prompted { agent, run, question } => self.prompted(&agent, run, question),
            ScribeEvent::Spoke { agent, run } => {
                if let Some(agent) = self.supervisor.known(&agent) {
                    self.handle(Input::ActivitySeen { agent, run });
                }
            }
            ScribeEvent::Lost { agent, bytes, error } => {
                let key = RunKey { agent, run: RunId(0) };
                let body = [("bytes", bytes.into()), ("error", error.into())];
                self.tell("output-lost", Some(key), body);
            }
        }
    }

    /// What was lost of output and is not told yet: the next daemon would not know of it.
    fn hear_losses(&mut self) {
        self.scribe.settle(Duration::from_secs(1));
        while let Ok(ask) = self.asks.try_recv() {
            if let Ask::Scribe(event @ ScribeEvent::Lost { .. }) = ask {
                self.hear_scribe(event);
            }
        }
    }

    /// A run stands at a prompt that only a person can answer: somebody is told, and nothing is done.
    fn prompted(&mut self, name: &Name, run: RunId, question: Option<String>) {
        let Some(agent) = self.supervisor.known(name) else { return };
        let waiting = question.is_some();
        self.handle(Input::PromptSeen { agent, run, waiting });
        match question {
            Some(question) => {
                let question = self.row_without_secrets(name, &question);
                self.questions.insert(name.clone(), question);
            }
            None => drop(self.questions.remove(name)),
        }
    }

    /// Everything is to end: a successor goes on with that.
    fn keep_closing(&mut self) {
        self.closing = true;
        if let Ok(bytes) = serde_json::to_vec(&self.withdrawn) {
            self.send(&Request::Keep { key: CLOSING.to_owned(), bytes });
        }
    }

    /// Everything is down: the keeper may end, and so do we.
    fn finish(&mut self) -> ! {
        let gone = self.withdrawn.iter().cloned().map(Intent::Withdraw);
        // What cannot be written now is put right by the next `up`.
        let _ = self.history.store_intents(gone.collect::<Vec<_>>());
        self.send(&Request::Close);
        self.leave()
    }

    /// The keeper was killed, and the agents have died with it: what the next one is to hold. Also
    /// where everything was to end: what they have left behind is still to be swept up.
    fn bequeath(&mut self) -> Will {
        self.hear_losses();
        // What has happened until now is read when the next daemon starts.
        let _ = self.history.flush(Duration::from_secs(5));
        let closing = self.closing.then(|| serde_json::to_vec(&self.withdrawn).ok()).flatten();
        let closing = closing.map(|bytes| (CLOSING.to_owned(), bytes));
        Will::new(self.projects.values().filter_map(Project::kept).chain(closing))
    }

    /// Ends this daemon with nothing unsaid.
    fn leave(&mut self) -> ! {
        while !matches!(self.keeper.flush(), Ok(Flushed::All) | Err(_)) {
            let mut set = [PollFd::from_borrowed_fd(self.keeper.as_fd(), PollFlags::OUT)];
            let _ = poll(&mut set, None);
        }
        self.hear_losses();
        // Whatever is not on disk by then is in the journal.
        let _ = self.history.flush(Duration::from_secs(5));
        std::process::exit(0)
    }
}
