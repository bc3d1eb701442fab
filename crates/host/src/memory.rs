//! A bound on a run's memory, by the memory controller of cgroup v1.
//!
//! Where version 2 has that controller, the bound is one file of the run's own cgroup. Elsewhere the
//! run gets a folder in the older tree, which its first process enters before it runs its program.
//! It refuses to bound anything by half: where neither tree can be had, there is no bound, and the
//! kernel's count of kills stays at zero.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A run's folder in the older tree.
#[derive(Debug)]
pub(crate) struct MemoryBound(PathBuf);

impl MemoryBound {
    /// Makes a folder in which no more than so many bytes can be had.
    pub(crate) fn new(name: &str, bytes: u64) -> Option<MemoryBound> {
        let cgroup = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let folder = find_memory(&cgroup, &mounts)?.join(name);
        std::fs::create_dir(&folder).ok()?;
        let bound = MemoryBound(folder);
        std::fs::write(bound.0.join("memory.limit_in_bytes"), bytes.to_string()).ok()?;
        // Without this the bound is one on what is not swapped out. Not every kernel counts that.
        let _ = std::fs::write(bound.0.join("memory.memsw.limit_in_bytes"), bytes.to_string());
        Some(bound)
    }

    /// The file by which a process enters.
    pub(crate) fn door(&self) -> Option<CString> {
        CString::new(self.0.join("cgroup.procs").as_os_str().as_bytes()).ok()
    }

    /// Whether somebody in it was killed for want of memory.
    pub(crate) fn has_killed(&self) -> bool {
        let text = std::fs::read_to_string(self.0.join("memory.oom_control")).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.is_some_and(|count| count.trim() != "0")
    }
}

impl Drop for MemoryBound {
    fn drop(&mut self) {
        // Where something was left alive in it, it stays.
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// This process's folder in the memory controller's tree.
fn find_memory(cgroup: &str, mounts: &str) -> Option<PathBuf> {
    let own = cgroup.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == "memory").then_some(path)
    })?;
    let point = mounts.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let options = filesystem.strip_prefix("cgroup ")?.rsplit(' ').next()?;
        options.split(',').any(|option| option == "memory").then_some(())?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = own.strip_prefix(root.trim_end_matches('/'))?;
        (!below.contains("..")).then(|| format!("{point}{below}"))
    })?;
    Some(Path::new(&point).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_tree_is_found_by_its_controller() {
        let mounts = "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      32 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      33 23 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let found = find_memory("5:cpu:/\n4:memory:/jobs/7\n0::/\n", mounts);
        assert_eq!(found, Some("/sys/fs/cgroup/memory/jobs/7".into()));
        assert_eq!(find_memory("0::/\n", mounts), None);
        assert_eq!(find_memory("4:memory:/\n", "33 23 0:29 / /x rw - cgroup2 cgroup2 rw\n"), None);
    }
}
