//! Runs and commands that a spawner starts, until it answers or is given up.
//!
//! A run that starts is not known to live. Requests that concern it wait for the answer ([`Then`]), which
//! comes soon or is given up: after [`spawn_deadline`], or after [`HASTE`] if the run is to be killed or there
//! is no daemon. A start that was given up is reported as not spawned with `ETIMEDOUT`. Its child has been
//! killed and executes nothing more ([`Spawners::give_up`]), so the agent may start again at once; only its
//! remains are looked after here until the kernel lets go of them.
//!
//! [`Spawners::give_up`]: crate::spawner::Spawners::give_up

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Arc;
use std::time::{Duration, Instant};

use defib_core::Name;
use rustix::io::Errno;
use rustix::process::Pid;

use super::{Event, Manner, Run, Runs, commands, is_known};
use crate::child::{Child, Fault, Launcher};
use crate::descent::{Descent, mark_below};
use crate::launch::{new_pipe, new_terminal};
use crate::memory::MemoryBound;
use crate::output::RunOutput;
use crate::protocol::{Leftovers, RunKey, Stage};
use crate::spawner::{Answer, Job, Spawned};
use crate::tree::{First, Tree};
use crate::turns::Wanted;
use crate::wait::Waited;

/// How long a start may take that nobody waits for any more.
pub(crate) const HASTE: Duration = Duration::from_secs(1);
/// How many starts of one agent may be stuck in the kernel. Then its next ones fail at once.
const MOST_STUCK: usize = 3;
/// How long until the remains of a start that was given up are looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How long a start may take: 10 s. A debug build takes another time from the environment, for tests.
pub fn spawn_deadline() -> Duration {
    let asked = std::env::var("DEFIB_TEST_SPAWN_DEADLINE_MS").ok();
    let asked = asked.filter(|_| cfg!(debug_assertions)).and_then(|text| text.parse().ok());
    Duration::from_millis(asked.unwrap_or(10_000))
}

/// What is started, and what is left of starts that were given up.
#[derive(Default)]
pub(super) struct Starting {
    runs: BTreeMap<Name, Box<Start>>,
    pub(super) commands: BTreeMap<Name, Box<commands::Start>>,
    /// By the number of the job.
    remains: BTreeMap<u64, Remains>,
}

/// A run that a spawner starts.
struct Start {
    key: RunKey,
    /// The spawner's job.
    job: u64,
    output: RunOutput,
    terminal: bool,
    leftovers: Leftovers,
    group: Option<Arc<str>>,
    bound: Option<Box<MemoryBound>>,
    mark: String,
    then: Vec<Then>,
}

/// A request that waits until the run has started.
pub(crate) enum Then {
    Signal(i32),
    Kill,
    Inquire,
    Spawn(Box<Wanted>),
}

/// What came of a start.
pub(crate) enum Settled {
    /// A run lives or was not spawned, and these requests have waited for that.
    Run(RunKey, Result<(), Fault>, Vec<Then>),
    /// The end of a command that did not start.
    Command(Event),
}

/// What is left of a start that was given up.
pub(super) struct Remains {
    pub(super) agent: Name,
    pub(super) group: Option<Arc<str>>,
    pub(super) mark: String,
    /// Dropped when the last process has left it.
    pub(super) _bound: Option<Box<MemoryBound>>,
    /// Processes of a child that executed its program in the moment in which it was killed.
    pub(super) tree: Option<Tree>,
    pub(super) look: Option<Instant>,
}

impl Starting {
    pub(super) fn has(&self, key: &RunKey) -> bool {
        self.runs.get(&key.agent).is_some_and(|start| start.key == *key)
    }

    pub(super) fn concern(&self, agent: &Name) -> bool {
        self.runs.contains_key(agent)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(super) fn next_look(&self) -> Option<Instant> {
        self.remains.values().filter_map(|remains| remains.look).min()
    }

    pub(super) fn leave(&mut self, job: u64, remains: Remains) {
        self.remains.insert(job, remains);
    }
}

impl Runs {
    /// Has a run started that was never known.
    pub(crate) fn begin(
        &mut self,
        wanted: Wanted,
        launcher: &Launcher,
        patience: Duration,
    ) -> Result<(), Fault> {
        let Wanted { order, profile } = wanted;
        let key = order.key.clone();
        if self.live.contains_key(&key.agent) {
            return Err(Fault { stage: Stage::Process, errno: Errno::BUSY });
        }
        let stuck = self.starting.remains.values().filter(|remains| remains.agent == key.agent);
        if stuck.count() >= MOST_STUCK {
            return Err(Fault { stage: Stage::Process, errno: Errno::TIMEDOUT });
        }
        let mark = format!("{}/{}/{}", key.agent, key.run, self.marks.cookie);
        let run_key = mark_below(self.marks.run_above.clone(), &mark);
        let output = match order.terminal {
            Some(size) => new_terminal(size),
            None => new_pipe(),
        }
        .map_err(Fault::at(Stage::Descriptors))?;
        let group = self.enter_group(&key, launcher);
        let bound = order.memory.and_then(|bytes| self.bound_memory(&key, bytes, group.as_ref()));
        let bound = bound.map(Box::new);
        self.bound_processes(&order, group.as_ref());
        let door = bound.as_ref().and_then(|bound| bound.door()).map(CString::into_bytes);
        let (group, folder) = group.unzip();
        let (terminal, leftovers) = (order.terminal.is_some(), order.leftovers);
        let job = Job {
            order,
            profile,
            marks: (run_key, self.marks.home.clone()),
            identity: None,
            door,
            has_output: true,
            has_group: folder.is_some(),
            may_leave_group: true,
        };
        let descriptors = std::iter::once(output.theirs).chain(folder).collect();
        let job = self.spawners.submit(Box::new(job), descriptors, patience);
        let start = Start {
            key: key.clone(),
            job,
            output: output.ours,
            terminal,
            leftovers,
            group,
            bound,
            mark,
            then: Vec::new(),
        };
        self.starting.runs.insert(key.agent, Box::new(start));
        Ok(())
    }

    /// Puts a request off until a run has started. Gives it back if that run does not start.
    pub(crate) fn put_off(&mut self, key: &RunKey, then: Then) -> Option<Then> {
        let start = self.starting.runs.get_mut(&key.agent);
        let is_other = matches!(then, Then::Spawn(_));
        let Some(start) = start.filter(|start| is_other || start.key == *key) else {
            return Some(then);
        };
        if matches!(then, Then::Kill) {
            self.spawners.hasten(start.job, HASTE);
        }
        start.then.push(then);
        None
    }

    /// Has everything killed that starts.
    pub(super) fn kill_starts(&mut self) {
        let keys: Vec<RunKey> = self.starting.runs.values().map(|it| it.key.clone()).collect();
        for key in keys {
            self.put_off(&key, Then::Kill);
        }
    }

    /// Nobody waits any more for what starts.
    pub(crate) fn hasten_starts(&mut self) {
        for start in self.starting.runs.values() {
            self.spawners.hasten(start.job, HASTE);
        }
    }

    /// Whether a run starts.
    pub(crate) fn is_starting(&self) -> bool {
        !self.starting.is_empty()
    }

    /// What the spawners have answered.
    pub(crate) fn hear_spawners(&mut self) -> Vec<Settled> {
        let answers = self.spawners.answers();
        let answers = answers.into_iter().map(|(job, answer)| match answer {
            Answer::Spawned(spawned) => (job, Ok(spawned)),
            Answer::Failed { stage, errno } => {
                (job, Err(Fault { stage, errno: Errno::from_raw_os_error(errno) }))
            }
        });
        let answers: Vec<_> = answers.collect();
        answers.into_iter().filter_map(|(job, result)| self.settle(job, result)).collect()
    }

    /// A child has died before its spawner has said that it lives. If it executed its program, it counts
    /// as spawned.
    pub(crate) fn settle_dead(&mut self, pid: Pid) -> Option<Settled> {
        let (job, executed) = self.spawners.job_of(pid)?;
        if !executed {
            return None;
        }
        let in_group = self.spawners.in_group(job);
        let manner = Manner::default();
        self.settle(job, Ok(Spawned { pid: pid.as_raw_pid(), in_group, manner }))
    }

    /// Gives up what has not started in time.
    pub(crate) fn give_up_overdue(&mut self, now: Instant) -> Vec<Settled> {
        let overdue = self.spawners.overdue(now);
        overdue.into_iter().filter_map(|job| self.give_up(job, Errno::TIMEDOUT)).collect()
    }

    fn start_of(&self, job: u64) -> Option<Name> {
        self.starting.runs.iter().find(|(_, start)| start.job == job).map(|(name, _)| name.clone())
    }

    fn settle(&mut self, job: u64, result: Result<Spawned, Fault>) -> Option<Settled> {
        let Some(agent) = self.start_of(job) else {
            return self.settle_command(job, result).map(Settled::Command);
        };
        let mut start = *self.starting.runs.remove(&agent)?;
        let (key, then) = (start.key.clone(), std::mem::take(&mut start.then));
        let result = result.and_then(|spawned| self.take_in(start, spawned));
        Some(Settled::Run(key, result, then))
    }

    /// A run lives.
    fn take_in(&mut self, start: Start, spawned: Spawned) -> Result<(), Fault> {
        let Start { key, output, terminal, leftovers, group, bound, mark, .. } = start;
        let child = Runs::hold(spawned.pid)?;
        let tree = match (group.filter(|_| spawned.in_group), &self.cgroups) {
            (Some(name), Some(cgroups)) => {
                Tree::Cgroup { oom_before: cgroups.oom_kills(&name), name, killed: 0 }
            }
            (_, _) => Tree::Walked(Box::new(Descent::new(child.pid, mark))),
        };
        let agent = key.agent.clone();
        self.names.insert(child.pid, agent.clone());
        self.highest.insert(agent.clone(), key.run);
        let manner = spawned.manner;
        let (end, ending) = (None, None);
        let run = Run { key, child, output, terminal, leftovers, tree, manner, bound, end, ending };
        self.live.insert(agent, Box::new(run));
        Ok(())
    }

    /// Takes hold of a child of ours. One that cannot be held is killed: it cannot be supervised.
    pub(super) fn hold(pid: i32) -> Result<Child, Fault> {
        let fault = Fault::at(Stage::Process);
        let pid = Pid::from_raw(pid).ok_or(Errno::SRCH).map_err(Fault::at(Stage::Process))?;
        Child::hold(pid).map_err(|errno| {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            fault(errno)
        })
    }

    /// Gives up a job: kills what there is of it, and says that it was not spawned.
    pub(super) fn give_up(&mut self, job: u64, errno: Errno) -> Option<Settled> {
        let stage = self.spawners.give_up(job);
        let fault = Fault { stage: stage.unwrap_or(Stage::Process), errno };
        let Some(agent) = self.start_of(job) else {
            return self.give_up_command(job, fault, stage.is_some()).map(Settled::Command);
        };
        let start = *self.starting.runs.remove(&agent)?;
        let Start { key, group, bound, mark, then, .. } = start;
        if stage.is_some() {
            if self.groups.get(&agent).is_some_and(|known| Some(known) == group.as_ref()) {
                // The next run gets a cgroup of its own: a stuck child would count as a part of it.
                self.groups.remove(&agent);
            }
            let remains = Remains { agent, group, mark, _bound: bound, tree: None, look: None };
            self.starting.leave(job, remains);
        }
        Some(Settled::Run(key, Err(fault), then))
    }

    /// A process has ended and has not been waited for. If it is a spawner, says so; and gives up the job
    /// that it had.
    pub(crate) fn spawner_ended(&mut self, pid: Pid) -> Option<Vec<Settled>> {
        if !self.spawners.is_spawner(pid) {
            return None;
        }
        let job = self.spawners.ended(pid);
        let settled = job.and_then(|job| self.give_up(job, Errno::CHILD));
        // Whatever child it made in its last moment is known now.
        if let Some(job) = self.spawners.spawner_is_gone(pid) {
            self.forget_remains(job);
        }
        Some(settled.into_iter().collect())
    }

    /// A child of a job has ended and has not been waited for: one that failed, or one that was given up.
    /// Says whether it was such a child; `wait` waits for it.
    pub(super) fn job_child_ended(
        &mut self,
        pid: Pid,
        daemon: Option<Pid>,
        wait: &mut impl FnMut() -> Option<Waited>,
    ) -> bool {
        let Some(job) = self.spawners.given_up_with(pid) else {
            let failed = self.spawners.job_of(pid).is_some();
            if failed {
                self.spawners.forget_child(pid);
                wait();
            }
            return failed;
        };
        let (names, spawners, cgroups) = (&self.names, &self.spawners, self.cgroups.as_ref());
        let known = |other| is_known(names, spawners, daemon, other);
        if let Some(remains) = self.starting.remains.get_mut(&job) {
            let tree = match &remains.group {
                Some(name) if cgroups.is_some() => {
                    Tree::Cgroup { name: name.clone(), oom_before: 0, killed: 0 }
                }
                _ => Tree::Walked(Box::new(Descent::new(pid, remains.mark.clone()))),
            };
            let tree = remains.tree.insert(tree);
            if tree.looks_before_waiting() {
                tree.kill(cgroups, First::Unwaited, known);
            }
            remains.look = Some(Instant::now());
        }
        self.spawners.forget_child(pid);
        wait();
        true
    }

    /// Looks at what starts that were given up have left.
    pub(super) fn look_at_remains(&mut self, now: Instant, daemon: Option<Pid>) {
        let (names, spawners, cgroups) = (&self.names, &self.spawners, self.cgroups.as_ref());
        let known = |other| is_known(names, spawners, daemon, other);
        let mut over = Vec::new();
        for (job, remains) in &mut self.starting.remains {
            if remains.look.is_none_or(|look| look > now) {
                continue;
            }
            let tree = remains.tree.as_mut();
            let left = tree.is_some_and(|tree| tree.kill(cgroups, First::Gone, known));
            remains.look = left.then(|| now + LOOK_AGAIN);
            if !left {
                remains.tree = None;
                over.push(*job);
            }
        }
        for job in over {
            self.forget_remains(job);
        }
    }

    /// Forgets what a start has left, once nothing is left.
    fn forget_remains(&mut self, job: u64) {
        let gone = self.spawners.forget_given_up(job);
        let remains = self.starting.remains.get(&job);
        if gone && remains.is_some_and(|remains| remains.tree.is_none()) {
            let remains = self.starting.remains.remove(&job);
            let group = remains.and_then(|remains| remains.group);
            if let (Some(cgroups), Some(group)) = (&self.cgroups, group) {
                cgroups.discard(&group);
            }
        }
    }
}
