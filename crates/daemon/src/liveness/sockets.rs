//! Where agents' notify sockets are, and whether there is room for another.
//!
//! Invariant: no two agents have the same path, and there are never so many sockets that a run, a log
//! or a connection could not be had for them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use defib_core::Name;
use defib_host::pack;

use crate::places::Outside;

/// What the keeper holds for each run: its first process and its output.
const FOR_A_RUN: usize = 2;
/// Descriptors that are nobody's yet: connections, and what keeper and daemon need themselves.
const RESERVE: usize = 200;

/// The notify sockets that the keeper was asked for. Each is known by a number, which is its file's
/// name in hex: of sockets there may be thousands, and their paths differ in nothing else.
#[derive(Debug)]
pub(crate) struct Sockets {
    folder: PathBuf,
    /// Where the sockets of agents with another user are, and who these are.
    outside: Outside,
    users: BTreeMap<Name, u32>,
    numbers: BTreeMap<Name, u32>,
    taken: BTreeSet<u32>,
}

impl Sockets {
    /// Those of a home.
    pub(crate) fn new(home: &Path) -> Sockets {
        Sockets {
            folder: home.join("n"),
            outside: Outside::of(home),
            users: BTreeMap::new(),
            numbers: BTreeMap::new(),
            taken: BTreeSet::new(),
        }
    }

    /// Where an agent's is, if it has one that this user may send to.
    pub(crate) fn path_for(&self, agent: &Name, user: Option<u32>) -> Option<String> {
        let number = self.numbers.get(agent)?;
        (self.users.get(agent).copied() == user).then(|| self.path(*number, user.is_some()))
    }

    fn path(&self, number: u32, is_outside: bool) -> String {
        let folder = if is_outside { &self.outside.sockets() } else { &self.folder };
        folder.join(format!("{number:08x}")).to_string_lossy().into_owned()
    }

    /// Whether one more leaves room for the runs of so many agents, under this limit.
    pub(crate) fn has_room(&self, agents: usize, limit: usize) -> bool {
        FOR_A_RUN * agents + self.numbers.len() < limit.saturating_sub(RESERVE)
    }

    /// A path for an agent that has none: no longer than that of the home's own socket, because a
    /// socket's path has to be short. Two agents whose names come to the same get different ones. The
    /// socket of an agent with another user is outside of the home, in a folder that is there then.
    pub(crate) fn claim(&mut self, agent: &Name, user: Option<u32>) -> String {
        let mut hasher = DefaultHasher::new();
        agent.as_str().hash(&mut hasher);
        let [a, b, c, d, ..] = hasher.finish().to_le_bytes();
        let mut number = u32::from_le_bytes([a, b, c, d]);
        while self.taken.contains(&number) {
            number = number.wrapping_add(1);
        }
        self.insert_number(agent.clone(), number);
        if let Some(user) = user {
            self.users.insert(agent.clone(), user);
            // Without it the keeper says that there is no socket.
            let _ = self.outside.make_sockets();
        }
        self.path(number, user.is_some())
    }

    /// An agent's socket is there. One with another sort of path is none of ours: its agent is given
    /// one when it is started again.
    pub(crate) fn insert(&mut self, agent: Name, path: &str) {
        let name = Path::new(path).file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| u32::from_str_radix(name, 16).ok());
        let Some(number) = number else { return };
        if self.path(number, false) == path {
            self.insert_number(agent, number);
        } else if self.path(number, true) == path {
            self.insert_number(agent.clone(), number);
            // Only root can write the folder, so the owner is whom the keeper has given it to.
            self.users.extend(rustix::fs::lstat(path).ok().map(|stat| (agent, stat.st_uid)));
        }
    }

    fn insert_number(&mut self, agent: Name, number: u32) {
        self.remove(&agent);
        self.taken.insert(number);
        self.numbers.insert(agent, number);
    }

    /// Takes no more memory than it needs.
    pub(crate) fn pack(&mut self) {
        pack(&mut self.numbers);
        self.taken = std::mem::take(&mut self.taken).into_iter().collect();
    }

    /// It is not, or no longer. Says whether it was.
    pub(crate) fn remove(&mut self, agent: &Name) -> bool {
        self.users.remove(agent);
        let number = self.numbers.remove(agent);
        number.is_some_and(|number| self.taken.remove(&number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_agent_has_a_path_of_its_own_which_is_free_again_after_it() {
        let (ann, bob) = (Name::parse("ann").unwrap(), Name::parse("bob").unwrap());
        let mut sockets = Sockets::new(Path::new("/home"));
        let first = sockets.claim(&ann, None);
        assert_eq!(sockets.path_for(&ann, None).as_ref(), Some(&first));
        assert!(sockets.remove(&ann));
        assert!(!sockets.remove(&ann));
        sockets.insert(bob.clone(), &first);
        assert_eq!(sockets.path_for(&bob, None).as_ref(), Some(&first));
        let second = sockets.claim(&ann, None);
        assert_ne!(second, first);
        assert!(sockets.remove(&bob));
        assert!(sockets.remove(&ann));
        assert_eq!(sockets.claim(&ann, None), first);
    }

    #[test]
    fn a_path_that_is_not_like_ours_is_not_taken_for_one() {
        let ann = Name::parse("ann").unwrap();
        let mut sockets = Sockets::new(Path::new("/home"));
        for path in ["/home/n/1", "/home/n/ann", "/other/n/00000001", "/home/n/"] {
            sockets.insert(ann.clone(), path);
            assert_eq!(sockets.path_for(&ann, None), None, "{path}");
        }
        sockets.insert(ann.clone(), "/home/n/00000001");
        assert_eq!(sockets.path_for(&ann, None).as_deref(), Some("/home/n/00000001"));
    }

    #[test]
    fn runs_come_before_sockets() {
        let mut sockets = Sockets::new(Path::new("/home"));
        assert!(sockets.has_room(1_000, 20_000));
        assert!(sockets.has_room(6_000, 20_000));
        assert!(!sockets.has_room(9_900, 20_000));
        for number in 0..10 {
            sockets.claim(&Name::parse(&format!("a{number}")).unwrap(), None);
        }
        assert!(!sockets.has_room(20, RESERVE + 2 * 20 + 10));
        assert!(sockets.has_room(20, RESERVE + 2 * 20 + 11));
        assert!(!sockets.has_room(20, 100), "a limit below the reserve is no panic");
    }
}
