//! Mounts that limit a run's changes to the places that its profile lets it write.
//!
//! Landlock does not control `chmod` and its kin, and a filter of system calls cannot read a path. So a run that
//! may write somewhere gets a mount namespace of its own, in which every mount is read-only except the places
//! that it may write. `/proc`, `/sys` and defib's home stay read-only even if a token names a folder above them.
//! Root makes the mount namespace by itself; another user needs a user namespace for that, in which the run keeps
//! its user id and its main group id.

use std::cell::Cell;
use std::ffi::{CStr, CString};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::DumpableBehavior;

use super::checked;
use crate::errno::last_errno;
use crate::protocol::Profile;

/// Read-only in every shield: files in there change other processes and the machine.
const KERNEL: [&str; 2] = ["/proc", "/sys"];

/// What a child does to get such mounts. Everything that needs memory is prepared by the keeper.
pub(crate) struct Shield {
    user: Option<UserNamespace>,
    /// The shortest path first, so that a place in a folder is mounted after the folder.
    places: Vec<Place>,
    /// Whether a token lets the run write everywhere.
    everywhere: bool,
}

struct Place {
    path: CString,
    writable: bool,
    /// The tree to be mounted there, while the child is at work.
    tree: Cell<i32>,
}

/// A user namespace with one user and one group, those of the keeper.
pub(super) struct UserNamespace {
    users: String,
    groups: String,
}

impl UserNamespace {
    /// Root needs none.
    pub(super) fn needed() -> Option<UserNamespace> {
        (!rustix::process::geteuid().is_root()).then(UserNamespace::own)
    }

    /// With this process's user and group.
    pub(super) fn own() -> UserNamespace {
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        let map = |id: u32| format!("{id} {id} 1\n");
        UserNamespace { users: map(user.as_raw()), groups: map(group.as_raw()) }
    }

    /// The flag for `unshare`.
    pub(super) fn flag(user: Option<&UserNamespace>) -> i32 {
        if user.is_some() { libc::CLONE_NEWUSER } else { 0 }
    }

    /// Gives the ids their meaning, in the process that is in the namespace already.
    pub(super) fn map(&self) -> Result<(), Errno> {
        let files = [
            (c"/proc/self/setgroups", "deny"),
            (c"/proc/self/uid_map", self.users.as_str()),
            (c"/proc/self/gid_map", self.groups.as_str()),
        ];
        // These files belong to root as long as the process is not dumpable. A child that is being made shares
        // this with the keeper, so it is taken back at once.
        let before = rustix::process::dumpable_behavior()?;
        rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
        let written = files.into_iter().try_for_each(|(file, text)| {
            let file = rustix::fs::open(file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
            rustix::io::write(&file, text.as_bytes()).map(drop)
        });
        rustix::process::set_dumpable_behavior(before)?;
        written
    }
}

impl Shield {
    pub(super) fn new(profile: &Profile) -> Result<Shield, Errno> {
        let is_below = |path: &str, folder: &str| {
            let rest = path.strip_prefix(folder.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        // By their real paths: a mount through a symlink would cover one that protects a place behind it.
        let protected: Vec<String> = profile
            .isolation
            .protected
            .iter()
            .map(|path| real(path))
            .chain(KERNEL.map(real))
            .collect();
        let protected = || protected.iter().map(String::as_str);
        let writable: Vec<String> =
            profile.paths.iter().filter(|(_, may)| may.write).map(|(path, _)| real(path)).collect();
        let writable = || writable.iter().map(String::as_str);
        // A place in a folder that is writable anyway stays in that folder's mount, because a mount point can
        // neither be renamed nor replaced.
        let is_covered = |path: &str| {
            writable().any(|folder| {
                let between = |kept: &str| is_below(path, kept) && is_below(kept, folder);
                folder.len() < path.len() && is_below(path, folder) && !protected().any(between)
            })
        };
        let mut places: Vec<(&str, bool)> =
            writable().filter(|path| !is_covered(path)).map(|path| (path, true)).collect();
        let everywhere = places.iter().any(|(path, _)| path.chars().all(|part| part == '/'));
        places.retain(|(path, _)| path.chars().any(|part| part != '/'));
        places.extend(protected().map(|path| (path, false)));
        places.sort_by_key(|(path, writable)| (path.len(), *writable));
        places.dedup();
        let place = |(path, writable)| {
            let path = CString::new(path).map_err(|_| Errno::INVAL)?;
            Ok(Place { path, writable, tree: Cell::new(-1) })
        };
        let places = places.into_iter().map(place).collect::<Result<_, Errno>>()?;
        Ok(Shield { user: UserNamespace::needed(), places, everywhere })
    }

    /// Makes the mounts. For the child between its clone and its program: it makes system calls only.
    pub(crate) fn raise(&self) -> Result<(), Errno> {
        unshare(libc::CLONE_NEWNS | UserNamespace::flag(self.user.as_ref()))?;
        if let Some(user) = &self.user {
            user.map()?;
        }
        propagate(libc::MS_PRIVATE)?;
        for place in self.places.iter().filter(|place| place.writable) {
            // Devices need no mount: a read-only one does not keep them from being written.
            let is_wanted = rustix::fs::stat(place.path.as_c_str()).is_ok_and(|found| {
                let kind = rustix::fs::FileType::from_raw_mode(found.st_mode);
                kind.is_dir() || kind.is_file()
            });
            place.tree.set(if is_wanted { clone_tree(&place.path)? } else { -1 });
        }
        if !self.everywhere {
            set_attributes(libc::AT_FDCWD, c"/", MOUNT_ATTR_RDONLY)?;
        }
        for place in &self.places {
            if !place.writable
                && rustix::fs::access(place.path.as_c_str(), rustix::fs::Access::EXISTS).is_ok()
            {
                let tree = clone_tree(&place.path)?;
                place.tree.set(tree);
                set_attributes(tree, c"", MOUNT_ATTR_RDONLY)?;
            }
            let tree = place.tree.replace(-1);
            if tree >= 0 {
                attach(tree, &place.path)?;
            }
        }
        Ok(())
    }
}

/// The path without symlinks; as it is, if it leads nowhere.
fn real(path: &str) -> String {
    let found = std::fs::canonicalize(path).ok();
    found.and_then(|found| found.into_os_string().into_string().ok()).unwrap_or(path.to_owned())
}

/// Whether this process can have a shield: it tries, in a child.
pub(super) fn is_possible() -> bool {
    let user = UserNamespace::needed();
    let flags = libc::CLONE_NEWNS | UserNamespace::flag(user.as_ref());
    super::tried_in_child(|| {
        unshare(flags)?;
        user.as_ref().map_or(Ok(()), UserNamespace::map)?;
        propagate(libc::MS_PRIVATE)?;
        set_attributes(libc::AT_FDCWD, c"/", MOUNT_ATTR_RDONLY)
    })
}

pub(super) const MOUNT_ATTR_RDONLY: u64 = 1;
const OPEN_TREE_CLONE: u32 = 1;
const MOVE_MOUNT_F_EMPTY_PATH: u32 = 4;
/// Follow a symlink at the end of the path.
const MOVE_MOUNT_T_SYMLINKS: u32 = 0x10;

/// As the kernel lays it out (`struct mount_attr`).
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

pub(super) fn unshare(flags: i32) -> Result<(), Errno> {
    // SAFETY: takes a number, and gives this process namespaces of its own.
    checked(i64::from(unsafe { libc::unshare(flags) }))
}

/// Whether mounts from here reach other namespaces, and those from there this one.
pub(super) fn propagate(how: libc::c_ulong) -> Result<(), Errno> {
    let (none, root) = (std::ptr::null(), c"/".as_ptr());
    // SAFETY: the path is a constant; nothing else is read.
    checked(i64::from(unsafe { libc::mount(none, root, none, libc::MS_REC | how, none.cast()) }))
}

/// A copy of the mounts at and below a path, not mounted anywhere yet.
pub(super) fn clone_tree(path: &CStr) -> Result<i32, Errno> {
    let flags = OPEN_TREE_CLONE | (libc::AT_RECURSIVE | libc::O_CLOEXEC).cast_unsigned();
    // SAFETY: the path outlives the call; the result is a new descriptor.
    let tree = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    if tree < 0 { Err(last_errno()) } else { i32::try_from(tree).map_err(|_| Errno::MFILE) }
}

/// Sets attributes of a mount and of all below it.
pub(super) fn set_attributes(folder: i32, path: &CStr, set: u64) -> Result<(), Errno> {
    let attributes = MountAttributes { set, clear: 0, propagation: 0, user_namespace: 0 };
    let flags = libc::AT_RECURSIVE | if path.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
    // SAFETY: the path and the attributes outlive the call, which only reads them; the size is theirs.
    checked(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            folder,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    })
}

/// Mounts a tree at a path and closes its descriptor.
pub(super) fn attach(tree: i32, path: &CStr) -> Result<(), Errno> {
    let flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_SYMLINKS;
    // SAFETY: both paths outlive the call, which reads them only.
    let moved = checked(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree,
            c"".as_ptr(),
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
        )
    });
    // SAFETY: `clone_tree` opened it for this, and its number is used nowhere after this.
    unsafe { libc::close(tree) };
    moved
}
