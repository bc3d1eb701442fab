//! A daemon of a user who is not root, made by root for a test.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::{PlainUser, Ran, await_some, defib_path};

/// A plain user's folder, with a project and a home.
pub struct PlainDaemon {
    folder: TempDir,
    user: PlainUser,
}

impl PlainDaemon {
    /// `None`, with the reason on standard error, if no user can be made here.
    #[must_use]
    pub fn new() -> Option<PlainDaemon> {
        let user = PlainUser::new("box")?;
        let folder = tempfile::Builder::new().prefix("dp").rand_bytes(5).tempdir_in("/tmp").ok()?;
        let (uid, gid) = (user.uid, user.gid);
        let user = PlainDaemon { folder, user };
        let binary = user.at("defib");
        fs::copy(defib_path(), &binary).expect("a copy");
        fs::set_permissions(&binary, Permissions::from_mode(0o755)).expect("a mode");
        for place in ["", "p", "p/w"] {
            fs::create_dir_all(user.at(place)).expect("a folder");
            chown(user.at(place), Some(uid), Some(gid)).expect("an owner");
        }
        fs::set_permissions(user.folder.path(), Permissions::from_mode(0o755)).expect("a mode");
        Some(user)
    }

    /// A path in the user's folder. The project is `p`, with the folder `w`; the home is `h`.
    #[must_use]
    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Copies a program to where the user can run it.
    #[must_use]
    pub fn copy(&self, program: &str) -> PathBuf {
        let to =
            self.at(Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or("x"));
        fs::copy(program, &to).expect("a copy");
        fs::set_permissions(&to, Permissions::from_mode(0o755)).expect("a mode");
        to
    }

    /// Writes the project's file.
    pub fn config(&self, text: &str) {
        fs::write(self.at("p/defib.toml"), text).expect("a file");
    }

    /// Runs defib as the user.
    pub fn defib(&self, arguments: &[&str]) -> Ran {
        self.defib_by(&[], arguments)
    }

    /// Runs defib as the user, by a program such as `unshare` with its arguments.
    pub fn defib_by(&self, program: &[&str], arguments: &[&str]) -> Ran {
        let binary = self.at("defib").display().to_string();
        let mut words = program.to_vec();
        words.push(&binary);
        words.extend(arguments);
        let (first, rest) = words.split_first().expect("a program");
        let mut command = Command::new(first);
        command.args(rest).current_dir(self.at("p")).env_clear();
        command.env("PATH", "/usr/bin:/bin").env("HOME", self.folder.path());
        command.env("DEFIB_HOME", self.at("h"));
        self.user.becomes(&mut command);
        Ran::to_end(command)
    }

    /// Waits until an agent's output is as wanted.
    pub fn await_log(&self, agent: &str, wanted: impl Fn(&str) -> bool) -> String {
        await_some(&format!("output of {agent}"), || {
            Some(self.defib(&["logs", agent]).out).filter(|log| wanted(log))
        })
    }
}

impl Drop for PlainDaemon {
    fn drop(&mut self) {
        let _ = self.defib(&["down", "--all"]);
        // A user with processes cannot be removed; the test made the user, so they are its own.
        let _ = Command::new("pkill").args(["-KILL", "-u", &self.user.uid.to_string()]).status();
    }
}
