//! The writer of intents: one thread, one file, and callers that wait for the disk.
//!
//! A caller that waits is answered when its intents are on disk or cannot be put there, and what
//! could not be stored is forgotten: whoever was told "no" may rely on it. Callers that come while
//! a commit is under way share the next one. Intents that nobody waits for are held until they are
//! stored, however long the disk fails, only the latest of each. Where a file has to be replaced,
//! its second copy or what can still be read of it goes into its successor.

use std::collections::{HashSet, VecDeque};
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use crate::file::{self, Identity};
use crate::history::Circumstances;
use crate::intent::{self, Intent, Intents};
use crate::ledger::Entry;
use crate::pair::Pair;
use crate::trouble::{HistoryError, Store, Trouble};

/// How long intents that nobody waits for may wait for others.
const LATER: Duration = Duration::from_millis(100);
/// After a failure, the first and the longest pause before the next attempt.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// So many intents that nobody waits for are held before those that were replaced are dropped.
const COMPACT_FROM: usize = 1024;

/// One thing to be written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Write {
    /// Everything that was there is gone: what follows is everything.
    Clear,
    Intent(Intent),
    /// Numbers of events up to this one may be used.
    Ceiling(u64),
}

#[derive(Debug)]
struct Order {
    writes: Vec<Write>,
    /// Who waits for it; nobody where it is for later.
    reply: Option<SyncSender<Result<(), HistoryError>>>,
}

#[derive(Debug, Default)]
struct State {
    orders: VecDeque<Order>,
    /// How many of them somebody waits for.
    urgent: usize,
    /// How long the queue may get before it is compacted.
    compact_at: usize,
    closing: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handle to the writer of intents.
#[derive(Debug, Clone)]
pub(crate) struct IntentStore {
    shared: Arc<Shared>,
}

impl IntentStore {
    /// Starts the writer on a file that was opened already, or that could not be opened yet.
    pub(crate) fn start(
        files: Pair,
        saved: Vec<Write>,
        around: Arc<Circumstances>,
    ) -> std::io::Result<(IntentStore, JoinHandle<()>)> {
        let shared = Arc::new(Shared::default());
        shared.lock().compact_at = COMPACT_FROM;
        let failing = files.opening.is_none();
        let mut writer =
            Writer { shared: Arc::clone(&shared), files, around, saved, failing, pause: RETRY.0 };
        let thread =
            std::thread::Builder::new().name("intent".into()).spawn(move || writer.run())?;
        Ok((IntentStore { shared }, thread))
    }

    /// Stores, and returns when it is on disk or cannot be put there.
    pub(crate) fn store(&self, writes: Vec<Write>) -> Result<(), HistoryError> {
        if writes.is_empty() {
            return Ok(());
        }
        self.wait_for(writes)
    }

    /// Returns when all that was given before is on disk, or cannot be put there now.
    pub(crate) fn settle(&self) -> Result<(), HistoryError> {
        self.wait_for(Vec::new())
    }

    fn wait_for(&self, writes: Vec<Write>) -> Result<(), HistoryError> {
        let (reply, answer) = sync_channel(1);
        {
            let mut state = self.shared.lock();
            if state.closing {
                return Err(HistoryError::Closed);
            }
            state.orders.push_back(Order { writes, reply: Some(reply) });
            state.urgent += 1;
        }
        self.shared.work.notify_one();
        answer.recv().unwrap_or(Err(HistoryError::Closed))
    }

    /// Stores when there is time, and does not wait.
    pub(crate) fn store_later(&self, writes: Vec<Write>) {
        if writes.is_empty() {
            return;
        }
        let mut state = self.shared.lock();
        let first = state.orders.is_empty();
        state.orders.push_back(Order { writes, reply: None });
        if state.orders.len() > state.compact_at {
            compact(&mut state.orders);
            state.compact_at = state.orders.len() * 2 + COMPACT_FROM;
        }
        drop(state);
        if first {
            self.shared.work.notify_one();
        }
    }

    /// Lets the writer end, after one last attempt at what it still holds.
    pub(crate) fn close(&self) {
        self.shared.lock().closing = true;
        self.shared.work.notify_one();
    }
}

/// Drops what was replaced by something later. Of what somebody waits for nothing is dropped.
fn compact(orders: &mut VecDeque<Order>) {
    let mut seen = HashSet::new();
    for order in orders.iter_mut().rev() {
        if order.reply.is_none() {
            order.writes.reverse();
            order.writes.retain(|write| seen.insert(slot(write)));
            order.writes.reverse();
        }
    }
    orders.retain(|order| order.reply.is_some() || !order.writes.is_empty());
}

/// What a write sets: a later one of the same makes it pointless.
fn slot(write: &Write) -> (u8, String, String) {
    let name = |kind, name: &str| (kind, String::from(name), String::new());
    match write {
        Write::Clear => name(6, ""),
        Write::Ceiling(_) => name(0, ""),
        Write::Intent(intent) => match intent {
            Intent::Goal { agent, .. } => name(1, agent.as_str()),
            Intent::Apply(project) => name(2, project.name.as_str()),
            Intent::Withdraw(project) => name(2, project.as_str()),
            Intent::Balance { agent, unit, .. } => (3, String::from(agent.as_str()), unit.clone()),
            Intent::Keep { key, .. } | Intent::Drop { key } => name(4, key),
            Intent::Entry(entry) => {
                (5, String::from(entry.agent.as_str()), entry.number.to_string())
            }
        },
    }
}

struct Writer {
    shared: Arc<Shared>,
    files: Pair,
    around: Arc<Circumstances>,
    /// What was saved from a file that had to be replaced, and is not in its successor yet.
    saved: Vec<Write>,
    failing: bool,
    pause: Duration,
}

/// What could still be read of a file that has to be replaced.
#[derive(Debug, Clone, Default)]
pub(crate) struct Salvage {
    pub(crate) intents: Intents,
    pub(crate) entries: Vec<Entry>,
    pub(crate) ceiling: u64,
    pub(crate) generation: u64,
}

impl Salvage {
    pub(crate) fn of_file(path: &Path) -> Salvage {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        // A FIFO that stood in its place would block.
        match file::refuse_odd(path).map(|()| Connection::open_with_flags(path, flags)) {
            Ok(Ok(old)) => Salvage::of(&old),
            Ok(Err(_)) | Err(_) => Salvage::default(),
        }
    }

    fn of(old: &Connection) -> Salvage {
        let whose = old.pragma_query_value(None, "application_id", |row| row.get::<_, i32>(0));
        if whose.is_ok_and(|id| id != intent::LAYOUT.application_id) {
            return Salvage::default();
        }
        let ceiling = intent::read_ceiling(old).unwrap_or(0);
        let generation = intent::read_generation(old).unwrap_or(0);
        let (intents, entries) = (Intents::salvage(old), Entry::salvage(old));
        Salvage { intents, entries, ceiling, generation }
    }

    /// Reads all of a file that is sound.
    pub(crate) fn read(connection: &Connection) -> rusqlite::Result<Salvage> {
        Ok(Salvage {
            intents: Intents::read(connection)?,
            entries: Entry::salvage(connection),
            ceiling: intent::read_ceiling(connection)?,
            generation: intent::read_generation(connection)?,
        })
    }

    /// Adds goals of an older copy, for agents whose goals were not readable: an agent that was
    /// stopped stays stopped.
    pub(crate) fn with_goals_of(mut self, older: &Salvage) -> Salvage {
        for (agent, goal) in &older.intents.goals {
            self.intents.goals.entry(agent.clone()).or_insert(*goal);
        }
        self.ceiling = self.ceiling.max(older.ceiling);
        self
    }

    /// Everything, to be written in place of what a file has.
    pub(crate) fn into_writes(self) -> Vec<Write> {
        let ceiling = (self.ceiling > 0).then_some(Write::Ceiling(self.ceiling));
        let entries = self.entries.into_iter().map(Intent::Entry);
        let all = self.intents.into_intents().chain(entries).map(Write::Intent);
        [Write::Clear].into_iter().chain(all).chain(ceiling).collect()
    }
}

impl Writer {
    fn run(&mut self) {
        if !self.saved.is_empty() || !self.files.witness.in_step {
            // A file that was restored is on disk before anything else is stored.
            let outcome = self.commit(&[]);
            self.tell(&outcome);
        }
        while let Some((orders, last)) = self.next() {
            let outcome = self.commit(&orders);
            self.tell(&outcome);
            let mut unstored = Vec::new();
            for order in orders {
                match (order.reply, &outcome) {
                    // One who has stopped waiting needs no answer.
                    (Some(reply), outcome) => drop(reply.send(outcome.clone())),
                    (None, Ok(())) => {}
                    (None, Err(_)) => unstored.push(Order { writes: order.writes, reply: None }),
                }
            }
            if last {
                return;
            }
            let mut state = self.shared.lock();
            for order in unstored.into_iter().rev() {
                state.orders.push_front(order);
            }
            if !self.files.witness.in_step && state.orders.is_empty() {
                // The second copy is tried again by itself.
                state.orders.push_back(Order { writes: Vec::new(), reply: None });
            }
        }
    }

    /// Waits for something to do. Says whether it is the last of all; nothing if there is none.
    fn next(&self) -> Option<(Vec<Order>, bool)> {
        let mut state = self.shared.lock();
        let mut due: Option<Instant> = None;
        loop {
            let now = Instant::now();
            if state.closing && state.orders.is_empty() {
                return None;
            }
            if state.closing || state.urgent > 0 || due.is_some_and(|due| due <= now) {
                state.urgent = 0;
                state.compact_at = COMPACT_FROM;
                return Some((state.orders.drain(..).collect(), state.closing));
            }
            if due.is_none() && !state.orders.is_empty() {
                let pause = if self.files.witness.in_step { LATER } else { RETRY.1 };
                due = Some(now + if self.failing { self.pause } else { pause });
            }
            let work = &self.shared.work;
            state = match due {
                None => work.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(due) => {
                    let (state, _) = work
                        .wait_timeout(state, due.saturating_duration_since(now))
                        .unwrap_or_else(PoisonError::into_inner);
                    state
                }
            };
        }
    }

    fn commit(&mut self, orders: &[Order]) -> Result<(), HistoryError> {
        // A file that is damaged or has vanished gets one successor; if that is no better, it is the
        // disk that fails.
        for _ in 0..2 {
            match self.attempt(orders) {
                Err(HistoryError::Damaged(why)) => self.replace(why)?,
                Ok(()) if Identity::of(&self.files.path) != self.identity() => self.renew(),
                outcome => return outcome,
            }
        }
        self.attempt(orders)
    }

    fn attempt(&mut self, orders: &[Order]) -> Result<(), HistoryError> {
        let given = orders.iter().flat_map(|order| &order.writes);
        self.files.write(&self.saved, given, &self.around)?;
        self.saved.clear();
        Ok(())
    }

    fn identity(&self) -> Option<Identity> {
        self.files.opening.as_ref().map(|opening| opening.identity)
    }

    /// Sets a damaged file aside, so that the next attempt begins a new one.
    fn replace(&mut self, why: String) -> Result<(), HistoryError> {
        let salvage = match self.files.opening.take() {
            Some(opening) => {
                let salvage = Salvage::of(&opening.connection);
                opening.abandon();
                salvage
            }
            None => Salvage::of_file(&self.files.path),
        };
        let aside = file::set_aside(&self.files.path, self.around.now())
            .map_err(|error| HistoryError::Failing(format!("it is damaged, and: {error}")))?;
        let (store, aside) = (Store::Intent, Some(aside));
        let (truth, from) = match self.files.witness.read() {
            Some(seen) if seen.generation >= salvage.generation => (seen, Some(Store::Witness)),
            Some(seen) => (salvage.with_goals_of(&seen), None),
            None => (salvage, None),
        };
        // What is saved already is everything, and is newer than both files.
        if self.saved.is_empty() {
            self.saved = truth.into_writes();
        }
        self.around.tell(&match from {
            Some(from) => Trouble::Restored { store, aside, from, why },
            None => Trouble::Damaged { store, aside, why },
        });
        Ok(())
    }

    /// Somebody removed the file while it was open: all of it can still be read, and is written
    /// anew.
    fn renew(&mut self) {
        if let Some(opening) = self.files.opening.take() {
            self.saved = Salvage::of(&opening.connection).into_writes();
        }
        let why = String::from("the file was removed or replaced");
        self.around.tell(&Trouble::Damaged { store: Store::Intent, aside: None, why });
    }

    fn tell(&mut self, outcome: &Result<(), HistoryError>) {
        match outcome {
            Ok(()) => {
                self.pause = RETRY.0;
                if std::mem::replace(&mut self.failing, false) {
                    self.around.tell(&Trouble::Recovered { store: Store::Intent, lost: 0 });
                }
            }
            Err(error) => {
                self.pause = if self.failing { (self.pause * 2).min(RETRY.1) } else { RETRY.0 };
                if !std::mem::replace(&mut self.failing, true) {
                    let why = error.to_string();
                    self.around.tell(&Trouble::Failing { store: Store::Intent, why });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compaction_keeps_the_latest_of_each_and_all_that_somebody_waits_for() {
        let keep = |key: &str, value: u32| {
            Write::Intent(Intent::Keep { key: key.into(), value: value.to_string() })
        };
        let (reply, _answer) = sync_channel(1);
        let later = |writes| Order { writes, reply: None };
        let mut orders = VecDeque::from([
            later(vec![keep("a", 1), keep("b", 1), keep("a", 2)]),
            later(vec![keep("a", 3)]),
            Order { writes: vec![keep("a", 4), Write::Ceiling(9)], reply: Some(reply) },
            later(vec![keep("a", 5), keep("a", 6), Write::Ceiling(10)]),
        ]);
        compact(&mut orders);
        let left: Vec<Vec<Write>> = orders.into_iter().map(|order| order.writes).collect();
        assert_eq!(
            left,
            [
                vec![keep("b", 1)],
                vec![keep("a", 4), Write::Ceiling(9)],
                vec![keep("a", 6), Write::Ceiling(10)],
            ]
        );
    }
}
