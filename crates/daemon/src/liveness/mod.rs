//! Whether a run lives, and what it says of itself.
//!
//! An agent speaks by its token over the API, by its heartbeat file and by its notify socket; from
//! outside it is probed, and watched for silence. All of it becomes inputs for the core, which
//! decides; nothing here ends a run.

mod heartbeat;
mod notify;
mod probe;
mod sockets;
mod token;
mod vigil;

pub(crate) use notify::Word;
pub(crate) use probe::{Probed, Surroundings, watch as watch_probe};
pub(crate) use sockets::Sockets;
pub(crate) use token::{TokenHash, mint};
pub(crate) use vigil::{Shown, Sign, Vigil, Watch};

use defib_core::RunId;
use serde::{Deserialize, Serialize};

/// The longest text that an agent may say of itself, in characters.
const LONGEST_TEXT: usize = 500;

/// What a run says and is known by; dies with the run, and outlives the daemon in the keeper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Own {
    /// Which run.
    pub(crate) run: RunId,
    /// What its token hashes to.
    pub(crate) hash: TokenHash,
    /// What it says it is doing.
    pub(crate) text: Option<String>,
    /// Why it ends, where that is known before it has ended.
    pub(crate) blame: Option<String>,
}

impl Own {
    pub(crate) const fn new(run: RunId, hash: TokenHash) -> Own {
        Own { run, hash, text: None, blame: None }
    }
}

/// What a run asks for or tells by its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnWord {
    /// It lives.
    Beat,
    /// It is ready.
    Ready,
    /// What it is doing.
    Text(String),
    /// It wants to end, for this reason.
    Shutdown(Option<String>),
}

/// A text as it may be shown on a line: without control characters, and not too long.
pub(crate) fn one_line(text: &str) -> String {
    let shown = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    shown.take(LONGEST_TEXT).collect()
}
