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
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use defib_core::Name;
use rustix::io::Errno;
use rustix::process::{Gid, Pid, Uid};
use serde::{Deserialize, Serialize};

use super::{Ending, Event, LONGEST_LOOK, Runs, STUCK, is_known};
use crate::child::{Child, Fault, Identity, Launcher, Plan};
use crate::descent::{Descent, HOME_KEY, RUN_KEY, command_mark, mark_below};
use crate::launch::plan_run;
use crate::protocol::{
    CommandEnd, CommandOrder, How, Leftovers, Profile, RunKey, SpawnOrder, Stage,
};
use crate::sandbox::namespaces;
use crate::standing::Standing;
use crate::tree::{First, Tree};
use crate::wait::Waited;

/// How a run was spawned, as far as its commands need it. Packed, because there may be thousands of runs.
pub(super) struct Manner(Box<[u8]>);

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
    pub(super) fn of(order: &SpawnOrder, plan: &Plan, profile: Option<&Profile>) -> Manner {
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

impl Remembered {
    fn identity(&self) -> Option<Identity> {
        let (user, group, groups) = self.identity.as_ref()?;
        Some(Identity {
            user: Uid::from_raw(*user),
            group: Gid::from_raw(*group),
            groups: groups.iter().map(|group| Gid::from_raw(*group)).collect(),
        })
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
        self.due.first().map(|(due, _)| *due)
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
    /// Spawns a command in the manner of its run.
    pub(crate) fn run_command(
        &mut self,
        order: CommandOrder,
        launcher: &mut Launcher,
        standing: &Standing,
    ) -> Result<(), Fault> {
        let refused = |errno| Fault { stage: Stage::Process, errno };
        let CommandOrder { key, number, argv, env, timeout_ms } = order;
        if self.commands.of.contains_key(&key.agent) {
            return Err(refused(Errno::BUSY));
        }
        let run = self.live.get(&key.agent).filter(|run| run.key == key);
        let run = run.filter(|run| run.end.is_none() && run.ending.is_none());
        let run = run.ok_or(refused(Errno::SRCH))?;
        let manner = run.manner.remembered().ok_or(refused(Errno::INVAL))?;
        let door = run.bound.as_ref().and_then(|bound| bound.door());
        let group = match &run.tree {
            Tree::Cgroup { name, .. } => Some(self.enter_command_group(name, &manner)?),
            Tree::Walked(_) => None,
        };
        let cookie = &self.marks.cookie;
        let mark = format!("{}{number}/{cookie}", command_mark(&key.agent, key.run));
        let both = format!("{}/{}/{cookie},{mark}", key.agent, key.run);
        let run_key = mark_below(self.marks.run_above.clone(), &both);
        let marks = [(RUN_KEY, run_key.as_str()), (HOME_KEY, self.marks.home.as_str())];
        let identity = manner.identity();
        let order = SpawnOrder {
            key,
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
        let mut plan = plan_run(&order, &marks, standing)?;
        plan.identity = identity;
        plan.door = door;
        let mut ruleset = None;
        if let Some(profile) = &manner.profile {
            if profile.isolation.is_namespaces() {
                ruleset = Some(namespaces::wrap(&mut plan, &order, &marks, profile)?);
            } else {
                let confinement = self.sandbox.confine(profile, None);
                let (confinement, rules) = confinement.map_err(Fault::at(Stage::Sandbox))?;
                plan.confinement = Some(confinement);
                ruleset = rules;
            }
        }
        // Nothing is handed over as output, so the command's output goes to /dev/null.
        let handed = [None, ruleset.as_ref().map(AsFd::as_fd)];
        let folder = group.as_ref().map(|(_, folder)| folder.as_fd());
        let spawned = launcher.launch(&plan, handed, folder);
        let own = group.and_then(|(own, _)| own);
        let child = match spawned {
            Ok(child) => child,
            Err(fault) => {
                if let (Some(cgroups), Some(own)) = (&self.cgroups, &own) {
                    cgroups.discard(own);
                }
                return Err(fault);
            }
        };
        let tree = match own.filter(|_| launcher.knows_cgroups()) {
            Some(name) => Tree::Cgroup { name, oom_before: 0, killed: 0 },
            None => Tree::Walked(Box::new(Descent::new(child.pid, mark))),
        };
        let agent = order.key.agent.clone();
        let due = Instant::now() + Duration::from_millis(timeout_ms);
        self.names.insert(child.pid, agent.clone());
        self.commands.pids.insert(child.pid, agent.clone());
        self.commands.due.insert((due, agent.clone()));
        let command = Command {
            key: order.key,
            number,
            child,
            tree,
            due,
            timed_out: false,
            how: None,
            ending: None,
        };
        self.commands.of.insert(agent, Box::new(command));
        Ok(())
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

    /// Kills the command of an agent, if it has one. Returns whether something of it is still there.
    pub(super) fn end_command(&mut self, agent: &Name, daemon: Option<Pid>) -> bool {
        let Some(command) = self.commands.of.get_mut(agent) else { return false };
        let names = &self.names;
        let first = if command.how.is_none() { First::Lives(&command.child) } else { First::Gone };
        command.tree.kill(self.cgroups.as_ref(), first, |pid| is_known(names, daemon, pid));
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
        if self.commands.of.get(&key.agent).is_some_and(|command| is_it(command)) {
            self.end_command(&key.agent, daemon);
        }
    }

    /// Kills all commands.
    pub(crate) fn cancel_commands(&mut self, daemon: Option<Pid>) {
        let agents: Vec<Name> = self.commands.of.keys().cloned().collect();
        for agent in agents {
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
        let (names, cgroups) = (&self.names, self.cgroups.as_ref());
        let known = |other| is_known(names, daemon, other);
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
        let mut events = Vec::new();
        while let Some((_, agent)) = self.commands.due.first().filter(|(due, _)| *due <= now) {
            let agent = agent.clone();
            let Some(command) = self.commands.of.get_mut(&agent) else {
                self.commands.due.pop_first();
                continue;
            };
            let names = &self.names;
            let known = |pid| is_known(names, daemon, pid);
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
