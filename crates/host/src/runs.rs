//! The runs that the keeper knows: those that live, and those whose end nobody has acknowledged.
//!
//! Invariants: an agent has at most one run that lives or starts, and that includes what the run left
//! behind if that is to be killed. A run is spawned at most once. The end of a run is reported when
//! nothing of it is left, and its report and its output are kept until they are acknowledged. A start that
//! was given up has been killed: its program never runs.

mod commands;
mod starting;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use defib_core::{Name, RunId};
use rustix::process::{Pid, Signal};

use crate::cgroup::Cgroups;
use crate::child::{Child, Launcher};
use crate::descent::{HOME_KEY, RUN_KEY, mark_below};
use crate::footprint::pack;
use crate::memory::MemoryBound;
use crate::output::RunOutput;
use crate::protocol::{CommandEnd, Leftovers, RunEnd, RunKey, SpawnOrder};
use crate::spawner::Spawners;
use crate::tree::{First, Tree};
use crate::wait::Waited;
use commands::Commands;
pub(crate) use commands::Manner;
use starting::Starting;
pub use starting::spawn_deadline;
pub(crate) use starting::{HASTE, Settled, Then};

/// How soon to look again whether what was killed has gone; each time twice as long.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LONGEST_LOOK: Duration = Duration::from_secs(1);
/// What is still there this long after it was killed is stuck.
const STUCK: Duration = Duration::from_secs(5);

/// A run that lives, or of which something does.
pub(crate) struct Run {
    pub(crate) key: RunKey,
    pub(crate) child: Child,
    pub(crate) output: RunOutput,
    pub(crate) terminal: bool,
    leftovers: Leftovers,
    tree: Tree,
    /// How it was spawned: its commands are spawned in the same way.
    manner: Manner,
    // What few have lies elsewhere: of runs there may be thousands.
    bound: Option<Box<MemoryBound>>,
    /// How its first process ended, if it has.
    end: Option<Box<RunEnd>>,
    /// Set once it is being killed, or what it left is.
    ending: Option<Box<Ending>>,
}

struct Ending {
    since: Instant,
    look: Instant,
    pause: Duration,
    told: bool,
}

impl Ending {
    fn begin() -> Ending {
        let since = Instant::now();
        Ending { since, look: since + FIRST_LOOK, pause: FIRST_LOOK, told: false }
    }
}

/// The end of a run, kept until it is acknowledged.
pub(crate) struct Report {
    pub(crate) key: RunKey,
    pub(crate) end: RunEnd,
    pub(crate) output: RunOutput,
    /// Held only so that it is closed with the rest: whoever is told of an end does not wait for that.
    _child: Child,
}

/// What is known of a run.
pub(crate) enum Known<'a> {
    /// A spawner is about to start it.
    Starts,
    Lives(&'a Run),
    Ended(&'a Report),
    /// Its report was acknowledged, or it was passed over.
    Over,
    Never,
}

/// What a look at the runs showed.
pub(crate) enum Event {
    Ended(RunKey, RunEnd),
    Stuck(RunKey),
    /// A command that ran on behalf of this run has ended; with its number.
    CommandEnded(RunKey, u64, CommandEnd),
}

/// All of them.
pub(crate) struct Runs {
    cgroups: Option<Cgroups>,
    /// Each in a place of its own: a tree's nodes are a third empty.
    live: BTreeMap<Name, Box<Run>>,
    names: HashMap<Pid, Name>,
    ending: BTreeSet<Name>,
    look: Option<Instant>,
    reports: VecDeque<Report>,
    /// Processes that belong to nobody, and whether that was said.
    strays: HashMap<Pid, bool>,
    highest: BTreeMap<Name, RunId>,
    /// Each agent's cgroup. One in which something was kept alive is given up.
    groups: BTreeMap<Name, Arc<str>>,
    marks: Marks,
    commands: Commands,
    pub(crate) spawners: Spawners,
    starting: Starting,
}

/// What the environment of every process of ours carries.
struct Marks {
    home: String,
    run_above: Option<String>,
    cookie: String,
}

impl Runs {
    pub(crate) fn new(home_key: &str, cgroups: Option<Cgroups>) -> Runs {
        let home = mark_below(std::env::var(HOME_KEY).ok(), home_key);
        let cookie = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
        let marks = Marks {
            home,
            run_above: std::env::var(RUN_KEY).ok(),
            cookie: cookie.trim().to_owned(),
        };
        Runs {
            cgroups,
            live: BTreeMap::new(),
            names: HashMap::new(),
            ending: BTreeSet::new(),
            look: None,
            reports: VecDeque::new(),
            strays: HashMap::new(),
            highest: BTreeMap::new(),
            groups: BTreeMap::new(),
            marks,
            commands: Commands::default(),
            spawners: Spawners::default(),
            starting: Starting::default(),
        }
    }

    /// Takes no more memory than it needs, and no more cgroups.
    pub(crate) fn pack(&mut self) {
        // The kernel may have counted somebody in a cgroup who had gone when its agent was forgotten.
        if let Some(cgroups) = &self.cgroups {
            let highest = &self.highest;
            self.groups
                .retain(|agent, group| highest.contains_key(agent) || !cgroups.discard(group));
        }
        pack(&mut self.live);
        pack(&mut self.highest);
        pack(&mut self.groups);
        self.names.shrink_to_fit();
    }

    pub(crate) fn known(&self, key: &RunKey) -> Known<'_> {
        if self.starting.has(key) {
            return Known::Starts;
        }
        if let Some(run) = self.live.get(&key.agent).filter(|run| run.key == *key) {
            return Known::Lives(run);
        }
        if let Some(report) = self.reports.iter().find(|report| report.key == *key) {
            return Known::Ended(report);
        }
        match self.highest.get(&key.agent) {
            Some(highest) if key.run <= *highest => Known::Over,
            Some(_) | None => Known::Never,
        }
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = &Run> {
        self.live.values().map(|run| &**run)
    }

    /// Those that were killed long ago and still live, as far as that has been told.
    pub(crate) fn stuck(&self) -> impl Iterator<Item = &RunKey> {
        let runs = self.ending.iter().filter_map(|agent| self.live.get(agent));
        runs.filter(|run| run.ending.as_ref().is_some_and(|ending| ending.told)).map(|run| &run.key)
    }

    /// In the order in which they ended.
    pub(crate) fn reports(&self) -> impl Iterator<Item = &Report> {
        self.reports.iter()
    }

    fn enter_group(&mut self, key: &RunKey, launcher: &Launcher) -> Option<(Arc<str>, OwnedFd)> {
        let cgroups = self.cgroups.as_ref().filter(|_| launcher.knows_cgroups())?;
        // No agent's name has an @ in it, and neither has any file of a cgroup.
        let name = self.groups.entry(key.agent.clone());
        let name = name.or_insert_with(|| format!("{}@{}", key.agent, key.run).into());
        cgroups.enter(name).ok().map(|folder| (name.clone(), folder))
    }

    /// Bounds a run's memory: by its own cgroup where that can, else in the older tree.
    fn bound_memory(
        &self,
        key: &RunKey,
        bytes: u64,
        group: Option<&(Arc<str>, OwnedFd)>,
    ) -> Option<MemoryBound> {
        let cgroups = self.cgroups.as_ref().zip(group);
        if cgroups.is_some_and(|(cgroups, (name, _))| cgroups.bound_memory(name, bytes)) {
            return None;
        }
        let keeper = rustix::process::getpid().as_raw_nonzero();
        MemoryBound::new(&format!("defib-{keeper}-{}@{}", key.agent, key.run), bytes)
    }

    /// Bounds how many processes a run has, by its own cgroup where that can. Elsewhere it is the user's
    /// processes that are bounded, and root's are not.
    fn bound_processes(&self, order: &SpawnOrder, group: Option<&(Arc<str>, OwnedFd)>) {
        let bound = order.rlimits.iter().find(|(resource, _)| *resource == libc::RLIMIT_NPROC);
        if let (Some((_, count)), Some(cgroups), Some((name, _))) =
            (bound, self.cgroups.as_ref(), group)
        {
            cgroups.bound_processes(name, *count);
        }
    }

    /// To its process group, and to the first process itself if that has left the group.
    pub(crate) fn signal(&self, key: &RunKey, number: i32) {
        let Some(run) = self.live.get(&key.agent).filter(|run| run.key == *key) else { return };
        let Some(signal) = Signal::from_named_raw(number).filter(|_| run.end.is_none()) else {
            return;
        };
        let pid = run.child.pid;
        // Its first process has not been waited for, so the number is still its own.
        let sent = rustix::process::kill_process_group(pid, signal);
        if sent.is_err() || rustix::process::getpgid(Some(pid)) != Ok(pid) {
            let _ = rustix::process::pidfd_send_signal(&run.child.pidfd, signal);
        }
    }

    /// Kills a run and everything that descends from it.
    pub(crate) fn kill(&mut self, key: &RunKey, daemon: Option<Pid>) {
        if self.live.get(&key.agent).is_some_and(|run| run.key == *key) {
            self.end_command(&key.agent, daemon);
        }
        let Some(run) = self.live.get_mut(&key.agent).filter(|run| run.key == *key) else { return };
        let (names, spawners) = (&self.names, &self.spawners);
        let first = if run.end.is_none() { First::Lives(&run.child) } else { First::Gone };
        run.tree.kill(self.cgroups.as_ref(), first, |pid| is_known(names, spawners, daemon, pid));
        self.begin_ending(&key.agent);
    }

    fn begin_ending(&mut self, agent: &Name) {
        let Some(run) = self.live.get_mut(agent) else { return };
        let look = run.ending.get_or_insert_with(|| Box::new(Ending::begin())).look;
        self.ending.insert(agent.clone());
        self.look = Some(self.look.map_or(look, |earlier| earlier.min(look)));
    }

    pub(crate) fn kill_all(&mut self, daemon: Option<Pid>) {
        self.cancel_commands(daemon);
        let keys: Vec<RunKey> = self.live.values().map(|run| run.key.clone()).collect();
        for key in keys {
            self.kill(&key, daemon);
        }
        self.kill_starts();
    }

    /// A child has ended and has not been waited for. `wait` does that. If it was a run's first
    /// process and the run is over by that, says so.
    pub(crate) fn child_ended(
        &mut self,
        pid: Pid,
        daemon: Option<Pid>,
        mut wait: impl FnMut() -> Option<Waited>,
    ) -> Option<Event> {
        let Some(agent) = self.names.get(&pid).cloned() else {
            if !self.job_child_ended(pid, daemon, &mut wait) {
                wait();
                self.strays.remove(&pid);
            }
            return None;
        };
        self.spawners.forget_child(pid);
        if self.commands.has_process(pid) {
            return self.command_ended(pid, daemon, wait);
        }
        let commanded = self.end_command(&agent, daemon);
        let run = self.live.get_mut(&agent)?;
        let (names, spawners, cgroups) = (&self.names, &self.spawners, self.cgroups.as_ref());
        let known = |other| is_known(names, spawners, daemon, other);
        let empties = run.ending.is_some() || run.leftovers == Leftovers::Kill;
        let looks_first = run.tree.looks_before_waiting();
        let mut left = empties && looks_first && run.tree.kill(cgroups, First::Unwaited, known);
        let waited = wait()?;
        left |= empties && !looks_first && run.tree.kill(cgroups, First::Gone, known);
        run.end = Some(Box::new(RunEnd {
            how: waited.how,
            user_ms: waited.user_ms,
            system_ms: waited.system_ms,
            peak_bytes: waited.peak_bytes,
            oom: run.tree.oom(cgroups) || run.bound.as_ref().is_some_and(|it| it.has_killed()),
            leftovers_killed: 0,
        }));
        self.names.remove(&pid);
        if left || (commanded && empties) {
            self.begin_ending(&agent);
            return None;
        }
        self.report(&agent)
    }

    /// Nothing of the run is left that is not to be kept.
    fn report(&mut self, agent: &Name) -> Option<Event> {
        self.ending.remove(agent);
        let run = self.live.remove(agent)?;
        let mut end = *run.end?;
        end.leftovers_killed = run.tree.killed();
        if run.leftovers == Leftovers::Keep && run.tree.populated_cgroup(self.cgroups.as_ref()) {
            self.groups.remove(agent);
        }
        for stray in run.tree.strays() {
            self.strays.entry(*stray).or_insert(false);
        }
        self.reports.push_back(Report {
            key: run.key.clone(),
            end: end.clone(),
            output: run.output,
            _child: run.child,
        });
        Some(Event::Ended(run.key, end))
    }

    /// Those that belong to nobody and of which that has not been said.
    pub(crate) fn new_strays(&mut self) -> Vec<Pid> {
        let untold = self.strays.iter_mut().filter(|(_, told)| !**told);
        let mark = |(pid, told): (&Pid, &mut bool)| {
            *told = true;
            *pid
        };
        untold.map(mark).collect()
    }

    /// When to look again at what is being killed.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        let looks = [self.look, self.commands.next_look(), self.starting.next_look()];
        looks.into_iter().flatten().min()
    }

    /// Looks at what is being killed: at what dead runs left always, at others when it is time.
    pub(crate) fn look(&mut self, now: Instant, daemon: Option<Pid>) -> Vec<Event> {
        self.look_at_remains(now, daemon);
        let mut events = self.look_at_commands(now, daemon);
        let mut empty = Vec::new();
        self.look = None;
        for agent in &self.ending {
            let Some(run) = self.live.get_mut(agent) else { continue };
            let Some(ending) = run.ending.as_mut() else { continue };
            let first = if run.end.is_none() { First::Lives(&run.child) } else { First::Gone };
            let due = ending.look <= now;
            if run.end.is_some() || due {
                let (names, spawners) = (&self.names, &self.spawners);
                let known = |pid| is_known(names, spawners, daemon, pid);
                let left = run.tree.kill(self.cgroups.as_ref(), first, known)
                    || self.commands.concern(agent);
                if run.end.is_some() && !left {
                    empty.push(agent.clone());
                    continue;
                }
            }
            if due {
                ending.pause = (ending.pause * 2).min(LONGEST_LOOK);
                ending.look = now + ending.pause;
            }
            if now.duration_since(ending.since) >= STUCK && !ending.told {
                ending.told = true;
                events.push(Event::Stuck(run.key.clone()));
            }
            self.look = Some(self.look.map_or(ending.look, |other| other.min(ending.look)));
        }
        for agent in empty {
            events.extend(self.report(&agent));
        }
        events
    }

    /// Whether something is dying that no signal will tell of again.
    pub(crate) fn empties(&self) -> bool {
        !self.ending.is_empty()
    }

    pub(crate) fn acknowledge(&mut self, key: &RunKey) {
        // Acknowledgements come about in the order of the reports, so this finds it near the front.
        if let Some(index) = self.reports.iter().position(|report| report.key == *key) {
            self.reports.remove(index);
        }
    }

    /// Of an agent that has no run, nothing is kept at hand.
    pub(crate) fn put_away(&self, agent: &Name) {
        if let (Some(cgroups), Some(group)) = (&self.cgroups, self.groups.get(agent))
            && !self.live.contains_key(agent)
            && !self.starting.concern(agent)
        {
            cgroups.put_away(group);
        }
    }

    /// Whether an agent has a run, or a report that nobody has acknowledged.
    pub(crate) fn concern(&self, agent: &Name) -> bool {
        self.live.contains_key(agent)
            || self.starting.concern(agent)
            || self.reports.iter().any(|it| it.key.agent == *agent)
    }

    /// Forgets an agent that they do not concern any more. Earlier that would be too early: the number of
    /// its last run is what keeps that from being spawned again.
    pub(crate) fn forget(&mut self, agent: &Name) {
        self.highest.remove(agent);
        if let (Some(cgroups), Some(group)) = (&self.cgroups, self.groups.get(agent))
            && cgroups.discard(group)
        {
            self.groups.remove(agent);
        }
    }

    pub(crate) fn all_gone(&self) -> bool {
        self.live.is_empty() && self.starting.is_empty() && self.commands.is_empty()
    }

    pub(crate) fn remove_cgroups(&self) {
        if let Some(cgroups) = &self.cgroups {
            cgroups.remove();
        }
    }
}

/// Whether a child of the keeper is a run's first process, the daemon or a spawner, and not an orphan.
fn is_known(
    names: &HashMap<Pid, Name>,
    spawners: &Spawners,
    daemon: Option<Pid>,
    pid: Pid,
) -> bool {
    names.contains_key(&pid) || daemon == Some(pid) || spawners.has(pid)
}
