//! Meters: what agents spend, read from what they print.
//!
//! One thread reads the logs of those runs whose kind says what it uses, whole lines at a time, as
//! they grow. It tells the ledger totals of the run, never differences, and begins at the run's first
//! line after any death of ours: so nothing is lost and nothing counted twice. The scribe only leaves
//! a name; it never waits. A line that is longer than any record, or is none, is passed over.

mod aider;
pub(crate) mod burn;
mod claude;
mod codex;
pub(crate) mod coverage;
mod gemini;
mod opencode;
pub(crate) mod otlp;
pub(crate) mod prices;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use defib_autopsy::{Follower, Kind as Sort, Progress, prints_final_record};
use defib_core::{Name, RunId};
use defib_host::protocol::RunKey;
use serde_json::Value;

use self::prices::Prices;
use crate::ledger::{Amounts, Ledger, Meter, Told, micros};
use crate::logs::{Extent, LogReader, folder};

/// A longer line is no record of any agent.
const LONGEST_LINE: usize = 1 << 20;
/// So much is read at once, and below, so much of one agent before the others have their turn.
const CHUNK: usize = 1 << 18;
const TURN: usize = 1 << 23;
/// Growth that comes sooner is read with what has come before.
const PAUSE: Duration = Duration::from_millis(20);
/// So long at most a death waits for what the run spent.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Whose records are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Claude,
    Codex,
    Gemini,
    Opencode,
    Aider,
}

impl Kind {
    /// Whose records an agent's output has, where they say what it uses.
    pub(crate) const fn of(kind: Sort) -> Option<Kind> {
        match kind {
            Sort::Claude => Some(Kind::Claude),
            Sort::Codex => Some(Kind::Codex),
            Sort::Gemini => Some(Kind::Gemini),
            Sort::Opencode => Some(Kind::Opencode),
            Sort::Aider => Some(Kind::Aider),
            Sort::Goose | Sort::Python | Sort::Node | Sort::Generic => None,
        }
    }

    const fn sort(self) -> Sort {
        match self {
            Kind::Claude => Sort::Claude,
            Kind::Codex => Sort::Codex,
            Kind::Gemini => Sort::Gemini,
            Kind::Opencode => Sort::Opencode,
            Kind::Aider => Sort::Aider,
        }
    }
}

/// What a run has used so far, by what it printed.
enum Tally {
    Claude(claude::Tally),
    Codex(codex::Tally),
    Gemini(gemini::Tally),
    Opencode(opencode::Tally),
    Aider(aider::Tally),
}

impl Tally {
    fn new(kind: Kind, prices: Arc<Prices>) -> Tally {
        match kind {
            Kind::Claude => Tally::Claude(claude::Tally::default()),
            Kind::Codex => Tally::Codex(codex::Tally::new(prices)),
            Kind::Gemini => Tally::Gemini(gemini::Tally::new(prices)),
            Kind::Opencode => Tally::Opencode(opencode::Tally::default()),
            Kind::Aider => Tally::Aider(aider::Tally::default()),
        }
    }

    /// Takes a line, whatever is in it.
    fn take(&mut self, line: &[u8]) {
        let Ok(line) = std::str::from_utf8(line) else { return };
        match self {
            Tally::Claude(tally) => record(line, "usage\"", |record| tally.take(record)),
            Tally::Codex(tally) => record(line, "\"type\"", |record| tally.take(record)),
            Tally::Gemini(tally) => record(line, "\"type\"", |record| tally.take(record)),
            Tally::Opencode(tally) => record(line, "step_finish", |record| tally.take(record)),
            Tally::Aider(tally) => tally.take(line),
        }
    }

    /// Where threads stand that may be older than the run.
    fn threads(&self) -> BTreeMap<String, Told> {
        match self {
            Tally::Codex(tally) => tally.threads(),
            // What these tell of a session begins with the process.
            Tally::Claude(_) | Tally::Gemini(_) | Tally::Opencode(_) | Tally::Aider(_) => {
                BTreeMap::new()
            }
        }
    }

    fn used(&self) -> Used {
        match self {
            Tally::Claude(tally) => tally.used(),
            Tally::Codex(tally) => tally.used(),
            Tally::Gemini(tally) => tally.used(),
            Tally::Opencode(tally) => tally.used(),
            Tally::Aider(tally) => tally.used(),
        }
    }
}

/// What an output of each kind comes to, whatever is in it.
pub(crate) fn read_any(output: &[u8]) -> usize {
    let kinds = [Kind::Claude, Kind::Codex, Kind::Gemini, Kind::Opencode, Kind::Aider];
    let amounts = kinds.map(|kind| {
        let (mut lines, mut tally) = (Lines::default(), Tally::new(kind, Arc::default()));
        lines.take(output, |line| tally.take(line));
        lines.finish(|line| tally.take(line));
        tally.used().amounts().len()
    });
    amounts.into_iter().sum()
}

/// What was used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Used {
    tokens: f64,
    usd: f64,
    /// Usd by prices, for those who say no cost.
    estimated: f64,
}

impl Used {
    fn amounts(self) -> Amounts {
        amounts(&[("tokens", self.tokens), ("usd", self.usd)])
    }

    fn estimate(self) -> Amounts {
        amounts(&[("usd", self.estimated)])
    }
}

fn amounts(all: &[(&str, f64)]) -> Amounts {
    let spent = all.iter().filter(|(_, amount)| *amount > 0.0);
    spent.map(|(unit, amount)| ((*unit).to_owned(), micros(*amount))).collect()
}

/// Hands over a line that is a JSON object with a word in it.
fn record(line: &str, word: &str, take: impl FnOnce(&Value)) {
    let line = line.trim();
    if line.starts_with('{')
        && line.contains(word)
        && let Ok(record) = serde_json::from_str::<Value>(line)
    {
        take(&record);
    }
}

/// A number that can be counted; anything else is nothing.
fn count(value: &Value) -> f64 {
    value.as_f64().filter(|number| number.is_finite() && *number > 0.0).unwrap_or(0.0)
}

/// The sum of fields that can be counted.
fn counts(object: &Value, fields: &[&str]) -> f64 {
    fields.iter().map(|field| count(&object[*field])).sum()
}

/// What is told as a total of a session: one that falls, or is of another session, begins anew.
#[derive(Debug, Clone, Default)]
struct Running {
    session: Option<String>,
    before: f64,
    last: f64,
}

impl Running {
    /// Takes a total. Without a session each total stands for itself.
    fn take(&mut self, session: Option<&str>, total: f64) {
        if session.is_none() || session != self.session.as_deref() || total < self.last {
            self.before += self.last;
            self.session = session.map(str::to_owned);
        }
        self.last = total;
    }

    fn total(&self) -> f64 {
        self.before + self.last
    }
}

/// Whole lines out of pieces. What is too long is passed over to its end.
#[derive(Debug, Default)]
struct Lines {
    unfinished: Vec<u8>,
    skipping: bool,
}

impl Lines {
    fn take(&mut self, bytes: &[u8], mut line: impl FnMut(&[u8])) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let ends = piece.ends_with(b"\n");
            if !self.skipping && self.unfinished.len() + piece.len() > LONGEST_LINE {
                self.unfinished = Vec::new();
                self.skipping = true;
            }
            if !self.skipping {
                if ends && self.unfinished.is_empty() {
                    line(piece);
                    continue;
                }
                self.unfinished.extend_from_slice(piece);
            }
            if ends {
                if !self.skipping {
                    line(&self.unfinished);
                }
                self.unfinished.clear();
                self.skipping = false;
            }
        }
    }

    /// What was not ended by a line end is a line too, once nothing more comes.
    fn finish(&mut self, mut line: impl FnMut(&[u8])) {
        if !self.skipping && !self.unfinished.is_empty() {
            line(&self.unfinished);
        }
        self.unfinished.clear();
    }
}

/// What is done when all that a run spent is known.
type Then = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    watched: BTreeMap<(Name, RunId), (Kind, Arc<Prices>)>,
    grown: BTreeSet<Name>,
    finished: Vec<(Name, RunId, Then)>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way to the meters.
#[derive(Clone)]
pub(crate) struct Meters {
    shared: Arc<Shared>,
}

impl Meters {
    /// Starts the thread that reads. `finished` is called on it when a run has finished its work, or
    /// works again; it must not block.
    pub(crate) fn start(
        home: PathBuf,
        ledger: Ledger,
        finished: impl Fn(RunKey, bool) + Send + 'static,
    ) -> io::Result<Meters> {
        let shared = Arc::new(Shared::default());
        let mut desk = Desk {
            shared: shared.clone(),
            home,
            ledger,
            finished: Box::new(finished),
            readings: BTreeMap::new(),
        };
        std::thread::Builder::new().name("meters".to_owned()).spawn(move || desk.work())?;
        Ok(Meters { shared })
    }

    /// Reads a run's log from its beginning on.
    pub(crate) fn watch(&self, agent: Name, run: RunId, kind: Kind, prices: Prices) {
        let mut state = self.shared.lock();
        state.watched.insert((agent.clone(), run), (kind, Arc::new(prices)));
        state.grown.insert(agent);
        drop(state);
        self.shared.work.notify_one();
    }

    /// There is more in an agent's log. Never waits.
    pub(crate) fn grew(&self, agent: &Name) {
        let mut state = self.shared.lock();
        let first = (agent.clone(), RunId(0));
        let is_watched =
            state.watched.range(first..).next().is_some_and(|((name, _), _)| name == agent);
        if is_watched && !state.grown.contains(agent) {
            state.grown.insert(agent.clone());
            drop(state);
            self.shared.work.notify_one();
        }
    }

    /// Whether a run's log is read.
    pub(crate) fn is_watching(&self, agent: &Name, run: RunId) -> bool {
        self.shared.lock().watched.contains_key(&(agent.clone(), run))
    }

    /// All that a run wrote is in its log: `then` is done when what it spent is known, or when that
    /// takes too long.
    pub(crate) fn finish(&self, agent: Name, run: RunId, then: impl FnOnce() + Send + 'static) {
        self.shared.lock().finished.push((agent, run, Box::new(then)));
        self.shared.work.notify_one();
    }
}

/// How far a run's log was read.
struct Reading {
    reader: Option<LogReader>,
    lines: Lines,
    tally: Tally,
    told: Used,
    work: Work,
}

/// Whether a run has finished its work, by its records.
struct Work {
    kind: Sort,
    follower: Follower,
    finished: bool,
    /// What the engine was told.
    told: bool,
}

impl Work {
    fn new(kind: Sort) -> Work {
        Work { kind, follower: Follower::default(), finished: false, told: false }
    }

    fn take(&mut self, line: &[u8]) {
        if prints_final_record(self.kind)
            && let Some(progress) = self.follower.take(self.kind, line)
        {
            self.finished = progress == Progress::Finished;
        }
    }

    /// Whether it has finished, where that is news.
    fn news(&mut self) -> Option<bool> {
        let is_news = self.finished != std::mem::replace(&mut self.told, self.finished);
        is_news.then_some(self.finished)
    }
}

struct Desk {
    shared: Arc<Shared>,
    home: PathBuf,
    ledger: Ledger,
    finished: Box<dyn Fn(RunKey, bool) + Send>,
    readings: BTreeMap<(Name, RunId), Reading>,
}

impl Desk {
    fn work(&mut self) {
        loop {
            let (grown, finished) = self.wait();
            for (agent, run, then) in finished {
                self.finish(agent, run, then);
            }
            for agent in grown {
                self.read_on(&agent);
            }
        }
    }

    /// Waits for something to read, and a little longer for more of it. An end is not waited with.
    fn wait(&mut self) -> (BTreeSet<Name>, Vec<(Name, RunId, Then)>) {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        while state.grown.is_empty() && state.finished.is_empty() {
            state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.finished.is_empty() {
            (state, _) = shared
                .work
                .wait_timeout_while(state, PAUSE, |state| state.finished.is_empty())
                .unwrap_or_else(PoisonError::into_inner);
        }
        for (key, (kind, prices)) in &state.watched {
            self.readings.entry(key.clone()).or_insert_with(|| Reading {
                reader: None,
                lines: Lines::default(),
                tally: Tally::new(*kind, prices.clone()),
                told: Used::default(),
                work: Work::new(kind.sort()),
            });
        }
        (std::mem::take(&mut state.grown), std::mem::take(&mut state.finished))
    }

    fn read_on(&mut self, agent: &Name) {
        let folder = folder(&self.home, agent);
        for ((name, run), reading) in &mut self.readings {
            if name != agent {
                continue;
            }
            if reading.read(&folder, *run, TURN) {
                // The others have their turn first.
                self.shared.lock().grown.insert(agent.clone());
            }
            if let Some(finished) = reading.work.news() {
                (self.finished)(RunKey { agent: agent.clone(), run: *run }, finished);
            }
            if let Some(used) = reading.news() {
                reading.tell_threads(&self.ledger, agent, *run);
                tell(&self.ledger, agent.clone(), *run, used, None);
            }
        }
    }

    fn finish(&mut self, agent: Name, run: RunId, then: Then) {
        let key = (agent, run);
        self.shared.lock().watched.remove(&key);
        let Some(mut reading) = self.readings.remove(&key) else {
            return then();
        };
        let (agent, run) = key;
        let folder = folder(&self.home, &agent);
        let begin = Instant::now();
        while reading.read(&folder, run, TURN) && begin.elapsed() < LAST_WORDS {}
        let Reading { lines, tally, .. } = &mut reading;
        lines.finish(|line| tally.take(line));
        reading.tell_threads(&self.ledger, &agent, run);
        tell(&self.ledger, agent, run, reading.tally.used(), Some(then));
    }
}

/// Tells the ledger what a run used. An estimate comes last: the ledger goes by the tokens before it.
fn tell(ledger: &Ledger, agent: Name, run: RunId, used: Used, then: Option<Then>) {
    let estimate = used.estimate();
    if estimate.is_empty() {
        return ledger.metered(agent, run, Meter::Output, used.amounts(), then);
    }
    ledger.metered(agent.clone(), run, Meter::Output, used.amounts(), None);
    ledger.metered(agent, run, Meter::Estimate, estimate, then);
}

impl Reading {
    /// Reads what there is, at most `most`. Says whether there may be more.
    fn read(&mut self, folder: &std::path::Path, run: RunId, most: usize) -> bool {
        if self.reader.is_none() {
            // The run may not have written yet.
            self.reader = LogReader::open(folder, Extent::Run(run, usize::MAX)).ok();
        }
        let Some(reader) = &mut self.reader else { return false };
        let mut read = 0;
        while read < most {
            // What cannot be read now is read when there is more.
            let Ok(bytes) = reader.read(CHUNK) else { return false };
            if bytes.is_empty() {
                return false;
            }
            read += bytes.len();
            let (tally, work) = (&mut self.tally, &mut self.work);
            self.lines.take(&bytes, |line| {
                tally.take(line);
                work.take(line);
            });
        }
        true
    }

    fn tell_threads(&self, ledger: &Ledger, agent: &Name, run: RunId) {
        let threads = self.tally.threads();
        if !threads.is_empty() {
            ledger.taken_up(agent.clone(), run, threads);
        }
    }

    /// What was used, where that is news.
    fn news(&mut self) -> Option<Used> {
        let used = self.tally.used();
        let is_news = used != std::mem::replace(&mut self.told, used);
        is_news.then_some(used)
    }
}

#[cfg(test)]
mod tests;
