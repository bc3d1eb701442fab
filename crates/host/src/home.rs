//! Whose a home is: one daemon's at a time, and whoever speaks to it must be allowed to.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// The lock on a home. It is held until this is dropped and every duplicate of its descriptor that
/// was inherited or sent away is closed.
#[derive(Debug)]
pub struct HomeLock(OwnedFd);

impl HomeLock {
    /// Takes it. `None`: somebody has it. The file is made if it is not there, and stays: removing
    /// a lock's file lets two hold "the" lock.
    pub fn take(file: &Path) -> Result<Option<HomeLock>, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened = rustix::fs::open(file, flags, Mode::from_raw_mode(0o600))?;
        match rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(HomeLock(opened))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// The descriptor, for one that is to hold the lock as well.
    pub fn descriptor(&self) -> &OwnedFd {
        &self.0
    }
}

/// Who is at the other end of a Unix socket, as of when it connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its process.
    pub pid: u32,
    /// Its user.
    pub user: u32,
    /// Its group.
    pub group: u32,
}

/// Asks the kernel who it is.
pub fn peer(socket: impl AsFd) -> Result<Peer, Errno> {
    let peer = rustix::net::sockopt::socket_peercred(socket)?;
    let pid = peer.pid.as_raw_pid().unsigned_abs();
    Ok(Peer { pid, user: peer.uid.as_raw(), group: peer.gid.as_raw() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_home_is_locked_by_one_at_a_time() {
        let folder = std::env::temp_dir().join(format!("defib-lock-{}", std::process::id()));
        let first = HomeLock::take(&folder).unwrap();
        assert!(first.is_some());
        assert!(HomeLock::take(&folder).unwrap().is_none());
        drop(first);
        assert!(HomeLock::take(&folder).unwrap().is_some());
        std::fs::remove_file(folder).unwrap();
    }

    #[test]
    fn a_socket_says_who_is_at_its_other_end() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let peer = peer(&socket).unwrap();
        assert_eq!(peer.pid, std::process::id());
        assert_eq!(peer.user, rustix::process::geteuid().as_raw());
    }
}
