//! From a plan to a process.
//!
//! The child borrows its maker's memory until it runs its program (`CLONE_VM`, with the maker held by
//! `CLONE_VFORK`): nothing is copied, so a spawn costs the same however big the maker is. It borrows
//! the descriptor table as well and gives itself a small one as its first step, so a spawn costs the
//! same however many agents there are: what the child needs lies in two slots, [`SLOTS`], below which
//! only standard streams live.
//!
//! The keeper makes the daemon's process itself. A spawner ([`crate::spawner`]) makes all others: the
//! clone waits for the child, and a child that enters an agent's folder can block for ever. A child that
//! a spawner makes is the keeper's own (`CLONE_PARENT`).
//!
//! Invariant: between the clone and `execve` the child allocates nothing, takes no lock and returns
//! nowhere. It reads the plan, makes system calls, and leaves its error where its maker looks.

use std::arch::asm;
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{Access, Mode, OFlags};
use rustix::io::{DupFlags, Errno, FdFlags};
use rustix::process::{Gid, Pid, Signal, Uid};

use crate::errno::last_errno;
use crate::protocol::Stage;
use crate::sandbox::Confinement;
use crate::spawner::Progress;

/// The descriptors by which things are handed to a child.
pub(crate) const SLOTS: [i32; 2] = [3, 4];

/// Everything the child will do.
pub(crate) struct Plan {
    /// The files to run, tried in this order.
    pub(crate) programs: Vec<CString>,
    pub(crate) arguments: Texts,
    pub(crate) environment: Texts,
    pub(crate) folder: Option<CString>,
    pub(crate) streams: Streams,
    pub(crate) umask: Option<u32>,
    pub(crate) identity: Option<Identity>,
    /// Resource, soft and hard bound.
    pub(crate) limits: Vec<(u32, u64, u64)>,
    /// What to write to `oom_score_adj`.
    pub(crate) oom_score: Option<String>,
    pub(crate) dies_with_keeper: bool,
    /// The file by which it enters a cgroup of the older sort.
    pub(crate) door: Option<CString>,
    /// What it is confined to. The ruleset, if there is one, is what is in the second slot.
    pub(crate) confinement: Option<Confinement>,
}

/// What the child's standard streams become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Streams {
    /// Output and errors go to what is in the first slot; input is /dev/null.
    Output,
    /// All three are the terminal in the first slot, which controls the session.
    Terminal,
    /// They are the keeper's, and the child keeps both slots.
    Keeper,
}

/// Whom the child becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) user: Uid,
    pub(crate) group: Gid,
    pub(crate) groups: Vec<Gid>,
}

impl Identity {
    /// By the numbers of user, group and supplementary groups.
    pub(crate) fn from_numbers((user, group, groups): (u32, u32, Vec<u32>)) -> Identity {
        Identity {
            user: Uid::from_raw(user),
            group: Gid::from_raw(group),
            groups: groups.into_iter().map(Gid::from_raw).collect(),
        }
    }
}

/// Texts as `execve` wants them.
pub(crate) struct Texts {
    pointers: Vec<*const c_char>,
    // Only here so that what the pointers point to lives as long as they do.
    _bytes: Vec<u8>,
}

impl Texts {
    /// `None` if one of them has a NUL inside.
    pub(crate) fn new<'a>(texts: impl Iterator<Item = [&'a [u8]; 3]> + Clone) -> Option<Texts> {
        let length = texts.clone().flatten().map(<[u8]>::len).sum::<usize>();
        let count = texts.clone().count();
        let mut bytes = Vec::with_capacity(length + count);
        let mut begins = Vec::with_capacity(count);
        for text in texts {
            begins.push(bytes.len());
            for part in text {
                if part.contains(&0) {
                    return None;
                }
                bytes.extend_from_slice(part);
            }
            bytes.push(0);
        }
        let mut pointers: Vec<*const c_char> = begins
            .into_iter()
            .map(|begin| bytes.get(begin..).unwrap_or_default().as_ptr().cast())
            .collect();
        pointers.push(std::ptr::null());
        Some(Texts { pointers, _bytes: bytes })
    }
}

/// A process that was made.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
}

impl Child {
    /// Takes hold of a child of this process that has not been waited for: its number is its own.
    pub(crate) fn hold(pid: Pid) -> Result<Child, Errno> {
        let flags = rustix::process::PidfdFlags::empty();
        Ok(Child { pid, pidfd: rustix::process::pidfd_open(pid, flags)? })
    }

    pub(crate) fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Its process id, as both sides of the protocol write it.
    pub(crate) fn number(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }
}

/// Why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) stage: Stage,
    pub(crate) errno: Errno,
}

impl Fault {
    pub(crate) fn at(stage: Stage) -> impl FnOnce(Errno) -> Fault {
        move |errno| Fault { stage, errno }
    }
}

/// Makes processes.
pub(crate) struct Launcher {
    nothing: OwnedFd,
    slots: [OwnedFd; 2],
    stack: Vec<Page>,
    keeper: Option<Pid>,
    /// Containers commonly forbid clone3, because filters cannot look into its arguments.
    clone3: bool,
    /// Set in a spawner: its children are the keeper's, and the keeper reads here how far they are.
    progress: Option<Progress>,
}

#[repr(C, align(4096))]
#[derive(Clone)]
struct Page([u8; 4096]);

const STACK_PAGES: usize = 8;

impl Launcher {
    /// Takes the slots. What is open there moves up: somebody may count on its staying open.
    pub(crate) fn new() -> rustix::io::Result<Launcher> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let opened = rustix::fs::open(c"/dev/null", flags, Mode::empty())?;
        let nothing = rustix::io::fcntl_dupfd_cloexec(&opened, 10)?;
        drop(opened);
        rustix::stdio::dup2_stdin(&nothing)?;
        let [first, second] = SLOTS;
        let slots = [Self::take_slot(first, &nothing)?, Self::take_slot(second, &nothing)?];
        Ok(Launcher {
            nothing,
            slots,
            stack: vec![Page([0; 4096]); STACK_PAGES],
            keeper: Some(rustix::process::getpid()),
            clone3: true,
            progress: None,
        })
    }

    /// From here on makes processes in the place of the keeper, of which this process is a child.
    pub(crate) fn serve_keeper(&mut self, progress: Progress) {
        self.progress = Some(progress);
    }

    /// A descriptor that has to stay open beside the slots.
    pub(crate) fn needs(&self) -> BorrowedFd<'_> {
        self.nothing.as_fd()
    }

    fn take_slot(number: i32, nothing: &OwnedFd) -> rustix::io::Result<OwnedFd> {
        // SAFETY: takes numbers, and opens one more descriptor, which is left open for whoever has the
        // other. If nothing is open there it says EBADF.
        if unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 10) } < 0 {
            match last_errno() {
                Errno::BADF => {}
                errno => return Err(errno),
            }
        }
        // SAFETY: dup3 takes numbers, not pointers; the keeper runs as the whole of its process, and
        // what was at this number has just been given another.
        if unsafe { libc::dup3(nothing.as_raw_fd(), number, libc::O_CLOEXEC) } < 0 {
            return Err(last_errno());
        }
        // SAFETY: dup3 has just opened it, and nobody else was told.
        Ok(unsafe { OwnedFd::from_raw_fd(number) })
    }

    /// Makes the process that `plan` describes, as the keeper's child, and holds it.
    pub(crate) fn launch(
        &mut self,
        plan: &Plan,
        handed: [Option<BorrowedFd<'_>>; 2],
    ) -> Result<Child, Fault> {
        let Made { pid, pidfd, fault } = self.make(plan, handed, None)?;
        let fault = match (fault, pidfd) {
            (None, Some(pidfd)) => return Ok(Child { pid, pidfd }),
            (None, None) => {
                // Its program runs, but without hold of it there is no supervising it.
                let _ = rustix::process::kill_process(pid, Signal::KILL);
                Fault { stage: Stage::Process, errno: Errno::NOSYS }
            }
            (Some(fault), _) => fault,
        };
        // It is exiting; nothing remains of it but to be waited for.
        let options = rustix::process::WaitOptions::empty();
        while matches!(rustix::process::waitpid(Some(pid), options), Err(Errno::INTR)) {}
        Err(fault)
    }

    /// Makes the process that `plan` describes, in the cgroup if one is given, with duplicates of
    /// `handed` in the slots. A child that failed is not waited for.
    pub(crate) fn make(
        &mut self,
        plan: &Plan,
        handed: [Option<BorrowedFd<'_>>; 2],
        cgroup: Option<BorrowedFd<'_>>,
    ) -> Result<Made, Fault> {
        for (slot, fd) in self.slots.iter_mut().zip(handed) {
            if let Some(fd) = fd {
                rustix::io::dup3(fd, slot, DupFlags::CLOEXEC)
                    .map_err(Fault::at(Stage::Descriptors))?;
            }
        }
        let result = self.clone_and_run(plan, cgroup);
        for (slot, fd) in self.slots.iter_mut().zip(handed) {
            if fd.is_some() {
                // The write end of a pipe must not stay open here, or its end is never seen. Both
                // numbers are open, so this cannot fail; and there may be a child already.
                let _ = rustix::io::dup3(&self.nothing, slot, DupFlags::CLOEXEC);
            }
        }
        result
    }

    fn clone_and_run(
        &mut self,
        plan: &Plan,
        cgroup: Option<BorrowedFd<'_>>,
    ) -> Result<Made, Fault> {
        let errand = Errand { launcher: self, plan, fault: Cell::new(None) };
        let mut pidfd: i32 = -1;
        let (pid, errno) = match errand.clone_process(&mut pidfd, cgroup) {
            Ok(pid) => (pid, None),
            Err(errno) => (None, Some(errno)),
        };
        let fault = errand.fault.get();
        if matches!(errno, Some(Errno::NOSYS | Errno::PERM)) && self.clone3 {
            self.clone3 = false;
            return self.clone_and_run(plan, None);
        }
        let Some(pid) = pid else {
            return Err(Fault { stage: Stage::Process, errno: errno.unwrap_or(Errno::INVAL) });
        };
        // A clone that does not know of pidfds leaves the number as it was.
        let pidfd = (pidfd >= 0).then(|| {
            // SAFETY: the kernel stored the new process's pidfd here, and nobody else was told.
            unsafe { OwnedFd::from_raw_fd(pidfd) }
        });
        Ok(Made { pid, pidfd, fault })
    }

    /// Whether processes can be put into a cgroup as they are made.
    pub(crate) fn knows_cgroups(&self) -> bool {
        self.clone3
    }
}

/// A process that was made: it runs its program, or it has failed and exits.
pub(crate) struct Made {
    pub(crate) pid: Pid,
    /// Only the keeper gets one. A spawner's child is the keeper's, who opens its own.
    pidfd: Option<OwnedFd>,
    pub(crate) fault: Option<Fault>,
}

/// What maker and child share while the child gets ready.
struct Errand<'a> {
    launcher: &'a Launcher,
    plan: &'a Plan,
    fault: Cell<Option<Fault>>,
}

/// As the kernel lays it out (`struct clone_args`, to and including `cgroup`).
#[repr(C, align(8))]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

impl Errand<'_> {
    /// The maker sleeps here until the child has run its program or given up.
    #[expect(clippy::cast_sign_loss, reason = "flags and addresses are bits")]
    fn clone_process(
        &self,
        pidfd: &mut i32,
        cgroup: Option<BorrowedFd<'_>>,
    ) -> Result<Option<Pid>, Errno> {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES;
        let flags = u64::from(flags.cast_unsigned());
        let stack = self.launcher.stack.as_ptr() as u64;
        let stack_size = (STACK_PAGES * size_of::<Page>()) as u64;
        let pidfd = std::ptr::from_mut(pidfd) as u64;
        let mut arguments = CloneArgs { flags, stack, stack_size, ..CloneArgs::default() };
        // The older call has one place for either.
        let place = if let Some(progress) = &self.launcher.progress {
            // The kernel writes the number before the child runs, so the keeper can kill it from the
            // first moment on. The child's end is announced like the spawner's own: by SIGCHLD.
            arguments.flags |= (libc::CLONE_PARENT | libc::CLONE_PARENT_SETTID) as u64;
            arguments.parent_tid = progress.pid_address();
            arguments.parent_tid
        } else {
            arguments.flags |= libc::CLONE_PIDFD as u64;
            arguments.exit_signal = libc::SIGCHLD as u64;
            arguments.pidfd = pidfd;
            pidfd
        };
        let plain = [arguments.flags | arguments.exit_signal, stack + stack_size, place];
        if let Some(cgroup) = cgroup {
            arguments.flags |= CLONE_INTO_CGROUP;
            arguments.cgroup = cgroup.as_raw_fd() as u64;
        }
        let (number, registers) = if self.launcher.clone3 {
            let address = std::ptr::from_ref(&arguments) as u64;
            (libc::SYS_clone3, [address, size_of::<CloneArgs>() as u64, 0])
        } else {
            (libc::SYS_clone, plain)
        };
        // SAFETY: the stack belongs to the launcher, is aligned, and is used by one child at a time,
        // because this process has one thread, which sleeps until this child has let go of its memory.
        // `enter` never returns, and `self` outlives the child's use of it for the same reason.
        let result = unsafe { clone_onto_stack(number, registers, std::ptr::from_ref(self)) };
        if result < 0 {
            return Err(Errno::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EINVAL)));
        }
        Ok(i32::try_from(result).ok().and_then(Pid::from_raw))
    }

    /// What the child does. Only returns if something failed.
    fn follow(&self) -> Fault {
        match self.prepare() {
            Ok(()) => self.run_program(),
            Err(fault) => fault,
        }
    }

    /// Says what the child does next, for a keeper that wonders why it takes so long.
    fn reach(&self, stage: Stage) {
        if let Some(progress) = &self.launcher.progress {
            progress.reach(stage);
        }
    }

    fn prepare(&self) -> Result<(), Fault> {
        let plan = self.plan;
        let [first, second] = &self.launcher.slots;
        // SAFETY: takes numbers only. It gives this process a table of its own, with nothing in it
        // above the slots; the keeper's is as it was.
        if unsafe { libc::syscall(libc::SYS_close_range, SLOTS[1] + 1, u32::MAX, UNSHARE) } != 0 {
            return Err(Fault { stage: Stage::Descriptors, errno: last_errno() });
        }
        rustix::process::setsid().map_err(Fault::at(Stage::Process))?;
        match plan.streams {
            Streams::Output => rustix::stdio::dup2_stdout(first)
                .and_then(|()| rustix::stdio::dup2_stderr(first))
                .map_err(Fault::at(Stage::Descriptors))?,
            Streams::Terminal => rustix::stdio::dup2_stdin(first)
                .and_then(|()| rustix::stdio::dup2_stdout(first))
                .and_then(|()| rustix::stdio::dup2_stderr(first))
                .and_then(|()| rustix::process::ioctl_tiocsctty(first))
                .map_err(Fault::at(Stage::Descriptors))?,
            Streams::Keeper => rustix::io::fcntl_setfd(first, FdFlags::empty())
                .and_then(|()| rustix::io::fcntl_setfd(second, FdFlags::empty()))
                .map_err(Fault::at(Stage::Descriptors))?,
        }
        if let Some(score) = &plan.oom_score {
            // Best effort: a run with a low score is better than no run.
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            if let Ok(file) = rustix::fs::open(c"/proc/self/oom_score_adj", flags, Mode::empty()) {
                let _ = rustix::io::write(file, score.as_bytes());
            }
        }
        if let Some(door) = &plan.door {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            rustix::fs::open(door.as_c_str(), flags, Mode::empty())
                .and_then(|file| rustix::io::write(file, b"0"))
                .map_err(Fault::at(Stage::Process))?;
        }
        for &(resource, soft, hard) in &plan.limits {
            let bound = libc::rlimit64 { rlim_cur: soft, rlim_max: hard };
            // SAFETY: `bound` outlives the call, which writes nothing.
            let result = unsafe {
                libc::syscall(
                    libc::SYS_prlimit64,
                    0,
                    resource,
                    std::ptr::from_ref(&bound),
                    std::ptr::null::<libc::rlimit64>(),
                )
            };
            if result != 0 {
                return Err(Fault { stage: Stage::Process, errno: last_errno() });
            }
        }
        if let Some(mask) = plan.umask {
            rustix::process::umask(Mode::from_raw_mode(mask));
        }
        if let Some(confinement) = &plan.confinement {
            confinement.raise_shield().map_err(Fault::at(Stage::Sandbox))?;
        }
        if let Some(identity) = &plan.identity {
            self.reach(Stage::User);
            // These are for the thread, that is, for this process; the C library's would look for
            // other threads in the maker's memory.
            rustix::thread::set_thread_groups(&identity.groups)
                .and_then(|()| rustix::thread::set_thread_gid(identity.group))
                .and_then(|()| rustix::thread::set_thread_uid(identity.user))
                .map_err(Fault::at(Stage::User))?;
        }
        if let Some(folder) = &plan.folder {
            self.reach(Stage::Folder);
            rustix::process::chdir(folder.as_c_str()).map_err(Fault::at(Stage::Folder))?;
        }
        if plan.dies_with_keeper {
            // After the change of user, which would clear it. A keeper that died before this line
            // sends no signal any more.
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
                .map_err(Fault::at(Stage::Process))?;
            if rustix::process::getppid() != self.launcher.keeper {
                return Err(Fault { stage: Stage::Process, errno: Errno::SRCH });
            }
        }
        if let Some(confinement) = &plan.confinement {
            // Last of all that needs any right; what follows is allowed to everybody.
            confinement.enter(second).map_err(Fault::at(Stage::Sandbox))?;
        }
        // SAFETY: an all-zero set is an empty set, and it outlives the call. The keeper's handlers are
        // all the default ones, so that no handler of its can run here.
        unsafe {
            let empty: libc::sigset_t = std::mem::zeroed();
            libc::sigprocmask(libc::SIG_SETMASK, &raw const empty, std::ptr::null_mut());
        }
        Ok(())
    }

    /// As `execvp` does it: the first that is there runs; one that may not be run is remembered. One
    /// in a folder of `PATH` that may not be looked into is not there, to a person.
    fn run_program(&self) -> Fault {
        self.reach(Stage::Program);
        let mut errno = Errno::NOENT;
        let only = self.plan.programs.len() == 1;
        let is_there = |file: &CStr| rustix::fs::access(file, Access::EXISTS).is_ok();
        for program in &self.plan.programs {
            match execute(program, &self.plan.arguments, &self.plan.environment) {
                Errno::NOTDIR | Errno::NOENT if !only => {}
                Errno::ACCESS if only || is_there(program) => errno = Errno::ACCESS,
                Errno::ACCESS => {}
                other => {
                    errno = other;
                    break;
                }
            }
        }
        Fault { stage: Stage::Program, errno }
    }
}

const UNSHARE: u32 = 2;

pub(crate) fn execute(program: &CStr, arguments: &Texts, environment: &Texts) -> Errno {
    let (arguments, environment) = (arguments.pointers.as_ptr(), environment.pointers.as_ptr());
    // SAFETY: both are arrays of pointers to NUL-terminated texts, each ended by a null pointer, and
    // `Texts` keeps the texts alive.
    unsafe { libc::execve(program.as_ptr(), arguments, environment) };
    last_errno()
}

/// Where the child begins.
extern "C" fn enter(errand: *const Errand<'_>) -> ! {
    // SAFETY: the maker passed a reference, and sleeps in the function that holds it.
    let errand = unsafe { &*errand };
    let fault = errand.follow();
    errand.fault.set(Some(fault));
    if let Some(progress) = &errand.launcher.progress {
        progress.fail(fault);
    }
    // SAFETY: ends this process only, and runs nothing of the keeper's on the way.
    unsafe { libc::_exit(127) }
}

/// The system call, after which there are two: the caller goes on, the child enters [`enter`] on its
/// own stack. It cannot return from here like the caller, because it is on another stack.
///
/// # Safety
/// The registers must describe a clone with a stack, of which the top is aligned to 16 bytes, and
/// which nobody else uses until the child has run a program or exited; so must `errand` live.
#[cfg(target_arch = "x86_64")]
unsafe fn clone_onto_stack(number: i64, registers: [u64; 3], errand: *const Errand<'_>) -> i64 {
    let [first, second, third] = registers;
    let result: i64;
    // SAFETY: in the caller only the registers named here change. In the child everything may, since
    // control never comes back from `enter`.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") number => result,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") 0u64,
            in("r8") 0u64,
            in("r12") errand,
            in("r13") enter as extern "C" fn(*const Errand<'_>) -> !,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// As above, on the other machine.
///
/// # Safety
/// As above.
#[cfg(target_arch = "aarch64")]
unsafe fn clone_onto_stack(number: i64, registers: [u64; 3], errand: *const Errand<'_>) -> i64 {
    let [first, second, third] = registers;
    let result: i64;
    // SAFETY: in the caller only the registers named here change. In the child everything may, since
    // control never comes back from `enter`.
    unsafe {
        asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x20",
            "blr x21",
            "brk #1",
            "2:",
            inlateout("x0") first as i64 => result,
            in("x1") second,
            in("x2") third,
            in("x3") 0u64,
            in("x4") 0u64,
            in("x8") number,
            in("x20") errand,
            in("x21") enter as extern "C" fn(*const Errand<'_>) -> !,
        );
    }
    result
}
