//! Where agents' notify sockets are, and whether there is room for another.
//!
//! Invariant: no two agents have the same path, and there are never so many sockets that a run, a log
//! or a connection could not be had for them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::Arc;

use defib_core::Name;
use defib_host::pack;

/// What the keeper holds for each run: its first process and its output.
const FOR_A_RUN: usize = 2;
/// Descriptors that are nobody's yet: connections, and what keeper and daemon need themselves.
const RESERVE: usize = 200;

/// The notify sockets that the keeper was asked for.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    paths: BTreeMap<Name, Arc<str>>,
    taken: BTreeSet<Arc<str>>,
}

impl Sockets {
    /// Where an agent's is, if it has one.
    pub(crate) fn path_of(&self, agent: &Name) -> Option<&str> {
        self.paths.get(agent).map(|path| &**path)
    }

    /// Whether one more leaves room for the runs of so many agents, under this limit.
    pub(crate) fn has_room(&self, agents: usize, limit: usize) -> bool {
        FOR_A_RUN * agents + self.paths.len() < limit.saturating_sub(RESERVE)
    }

    /// A path for an agent that has none: no longer than that of the home's own socket, because a
    /// socket's path has to be short. Two agents whose names come to the same get different ones.
    pub(crate) fn claim(&mut self, home: &Path, agent: &Name) -> String {
        let mut hasher = DefaultHasher::new();
        agent.as_str().hash(&mut hasher);
        let mut number = hasher.finish() & 0xffff_ffff;
        loop {
            let path = home.join("n").join(format!("{number:08x}")).to_string_lossy().into_owned();
            if !self.taken.contains(path.as_str()) {
                self.insert(agent.clone(), &path);
                return path;
            }
            number = (number + 1) & 0xffff_ffff;
        }
    }

    /// An agent's socket is there.
    pub(crate) fn insert(&mut self, agent: Name, path: &str) {
        self.remove(&agent);
        let path: Arc<str> = path.into();
        self.taken.insert(path.clone());
        self.paths.insert(agent, path);
    }

    /// Takes no more memory than it needs.
    pub(crate) fn pack(&mut self) {
        pack(&mut self.paths);
        self.taken = std::mem::take(&mut self.taken).into_iter().collect();
    }

    /// It is not, or no longer. Says whether it was.
    pub(crate) fn remove(&mut self, agent: &Name) -> bool {
        let path = self.paths.remove(agent);
        path.is_some_and(|path| self.taken.remove(&path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_agent_has_a_path_of_its_own_which_is_free_again_after_it() {
        let (ann, bob) = (Name::parse("ann").unwrap(), Name::parse("bob").unwrap());
        let home = Path::new("/home");
        let mut sockets = Sockets::default();
        let first = sockets.claim(home, &ann);
        assert_eq!(sockets.path_of(&ann), Some(first.as_str()));
        assert!(sockets.remove(&ann));
        assert!(!sockets.remove(&ann));
        sockets.insert(bob.clone(), &first);
        let second = sockets.claim(home, &ann);
        assert_ne!(second, first);
        assert!(sockets.remove(&bob));
        assert!(sockets.remove(&ann));
        assert_eq!(sockets.claim(home, &ann), first);
    }

    #[test]
    fn runs_come_before_sockets() {
        let mut sockets = Sockets::default();
        assert!(sockets.has_room(1_000, 20_000));
        assert!(sockets.has_room(6_000, 20_000));
        assert!(!sockets.has_room(9_900, 20_000));
        for number in 0..10 {
            sockets.insert(Name::parse(&format!("a{number}")).unwrap(), &format!("/n/{number}"));
        }
        assert!(!sockets.has_room(20, RESERVE + 2 * 20 + 10));
        assert!(sockets.has_room(20, RESERVE + 2 * 20 + 11));
        assert!(!sockets.has_room(20, 100), "a limit below the reserve is no panic");
    }
}
