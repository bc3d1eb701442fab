//! What a sandbox comes to on this kernel, in words: what each token gives, what is enforced, what is
//! not and why.

use defib_core::{Capability, Name};
use defib_host::protocol::IsolationKind;
use defib_host::sandbox::Support;

use super::gaps::{self, Sandboxed};
use super::{implied, isolation};
use crate::wire::{Caps, TokenLine};

/// Each token, where it is from, and what it gives.
pub(crate) fn tokens(
    tokens: &[Capability],
    granted: impl Fn(&Capability) -> bool,
) -> Vec<TokenLine> {
    let line = |token: &Capability| TokenLine {
        capability: token.to_string(),
        by: if granted(token) { "operator" } else { "file" }.to_owned(),
        gives: gives(token),
    };
    tokens.iter().map(line).collect()
}

fn gives(token: &Capability) -> String {
    match token {
        Capability::Read(path) => format!("read files and folders at and below {path}"),
        Capability::Write(path) => {
            format!("write, make, rename and remove at and below {path}; not read")
        }
        Capability::Exec(path) => {
            format!("run programs at and below {path}, with their loaders and interpreters")
        }
        Capability::Net => "all of the network: TCP and UDP, out and in".to_owned(),
        Capability::NetPort(port) => format!("connect to TCP port {port}; UDP to anywhere is open"),
        Capability::Listen(port) => format!("listen on TCP port {port}"),
        Capability::WorkspaceRw => {
            "read and write in its folder, its state folder and the temporary folder".to_owned()
        }
        Capability::ReadAnywhere => "read every file".to_owned(),
        Capability::Subprocess => "make processes".to_owned(),
        Capability::Privileged => "everything: it has no sandbox".to_owned(),
    }
}

/// What does not depend on runs or operators. No tokens: no sandbox.
pub(crate) fn caps(
    agent: Name,
    tokens: Option<&[Capability]>,
    kind: IsolationKind,
    support: Support,
) -> Caps {
    let confined = tokens.filter(|tokens| !tokens.contains(&Capability::Privileged));
    let (mut enforced, mut not_enforced) = (Vec::new(), Vec::new());
    match confined {
        Some(tokens) => {
            let isolation = isolation(kind, tokens);
            let sandboxed = Sandboxed { tokens, isolation: &isolation, support };
            enforced = enforced_by(&sandboxed);
            not_enforced.extend(gaps::open(&sandboxed).map(|gap| gap.text.to_owned()));
            not_enforced.extend(missing(support));
        }
        None if tokens.is_some() => not_enforced.push("anything: it is privileged".to_owned()),
        None => not_enforced.push("anything: its file gives it no `capabilities`".to_owned()),
    }
    let implied = confined.map(|_| implied::IN_WORDS.map(str::to_owned).to_vec());
    Caps {
        agent,
        sandbox: confined.is_some(),
        isolation: confined.map(|_| word(kind).to_owned()),
        run: None,
        capabilities: None,
        capabilities_pending: None,
        tokens: Vec::new(),
        revoked: Vec::new(),
        implied: implied.unwrap_or_default(),
        enforced,
        not_enforced,
        warnings: Vec::new(),
        landlock_abi: support.landlock,
        seccomp: support.seccomp,
    }
}

fn word(kind: IsolationKind) -> &'static str {
    match kind {
        IsolationKind::Landlock => "landlock",
        IsolationKind::Namespaces => "namespaces",
    }
}

/// What Landlock controls, and since which version.
const BY_LANDLOCK: [(u32, &str); 7] = [
    (1, "files and folders: reading, writing, making, removing, running"),
    (2, "moving files between folders that may both be written"),
    (3, "truncating files"),
    (4, "TCP: connecting and listening, by port"),
    (5, "control of devices"),
    (6, "signals to processes outside of it"),
    (6, "abstract Unix sockets of processes outside of it"),
];

fn enforced_by(sandboxed: &Sandboxed<'_>) -> Vec<String> {
    let Sandboxed { tokens, isolation, support } = sandboxed;
    let since = BY_LANDLOCK.iter().filter(|(since, _)| support.landlock >= *since);
    let mut enforced: Vec<&str> = since.map(|(_, what)| *what).collect();
    let own = isolation.kind == IsolationKind::Namespaces;
    if support.seccomp {
        enforced.push(
            "never: ptrace, mount, kexec, bpf, keyctl, io_uring, kernel modules, new user namespaces",
        );
        enforced.push("never: limits, priorities, processors and memory of other processes");
        enforced.push("never: set-user-id and set-group-id bits, and devices");
        if !own {
            enforced.push("never: System V IPC and POSIX message queues");
        }
        if !own && !isolation.writes {
            enforced.push("no changes of mode, owner and extended attributes of files");
        }
        if !tokens.contains(&Capability::Subprocess) {
            enforced.push("no new processes; threads are allowed");
        }
        if !tokens.iter().any(|it| matches!(it, Capability::Net | Capability::NetPort(_))) {
            enforced.push("UDP and raw sockets are shut");
        }
    }
    if !own && isolation.mounts {
        enforced.push(if isolation.writes {
            "mode, owner, times and extended attributes: only of what its tokens let it write"
        } else {
            "times of files: only of its state folder and its heartbeat file"
        });
        enforced.push("defib's home, /proc and /sys are read-only, whatever its tokens name");
    }
    if own {
        enforced.push("it sees its own processes and its own System V IPC only");
        enforced.push("it sees the files that its tokens name, and no others");
        if !isolation.network {
            enforced.push("it has a network of its own, with nothing in it");
        }
    }
    enforced.push("no new privileges, and none of root's");
    enforced.into_iter().map(str::to_owned).collect()
}

/// What this kernel's Landlock cannot control yet. [`gaps::GAPS`] has the rest.
fn missing(support: Support) -> impl Iterator<Item = String> {
    let missing = BY_LANDLOCK.iter().filter(move |(since, _)| support.landlock < *since);
    missing.filter(|(since, _)| *since < 6).map(move |(since, what)| match support.landlock {
        0 => format!("{what}: this kernel has no Landlock"),
        version => {
            format!("{what}: this kernel's Landlock has version {version}, and {since} is needed")
        }
    })
}
