//! `defib up` as the first process of a container: it becomes the keeper.
//!
//! Whoever stops a container tells its first process. That has to be the keeper: then TERM is an orderly
//! stop that leaves the goals as they are, and the agents come back with the container. So `up` starts
//! itself once more, as the front that brings the project up and shows what happens, and goes on as the
//! keeper. The front descends from the keeper as agents do; the daemon is told which one it is.
//!
//! Invariant: a signal that comes at any moment after the first is heeded by the keeper. The kernel
//! drops what nobody waits for where the first process is concerned, so it is held until then.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use defib_host::Front;
use rustix::process::{Pid, Signal};

use super::{ConfigFile, Context};
use crate::client::is_plain;
use crate::failure::{Code, Failure};

/// Says to an `up` that it is the front of a keeper that is there already.
pub(super) const BESIDE_KEEPER: &str = "beside-keeper";

/// Whether this is the first process of a container.
pub(super) fn is_first() -> bool {
    rustix::process::getpid() == Pid::INIT
}

/// Becomes the keeper, and has a front bring the project up. Returns only where that cannot be.
pub(super) fn become_keeper(context: &Context, file: &ConfigFile) -> Result<(), Failure> {
    defib_host::hold_signals();
    // The front says what is to be said of a file that can be used.
    let loaded = file.load()?;
    if loaded.outcome.config.is_none() {
        anstream::eprint!("{}", loaded.render(true));
        return Err(Failure::told(Code::Config));
    }
    let home = context.home()?;
    home.create()?;
    let failed = |error: std::io::Error| Failure::new(Code::Failed, error);
    let program = std::env::current_exe().map_err(failed)?;
    let mut front = Command::new(&program)
        .args(std::env::args_os().skip(1))
        .arg(format!("--{BESIDE_KEEPER}"))
        .spawn()
        .map_err(failed)?;
    let known = Front::of(front.id());
    let mut keeper = Command::new(program);
    keeper.args(["internal", "keeper", "--for-up", "--home"]).arg(home.path());
    keeper.args(known.map(|known| format!("--front={known}")));
    let error = keeper
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .current_dir("/")
        // Agents can look at the first process; what is secret is the front's to hand over.
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| is_plain(name)))
        .exec();
    let _ = front.kill();
    Err(failed(error))
}

/// Ends the keeper at once: there is nothing for it to keep. By two signals, the second of which says
/// that nobody waits; two of one kind could be taken for one.
pub(super) fn end_keeper() {
    for signal in [Signal::TERM, Signal::INT] {
        let _ = rustix::process::kill_process(Pid::INIT, signal);
    }
}
