//! How a daemon begins: it takes over what the keeper holds, or starts anew.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use defib_core::limit::Tally;
use defib_core::{
    Continuity, Input, Life, Mono, Name, Outbox, Record, RunId, Settings, Snapshot, Supervisor,
    Totals, Wall,
};
use defib_history::{History, Intents, Run, Trouble};
use defib_host::Channel;
use defib_host::clock::{BootTimer, ClockSteps, boot_id, now};
use defib_host::protocol::{News, Request, RunKey};
use defib_host::wake::Waker;
use serde::Deserialize as _;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::ask::Ask;
use super::capabilities::Capabilities;
use super::facts;
use super::inheritance::{Inheritance, Unheard};
use super::money::Money;
use super::recovery::{Numbers, TakenUp, last_deaths, last_runs, lived, open_runs, store_rests};
use super::session::Sessions;
use super::states::States;
use super::timetable::Timetable;
use super::trouble::Troubles;
use super::vigil::Liveness;
use super::{Engine, EngineHandle, Process};
use crate::coroner::Coroner;
use crate::doors::Site;
use crate::intents::IntentDesk;
use crate::ledger::Ledger;
use crate::logs::{self, Activity, Scribe};
use crate::meter::Meters;
use crate::metrics::Target;
use crate::names::Names;
use crate::notify::Roll;
use crate::recipe::Project;
use crate::terminal::Terminals;
use crate::will::Will;
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
    /// The highest number that may have been used.
    pub(crate) highest_seq: u64,
    /// The highest number that the history has.
    pub(crate) stored_seq: u64,
    /// Where terminals are looked at.
    pub(crate) terminals: Terminals,
    /// Where tasks run.
    pub(crate) runtime: tokio::runtime::Handle,
    /// What is wrong with the files of either, from the beginning on.
    pub(crate) troubles: Receiver<Trouble>,
    /// What stood in place of files of the home, a sentence each.
    pub(crate) obstacles: Vec<String>,
    /// By which the engine is woken.
    pub(crate) wake: Arc<Waker>,
    /// Whether a project is about to be brought up.
    pub(crate) awaits_up: bool,
    /// Where it is told where to listen.
    pub(crate) site: watch::Sender<Option<Site>>,
    /// Takes listeners that replace the one that the daemon began with.
    pub(crate) rebound: mpsc::UnboundedSender<OwnedFd>,
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
    /// The records in the journal, by event number. Rests are stored a moment after they are decided,
    /// the journal has them at once.
    last_days: BTreeMap<u64, Record>,
    /// The last runs in it that have ended.
    deaths: Vec<RunKey>,
    /// Whether there is no history of what was before.
    is_new: bool,
    /// Whether intents were lost that the history shows there to have been.
    pub(super) intents_lost: bool,
    /// What is to be said of how it began.
    says: Vec<Saying>,
}

/// An event that is about no agent: its type and what it says.
type Saying = (&'static str, Vec<(&'static str, Value)>);

/// What comes of a daemon's beginning.
pub(crate) enum Beginning {
    /// An engine, which is to be put to work on a thread, and the way to it.
    Working(Box<Engine>, EngineHandle),
    /// The keeper was killed before all of it was told: what the next one is to hold.
    Orphaned(Will),
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

type Whole = (u64, Totals, BTreeMap<Name, Tally>);

impl Engine {
    /// Hears of all that there is, and takes over.
    pub(crate) fn begin(mut setup: Setup) -> io::Result<Beginning> {
        match Inheritance::hear(&mut setup.keeper) {
            Ok(heard) => Engine::take_over(setup, heard),
            Err(Unheard::Orphaned(will)) => Ok(Beginning::Orphaned(will)),
            Err(Unheard::Failed(error)) => Err(error),
        }
    }

    #[expect(clippy::too_many_lines, reason = "it fills every field of the engine once")]
    fn take_over(setup: Setup, heard: Inheritance) -> io::Result<Beginning> {
        let Setup {
            home,
            keeper,
            history,
            mut intents,
            highest_seq,
            stored_seq,
            terminals,
            runtime,
            troubles,
            obstacles,
            wake,
            awaits_up,
            site,
            rebound,
            roll,
            export,
        } = setup;
        let whole: Option<Whole> =
            heard.kept.get("whole").and_then(|bytes| postcard::from_bytes(bytes).ok());
        let happened = whole.as_ref().map(|whole| whole.0);
        let (lives, view) = heard.lives();
        let rests_are_stored = store_rests(&lives, happened, &mut intents, &history);
        let marked = facts::marked(&intents).unwrap_or(0);
        let numbers = Numbers { stored: stored_seq, happened };
        let TakenUp { journal, last_days, last_unwritten, used, deaths } =
            TakenUp::from(&home, heard.unwritten(), &history, numbers, rests_are_stored);
        let (mut projects, unreadable) = projects(&heard, &intents, whole.is_some());
        let names = Names::begin(&intents, &mut projects, &history);
        let started = now();
        let settings = Settings { jitter_seed: Some(started.mono.as_nanos()) };
        let (ledger, clerk) = Ledger::open(history.clone(), &intents);
        let (handle, inbox) = EngineHandle::open(history.clone(), ledger, wake);
        let money = Money::start(home.clone(), &handle, clerk, heard.kept.get("otlp"))?;
        let activity = Activity::default();
        let watchers = (activity.clone(), money.meters.clone());
        let (scribe, coroner) = assistants(&handle, home.clone(), terminals, watchers)?;
        let preparing = super::preparing::Preparing::default();
        let workers = preparing.workers.clone();
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
            own: heard.owns(),
            next_token: None,
            states: States::new(&home),
            capabilities: Capabilities::stored(&intents, heard.under("capabilities/")),
            commands: super::commands::Commands::default(),
            preparing,
            liveness: Liveness::begin(&home, &handle, runtime, heard.keeper_version, workers)?,
            // A number that was stored with lives is never used again, even if the history lost it.
            seq: happened.unwrap_or(0).max(highest_seq).max(last_unwritten).max(marked),
            marked,
            stored_lives: stored_lives(&intents),
            unpublished: Vec::new(),
            out: Outbox::default(),
            pending: VecDeque::new(),
            next_ticket: 0,
            info: info(started.wall, heard.keeper_pid),
            troubles: Troubles::heard_of(troubles, obstacles),
            closing: heard.closing().is_some(),
            withdrawn: heard.closing().unwrap_or_default(),
            leave: false,
            dawn: None,
            site,
            rebound,
            roll,
            export,
            home,
        };
        let says = says(unreadable);
        if let Some((_, totals, spent)) = whole {
            let snapshot = Snapshot { lives, spent, totals };
            engine.adopt(settings, snapshot, heard);
            engine.recover_tails(engine.unsettled(deaths));
            engine.say(says);
        } else {
            let (until, is_new) = (started.mono + AWAIT_UP, stored_seq == 0);
            let intents_lost = intents == Intents::default() && engine.seq > 0;
            engine.dawn = Some(Dawn {
                until,
                settings,
                intents,
                last_days,
                deaths,
                is_new,
                intents_lost,
                says,
            });
            if !awaits_up {
                engine.rise();
            }
        }
        Ok(Beginning::Working(Box::new(engine), handle))
    }

    /// Goes on where another daemon stopped, with its agents alive.
    fn adopt(&mut self, settings: Settings, snapshot: Snapshot, heard: Inheritance) {
        self.index_agents();
        self.tell_roll(None);
        let topology = self.topology();
        let continuity = Continuity::Unbroken;
        self.supervisor = Supervisor::restore(settings, topology, snapshot, continuity, now());
        let count = heard.held.len();
        let Inheritance { held, ended, listening, .. } = heard;
        for (agent, path, socket) in listening {
            self.liveness.sockets.insert(agent.clone(), &path);
            self.liveness.vigil.hold(agent, socket);
        }
        for death in last_deaths(&self.history, &self.view) {
            let Run { agent, run, death: Some(death), .. } = death else { continue };
            self.remember(agent, run, death);
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
        let Dawn {
            settings, mut intents, last_days, mut deaths, is_new, intents_lost, says, ..
        } = dawn;
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
        // The last daemon's events are to be readable.
        let _ = self.history.flush(Duration::from_secs(5));
        let mark = facts::marked(&intents).or(intents_lost.then_some(0));
        let newer = mark.map(|mark| facts::after(&self.history, mark)).unwrap_or_default();
        // Known only by events so far: it is stored before the mark passes those events.
        self.history.store_later(facts::recall(&mut lives, mark, last_days, newer));
        // A stored rest is newer than a history that does not know the end of the run before it.
        let rested: BTreeMap<Name, RunId> = lives
            .iter()
            .filter_map(|(name, life)| Some((name.clone(), life.rested_after()?)))
            .collect();
        if is_new {
            // Its logs still have what earlier runs wrote, by their numbers.
            for name in self.declared.keys() {
                let last = logs::last_run(&logs::folder(&self.home, name)).unwrap_or(RunId(0));
                lives.entry(name.clone()).or_insert_with(Life::blank).number_from(last);
            }
        }
        for (name, run) in last_runs(&self.history) {
            let life = lives.entry(name.clone()).or_insert_with(Life::blank);
            life.number_from(run);
        }
        self.recall_deaths();
        let mut open = open_runs(&self.history);
        open.retain(|run| rested.get(&run.agent).is_none_or(|ended| run.run > *ended));
        let living: BTreeSet<&Name> = open.iter().map(|run| &run.agent).collect();
        for (name, life) in &mut lives {
            if !living.contains(name) {
                life.has_ended();
            }
        }
        let at = now();
        for run in open {
            let is_wished = wished.get(&run.agent) == Some(&run.run);
            let life = lives.entry(run.agent.clone()).or_insert_with(Life::blank);
            life.was_running(run.run, is_wished, lived(&run, at, &self.boot));
            deaths.push(RunKey { agent: run.agent, run: run.run });
        }
        store_rests(&lives, Some(self.seq), &mut intents, &self.history);
        self.stored_lives = stored_lives(&intents);
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
        self.recover_tails(deaths);
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
    let kept = heard.projects();
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
        let loaded = if crate::plain::is_waited_for(&project.file) {
            // Whoever wrote to the pipe that it was once read from does so no more.
            Err("it is no regular file; run `defib up` with one".to_owned())
        } else {
            match defib_config::load_with(&project.file, &options) {
                Ok(file) => file.outcome.config.ok_or_else(|| "it is not valid".to_owned()),
                Err(error) => Err(error.to_string()),
            }
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

/// Whose life is on disk.
fn stored_lives(intents: &Intents) -> BTreeSet<Name> {
    let keys = intents.kept.keys().filter_map(|key| key.strip_prefix("life/"));
    keys.filter_map(|name| Name::known(name).ok()).collect()
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
        keeper_protocol: None,
        address: None,
        troubles: Vec::new(),
    }
}
