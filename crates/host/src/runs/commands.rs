//! Commands that the keeper runs on behalf of a live run, such as its exec probe.
//!
//! A command has the identity, the sandbox, the limits, the umask and the folder that the keeper gave to
//! the run itself. The keeper remembers them from the spawn order ([`Manner`]); the daemon names only the
//! arguments, the environment and the deadline. So neither the agent nor a file on disk decides which user a
//! command runs as.
//!
//! Invariants: a run has at most one command at a time. A command ends with its run. When a command ends or
//! its deadline passes, every process that it started is killed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use defib_core::Name;
use rustix::io::Errno;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::starting::{Remains, spawn_deadline};
use super::{Ending, Event, LONGEST_LOOK, Runs, STUCK, Settled, is_known};
use crate::child::{Child, Fault, Identity, Plan};
use crate::descent::{Descent, command_mark, mark_below};
use crate::protocol::{
    CommandEnd, CommandOrder, How, Leftovers, Profile, RunKey, SpawnOrder, Stage,
};
use crate::spawner::{Job, Spawned};
use crate::tree::{First, Tree};
use crate::wait::Waited;

/// How a run was spawned, as far as its commands need it. Packed, because there may be thousands of runs.
/// The spawner packs it. The default is that of a run that ended before the spawner answered: it cannot be
/// unpacked, so no command runs.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Manner(Box<[u8]>);

#[derive(Serialize, Deserialize)]
struct Remembered {
    /// User, group and supplementary groups, as the keeper resolved them when it spawned the run.
    identity: Option<(u32, u32, Vec<u32>)>,
    umask: Option<u32>,
    cwd: String,
    rlimits: Vec<(u32, u64)>,
    memory: Option<u64>,
    profile: Option<Profile>,
}

impl Manner {
    pub(crate) fn of(order: &SpawnOrder, plan: &Plan, profile: Option<&Profile>) -> Manner {
        let numbers = |identity: &Identity| {
            let groups = identity.groups.iter().map(|group| group.as_raw()).collect();
            (identity.user.as_raw(), identity.group.as_raw(), groups)
        };
        let remembered = Remembered {
            identity: plan.identity.as_ref().map(numbers),
            umask: order.umask,
            cwd: order.cwd.clone(),
            rlimits: order.rlimits.clone(),
            memory: order.memory,
            profile: profile.cloned(),
        };
        // If packing ever failed, unpacking fails as well, and no command runs.
        Manner(postcard::to_allocvec(&remembered).unwrap_or_default().into())
    }

    fn remembered(&self) -> Option<Remembered> {
        postcard::from_bytes(&self.0).ok()
    }
}

/// The commands of all runs.
#[derive(Default)]
pub(super) struct Commands {
    of: BTreeMap<Name, Box<Command>>,
    /// The agents by the first process of their command.
    pids: HashMap<Pid, Name>,
    /// When to look at which agent's command: at its deadline, or again after it was killed.
    due: BTreeSet<(Instant, Name)>,
    /// Ends that the daemon has not been told of.
    untold: Vec<Event>,
}

/// A command that a spawner starts.
pub(super) struct Start {
    key: RunKey,
    number: u64,
    /// The spawner's job.
    job: u64,
    /// The command's deadline.
    due: Instant,
    /// The command's own cgroup.
    group: Option<Arc<str>>,
    mark: String,
}

struct Command {
    key: RunKey,
    number: u64,
    child: Child,
    tree: Tree,
    due: Instant,
    timed_out: bool,
    /// How the first process ended, if it has.
    how: Option<How>,
    /// Set when the command is being killed, or when the processes that it left are.
    ending: Option<Ending>,
}

impl Command {
    fn end(&self) -> CommandEnd {
        match self.how {
            _ if self.timed_out => CommandEnd::TimedOut,
            Some(how) => CommandEnd::Ended(how),
            None => CommandEnd::Ended(How::Signaled(libc::SIGKILL)),
        }
    }

    fn event(&self) -> Event {
        Event::CommandEnded(self.key.clone(), self.number, self.end())
    }
}

impl Commands {
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Whether an agent has a command, or something of one is left.
    pub(super) fn concern(&self, agent: &Name) -> bool {
        self.of.contains_key(agent)
    }

    pub(super) fn next_look(&self) -> Option<Instant> {
        let untold = (!self.untold.is_empty()).then(Instant::now);
        untold.or_else(|| self.due.first().map(|(due, _)| *due))
    }

    pub(super) fn has_process(&self, pid: Pid) -> bool {
        self.pids.contains_key(&pid)
    }

    fn look_at(&mut self, agent: &Name, due: Instant) {
        let Some(command) = self.of.get_mut(agent) else { return };
        self.due.remove(&(command.due, agent.clone()));
        command.due = due;
        self.due.insert((due, agent.clone()));
    }
}

impl Runs {
    /// Has a command started in the manner of its run.
    pub(crate) fn run_command(&mut self, order: CommandOrder) -> Result<(), Fault> {
        let refused = |errno| Fault { stage: Stage::Process, errno };
        let CommandOrder { key, number, argv, env, timeout_ms } = order;
        let agent = key.agent.clone();
        let is_there = self.commands.of.contains_key(&agent);
        if is_there || self.starting.commands.contains_key(&agent) {
            return Err(refused(Errno::BUSY));
        }
        let run = self.live.get(&agent).filter(|run| run.key == key);
        let run = run.filter(|run| run.end.is_none() && run.ending.is_none());
        let run = run.ok_or(refused(Errno::SRCH))?;
        let manner = run.manner.remembered().ok_or(refused(Errno::INVAL))?;
        let door = run.bound.as_ref().and_then(|bound| bound.door());
        let group = match &run.tree {
            Tree::Cgroup { name, .. } => Some(self.enter_command_group(name, &manner)?),
            Tree::Walked(_) => None,
        };
        let (group, folder) = group.unzip();
        let group = group.flatten();
        let cookie = &self.marks.cookie;
        let mark = format!("{}{number}/{cookie}", command_mark(&agent, key.run));
        let both = format!("{agent}/{}/{cookie},{mark}", key.run);
        let run_key = mark_below(self.marks.run_above.clone(), &both);
        let order = SpawnOrder {
            key: key.clone(),
            argv,
            env,
            cwd: manner.cwd,
            terminal: None,
            umask: manner.umask,
            user: None,
            leftovers: Leftovers::Kill,
            rlimits: manner.rlimits,
            memory: None,
        };
        // Nothing is handed over as output, so the command's output goes to /dev/null.
        let job = Job {
            order,
            profile: manner.profile.map(Box::new),
            marks: (run_key, self.marks.home.clone()),
            identity: manner.identity,
            door: door.map(CString::into_bytes),
            has_output: false,
            has_group: folder.is_some(),
            may_leave_group: false,
        };
        let timeout = Duration::from_millis(timeout_ms);
        let descriptors = folder.into_iter().collect();
        let job = self.spawners.submit(Box::new(job), descriptors, spawn_deadline().min(timeout));
        let due = Instant::now() + timeout;
        let start = Start { key, number, job, due, group, mark };
        self.starting.commands.insert(agent, Box::new(start));
        Ok(())
    }

    fn take_start(&mut self, job: u64) -> Option<Start> {
        let starts = self.starting.commands.iter();
        let agent =
            starts.filter(|(_, start)| start.job == job).map(|(name, _)| name.clone()).next();
        self.starting.commands.remove(&agent?).map(|start| *start)
    }

    /// What came of the start of a command. An event, if there is no command.
    pub(super) fn settle_command(
        &mut self,
        job: u64,
        result: Result<Spawned, Fault>,
    ) -> Option<Event> {
        let Start { key, number, due, group, mark, .. } = self.take_start(job)?;
        let held = result.and_then(|spawned| Ok((Runs::hold(spawned.pid)?, spawned.in_group)));
        let (child, in_group) = match held {
            Ok(held) => held,
            Err(Fault { stage, errno }) => {
                if let (Some(cgroups), Some(own)) = (&self.cgroups, &group) {
                    cgroups.discard(own);
                }
                let end = CommandEnd::NotSpawned { errno: errno.raw_os_error(), stage };
                return Some(Event::CommandEnded(key, number, end));
            }
        };
        let tree = match group.filter(|_| in_group) {
            Some(name) => Tree::Cgroup { name, oom_before: 0, killed: 0 },
            None => Tree::Walked(Box::new(Descent::new(child.pid, mark))),
        };
        let agent = key.agent.clone();
        self.names.insert(child.pid, agent.clone());
        self.commands.pids.insert(child.pid, agent.clone());
        self.commands.due.insert((due, agent.clone()));
        let (timed_out, how, ending) = (false, None, None);
        let command = Command { key, number, child, tree, due, timed_out, how, ending };
        self.commands.of.insert(agent, Box::new(command));
        None
    }

    /// The start of a command was given up. `begun` says whether a spawner had begun it.
    pub(super) fn give_up_command(&mut self, job: u64, fault: Fault, begun: bool) -> Option<Event> {
        let Start { key, number, due, group, mark, .. } = self.take_start(job)?;
        if begun {
            let agent = key.agent.clone();
            let remains = Remains { agent, group, mark, _bound: None, tree: None, look: None };
            self.starting.leave(job, remains);
        }
        let end = match fault {
            Fault { errno: Errno::TIMEDOUT, .. } if due <= Instant::now() => CommandEnd::TimedOut,
            Fault { errno: Errno::CANCELED, .. } => CommandEnd::Ended(How::Signaled(libc::SIGKILL)),
            Fault { errno, stage } => CommandEnd::NotSpawned { errno: errno.raw_os_error(), stage },
        };
        Some(Event::CommandEnded(key, number, end))
    }

    /// A cgroup beside the run's own, with the same limits. It is not below the run's own, because the CPU
    /// time of a probe would then count as a sign of life of its agent. If there cannot be one, the command
    /// is born in the run's own cgroup and its processes are found by their mark.
    fn enter_command_group(
        &self,
        run: &str,
        manner: &Remembered,
    ) -> Result<(Option<Arc<str>>, OwnedFd), Fault> {
        let none = Fault { stage: Stage::Process, errno: Errno::NOENT };
        let cgroups = self.cgroups.as_ref().ok_or(none)?;
        let own = format!("{run}.command");
        if let Ok(folder) = cgroups.enter(&own) {
            if let Some(bytes) = manner.memory {
                cgroups.bound_memory(&own, bytes);
            }
            for (_, count) in manner.rlimits.iter().filter(|(of, _)| *of == libc::RLIMIT_NPROC) {
                cgroups.bound_processes(&own, *count);
            }
            return Ok((Some(own.into()), folder));
        }
        let folder = cgroups.enter(run).map_err(Fault::at(Stage::Process))?;
        Ok((None, folder))
    }

    /// Kills the command of an agent, if it has one. Returns whether something of it is still there. A
    /// command that has not started never does, so nothing of it counts.
    pub(super) fn end_command(&mut self, agent: &Name, daemon: Option<Pid>) -> bool {
        if let Some(job) = self.starting.commands.get(agent).map(|start| start.job)
            && let Some(Settled::Command(event)) = self.give_up(job, Errno::CANCELED)
        {
            self.commands.untold.push(event);
        }
        let Some(command) = self.commands.of.get_mut(agent) else { return false };
        let (names, spawners) = (&self.names, &self.spawners);
        let first = if command.how.is_none() { First::Lives(&command.child) } else { First::Gone };
        command
            .tree
            .kill(self.cgroups.as_ref(), first, |pid| is_known(names, spawners, daemon, pid));
        if command.ending.is_none() {
            let ending = Ending::begin();
            let look = ending.look;
            command.ending = Some(ending);
            self.commands.look_at(agent, look);
        }
        true
    }

    /// Kills this command, if it is still the run's.
    pub(crate) fn cancel_command(&mut self, key: &RunKey, number: u64, daemon: Option<Pid>) {
        let is_it = |command: &Command| command.key == *key && command.number == number;
        let starts = |start: &Start| start.key == *key && start.number == number;
        if self.commands.of.get(&key.agent).is_some_and(|command| is_it(command))
            || self.starting.commands.get(&key.agent).is_some_and(|start| starts(start))
        {
            self.end_command(&key.agent, daemon);
        }
    }

    /// Kills all commands.
    pub(crate) fn cancel_commands(&mut self, daemon: Option<Pid>) {
        let agents = self.commands.of.keys().chain(self.starting.commands.keys());
        for agent in agents.cloned().collect::<Vec<Name>>() {
            self.end_command(&agent, daemon);
        }
    }

    /// The first process of a command has ended and has not been waited for. `wait` does that.
    pub(super) fn command_ended(
        &mut self,
        pid: Pid,
        daemon: Option<Pid>,
        wait: impl FnOnce() -> Option<Waited>,
    ) -> Option<Event> {
        let agent = self.commands.pids.get(&pid)?.clone();
        let command = self.commands.of.get_mut(&agent)?;
        let (names, spawners, cgroups) = (&self.names, &self.spawners, self.cgroups.as_ref());
        let known = |other| is_known(names, spawners, daemon, other);
        if command.tree.looks_before_waiting() {
            command.tree.kill(cgroups, First::Unwaited, known);
        }
        command.how = Some(wait()?.how);
        let left = command.tree.kill(cgroups, First::Gone, known);
        self.names.remove(&pid);
        self.commands.pids.remove(&pid);
        if !left {
            return self.finish_command(&agent);
        }
        if command.ending.is_none() {
            let ending = Ending::begin();
            let look = ending.look;
            command.ending = Some(ending);
            self.commands.look_at(&agent, look);
        }
        None
    }

    /// Nothing of the command is left.
    fn finish_command(&mut self, agent: &Name) -> Option<Event> {
        let command = self.commands.of.remove(agent)?;
        self.commands.due.remove(&(command.due, agent.clone()));
        if let (Tree::Cgroup { name, .. }, Some(cgroups)) = (&command.tree, &self.cgroups) {
            cgroups.discard(name);
        }
        let told = command.ending.as_ref().is_some_and(|ending| ending.told);
        (!told).then(|| command.event())
    }

    /// Looks at the commands whose deadline has passed, and at those that are being killed.
    pub(super) fn look_at_commands(&mut self, now: Instant, daemon: Option<Pid>) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.commands.untold);
        while let Some((_, agent)) = self.commands.due.first().filter(|(due, _)| *due <= now) {
            let agent = agent.clone();
            let Some(command) = self.commands.of.get_mut(&agent) else {
                self.commands.due.pop_first();
                continue;
            };
            let (names, spawners) = (&self.names, &self.spawners);
            let known = |pid| is_known(names, spawners, daemon, pid);
            let first =
                if command.how.is_none() { First::Lives(&command.child) } else { First::Gone };
            let left = command.tree.kill(self.cgroups.as_ref(), first, known);
            if command.how.is_some() && !left {
                events.extend(self.finish_command(&agent));
                continue;
            }
            if command.ending.is_none() {
                command.timed_out = true;
                command.ending = Some(Ending::begin());
            }
            let Some(ending) = &mut command.ending else { continue };
            ending.pause = (ending.pause * 2).min(LONGEST_LOOK);
            let next = now + ending.pause;
            // A process that the kernel does not let go of must not keep the daemon waiting.
            if now.duration_since(ending.since) >= STUCK && !ending.told {
                ending.told = true;
                events.push(command.event());
            }
            self.commands.look_at(&agent, next);
        }
        events
    }
}
