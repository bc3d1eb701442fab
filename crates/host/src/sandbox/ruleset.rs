//! A profile as a Landlock ruleset: files, TCP ports, signals and abstract sockets.
//!
//! The kernel's version decides what can be handled; what it cannot is left out by the `landlock`
//! crate, and said by whoever asks [`super::support`]. A path that does not exist gives no rule.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::protocol::{Access, Ports, Profile};

/// The newest version whose rights are known here. A right that is not handled is not taken away, so a
/// newer kernel confines no more than this.
const KNOWN: ABI = ABI::V7;

/// The ruleset of a profile; nothing where the kernel has no Landlock.
pub(super) fn new(
    profile: &Profile,
    terminal: Option<BorrowedFd<'_>>,
    version: u32,
) -> Result<Option<OwnedFd>, Errno> {
    if version == 0 {
        return Ok(None);
    }
    // Nothing in here depends on the profile's texts but what the kernel says of them, and that is
    // looked at below: an error is one of the kernel's, such as too many rules.
    let ruleset = build(profile, terminal).map_err(|_| Errno::INVAL)?;
    Ok(ruleset.into())
}

fn build(
    profile: &Profile,
    terminal: Option<BorrowedFd<'_>>,
) -> Result<RulesetCreated, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(KNOWN))?
        .scope(Scope::from_all(KNOWN))?;
    for (ports, access) in
        [(&profile.connect, AccessNet::ConnectTcp), (&profile.listen, AccessNet::BindTcp)]
    {
        // Ports are only looked at where not all of them are allowed.
        if *ports != Ports::All {
            ruleset = ruleset.handle_access(access)?;
        }
    }
    let mut created = ruleset.create()?;
    for (path, access) in &profile.paths {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let Ok(place) = rustix::fs::open(path.as_str(), flags, Mode::empty()) else { continue };
        let rights = rights(*access, &place);
        if !rights.is_empty() {
            created = created.add_rule(PathBeneath::new(place, rights))?;
        }
    }
    if let Some(terminal) = terminal {
        let own = Access { read: true, write: true, exec: false };
        created = created.add_rule(PathBeneath::new(terminal, rights(own, terminal)))?;
    }
    for (ports, access) in
        [(&profile.connect, AccessNet::ConnectTcp), (&profile.listen, AccessNet::BindTcp)]
    {
        if let Ports::Only(ports) = ports {
            for port in ports {
                created = created.add_rule(NetPort::new(*port, access))?;
            }
        }
    }
    Ok(created)
}

/// What an access is to Landlock, at a folder or at something else.
fn rights(access: Access, place: impl AsFd) -> BitFlags<AccessFs> {
    let mut rights = BitFlags::empty();
    if access.read {
        rights |= AccessFs::ReadFile | AccessFs::ReadDir;
    }
    if access.exec {
        // The kernel reads what it runs.
        rights |= AccessFs::Execute | AccessFs::ReadFile;
    }
    if access.write {
        // Also to control a device that may be written.
        rights |= AccessFs::from_write(KNOWN);
    }
    let is_folder = rustix::fs::fstat(place)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
    if is_folder { rights } else { rights & AccessFs::from_file(KNOWN) }
}
