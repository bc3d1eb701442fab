//! Whose a home is: one daemon's at a time.

use std::os::fd::OwnedFd;
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
