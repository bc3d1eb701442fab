//! The writer of the account: one thread, one connection, commits that many events share.
//!
//! Whoever appends takes a lock that is never held across a write, so an appender waits for no disk.
//! Each commit is one transaction; what could not be committed goes back to the front of the queue.
//! Old rows are deleted when there is nothing else to do. Without events the thread sleeps until the
//! oldest row is due.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::TransactionBehavior;

use crate::check::Check;
use crate::file::{self, Identity, Opening};
use crate::fold;
use crate::history::Circumstances;
use crate::intents::{IntentStore, Write};
use crate::queue::{Entry, Lost, Queue};
use crate::retention::{self, Retention, Tails};
use crate::trouble::{HistoryError, Store, Trouble};

/// After a failure, the first and the longest pause before the next attempt.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// So many entries are committed without waiting for more.
const ENOUGH: usize = 2048;
/// A commit of more than this is a burst's, and what the file needed for it is kept at hand for so long.
const BURST: (usize, Duration) = (64, Duration::from_secs(1));
/// So many numbers are set apart at a time.
const CEILING_STEP: u64 = 65_536;

/// The handle to the writer of the account.
#[derive(Debug)]
pub(crate) struct Account {
    shared: Arc<Shared>,
    /// Reads a large file through while it is in use.
    check: Option<Check>,
}

/// What the writer starts from.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) path: PathBuf,
    pub(crate) opening: Option<Opening>,
    pub(crate) around: Arc<Circumstances>,
    pub(crate) keep: Option<Duration>,
    pub(crate) tails: Tails,
    pub(crate) capacity: usize,
    pub(crate) tail_capacity_bytes: usize,
    pub(crate) commit_every: Duration,
    pub(crate) ceiling: u64,
    pub(crate) intents: IntentStore,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    /// When the oldest entry of the queue came.
    since: Option<Instant>,
    /// Somebody waits for what is in the queue.
    hurry: bool,
    closing: bool,
    /// How long everything is to be kept from now on.
    keep: Option<Duration>,
    /// How many entries were ever given.
    given: u64,
    /// How many of them were written.
    written: u64,
    /// How many attempts have failed, and why the last did.
    failures: u64,
    why: Option<HistoryError>,
    /// What is wrong with the file, as somebody found who read it through.
    condemned: Option<(Identity, String)>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    done: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    pub(crate) fn start(setup: Setup) -> std::io::Result<(Account, JoinHandle<()>)> {
        let state = State {
            queue: Queue::new(setup.capacity, setup.tail_capacity_bytes),
            since: None,
            hurry: false,
            closing: false,
            keep: None,
            given: 0,
            written: 0,
            failures: 0,
            why: None,
            condemned: None,
        };
        let shared =
            Shared { state: Mutex::new(state), work: Condvar::new(), done: Condvar::new() };
        let shared = Arc::new(shared);
        let mut writer = Writer {
            shared: Arc::clone(&shared),
            failing: setup.opening.is_none(),
            retention: Retention::new(setup.keep, setup.tails),
            pause: RETRY.0,
            calm_at: None,
            lost_before: 0,
            setup,
        };
        let check = match &writer.setup.opening {
            Some(opening) if !opening.checked => {
                let (shared, identity) = (Arc::clone(&shared), opening.identity);
                Check::start(&writer.setup.path, &fold::LAYOUT, move |why| {
                    shared.lock().condemned = Some((identity, why));
                    shared.work.notify_one();
                })
            }
            Some(_) | None => None,
        };
        let thread =
            std::thread::Builder::new().name("history".into()).spawn(move || writer.run())?;
        Ok((Account { shared, check }, thread))
    }

    pub(crate) fn push(&self, entries: Vec<Entry>) {
        let mut state = self.shared.lock();
        let before = state.queue.len();
        for entry in entries {
            state.queue.push(entry);
            state.given += 1;
        }
        let after = state.queue.len();
        if before == 0 && after > 0 {
            state.since = Some(Instant::now());
        }
        drop(state);
        // Between the first and the last of a commit there is nothing the writer would do.
        if (before == 0 && after > 0) || (before < ENOUGH && after >= ENOUGH) {
            self.shared.work.notify_one();
        }
    }

    pub(crate) fn flush(&self, within: Duration) -> Result<(), HistoryError> {
        let deadline = Instant::now() + within;
        let mut state = self.shared.lock();
        let (target, failures, lost) = (state.given, state.failures, state.queue.lost().events);
        loop {
            if state.written + state.queue.dropped() >= target {
                let gone = state.queue.lost().events - lost;
                return if gone == 0 { Ok(()) } else { Err(HistoryError::Lost(gone)) };
            }
            if state.failures != failures {
                return Err(state.why.clone().unwrap_or(HistoryError::Closed));
            }
            state.hurry = true;
            self.shared.work.notify_one();
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(HistoryError::TimedOut);
            }
            (state, _) =
                self.shared.done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn keep(&self, keep: Duration) {
        self.shared.lock().keep = Some(keep);
        self.shared.work.notify_one();
    }

    pub(crate) fn lost(&self) -> Lost {
        self.shared.lock().queue.lost()
    }

    /// Lets the writer end, after one last attempt at what it still holds.
    pub(crate) fn close(&mut self) {
        self.check = None;
        self.shared.lock().closing = true;
        self.shared.work.notify_one();
    }
}

struct Writer {
    shared: Arc<Shared>,
    setup: Setup,
    retention: Retention,
    failing: bool,
    pause: Duration,
    /// When to let go of what a burst needed.
    calm_at: Option<Instant>,
    /// How many events had been lost when the disk began to fail.
    lost_before: u64,
}

/// What the writer does next.
enum Turn {
    Commit(VecDeque<Entry>),
    /// One last time, if there is something to commit.
    Last(VecDeque<Entry>),
    Sweep,
    /// Everything is to be kept so long.
    Keep(Duration),
    /// A burst is over.
    LetGo,
    /// The file is damaged.
    Replace(String),
}

impl Writer {
    fn run(&mut self) {
        loop {
            match self.next() {
                Turn::Commit(batch) => self.commit(batch),
                Turn::Last(batch) => {
                    if !batch.is_empty() {
                        self.commit(batch);
                    }
                    self.shared.lock().queue.abandon();
                    self.shared.done.notify_all();
                    return;
                }
                Turn::Sweep => self.sweep(),
                Turn::Keep(keep) => self.retention.keep(keep),
                Turn::LetGo => self.let_go(),
                Turn::Replace(why) => {
                    // Where it cannot be set aside, the next to find the damage tries again.
                    let _ = self.replace(why);
                }
            }
        }
    }

    fn next(&self) -> Turn {
        let mut state = self.shared.lock();
        loop {
            let now = Instant::now();
            if state.closing {
                return Turn::Last(state.queue.take());
            }
            if let Some(keep) = state.keep.take() {
                return Turn::Keep(keep);
            }
            // By now another file may have taken its place.
            if let Some((identity, why)) = state.condemned.take()
                && self.identity() == Some(identity)
            {
                return Turn::Replace(why);
            }
            // While the disk fails a full queue is no reason to hurry.
            let patience = if self.failing { self.pause } else { self.setup.commit_every };
            let enough = state.hurry || (!self.failing && state.queue.len() >= ENOUGH);
            let due = match state.since {
                Some(since) if !state.queue.is_empty() => {
                    let due = since + patience;
                    if enough || due <= now {
                        (state.hurry, state.since) = (false, None);
                        return Turn::Commit(state.queue.take());
                    }
                    Some(due)
                }
                Some(_) | None => None,
            };
            let sweep = if self.failing { None } else { self.retention.due() };
            if due.is_none() && sweep.is_some_and(|at| at <= now) {
                return Turn::Sweep;
            }
            if due.is_none() && self.calm_at.is_some_and(|at| at <= now) {
                return Turn::LetGo;
            }
            let idle = sweep.into_iter().chain(self.calm_at).min();
            let work = &self.shared.work;
            state = match due.or(idle) {
                None => work.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let (state, _) = work
                        .wait_timeout(state, at.saturating_duration_since(now))
                        .unwrap_or_else(PoisonError::into_inner);
                    state
                }
            };
        }
    }

    fn commit(&mut self, batch: VecDeque<Entry>) {
        let count = batch.iter().filter(|entry| !matches!(entry, Entry::Gap(_))).count() as u64;
        self.raise_ceiling(&batch);
        if batch.len() > BURST.0 {
            self.calm_at = Some(Instant::now() + BURST.1);
        }
        let outcome = self.store(&batch);
        let mut state = self.shared.lock();
        let lost = state.queue.lost().events;
        let clear = state.queue.is_empty();
        match &outcome {
            Ok(()) => state.written += count,
            Err(error) => {
                state.queue.put_back(batch);
                state.since = Some(Instant::now());
                state.failures += 1;
                state.why = Some(error.clone());
            }
        }
        drop(state);
        self.shared.done.notify_all();
        match outcome {
            Ok(()) if self.failing && clear => {
                self.failing = false;
                self.pause = RETRY.0;
                let lost = lost - self.lost_before;
                self.setup.around.tell(&Trouble::Recovered { store: Store::History, lost });
            }
            Ok(()) => self.pause = RETRY.0,
            Err(_) if self.failing => self.pause = (self.pause * 2).min(RETRY.1),
            Err(error) => {
                (self.failing, self.lost_before) = (true, lost);
                let why = error.to_string();
                self.setup.around.tell(&Trouble::Failing { store: Store::History, why });
            }
        }
    }

    /// Sets numbers apart before they are used, where the loss of the account does not reach.
    fn raise_ceiling(&mut self, batch: &VecDeque<Entry>) {
        let seq = |entry: &Entry| match entry {
            Entry::Event(event) => Some(event.seq),
            Entry::PostMortem(_) | Entry::Gap(_) => None,
        };
        let Some(highest) = batch.iter().filter_map(seq).max() else { return };
        if highest <= self.setup.ceiling {
            return;
        }
        let ceiling = highest.saturating_add(CEILING_STEP);
        // Without it numbers are still unique unless the account is lost as well: go on.
        if self.setup.intents.store(vec![Write::Ceiling(ceiling)]).is_ok() {
            self.setup.ceiling = ceiling;
        }
    }

    fn store(&mut self, batch: &VecDeque<Entry>) -> Result<(), HistoryError> {
        // A file that is damaged or has vanished gets one successor; if that is no better, it is the
        // disk that fails.
        for _ in 0..2 {
            match self.attempt(batch) {
                Err(HistoryError::Damaged(why)) => self.replace(why)?,
                Ok(()) if Identity::of(&self.setup.path) != self.identity() => {
                    self.setup.opening = None;
                    let (store, why) = (Store::History, "the file was removed or replaced".into());
                    self.setup.around.tell(&Trouble::Damaged { store, aside: None, why });
                }
                outcome => return outcome,
            }
        }
        self.attempt(batch)
    }

    fn identity(&self) -> Option<Identity> {
        self.setup.opening.as_ref().map(|opening| opening.identity)
    }

    fn attempt(&mut self, batch: &VecDeque<Entry>) -> Result<(), HistoryError> {
        let opening = self.opened()?;
        let connection = &mut opening.connection;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut stored = fold::Batch::new(&transaction);
        for entry in batch {
            match entry {
                Entry::Event(event) => stored.event(event)?,
                Entry::PostMortem(found) => stored.post_mortem(found)?,
                Entry::Gap(gap) => {
                    if let Some(event) = gap.event() {
                        stored.event(&event)?;
                    }
                }
            }
        }
        Ok(transaction.commit()?)
    }

    fn opened(&mut self) -> Result<&mut Opening, HistoryError> {
        let opening = match self.setup.opening.take() {
            Some(opening) => opening,
            None => file::open(&self.setup.path, &fold::LAYOUT)?,
        };
        Ok(self.setup.opening.insert(opening))
    }

    /// Sets a damaged file aside, so that the next attempt begins a new one.
    fn replace(&mut self, why: String) -> Result<(), HistoryError> {
        if let Some(opening) = self.setup.opening.take() {
            opening.abandon();
        }
        let aside = file::set_aside(&self.setup.path, self.setup.around.now())
            .map_err(|error| HistoryError::Failing(format!("it is damaged, and: {error}")))?;
        let store = Store::History;
        self.setup.around.tell(&Trouble::Damaged { store, aside: Some(aside), why });
        Ok(())
    }

    fn let_go(&mut self) {
        self.calm_at = None;
        if let Some(opening) = &self.setup.opening {
            // It is memory only: where it cannot be had back, that is all.
            let _ = opening.connection.execute_batch("PRAGMA shrink_memory");
        }
    }

    fn sweep(&mut self) {
        let now = self.setup.around.now();
        let Some(opening) = &self.setup.opening else {
            self.retention.rest();
            return;
        };
        match retention::sweep(&opening.connection, now, &self.retention) {
            Ok(next) => self.retention.plan(next),
            // The next commit will find out what is wrong, and deal with it.
            Err(_) => self.retention.rest(),
        }
    }
}
