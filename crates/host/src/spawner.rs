//! Spawners: small processes that make the processes of agents for the keeper.
//!
//! To start an agent is to open its paths, enter its folder, become its user and execute its program.
//! Each of these steps can block for ever: on a file system that does not answer, or because another
//! process of the same user stops the child before it executes its program. So the keeper does none of
//! them and waits for none of them. It sends a [`Job`] to a spawner, a fork of itself with one thread,
//! and goes on; the spawner's [`Answer`] is one more event of the keeper's loop.
//!
//! A child that a spawner makes is the keeper's own child (`CLONE_PARENT`): the keeper waits for it, and
//! it dies with the keeper. The child's number is in memory that keeper and spawner share
//! ([`Progress`]) before the child runs its first instruction, so the keeper can always kill it.
//!
//! A spawner has one job at a time. While all spawners are busy and a job waits, the keeper starts one
//! more every [`GROWTH`]; idle ones beyond [`MOST_IDLE`] are ended. A spawner that does not answer in time
//! is killed with its child ([`Spawners::give_up`]).
//!
//! Invariant: nothing in here blocks the keeper.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::channel::{Channel, Flushed};
use crate::child::{Fault, Identity, Launcher, Made, SLOTS};
use crate::descent::{HOME_KEY, RUN_KEY};
use crate::errno::last_errno;
use crate::launch::plan_run;
use crate::protocol::{Profile, SpawnOrder, Stage};
use crate::runs::Manner;
use crate::sandbox::{Sandbox, namespaces};
use crate::standing::Standing;

/// How long all spawners are busy while a job waits before one more is started.
const GROWTH: Duration = Duration::from_millis(5);
/// Maximum number of spawners that have nothing to do.
const MOST_IDLE: usize = 1;
/// Maximum number of spawners. If so many starts hang at once, others wait for a deadline.
const MOST: usize = 256;

/// What a spawner is to do. Its descriptors are the output of the run, if it has one, and the folder of
/// the cgroup, if there is one.
#[derive(Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) order: SpawnOrder,
    pub(crate) profile: Option<Box<Profile>>,
    /// The values of [`RUN_KEY`] and [`HOME_KEY`].
    pub(crate) marks: (String, String),
    /// User, group and supplementary groups, if they are known; else the order's user is looked up.
    pub(crate) identity: Option<(u32, u32, Vec<u32>)>,
    /// The path of the file by which the child enters a cgroup of the older sort.
    pub(crate) door: Option<Vec<u8>>,
    pub(crate) has_output: bool,
    pub(crate) has_group: bool,
    /// Whether the child may be made outside of the cgroup if it cannot be made in there.
    pub(crate) may_leave_group: bool,
}

/// What came of a job.
#[derive(Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The child has executed its program.
    Spawned(Spawned),
    Failed {
        stage: Stage,
        errno: i32,
    },
}

/// A child that has executed its program.
#[derive(Serialize, Deserialize)]
pub(crate) struct Spawned {
    pub(crate) pid: i32,
    pub(crate) in_group: bool,
    pub(crate) manner: Manner,
}

/// How far a spawner and its child are: memory that both share with the keeper.
#[derive(Clone)]
pub(crate) struct Progress(Rc<Mapping>);

struct Mapping(*mut Shared);

#[repr(C)]
struct Shared {
    /// The child, zero if there is none. The kernel writes it before the child runs.
    pid: AtomicI32,
    /// The step that was begun last.
    stage: AtomicU32,
    /// The error number of the child that failed in that step; zero if it has not.
    errno: AtomicI32,
    /// Whether the child was made in the cgroup of the job.
    in_group: AtomicBool,
}

impl Progress {
    fn new() -> Result<Progress, Errno> {
        let (rights, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: asks for new memory at any address, which is all-zero; that is valid for `Shared`.
        let place =
            unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Shared>(), rights, flags, -1, 0) };
        if place == libc::MAP_FAILED {
            return Err(last_errno());
        }
        Ok(Progress(Rc::new(Mapping(place.cast()))))
    }

    fn shared(&self) -> &Shared {
        // SAFETY: the mapping is as large as `Shared`, aligned to a page, and lives as long as `self`.
        // All of its fields are atomic, so that other processes may change them.
        unsafe { &*self.0.0 }
    }

    /// Where the kernel writes the number of the child.
    pub(crate) fn pid_address(&self) -> u64 {
        self.shared().pid.as_ptr() as u64
    }

    pub(crate) fn reach(&self, stage: Stage) {
        let number = STAGES.iter().position(|one| *one == stage).unwrap_or(0);
        self.shared().stage.store(u32::try_from(number).unwrap_or(0), Ordering::Release);
    }

    pub(crate) fn fail(&self, fault: Fault) {
        self.reach(fault.stage);
        self.shared().errno.store(fault.errno.raw_os_error(), Ordering::Release);
    }

    /// The step that was begun last.
    pub(crate) fn stage(&self) -> Stage {
        let number = self.shared().stage.load(Ordering::Acquire) as usize;
        STAGES.get(number).copied().unwrap_or(Stage::Process)
    }

    /// The child, if it has not been waited for.
    pub(crate) fn child(&self) -> Option<Pid> {
        Pid::from_raw(self.shared().pid.load(Ordering::Acquire))
    }

    /// The child is about to be waited for: from then on its number may be another's.
    pub(crate) fn forget_child(&self, pid: Pid) {
        let _ = self.shared().pid.compare_exchange(
            pid.as_raw_pid(),
            0,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
    }

    /// If this dead process was the child: whether it executed its program. One that was killed before
    /// that counts as if it had.
    fn has_executed(&self, dead: Pid) -> Option<bool> {
        let failed = self.shared().errno.load(Ordering::SeqCst) != 0;
        let is_child = self.shared().pid.load(Ordering::SeqCst) == dead.as_raw_pid();
        is_child.then_some(!failed)
    }

    pub(crate) fn in_group(&self) -> bool {
        self.shared().in_group.load(Ordering::Acquire)
    }

    /// Forgets the last child. Its number goes first: a keeper that reads the error first and the number
    /// second never takes a child that failed for one that did not.
    fn reset(&self) {
        self.shared().pid.store(0, Ordering::SeqCst);
        self.shared().errno.store(0, Ordering::SeqCst);
        self.reach(Stage::Process);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `Progress::new` mapped it, and the last one that could use it is being dropped.
        unsafe { libc::munmap(self.0.cast(), size_of::<Shared>()) };
    }
}

const STAGES: [Stage; 6] = [
    Stage::Process,
    Stage::Descriptors,
    Stage::Sandbox,
    Stage::User,
    Stage::Folder,
    Stage::Program,
];

/// The spawners, and the jobs that none of them has begun.
#[derive(Default)]
pub(crate) struct Spawners {
    all: Vec<Spawner>,
    waiting: VecDeque<Waiting>,
    last_number: u64,
    given_up: Vec<GivenUp>,
    /// When to try again to start one, after that failed.
    again: Option<Instant>,
}

struct Spawner {
    pid: Pid,
    channel: Channel<Job, Answer>,
    progress: Progress,
    busy: Option<Busy>,
}

#[derive(Clone, Copy)]
struct Busy {
    number: u64,
    since: Instant,
    due: Instant,
}

struct Waiting {
    number: u64,
    job: Box<Job>,
    descriptors: Vec<OwnedFd>,
    patience: Duration,
}

/// A job that the keeper has given up, until spawner and child have been waited for.
struct GivenUp {
    number: u64,
    /// The spawner, until it has been waited for.
    spawner: Option<Pid>,
    progress: Progress,
}

impl GivenUp {
    /// Kills spawner and child.
    ///
    /// From here on the child executes no instruction of its program. A process acts on a pending
    /// SIGKILL before it returns to user mode, and it can neither block nor ignore that signal. So a child
    /// that is in a system call, `execve` included, ends at the end of that call.
    fn kill(&self) {
        // Neither has been waited for, so both numbers are still theirs.
        for pid in self.spawner.into_iter().chain(self.progress.child()) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }

    /// Whether both have been waited for.
    fn is_over(&self) -> bool {
        self.spawner.is_none() && self.progress.child().is_none()
    }
}

impl Spawners {
    /// Has a job done. It is given up `patience` after a spawner has begun it.
    pub(crate) fn submit(
        &mut self,
        job: Box<Job>,
        descriptors: Vec<OwnedFd>,
        patience: Duration,
    ) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        self.waiting.push_back(Waiting { number, job, descriptors, patience });
        number
    }

    /// Whether a job would be begun at once.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.is_empty()
            && (self.all.is_empty() || self.all.iter().any(|it| it.busy.is_none()))
    }

    /// Hands jobs to idle spawners. Starts one more if all have been busy for long; `more` says whether
    /// a job is held back because there is no room for it.
    pub(crate) fn work(&mut self, more: bool, launcher: &mut Launcher, standing: &Standing) {
        while !self.waiting.is_empty() {
            let Some(spawner) = self.all.iter_mut().find(|it| it.busy.is_none()) else { break };
            let Some(Waiting { number, job, descriptors, patience }) = self.waiting.pop_front()
            else {
                break;
            };
            let fds: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
            spawner.progress.reset();
            let now = Instant::now();
            spawner.busy = Some(Busy { number, since: now, due: now + patience });
            // If either fails, the spawner does not answer, and the job is given up.
            let _ = spawner.channel.send(&job, &fds).and_then(|()| spawner.channel.flush());
        }
        let now = Instant::now();
        if self.grows_at(more, now).is_some_and(|due| due <= now) {
            match self.start(launcher, standing) {
                Ok(()) => {
                    self.again = None;
                    self.work(more, launcher, standing);
                }
                Err(_) => self.again = Some(now + Duration::from_millis(100)),
            }
        }
    }

    /// When to start one more spawner: if something waits, and every spawner has been busy for a while.
    fn grows_at(&self, more: bool, now: Instant) -> Option<Instant> {
        let wanted = (more || !self.waiting.is_empty()) && self.all.len() < MOST;
        if !wanted || self.all.iter().any(|it| it.busy.is_none()) {
            return None;
        }
        let begun = self.all.iter().filter_map(|it| it.busy.map(|busy| busy.since + GROWTH));
        begun.chain(self.again).max().or(Some(now))
    }

    /// When there is something to do even if no spawner answers.
    pub(crate) fn next_due(&self, more: bool) -> Option<Instant> {
        let busy = self.all.iter().filter_map(|it| it.busy.map(|busy| busy.due));
        busy.chain(self.grows_at(more, Instant::now())).min()
    }

    /// What to wait for.
    pub(crate) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.all.iter().map(|it| {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, it.channel.queued_bytes() > 0);
            PollFd::new(&it.channel, flags)
        })
    }

    /// The answers that have come.
    pub(crate) fn answers(&mut self) -> Vec<(u64, Answer)> {
        let mut answers = Vec::new();
        for spawner in self.all.iter_mut().filter(|it| it.busy.is_some()) {
            if spawner.channel.queued_bytes() > 0 {
                let _ = spawner.channel.flush();
            }
            // One that has gone is noticed when it is waited for.
            if let Ok(Some((answer, _))) = spawner.channel.receive()
                && let Some(busy) = spawner.busy.take()
            {
                answers.push((busy.number, answer));
            }
        }
        let mut idle = 0;
        // Without its other end a spawner ends.
        self.all.retain(|it| {
            idle += usize::from(it.busy.is_none());
            it.busy.is_some() || idle <= MOST_IDLE
        });
        answers
    }

    /// The jobs whose time is up.
    pub(crate) fn overdue(&self, now: Instant) -> Vec<u64> {
        let busy = self.all.iter().filter_map(|it| it.busy);
        busy.filter(|busy| busy.due <= now).map(|busy| busy.number).collect()
    }

    /// Has less patience with a job from now on.
    pub(crate) fn hasten(&mut self, number: u64, most: Duration) {
        let due = Instant::now() + most;
        for busy in self.all.iter_mut().filter_map(|it| it.busy.as_mut()) {
            if busy.number == number {
                busy.due = busy.due.min(due);
            }
        }
        for waiting in self.waiting.iter_mut().filter(|it| it.number == number) {
            waiting.patience = waiting.patience.min(most);
        }
    }

    /// Gives up a job: kills spawner and child. Says what was being done; nothing if no spawner has begun
    /// the job.
    pub(crate) fn give_up(&mut self, number: u64) -> Option<Stage> {
        self.waiting.retain(|it| it.number != number);
        let is_it = |it: &Spawner| it.busy.is_some_and(|busy| busy.number == number);
        let Spawner { pid, progress, .. } = self.all.remove(self.all.iter().position(is_it)?);
        let stage = progress.stage();
        let given_up = GivenUp { number, spawner: Some(pid), progress };
        given_up.kill();
        self.given_up.push(given_up);
        Some(stage)
    }

    /// The job that was given up and whose child this is.
    pub(crate) fn given_up_with(&self, child: Pid) -> Option<u64> {
        let found = self.given_up.iter().find(|it| it.progress.child() == Some(child));
        found.map(|it| it.number)
    }

    /// The spawner of a job that was given up has ended. Now it is known whether it made a child: that is
    /// killed too. Gives the number of the job.
    pub(crate) fn spawner_is_gone(&mut self, pid: Pid) -> Option<u64> {
        let given_up = self.given_up.iter_mut().find(|it| it.spawner == Some(pid))?;
        given_up.spawner = None;
        given_up.kill();
        Some(given_up.number)
    }

    /// Forgets a job that was given up if nothing of it is left. Says whether it is forgotten.
    pub(crate) fn forget_given_up(&mut self, number: u64) -> bool {
        self.given_up.retain(|it| it.number != number || !it.is_over());
        !self.given_up.iter().any(|it| it.number == number)
    }

    /// The job whose child this dead process was, and whether the child executed its program.
    pub(crate) fn job_of(&self, dead: Pid) -> Option<(u64, bool)> {
        let busy = self.all.iter().filter_map(|it| Some((it, it.busy?.number)));
        let mut executed = busy.map(|(it, number)| (number, it.progress.has_executed(dead)));
        executed.find_map(|(number, executed)| Some((number, executed?)))
    }

    /// Whether the child of a job was made in the job's cgroup.
    pub(crate) fn in_group(&self, number: u64) -> bool {
        let is_it = |it: &&Spawner| it.busy.is_some_and(|busy| busy.number == number);
        self.all.iter().find(is_it).is_some_and(|it| it.progress.in_group())
    }

    /// A child is about to be waited for: from then on its number may be another's.
    pub(crate) fn forget_child(&self, pid: Pid) {
        let all = self.all.iter().map(|it| &it.progress);
        for progress in all.chain(self.given_up.iter().map(|it| &it.progress)) {
            progress.forget_child(pid);
        }
    }

    /// Whether a child of the keeper is a spawner.
    pub(crate) fn is_spawner(&self, pid: Pid) -> bool {
        self.all.iter().any(|it| it.pid == pid)
            || self.given_up.iter().any(|it| it.spawner == Some(pid))
    }

    /// A spawner has ended. Gives the job that it had, if that was not given up.
    pub(crate) fn ended(&mut self, pid: Pid) -> Option<u64> {
        let at = self.all.iter().position(|it| it.pid == pid)?;
        let job = self.all.get(at)?.busy.map(|busy| busy.number);
        if job.is_none() {
            self.all.remove(at);
        }
        job
    }

    /// Whether a child of the keeper is a spawner or was made by one and has not been told of.
    pub(crate) fn has(&self, pid: Pid) -> bool {
        let all = self.all.iter().map(|it| (Some(it.pid), &it.progress));
        let given_up = self.given_up.iter().map(|it| (it.spawner, &it.progress));
        let mut all = all.chain(given_up);
        let is_it = |(spawner, progress): (Option<Pid>, &Progress)| {
            spawner == Some(pid) || progress.child() == Some(pid)
        };
        // One that was made a moment ago is still in the keeper's session; no run of ours ever is.
        all.any(is_it) || session(pid.as_raw_pid()) == session(0)
    }

    /// Starts a spawner.
    pub(crate) fn start(
        &mut self,
        launcher: &mut Launcher,
        standing: &Standing,
    ) -> Result<(), Errno> {
        let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        let progress = Progress::new()?;
        let keeper = rustix::process::getpid();
        // SAFETY: the keeper has one thread, so its copy has all that the original had. It never returns
        // from `serve`, so nothing that the keeper owns is dropped twice.
        match unsafe { libc::fork() } {
            0 => {
                drop(ours);
                launcher.serve_keeper(progress.clone());
                serve(theirs, launcher, standing, &progress, keeper)
            }
            pid => {
                let pid = Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(last_errno)?;
                let channel = Channel::new(ours);
                self.all.push(Spawner { pid, channel, progress, busy: None });
                Ok(())
            }
        }
    }
}

/// The session of a process, zero being this one. It is zero if the session is outside of this process
/// namespace, and negative if there is no such process.
fn session(pid: i32) -> i32 {
    // SAFETY: it takes a number, and says what there is.
    unsafe { libc::getsid(pid) }
}

/// What a spawner does until the keeper closes the connection or dies.
fn serve(
    socket: OwnedFd,
    launcher: &mut Launcher,
    standing: &Standing,
    progress: &Progress,
    keeper: Pid,
) -> ! {
    let _ = rustix::thread::set_name(c"defib-spawner");
    rename_arguments(b"defib internal spawner");
    // A spawner must not keep open what the keeper closes: its lock, its sockets, the output of runs.
    close_all_but([launcher.needs().as_raw_fd(), socket.as_raw_fd()]);
    let bound = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if bound.is_ok() && rustix::process::getppid() == Some(keeper) {
        let mut channel: Channel<Answer, Job> = Channel::new(socket);
        let mut sandbox = Sandbox::default();
        while let Some((job, descriptors)) = next_job(&mut channel) {
            let answer =
                match carry_out(job, descriptors, launcher, standing, progress, &mut sandbox) {
                    Ok(spawned) => Answer::Spawned(spawned),
                    Err(Fault { stage, errno }) => {
                        Answer::Failed { stage, errno: errno.raw_os_error() }
                    }
                };
            if channel.send(&answer, &[]).is_err() || !flush(&mut channel) {
                break;
            }
        }
    }
    // SAFETY: ends this process and runs nothing of the keeper's on the way.
    unsafe { libc::_exit(0) }
}

/// Replaces the arguments that this process shows. A spawner is a copy of the keeper and shows
/// its arguments, but scripts that look for `internal keeper` must find the keeper alone.
fn rename_arguments(title: &[u8]) {
    let Some(stat) = crate::descent::read("/proc/self/stat") else { return };
    let text = String::from_utf8_lossy(&stat);
    // The second field is a name in brackets, which may have spaces in it. Fields 48 and 49 are addresses.
    let fields = text.rsplit(')').next().unwrap_or_default();
    let address = |number: usize| fields.split_ascii_whitespace().nth(number - 3)?.parse().ok();
    let (Some(begin), Some(end)) = (address(48), address(49)) else { return };
    let length: usize = usize::saturating_sub(end, begin);
    if begin == 0 || length == 0 {
        return;
    }
    // SAFETY: the kernel put the arguments there, in memory of this process that stays mapped and writable.
    // The standard library copies them, so nothing refers to these bytes, and this process has one thread.
    let shown = unsafe { std::slice::from_raw_parts_mut(begin as *mut u8, length) };
    shown.fill(0);
    let title = &title[..title.len().min(length - 1)];
    shown[..title.len()].copy_from_slice(title);
}

fn next_job(channel: &mut Channel<Answer, Job>) -> Option<(Job, Vec<OwnedFd>)> {
    loop {
        if let Some(job) = channel.receive().ok()? {
            return Some(job);
        }
        await_socket(channel, PollFlags::IN);
    }
}

fn flush(channel: &mut Channel<Answer, Job>) -> bool {
    loop {
        match channel.flush() {
            Ok(Flushed::All) => return true,
            Ok(Flushed::Blocked) => await_socket(channel, PollFlags::OUT),
            Err(_) => return false,
        }
    }
}

fn await_socket(channel: &Channel<Answer, Job>, flags: PollFlags) {
    let _ = rustix::event::poll(&mut [PollFd::new(channel, flags)], None);
}

/// Does everything that the start of a process takes.
fn carry_out(
    job: Job,
    descriptors: Vec<OwnedFd>,
    launcher: &mut Launcher,
    standing: &Standing,
    progress: &Progress,
    sandbox: &mut Sandbox,
) -> Result<Spawned, Fault> {
    let mut descriptors = descriptors.into_iter();
    let output = job.has_output.then(|| descriptors.next()).flatten();
    let group = job.has_group.then(|| descriptors.next()).flatten();
    let Job { order, profile, marks: (run_key, home_key), .. } = job;
    let marks = [(RUN_KEY, run_key.as_str()), (HOME_KEY, home_key.as_str())];
    let mut plan = plan_run(&order, &marks, standing)?;
    if let Some(numbers) = job.identity {
        plan.identity = Some(Identity::from_numbers(numbers));
    }
    plan.door = job.door.and_then(|path| std::ffi::CString::new(path).ok());
    let terminal = output.as_ref().filter(|_| order.terminal.is_some());
    if let (Some(terminal), Some(identity)) = (terminal, &plan.identity) {
        rustix::fs::fchown(terminal, Some(identity.user), None)
            .map_err(Fault::at(Stage::Descriptors))?;
    }
    let mut ruleset = None;
    if let Some(profile) = &profile {
        progress.reach(Stage::Sandbox);
        if profile.isolation.is_namespaces() {
            ruleset = Some(namespaces::wrap(&mut plan, &order, &marks, profile)?);
        } else {
            let confinement = sandbox.confine(profile, terminal.map(AsFd::as_fd));
            let (confinement, rules) = confinement.map_err(Fault::at(Stage::Sandbox))?;
            plan.confinement = Some(confinement);
            ruleset = rules;
        }
    }
    let manner = Manner::of(&order, &plan, profile.as_deref());
    let handed = [output.as_ref().map(AsFd::as_fd), ruleset.as_ref().map(AsFd::as_fd)];
    let mut attempt = |group: Option<&OwnedFd>| {
        let group = group.filter(|_| launcher.knows_cgroups());
        progress.reset();
        progress.shared().in_group.store(group.is_some(), Ordering::Release);
        let Made { pid, fault, .. } = launcher.make(&plan, handed, group.map(AsFd::as_fd))?;
        let in_group = group.is_some() && launcher.knows_cgroups();
        match fault {
            None => Ok((pid.as_raw_pid(), in_group)),
            Some(fault) => Err(fault),
        }
    };
    let mut made = attempt(group.as_ref());
    let failed = made.as_ref().is_err_and(|fault| fault.stage == Stage::Process);
    if group.is_some() && failed && job.may_leave_group {
        // Perhaps it is only the cgroup that may not be entered.
        made = attempt(None);
    }
    let (pid, in_group) = made?;
    Ok(Spawned { pid, in_group, manner })
}

/// Closes every descriptor but the standard streams, the slots and these.
fn close_all_but(mut kept: [i32; 2]) {
    kept.sort_unstable();
    let mut first = SLOTS[1] + 1;
    for last in kept.into_iter().map(|fd| fd - 1).chain([i32::MAX]) {
        if first <= last {
            // SAFETY: takes numbers only. This process is a copy that uses nothing but what is kept.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
        first = last.saturating_add(2);
    }
}
