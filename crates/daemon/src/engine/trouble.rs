//! What is wrong with the daemon's own files: said as it happens, and shown for as long as it matters.
//!
//! Supervision goes on without them. It refuses to do so silently.

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;

use defib_history::{Store, Trouble};

use super::Engine;

/// What is wrong, and where news of it come.
pub(super) struct Troubles {
    news: Receiver<Trouble>,
    /// Files that cannot be written, and files that were set aside since this daemon began.
    standing: BTreeMap<(Store, Kind), String>,
    /// What was renamed when this daemon began, because it stood in place of a file.
    obstacles: Vec<String>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Damaged,
    Failing,
}

impl Troubles {
    pub(super) fn heard_of(news: Receiver<Trouble>, obstacles: Vec<String>) -> Troubles {
        Troubles { news, standing: BTreeMap::new(), obstacles }
    }

    /// For people, a line each.
    pub(super) fn lines(&self) -> Vec<String> {
        self.standing.values().chain(&self.obstacles).cloned().collect()
    }

    fn stand(&mut self, trouble: &Trouble) {
        let (store, kind) = match trouble {
            Trouble::Damaged { store, .. } | Trouble::Restored { store, .. } => {
                (*store, Kind::Damaged)
            }
            Trouble::Failing { store, .. } => (*store, Kind::Failing),
            Trouble::Recovered { store, .. } => {
                self.standing.remove(&(*store, Kind::Failing));
                return;
            }
        };
        self.standing.insert((store, kind), trouble.to_string());
    }
}

impl Engine {
    /// Says what has gone wrong since it was last asked.
    pub(super) fn hear_troubles(&mut self) {
        while let Ok(trouble) = self.troubles.news.try_recv() {
            say!("{trouble}");
            self.troubles.stand(&trouble);
            match trouble {
                Trouble::Damaged { store, aside, why } => {
                    let aside = aside.map(|path| path.display().to_string());
                    let body = [("set_aside", aside.into()), ("why", why.into())];
                    self.tell("history-damaged", None, [file(store)].into_iter().chain(body));
                }
                Trouble::Restored { store, aside, from, why } => {
                    let aside = aside.map(|path| path.display().to_string());
                    let from = from.to_string();
                    let body = [("set_aside", aside.into()), ("restored_from", from.into())];
                    let body = body.into_iter().chain([("why", why.into())]);
                    self.tell("history-damaged", None, [file(store)].into_iter().chain(body));
                }
                Trouble::Failing { store, why } => {
                    self.tell("history-failing", None, [file(store), ("why", why.into())]);
                }
                Trouble::Recovered { store, lost } => {
                    self.tell("history-recovered", None, [file(store), ("lost", lost.into())]);
                }
            }
        }
    }
}

fn file(store: Store) -> (&'static str, serde_json::Value) {
    ("file", store.to_string().into())
}
