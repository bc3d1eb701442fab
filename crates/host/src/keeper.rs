//! The keeper's loop.
//!
//! One thread that waits for signals, for the daemon's channel, for the answers of spawners and for changes
//! of the socket's file. Ends are taken care of before requests, and no more than one spawn is handed to a spawner between two looks at
//! the signals: an agent that dies does not wait for a thousand that start. Requests are carried out in
//! their order, except that spawns wait for their turn: nobody's is delayed by those who crash over and
//! over. A request that concerns a run which starts waits until it has started.
//!
//! Invariant: no system call on an agent's paths, nor one that waits for an agent, is made here: spawners
//! make those ([`crate::spawner`]).
//!
//! Invariant: nothing that the daemon says or does ends an agent, except a request to do so. Whatever
//! the keeper knows is told to each new daemon, so nothing is lost with the last one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use defib_core::Name;
use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;

use crate::cgroup::Cgroups;
use crate::child::{Fault, Launcher};
use crate::daemon::Daemon;
use crate::entrance::Entrance;
use crate::footprint::{pack, release_memory, settle_allocator};
use crate::notify::Listeners;
use crate::protocol::{
    CommandEnd, CommandOrder, News, Profile, Request, RunKey, SpawnOrder, VERSION,
};
use crate::runs::{Event, HASTE, Known, Runs, Settled, Then, spawn_deadline};
use crate::standing::{Notice, Standing};
use crate::stat::Stat;
use crate::turns::{Turns, Wanted};
use crate::wait;

/// What a keeper is given.
#[derive(Debug)]
pub struct KeeperOptions {
    /// The daemon's program: an absolute path.
    pub daemon_program: PathBuf,
    /// Its arguments, without the program itself.
    pub daemon_args: Vec<OsString>,
    /// A listening socket, held for the daemon across its lives.
    pub listener: OwnedFd,
    /// The file of that socket, if the keeper is to bind it again when it is gone.
    pub entrance: Option<Entrance>,
    /// What becomes the standard error of keeper and daemon, if not what it is already.
    pub log: Option<OwnedFd>,
    /// What marks the processes of this home: unlike any other home's, the same each time, without
    /// a comma. At most 90 bytes, or there will be no cgroups.
    pub home_key: String,
    /// Whether to use cgroups where possible.
    pub cgroups: bool,
    /// The file in which it writes down where its cgroups are, for the sweep after its death. The same
    /// for all keepers of this home.
    pub places: PathBuf,
    /// What the first daemon is told of the last one, where another keeper was killed.
    pub kept: Vec<(String, Vec<u8>)>,
}

/// While the daemon does not read, its requests wait.
const MOST_QUEUED: usize = 1 << 20;
/// How long a keeper that ends waits for what it killed.
const LONGEST_END: Duration = Duration::from_secs(10);
/// How long a new daemon may take to hear of all that there is.
const LONGEST_TELLING: Duration = Duration::from_secs(10);

/// Is the keeper, until everything has ended. Takes the whole process: to be called from its only
/// thread, which has nothing else to do. Descriptors 3 and 4 become the keeper's; what the caller had
/// there stays open under another number.
///
/// # Errors
/// If signals or descriptors cannot be had at all. Then nothing was started.
pub fn run(options: KeeperOptions) -> io::Result<ExitCode> {
    settle_allocator();
    if let Some(log) = &options.log {
        rustix::stdio::dup2_stderr(log)?;
    }
    let listener = rustix::io::fcntl_dupfd_cloexec(&options.listener, 10)?;
    drop(options.listener);
    drop(options.log);
    // First: it takes descriptors by number, which none of ours must have.
    let mut launcher = Launcher::new()?;
    let standing = Standing::take()?;
    let cgroups = options.cgroups.then(|| Cgroups::new(&options.home_key, &options.places));
    let mut runs = Runs::new(&options.home_key, cgroups.flatten());
    // Now, while the keeper is small: a spawner is a copy of it.
    runs.spawners.start(&mut launcher, &standing)?;
    let mut keeper = Keeper {
        standing,
        launcher,
        daemon: Daemon::new(options.daemon_program, options.daemon_args, listener),
        runs,
        kept: options.kept.into_iter().map(|(key, it)| (key.into(), it.into())).collect(),
        turns: Turns::default(),
        commands: VecDeque::new(),
        listeners: Listeners::default(),
        entrance: options.entrance,
        forsaken: BTreeSet::new(),
        close_asked: false,
        closes_with_daemon: false,
        ending: None,
    };
    release_memory();
    loop {
        if let Some(code) = keeper.turn() {
            keeper.runs.remove_cgroups();
            keeper.listeners.close_all();
            keeper.entrance.iter().for_each(Entrance::close);
            return Ok(code);
        }
    }
}

struct Keeper {
    standing: Standing,
    launcher: Launcher,
    daemon: Daemon,
    runs: Runs,
    kept: BTreeMap<Box<str>, Box<[u8]>>,
    /// Spawns that were asked for and not yet done.
    turns: Turns,
    /// Commands of runs that were asked for and not yet spawned.
    commands: VecDeque<CommandOrder>,
    listeners: Listeners,
    entrance: Option<Entrance>,
    /// Agents that are gone and are to be forgotten when nothing concerns them any more.
    forsaken: BTreeSet<Name>,
    close_asked: bool,
    closes_with_daemon: bool,
    /// Everything was killed; by when to go, and how.
    ending: Option<(Instant, ExitCode)>,
}

impl Keeper {
    fn turn(&mut self) -> Option<ExitCode> {
        // Who was spawned of a crowd is told in company: the daemon is not woken for each.
        if self.turns.is_empty() {
            self.daemon.flush_due(Instant::now());
        } else {
            self.daemon.flush_company();
        }
        let entrance_changed = self.wait();
        for settled in self.runs.hear_spawners() {
            self.settle(settled);
        }
        for notice in self.standing.notices() {
            match notice {
                Notice::Child => self.reap(),
                Notice::Close => self.close_asked(),
            }
        }
        // An end is told before anything else is done: somebody waits to be replaced. Where many do,
        // it is told with what comes of them, or the daemon would be woken for each.
        let now = Instant::now();
        if self.turns.is_empty() {
            self.daemon.flush_due(now);
        }
        for settled in self.runs.give_up_overdue(now) {
            self.settle(settled);
        }
        if self.runs.next_look().is_some_and(|look| look <= now) {
            self.look(now);
        }
        self.tell_of_strays();
        if self.daemon.is_stuck_at().is_some_and(|stuck| stuck <= now) {
            // It is waited for like any child as soon as the kernel lets go of it.
            self.daemon_ended();
        }
        if self.daemon_due().is_some_and(|due| due <= now) {
            self.start_daemon();
        }
        if (entrance_changed || self.entrance_due().is_some_and(|due| due <= now))
            && let Some(listener) = self.entrance.as_mut().and_then(|it| it.check(now))
        {
            self.daemon.listen_on(listener);
        }
        self.carry_out_requests();
        let (until, code) = self.ending?;
        let over = self.runs.all_gone() && self.daemon.pid().is_none();
        (over || now >= until).then_some(code)
    }

    fn entrance_due(&self) -> Option<Instant> {
        self.entrance.as_ref().and_then(Entrance::due)
    }

    /// When to start the next daemon. It is told what there is when it begins, so everything that the last
    /// one asked for has started by then, or was given up.
    fn daemon_due(&self) -> Option<Instant> {
        let settled = self.turns.is_empty() && !self.runs.is_starting();
        self.daemon.due().filter(|_| self.ending.is_none() && settled)
    }

    /// Whether something is to be started that has not been handed to a spawner.
    fn has_more(&self) -> bool {
        (!self.turns.is_empty() && !self.daemon.lags()) || !self.commands.is_empty()
    }

    /// Waits until there is something to do. Says whether the socket's file may have changed.
    fn wait(&self) -> bool {
        let over = self.ending.map(|(until, _)| until);
        let lingers = self.daemon.lingers_until();
        let (more, spawners) = (self.has_more(), &self.runs.spawners);
        let due = [self.daemon_due(), over, self.runs.next_look(), lingers];
        let others = [spawners.next_due(more), self.daemon.is_stuck_at(), self.entrance_due()];
        let due = due.into_iter().chain(others).flatten().min();
        let mut timeout = due.map(|due| due.saturating_duration_since(Instant::now()));
        if more && spawners.has_room() {
            timeout = Some(Duration::ZERO);
        }
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut polled = vec![PollFd::new(self.standing.signals(), PollFlags::IN)];
        if let Some(channel) = self.daemon.channel() {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::OUT, channel.queued_bytes() > 0 && lingers.is_none());
            flags.set(PollFlags::IN, channel.queued_bytes() < MOST_QUEUED);
            polled.push(PollFd::new(channel, flags));
        }
        polled.extend(spawners.polled());
        let others = polled.len();
        let entrance = self.entrance.iter().flat_map(Entrance::descriptors);
        polled.extend(entrance.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // An interruption is as good as an event: everything is looked at anyway.
        let _ = rustix::event::poll(&mut polled, timeout.as_ref());
        polled.iter().skip(others).any(|it| !it.revents().is_empty())
    }

    /// Takes care of every child that has ended.
    fn reap(&mut self) {
        // A child that has ended and yet cannot be waited for would be met again and again.
        let mut progress = true;
        while let Some(pid) = wait::next_ended().filter(|_| progress) {
            let mut wait = || {
                let waited = wait::wait_for(pid);
                progress = waited.is_some();
                waited
            };
            let daemon = self.daemon.pid();
            if daemon == Some(pid) {
                wait();
                self.daemon_ended();
                continue;
            }
            if let Some(settled) = self.runs.spawner_ended(pid) {
                wait();
                for settled in settled {
                    self.settle(settled);
                }
                continue;
            }
            if let Some(settled) = self.runs.settle_dead(pid) {
                self.settle(settled);
            }
            let event = self.runs.child_ended(pid, daemon, wait);
            self.tell_event(event);
        }
        if self.runs.empties() {
            self.look(Instant::now());
        }
    }

    /// Says which processes belong to nobody. They are left alone: killing them would be a guess.
    fn tell_of_strays(&mut self) {
        if self.daemon.channel().is_none() {
            return;
        }
        for pid in self.runs.new_strays() {
            let program = Stat::of(pid).map(|stat| stat.program()).unwrap_or_default();
            self.daemon.tell(&News::Stray { pid: pid.as_raw_pid().unsigned_abs(), program }, None);
        }
    }

    fn look(&mut self, now: Instant) {
        for event in self.runs.look(now, self.daemon.pid()) {
            self.tell_event(Some(event));
        }
    }

    fn tell_event(&mut self, event: Option<Event>) {
        match event {
            Some(Event::Ended(key, end)) => self.daemon.tell(&News::Exited { key, end }, None),
            Some(Event::CommandEnded(key, number, end)) => {
                self.daemon.tell(&News::CommandEnded { key, number, end }, None);
            }
            Some(Event::Stuck(key)) => self.daemon.tell(&News::StillAlive(key), None),
            None => {}
        }
    }

    fn start_daemon(&mut self) {
        let Some(daemons_before) = self.daemon.start(&mut self.launcher, &self.standing) else {
            return;
        };
        let keeper_pid = rustix::process::getpid().as_raw_pid().unsigned_abs();
        let welcome = News::Welcome { version: version(), keeper_pid, daemons_before };
        // Until it knows of everything nothing can be decided, so nobody waits for us meanwhile.
        let patience = Instant::now() + LONGEST_TELLING;
        self.daemon.tell(&welcome, None);
        for (key, bytes) in &self.kept {
            let news = News::Kept { key: key.to_string(), bytes: bytes.to_vec() };
            self.daemon.tell(&news, None);
        }
        for (agent, path, socket) in self.listeners.all() {
            let news = News::Listening { agent: agent.clone(), path: path.to_owned() };
            self.daemon.tell(&news, Some(socket));
            self.daemon.make_room(patience);
        }
        for run in self.runs.live() {
            let (key, pid, terminal) = (run.key.clone(), run.child.number(), run.terminal);
            self.daemon.tell_output(&News::Held { key, pid, terminal }, &run.output);
            self.daemon.make_room(patience);
        }
        for report in self.runs.reports() {
            let news = News::Exited { key: report.key.clone(), end: report.end.clone() };
            self.daemon.tell_output(&news, &report.output);
            self.daemon.make_room(patience);
        }
        self.daemon.tell(&News::AllTold, None);
        for key in self.runs.stuck() {
            self.daemon.tell(&News::StillAlive(key.clone()), None);
        }
        if self.close_asked {
            self.daemon.tell(&News::CloseAsked, None);
        }
    }

    /// What it still said counts; then it is over with it.
    fn daemon_ended(&mut self) {
        while let Some(request) = self.daemon.next_request() {
            self.carry_out(request);
        }
        self.runs.hasten_starts();
        // The answers would go to the next daemon, which did not ask.
        self.commands.clear();
        self.runs.cancel_commands(self.daemon.pid());
        self.daemon.has_ended();
        if self.closes_with_daemon {
            self.end(ExitCode::SUCCESS);
        }
    }

    /// The first time it is the daemon's to end everything in order; the second time nobody waits.
    fn close_asked(&mut self) {
        if self.close_asked {
            self.daemon.kill();
            self.end(ExitCode::FAILURE);
        } else {
            self.close_asked = true;
            self.daemon.tell(&News::CloseAsked, None);
        }
    }

    fn end(&mut self, code: ExitCode) {
        self.runs.kill_all(self.daemon.pid());
        self.ending.get_or_insert((Instant::now() + LONGEST_END, code));
    }

    /// Carries out requests, and then one spawn, unless the daemon has yet to hear of many: each that
    /// it has not heard of holds a descriptor twice.
    fn carry_out_requests(&mut self) {
        while self.daemon.channel().is_some_and(|channel| channel.queued_bytes() < MOST_QUEUED) {
            let Some(request) = self.daemon.next_request() else { break };
            self.carry_out(request);
        }
        if !self.daemon.lags()
            && self.runs.spawners.has_room()
            && let Some(order) = self.turns.next()
        {
            self.spawn(order);
        }
        if self.runs.spawners.has_room()
            && let Some(order) = self.commands.pop_front()
        {
            self.run_command(order);
        }
        let more = self.has_more();
        self.runs.spawners.work(more, &mut self.launcher, &self.standing);
    }

    /// Takes no more memory than it needs.
    fn tidy(&mut self) {
        self.runs.pack();
        self.turns.pack_last();
        self.listeners.pack();
        pack(&mut self.kept);
        release_memory();
    }

    /// What concerns a run that was to be spawned before comes after that.
    fn spawn_before(&mut self, key: &RunKey) {
        if let Some(order) = self.turns.take(&key.agent) {
            self.spawn(order);
        }
    }

    fn spawn_in_turn(&mut self, order: SpawnOrder, profile: Option<Box<Profile>>) {
        // It is back.
        self.forsaken.remove(&order.key.agent);
        if let Some(earlier) = self.turns.ask(Wanted { order, profile }) {
            self.spawn(earlier);
        }
    }

    fn carry_out(&mut self, request: Request) {
        match request {
            Request::Spawn(order) => self.spawn_in_turn(*order, None),
            Request::SpawnConfined(order, profile) | Request::SpawnIsolated(order, profile) => {
                self.spawn_in_turn(*order, Some(profile));
            }
            Request::Signal { key, signal } => {
                self.spawn_before(&key);
                if self.runs.put_off(&key, Then::Signal(signal)).is_some() {
                    self.runs.signal(&key, signal);
                }
            }
            Request::Kill(key) => {
                self.spawn_before(&key);
                if self.runs.put_off(&key, Then::Kill).is_some() {
                    self.runs.kill(&key, self.daemon.pid());
                }
            }
            Request::Inquire(key) => {
                self.spawn_before(&key);
                if self.runs.put_off(&key, Then::Inquire).is_some() {
                    self.tell_of(key);
                }
            }
            Request::Acknowledge(key) => {
                self.runs.acknowledge(&key);
                if !self.turns.has(&key.agent) {
                    self.runs.put_away(&key.agent);
                }
                if self.forsaken.contains(&key.agent) {
                    self.forget(key.agent);
                }
            }
            Request::Keep { key, bytes } => self.keep(key, bytes),
            Request::KeepAll(all) => {
                for (key, bytes) in all {
                    self.keep(key, bytes);
                }
            }
            Request::Listen { agent, path } => self.listen(agent, path, None),
            Request::ListenFor { agent, path, user } => self.listen(agent, path, Some(user)),
            Request::Unlisten(agent) => self.listeners.close(&agent),
            Request::Tidy => self.tidy(),
            Request::Forget(agent) => self.forget(agent),
            Request::RunCommand(order) => self.commands.push_back(*order),
            Request::CancelCommand { key, number } => {
                self.commands.retain(|order| order.key != key || order.number != number);
                self.runs.cancel_command(&key, number, self.daemon.pid());
            }
            Request::Replace { program } => self.daemon.replace(program),
            Request::Close => self.closes_with_daemon = true,
        }
    }

    fn keep(&mut self, key: String, bytes: Vec<u8>) {
        if bytes.is_empty() {
            self.kept.remove(key.as_str());
        } else {
            self.kept.insert(key.into(), bytes.into());
        }
    }

    /// The daemon has an agent forgotten when it is told of the end of its last run, and acknowledges that
    /// only when it has read what the run wrote last.
    fn forget(&mut self, agent: Name) {
        if self.turns.has(&agent) || self.runs.concern(&agent) {
            self.forsaken.insert(agent);
            return;
        }
        self.forsaken.remove(&agent);
        self.runs.forget(&agent);
        self.turns.forget(&agent);
    }

    fn listen(&mut self, agent: Name, path: String, user: Option<u32>) {
        match self.listeners.open(&agent, &path, user) {
            Ok(socket) => {
                self.daemon.tell_in_company(&News::Listening { agent, path }, &[socket]);
            }
            Err(errno) => {
                let errno = errno.raw_os_error();
                self.daemon.tell(&News::NotListening { agent, errno }, None);
            }
        }
    }

    fn run_command(&mut self, order: CommandOrder) {
        let (key, number) = (order.key.clone(), order.number);
        if let Err(Fault { stage, errno }) = self.runs.run_command(order) {
            let end = CommandEnd::NotSpawned { errno: errno.raw_os_error(), stage };
            self.daemon.tell(&News::CommandEnded { key, number, end }, None);
        }
    }

    fn spawn(&mut self, wanted: Wanted) {
        let key = wanted.order.key.clone();
        match self.runs.known(&key) {
            // The daemon is told as soon as it has started.
            Known::Starts => return,
            Known::Lives(run) => {
                let (pid, terminal) = (run.child.number(), run.terminal);
                let news = News::Spawned { key, pid, terminal };
                return self.daemon.tell_output(&news, &run.output);
            }
            Known::Ended(_) | Known::Over => return self.tell_of(key),
            Known::Never if self.ending.is_some() => return,
            Known::Never => {}
        }
        let Some(Then::Spawn(wanted)) = self.runs.put_off(&key, Then::Spawn(Box::new(wanted)))
        else {
            return;
        };
        let patience = if self.daemon.pid().is_some() { spawn_deadline() } else { HASTE };
        if let Err(fault) = self.runs.begin(*wanted, &self.launcher, patience) {
            self.settle(Settled::Run(key, Err(fault), Vec::new()));
        }
    }

    /// Tells what came of a start, and does what has waited for it.
    fn settle(&mut self, settled: Settled) {
        let (key, result, then) = match settled {
            Settled::Run(key, result, then) => (key, result, then),
            Settled::Command(event) => return self.tell_event(Some(event)),
        };
        match (result, self.runs.known(&key)) {
            (Ok(()), Known::Lives(run)) => {
                let (pid, terminal) = (run.child.number(), run.terminal);
                let news = News::Spawned { key: key.clone(), pid, terminal };
                self.daemon.tell_in_company(&news, &run.output.descriptors());
            }
            (Ok(()), _) => {}
            (Err(Fault { stage, errno }), _) => {
                let (key, errno) = (key.clone(), errno.raw_os_error());
                self.daemon.tell(&News::NotSpawned { key, errno, stage }, None);
            }
        }
        for then in then {
            match then {
                Then::Signal(signal) => self.runs.signal(&key, signal),
                Then::Kill => self.runs.kill(&key, self.daemon.pid()),
                Then::Inquire => self.tell_of(key.clone()),
                Then::Spawn(wanted) => self.spawn(*wanted),
            }
        }
        if self.forsaken.contains(&key.agent) {
            self.forget(key.agent);
        }
    }

    /// Tells what is known of a run. Its output this daemon has had since it was told of the run, and a
    /// descriptor for each of thousands that are asked for at once would be more than there may be.
    fn tell_of(&mut self, key: RunKey) {
        let news = match self.runs.known(&key) {
            Known::Lives(run) => {
                News::Held { key, pid: run.child.number(), terminal: run.terminal }
            }
            Known::Ended(report) => News::Exited { key, end: report.end.clone() },
            // It starts only if it was asked for again, so the daemon knows.
            Known::Starts => return,
            Known::Over | Known::Never => News::Unknown(key),
        };
        self.daemon.tell(&news, None);
    }
}

/// The version that this keeper announces. A debug build announces the older version that a test asks for,
/// so that the test sees how a daemon treats an older keeper.
fn version() -> u32 {
    let asked = std::env::var("DEFIB_TEST_KEEPER_VERSION").ok().filter(|_| cfg!(debug_assertions));
    asked.and_then(|text| text.parse().ok()).map_or(VERSION, |older: u32| older.min(VERSION))
}
