//! The scribe: one thread that moves what agents write to their logs.
//!
//! It never makes an agent wait for the disk: where a log cannot be written, output is read and
//! thrown away, counted, and said. It never waits for the end of output either: a run is over when
//! its process is, and what a grandchild writes afterwards is still captured.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use defib_core::{Name, RunId};
use defib_host::clock::now;
use defib_host::output::{Moved, Relay, read_some};
use defib_host::pack;
use defib_host::protocol::RunKey;
use defib_host::wake::Waker;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::log::Log;
use super::losses::Losses;
use super::prompts::PromptWatch;
use super::room::{LARGE, PipeRoom};
use super::segment::{CHUNK, Rotation, Unwritten};
use super::{Activity, TAIL};
use crate::terminal::Terminals;

/// How long those who write little at a time and without pause are left to it, so that it is moved in
/// larger portions. It is far from filling a pipe.
const BREATH: Timespec = Timespec { tv_sec: 0, tv_nsec: 300_000 };
/// Less than this at a time is little. Whoever hands over more is held up by being left alone: its pipe
/// fills meanwhile, and it cannot write while that is moved.
const LITTLE: usize = 16 << 10;
/// This much at a time is much: half of what a pipe holds at first.
const MUCH: usize = 32 << 10;
/// Whoever writes again this soon writes without pause.
const SOON: Duration = Duration::from_millis(1);
/// However few descriptors there are, so many logs stay open.
const FEWEST_OPEN: usize = 16;
/// The eventfd's key in the epoll set; no agent has it.
const WAKE: u64 = u64::MAX;

/// What the scribe has to say.
#[derive(Debug)]
pub enum ScribeEvent {
    /// A run that is listened for has written something for the first time.
    Spoke {
        /// Whose.
        agent: Name,
        /// Which.
        run: RunId,
    },
    /// A run's terminal stands at a prompt that only a person can answer, or no longer does.
    Prompted {
        /// Whose.
        agent: Name,
        /// Which.
        run: RunId,
        /// The question, where there is one.
        question: Option<String>,
    },
    /// Output was thrown away because the log could not be written.
    Lost {
        /// Whose.
        agent: Name,
        /// How much since it was last told.
        bytes: u64,
        /// Why.
        error: String,
    },
}

/// What is done with a run's last bytes, on the scribe's thread.
type Then = Box<dyn FnOnce(Vec<u8>) + Send>;

enum Order {
    Attach(Source, Rotation),
    Close { agent: Name, run: RunId, most: usize, then: Then },
    Forget { agent: Name },
    Settle { told: Sender<()> },
    Pack,
}

/// The way to the scribe. Orders are carried out in the order they are given.
#[derive(Debug, Clone)]
pub struct Scribe {
    orders: Sender<Order>,
    wake: Arc<Waker>,
    spoken: Spoken,
}

impl Scribe {
    /// Starts the scribe, which shows what is written on terminals to those who look. `grew` is called
    /// when there is more in an agent's log, `tell` with all else; both on its thread, so that neither
    /// may block.
    pub(crate) fn start(
        home: PathBuf,
        terminals: Terminals,
        activity: Activity,
        grew: impl Fn(&Name) + Send + 'static,
        tell: impl Fn(ScribeEvent) + Send + 'static,
    ) -> io::Result<Scribe> {
        let wake = Arc::new(Waker::new()?);
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&set, &*wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        let (orders, inbox) = channel();
        let desk = Desk {
            home,
            terminals,
            activity,
            set,
            wake: wake.clone(),
            inbox,
            next_key: 0,
            last_moved: Instant::now(),
            sources: BTreeMap::new(),
            unheard: BTreeMap::new(),
            logs: BTreeMap::new(),
            spoken: Spoken::default(),
            open: VecDeque::new(),
            // Each is two files. The rest is for pipes, notify sockets and connections.
            most_open: defib_host::descriptor_limit() / 8,
            losses: Losses::default(),
            room: PipeRoom::new(),
            grew: Box::new(grew),
            tell: Box::new(tell),
        };
        let spoken = desk.spoken.clone();
        thread::Builder::new().name("scribe".to_owned()).spawn(move || desk.work())?;
        Ok(Scribe { orders, wake, spoken })
    }

    /// Captures the output of a run.
    pub fn attach(&self, source: Source, rotation: Rotation) {
        self.order(Order::Attach(source, rotation));
    }

    /// The run is over: takes what it has written, and hands over its last bytes, `most` of them.
    /// What is done with them is done on the scribe's thread and must not block.
    pub fn close(
        &self,
        agent: Name,
        run: RunId,
        most: usize,
        then: impl FnOnce(Vec<u8>) + Send + 'static,
    ) {
        self.order(Order::Close { agent, run, most, then: Box::new(then) });
    }

    /// Whether a run, which is over, has written nothing to its pipe, of which only the scribe has read.
    /// Then there is nothing to close: whoever died without a word waits for nobody.
    pub fn is_silent(&self, key: &RunKey, pipe: &OwnedFd) -> bool {
        // In this order: what is not in the pipe any more was noted before it was taken.
        rustix::io::ioctl_fionread(pipe) == Ok(0) && !self.spoken.has(&key.agent, key.run)
    }

    /// The agent is gone; its log files stay. What its processes left running write from now on is read
    /// and thrown away, and nobody is told: there is no agent any more whose output it would be.
    pub fn forget(&self, agent: Name) {
        self.order(Order::Forget { agent });
    }

    /// Has everything told that was lost and is not told yet, and waits for that, for so long at most.
    pub fn settle(&self, patience: Duration) {
        let (told, done) = channel();
        self.order(Order::Settle { told });
        let _ = done.recv_timeout(patience);
    }

    /// Takes no more memory than it needs.
    pub fn pack(&self) {
        self.order(Order::Pack);
    }

    fn order(&self, order: Order) {
        // The scribe ends only with the process.
        let _ = self.orders.send(order);
        self.wake.wake();
    }
}

/// Something that output comes from.
#[derive(Debug)]
pub struct Source {
    /// Whose.
    pub agent: Name,
    /// Which run's.
    pub run: RunId,
    /// Where it comes from.
    pub output: Arc<OwnedFd>,
    /// Whether that is a terminal.
    pub terminal: bool,
    /// The pipe between a terminal and its log, which the keeper holds too.
    pub relay: Option<Box<Relay>>,
    /// Whether somebody waits for its first bytes.
    pub listened_for: bool,
    /// Whether it asks something, on its terminal.
    prompt: PromptWatch,
    /// Whether it has a large pipe.
    large: bool,
}

impl Source {
    /// The output of a run, of which nothing is known yet.
    pub const fn new(agent: Name, run: RunId, output: Arc<OwnedFd>, terminal: bool) -> Source {
        let prompt = PromptWatch::new();
        Source {
            agent,
            run,
            output,
            terminal,
            relay: None,
            listened_for: false,
            prompt,
            large: false,
        }
    }
}

impl Source {
    /// Reads and drops what there is, a relay's bytes before its terminal's. Gives the number of bytes,
    /// and whether no more will come.
    fn read_away(&self, mut look: impl FnMut(&[u8])) -> (u64, bool) {
        let relay = self.relay.as_ref();
        let (relayed, _) = relay.map_or((0, false), |relay| read_away(&relay.read, &mut look));
        let (read, ended) = read_away(&self.output, &mut look);
        (relayed + read, ended)
    }
}

/// The runs that have written something, by agent. One is noted before what it wrote is taken from its
/// pipe: so a run whose pipe is empty, and which is not noted after that was seen, has written nothing.
#[derive(Debug, Clone, Default)]
struct Spoken(Arc<Mutex<BTreeMap<Name, RunId>>>);

impl Spoken {
    fn note(&self, agent: &Name, run: RunId) {
        let mut all = self.lock();
        match all.get_mut(agent) {
            // What an earlier run left running may still write.
            Some(known) => *known = run.max(*known),
            None => drop(all.insert(agent.clone(), run)),
        }
    }

    fn has(&self, agent: &Name, run: RunId) -> bool {
        self.lock().get(agent) == Some(&run)
    }

    fn forget(&self, agent: &Name) {
        self.lock().remove(agent);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, RunId>> {
        // Nothing that is done under it can leave half a state behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Desk {
    home: PathBuf,
    terminals: Terminals,
    activity: Activity,
    set: OwnedFd,
    wake: Arc<Waker>,
    inbox: Receiver<Order>,
    next_key: u64,
    /// When something was last moved to a log.
    last_moved: Instant,
    sources: BTreeMap<u64, Source>,
    /// The output of those whose agent is gone. It is not closed: whoever writes to a pipe that nobody
    /// reads is killed by that, and to one that nobody empties waits for ever. Whoever was to be kept
    /// would live for no longer than its agent's name.
    unheard: BTreeMap<u64, Source>,
    logs: BTreeMap<Name, Log>,
    spoken: Spoken,
    /// The logs that are open, first to last, and how many may be.
    open: VecDeque<Name>,
    most_open: usize,
    losses: Losses,
    room: PipeRoom,
    grew: Box<dyn Fn(&Name) + Send>,
    tell: Box<dyn Fn(ScribeEvent) + Send>,
}

impl Desk {
    fn work(mut self) {
        let mut events = Vec::with_capacity(256);
        loop {
            events.clear();
            let spare = rustix::buffer::spare_capacity(&mut events);
            let timeout = self.patience();
            if epoll::wait(&self.set, spare, timeout.as_ref()).is_err() {
                // Interrupted: nothing has happened yet.
                continue;
            }
            let mut moved = 0;
            for event in &events {
                let key = event.data.u64();
                if key == WAKE {
                    self.wake.take();
                }
                // Before each source: whoever has died does not wait behind those who write much, and what
                // came after an order is not taken before it.
                while let Ok(order) = self.inbox.try_recv() {
                    self.carry_out(order);
                }
                if key != WAKE {
                    moved += self.capture(key, event.flags);
                }
            }
            self.look_at_quiet_terminals();
            self.losses.take_due(Instant::now()).into_iter().for_each(&self.tell);
            self.take_breath(moved);
        }
    }

    /// Lets those who write in a hurry get ahead a little. An order ends that at once.
    fn take_breath(&mut self, moved: usize) {
        if moved == 0 {
            return;
        }
        let in_a_hurry = self.last_moved.elapsed() < SOON;
        if in_a_hurry && moved < LITTLE {
            let mut wake = [PollFd::new(&*self.wake, PollFlags::IN)];
            // An interruption is as good as the end of it.
            let _ = poll(&mut wake, Some(&BREATH));
        }
        self.last_moved = Instant::now();
    }

    /// How long until there is something to do that nothing else tells us of.
    fn patience(&self) -> Option<Timespec> {
        let prompts = self.sources.values().filter_map(|source| source.prompt.due());
        let due = prompts.chain(self.losses.due()).min()?;
        Timespec::try_from(due.saturating_duration_since(Instant::now())).ok()
    }

    fn look_at_quiet_terminals(&mut self) {
        let now = Instant::now();
        for source in self.sources.values_mut() {
            let screen = || self.terminals.lines(&source.agent, source.run).unwrap_or_default();
            if let Some(question) = source.prompt.look(now, screen) {
                let (agent, run) = (source.agent.clone(), source.run);
                (self.tell)(ScribeEvent::Prompted { agent, run, question: Some(question) });
            }
        }
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Attach(source, rotation) => self.attach(source, rotation),
            Order::Close { agent, run, most, then } => then(self.close(&agent, run, most)),
            Order::Forget { agent } => self.forget(&agent),
            Order::Settle { told } => {
                self.losses.settle_all(Instant::now()).into_iter().for_each(&self.tell);
                // Whoever has asked may not have waited.
                let _ = told.send(());
            }
            Order::Pack => {
                pack(&mut self.sources);
                pack(&mut self.unheard);
                pack(&mut self.logs);
                self.open.shrink_to_fit();
            }
        }
    }

    fn attach(&mut self, mut source: Source, rotation: Rotation) {
        self.begin(&source.agent, source.run, rotation);
        if source.terminal {
            self.show(&source.agent, source.run, &source.output);
            // It may have asked before we came.
            source.prompt.wrote(Instant::now());
        }
        // A descriptor that is shared with others and would block would stop us all.
        let flags = fcntl_getfl(&source.output).unwrap_or(OFlags::empty());
        if !flags.contains(OFlags::NONBLOCK) {
            let _ = fcntl_setfl(&source.output, flags | OFlags::NONBLOCK);
        }
        let key = self.next_key;
        self.next_key += 1;
        let data = epoll::EventData::new_u64(key);
        if epoll::add(&self.set, &source.output, data, epoll::EventFlags::IN).is_ok() {
            if let Some(relay) = &source.relay {
                // A killed daemon may have left bytes in it, which no event of the terminal announces.
                let _ = epoll::add(&self.set, &relay.read, data, epoll::EventFlags::IN);
            }
            source.large = self.room.recognise(&source.output);
            self.sources.insert(key, source);
        }
    }

    fn begin(&mut self, agent: &Name, run: RunId, rotation: Rotation) {
        let home = &self.home;
        let log = self.logs.entry(agent.clone()).or_insert_with(|| Log::new(run, rotation));
        log.begin(home, agent, run, rotation);
        self.bound_open(agent);
        // The run before it is over, and its last line has an end by now.
        (self.grew)(agent);
    }

    /// Closes the log that was opened longest ago where too many are. It is opened again when there is
    /// something to write.
    fn bound_open(&mut self, agent: &Name) {
        let Some(log) = self.logs.get_mut(agent) else { return };
        if log.is_open() && !std::mem::replace(&mut log.in_line, true) {
            self.open.push_back(agent.clone());
        }
        while self.open.len() > self.most_open.max(FEWEST_OPEN) {
            let Some(oldest) = self.open.pop_front() else { return };
            if let Some(log) = self.logs.get_mut(&oldest) {
                log.close();
                log.in_line = false;
            }
        }
    }

    /// A run's terminal can be looked at, with what it has written for an earlier daemon.
    fn show(&mut self, agent: &Name, run: RunId, master: &OwnedFd) {
        if let Ok(master) = master.try_clone() {
            let tail = self.tail(agent, TAIL);
            self.terminals.open(agent.clone(), run, master, &tail);
        }
    }

    /// The last bytes of an agent's present run.
    fn tail(&mut self, agent: &Name, most: usize) -> Vec<u8> {
        let Some(log) = self.logs.get_mut(agent) else { return Vec::new() };
        let tail = log.tail(&self.home, agent, most);
        self.bound_open(agent);
        tail
    }

    /// Moves what a source has to its agent's log. Says how much that was.
    fn capture(&mut self, key: u64, flags: epoll::EventFlags) -> usize {
        let Some(source) = self.sources.get_mut(&key) else {
            self.pass_over(key);
            return 0;
        };
        if flags.contains(epoll::EventFlags::IN) {
            self.spoken.note(&source.agent, source.run);
        }
        let Some(log) = self.logs.get_mut(&source.agent) else {
            // What is not read would wake us again at once, and for ever.
            self.mute(key);
            return 0;
        };
        match log.take_from(&self.home, source, &self.terminals) {
            Ok(Moved::Bytes(bytes)) => {
                if std::mem::take(&mut source.listened_for) {
                    let (agent, run) = (source.agent.clone(), source.run);
                    (self.tell)(ScribeEvent::Spoke { agent, run });
                }
                if source.terminal && source.prompt.wrote(Instant::now()) {
                    let (agent, run) = (source.agent.clone(), source.run);
                    (self.tell)(ScribeEvent::Prompted { agent, run, question: None });
                }
                if bytes >= MUCH && !source.large && !source.terminal {
                    source.large = self.room.enlarge(&source.output);
                }
                self.activity.note(&source.agent, now().wall);
                (self.grew)(&source.agent);
                let agent = source.agent.clone();
                self.bound_open(&agent);
                return bytes;
            }
            Ok(Moved::WouldBlock) => {}
            Ok(Moved::End) => {
                self.detach(key);
            }
            Err(unwritten) => self.throw_away(key, &unwritten),
        }
        0
    }

    /// The log cannot be written: the output is read and lost, so that the agent can go on.
    fn throw_away(&mut self, key: u64, unwritten: &Unwritten) {
        let Some(source) = self.sources.get(&key) else { return };
        if let Some(log) = self.logs.get_mut(&source.agent) {
            // It is opened anew when there is more, and may be well by then.
            log.close();
        }
        let (read, ended) = source.read_away(|block| {
            if source.terminal {
                self.terminals.wrote(&source.agent, source.run, block);
            }
        });
        let (bytes, error) = (unwritten.bytes + read, unwritten.error.to_string());
        if bytes > 0 {
            if let Some(log) = self.logs.get_mut(&source.agent) {
                log.lose(bytes, &error);
            }
            let lost = self.losses.add(Instant::now(), &source.agent, bytes, error);
            lost.into_iter().for_each(&self.tell);
        }
        if ended {
            self.detach(key);
        }
    }

    fn close(&mut self, agent: &Name, run: RunId, most: usize) -> Vec<u8> {
        let keys: Vec<u64> = self
            .sources
            .iter()
            .filter(|(_, source)| source.agent == *agent && source.run == run)
            .map(|(key, _)| *key)
            .collect();
        let mut took = false;
        for key in keys {
            // All that the run itself has written is in the pipe by now; more than a pipe holds is
            // a grandchild's, which is captured as it comes.
            for _ in 0..=LARGE / CHUNK {
                let Some(source) = self.sources.get(&key) else { break };
                let Some(log) = self.logs.get_mut(&source.agent) else { break };
                match log.take_from(&self.home, source, &self.terminals) {
                    Ok(Moved::Bytes(_)) => took = true,
                    Ok(Moved::WouldBlock) => break,
                    Ok(Moved::End) => self.detach(key),
                    Err(unwritten) => {
                        self.throw_away(key, &unwritten);
                        break;
                    }
                }
            }
        }
        if took {
            self.activity.note(agent, now().wall);
            (self.grew)(agent);
        }
        self.losses.settle(Instant::now(), agent).into_iter().for_each(&self.tell);
        self.terminals.close(agent, run);
        self.tail(agent, most)
    }

    fn detach(&mut self, key: u64) {
        if let Some(source) = self.sources.remove(&key) {
            self.give_up(&source);
        }
    }

    /// Nothing more will come from a source.
    fn give_up(&mut self, source: &Source) {
        let _ = epoll::delete(&self.set, &source.output);
        if let Some(relay) = &source.relay {
            let _ = epoll::delete(&self.set, &relay.read);
        }
        self.room.give_back(source.large);
    }

    fn forget(&mut self, agent: &Name) {
        let of_it = |(key, source): (&u64, &Source)| (source.agent == *agent).then_some(*key);
        let keys: Vec<u64> = self.sources.iter().filter_map(of_it).collect();
        for key in keys {
            self.mute(key);
        }
        self.logs.remove(agent);
        self.open.retain(|open| open != agent);
        self.spoken.forget(agent);
        self.losses.settle(Instant::now(), agent).into_iter().for_each(&self.tell);
    }

    /// What comes from a source is nobody's any more.
    fn mute(&mut self, key: u64) {
        if let Some(source) = self.sources.remove(&key) {
            self.unheard.insert(key, source);
        }
    }

    /// Reads what comes from who is not listened to any more.
    fn pass_over(&mut self, key: u64) {
        let Some(source) = self.unheard.get(&key) else { return };
        let (_, ended) = source.read_away(|_| {});
        if ended && let Some(source) = self.unheard.remove(&key) {
            self.give_up(&source);
        }
    }
}

/// Reads what there is, but not without end. Says how much that was, and whether no more will come.
fn read_away(output: &OwnedFd, mut look: impl FnMut(&[u8])) -> (u64, bool) {
    let (mut bytes, mut block) = (0, vec![0; 1 << 16]);
    loop {
        match read_some(output, &mut block) {
            Ok(Moved::Bytes(read)) => {
                bytes += read as u64;
                look(&block[..read]);
            }
            Ok(Moved::WouldBlock) => return (bytes, false),
            Ok(Moved::End) | Err(_) => return (bytes, true),
        }
        if bytes > 16 << 20 {
            return (bytes, false);
        }
    }
}

#[cfg(test)]
mod tests;
