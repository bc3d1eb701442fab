//! When agents last wrote something, known without asking the disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use defib_core::{Name, Wall};
use defib_host::pack;

use super::{folder, last_written};

/// The last moment at which each agent wrote something.
#[derive(Debug, Clone, Default)]
pub(crate) struct Activity(Arc<Mutex<BTreeMap<Name, Option<Wall>>>>);

impl Activity {
    /// An agent has written something.
    pub(super) fn note(&self, agent: &Name, at: Wall) {
        let mut all = self.lock();
        if let Some(last) = all.get_mut(agent) {
            *last = Some(at);
        } else {
            all.insert(agent.clone(), Some(at));
        }
    }

    /// When an agent last wrote something. What it wrote before our time is looked up once.
    pub(crate) fn of(&self, home: &Path, agent: &Name) -> Option<Wall> {
        if let Some(known) = self.lock().get(agent) {
            return *known;
        }
        let last = last_written(&folder(home, agent)).map(Wall::from_millis);
        *self.lock().entry(agent.clone()).or_insert(last)
    }

    /// Takes no more memory than it needs.
    pub(crate) fn pack(&self) {
        pack(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Option<Wall>>> {
        // Nothing that is done under it can leave half a state behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
