//! Heartbeat files: a touch of one is a beat.
//!
//! The kernel tells of touches in the folders of the files, so nothing is looked at in between. A
//! folder that cannot be watched is no reason to take an agent for dead: then its file is looked at
//! whenever its silence would end it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

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
    inotify: OwnedFd,
    files: BTreeMap<Name, Watched>,
}

#[derive(Debug)]
struct Watched {
    file: AgentFile,
    name: OsString,
    /// The watch of its folder, if there is one.
    watch: Option<i32>,
    seen: Option<Look>,
}

/// What a file looked like. A touch changes it.
type Look = (u64, i64, u64, i64, u64);

impl HeartbeatFiles {
    pub(crate) fn new() -> Result<HeartbeatFiles, Errno> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(HeartbeatFiles { inotify, files: BTreeMap::new() })
    }

    /// Watches an agent's file from now on.
    pub(crate) fn watch(&mut self, agent: &Name, file: &AgentFile) {
        let known = self.files.get(agent);
        if known.is_some_and(|known| known.file == *file && known.watch.is_some()) {
            return;
        }
        self.forget(agent);
        let Some(name) = file.name().map(OsStr::to_owned) else { return };
        // An agent that touches a file in a folder of its own choice need not make the folder.
        let watch = file.folder(true).ok().and_then(|folder| {
            // By its descriptor: the path may lead elsewhere by now.
            let folder = format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd());
            inotify::add_watch(&self.inotify, folder, TOUCHES).ok()
        });
        let watched = Watched { file: file.clone(), name, watch, seen: look(file) };
        self.files.insert(agent.clone(), watched);
    }

    /// The agent has no heartbeat any more.
    pub(crate) fn forget(&mut self, agent: &Name) {
        let Some(watched) = self.files.remove(agent) else { return };
        let Some(watch) = watched.watch else { return };
        if !self.files.values().any(|other| other.watch == Some(watch)) {
            let _ = inotify::remove_watch(&self.inotify, watch);
        }
    }

    /// The agents whose files have been touched since this was last asked.
    pub(crate) fn touched(&mut self) -> Vec<Name> {
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
        if lost {
            touched.extend(self.look(|_| true));
        }
        touched
    }

    /// The agents whose files cannot be watched and were touched since this was last asked.
    pub(crate) fn touched_unwatched(&mut self) -> Vec<Name> {
        self.look(|file| file.watch.is_none())
    }

    fn look(&mut self, which: impl Fn(&Watched) -> bool) -> Vec<Name> {
        let mut touched = Vec::new();
        for (agent, file) in self.files.iter_mut().filter(|(_, file)| which(file)) {
            let now = look(&file.file);
            if now != file.seen && now.is_some() {
                touched.push(agent.clone());
            }
            file.seen = now;
        }
        touched
    }
}

impl AsFd for HeartbeatFiles {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

fn look(file: &AgentFile) -> Option<Look> {
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
        files.watch(&agent, &AgentFile { path: file.clone(), own, guarded: true, owner: None });
        assert!(files.touched().is_empty());
        File::create(&file).unwrap();
        assert_eq!(files.touched(), std::slice::from_ref(&agent), "made");
        std::fs::write(&file, "x").unwrap();
        assert_eq!(files.touched(), std::slice::from_ref(&agent), "written");
        File::open(&file).unwrap().set_modified(SystemTime::now()).unwrap();
        assert_eq!(files.touched(), std::slice::from_ref(&agent), "its time was set");
        std::fs::write(folder.path().join("deep/er/new"), "x").unwrap();
        assert!(files.touched().is_empty(), "another file");
        std::fs::rename(folder.path().join("deep/er/new"), &file).unwrap();
        assert_eq!(files.touched(), std::slice::from_ref(&agent), "moved there");
        assert!(files.touched().is_empty());
        std::fs::remove_dir_all(folder.path().join("deep")).unwrap();
        let _ = files.touched();
        std::fs::create_dir_all(folder.path().join("deep/er")).unwrap();
        std::fs::write(&file, "x").unwrap();
        assert_eq!(files.touched_unwatched(), [agent], "the folder was taken away and made anew");
        assert!(files.touched_unwatched().is_empty());
    }
}
