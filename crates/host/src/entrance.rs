//! The file of the socket that clients connect to, kept in its place.
//!
//! The keeper watches the file. If the file is removed, moved or replaced, the keeper binds a new socket at the
//! same path and hands it to the daemon. The file appears whole: it is bound under another name, with mode
//! 0600, and renamed.
//!
//! It refuses to bind in a folder that is not the one that it began with: the files of the home are not in
//! there.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::claim::Claim;
use crate::say;

/// The file's name until it is bound and listened on. Not longer than the name that it gets then.
const NEW: &str = "defib.new";
/// Maximum number of connections that wait while there is no daemon. The kernel has a limit of its own.
const BACKLOG: i32 = 4096;
/// Time from the loss of the file to the new one. It lets `rm -r` finish with the folder, and a fight for the
/// path does not keep the keeper busy.
const PAUSE: Duration = Duration::from_millis(200);
/// Time between two attempts to bind after one that failed.
const RETRY: Duration = Duration::from_secs(1);

/// A file that cannot be mistaken for another.
type Identity = (u64, u64);

/// The socket's file, and the second lock of its home.
#[derive(Debug)]
pub struct Entrance {
    path: PathBuf,
    folder: Identity,
    file: Option<Identity>,
    /// None: the system has no more watches. Then only those who ask for the holder of the claim have the
    /// file checked.
    watch: Option<OwnedFd>,
    claim: Claim,
    /// When to bind again.
    due: Option<Instant>,
}

impl Entrance {
    /// Binds the socket at a path, in place of whatever was there.
    ///
    /// # Errors
    /// If that cannot be.
    pub fn open(path: &Path, claim: Claim) -> io::Result<(Entrance, OwnedFd)> {
        let folder = path.parent().and_then(folder_identity).ok_or(Errno::NOENT)?;
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        let watch = watch.and_then(|watch| above_slots(&watch));
        let mut entrance = Entrance {
            path: path.to_owned(),
            folder,
            file: None,
            watch: watch.ok(),
            claim,
            due: None,
        };
        let listener = entrance.bind()?;
        Ok((entrance, listener))
    }

    /// The descriptors that become readable when [`Entrance::check`] has something to do.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.watch.iter().map(AsFd::as_fd).chain(self.claim.sockets())
    }

    /// When [`Entrance::check`] has something to do even if nothing is readable.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// A new listener, if the path did not lead to the last one any more.
    pub(crate) fn check(&mut self, now: Instant) -> Option<OwnedFd> {
        self.claim.drain();
        let mut buffer = [0; 1024];
        // What happened does not matter: the file is looked at.
        while let Some(watch) = &self.watch
            && rustix::io::read(watch, &mut buffer).is_ok_and(|bytes| bytes > 0)
        {}
        if self.is_in_place() || !self.has_folder() {
            self.due = None;
            return None;
        }
        if now < *self.due.get_or_insert(now + PAUSE) {
            return None;
        }
        match self.bind() {
            Ok(listener) => {
                self.due = None;
                say(&format!("{} was gone, and is bound again", self.path.display()));
                Some(listener)
            }
            Err(errno) => {
                // Once: the folder may stay closed to us for long.
                if self.file.take().is_some() {
                    say(&format!("{} is gone, and cannot be bound: {errno}", self.path.display()));
                }
                self.due = Some(now + RETRY);
                None
            }
        }
    }

    /// Removes the file, if it is still this keeper's.
    pub(crate) fn close(&self) {
        if self.has_folder() && self.is_in_place() {
            let _ = rustix::fs::unlink(&self.path);
        }
    }

    fn is_in_place(&self) -> bool {
        self.file.is_some() && identity(&self.path) == self.file
    }

    fn has_folder(&self) -> bool {
        self.path.parent().and_then(folder_identity) == Some(self.folder)
    }

    fn bind(&mut self) -> Result<OwnedFd, Errno> {
        let new = self.path.with_file_name(NEW);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        make_way(&new)?;
        let before = rustix::process::umask(Mode::from_raw_mode(0o177));
        let bound = rustix::net::bind(&socket, &SocketAddrUnix::new(&new)?);
        rustix::process::umask(before);
        bound?;
        rustix::net::listen(&socket, BACKLOG)?;
        let file = identity(&new).ok_or(Errno::NOENT)?;
        if let Some(watch) = &self.watch {
            // Removing the path changes the file's number of links, which counts as an attribute. Before the
            // file is in its place, so that nothing is missed.
            let changes = WatchFlags::ATTRIB | WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF;
            let _ = inotify::add_watch(watch, &new, changes);
        }
        match rustix::fs::rename(&new, &self.path) {
            Err(Errno::ISDIR) => {
                make_way(&self.path)?;
                rustix::fs::rename(&new, &self.path)?;
            }
            renamed => renamed?,
        }
        self.file = Some(file);
        Ok(socket)
    }
}

/// The same with a number that the keeper does not take for its own use, as it takes 3 and 4.
pub(crate) fn above_slots(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(fd, 10)
}

/// Removes a file or an empty folder.
fn make_way(path: &Path) -> Result<(), Errno> {
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR) => rustix::fs::rmdir(path),
        Err(errno) => Err(errno),
    }
}

/// Of a folder, to which a symlink may lead.
fn folder_identity(path: &Path) -> Option<Identity> {
    rustix::fs::stat(path).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

fn identity(path: &Path) -> Option<Identity> {
    let stat = rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some((stat.st_dev, stat.st_ino))
}
