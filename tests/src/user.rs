//! A user of the machine for one test, and a bench that belongs to that user.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use crate::{Bench, await_that, bench, defib_path};

/// A user without privileges, made by `useradd` and removed when this is dropped.
pub struct PlainUser {
    name: String,
    /// The user's number.
    pub uid: u32,
    /// The number of the user's group.
    pub gid: u32,
}

impl PlainUser {
    /// Makes one. `None`, with the reason on standard error: only root can, and only with `useradd`.
    pub fn new(word: &str) -> Option<PlainUser> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("no user was created: only root can. This test ran as a plain user anyway");
            return None;
        }
        let name = format!("d{word}{}", std::process::id());
        let add = || {
            let mut add = Command::new("useradd");
            add.args(["--no-create-home", "--shell", "/bin/sh", &name]).stderr(Stdio::null());
            add.status()
        };
        if add().is_err() {
            eprintln!("no user was created: there is no useradd. Not run as a plain user");
            return None;
        }
        // Another test may hold the lock of the user files.
        let number = |flag: &str| {
            let told =
                Command::new("id").args([flag, &name]).stderr(Stdio::null()).output().ok()?;
            String::from_utf8(told.stdout).ok()?.trim().parse::<u32>().ok()
        };
        await_that("a user", || number("-u").is_some() || add().is_ok_and(|made| made.success()));
        let (uid, gid) = (number("-u").expect("a number"), number("-g").expect("a number"));
        Some(PlainUser { name, uid, gid })
    }

    /// A bench whose commands run as this user, with a copy of both programs that the user can reach.
    pub fn bench(&self, agent: &str) -> Bench {
        let mut bench = bench(agent);
        let root = bench.root.path();
        let programs = root.join("b");
        std::fs::create_dir(&programs).unwrap();
        for (from, to) in [(defib_path(), "defib"), (agent.as_ref(), "agent")] {
            std::fs::copy(from, programs.join(to)).unwrap();
            std::fs::set_permissions(programs.join(to), Permissions::from_mode(0o755)).unwrap();
        }
        for folder in [root, &root.join("p")] {
            chown(folder, Some(self.uid), Some(self.gid)).unwrap();
        }
        bench.agent = programs.join("agent").display().to_string();
        bench.user = Some((self.uid, self.gid, programs.join("defib")));
        bench
    }

    /// Makes a command run as this user.
    pub fn becomes(&self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
    }
}

impl Drop for PlainUser {
    fn drop(&mut self) {
        let remove = || Command::new("userdel").arg(&self.name).stderr(Stdio::null()).status();
        for _ in 0..100 {
            if remove().is_ok_and(|gone| gone.success() || gone.code() == Some(6)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        eprintln!("the user {} could not be removed", self.name);
    }
}
