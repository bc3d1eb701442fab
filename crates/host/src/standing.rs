//! What the keeper makes of its own process, and what it was before.
//!
//! It adopts orphans, is the last to be killed for want of memory, may hold as many descriptors as
//! the system permits, gets signals by a descriptor only, and lets nobody read its memory. Children
//! get back what was before. Refuses nothing but signals: the rest is best effort.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use rustix::process::{DumpableBehavior, Resource, Rlimit};

/// What was before, and where signals come.
pub(crate) struct Standing {
    signals: OwnedFd,
    oom_score: Option<String>,
    bounds: Bounds,
}

/// What a process may use that keeper and daemon change for themselves.
#[derive(Debug, Clone)]
pub struct Bounds {
    files: Rlimit,
    core: Rlimit,
}

impl Bounds {
    /// Those of this process.
    pub fn now() -> Bounds {
        let bound = rustix::process::getrlimit;
        Bounds { files: bound(Resource::Nofile), core: bound(Resource::Core) }
    }

    /// Makes them those of this process again, for the program that it becomes.
    pub fn restore(self) {
        let _ = rustix::process::setrlimit(Resource::Nofile, self.files);
        let _ = rustix::process::setrlimit(Resource::Core, self.core);
    }
}

/// What the keeper takes notice of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    /// A child has ended.
    Child,
    /// The whole is to end in order.
    Close,
}

impl Standing {
    /// Takes the standing of a keeper. For the whole process: it must have one thread.
    pub(crate) fn take() -> io::Result<Standing> {
        let signals = take_signals()?;
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let _ = rustix::thread::set_name(c"defib-keeper");
        // It would take the processor from a child that is about to run its program.
        be_patient();
        let bounds = Bounds::now();
        raise_descriptor_limit();
        leave_no_core();
        let oom_score = lower_oom_score();
        // Last: it makes the files of this process in /proc root's, and those of a child that has
        // not run its program yet. One who is not root could not give such a child its score back.
        if oom_score.is_none() || rustix::process::geteuid().is_root() {
            let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
        }
        Ok(Standing { signals, oom_score, bounds })
    }

    /// Where signals come.
    pub(crate) fn signals(&self) -> &OwnedFd {
        &self.signals
    }

    /// The signals that have come and matter.
    pub(crate) fn notices(&self) -> Vec<Notice> {
        const RECORD: usize = size_of::<libc::signalfd_siginfo>();
        let mut notices = Vec::new();
        let mut buffer = [0; RECORD * 8];
        while let Ok(bytes @ 1..) = rustix::io::read(&self.signals, &mut buffer) {
            for record in buffer.get(..bytes).unwrap_or_default().chunks_exact(RECORD) {
                // The number is the first thing in the record.
                let number = record.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
                match number {
                    Some(libc::SIGCHLD) => notices.push(Notice::Child),
                    Some(libc::SIGTERM | libc::SIGINT) => notices.push(Notice::Close),
                    // A terminal that goes away, or anything else, is no reason to end agents.
                    _ => {}
                }
            }
            // Where there was room for more, there was no more.
            if bytes < buffer.len() {
                break;
            }
        }
        notices
    }

    /// What to write to a child's `oom_score_adj`, if it would inherit something else.
    pub(crate) fn oom_score_before(&self) -> Option<String> {
        self.oom_score.clone()
    }

    /// The bounds that a child gets back: resource, soft and hard.
    pub(crate) fn limits_before(&self) -> Vec<(u32, u64, u64)> {
        let bound = |value: Option<u64>| value.unwrap_or(u64::MAX);
        let Bounds { files, core } = &self.bounds;
        [(libc::RLIMIT_NOFILE, files), (libc::RLIMIT_CORE, core)]
            .into_iter()
            .map(|(resource, limit)| (resource, bound(limit.current), bound(limit.maximum)))
            .collect()
    }
}

/// Lets this process open as many files as the system permits it.
pub fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = rustix::process::setrlimit(Resource::Nofile, raised);
}

/// How many files this process may have open.
pub fn descriptor_limit() -> usize {
    let limit = rustix::process::getrlimit(Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// Lets this thread have the processor soon, for little at a time: somebody waits for what it does.
/// What it starts is as everything else is. Kernels before 6.12 do not know of it.
pub fn be_prompt() {
    // The shortest that there is.
    const SLICE_NS: u64 = 100_000;
    if is_usual() {
        set_slice(SLICE_NS);
    }
}

/// Takes that back: the program that ran in this process before may have been prompt.
fn be_patient() {
    // SAFETY: it takes a number, and says what there is.
    let policy = unsafe { libc::sched_getscheduler(0) };
    if policy == libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK {
        set_slice(0);
    }
}

/// How long this thread has the processor at a time; zero is as long as is usual.
fn set_slice(slice_ns: u64) {
    const RESET_ON_FORK: u64 = 1;
    // What is more urgent than usual would not be handed on to those it starts.
    let nice = rustix::process::getpriority_process(None).unwrap_or(-1);
    if nice < 0 {
        return;
    }
    let wanted = SchedulingAttributes {
        size: u32::try_from(size_of::<SchedulingAttributes>()).unwrap_or(0),
        policy: libc::SCHED_OTHER.cast_unsigned(),
        flags: RESET_ON_FORK,
        nice,
        priority: 0,
        runtime: slice_ns,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the record is laid out as the kernel has it, says how long it is, and outlives the call,
    // which reads it. It concerns this thread only; where it is refused all stays as it was.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
}

/// As the kernel lays it out (`struct sched_attr`, in its first version).
#[repr(C)]
struct SchedulingAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Starts threads that work in the background: when something comes for them to do, they do not get
/// ahead of whoever has the processor. It may be an agent that is ending, or whoever is to replace it.
pub fn in_background<T>(start: impl FnOnce() -> T) -> T {
    if !is_usual() {
        return start();
    }
    set_policy(libc::SCHED_BATCH);
    let started = start();
    set_policy(libc::SCHED_OTHER);
    started
}

/// Whether nobody has chosen how this thread is scheduled.
fn is_usual() -> bool {
    // SAFETY: it takes a number, and says what there is.
    unsafe { libc::sched_getscheduler(0) == libc::SCHED_OTHER }
}

/// How this thread is scheduled, and those that it starts.
fn set_policy(policy: libc::c_int) {
    // SAFETY: all-zero is a valid record, and it outlives the call, which reads it. It concerns this
    // thread only. Both policies are everybody's; where they are refused all stays as it was.
    unsafe {
        let parameters: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, policy, &raw const parameters);
    }
}

/// Lets nobody but root read the memory of this process, and leaves none of it in a core file.
pub fn hide_memory() {
    leave_no_core();
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// The bound that may be raised again stays: children get it back.
fn leave_no_core() {
    let limit = rustix::process::getrlimit(Resource::Core);
    let none = Rlimit { current: Some(0), maximum: limit.maximum };
    let _ = rustix::process::setrlimit(Resource::Core, none);
}

/// Says what it was if it was changed.
fn lower_oom_score() -> Option<String> {
    const FILE: &str = "/proc/self/oom_score_adj";
    let before = std::fs::read_to_string(FILE).ok()?.trim().to_owned();
    let value: i32 = before.parse().ok()?;
    let lower = [-1000, -500, 0].into_iter().filter(|score| *score < value);
    let mut lower = lower.map(|score| std::fs::write(FILE, score.to_string()));
    lower.any(|written| written.is_ok()).then_some(before)
}

/// Keeps TERM and INT until this process, or the program that it becomes, takes the standing of a keeper.
pub fn hold_signals() {
    // SAFETY: the set outlives the calls, which fill and read it. To block a signal changes no memory.
    unsafe {
        let mut held: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut held);
        libc::sigaddset(&raw mut held, libc::SIGTERM);
        libc::sigaddset(&raw mut held, libc::SIGINT);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const held, std::ptr::null_mut());
    }
}

/// All signals blocked, all of them with their default effect (for the children, which inherit it),
/// and a descriptor that tells of them. As PID 1 too: a blocked signal is kept for whoever asks.
fn take_signals() -> io::Result<OwnedFd> {
    // SAFETY: the set outlives the calls, which fill and read it; the descriptor is new and nobody
    // else's. Default effects need no handler to stay valid.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        if libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        match libc::signalfd(-1, &raw const all, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}
