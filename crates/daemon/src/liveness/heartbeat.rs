//! Heartbeat files: a touch of one is a beat.
//!
//! The kernel tells of touches in the folders of the files, so nothing is looked at in between. A
//! folder that cannot be watched is no reason to take an agent for dead: then its file is looked at
//! whenever its silence would end it.
//!
//! To open a folder or to look at a file can block for ever. [`ToWatch`] and [`look`] do that, on a
//! worker's thread; nothing else in here touches an agent's paths.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use defib_core::Name;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::places::AgentFile;

/// Whatever a touch can be: a new time, new content, a new file, or one that is moved there.
const TOUCHES: WatchFlags = WatchFlags::ATTRIB
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ONLYDIR);

/// The files whose touches are beats.
#[derive(Debug)]
pub(crate) struct HeartbeatFiles {
    inotify: Arc<OwnedFd>,
    files: BTreeMap<Name, Watched>,
}

/// A file that is to be watched.
#[derive(Debug)]
pub(crate) struct ToWatch {
    inotify: Arc<OwnedFd>,
    pub(crate) file: AgentFile,
}

/// What came of watching a file.
#[derive(Debug)]
pub(crate) struct Begun {
    watch: Option<i32>,
    seen: Option<Look>,
}

impl ToWatch {
    /// Watches the folder of the file. This can block, unless the folder is the agent's state folder.
    pub(crate) fn begin(&self) -> Begun {
        // An agent that touches a file in a folder of its own choice need not make the folder.
        let watch = self.file.folder(true).ok().and_then(|folder| {
            // By its descriptor: the path may lead elsewhere by now. A worker has a descriptor table of its own.
            let folder = format!("/proc/thread-self/fd/{}", folder.as_fd().as_raw_fd());
            inotify::add_watch(&self.inotify, folder, TOUCHES).ok()
        });
        // A file in the state folder may be a link to anywhere, and the watch tells of its touches.
        let seen = if self.file.in_state { None } else { look(&self.file) };
        Begun { watch, seen }
    }
}

#[derive(Debug)]
struct Watched {
    file: AgentFile,
    name: OsString,
    /// The watch of its folder, if there is one.
    watch: Option<i32>,
    seen: Option<Look>,
    /// Whether a worker has begun to watch it.
    begun: bool,
}

/// What a file looked like. A touch changes it.
pub(crate) type Look = (u64, i64, u64, i64, u64);

impl HeartbeatFiles {
    pub(crate) fn new() -> Result<HeartbeatFiles, Errno> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(HeartbeatFiles { inotify: Arc::new(inotify), files: BTreeMap::new() })
    }

    /// Expects touches of an agent's file from now on. Gives what a worker has to do for that.
    pub(crate) fn watch(&mut self, agent: &Name, file: &AgentFile) -> Option<ToWatch> {
        let known = self.files.get(agent);
        if known.is_some_and(|known| known.file == *file && known.watch.is_some()) {
            return None;
        }
        self.forget(agent);
        let name = file.name().map(OsStr::to_owned)?;
        let (file, inotify) = (file.clone(), self.inotify.clone());
        let watched = Watched { file: file.clone(), name, watch: None, seen: None, begun: false };
        self.files.insert(agent.clone(), watched);
        Some(ToWatch { inotify, file })
    }

    /// A worker has begun to watch an agent's file.
    pub(crate) fn begun(&mut self, agent: &Name, file: &AgentFile, begun: &Begun) {
        match self.files.get_mut(agent).filter(|known| known.file == *file) {
            Some(known) => (known.watch, known.seen, known.begun) = (begun.watch, begun.seen, true),
            // Meanwhile the agent has gone, or has another file.
            None => self.unwatch(begun.watch),
        }
    }

    fn unwatch(&self, watch: Option<i32>) {
        let Some(watch) = watch else { return };
        if !self.files.values().any(|other| other.watch == Some(watch)) {
            let _ = inotify::remove_watch(&self.inotify, watch);
        }
    }

    /// The agent has no heartbeat any more.
    pub(crate) fn forget(&mut self, agent: &Name) {
        if let Some(watched) = self.files.remove(agent) {
            self.unwatch(watched.watch);
        }
    }

    /// The agents whose files have been touched since this was last asked; and whether the kernel has lost
    /// touches, so that all files have to be looked at.
    pub(crate) fn touched(&mut self) -> (Vec<Name>, bool) {
        let mut touched = Vec::new();
        let mut room = [MaybeUninit::uninit(); 16 << 10];
        let mut reader = inotify::Reader::new(&self.inotify, &mut room);
        let (mut lost, mut gone) = (false, Vec::new());
        while let Ok(event) = reader.next() {
            lost |= event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            if event.events().contains(ReadFlags::IGNORED) {
                gone.push(event.wd());
            }
            let Some(name) = event.file_name() else { continue };
            let name = OsStr::from_bytes(name.to_bytes());
            let of = |file: &Watched| file.watch == Some(event.wd()) && file.name == name;
            for (agent, _) in self.files.iter().filter(|(_, file)| of(file)) {
                if !touched.contains(agent) {
                    touched.push(agent.clone());
                }
            }
        }
        for watch in gone {
            // Somebody took the folder away; from here on the files are looked at.
            for file in self.files.values_mut().filter(|file| file.watch == Some(watch)) {
                file.watch = None;
            }
        }
        (touched, lost)
    }

    /// The files that have to be looked at: those that cannot be watched, or all.
    pub(crate) fn to_look_at(&self, all: bool) -> Vec<(Name, AgentFile)> {
        let files = self.files.iter().filter(|(_, of)| of.begun && (all || of.watch.is_none()));
        files.map(|(agent, of)| (agent.clone(), of.file.clone())).collect()
    }

    /// A worker has looked at an agent's file. Says whether it was touched since the last look.
    pub(crate) fn looked(&mut self, agent: &Name, file: &AgentFile, now: Option<Look>) -> bool {
        let known = self.files.get_mut(agent).filter(|known| known.file == *file);
        known.is_some_and(|known| {
            let before = std::mem::replace(&mut known.seen, now);
            now.is_some() && now != before
        })
    }
}

impl AsFd for HeartbeatFiles {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

/// What a file looks like. This can block.
pub(crate) fn look(file: &AgentFile) -> Option<Look> {
    let stat = file.stat()?;
    Some((stat.st_ino, stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::time::SystemTime;

    #[test]
    fn any_way_of_touching_is_a_beat_and_other_files_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/er/beat");
        let agent = Name::parse("a").unwrap();
        let mut files = HeartbeatFiles::new().unwrap();
        let own = folder.path().to_owned();
        let of = AgentFile { path: file.clone(), own, guarded: true, owner: None, in_state: false };
        let begun = files.watch(&agent, &of).unwrap().begin();
        files.begun(&agent, &of, &begun);
        assert!(files.watch(&agent, &of).is_none(), "it is watched");
        assert!(files.touched().0.is_empty());
        File::create(&file).unwrap();
        assert_eq!(files.touched().0, std::slice::from_ref(&agent), "made");
        std::fs::write(&file, "x").unwrap();
        assert_eq!(files.touched().0, std::slice::from_ref(&agent), "written");
        File::open(&file).unwrap().set_modified(SystemTime::now()).unwrap();
        assert_eq!(files.touched().0, std::slice::from_ref(&agent), "its time was set");
        std::fs::write(folder.path().join("deep/er/new"), "x").unwrap();
        assert!(files.touched().0.is_empty(), "another file");
        std::fs::rename(folder.path().join("deep/er/new"), &file).unwrap();
        assert_eq!(files.touched().0, std::slice::from_ref(&agent), "moved there");
        assert!(files.touched().0.is_empty());
        std::fs::remove_dir_all(folder.path().join("deep")).unwrap();
        let _ = files.touched();
        std::fs::create_dir_all(folder.path().join("deep/er")).unwrap();
        std::fs::write(&file, "x").unwrap();
        assert_eq!(files.to_look_at(false), [(agent.clone(), of.clone())]);
        assert!(files.looked(&agent, &of, look(&of)), "the folder was taken away and made anew");
        assert!(!files.looked(&agent, &of, look(&of)));
    }
}
