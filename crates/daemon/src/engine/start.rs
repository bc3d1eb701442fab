//! How a daemon begins: it takes over what the keeper holds, or starts anew.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use defib_core::limit::Tally;
use defib_core::{
    AgentView, Continuity, Input, Life, Mono, Name, Outbox, Record, RunId, Settings, Snapshot,
    Supervisor, Totals, View, Wall,
};
use defib_history::{Event, History, Intents, Run, RunFilter, Trouble, Usage};
use defib_host::Channel;
use defib_host::clock::{BootTimer, ClockSteps, boot_id, now};
use defib_host::protocol::{News, Request, RunEnd, RunKey};
use defib_host::wake::Waker;
use rustix::event::{PollFd, PollFlags, poll};
use serde::Deserialize as _;
use serde_json::Value;
use tokio::sync::watch;

use super::ask::Ask;
use super::capabilities::Capabilities;
use super::money::Money;
use super::session::Sessions;
use super::states::States;
use super::timetable::Timetable;
use super::trouble::Troubles;
use super::vigil::Liveness;
use super::{Engine, EngineHandle, Process};
use crate::coroner::Coroner;
use crate::doors::Site;
use crate::intents::IntentDesk;
use crate::journal::Journal;
use crate::ledger::Ledger;
use crate::liveness::Owns;
use crate::logs::{Activity, Scribe};
use crate::meter::Meters;
use crate::metrics::Target;
use crate::names::Names;
use crate::notify::Roll;
use crate::recipe::Project;
use crate::terminal::Terminals;
use crate::wire::{DaemonInfo, Mode, stamp};

/// What a daemon begins with.
pub(crate) struct Setup {
    /// The folder of everything.
    pub(crate) home: PathBuf,
    /// The way to the keeper.
    pub(crate) keeper: Channel<Request, News>,
    /// The history, open.
    pub(crate) history: Arc<History>,
    /// What was wanted when it was last written down.
    pub(crate) intents: Intents,
    /// The highest number that the history has.
    pub(crate) highest_seq: u64,
    /// Where terminals are looked at.
    pub(crate) terminals: Terminals,
    /// Where tasks run.
    pub(crate) runtime: tokio::runtime::Handle,
    /// What is wrong with the files of either, from the beginning on.
    pub(crate) troubles: Receiver<Trouble>,
    /// By which the engine is woken.
    pub(crate) wake: Arc<Waker>,
    /// Whether a project is about to be brought up.
    pub(crate) awaits_up: bool,
    /// Where it is told where to listen.
    pub(crate) site: watch::Sender<Option<Site>>,
    /// Where it is told who is to be told.
    pub(crate) roll: watch::Sender<Roll>,
    /// Where it is told whom figures are sent to.
    pub(crate) export: watch::Sender<Option<Target>>,
}

/// How long an `up` is awaited that a daemon was started for.
const AWAIT_UP: Duration = Duration::from_secs(5);

/// What a daemon starts anew with.
pub(super) struct Dawn {
    /// When to begin, whoever has come by then.
    pub(super) until: Mono,
    settings: Settings,
    intents: Intents,
    /// The records in the journal. Rests are stored a moment after they are decided, the journal has
    /// them at once.
    last_days: Vec<Record>,
    /// What is to be said of how it began.
    says: Vec<Saying>,
}

/// An event that is about no agent: its type and what it says.
type Saying = (&'static str, Vec<(&'static str, Value)>);

/// What the keeper told on the new connection.
struct Inheritance {
    keeper_pid: u32,
    keeper_version: u32,
    daemons_before: u64,
    held: Vec<(RunKey, u32, bool, Option<OwnedFd>)>,
    ended: Vec<(RunKey, RunEnd, Option<OwnedFd>)>,
    kept: BTreeMap<String, Vec<u8>>,
    listening: Vec<(Name, String, OwnedFd)>,
}

impl Inheritance {
    fn hear(keeper: &mut Channel<Request, News>) -> io::Result<Inheritance> {
        let mut heard = Inheritance {
            keeper_pid: 0,
            keeper_version: 0,
            daemons_before: 0,
            held: Vec::new(),
            ended: Vec::new(),
            kept: BTreeMap::new(),
            listening: Vec::new(),
        };
        loop {
            let Some((news, mut descriptors)) = keeper.receive().map_err(io::Error::other)? else {
                let mut set = [PollFd::from_borrowed_fd(keeper.as_fd(), PollFlags::IN)];
                let _ = poll(&mut set, None);
                continue;
            };
            match news {
                News::Welcome { version, keeper_pid, daemons_before } => {
                    (heard.keeper_pid, heard.daemons_before) = (keeper_pid, daemons_before);
                    heard.keeper_version = version;
                }
                News::Listening { agent, path } => {
                    let socket = descriptors.pop();
                    heard.listening.extend(socket.map(|socket| (agent, path, socket)));
                }
                News::Held { key, pid, terminal } => {
                    heard.held.push((key, pid, terminal, descriptors.pop()));
                }
                News::Kept { key, bytes } => drop(heard.kept.insert(key, bytes)),
                News::Exited { key, end } => heard.ended.push((key, end, descriptors.pop())),
                News::AllTold => return Ok(heard),
                News::Spawned { .. }
                | News::NotSpawned { .. }
                | News::Unknown(_)
                | News::StillAlive(_)
                | News::NotListening { .. }
                | News::CloseAsked => {}
            }
        }
    }

    /// What is known of each agent, and what was seen of it.
    fn lives(&self) -> (BTreeMap<Name, Life>, View) {
        let (mut lives, mut view) = (BTreeMap::new(), View::default());
        for (name, bytes) in self.under("life/") {
            if let Ok((life, seen)) = postcard::from_bytes::<(Life, Option<AgentView>)>(bytes) {
                lives.insert(name.clone(), life);
                if let Some(seen) = seen {
                    view.put(name, seen);
                }
            }
        }
        (lives, view)
    }

    /// What was kept under keys that begin with `prefix`.
    fn under<'h>(&'h self, prefix: &'h str) -> impl Iterator<Item = (Name, &'h [u8])> + 'h {
        self.kept.iter().filter_map(move |(key, bytes)| {
            Some((Name::known(key.strip_prefix(prefix)?).ok()?, bytes.as_slice()))
        })
    }
}

/// What is to be said of how a daemon began.
fn says(unreadable: Vec<Unreadable>) -> Vec<Saying> {
    let unreadable = unreadable.into_iter().map(|Unreadable { project, file, why }| {
        let (project, file) = (project.to_string(), file.display().to_string());
        let body = vec![("project", project.into()), ("file", file.into()), ("why", why.into())];
        ("config-unreadable", body)
    });
    unreadable.collect()
}

/// What was to be written to the journal last is kept under this key.
pub(super) const JOURNAL: &str = "journal";

type Whole = (u64, Totals, BTreeMap<Name, Tally>);

impl Engine {
    /// Takes over and gives the way to the engine, which is to be put to work on a thread.
    pub(crate) fn begin(setup: Setup) -> io::Result<(Engine, EngineHandle)> {
        let Setup {
            home,
            mut keeper,
            history,
            intents,
            highest_seq,
            terminals,
            runtime,
            troubles,
            wake,
            awaits_up,
            site,
            roll,
            export,
        } = setup;
        let heard = Inheritance::hear(&mut keeper)?;
        let whole: Option<Whole> =
            heard.kept.get("whole").and_then(|bytes| postcard::from_bytes(bytes).ok());
        // What was written and not kept has not happened: its news come again.
        let happened = whole.as_ref().map_or(u64::MAX, |whole| whole.0);
        let kept = heard.kept.get(JOURNAL).map(Vec::as_slice).unwrap_or_default();
        let TakenUp { journal, last_days, last_unwritten, used } =
            take_up_journal(&home, kept, &history, highest_seq, happened)?;
        let (mut projects, unreadable) = projects(&heard, &intents, whole.is_some());
        let names = Names::begin(&intents, &mut projects, &history);
        let (lives, view) = heard.lives();
        let started = now();
        let settings = Settings { jitter_seed: Some(started.mono.as_nanos()) };
        let (ledger, clerk) = Ledger::open(history.clone(), &intents);
        let (handle, inbox) = EngineHandle::open(history.clone(), ledger, wake);
        let money = Money::start(home.clone(), &handle, clerk, heard.kept.get("otlp"))?;
        let activity = Activity::default();
        let watchers = (activity.clone(), money.meters.clone());
        let (scribe, coroner) = assistants(&handle, home.clone(), terminals, watchers)?;
        let seq = whole.as_ref().map_or(0, |whole| whole.0).max(highest_seq).max(last_unwritten);
        let info = info(started.wall, heard.keeper_pid);
        let mut engine = Engine {
            boot: boot_id().unwrap_or_default().into(),
            supervisor: Supervisor::new(settings),
            view,
            keeper,
            intents: IntentDesk::start(history.clone())?,
            history,
            journal,
            money,
            scribe,
            activity,
            coroner,
            dying: Vec::new(),
            rules: BTreeMap::new(),
            timetable: Timetable::begin(),
            sessions: Sessions::stored(&intents),
            questions: BTreeMap::new(),
            handle: handle.clone(),
            asks: inbox,
            wake: handle.wake.clone(),
            timer: BootTimer::new()?,
            clock_steps: ClockSteps::new()?,
            projects,
            names,
            declared: BTreeMap::new(),
            processes: BTreeMap::new(),
            traces: BTreeMap::new(),
            used,
            keepers_peak: 0,
            secrets: BTreeMap::new(),
            own: owns(&heard),
            next_token: None,
            states: States::new(&home),
            capabilities: Capabilities::stored(&intents, heard.under("capabilities/")),
            liveness: Liveness::begin(&home, &handle, runtime, heard.keeper_version)?,
            seq,
            unpublished: Vec::new(),
            out: Outbox::default(),
            pending: VecDeque::new(),
            next_ticket: 0,
            info,
            troubles: Troubles::heard_of(troubles),
            closing: false,
            withdrawn: Vec::new(),
            leave: false,
            dawn: None,
            site,
            roll,
            export,
            home,
        };
        let says = says(unreadable);
        if let Some((_, totals, spent)) = whole {
            let snapshot = Snapshot { lives, spent, totals };
            engine.adopt(settings, snapshot, heard);
            engine.say(says);
        } else {
            engine.dawn =
                Some(Dawn { until: started.mono + AWAIT_UP, settings, intents, last_days, says });
            if !awaits_up {
                engine.rise();
            }
        }
        Ok((engine, handle))
    }

    /// Goes on where another daemon stopped, with its agents alive.
    fn adopt(&mut self, settings: Settings, snapshot: Snapshot, heard: Inheritance) {
        self.index_agents();
        self.tell_roll(None);
        let topology = self.topology();
        let continuity = Continuity::Unbroken;
        self.supervisor = Supervisor::restore(settings, topology, snapshot, continuity, now());
        let count = heard.held.len();
        let Inheritance { held, ended, kept, listening, .. } = heard;
        for (agent, path, socket) in listening {
            self.liveness.sockets.insert(agent.clone(), &path);
            self.liveness.vigil.hold(agent, socket);
        }
        if let Some(bytes) = kept.get("closing") {
            self.closing = true;
            self.withdrawn = serde_json::from_slice(bytes).unwrap_or_default();
        }
        for death in last_deaths(&self.history, &self.view) {
            let Run { agent, run, death: Some(death), .. } = death else { continue };
            if let Some(trace) = death.trace {
                self.traces.insert(agent.clone(), (run, trace));
            }
            // The journal may know of a later one.
            let known = self.used.entry(agent).or_insert((run, death.used));
            if known.0 < run {
                *known = (run, death.used);
            }
        }
        // Before any report of an end: who has nothing left is not started again.
        self.warn_of_the_spent();
        let mut found: BTreeMap<Name, RunId> = BTreeMap::new();
        for (key, pid, terminal, output) in held {
            found.insert(key.agent.clone(), key.run);
            self.learn_secrets(&key.agent);
            // Somebody else may have read what it wrote.
            self.processes.insert(key.agent.clone(), Process { pid, output: None });
            self.attend(&key, pid);
            if let Some(output) = output {
                self.capture(&key, output, terminal);
            }
        }
        for (key, end, output) in ended {
            self.learn_secrets(&key.agent);
            // Its report waits for us like a run that lives. Of several it is the last that the core may
            // know: those before it were judged, and only that was not acknowledged.
            let last = found.entry(key.agent.clone()).or_insert(key.run);
            *last = key.run.max(*last);
            self.exited(&key, end, output);
        }
        for name in self.supervisor.known_names() {
            if let Some(agent) = self.supervisor.known(&name) {
                let run = found.get(&name).copied();
                self.handle(Input::Found { agent, run });
            }
        }
        self.open_purses();
        self.tidy_soon();
        self.show_names();
        self.tell("daemon-adopted", None, [("agents", count.into())]);
    }

    /// Starts anew, once: what should be up is started.
    pub(super) fn rise(&mut self) {
        let Some(dawn) = self.dawn.take() else { return };
        let Dawn { settings, intents, last_days, says, .. } = dawn;
        self.index_agents();
        self.tell_roll(Some(self.seq));
        for project in self.projects.values().cloned().collect::<Vec<_>>() {
            self.keep_project(&project);
        }
        let lives = intents.kept.iter().filter_map(|(key, text)| {
            let name = Name::known(key.strip_prefix("life/")?).ok()?;
            Some((name, serde_json::from_str::<Life>(text).ok()?))
        });
        let mut lives: BTreeMap<Name, Life> = lives.collect();
        let wished: BTreeMap<Name, RunId> =
            lives.iter().filter_map(|(name, life)| Some((name.clone(), life.wished()?))).collect();
        for (name, goal) in &intents.goals {
            lives.entry(name.clone()).or_insert_with(Life::blank).want(*goal);
        }
        for record in &last_days {
            lives.entry(record.agent.clone()).or_insert_with(Life::blank).recall(&record.what);
        }
        // Whatever the last daemon wrote down is to be read.
        let _ = self.history.flush(Duration::from_secs(5));
        for (name, run) in last_runs(&self.history) {
            let life = lives.entry(name.clone()).or_insert_with(Life::blank);
            life.number_from(run);
        }
        let open = open_runs(&self.history);
        for (name, life) in &mut lives {
            if !open.iter().any(|(other, _)| other == name) {
                life.has_ended();
            }
        }
        for (name, run) in open {
            let is_wished = wished.get(&name) == Some(&run);
            lives.entry(name).or_insert_with(Life::blank).was_running(run, is_wished);
        }
        let totals = Supervisor::new(settings).totals();
        let snapshot = Snapshot { lives, spent: BTreeMap::new(), totals };
        let topology = self.topology();
        let continuity = Continuity::Reboot;
        self.supervisor = Supervisor::restore(settings, topology, snapshot, continuity, now());
        if self.closing {
            // Asked for at dawn: nothing starts, and all of it comes back at the next start.
            self.handle(Input::CloseAsked);
        }
        self.tell("daemon-started", None, [("pid", std::process::id().into())]);
        self.say(says);
        self.warn_of_the_spent();
        self.handle(Input::Booted);
        self.open_purses();
        self.show_names();
    }

    fn say(&mut self, says: Vec<Saying>) {
        for (kind, body) in says {
            self.tell(kind, None, body);
        }
    }
}

/// A project that should be up, whose file says nothing that can be used. It stays stored: an `up` with
/// a good file brings it back.
struct Unreadable {
    project: Name,
    file: PathBuf,
    why: String,
}

/// The projects that are up: as they were applied, or else as their files say now.
fn projects(
    heard: &Inheritance,
    intents: &Intents,
    unbroken: bool,
) -> (BTreeMap<Name, Project>, Vec<Unreadable>) {
    let kept = heard.under("project/");
    let kept = kept.filter_map(|(name, bytes)| Some((name, Project::unpacked(bytes)?)));
    let mut kept: BTreeMap<Name, Project> = kept.collect();
    if unbroken {
        return (kept, Vec::new());
    }
    let mut unreadable = Vec::new();
    let load = |(name, project): (&Name, &defib_history::Project)| {
        // A keeper was killed, and its daemon knew what was applied.
        if let Some(applied) = kept.remove(name) {
            return Some(applied);
        }
        let options = defib_config::Options::deserialize(&project.config).unwrap_or_default();
        let loaded = match defib_config::load_with(&project.file, &options) {
            Ok(file) => file.outcome.config.ok_or_else(|| "it is not valid".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let config = match loaded {
            Ok(config) => config,
            Err(why) => {
                let (project, file) = (name.clone(), project.file.clone());
                say!("{}: {why}; its agents stay down", file.display());
                unreadable.push(Unreadable { project, file, why });
                return None;
            }
        };
        let mode = match project.mode.as_str() {
            "once" => Mode::Once,
            "dev" => Mode::Dev,
            _ => Mode::Continuous,
        };
        let environment = crate::recipe::environment_for(&config, std::env::vars());
        Some(Project { path: project.file.clone(), config, mode, environment })
    };
    let loaded: Vec<Project> = intents.projects.iter().filter_map(load).collect();
    let by_name = loaded.into_iter().map(|project| (project.config.project.clone(), project));
    (by_name.collect(), unreadable)
}

/// What was in the journal.
struct TakenUp {
    journal: Journal,
    /// All of it.
    last_days: Vec<Record>,
    /// The number of the last that the history had not.
    last_unwritten: u64,
    /// What those runs used of whose deaths the history had not heard.
    used: BTreeMap<Name, (RunId, Usage)>,
}

/// Hands on what the journal has and the history has not, as far as it has happened. `kept` is what was
/// to be written to it last.
fn take_up_journal(
    home: &Path,
    kept: &[u8],
    history: &History,
    highest_seq: u64,
    happened: u64,
) -> io::Result<TakenUp> {
    let (mut journal, mut unwritten) = Journal::open(&home.join("journal"), kept)?;
    let last_days: Vec<Record> = unwritten.iter().filter_map(Event::record).collect();
    unwritten.retain(|event| event.seq > highest_seq && event.seq <= happened);
    // A journal that cannot be written is no reason not to start.
    let _ = journal.begin_anew(&unwritten);
    let last_unwritten = unwritten.iter().map(|event| event.seq).max().unwrap_or(0);
    let deaths = unwritten.iter().filter(|event| event.kind == "run-died");
    let used = deaths.filter_map(|event| Some((event.agent.clone()?, (event.run?, event.used()))));
    let used = used.collect();
    history.append(unwritten);
    Ok(TakenUp { journal, last_days, last_unwritten, used })
}

/// Those who work beside the engine, each on a thread of its own.
fn assistants(
    handle: &EngineHandle,
    home: PathBuf,
    terminals: Terminals,
    (activity, meters): (Activity, Meters),
) -> io::Result<(Scribe, Coroner)> {
    let (teller, growth) = (handle.clone(), handle.growth.clone());
    // Growth concerns only those who follow: the engine is not woken for it. There may be none.
    let grew = move |agent: &Name| {
        meters.grew(agent);
        drop(growth.send(agent.clone()));
    };
    let tell = move |event| teller.tell(Ask::Scribe(event));
    let scribe = Scribe::start(home, terminals, activity, grew, tell)?;
    let teller = handle.clone();
    let coroner = Coroner::start(move |said| teller.tell(Ask::Coroner(said)))?;
    Ok((scribe, coroner))
}

/// Who this daemon is.
fn info(started: Wall, keeper_pid: u32) -> DaemonInfo {
    DaemonInfo {
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        program: std::env::current_exe()
            .map_or_else(|_| String::new(), |it| it.display().to_string()),
        started_at: stamp(started),
        keeper_pid,
        address: None,
        troubles: Vec::new(),
    }
}

/// What runs that another daemon spawned said of themselves.
fn owns(heard: &Inheritance) -> Owns {
    let kept = heard.under("own/");
    kept.filter_map(|(name, bytes)| Some((name, postcard::from_bytes(bytes).ok()?))).collect()
}

/// The last run of each agent that the history knows of.
fn last_runs(history: &History) -> BTreeMap<Name, RunId> {
    let reader = defib_history::Reader::open(history.path());
    reader.and_then(|reader| reader.last_runs()).unwrap_or_default()
}

/// The runs of which no end is known: they ended with whoever could have seen it.
fn open_runs(history: &History) -> Vec<(Name, RunId)> {
    let filter = RunFilter { limit: Some(10_000), ..RunFilter::default() };
    let reader = defib_history::Reader::open(history.path());
    let runs = reader.and_then(|reader| reader.runs(&filter)).unwrap_or_default();
    runs.into_iter().filter(|run| run.death.is_none()).map(|run| (run.agent, run.run)).collect()
}

/// The runs of the deaths that the view has, as far as the history does.
fn last_deaths(history: &History, view: &View) -> Vec<Run> {
    let deaths = view.agents().filter_map(|(name, agent)| {
        let run = agent.last_death.as_ref()?.run?;
        Some((name.clone(), run))
    });
    let deaths: Vec<(Name, RunId)> = deaths.collect();
    if deaths.is_empty() {
        return Vec::new();
    }
    let Ok(reader) = defib_history::Reader::open(history.path()) else { return Vec::new() };
    deaths.into_iter().filter_map(|(name, run)| reader.run(&name, run).ok()?).collect()
}
