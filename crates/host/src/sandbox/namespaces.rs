//! Runs with `isolation = "namespaces"`.
//!
//! The keeper does not make namespaces itself: it executes its own program as the first program of the run, as the
//! run's user and with nothing of the run's environment, and hands it an [`Errand`] in the second slot. Three
//! processes follow:
//!
//! 1. The first process enters new user, mount, pid, ipc and net namespaces, and waits. It ends as the agent's
//!    program ended.
//! 2. The init process is number 1 of the pid namespace. It mounts what the profile names, waits for orphans, and
//!    dies with the first process; the kernel then kills everything in the namespace.
//! 3. The agent's program, confined by Landlock and the filter as without namespaces.
//!
//! All of them are in one process group, so that signals and a terminal reach the agent's program directly.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::shield::{UserNamespace, attach, clone_tree, propagate, set_attributes, unshare};
use super::{Confinement, Sandbox, checked};
use crate::child::{Fault, Plan, SLOTS, Texts, execute};
use crate::errno::last_errno;
use crate::launch::{arguments, candidates};
use crate::protocol::{Access, Profile, SpawnOrder, Stage};

/// Where the new root is put together. What is there otherwise is replaced by the namespace's own.
const SITE: &str = "/proc";
/// The exit code if the namespaces or the program could not be had, as a shell's.
const FAILED: i32 = 126;
const NOT_FOUND: i32 = 127;
/// Symlinks that a path may lead through, as in the kernel.
const MOST_LINKS: usize = 40;

const RDONLY: u64 = 1;
const NOSUID: u64 = 2;
const NODEV: u64 = 4;
const NOEXEC: u64 = 8;

/// What the first process is told.
#[derive(Serialize, Deserialize)]
struct Errand {
    argv: Vec<String>,
    env: Vec<(String, String)>,
    cwd: String,
    terminal: bool,
    profile: Profile,
}

/// Makes a plan that executes this program first, and the errand for the second slot. `marks` are all that is left
/// in the plan's environment: variables of the run, such as `LD_PRELOAD`, must not act outside of the sandbox.
pub(crate) fn wrap(
    plan: &mut Plan,
    order: &SpawnOrder,
    marks: &[(&str, &str)],
    profile: &Profile,
) -> Result<OwnedFd, Fault> {
    let failed = Fault::at(Stage::Sandbox);
    let own = order.env.iter().filter(|(name, _)| !marks.iter().any(|(mark, _)| mark == name));
    let marked = marks.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let errand = Errand {
        argv: order.argv.clone(),
        env: marked.chain(own.cloned()).collect(),
        cwd: order.cwd.clone(),
        terminal: order.terminal.is_some(),
        profile: profile.clone(),
    };
    let malformed = Fault { stage: Stage::Program, errno: Errno::INVAL };
    let words: [&[u8]; 3] = [b"defib", b"internal", b"confine"];
    plan.programs = vec![c"/proc/self/exe".to_owned()];
    plan.arguments = arguments(words.into_iter()).ok_or(malformed)?;
    let marks = marks.iter().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()]);
    plan.environment = Texts::new(marks).ok_or(malformed)?;
    plan.confinement = Some(Confinement::handed_over());
    errand.in_memory().map_err(failed)
}

impl Errand {
    fn in_memory(&self) -> Result<OwnedFd, Errno> {
        let bytes = postcard::to_allocvec(self).map_err(|_| Errno::INVAL)?;
        let memory = rustix::fs::memfd_create("errand", MemfdFlags::CLOEXEC)?;
        let mut file = File::from(memory);
        let written = file.write_all(&bytes).and_then(|()| file.rewind());
        written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(file.into())
    }

    fn flags(&self) -> i32 {
        let net = if self.profile.isolation.network { 0 } else { libc::CLONE_NEWNET };
        NEW_NAMESPACES | net
    }
}

/// What the keeper left in the second slot.
fn inherited() -> Option<Errand> {
    // SAFETY: the keeper left the errand at this number, and nothing else in this process uses it.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(SLOTS[1]) });
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    postcard::from_bytes(&bytes).ok()
}

const NEW_NAMESPACES: i32 =
    libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC;

/// Whether this process can have all of the namespaces: it tries, in a child.
pub(super) fn is_possible() -> bool {
    let user = UserNamespace::own();
    super::tried_in_child(|| {
        unshare(NEW_NAMESPACES | libc::CLONE_NEWNET)?;
        user.map()?;
        let is_mounted = super::tried_in_child(|| {
            propagate(libc::MS_PRIVATE)?;
            mount(c"proc", c"/proc", libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC)
        });
        if is_mounted { Ok(()) } else { Err(Errno::PERM) }
    })
}

/// What failed on the way to the agent's program.
struct Trouble(String);

fn trouble(what: &str) -> impl FnOnce(Errno) -> Trouble {
    move |errno| Trouble(format!("{what}: {}", std::io::Error::from(errno)))
}

/// The first process of a run in namespaces. Its output is the agent's, so what fails is in the agent's log.
pub fn run_confined() -> ! {
    let code = match begin() {
        Ok(status) => end_as(status),
        Err(Trouble(what)) => {
            let line = format!("defib: the sandbox with namespaces could not be made: {what}\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
            FAILED
        }
    };
    std::process::exit(code)
}

/// The status of the agent's program, as `waitpid` has it.
fn begin() -> Result<i32, Trouble> {
    let errand = inherited().ok_or_else(|| Trouble("no errand".to_owned()))?;
    block_signals(true);
    let _ = rustix::thread::set_name(c"defib-confine");
    // Before the namespace is entered, in which this process has no user yet.
    let user = UserNamespace::own();
    unshare(errand.flags()).map_err(trouble("unshare"))?;
    user.map().map_err(trouble("the user namespace"))?;
    let (read, write) = rustix::pipe::pipe().map_err(trouble("a pipe"))?;
    let init = fork().map_err(trouble("the init process"))?;
    if init == 0 {
        drop(read);
        let code = match be_init(&errand, write) {
            Ok(()) => 0,
            Err(Trouble(what)) => {
                let line =
                    format!("defib: the sandbox with namespaces could not be made: {what}\n");
                let _ = std::io::stderr().write_all(line.as_bytes());
                FAILED
            }
        };
        // SAFETY: ends this process only.
        unsafe { libc::_exit(code) };
    }
    drop(write);
    let ended = wait_for(init).unwrap_or(libc::SIGKILL);
    let mut bytes = [0; 4];
    let told = File::from(read).read_exact(&mut bytes);
    Ok(told.map_or(ended, |()| i32::from_ne_bytes(bytes)))
}

/// Ends this process by the signal that ended the agent's program, or returns its exit code.
fn end_as(status: i32) -> i32 {
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        block_signals(false);
        // SAFETY: `none` outlives its call; the others take numbers. There is no core file of this process.
        unsafe {
            libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
        return 128 + signal;
    }
    libc::WEXITSTATUS(status)
}

fn be_init(errand: &Errand, status: OwnedFd) -> Result<(), Trouble> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(trouble("the death signal"))?;
    View::of(errand).make()?;
    let agent = fork().map_err(trouble("the agent's process"))?;
    if agent == 0 {
        drop(status);
        let code = become_agent(errand);
        // SAFETY: ends this process only.
        unsafe { libc::_exit(code) };
    }
    loop {
        let mut ended = 0;
        // SAFETY: `ended` outlives the call.
        let pid = unsafe { libc::waitpid(-1, &raw mut ended, 0) };
        if pid == agent {
            let _ = File::from(status).write_all(&ended.to_ne_bytes());
            return Ok(());
        }
        if pid < 0 && last_errno() != Errno::INTR {
            return Err(Trouble("the agent's process is lost".to_owned()));
        }
    }
}

/// Confines this process and executes the agent's program. Returns an exit code if that fails.
fn become_agent(errand: &Errand) -> i32 {
    let say = |what: &str, errno: Errno| {
        let line = format!("defib: {what}: {}\n", std::io::Error::from(errno));
        let _ = std::io::stderr().write_all(line.as_bytes());
        FAILED
    };
    if let Err(errno) = rustix::process::chdir(errand.cwd.as_str()) {
        return say(&errand.cwd, errno);
    }
    let name = errand.argv.first().map_or("", String::as_str);
    let path = errand.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_str());
    let words = arguments(errand.argv.iter().map(String::as_bytes));
    let env = errand.env.iter().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()]);
    let (Some(programs), Some(words), Some(env)) = (candidates(name, path), words, Texts::new(env))
    else {
        return say(name, Errno::INVAL);
    };
    let input = rustix::stdio::stdin();
    let confined = Sandbox::default()
        .confine(&errand.profile, errand.terminal.then_some(input))
        .and_then(|(confinement, ruleset)| match ruleset {
            Some(ruleset) => confinement.enter(&ruleset),
            // Without Landlock there is no ruleset, and the descriptor is not looked at.
            None => confinement.enter(&rustix::io::dup(input)?),
        });
    if let Err(errno) = confined {
        return say("the sandbox", errno);
    }
    block_signals(false);
    let mut errno = Errno::NOENT;
    for program in &programs {
        match execute(program, &words, &env) {
            Errno::NOENT | Errno::NOTDIR => {}
            other => errno = other,
        }
    }
    say(name, errno);
    if errno == Errno::NOENT { NOT_FOUND } else { FAILED }
}

/// What the run sees: its new root.
struct View<'a> {
    errand: &'a Errand,
    /// Places by their real paths, with the attributes of their mounts.
    places: BTreeMap<PathBuf, u64>,
    links: BTreeMap<PathBuf, PathBuf>,
}

impl View<'_> {
    fn of(errand: &Errand) -> View<'_> {
        let mut view = View { errand, places: BTreeMap::new(), links: BTreeMap::new() };
        for (path, access) in &errand.profile.paths {
            view.add(Path::new(path), *access, false);
        }
        for path in &errand.profile.isolation.libraries {
            view.add(Path::new(path), Access { exec: true, ..Access::default() }, false);
        }
        for path in &errand.profile.isolation.sockets {
            view.add(Path::new(path), Access::default(), false);
        }
        if errand.terminal
            && let Ok(name) = rustix::termios::ttyname(rustix::stdio::stdin(), Vec::new())
        {
            let path = PathBuf::from(name.to_string_lossy().into_owned());
            view.add(&path, Access { write: true, ..Access::default() }, false);
        }
        // Protected places are read-only in a folder that is not; elsewhere they are not seen at all.
        for path in errand.profile.isolation.protected.iter().map(String::as_str).chain(["/sys"]) {
            view.add(Path::new(path), Access::default(), true);
        }
        view
    }

    /// Adds a place that exists; `within` only if it is in another one already.
    fn add(&mut self, path: &Path, access: Access, within: bool) {
        let Some(real) = self.resolve(path) else { return };
        if real.starts_with(SITE) || (within && self.around(&real).is_none()) {
            return;
        }
        let is_device = real.starts_with("/dev") && !real.is_dir();
        let mut attributes = NOSUID;
        for (has, attribute) in [(access.write, RDONLY), (is_device, NODEV), (access.exec, NOEXEC)]
        {
            attributes |= if has { 0 } else { attribute };
        }
        // Of two tokens for the same place both count.
        self.places.entry(real).and_modify(|known| *known &= attributes).or_insert(attributes);
    }

    /// The place that a path is in, and its attributes.
    fn around(&self, path: &Path) -> Option<u64> {
        path.ancestors().skip(1).find_map(|folder| self.places.get(folder).copied())
    }

    /// The path without symlinks. Remembers those that lead there.
    fn resolve(&mut self, path: &Path) -> Option<PathBuf> {
        let mut real = PathBuf::from("/");
        let mut left: Vec<PathBuf> = Vec::new();
        let push = |left: &mut Vec<PathBuf>, path: &Path| {
            left.extend(path.components().rev().map(|part| PathBuf::from(part.as_os_str())));
        };
        push(&mut left, path);
        let mut links = 0;
        while let Some(part) = left.pop() {
            match part.components().next()? {
                Component::RootDir => real = PathBuf::from("/"),
                Component::ParentDir => drop(real.pop()),
                Component::CurDir | Component::Prefix(_) => {}
                Component::Normal(name) => {
                    let next = real.join(name);
                    let found = std::fs::symlink_metadata(&next).ok()?;
                    if found.is_symlink() {
                        links += 1;
                        let target =
                            std::fs::read_link(&next).ok().filter(|_| links <= MOST_LINKS)?;
                        push(&mut left, &target);
                        self.links.insert(next, target);
                    } else {
                        real = next;
                    }
                }
            }
        }
        Some(real)
    }

    fn make(&self) -> Result<(), Trouble> {
        propagate(libc::MS_PRIVATE).map_err(trouble("the mounts"))?;
        let whole = self.places.get(Path::new("/")).copied();
        if let Some(attributes) = whole {
            mount_place(Path::new("/"), attributes)?;
        } else {
            mount_with(
                c"tmpfs",
                &text(Path::new(SITE))?,
                libc::MS_NOSUID | libc::MS_NODEV,
                c"mode=755,size=4m",
            )
            .map_err(trouble("the root"))?;
        }
        for (path, attributes) in &self.places {
            if path != Path::new("/") && self.around(path) != Some(*attributes) {
                mount_place(path, *attributes)?;
            }
        }
        if whole.is_none() {
            for (link, target) in &self.links {
                let made = inside(link);
                made.parent()
                    .map_or(Ok(()), std::fs::create_dir_all)
                    .map_err(|error| of(link, &error))?;
                // It is there already if it is in a folder that was mounted.
                let _ = std::os::unix::fs::symlink(target, made);
            }
            let streams = [
                ("fd", "/proc/self/fd"),
                ("stdin", "/proc/self/fd/0"),
                ("stdout", "/proc/self/fd/1"),
                ("stderr", "/proc/self/fd/2"),
            ];
            for (name, target) in streams {
                let _ = std::os::unix::fs::symlink(target, inside(&Path::new("/dev").join(name)));
            }
            for folder in [self.errand.cwd.as_str(), "/proc"] {
                let _ = std::fs::create_dir_all(inside(Path::new(folder)));
            }
        }
        let own = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | libc::MS_RDONLY;
        mount(c"proc", &text(&inside(Path::new("/proc")))?, own).map_err(trouble("/proc"))?;
        if whole.is_none() {
            let flags = libc::MS_REMOUNT
                | libc::MS_BIND
                | libc::MS_RDONLY
                | libc::MS_NOSUID
                | libc::MS_NODEV;
            mount(c"none", &text(Path::new(SITE))?, flags).map_err(trouble("the root"))?;
        }
        enter_root().map_err(trouble("the root"))
    }
}

/// Mounts a place at its path in the new root.
fn mount_place(path: &Path, attributes: u64) -> Result<(), Trouble> {
    let to = if path == Path::new("/") { PathBuf::from(SITE) } else { inside(path) };
    if !to.exists() {
        let parent = to.parent().unwrap_or(Path::new(SITE));
        let made = std::fs::create_dir_all(parent).and_then(|()| {
            if path.is_dir() { std::fs::create_dir(&to) } else { File::create(&to).map(drop) }
        });
        made.map_err(|error| of(path, &error))?;
    }
    let name = path.display().to_string();
    let failed = || trouble(&name);
    let tree = clone_tree(&text(path)?).map_err(failed())?;
    set_attributes(tree, c"", attributes).map_err(failed())?;
    attach(tree, &text(&to)?).map_err(failed())
}

fn inside(path: &Path) -> PathBuf {
    Path::new(SITE).join(path.strip_prefix("/").unwrap_or(path))
}

fn of(path: &Path, error: &std::io::Error) -> Trouble {
    Trouble(format!("{}: {error}", path.display()))
}

fn text(path: &Path) -> Result<CString, Trouble> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Trouble("a path with a NUL".to_owned()))
}

/// Makes what is mounted at [`SITE`] the root, and lets go of the old one.
fn enter_root() -> Result<(), Errno> {
    rustix::process::chdir(SITE)?;
    // SAFETY: both paths are constants. The old root is mounted over the new one, and is unmounted next.
    checked(unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) })?;
    // SAFETY: the path is a constant.
    checked(i64::from(unsafe { libc::umount2(c".".as_ptr(), libc::MNT_DETACH) }))?;
    rustix::process::chdir("/")
}

fn mount(kind: &std::ffi::CStr, at: &std::ffi::CStr, flags: libc::c_ulong) -> Result<(), Errno> {
    mount_with(kind, at, flags, c"")
}

fn mount_with(
    kind: &std::ffi::CStr,
    at: &std::ffi::CStr,
    flags: libc::c_ulong,
    options: &std::ffi::CStr,
) -> Result<(), Errno> {
    // SAFETY: all texts outlive the call, which reads them only.
    checked(i64::from(unsafe {
        libc::mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast())
    }))
}

fn fork() -> Result<i32, Errno> {
    // SAFETY: this program has one thread, so the child may do whatever its parent may.
    let pid = unsafe { libc::fork() };
    if pid < 0 { Err(last_errno()) } else { Ok(pid) }
}

fn wait_for(pid: i32) -> Option<i32> {
    let mut status = 0;
    loop {
        // SAFETY: `status` outlives the call.
        match unsafe { libc::waitpid(pid, &raw mut status, 0) } {
            found if found == pid => return Some(status),
            _ if last_errno() == Errno::INTR => {}
            _ => return None,
        }
    }
}

/// Blocks every signal, or none. The signals of the run are for the agent's program.
fn block_signals(all: bool) {
    // SAFETY: the set is filled by the next call and outlives both.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        if all {
            libc::sigfillset(&raw mut set)
        } else {
            libc::sigemptyset(&raw mut set)
        };
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// Lets the second slot through to the program.
pub(super) fn keep_open(slot: impl AsFd) -> Result<(), Errno> {
    rustix::io::fcntl_setfd(slot, rustix::io::FdFlags::empty())
}
