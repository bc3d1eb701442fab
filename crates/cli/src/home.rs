//! Which daemon is meant: the folder that it keeps everything in.

use std::env;
use std::fs::{DirBuilder, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use defib_host::claim::Holder;

use crate::failure::{Code, Failure};

/// A Unix socket's path has at most this many bytes.
const LONGEST_SOCKET: usize = 107;

/// The folder of a daemon.
#[derive(Debug, Clone)]
pub(crate) struct Home(PathBuf);

impl Home {
    /// The one that was named, or the default: the XDG state folder's `defib`.
    pub(crate) fn find(named: Option<PathBuf>) -> Result<Home, Failure> {
        let state = || {
            let xdg = env::var_os("XDG_STATE_HOME").filter(|path| !path.is_empty());
            let home = env::var_os("HOME").filter(|path| !path.is_empty());
            xdg.map(PathBuf::from)
                .or_else(|| home.map(|home| Path::new(&home).join(".local/state")))
        };
        let path = named.or_else(|| state().map(|state| state.join("defib")));
        let Some(path) = path else {
            return Err(Failure::new(Code::Failed, "there is no home folder to keep things in")
                .hint("set DEFIB_HOME, or give --home DIR"));
        };
        let path = std::path::absolute(&path)
            .map_err(|error| Failure::new(Code::Failed, format!("{}: {error}", path.display())))?;
        let home = Home(path);
        let length = home.socket().as_os_str().len();
        if length > LONGEST_SOCKET {
            let message = format!(
                "the path of the socket is {length} bytes long, and a socket's has at most {LONGEST_SOCKET}: {}",
                home.socket().display()
            );
            return Err(Failure::new(Code::Failed, message)
                .hint("choose a shorter folder with --home or DEFIB_HOME"));
        }
        home.unlock();
        Ok(home)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join("defib.sock")
    }

    /// The names of the home's second lock ([`defib_host::claim`]): one for the path as it was given, and one
    /// for the path without symlinks, if that is another. Both stay the same if the folder is removed.
    ///
    /// The user and the root folder are part of them: a container that shares only the network with this
    /// machine may have a home with the same path.
    pub(crate) fn claims(&self) -> Vec<String> {
        let uid = rustix::process::geteuid().as_raw();
        let root = std::fs::metadata("/").map(|root| (root.dev(), root.ino())).unwrap_or_default();
        let name = |path: &Path| {
            let mut hash = Sha256::new();
            hash.update(format!("{uid} {} {} ", root.0, root.1));
            hash.update(path.as_os_str().as_bytes());
            let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
            format!("defib/{hash}")
        };
        let mut claims = vec![name(&self.0), name(&without_symlinks(&self.0))];
        claims.dedup();
        claims
    }

    /// The failure if the keeper of this home lives, and its socket is not in the folder.
    pub(crate) fn lost_by(&self, holder: Holder) -> Failure {
        if holder.pid == 0 {
            let message = format!(
                "another process holds the lock of {} and does not answer",
                self.0.display()
            );
            return Failure::new(Code::Failed, message).hint("try again in a moment");
        }
        let (path, pid) = (self.0.display(), holder.pid);
        let message = format!(
            "the keeper of {path} (process {pid}) and its agents still run, but its folder was removed, moved or replaced"
        );
        Failure::new(Code::Failed, message).hint(format!(
            "move the folder back if you have it; else `kill {pid}` stops the agents in order and ends the keeper, and `defib up` starts anew"
        ))
    }

    /// Restores the owner's rights to the folder if a `chmod` removed them.
    fn unlock(&self) {
        let own = rustix::process::geteuid().as_raw();
        let Ok(found) = std::fs::symlink_metadata(&self.0) else { return };
        if found.is_dir() && found.uid() == own && found.mode() & 0o700 != 0o700 {
            let mode = Permissions::from_mode(found.mode() & 0o777 | 0o700);
            // If it fails, the command fails too, and says why.
            let _ = std::fs::set_permissions(&self.0, mode);
        }
    }

    /// Makes the folder, for its owner alone.
    pub(crate) fn create(&self) -> Result<(), Failure> {
        // A folder that is there already is its owner's business.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.0);
        made.map_err(|error| {
            let message = format!("cannot use {} as home: {error}", self.0.display());
            Failure::new(Code::Failed, message)
                .hint("choose a folder that you may write to with --home or DEFIB_HOME")
        })
    }
}

/// The path without symlinks, as far as it exists.
fn without_symlinks(path: &Path) -> PathBuf {
    for existing in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (existing.canonicalize(), path.strip_prefix(existing)) {
            // To join nothing would add a slash.
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    path.to_owned()
}
