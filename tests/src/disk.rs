//! A small disk for one test, which can be full. Only root can have one.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system of its own, that can be full.
pub struct Disk(PathBuf);

impl Disk {
    /// Makes one of this size, such as `16m`. Nothing where that is not allowed.
    pub fn mount(size: &str) -> Option<Disk> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let folder =
            tempfile::Builder::new().prefix("dm").rand_bytes(5).tempdir_in("/tmp").unwrap();
        let path = folder.keep();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(&path);
        if !mount.status().unwrap().success() {
            std::fs::remove_dir(path).unwrap();
            return None;
        }
        Some(Disk(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// What takes the space.
    pub fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    /// Takes all the space there is.
    pub fn fill(&self) {
        let mut file = std::fs::File::create(self.ballast()).unwrap();
        let block = vec![0; 4096];
        while std::io::Write::write_all(&mut file, &block).is_ok() {}
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.0).status();
        if unmounted.is_ok_and(|status| status.success()) {
            let _ = std::fs::remove_dir(&self.0);
        }
    }
}
