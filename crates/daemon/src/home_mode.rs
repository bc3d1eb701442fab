//! Restores the mode of the home when a process changes it.
//!
//! A sandbox keeps an agent from doing that by read-only mounts. On a machine that permits no mount namespaces, an
//! agent with a token to write can still change the mode of every file of its user. `chmod 000` on the home would
//! lock the operator out, and the daemon out of its own files.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{Mode, OFlags};

/// Starts the thread that does it. It ends when the folder is gone.
pub(crate) fn hold(home: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(home, flags, Mode::empty())?;
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&folder)?.st_mode) | Mode::RWXU;
    let events = inotify::init(CreateFlags::CLOEXEC)?;
    let wanted = WatchFlags::ATTRIB | WatchFlags::ONLYDIR;
    inotify::add_watch(&events, home, wanted)?;
    let watch = move || watch(&folder, mode, &events);
    std::thread::Builder::new().name("home-mode".to_owned()).spawn(watch).map(drop)
}

fn watch(folder: &OwnedFd, mode: Mode, events: &OwnedFd) {
    let mut room = [std::mem::MaybeUninit::uninit(); 1024];
    let mut reader = inotify::Reader::new(events, &mut room);
    while let Ok(event) = reader.next() {
        if event.events().contains(ReadFlags::IGNORED) {
            return;
        }
        // The folder itself has no name in its events; the others are about files in it.
        let is_other =
            rustix::fs::fstat(folder).is_ok_and(|found| Mode::from_raw_mode(found.st_mode) != mode);
        if event.file_name().is_none() && is_other && rustix::fs::fchmod(folder, mode).is_ok() {
            say!("the mode of the home was changed; it was restored");
        }
    }
}
