//! What a sandbox comes to on this kernel, in words: what each token gives, what is enforced, what is
//! not and why.

use defib_core::{Capability, Name};
use defib_host::sandbox::Support;

use super::implied;
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
pub(crate) fn caps(agent: Name, tokens: Option<&[Capability]>, support: Support) -> Caps {
    let confined = tokens.filter(|tokens| !tokens.contains(&Capability::Privileged));
    let (mut enforced, mut not_enforced) = (Vec::new(), Vec::new());
    match confined {
        Some(tokens) => tell(tokens, support, &mut enforced, &mut not_enforced),
        None if tokens.is_some() => not_enforced.push("anything: it is privileged".to_owned()),
        None => not_enforced.push("anything: its file gives it no `capabilities`".to_owned()),
    }
    let implied = confined.map(|_| implied::IN_WORDS.map(str::to_owned).to_vec());
    Caps {
        agent,
        sandbox: confined.is_some(),
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

/// Each thing that confines, and since when Landlock has it.
fn tell(
    tokens: &[Capability],
    support: Support,
    enforced: &mut Vec<String>,
    not_enforced: &mut Vec<String>,
) {
    let by_landlock = [
        (1, "files and folders: reading, writing, making, removing, running"),
        (2, "moving files between folders that may both be written"),
        (3, "truncating files"),
        (4, "TCP: connecting and listening, by port"),
        (5, "control of devices"),
        (6, "signals to processes outside of it"),
        (6, "abstract Unix sockets of processes outside of it"),
    ];
    for (since, what) in by_landlock {
        if support.landlock >= since {
            enforced.push(what.to_owned());
        } else if support.landlock == 0 {
            not_enforced.push(format!("{what}: this kernel has no Landlock"));
        } else {
            not_enforced.push(format!(
                "{what}: this kernel's Landlock has version {}, and {since} is needed",
                support.landlock
            ));
        }
    }
    let has = |wanted: &Capability| tokens.contains(wanted);
    let has_net = tokens.iter().any(|token| matches!(token, Capability::NetPort(_)));
    let mut by_filter = vec![
        "ptrace, mount, kexec, bpf, keyctl, io_uring, kernel modules, new user namespaces: never",
    ];
    if !has(&Capability::Subprocess) {
        by_filter.push("no new processes; threads are allowed");
    }
    if has(&Capability::Net) || has_net {
        not_enforced.push("UDP: a token for the network leaves it open".to_owned());
    } else {
        by_filter.push("UDP and raw sockets are shut");
    }
    if support.seccomp {
        enforced.extend(by_filter.into_iter().map(str::to_owned));
    } else {
        let unfiltered =
            |what: &str| format!("{what}: this machine has no filters of system calls");
        not_enforced.extend(by_filter.into_iter().map(unfiltered));
    }
    enforced.push("no new privileges, and none of root's".to_owned());
    not_enforced.push(
        "Unix sockets with a path, of others: Landlock does not cover them here; file permissions do"
            .to_owned(),
    );
    if !has(&Capability::Net) {
        not_enforced.push(
            "listening on a TCP port that the kernel picks: Landlock looks at bind, not at listen"
                .to_owned(),
        );
    }
}
