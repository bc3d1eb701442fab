//! Confining a run: by Landlock, by a filter of system calls, and by what it cannot become.
//!
//! All that can be prepared is prepared by the keeper, before there is a child: a ruleset behind a
//! descriptor, and filters ready to be loaded. The child makes a handful of system calls and
//! allocates nothing ([`Confinement::enter`]). Everything that descends from it is confined as well,
//! and nothing of it can be taken back.
//!
//! What a kernel cannot enforce is left out, and [`support`] says so; what it can and then does not is
//! an error, and the run does not begin.

mod filter;
pub(crate) mod namespaces;
mod ruleset;
mod shield;

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::errno::last_errno;
use crate::protocol::{Isolation, IsolationKind, Ports, Profile};
use filter::{Filter, Filters};
use shield::Shield;

/// What this kernel can hold a run to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Support {
    /// The version of Landlock's interface; zero where there is none.
    pub landlock: u32,
    /// Whether system calls can be filtered.
    pub seccomp: bool,
    /// Whether a run can have mounts of its own, which limit `chmod` and its kin to what it may write.
    pub mounts: bool,
    /// Whether a run can have user, mount, pid, ipc and net namespaces of its own.
    pub namespaces: bool,
}

/// Asks the kernel, once per process.
pub fn support() -> Support {
    static SUPPORT: std::sync::OnceLock<Support> = std::sync::OnceLock::new();
    *SUPPORT.get_or_init(ask_kernel)
}

fn ask_kernel() -> Support {
    // SAFETY: without attributes and with this flag, the call only says a version.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, VERSION_FLAG)
    };
    // SAFETY: takes numbers, and says which mode is in force.
    let seccomp = unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) } >= 0;
    Support {
        landlock: u32::try_from(version).unwrap_or(0),
        seccomp: seccomp && filter::is_known(),
        mounts: shield::is_possible(),
        namespaces: namespaces::is_possible(),
    }
}

/// Whether something can be done, tried by a child of this process that does nothing else.
fn tried_in_child(attempt: impl Fn() -> Result<(), Errno>) -> bool {
    // SAFETY: the child makes system calls only, as `attempt` promises, and leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = i32::from(attempt().is_err());
        // SAFETY: ends the child, and runs nothing of its parent's on the way.
        unsafe { libc::_exit(code) };
    }
    let mut status = -1;
    loop {
        // SAFETY: `status` outlives the call. The child is this function's own.
        let waited = pid > 0 && unsafe { libc::waitpid(pid, &raw mut status, 0) } < 0;
        if !waited || last_errno() != Errno::INTR {
            break;
        }
    }
    pid > 0 && status == 0
}

const VERSION_FLAG: u32 = 1;

/// Prepares confinements. Keeps the filters that it has made: there are but a few.
#[derive(Default)]
pub(crate) struct Sandbox {
    support: Option<Support>,
    filters: Filters,
}

impl Sandbox {
    /// What a run is confined to by a profile, and the ruleset that its child is to be handed.
    /// `terminal` is the run's own, if it has one.
    pub(crate) fn confine(
        &mut self,
        profile: &Profile,
        terminal: Option<BorrowedFd<'_>>,
    ) -> Result<(Confinement, Option<OwnedFd>), Errno> {
        let Isolation { kind, writes, mounts, .. } = profile.isolation;
        let support = *self.support.get_or_insert_with(support);
        let ruleset = ruleset::new(profile, terminal, support.landlock)?;
        let filter = if support.seccomp {
            let net = profile.connect == Ports::All && profile.listen == Ports::All;
            let Profile { udp, subprocess, .. } = *profile;
            let own = kind == IsolationKind::Namespaces;
            Some(self.filters.of(Filter {
                net,
                udp,
                subprocess,
                attributes: writes || own,
                times: writes || own || mounts,
                ipc: own,
                memory_programs: !own,
            })?)
        } else {
            None
        };
        let is_shielded = kind == IsolationKind::Landlock && mounts;
        let shield = is_shielded.then(|| Shield::new(profile)).transpose()?;
        Ok((
            Confinement { is_handed_over: false, shield, has_ruleset: ruleset.is_some(), filter },
            ruleset,
        ))
    }
}

/// What a child does to be confined.
pub(crate) struct Confinement {
    /// The program that is executed confines itself, by what is in the second slot.
    is_handed_over: bool,
    shield: Option<Shield>,
    has_ruleset: bool,
    filter: Option<filter::Program>,
}

impl Confinement {
    pub(crate) fn handed_over() -> Confinement {
        Confinement { is_handed_over: true, shield: None, has_ruleset: false, filter: None }
    }

    /// Gives this process mounts of its own, if its profile asks for them. This needs root's rights or none,
    /// so it comes before the change of user.
    ///
    /// For the child between its clone and its program: makes system calls and nothing else.
    pub(crate) fn raise_shield(&self) -> Result<(), Errno> {
        self.shield.as_ref().map_or(Ok(()), Shield::raise)
    }

    /// Confines this process, by the ruleset that was handed to it.
    ///
    /// For the child between its clone and its program: makes system calls and nothing else.
    pub(crate) fn enter(&self, ruleset: &OwnedFd) -> Result<(), Errno> {
        if self.is_handed_over {
            return namespaces::keep_open(ruleset);
        }
        drop_capabilities()?;
        // SAFETY: takes numbers only.
        checked(i64::from(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }))?;
        if self.has_ruleset {
            // SAFETY: takes a descriptor and flags, and changes this process's rights only.
            checked(unsafe {
                libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0)
            })?;
        }
        match &self.filter {
            Some(filter) => filter.load(),
            None => Ok(()),
        }
    }
}

/// What root can do beyond others, given up for good: in this process, and in what programs could
/// regain.
fn drop_capabilities() -> Result<(), Errno> {
    // More than any kernel has; the first that it does not know ends the list.
    for capability in 0..64 {
        // SAFETY: takes numbers only.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } != 0 {
            match last_errno() {
                // One who may not drop them has none to regain: no program gives any from here on.
                Errno::INVAL | Errno::PERM => break,
                other => return Err(other),
            }
        }
    }
    // SAFETY: takes numbers only. Kernels without ambient capabilities have none to clear.
    let _ = unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) };
    let header = CapabilityHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let none = [CapabilityData::default(); 2];
    // SAFETY: both are laid out as the kernel wants them, two sets of data for this version, and
    // outlive the call, which only reads them.
    checked(unsafe { libc::syscall(libc::SYS_capset, std::ptr::from_ref(&header), none.as_ptr()) })
}

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// As the kernel lays it out (`struct __user_cap_header_struct`).
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

/// As the kernel lays it out (`struct __user_cap_data_struct`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

fn checked(result: i64) -> Result<(), Errno> {
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}
