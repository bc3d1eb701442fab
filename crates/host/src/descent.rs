//! Who descends from whom, by /proc: for where there is no cgroup, and for after a keeper's death.
//!
//! Two facts attribute a process: its parent is one of ours, or its environment carries our mark. A
//! third does so while a run's first process is not yet waited for, which keeps its number taken:
//! being in that process's session.
//!
//! Invariant: what cannot be attributed is never killed. A process is held by a pidfd before its
//! facts are read, so that a number that was given to somebody else is never hit.

use std::os::fd::OwnedFd;
use std::path::Path;

use defib_core::{Name, RunId};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal};
use rustix::time::Timespec;

use crate::ancestry::{End, line};
use crate::stat::Stat;

/// The variable that says which runs a process descends from, outermost first.
pub const RUN_KEY: &str = "DEFIB_RUN_KEY";
/// The variable that says which homes a process descends from, outermost first.
pub const HOME_KEY: &str = "DEFIB_HOME_KEY";

/// The mark after that of a supervisor above us: what descends from our runs descends from its run.
pub(crate) fn mark_below(above: Option<String>, own: &str) -> String {
    above.map_or_else(|| own.to_owned(), |above| format!("{above},{own}"))
}

/// The begin of the mark that the commands of a run carry beside the run's own.
pub(crate) fn command_mark(agent: &Name, run: RunId) -> String {
    format!("{agent}/{run}/command-")
}

/// What descends from a run, and how much of it was killed.
#[derive(Debug)]
pub(crate) struct Descent {
    mark: String,
    first: Pid,
    held: Vec<Held>,
    killed: u32,
    /// The keeper's children that nothing attributes to any run, when last looked.
    strays: Vec<Pid>,
}

/// To which run a process belongs that was left to the keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// To the one that is asked about.
    This,
    /// To another one of this keeper's.
    Anothers,
    /// Nothing says so.
    Nobodys,
}

/// A process that cannot be mistaken for another.
#[derive(Debug)]
pub(crate) struct Held {
    pid: Pid,
    pidfd: OwnedFd,
}

impl Descent {
    pub(crate) fn new(first: Pid, mark: String) -> Descent {
        Descent { mark, first, held: Vec::new(), killed: 0, strays: Vec::new() }
    }

    /// How many processes besides the first have been killed.
    pub(crate) fn killed(&self) -> u32 {
        self.killed
    }

    /// Processes that were left to the keeper and that nobody can say whose they are: they shed their
    /// mark, and have no parent any more.
    pub(crate) fn strays(&self) -> &[Pid] {
        &self.strays
    }

    /// Kills the first process, then all others that can be found now. Says whether there were any.
    ///
    /// `unwaited`: the first process has not been waited for. `known` are the keeper's children that
    /// are nobody's orphans.
    pub(crate) fn kill(&mut self, unwaited: bool, known: impl Fn(Pid) -> bool) -> bool {
        self.held.retain(Held::lives);
        // Without a /proc of ours only the others are out of reach.
        if proc_is_ours() {
            self.find(unwaited, known);
        }
        // Only now: a parent that is killed first makes its children orphans, who are harder to find.
        if unwaited {
            // Its number is taken for as long as it is not waited for, so it needs no pidfd.
            let _ = rustix::process::kill_process(self.first, Signal::KILL);
        }
        for held in &self.held {
            held.kill();
        }
        !self.held.is_empty()
    }

    /// Takes hold of all that can be found now besides the first process.
    fn find(&mut self, unwaited: bool, known: impl Fn(Pid) -> bool) {
        let mut found = self.find_orphans(unwaited, known);
        if unwaited {
            found.extend(children_held(self.first));
        }
        let fresh = with_descendants(found, &self.held);
        self.killed += u32::try_from(fresh.len()).unwrap_or(u32::MAX);
        self.held.extend(fresh);
    }

    /// The keeper's children that are this run's. If it says that there are none, there are none:
    /// whoever lives has a living ancestor, or is itself, among the keeper's children, and one that
    /// is added while they are looked at shows in the next list.
    fn find_orphans(&mut self, unwaited: bool, known: impl Fn(Pid) -> bool) -> Vec<Held> {
        let keeper = rustix::process::getpid();
        let list = || {
            let mut orphans = children(keeper);
            orphans.retain(|pid| !known(*pid) && !self.holds(*pid));
            orphans
        };
        let mut orphans = list();
        let sorted = loop {
            let held = orphans.iter().filter_map(|pid| Held::child_of(*pid, keeper));
            let sorted: Vec<(Whose, Held)> =
                held.map(|orphan| (self.whose(orphan.pid, unwaited), orphan)).collect();
            if orphans.is_empty() || sorted.iter().any(|(whose, _)| *whose == Whose::This) {
                break sorted;
            }
            let again = list();
            if again == orphans {
                break sorted;
            }
            orphans = again;
        };
        let nobodys = sorted.iter().filter(|(whose, _)| *whose == Whose::Nobodys);
        self.strays = nobodys.map(|(_, stray)| stray.pid).collect();
        let this = sorted.into_iter().filter(|(whose, _)| *whose == Whose::This);
        this.map(|(_, orphan)| orphan).collect()
    }

    /// Whose a child of the keeper is that was left to it.
    fn whose(&self, orphan: Pid, unwaited: bool) -> Whose {
        let session = Stat::of(orphan).and_then(|stat| stat.session());
        if unwaited && session == Some(self.first.as_raw_pid()) {
            return Whose::This;
        }
        let environ = read(&format!("/proc/{orphan}/environ")).unwrap_or_default();
        let has = |is_it: &dyn Fn(&[u8]) -> bool| has_mark(&environ, RUN_KEY, is_it);
        // All marks of one keeper end alike.
        let cookie = self.mark.rfind('/').map_or("", |cookie| &self.mark[cookie..]);
        if has(&|mark| mark == self.mark.as_bytes()) {
            Whose::This
        } else if has(&|mark| mark.ends_with(cookie.as_bytes())) {
            Whose::Anothers
        } else {
            Whose::Nobodys
        }
    }

    fn holds(&self, pid: Pid) -> bool {
        self.held.iter().any(|held| held.pid == pid)
    }
}

/// These, those in `held`, and all that descends from either, without those in `held`.
fn with_descendants(found: Vec<Held>, held: &[Held]) -> Vec<Held> {
    let mut all: Vec<Held> = Vec::new();
    let mut next = found;
    next.extend(held.iter().flat_map(Held::children));
    while let Some(one) = next.pop() {
        if !all.iter().chain(held).any(|other| other.pid == one.pid) {
            next.extend(one.children());
            all.push(one);
        }
    }
    all
}

fn children_held(parent: Pid) -> Vec<Held> {
    children(parent).into_iter().filter_map(|child| Held::child_of(child, parent)).collect()
}

impl Held {
    pub(crate) fn open(pid: Pid) -> Option<Held> {
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
        Some(Held { pid, pidfd })
    }

    /// The process with this number, if there is one.
    pub(crate) fn numbered(number: u32) -> Option<Held> {
        Held::open(Pid::from_raw(i32::try_from(number).ok()?)?)
    }

    /// The process that a descriptor means, whose number is known.
    pub(crate) fn by_descriptor(pid: Pid, pidfd: OwnedFd) -> Held {
        Held { pid, pidfd }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn number(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// The number of its parent; 0 if that is outside of this PID namespace. `None`: the process has ended,
    /// or cannot be seen.
    pub(crate) fn parent(&self) -> Option<u32> {
        if let Some(parent) = crate::pidfd::parent(&self.pidfd) {
            return Some(parent);
        }
        // In another namespace's /proc the number belongs to another process.
        let parent = Stat::of(self.pid).filter(|_| proc_is_ours())?.parent()?;
        self.lives().then_some(parent)
    }

    /// If it is in the cgroup of an earlier keeper of this home. Who was only listed there may have gone
    /// meanwhile, and somebody else may have the number.
    fn stale(pid: Pid, home_key: &str) -> Option<Held> {
        let held = Held::open(pid)?;
        let stale = crate::cgroup::is_stale(home_key, pid);
        (stale && held.lives()).then_some(held)
    }

    /// If it lives and this is its parent.
    fn child_of(pid: Pid, parent: Pid) -> Option<Held> {
        let held = Held::open(pid)?;
        let stat = Stat::of(pid)?;
        (stat.parent() == Some(parent.as_raw_pid()) && stat.lives()).then_some(held)
    }

    /// Its children. Only if it lives after they were read are they sure to be its own.
    fn children(&self) -> Vec<Held> {
        let children = children_held(self.pid);
        if self.lives() { children } else { Vec::new() }
    }

    /// A process that is dead but not waited for does not live.
    pub(crate) fn lives(&self) -> bool {
        let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
        matches!(rustix::event::poll(&mut polled, Some(&Timespec::default())), Ok(0))
    }

    fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }
}

/// Whether the numbers in /proc are those of this process's namespace. If not, they are strangers'.
fn proc_is_ours() -> bool {
    let own = std::fs::read_link("/proc/self").ok();
    own.is_some_and(|own| own.as_os_str() == rustix::process::getpid().to_string().as_str())
}

/// The children of a process, of all its threads.
fn children(parent: Pid) -> Vec<Pid> {
    let own = parent == rustix::process::getpid();
    let threads = if own { vec![parent] } else { numbers_in(&format!("/proc/{parent}/task")) };
    let mut children = Vec::new();
    for thread in threads {
        match read(&format!("/proc/{parent}/task/{thread}/children")) {
            Some(text) => {
                let text = String::from_utf8_lossy(&text);
                let numbers = text.split_ascii_whitespace().filter_map(|text| text.parse().ok());
                children.extend(numbers.filter_map(Pid::from_raw));
            }
            // A kernel that does not tell: ask every process for its parent.
            None if own => {
                let of_ours = |pid: &Pid| {
                    Stat::of(*pid).is_some_and(|stat| stat.parent() == Some(parent.as_raw_pid()))
                };
                children.extend(numbers_in("/proc").into_iter().filter(of_ours));
            }
            None => {}
        }
    }
    children
}

/// Whether a process belongs to a run, by who it descends from, the cgroup it is in, its session or
/// its mark. Nothing: it has gone, and nobody can say any more.
pub fn is_of_run(pid: u32, first: u32, agent: &Name, run: RunId) -> Option<bool> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    let held = Held::open(pid)?;
    let found = Stat::of(pid).is_some_and(|stat| stat.session() == Some(first))
        || is_below(&held, first)
        || is_in_group_of(pid, agent)
        || carries_run(pid, agent, run);
    // What was read is only sure to be this process's if it still lives.
    held.lives().then_some(found)
}

/// Whether a process is in the cgroup that the keeper made for an agent.
fn is_in_group_of(pid: Pid, agent: &Name) -> bool {
    let Some(text) = read(&format!("/proc/{pid}/cgroup")) else { return false };
    let text = String::from_utf8_lossy(&text);
    let own = text.lines().find_map(|line| line.strip_prefix("0::"));
    let is_its = |part: &str| part.split_once('@').is_some_and(|(name, _)| name == agent.as_str());
    own.is_some_and(|path| path.split('/').any(is_its))
}

/// Whether a process carries the mark of a run, whichever keeper's.
pub(crate) fn carries_run(pid: Pid, agent: &Name, run: RunId) -> bool {
    let begin = format!("{agent}/{run}/");
    carries(pid, RUN_KEY, |mark| mark.starts_with(begin.as_bytes()))
}

/// Whether a process belongs to a command of a run, and not to what the agent itself started.
pub(crate) fn carries_command(pid: Pid, agent: &Name, run: RunId) -> bool {
    let begin = command_mark(agent, run);
    carries(pid, RUN_KEY, |mark| mark.starts_with(begin.as_bytes()))
}

/// Whether the process's environment, as it was when its program began, has such a mark.
fn carries(pid: Pid, variable: &str, is_it: impl Fn(&[u8]) -> bool) -> bool {
    read(&format!("/proc/{pid}/environ")).is_some_and(|environ| has_mark(&environ, variable, is_it))
}

fn has_mark(environ: &[u8], variable: &str, is_it: impl Fn(&[u8]) -> bool) -> bool {
    environ.split(|byte| *byte == 0).any(|entry| {
        let value =
            entry.strip_prefix(variable.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
        value.is_some_and(|value| value.split(|byte| *byte == b',').any(&is_it))
    })
}

pub(crate) fn numbers_in(folder: &str) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    names.filter_map(Pid::from_raw).collect()
}

pub(crate) fn read(path: &str) -> Option<Vec<u8>> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = vec![0; 4096];
    let mut end = 0;
    loop {
        match rustix::io::read(&file, bytes.get_mut(end..)?) {
            Ok(0) => break,
            Ok(more) => end += more,
            Err(_) => return None,
        }
        if end == bytes.len() {
            bytes.resize(end * 2, 0);
        }
    }
    bytes.truncate(end);
    Some(bytes)
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many processes were killed.
    pub killed: u32,
    /// How many of them had not gone when the sweep gave up waiting.
    pub left: u32,
}

/// Ends what a keeper of this home left behind when it was killed: whatever is in its cgroups, and
/// whatever carries the home's mark or descends from what does. `places` is the file of that name in
/// [`crate::KeeperOptions`]. To be called while the home's lock is held and before anything is spawned.
///
/// The caller, what descends from it and what it descends from are spared, and so is everything else
/// that does not carry the mark. Blocks for at most a few seconds.
pub fn sweep(home_key: &str, places: &Path) -> Swept {
    if !proc_is_ours() {
        return Swept::default();
    }
    let stale = crate::cgroup::stale_processes(home_key, places);
    let mut held: Vec<Held> =
        stale.into_iter().filter_map(|pid| Held::stale(pid, home_key)).collect();
    let mut killed = held.len();
    crate::cgroup::sweep(home_key, places);
    let mut quiet_rounds = 0;
    for round in 0..ROUNDS {
        let fresh = find_marked(home_key, &held);
        held.retain(Held::lives);
        killed += fresh.len();
        held.extend(fresh);
        // One look can miss a process that forks while the list is read; two in a row do not.
        quiet_rounds = if held.is_empty() { quiet_rounds + 1 } else { 0 };
        if quiet_rounds == 2 {
            break;
        }
        for one in &held {
            one.kill();
        }
        // Waiting for one of them to end is waiting for the news; the others are then mostly gone.
        let pause =
            Timespec { tv_sec: 0, tv_nsec: if round < 10 { 1_000_000 } else { 50_000_000 } };
        if let Some(one) = held.first() {
            let mut polled = [PollFd::new(&one.pidfd, PollFlags::IN)];
            let _ = rustix::event::poll(&mut polled, Some(&pause));
        }
    }
    // Once more: what was killed in there has had the time to leave.
    crate::cgroup::sweep(home_key, places);
    let left = held.iter().filter(|one| one.lives()).count();
    let number = |count| u32::try_from(count).unwrap_or(u32::MAX);
    Swept { killed: number(killed), left: number(left) }
}

const ROUNDS: u32 = 60;

fn find_marked(home_key: &str, held: &[Held]) -> Vec<Held> {
    let spared = Spared::new();
    let mut found = Vec::new();
    for pid in numbers_in("/proc") {
        if held.iter().any(|held| held.pid == pid) {
            continue;
        }
        let Some(candidate) = Held::open(pid) else { continue };
        if Stat::of(pid).is_some_and(|stat| stat.lives())
            && carries(pid, HOME_KEY, |mark| mark == home_key.as_bytes())
            && !spared.has(&candidate)
        {
            found.push(candidate);
        }
    }
    with_descendants(found, held)
}

/// The caller and those above it.
struct Spared {
    caller: u32,
    above: Vec<u32>,
}

impl Spared {
    fn new() -> Spared {
        let caller = std::process::id();
        let above = Held::numbered(caller).map(|held| line(&held, 0, usize::MAX).pids);
        Spared { caller, above: above.unwrap_or_default() }
    }

    /// Whether a process is the caller, above it or below it.
    fn has(&self, process: &Held) -> bool {
        self.above.contains(&process.number()) || is_below(process, self.caller)
    }
}

/// Whether a process descends from the one with this number, or is it.
fn is_below(process: &Held, number: u32) -> bool {
    line(process, number, usize::MAX).end == End::Reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_among_those_of_supervisors_above_and_below_and_not_within_a_word() {
        let environ = b"A=1\0DEFIB_RUN_KEY=out/1/ff,in/2/ee\0B=DEFIB_RUN_KEY=x/1/aa\0";
        let has = |mark: &str| has_mark(environ, RUN_KEY, |it| it == mark.as_bytes());
        assert!(has("out/1/ff"));
        assert!(has("in/2/ee"));
        assert!(!has("in/2/e"));
        assert!(!has("x/1/aa"));
        assert!(has_mark(environ, RUN_KEY, |it| it.starts_with(b"in/2/")));
        assert!(!has_mark(environ, RUN_KEY, |it| it.starts_with(b"n/2/")));
        assert!(!has_mark(b"", RUN_KEY, |_| true));
        assert_eq!(mark_below(Some("a".into()), "b"), "a,b");
        assert_eq!(mark_below(None, "b"), "b");
    }

    #[test]
    fn a_stranger_who_has_the_number_of_one_that_was_swept_is_not_held() {
        let stranger = std::process::Command::new("sleep").arg("60").spawn();
        let mut stranger = stranger.unwrap();
        let pid = Pid::from_raw(stranger.id().cast_signed()).unwrap();
        assert!(Held::open(pid).is_some());
        assert!(Held::stale(pid, "home").is_none());
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
}
