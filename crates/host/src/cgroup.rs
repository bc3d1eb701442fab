//! One cgroup an agent, where cgroup v2 is writable.
//!
//! A process cannot leave its cgroup by forking, so "everything that descends from a run" is one file
//! to read and one to write. A file of a cgroup that was read once keeps a page of kernel memory for as
//! long as it is open; so only a few are, those of the agents that died last and run again.
//!
//! Invariant: only folders below one that carries this home's key are ever made or killed. Those of other
//! homes are removed if their keeper is dead and no process is in them.
//! Nothing here enables controllers or moves processes: processes are born in their cgroup.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::stat::Stat;

/// The folder that holds the agents' cgroups.
pub(crate) struct Cgroups {
    above: OwnedFd,
    name: String,
    folder: OwnedFd,
    /// Those that were killed, and so must be made anew before they are entered.
    killed: RefCell<BTreeSet<String>>,
    /// Whether anybody counts what is killed in them for want of memory.
    counts: Cell<bool>,
    /// The events of those that were looked at last, at most [`MOST_AT_HAND`]: to open one takes longer
    /// than all else that there is to do when a run has ended.
    at_hand: RefCell<VecDeque<(String, OwnedFd)>>,
}

const MOST_AT_HAND: usize = 64;

impl Cgroups {
    /// Makes the folder, if this process may, and writes down in `places` where it is.
    pub(crate) fn new(home_key: &str, places: &Path) -> Option<Cgroups> {
        let place = own_cgroup()?;
        let above = open_folder(&place)?;
        let prefix = folder_prefix(home_key)?;
        // First: a keeper that is killed in between has made nothing that is not written down.
        write_down(places, &place, &prefix);
        let name = own_name(&prefix);
        rustix::fs::mkdirat(&above, &name, Mode::from_raw_mode(0o755)).ok()?;
        let folder = open_at(&above, &name, FOLDER).ok();
        // Kernels before 5.14 cannot kill a cgroup; there the tree is walked instead.
        if let Some(folder) = folder.filter(|folder| exists(folder, "cgroup.kill")) {
            let (killed, counts, at_hand) =
                (RefCell::default(), Cell::new(true), RefCell::default());
            return Some(Cgroups { above, name, folder, killed, counts, at_hand });
        }
        let _ = rustix::fs::unlinkat(&above, &name, AtFlags::REMOVEDIR);
        None
    }

    /// The cgroup of this name, made if it is not there.
    ///
    /// A process that is made into a cgroup which was killed before is killed too: the kernel takes it
    /// for one that was being made at that moment. So such a cgroup is removed first.
    pub(crate) fn enter(&self, name: &str) -> Result<OwnedFd, Errno> {
        if self.killed.borrow().contains(name) {
            rustix::fs::unlinkat(&self.folder, name, AtFlags::REMOVEDIR)?;
            self.killed.borrow_mut().remove(name);
            self.put_away(name);
        }
        match open_at(&self.folder, name, OFlags::PATH | FOLDER) {
            Err(Errno::NOENT) => {
                rustix::fs::mkdirat(&self.folder, name, Mode::from_raw_mode(0o755))?;
                open_at(&self.folder, name, OFlags::PATH | FOLDER)
            }
            opened => opened,
        }
    }

    /// Whether a process lives in it or below.
    ///
    /// Some kernels count one that has been waited for until it has left its last time slice. It is
    /// not listed any more, so a list without anybody, and nothing below, is as good as none.
    pub(crate) fn populated(&self, name: &str) -> bool {
        self.counts_as_populated(name) && (self.count(name) > 0 || self.has_inner(name))
    }

    /// Closes what is at hand for the next look at it.
    pub(crate) fn put_away(&self, name: &str) {
        self.at_hand.borrow_mut().retain(|(of, _)| of != name);
    }

    fn counts_as_populated(&self, name: &str) -> bool {
        let mut at_hand = self.at_hand.borrow_mut();
        let known = at_hand.iter().position(|(of, _)| of == name);
        let events = match known.and_then(|at| at_hand.remove(at)) {
            Some((_, events)) => events,
            None => match open_at(&self.folder, &format!("{name}/cgroup.events"), OFlags::RDONLY) {
                Ok(events) => events,
                Err(_) => return false,
            },
        };
        // They are a few short lines, which come in one piece.
        let mut text = [0; 256];
        let Ok(length) = rustix::io::pread(&events, &mut text, 0) else { return false };
        if at_hand.len() >= MOST_AT_HAND {
            at_hand.pop_front();
        }
        at_hand.push_back((name.to_owned(), events));
        let mut lines = text.get(..length).unwrap_or_default().split(|byte| *byte == b'\n');
        lines.any(|line| line == b"populated 1")
    }

    fn has_inner(&self, name: &str) -> bool {
        let inner = open_at(&self.folder, name, FOLDER);
        inner.is_ok_and(|inner| !names(&inner).is_empty())
    }

    /// How many processes live in it.
    pub(crate) fn count(&self, name: &str) -> u32 {
        let processes = read_at(&self.folder, &format!("{name}/cgroup.procs"));
        processes.map_or(0, |text| u32::try_from(text.lines().count()).unwrap_or(u32::MAX))
    }

    /// Kills everything in it and below.
    pub(crate) fn kill(&self, name: &str) {
        self.killed.borrow_mut().insert(name.to_owned());
        kill_at(&self.folder, &format!("{name}/cgroup.kill"));
    }

    /// Removes it, with all cgroups that were made below it. Says whether it is gone: where a process
    /// lives in it, it stays.
    pub(crate) fn discard(&self, name: &str) -> bool {
        self.put_away(name);
        let remove = || match rustix::fs::unlinkat(&self.folder, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => true,
            Err(_) => false,
        };
        let gone = remove() || {
            if let Ok(folder) = open_at(&self.folder, name, FOLDER) {
                remove_below(&folder);
            }
            remove()
        };
        if gone {
            self.killed.borrow_mut().remove(name);
        }
        gone
    }

    /// Bounds the memory of all that is in it. Says whether it could.
    pub(crate) fn bound_memory(&self, name: &str, bytes: u64) -> bool {
        self.bound(name, "memory.max", bytes)
    }

    /// Bounds how many processes and threads are in it. Says whether it could.
    pub(crate) fn bound_processes(&self, name: &str, count: u64) -> bool {
        self.bound(name, "pids.max", count)
    }

    fn bound(&self, name: &str, file: &str, bound: u64) -> bool {
        let file = open_at(&self.folder, &format!("{name}/{file}"), OFlags::WRONLY);
        file.is_ok_and(|file| rustix::io::write(file, bound.to_string().as_bytes()).is_ok())
    }

    /// How many were killed in it for want of memory. Zero where nobody counts.
    pub(crate) fn oom_kills(&self, name: &str) -> u64 {
        if !self.counts.get() {
            return 0;
        }
        let events = read_at(&self.folder, &format!("{name}/memory.events"));
        // What holds for one of them holds for all: it is asked at each spawn and at each end.
        self.counts.set(events.is_some());
        let events = events.unwrap_or_default();
        let count = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// Removes all that is empty, and the folder if all was.
    pub(crate) fn remove(&self) {
        remove_below(&self.folder);
        let _ = rustix::fs::unlinkat(&self.above, &self.name, AtFlags::REMOVEDIR);
    }
}

/// Who lives in the cgroups of an earlier keeper of this home.
pub(crate) fn stale_processes(home_key: &str, places: &Path) -> Vec<Pid> {
    let mut found = Vec::new();
    for_each_stale(home_key, places, |_, _, folder| {
        for agent in names(folder) {
            let text = read_at(folder, &format!("{agent}/cgroup.procs")).unwrap_or_default();
            let numbers = text.lines().filter_map(|line| line.parse().ok());
            found.extend(numbers.filter_map(Pid::from_raw));
        }
    });
    found
}

/// Whether a process is in the cgroup of an earlier keeper of this home, or below.
pub(crate) fn is_stale(home_key: &str, pid: Pid) -> bool {
    let Some(prefix) = folder_prefix(home_key) else { return false };
    let cgroup = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    is_below_stale(&cgroup, &prefix)
}

fn is_below_stale(cgroup: &str, prefix: &str) -> bool {
    let place = cgroup.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    let own = own_name(prefix);
    place.split('/').any(|part| part.starts_with(prefix) && part != own)
}

/// Kills what an earlier keeper of this home left in its cgroups, and removes those that are empty. Then
/// removes the empty cgroups that dead keepers of other homes left beside them: a home that is deleted, such
/// as a test's, has no later keeper that could do it.
pub(crate) fn sweep(home_key: &str, places: &Path) {
    for_each_stale(home_key, places, |above, name, folder| {
        kill_at(folder, "cgroup.kill");
        remove_below(folder);
        let _ = rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR);
    });
    for above in all_places(places).iter().filter_map(|place| open_folder(place)) {
        remove_abandoned(&above, lives);
    }
}

/// Whether a process lives. A zombie does not.
fn lives(pid: &str) -> bool {
    let pid = pid.parse().ok().and_then(Pid::from_raw);
    pid.and_then(Stat::of).is_some_and(|stat| stat.lives())
}

/// Removes the folders of keepers that do not live, as far as they are empty.
fn remove_abandoned(above: &OwnedFd, lives: impl Fn(&str) -> bool) {
    for name in names(above) {
        if keeper_of(&name).is_some_and(|pid| !lives(pid))
            && let Ok(folder) = open_at(above, &name, FOLDER)
        {
            // The kernel keeps a folder in which a process lives.
            remove_below(&folder);
            let _ = rustix::fs::unlinkat(above, &name, AtFlags::REMOVEDIR);
        }
    }
}

/// The process that made a folder, if its name is one of ours: `defib-`, a key in hex, `-`, a number.
fn keeper_of(name: &str) -> Option<&str> {
    let (key, pid) = name.strip_prefix("defib-")?.split_once('-')?;
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_pid = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
    (is_key && is_pid).then_some(pid)
}

/// The places that are written down, and the caller's own.
fn all_places(places: &Path) -> Vec<PathBuf> {
    let mut places = written_down(places);
    places.extend(own_cgroup());
    places.sort_unstable();
    places.dedup();
    places
}

/// The earlier keeper may have been started from another login, which is in another cgroup: so those
/// that are written down are looked into as well as the caller's own.
fn for_each_stale(home_key: &str, places: &Path, mut action: impl FnMut(&OwnedFd, &str, &OwnedFd)) {
    let Some(prefix) = folder_prefix(home_key) else { return };
    for above in all_places(places).iter().filter_map(|place| open_folder(place)) {
        for name in stale_names(&above, &prefix) {
            if let Ok(folder) = open_at(&above, &name, FOLDER) {
                action(&above, &name, &folder);
            }
        }
    }
}

fn stale_names(above: &OwnedFd, prefix: &str) -> Vec<String> {
    let own = own_name(prefix);
    names(above).into_iter().filter(|name| name.starts_with(prefix) && *name != own).collect()
}

/// The cgroups below which keepers of this home made theirs, one a line.
fn written_down(places: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(places).unwrap_or_default();
    text.lines().map(PathBuf::from).collect()
}

/// Writes a place down, beside those where something of an earlier keeper is left. Where that cannot be
/// written the next sweep goes by marks alone.
fn write_down(places: &Path, own: &Path, prefix: &str) {
    let is_left =
        |place: &Path| open_folder(place).is_some_and(|it| !stale_names(&it, prefix).is_empty());
    let mut all = written_down(places);
    all.retain(|place| place != own && is_left(place));
    all.push(own.to_owned());
    let lines: Vec<u8> = all
        .iter()
        .flat_map(|place| [place.as_os_str().as_bytes(), b"\n"])
        .flatten()
        .copied()
        .collect();
    // All of it or none: the next sweep must not read a part of a path.
    let draft = places.with_extension("new");
    let _ = std::fs::write(&draft, lines).and_then(|()| std::fs::rename(&draft, places));
}

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// A home's key can be anything; a folder's name cannot. Two homes with one prefix would be a danger,
/// so it is spelled out in hex rather than hashed or cut; a key too long for that gets no cgroups.
fn folder_prefix(home_key: &str) -> Option<String> {
    let mut prefix = String::from("defib-");
    for byte in home_key.bytes() {
        write!(prefix, "{byte:02x}").ok()?;
    }
    prefix.push('-');
    (prefix.len() < 200).then_some(prefix)
}

/// The name of the folder that this process makes, if it is a keeper.
fn own_name(prefix: &str) -> String {
    format!("{prefix}{}", rustix::process::getpid())
}

/// This process's folder in the cgroup v2 tree, in a unified and in a hybrid layout.
fn own_cgroup() -> Option<PathBuf> {
    let cgroup = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    find_cgroup(&cgroup, &mounts)
}

pub(crate) fn find_cgroup(cgroup: &str, mounts: &str) -> Option<PathBuf> {
    let own = cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        filesystem.starts_with("cgroup2 ").then_some(())?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = own.strip_prefix(root.trim_end_matches('/'))?;
        let inside = below.is_empty() || below.starts_with('/');
        (inside && !below.contains("..")).then(|| PathBuf::from(format!("{point}{below}")))
    })
}

fn open_folder(path: &std::path::Path) -> Option<OwnedFd> {
    rustix::fs::open(path, FOLDER, Mode::empty()).ok()
}

fn open_at(folder: &OwnedFd, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(folder, name, flags | OFlags::CLOEXEC, Mode::empty())
}

fn exists(folder: &OwnedFd, name: &str) -> bool {
    rustix::fs::statat(folder, name, AtFlags::empty()).is_ok()
}

fn read_at(folder: &OwnedFd, name: &str) -> Option<String> {
    let file = open_at(folder, name, OFlags::RDONLY).ok()?;
    let mut bytes = vec![0; 512];
    let mut end = 0;
    loop {
        match rustix::io::read(&file, bytes.get_mut(end..)?) {
            Ok(0) => break,
            Ok(more) => end += more,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
        if end == bytes.len() {
            bytes.resize(end * 2, 0);
        }
    }
    bytes.truncate(end);
    String::from_utf8(bytes).ok()
}

fn kill_at(folder: &OwnedFd, name: &str) {
    if let Ok(file) = open_at(folder, name, OFlags::WRONLY) {
        let _ = rustix::io::write(file, b"1");
    }
}

fn names(folder: &OwnedFd) -> Vec<String> {
    let Ok(entries) = Dir::read_from(folder) else { return Vec::new() };
    let folders = entries.flatten().filter(|entry| entry.file_type().is_dir());
    let names = folders.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
    names.filter(|name| name != "." && name != "..").collect()
}

/// A cgroup that an agent made below its own (a container's, a nested keeper's) goes as well.
fn remove_below(folder: &OwnedFd) {
    for name in names(folder) {
        if let Ok(inner) = open_at(folder, &name, FOLDER) {
            remove_below(&inner);
        }
        let _ = rustix::fs::unlinkat(folder, &name, AtFlags::REMOVEDIR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_folder_is_found_in_unified_hybrid_and_namespaced_layouts() {
        let found = |cgroup, mounts| find_cgroup(cgroup, mounts);
        let unified = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let path = "/sys/fs/cgroup/user.slice/a.scope";
        assert_eq!(found("0::/user.slice/a.scope\n", unified), Some(path.into()));
        let hybrid = "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let cgroup = "4:memory:/x\n0::/\n";
        assert_eq!(found(cgroup, hybrid), Some("/sys/fs/cgroup/unified/".into()));
        let container = "40 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        assert_eq!(found("0::/docker/abc\n", container), Some("/sys/fs/cgroup".into()));
        assert_eq!(found("0::/docker/abcd\n", container), None);
        assert_eq!(found("0::/../other\n", unified), None);
        assert_eq!(found("1:cpu:/\n", unified), None);
    }

    #[test]
    fn only_folders_of_dead_keepers_are_removed() {
        let root = std::env::temp_dir().join(format!("defib-cgroups-{}", std::process::id()));
        for name in
            ["defib-6b-7/a@1/inner", "defib-6b-8/a@1", "defib-6b", "defib-xy-7", "other-6b-7"]
        {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        // A file stands for a process: its folder cannot be removed.
        std::fs::create_dir_all(root.join("defib-6c-7/a@1")).unwrap();
        std::fs::write(root.join("defib-6c-7/a@1/process"), "").unwrap();
        remove_abandoned(&open_folder(&root).unwrap(), |pid| pid == "8");
        let mut left = names(&open_folder(&root).unwrap());
        left.sort_unstable();
        assert_eq!(left, ["defib-6b", "defib-6b-8", "defib-6c-7", "defib-xy-7", "other-6b-7"]);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_process_is_an_earlier_keeper_s_by_the_whole_of_the_home_s_key() {
        let prefix = folder_prefix("k").unwrap();
        let below = |place: &str| is_below_stale(&format!("4:memory:/x\n0::{place}\n"), &prefix);
        assert!(below("/user.slice/defib-6b-1/a@1"));
        assert!(below("/defib-6b-1/a@1/inner"));
        assert!(!below("/defib-6b6b-1/a@1"), "another home's");
        assert!(!below(&format!("/{}/a@1", own_name(&prefix))), "its own");
        assert!(!below("/user.slice"));
        assert!(!is_below_stale("4:memory:/defib-6b-1/a@1\n", &prefix), "in another tree");
    }
}
