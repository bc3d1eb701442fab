//! What a sandbox leaves open on this machine. `defib caps` and the guide take their list from here, and the
//! survey (`tests/tests/e2e/sandbox_survey.rs`) makes the calls and compares.

use defib_core::Capability;
use defib_host::protocol::{Isolation, IsolationKind};
use defib_host::sandbox::Support;

/// Something that stays open in a sandbox although no token names it.
#[derive(Debug, Clone, Copy)]
pub struct Gap {
    /// Its name in the survey.
    pub key: &'static str,
    /// What people read.
    pub text: &'static str,
    is_open: fn(&Sandboxed<'_>) -> bool,
}

/// A sandbox as it would be made now.
pub(super) struct Sandboxed<'a> {
    pub(super) tokens: &'a [Capability],
    pub(super) isolation: &'a Isolation,
    pub(super) support: Support,
}

impl Sandboxed<'_> {
    fn by_landlock(&self) -> bool {
        self.isolation.kind == IsolationKind::Landlock
    }

    fn has_net(&self) -> bool {
        self.tokens.contains(&Capability::Net)
    }

    fn has_udp(&self) -> bool {
        self.has_net() || self.tokens.iter().any(|token| matches!(token, Capability::NetPort(_)))
    }
}

/// All of them.
pub const GAPS: [Gap; 13] = [
    Gap {
        key: "udp",
        text: "UDP to anywhere: a token for the network opens it",
        is_open: |it| it.has_udp(),
    },
    Gap {
        key: "listen",
        text: "listening on a TCP port that the kernel picks: Landlock controls bind, not listen",
        is_open: |it| !it.has_net() && (it.by_landlock() || it.isolation.network),
    },
    Gap {
        key: "unix-socket",
        text: "Unix sockets with a path, of other processes: Landlock does not control them; file permissions do",
        is_open: |it| it.by_landlock(),
    },
    Gap {
        key: "metadata",
        text: "names, sizes, modes, owners and changes of files (stat, readlink, inotify): Landlock does not control them",
        is_open: |it| it.by_landlock(),
    },
    Gap {
        key: "processes",
        text: "the list of processes in /proc, with their arguments, limits and priorities",
        is_open: |it| it.by_landlock(),
    },
    Gap {
        key: "loader",
        text: "code in files that it may read: the loader runs them without an `exec:` token (`ld.so FILE`)",
        is_open: |it| it.by_landlock(),
    },
    Gap {
        key: "memfd",
        text: "code in memory files: a process runs what it wrote to a memfd without an `exec:` token",
        is_open: |it| it.by_landlock(),
    },
    Gap {
        key: "attributes",
        text: "mode, owner, times, extended attributes and flags of every file of its user: this machine does not permit mount namespaces",
        is_open: |it| it.by_landlock() && it.isolation.writes && !it.isolation.mounts,
    },
    Gap {
        key: "touch",
        text: "setting the times of a file that it has open to now (`touch`)",
        is_open: |it| it.by_landlock() && !it.isolation.writes && !it.isolation.mounts,
    },
    Gap {
        key: "own-code",
        text: "code that it makes in its own memory, and scripts for an interpreter that it may run",
        is_open: |_| true,
    },
    Gap {
        key: "signals",
        text: "signals to processes of its user: this kernel's Landlock has no version 6",
        is_open: |it| it.by_landlock() && it.support.landlock < 6,
    },
    Gap {
        key: "abstract-socket",
        text: "abstract Unix sockets of other processes: this kernel's Landlock has no version 6",
        is_open: |it| it.support.landlock < 6 && (it.by_landlock() || it.isolation.network),
    },
    Gap {
        key: "filter",
        text: "every system call that a filter would refuse: this machine has no filters of system calls",
        is_open: |it| !it.support.seccomp,
    },
];

/// Those that are open in a sandbox.
pub(super) fn open(sandboxed: &Sandboxed<'_>) -> impl Iterator<Item = &'static Gap> {
    GAPS.iter().filter(|gap| (gap.is_open)(sandboxed))
}
