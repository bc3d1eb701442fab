//! Whether a run lives, and what it says of itself.
//!
//! An agent speaks by its token over the API, by its heartbeat file and by its notify socket; from
//! outside it is probed, and watched for silence. All of it becomes inputs for the core, which
//! decides; nothing here ends a run.

mod heartbeat;
mod linger;
mod notify;
mod probe;
mod sockets;
mod token;
mod vigil;

pub(crate) use notify::{Word, words};
pub(crate) use probe::{Probed, watch as watch_probe};
pub(crate) use sockets::Sockets;
pub(crate) use token::{TokenHash, mint};
pub(crate) use vigil::{Shown, Sign, Vigil, Watch};

use std::collections::{BTreeMap, HashMap};

use defib_core::{Name, RunId, screen};
use defib_host::pack;
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

/// What the latest runs of all agents say and are known by.
#[derive(Debug, Default)]
pub(crate) struct Owns {
    by_name: BTreeMap<Name, Own>,
    /// Whose token hashes to this: with a thousand agents nobody goes through all of them.
    by_hash: HashMap<TokenHash, Name>,
}

impl Owns {
    pub(crate) fn get(&self, name: &Name) -> Option<&Own> {
        self.by_name.get(name)
    }

    pub(crate) fn get_mut(&mut self, name: &Name) -> Option<&mut Own> {
        self.by_name.get_mut(name)
    }

    /// The token of the agent's run before is none any more.
    pub(crate) fn insert(&mut self, name: Name, own: Own) {
        self.by_hash.insert(own.hash, name.clone());
        if let Some(old) = self.by_name.insert(name, own) {
            self.by_hash.remove(&old.hash);
        }
    }

    pub(crate) fn remove(&mut self, name: &Name) -> Option<Own> {
        let own = self.by_name.remove(name)?;
        self.by_hash.remove(&own.hash);
        Some(own)
    }

    /// Takes no more memory than it needs.
    pub(crate) fn pack(&mut self) {
        pack(&mut self.by_name);
        self.by_hash.shrink_to_fit();
    }

    /// Whose token it is.
    pub(crate) fn bearer(&self, token: &str) -> Option<(&Name, &Own)> {
        self.by_name.get_key_value(self.by_hash.get(&TokenHash::of(token))?)
    }
}

impl FromIterator<(Name, Own)> for Owns {
    fn from_iter<I: IntoIterator<Item = (Name, Own)>>(all: I) -> Owns {
        let mut owns = Owns::default();
        for (name, own) in all {
            owns.insert(name, own);
        }
        owns
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

/// A text that fits on one line of any terminal: without control sequences, and not too long.
pub(crate) fn one_line(text: &str) -> String {
    screen::one_line(text.trim()).chars().take(LONGEST_TEXT).collect()
}
