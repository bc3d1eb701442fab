//! Sessions that agents can take up again.
//!
//! A session is seen in what a run wrote, and is on disk: after a reboot, too, an agent goes on where
//! it was. It is over when the agent has done what it was there for, or is taken down.

use std::collections::BTreeMap;

use defib_autopsy::Opinion;
use defib_core::record::Rest;
use defib_core::{Goal, Name, RunId, What};
use defib_history::{Intent, Intents};
use defib_host::protocol::RunKey;

use super::Engine;

/// No session's name is longer.
const LONGEST: usize = 128;

/// What is known of sessions.
#[derive(Debug)]
pub(super) struct Sessions {
    /// Those that agents can take up again.
    known: BTreeMap<Name, String>,
    /// The runs that took one up.
    pub(super) resumed: BTreeMap<Name, RunId>,
}

impl Sessions {
    /// Those that were seen before us.
    pub(super) fn stored(intents: &Intents) -> Sessions {
        let seen = intents.kept.iter().filter_map(|(key, session)| {
            Some((Name::known(key.strip_prefix("session/")?).ok()?, session.clone()))
        });
        Sessions { known: seen.collect(), resumed: BTreeMap::new() }
    }
}

impl Engine {
    /// Remembers the session that a run's output named, where the agent can take it up.
    pub(super) fn note_session(&mut self, key: &RunKey, opinion: &Opinion) {
        let can_resume = self.recipe(&key.agent).is_some_and(|(_, agent)| agent.resume.is_some());
        // It becomes a word of a command line: what is no plain name is none.
        let is_plain = |session: &&String| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
            session.len() <= LONGEST && session.bytes().all(plain) && !session.starts_with('-')
        };
        let Some(session) = opinion.session.as_ref().filter(is_plain).filter(|_| can_resume) else {
            return;
        };
        let known = self.sessions.known.insert(key.agent.clone(), session.clone());
        if known.as_ref() != Some(session) {
            let (key, value) = (format!("session/{}", key.agent), session.clone());
            self.history.store_later([Intent::Keep { key, value }]);
        }
    }

    /// The session that a run takes up, if any.
    pub(super) fn session_for(&mut self, name: &Name, run: RunId, fresh: bool) -> Option<String> {
        if fresh {
            self.forget_session(name);
        }
        let can_resume = self.recipe(name).is_some_and(|(_, agent)| agent.resume.is_some());
        let session = self.sessions.known.get(name).filter(|_| can_resume)?.clone();
        self.sessions.resumed.insert(name.clone(), run);
        Some(session)
    }

    /// The next run begins anew.
    pub(super) fn forget_session(&mut self, name: &Name) {
        if self.sessions.known.remove(name).is_some() {
            self.history.store_later([Intent::Drop { key: format!("session/{name}") }]);
        }
    }

    /// Whether a record ends an agent's session, not only its run.
    pub(super) const fn ends_session(what: &What) -> bool {
        matches!(what, What::Rested { rest: Rest::Done } | What::Stopped { goal: Goal::Down })
    }
}
