//! What the keeper tells a new daemon before anything can be decided.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use defib_core::{AgentView, Life, Name, View};
use defib_host::output::RunOutput;
use defib_host::protocol::{News, Request, RunEnd, RunKey};
use defib_host::{Channel, ChannelError};
use rustix::event::{PollFd, PollFlags, poll};

use crate::liveness::Owns;
use crate::will::Will;

/// Under this key is what was to be written to the journal last.
pub(super) const JOURNAL: &str = "journal";
/// Under this key is that everything is to end, and which projects do not come back.
pub(super) const CLOSING: &str = "closing";
/// Under keys that begin with this are the projects that are up.
const PROJECTS: &str = "project/";

/// What the keeper told on the new connection.
#[derive(Default)]
pub(super) struct Inheritance {
    pub(super) keeper_pid: u32,
    pub(super) keeper_version: u32,
    pub(super) held: Vec<(RunKey, u32, bool, Option<RunOutput>)>,
    pub(super) ended: Vec<(RunKey, RunEnd, Option<RunOutput>)>,
    pub(super) kept: BTreeMap<String, Vec<u8>>,
    pub(super) listening: Vec<(Name, String, OwnedFd)>,
}

/// Why not all was heard.
pub(super) enum Unheard {
    /// The keeper was killed meanwhile: what the next one is to hold.
    Orphaned(Will),
    /// What came makes no sense.
    Failed(io::Error),
}

impl Inheritance {
    /// Hears all of it.
    pub(super) fn hear(keeper: &mut Channel<Request, News>) -> Result<Inheritance, Unheard> {
        let mut heard = Inheritance::default();
        loop {
            match keeper.receive() {
                Ok(Some((News::AllTold, _))) => return Ok(heard),
                Ok(Some((news, descriptors))) => heard.take(news, descriptors),
                Ok(None) => {
                    let mut set = [PollFd::from_borrowed_fd(keeper.as_fd(), PollFlags::IN)];
                    let _ = poll(&mut set, None);
                }
                Err(ChannelError::Closed) => return Err(Unheard::Orphaned(heard.passed_on())),
                Err(error) => return Err(Unheard::Failed(io::Error::other(error))),
            }
        }
    }

    fn take(&mut self, news: News, mut descriptors: Vec<OwnedFd>) {
        match news {
            News::Welcome { version, keeper_pid, daemons_before: _ } => {
                (self.keeper_pid, self.keeper_version) = (keeper_pid, version);
            }
            News::Listening { agent, path } => {
                let socket = descriptors.pop();
                self.listening.extend(socket.map(|socket| (agent, path, socket)));
            }
            News::Held { key, pid, terminal } => {
                self.held.push((key, pid, terminal, RunOutput::from_descriptors(descriptors)));
            }
            News::Kept { key, bytes } => drop(self.kept.insert(key, bytes)),
            News::Exited { key, end } => {
                self.ended.push((key, end, RunOutput::from_descriptors(descriptors)));
            }
            News::AllTold
            | News::Spawned { .. }
            | News::NotSpawned { .. }
            | News::Unknown(_)
            | News::StillAlive(_)
            | News::Stray { .. }
            | News::NotListening { .. }
            | News::CommandEnded { .. }
            | News::Rebound
            | News::CloseAsked => {}
        }
    }

    /// What is left of it when the keeper has gone: projects, and that they were to end.
    fn passed_on(self) -> Will {
        let lasts = |key: &str| key.starts_with(PROJECTS) || key == CLOSING;
        Will::new(self.kept.into_iter().filter(|(key, _)| lasts(key)))
    }

    /// What is known of each agent, and what was seen of it.
    pub(super) fn lives(&self) -> (BTreeMap<Name, Life>, View) {
        let (mut lives, mut view) = (BTreeMap::new(), View::default());
        for (name, bytes) in self.under("life/") {
            if let Ok((life, seen)) = postcard::from_bytes::<(Life, Option<AgentView>)>(bytes) {
                lives.insert(name.clone(), life);
                if let Some(seen) = seen {
                    view.put(name, seen);
                }
            }
        }
        (lives, view)
    }

    /// What runs that another daemon spawned said of themselves.
    pub(super) fn owns(&self) -> Owns {
        let kept = self.under("own/");
        kept.filter_map(|(name, bytes)| Some((name, postcard::from_bytes(bytes).ok()?))).collect()
    }

    /// The projects that are up, as they were applied.
    pub(super) fn projects(&self) -> impl Iterator<Item = (Name, &[u8])> {
        self.under(PROJECTS)
    }

    /// What was to be written to the journal last.
    pub(super) fn unwritten(&self) -> &[u8] {
        self.kept.get(JOURNAL).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether everything is to end, and which projects do not come back then.
    pub(super) fn closing(&self) -> Option<Vec<Name>> {
        let bytes = self.kept.get(CLOSING)?;
        Some(serde_json::from_slice(bytes).unwrap_or_default())
    }

    /// What was kept under keys that begin with `prefix`.
    pub(super) fn under<'h>(
        &'h self,
        prefix: &'h str,
    ) -> impl Iterator<Item = (Name, &'h [u8])> + 'h {
        self.kept.iter().filter_map(move |(key, bytes)| {
            Some((Name::known(key.strip_prefix(prefix)?).ok()?, bytes.as_slice()))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_keeper_that_is_killed_while_it_tells_leaves_its_projects_to_the_next() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut keeper: Channel<News, Request> = Channel::new(theirs.into());
        let kept = |key: &str| News::Kept { key: key.to_owned(), bytes: b"it".to_vec() };
        keeper.send(&News::Welcome { version: 1, keeper_pid: 1, daemons_before: 0 }, &[]).unwrap();
        for key in ["life/a", "project/night", "whole"] {
            keeper.send(&kept(key), &[]).unwrap();
        }
        keeper.flush().unwrap();
        drop(keeper);
        let heard = Inheritance::hear(&mut Channel::new(ours.into()));
        let Err(Unheard::Orphaned(will)) = heard else { panic!("not all was told") };
        assert_eq!(will.into_kept(), [("project/night".to_owned(), b"it".to_vec())]);
    }
}
