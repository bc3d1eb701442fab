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
mod ruleset;

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::errno::last_errno;
use crate::protocol::{Ports, Profile};
use filter::{Filter, Filters};

/// What this kernel can hold a run to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Support {
    /// The version of Landlock's interface; zero where there is none.
    pub landlock: u32,
    /// Whether system calls can be filtered.
    pub seccomp: bool,
}

/// Asks the kernel.
pub fn support() -> Support {
    // SAFETY: without attributes and with this flag, the call only says a version.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, VERSION_FLAG)
    };
    // SAFETY: takes numbers, and says which mode is in force.
    let seccomp = unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) } >= 0;
    Support {
        landlock: u32::try_from(version).unwrap_or(0),
        seccomp: seccomp && filter::is_known(),
    }
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
        let support = *self.support.get_or_insert_with(support);
        let ruleset = ruleset::new(profile, terminal, support.landlock)?;
        let filter = if support.seccomp {
            let net = profile.connect == Ports::All && profile.listen == Ports::All;
            let Profile { udp, subprocess, .. } = *profile;
            Some(self.filters.of(Filter { net, udp, subprocess })?)
        } else {
            None
        };
        Ok((Confinement { has_ruleset: ruleset.is_some(), filter }, ruleset))
    }
}

/// What a child does to be confined.
pub(crate) struct Confinement {
    has_ruleset: bool,
    filter: Option<filter::Program>,
}

impl Confinement {
    /// Confines this process, by the ruleset that was handed to it.
    ///
    /// For the child between its clone and its program: makes system calls and nothing else.
    pub(crate) fn enter(&self, ruleset: &OwnedFd) -> Result<(), Errno> {
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
