//! What every confined agent gets beside its tokens: what it takes for a program to run, and the ways
//! to its supervisor. `docs/guide/sandbox.md` has the same list in words.

use std::path::Path;

use defib_core::Capability;
use defib_host::protocol::{Profile, SpawnOrder};

use super::{EXEC, READ, READ_WRITE, Surroundings, allow, find_program, program, text};

/// Libraries, and where they are looked for.
pub(super) const LIBRARIES: [&str; 11] = [
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
];

/// What loads libraries, by the names that binaries call it.
const LOADERS: [&str; 4] = [
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
];

/// Facts about the machine and the user that programs ask for at their start. The kernel itself shuts
/// what is other processes' secret in /proc: their environment and their memory.
const FACTS: [&str; 11] = [
    "/proc",
    "/sys/devices/system/cpu",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/localtime",
    "/etc/timezone",
    "/usr/share/zoneinfo",
    "/usr/share/locale",
    "/usr/share/terminfo",
    "/etc/terminfo",
];

/// Devices without anything behind them.
const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// How names become addresses, and whom to trust: with a token for the network.
const NETWORK: [&str; 12] = [
    "/etc/resolv.conf",
    "/run/systemd/resolve",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
];

/// The same, as people are told.
pub(crate) const IN_WORDS: [&str; 5] = [
    "its own command and its probe's, with their loaders or interpreters, may be run",
    "libraries, /proc, time zones, locales, /etc/passwd and the like may be read",
    "/dev/null, zero, full, random, urandom, tty and its own terminal may be used",
    "its state folder and its heartbeat file may be read and written",
    "its notify socket and the daemon's socket may be used, there for itself alone",
];

/// Whether a token gives any part of the network.
pub(super) fn is_network(capability: &Capability) -> bool {
    match capability {
        Capability::Net | Capability::NetPort(_) | Capability::Listen(_) => true,
        Capability::Read(_)
        | Capability::Write(_)
        | Capability::Exec(_)
        | Capability::WorkspaceRw
        | Capability::ReadAnywhere
        | Capability::Subprocess
        | Capability::Privileged => false,
    }
}

/// Adds all of it to a profile.
pub(super) fn add(
    profile: &mut Profile,
    capabilities: &[Capability],
    order: &SpawnOrder,
    surroundings: &Surroundings<'_>,
) {
    let situation = surroundings.situation;
    let mut give = |path: &Path, access| profile.paths.push((text(path), access));
    for (places, access) in
        [(&LIBRARIES[..], READ), (&LOADERS, EXEC), (&FACTS, READ), (&DEVICES, READ_WRITE)]
    {
        for place in places {
            give(Path::new(place), access);
        }
    }
    if capabilities.iter().any(is_network) {
        for place in NETWORK {
            give(Path::new(place), READ);
        }
    }
    give(&situation.state, READ_WRITE);
    if let Some(heartbeat) = &situation.heartbeat {
        give(heartbeat, READ_WRITE);
    }
    let commands = order.argv.first().into_iter().chain(&situation.probe);
    let commands =
        commands.filter_map(|name| find_program(name, surroundings.search, &situation.cwd));
    for command in commands {
        for file in program::needed(&command, surroundings.search, &situation.cwd) {
            give(&file, EXEC);
        }
    }
    if let Some(port) = situation.meter {
        allow(&mut profile.connect, port);
    }
}
