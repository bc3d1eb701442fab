//! The handle to both files: what the daemon holds.
//!
//! Opening never fails for a reason that may pass: a full disk or a damaged file is said in
//! [`Opened`], and supervision goes on. It fails only where there can be no file at all.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use defib_core::Wall;
use rusqlite::Connection;

use crate::event::Event;
use crate::file::{self, Opening};
use crate::fold;
use crate::intent::{Intent, Intents};
use crate::intents::{IntentStore, Write};
use crate::pair;
use crate::postmortem::PostMortem;
use crate::queue::{Entry, Lost};
use crate::retention::Tails;
use crate::trouble::{HistoryError, Store, Trouble};
use crate::writer::{Account, Setup};

/// What the daemon may choose.
pub struct Options {
    /// How long ended runs and events are kept. Nothing: all of them, until [`History::keep`] says.
    pub keep: Option<Duration>,
    /// Of how many runs the last output is kept.
    pub tails: Tails,
    /// How many events may wait for the disk. The oldest fall out.
    pub capacity: usize,
    /// How many bytes of tails may wait for the disk. The oldest fall out.
    pub tail_capacity_bytes: usize,
    /// How long an event may wait for others to share a commit with.
    pub commit_every: Duration,
    /// The clock of the wall, for retention and for the names of what is set aside.
    pub now: Box<dyn Fn() -> Wall + Send + Sync>,
    /// Is told what goes wrong after the history was opened, on a thread of ours. It may append; it
    /// must not wait for a flush or for an intent.
    pub on_trouble: Box<dyn Fn(&Trouble) + Send + Sync>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            keep: Some(Duration::from_secs(30 * 86_400)),
            tails: Tails::default(),
            capacity: 50_000,
            tail_capacity_bytes: 16 * 1024 * 1024,
            commit_every: Duration::from_millis(50),
            now: Box::new(|| {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Wall::from_millis(0) + since
            }),
            on_trouble: Box::new(|_| {}),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("keep", &self.keep)
            .field("capacity", &self.capacity)
            .field("commit_every", &self.commit_every)
            .finish_non_exhaustive()
    }
}

/// What was found when the history was opened.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Opened {
    /// No event has a higher number; the next one gets the number after it. After the loss of a
    /// history it is higher than any that was used, so that no number is used twice.
    pub highest_seq: u64,
    /// The highest number of an event that is stored; zero where there is none.
    pub stored_seq: u64,
    /// Everything that is wanted.
    pub intents: Intents,
    /// Where the damaged history was put, and what was wrong with it.
    pub damaged: Option<(PathBuf, String)>,
    /// Where the damaged intents were put, and what was wrong with them. What could still be read
    /// is in `intents`.
    pub intent_damaged: Option<(PathBuf, String)>,
    /// What was lost of the intents, and what was restored from their second copy.
    pub intent_troubles: Vec<Trouble>,
    /// Why the history cannot be written at the moment. It is tried again.
    pub failing: Option<String>,
    /// Why intents cannot be stored at the moment. It is tried again.
    pub intent_failing: Option<String>,
}

impl Opened {
    /// What was wrong with the files, and is.
    pub fn troubles(&self) -> Vec<Trouble> {
        let damaged = |store, damaged: &Option<(PathBuf, String)>| {
            let (aside, why) = damaged.clone()?;
            Some(Trouble::Damaged { store, aside: Some(aside), why })
        };
        let failing =
            |store, why: &Option<String>| Some(Trouble::Failing { store, why: why.clone()? });
        let troubles = [
            damaged(Store::History, &self.damaged),
            failing(Store::History, &self.failing),
            failing(Store::Intent, &self.intent_failing),
        ];
        troubles.into_iter().flatten().chain(self.intent_troubles.clone()).collect()
    }
}

/// What both writers are told by the daemon.
pub(crate) struct Circumstances {
    now: Box<dyn Fn() -> Wall + Send + Sync>,
    on_trouble: Box<dyn Fn(&Trouble) + Send + Sync>,
}

impl Circumstances {
    pub(crate) fn now(&self) -> Wall {
        (self.now)()
    }

    pub(crate) fn tell(&self, trouble: &Trouble) {
        (self.on_trouble)(trouble);
    }
}

impl fmt::Debug for Circumstances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Circumstances")
    }
}

/// The only writer of the history and of intents. Dropping it stores what it still holds, with one
/// attempt, and waits for that.
#[derive(Debug)]
pub struct History {
    path: PathBuf,
    account: Account,
    intents: IntentStore,
    threads: Vec<JoinHandle<()>>,
}

impl History {
    /// Opens the history at `path`, and `intent.db` and `witness.db` in the same folder. Makes them where they are
    /// not there, and sets aside what is damaged.
    ///
    /// Fails only where the folder cannot be made or a thread cannot be started.
    pub fn open(path: &Path, options: Options) -> Result<(History, Opened), HistoryError> {
        let Options { keep, tails, capacity, tail_capacity_bytes, commit_every, now, on_trouble } =
            options;
        let failing = |error: std::io::Error| HistoryError::Failing(error.to_string());
        let around = Arc::new(Circumstances { now, on_trouble });
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failing)?;
        }
        let mut opened = Opened::default();

        let found = pair::open(intent_path(path), &around)?;
        opened.intents = found.intents;
        opened.intent_troubles = found.troubles;
        opened.intent_damaged = found.damaged;
        opened.intent_failing = found.failing;
        let ceiling = found.ceiling;

        let mut opening = match file::open(path, &fold::LAYOUT) {
            Err(HistoryError::Damaged(why)) => {
                let aside = file::set_aside(path, around.now()).map_err(failing)?;
                opened.damaged = Some((aside, why));
                file::open(path, &fold::LAYOUT)
            }
            other => other,
        };
        let highest = facts(path, &fold::LAYOUT, &mut opening, fold::highest_seq);
        opened.failing = opening.as_ref().err().map(ToString::to_string);
        // Where the account has numbers of its own they are exact; the ceiling is for its loss.
        opened.stored_seq = highest.unwrap_or(0);
        opened.highest_seq = if opened.stored_seq > 0 { opened.stored_seq } else { ceiling };

        let journal = std::fs::metadata(path.with_file_name("journal"));
        let was_used = opened.stored_seq > 0 || journal.is_ok_and(|journal| journal.len() > 0);
        if found.is_new && was_used {
            let why = "it and witness.db are missing: stops, grants and balances are forgotten, and \
                       all tokens are invalid";
            let (store, why) = (Store::Intent, why.to_owned());
            opened.intent_troubles.push(Trouble::Damaged { store, aside: None, why });
        }
        let (intents, intent_thread) =
            IntentStore::start(found.pair, found.saved, Arc::clone(&around)).map_err(failing)?;
        let setup = Setup {
            path: path.into(),
            opening: opening.ok(),
            around,
            keep,
            tails,
            capacity,
            tail_capacity_bytes,
            commit_every,
            ceiling,
            intents: intents.clone(),
        };
        let (account, thread) = Account::start(setup).map_err(failing)?;
        let threads = vec![thread, intent_thread];
        Ok((History { path: path.into(), account, intents, threads }, opened))
    }

    /// Hands over events, in the order of their numbers. Never waits for the disk.
    pub fn append(&self, events: impl IntoIterator<Item = impl Into<Arc<Event>>>) {
        let events = events.into_iter().map(|event| Entry::Event(event.into()));
        self.account.push(events.collect());
    }

    /// Hands over what was found on a run, after the event of its start. Never waits for the disk.
    pub fn attach(&self, found: PostMortem) {
        self.account.push(vec![Entry::PostMortem(found)]);
    }

    /// Stores an intent. Returns when it is on disk, or at once when it cannot be put there: after
    /// an error it is not stored, and is not tried again. Whoever acts on it all the same hands it
    /// to [`store_later`](History::store_later).
    pub fn store_intent(&self, intent: Intent) -> Result<(), HistoryError> {
        self.store_intents([intent])
    }

    /// Stores several intents, all of them or none.
    pub fn store_intents(
        &self,
        intents: impl IntoIterator<Item = Intent>,
    ) -> Result<(), HistoryError> {
        self.intents.store(intents.into_iter().map(Write::Intent).collect())
    }

    /// Stores intents soon, in their order, and does not wait. They are tried until they are stored;
    /// one that was replaced before that is not stored at all.
    pub fn store_later(&self, intents: impl IntoIterator<Item = Intent>) {
        self.intents.store_later(intents.into_iter().map(Write::Intent).collect());
    }

    /// Waits until every intent that was to be stored later is on disk. After an error they are tried
    /// again all the same.
    pub fn settle_intents(&self) -> Result<(), HistoryError> {
        self.intents.settle()
    }

    /// Waits until everything that was appended and attached so far is on disk. Returns at once when
    /// an attempt has failed: what is held then is tried again all the same.
    pub fn flush(&self, within: Duration) -> Result<(), HistoryError> {
        self.account.flush(within)
    }

    /// Ended runs and events are kept so long from now on.
    pub fn keep(&self, keep: Duration) {
        self.account.keep(keep);
    }

    /// What has been lost since the history was opened.
    pub fn lost(&self) -> Lost {
        self.account.lost()
    }

    /// Where the history is, for a [`Reader`](crate::Reader).
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for History {
    fn drop(&mut self) {
        // The account stores its ceiling with the intents, so it ends first.
        self.account.close();
        let mut threads = self.threads.drain(..);
        let ended = threads.next().is_none_or(|thread| thread.join().is_ok());
        self.intents.close();
        let ended = threads.next().is_none_or(|thread| thread.join().is_ok()) && ended;
        debug_assert!(ended || std::thread::panicking(), "a writer of the history panicked");
    }
}

/// The file of intents that belongs to a history.
pub(crate) fn intent_path(history: &Path) -> PathBuf {
    history.with_file_name("intent.db")
}

/// Reads from a file that was opened, or from one that could not be opened for writing as far as it
/// can be read: a daemon that starts on a full disk must still know what is wanted. A file that
/// turns out to be unreadable counts as not opened.
pub(crate) fn facts<T>(
    path: &Path,
    layout: &file::Layout,
    opening: &mut Result<Opening, HistoryError>,
    read: impl Fn(&Connection) -> rusqlite::Result<T>,
) -> Option<T> {
    match opening {
        Ok(open) => match read(&open.connection) {
            Ok(found) => Some(found),
            Err(error) => {
                *opening = Err(error.into());
                None
            }
        },
        Err(_) => file::open_alone(path, layout).ok().and_then(|alone| read(&alone).ok()),
    }
}
