//! The folders that agents keep their state in, across their runs.
//!
//! One is made sure of before each run, because anybody may have removed it meanwhile. It is mostly
//! there, so all that is asked then is one question about one name.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use defib_core::Name;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::places::{Outside, Owner};

/// All of them.
#[derive(Debug)]
pub(super) struct States {
    path: PathBuf,
    outside: Outside,
    /// The folder they are in, while it is there.
    folder: Option<OwnedFd>,
}

impl States {
    /// Those of a home.
    pub(super) fn new(home: &Path) -> States {
        let mut states =
            States { path: home.join("state"), outside: Outside::of(home), folder: None };
        states.open();
        states
    }

    /// Makes an agent's, if it is not there. If it cannot be made, the agent's own attempt to use it
    /// shows why. The folder of an agent with another user is outside of the home.
    pub(super) fn make(&mut self, name: &Name, owner: Option<Owner>) {
        if let Some(owner) = owner {
            if let Err(error) = self.outside.make_state(name.as_str(), owner) {
                let folder = self.outside.state(name.as_str());
                say!("cannot make {} for {name}: {error}", folder.display());
            }
            return;
        }
        let mode = Mode::from_raw_mode(0o777);
        let made = self.folder.as_ref().map(|it| rustix::fs::mkdirat(it, name.as_str(), mode));
        if !matches!(made, Some(Ok(()) | Err(Errno::EXIST))) {
            let _ = std::fs::create_dir_all(self.path.join(name.as_str()));
            self.open();
        }
    }

    fn open(&mut self) {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.folder = rustix::fs::open(&self.path, flags, Mode::empty()).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_there_for_each_run_whatever_was_removed_before() {
        let home = tempfile::tempdir().unwrap();
        let (state, web) = (home.path().join("state"), Name::parse("web").unwrap());
        let mut states = States::new(home.path());
        for removed in [None, Some(state.join("web")), Some(state.clone())] {
            if let Some(removed) = removed {
                std::fs::remove_dir_all(removed).unwrap();
            }
            states.make(&web, None);
            assert!(state.join("web").is_dir());
        }
    }
}
