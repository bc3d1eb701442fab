//! Where agents with a user of their own keep their state, and how a privileged daemon deals with paths
//! that an agent can change.
//!
//! The home is its owner's alone. An agent with another `user` cannot reach anything in it, so its
//! state folder and its notify socket are below a root of their own: `/var/lib/defib/HOME/state/AGENT`
//! and `/var/lib/defib/HOME/n/SOCKET`, where HOME is a hash of the home's path. Every folder above is
//! root's with mode 0711; the agent's folder is its user's with mode 0700.
//!
//! Invariant: no symlink that an agent can place makes the daemon open, make, change or grant anything
//! elsewhere.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path, PathBuf};

use defib_config::config;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

/// Names another root than [`ROOT`]: for machines where that cannot be written.
const ROOT_VARIABLE: &str = "DEFIB_STATE_ROOT";
const ROOT: &str = "/var/lib/defib";
/// The state folders below a home's root.
const STATE: &str = "state";
/// The notify sockets below a home's root. Short, because a socket's path has to be.
const SOCKETS: &str = "n";
/// Number of symlinks in one path that are followed, as in the kernel.
const MOST_LINKS: usize = 40;

/// The user that an agent's files belong to, where that is not the daemon's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The user's number.
    pub(crate) user: u32,
    group: u32,
}

/// The other user that an agent runs as. Only root can give a run another user.
pub(crate) fn owner_of(agent: &config::Agent) -> Option<Owner> {
    let wanted = agent.user.as_deref().filter(|_| rustix::process::geteuid().is_root())?;
    let (user, group) = defib_host::account(wanted)?;
    (user != 0).then_some(Owner { user, group })
}

/// What lies outside of a home for its agents with other users.
#[derive(Debug, Clone)]
pub(crate) struct Outside {
    root: PathBuf,
    home: String,
}

impl Outside {
    /// That of a home.
    pub(crate) fn of(home: &Path) -> Outside {
        let root = std::env::var_os(ROOT_VARIABLE).filter(|root| Path::new(root).is_absolute());
        let hash = Sha256::digest(home.as_os_str().as_bytes());
        let home = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Outside { root: root.map_or_else(|| ROOT.into(), PathBuf::from), home }
    }

    /// An agent's state folder.
    pub(crate) fn state(&self, agent: &str) -> PathBuf {
        self.root.join(&self.home).join(STATE).join(agent)
    }

    /// The folder of notify sockets.
    pub(crate) fn sockets(&self) -> PathBuf {
        self.root.join(&self.home).join(SOCKETS)
    }

    /// Makes sure that an agent's state folder is there and its user's alone.
    pub(crate) fn make_state(&self, agent: &str, owner: Owner) -> io::Result<()> {
        let states = self.make_folder(STATE)?;
        let folder = make_below(&states, agent, 0o700)?;
        // Only root can write the folder above, so this is the folder of that name and nothing else.
        let stat = rustix::fs::fstat(&folder)?;
        if (stat.st_uid, stat.st_gid) != (owner.user, owner.group) {
            let (user, group) = (Uid::from_raw(owner.user), Gid::from_raw(owner.group));
            rustix::fs::fchown(&folder, Some(user), Some(group))?;
        }
        set_mode(&folder, &stat, 0o700)
    }

    /// Makes sure that the folder of notify sockets is there.
    pub(crate) fn make_sockets(&self) -> io::Result<()> {
        self.make_folder(SOCKETS).map(drop)
    }

    fn make_folder(&self, name: &str) -> io::Result<OwnedFd> {
        DirBuilder::new().recursive(true).mode(0o711).create(&self.root)?;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut folder = rustix::fs::open(&self.root, flags, Mode::empty())?;
        let stat = private(&folder)?;
        if stat.st_mode & 0o011 != 0o011 {
            set_mode(&folder, &stat, 0o711)?;
        }
        for part in [self.home.as_str(), name] {
            folder = make_below(&folder, part, 0o711)?;
            let stat = private(&folder)?;
            set_mode(&folder, &stat, 0o711)?;
        }
        Ok(folder)
    }
}

/// Makes a folder if it is not there, and opens it. A symlink in its place is an error.
fn make_below(folder: &OwnedFd, name: &str, mode: u32) -> io::Result<OwnedFd> {
    match rustix::fs::mkdirat(folder, name, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(folder, name, flags, Mode::empty())?)
}

fn set_mode(folder: &OwnedFd, stat: &Stat, mode: u32) -> io::Result<()> {
    if stat.st_mode & 0o7777 != mode {
        rustix::fs::fchmod(folder, Mode::from_raw_mode(mode))?;
    }
    Ok(())
}

/// The facts of a folder. An error if users other than root and the daemon's own can write it.
fn private(folder: impl AsFd) -> io::Result<Stat> {
    let stat = rustix::fs::fstat(folder)?;
    if is_private(&stat) {
        return Ok(stat);
    }
    let why = "others than root can write the folder for the state of agents with another user";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

fn is_private(stat: &Stat) -> bool {
    let own = rustix::process::geteuid().as_raw();
    (stat.st_uid == 0 || stat.st_uid == own) && stat.st_mode & 0o022 == 0
}

/// A file at a path that an agent may be able to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentFile {
    /// An absolute path.
    pub(crate) path: PathBuf,
    /// The folder that the agent has for itself: its working folder or its state folder.
    pub(crate) own: PathBuf,
    /// Whether the agent can do less than the daemon: it is confined, or has another user. Elsewhere
    /// paths are followed as the agent itself would.
    pub(crate) guarded: bool,
    /// The other user that the agent has.
    pub(crate) owner: Option<Owner>,
    /// Whether the folder of the file is the agent's state folder. Defib makes that folder in its own place, so
    /// opening it does not depend on a file system that the agent chose.
    pub(crate) in_state: bool,
}

impl AgentFile {
    /// The file's last name.
    pub(crate) fn name(&self) -> Option<&OsStr> {
        self.path.file_name()
    }

    /// Opens the folder of the file, to name it and for nothing else. Makes what is missing of it, except
    /// in a folder that an agent with another user can write: there the agent makes its own.
    pub(crate) fn folder(&self, makes: bool) -> io::Result<OwnedFd> {
        let folder = self.path.parent().ok_or(Errno::INVAL)?;
        if !self.guarded {
            if makes {
                std::fs::create_dir_all(folder)?;
            }
            return Ok(open_path(CWD, folder, OFlags::DIRECTORY)?);
        }
        let walk = match (folder.strip_prefix(&self.own), self.owner) {
            // The way to the working folder is the operator's; from there on no symlink is followed.
            (Ok(rest), None) => Walk {
                here: open_path(CWD, &self.own, OFlags::DIRECTORY)?,
                rest: parts(rest),
                own: None,
                below: true,
            },
            (Ok(_) | Err(_), _) => Walk {
                here: open_path(CWD, Path::new("/"), OFlags::DIRECTORY)?,
                rest: parts(folder),
                own: identity_of(&self.own),
                below: false,
            },
        };
        walk.finish(match self.owner {
            _ if !makes => Missing::Fail,
            Some(owner) => Missing::MakeFor(owner),
            None => Missing::Make,
        })
    }

    /// The facts of the file. A guarded one is an ordinary file, reached without an agent's symlink.
    pub(crate) fn stat(&self) -> Option<Stat> {
        if !self.guarded {
            return rustix::fs::stat(&self.path).ok();
        }
        let folder = self.folder(false).ok()?;
        let stat = rustix::fs::statat(folder, self.name()?, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        is_file(&stat).then_some(stat)
    }

    /// Makes the file, which then belongs to the agent's user. One that is there, or whatever is in its
    /// place, is left as it is.
    pub(crate) fn make(&self) -> io::Result<()> {
        let folder = self.folder(true)?;
        let name = self.name().ok_or(Errno::INVAL)?;
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(0o666))?;
        if let Some(Owner { user, group }) = self.owner {
            // This call made the file, so no other process had given it an owner.
            rustix::fs::fchown(&file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
        }
        Ok(())
    }

    /// Whether a confined agent may be let at the file: an ordinary file without another name, which
    /// belongs to the agent's user.
    pub(crate) fn may_be_granted(&self) -> bool {
        self.stat().is_some_and(|stat| {
            let is_theirs = self.owner.is_none_or(|owner| owner.user == stat.st_uid);
            is_file(&stat) && stat.st_nlink == 1 && is_theirs
        })
    }
}

fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

fn open_path(
    folder: impl AsFd,
    path: impl rustix::path::Arg,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(folder, path, OFlags::PATH | OFlags::CLOEXEC | flags, Mode::empty())
}

/// What tells a folder from every other. Nothing for the topmost one, which is not an agent's own.
fn identity_of(folder: &Path) -> Option<(u64, u64)> {
    let stat = rustix::fs::stat(folder).ok().filter(|_| folder.parent().is_some())?;
    Some((stat.st_dev, stat.st_ino))
}

/// The names in a path, `..` among them.
fn parts(path: &Path) -> VecDeque<OsString> {
    let part = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(part).collect()
}

/// What a walk does about a folder that does not exist.
#[derive(Debug, Clone, Copy)]
enum Missing {
    Fail,
    Make,
    /// Make it in a folder that only root can write, and give it to this user.
    MakeFor(Owner),
}

/// A way through folders, one name at a time. A symlink is followed if it is in a folder that only root
/// and the daemon's user can write, and that is not below the agent's own folder.
struct Walk {
    here: OwnedFd,
    rest: VecDeque<OsString>,
    own: Option<(u64, u64)>,
    below: bool,
}

impl Walk {
    /// Walks to the last folder and opens it.
    fn finish(mut self, missing: Missing) -> io::Result<OwnedFd> {
        let mut links = 0;
        while let Some(part) = self.rest.pop_front() {
            let stat = rustix::fs::fstat(&self.here)?;
            self.below |= self.own == Some((stat.st_dev, stat.st_ino));
            let is_private = is_private(&stat);
            let next = match (open_path(&self.here, &part, OFlags::NOFOLLOW), missing) {
                (Err(Errno::NOENT), Missing::Make) => self.make(&part, None)?,
                (Err(Errno::NOENT), Missing::MakeFor(owner)) if is_private => {
                    self.make(&part, Some(owner))?
                }
                (opened, _) => opened?,
            };
            match FileType::from_raw_mode(rustix::fs::fstat(&next)?.st_mode) {
                FileType::Directory => self.here = next,
                FileType::Symlink if is_private && !self.below && links < MOST_LINKS => {
                    links += 1;
                    let target = rustix::fs::readlinkat(&next, "", Vec::new())?;
                    let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                    if target.is_absolute() {
                        self.here = open_path(CWD, Path::new("/"), OFlags::DIRECTORY)?;
                    }
                    let mut rest = parts(&target);
                    rest.append(&mut self.rest);
                    self.rest = rest;
                }
                FileType::Symlink => return Err(Errno::LOOP.into()),
                FileType::RegularFile
                | FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => return Err(Errno::NOTDIR.into()),
            }
        }
        Ok(self.here)
    }

    /// Makes a folder. One for another user is made only where that user cannot put something else in its
    /// place before it is given away.
    fn make(&self, part: &OsStr, owner: Option<Owner>) -> io::Result<OwnedFd> {
        match rustix::fs::mkdirat(&self.here, part, Mode::from_raw_mode(0o777)) {
            Ok(()) => {}
            // Somebody else has just made it, so it is not ours to give away.
            Err(Errno::EXIST) if owner.is_none() => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(&self.here, part, flags, Mode::empty())?;
        if let Some(Owner { user, group }) = owner {
            rustix::fs::fchown(&made, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
        }
        Ok(made)
    }
}

#[cfg(test)]
mod tests;
