//! A daemon of a user who is not root, made by root for a test.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::{Ran, await_some, defib_path};

/// A plain user with a folder, a project and a home of its own.
pub struct PlainUser {
    folder: TempDir,
    name: String,
    id: u32,
}

impl PlainUser {
    /// `None`, with a word why, if this process may not make users or the machine has no `useradd`.
    #[must_use]
    pub fn new() -> Option<PlainUser> {
        if !rustix::process::geteuid().is_root() {
            println!("not run as a plain user: only root can make one");
            return None;
        }
        let folder = tempfile::Builder::new().prefix("dp").rand_bytes(5).tempdir_in("/tmp").ok()?;
        let ending: String = folder.path().display().to_string().chars().skip(5).collect();
        let name = ending.to_lowercase();
        let made = Command::new("useradd").args(["--no-create-home", &name]).status();
        if !made.is_ok_and(|made| made.success()) {
            println!("not run as a plain user: useradd does not work here");
            return None;
        }
        let users = fs::read_to_string("/etc/passwd").expect("users");
        let line = users.lines().find(|line| line.starts_with(&format!("{name}:")));
        let id = line.and_then(|line| line.split(':').nth(2)?.parse().ok()).expect("an id");
        let user = PlainUser { folder, name, id };
        let binary = user.at("defib");
        fs::copy(defib_path(), &binary).expect("a copy");
        fs::set_permissions(&binary, Permissions::from_mode(0o755)).expect("a mode");
        for place in ["", "p", "p/w"] {
            fs::create_dir_all(user.at(place)).expect("a folder");
            chown(user.at(place), Some(id), Some(id)).expect("an owner");
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
        // The groups go with the user.
        command.uid(self.id).gid(self.id);
        Ran::to_end(command)
    }

    /// Waits until an agent's output is as wanted.
    pub fn await_log(&self, agent: &str, wanted: impl Fn(&str) -> bool) -> String {
        await_some(&format!("output of {agent}"), || {
            Some(self.defib(&["logs", agent]).out).filter(|log| wanted(log))
        })
    }
}

impl Drop for PlainUser {
    fn drop(&mut self) {
        let _ = self.defib(&["down", "--all"]);
        // A user with processes cannot be removed; the test made the user, so they are its own.
        let _ = Command::new("pkill").args(["-KILL", "-u", &self.name]).status();
        let _ = Command::new("userdel").arg(&self.name).status();
    }
}
