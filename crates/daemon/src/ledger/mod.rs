//! The ledger: what agents have and spend, kept so that nothing of it is lost or counted twice.
//!
//! One thread, the clerk, changes purses. What a person gives is on disk before it counts; what an
//! agent says it spent is on disk before it is told so. What meters say counts at once; it is stored
//! soon where they can say it again after a death of ours, and before they go on where they cannot.
//! Whoever changes a purse hears of it after the
//! engine has drawn its conclusions, so that a spending is known before the death that follows it.

mod purse;
mod threads;

pub(crate) use purse::{Amounts, Meter, Minute, Moment, Purse, amount, micros};
pub(crate) use threads::Told;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use defib_core::{Name, RunId, Wall};
use defib_history::{Balance, Entry, History, Intent, Intents};
use defib_host::clock::now;
use jiff::tz::TimeZone;

use crate::engine::Answer;
use crate::intents::refused_unstored;
use crate::meter::burn::Burning;
use crate::wire::{ErrorCode, ErrorDetail};

/// So often at most an agent's spending is told and, where nobody waits for it, stored.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Under this key the purse of an agent is kept.
const KEY: &str = "purse/";

/// What the engine is told.
#[derive(Debug)]
pub(crate) enum Notice {
    /// Purses have changed; whoever waits for that is answered once the engine has looked.
    Changed(Vec<Name>, Option<(Receipt, Answer<Receipt>)>),
    /// An agent spends far above its own baseline.
    Burning(Name, RunId, Burning),
    /// An agent was given something.
    Funded(Entry),
    /// What an agent has spent since this was last told.
    Spent {
        /// Whose.
        agent: Name,
        /// Which.
        run: RunId,
        /// How much of what.
        amounts: Amounts,
    },
}

/// What a purse says after a change.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub(crate) struct Receipt {
    /// Whose it is.
    #[schema(value_type = crate::wire::words::NameWord)]
    pub(crate) agent: Name,
    /// What was changed.
    pub(crate) unit: String,
    /// What is left of it; nothing where the agent has no balance of it.
    pub(crate) balance: Option<f64>,
}

enum Order {
    Open { agent: Name, balances: BTreeMap<String, f64> },
    Fund { agent: Name, unit: String, micros: i64, answer: Answer<Receipt> },
    Spend { agent: Name, run: RunId, unit: String, micros: i64, answer: Answer<Receipt> },
    TakenUp { agent: Name, run: RunId, threads: BTreeMap<String, Told> },
    Metered { agent: Name, run: RunId, meter: Meter, totals: Amounts, then: Option<Then> },
    Flush(Then),
}

/// What is done once the engine can know.
type Then = Box<dyn FnOnce() + Send>;

type Purses = Arc<Mutex<BTreeMap<Name, Purse>>>;

/// The way to the clerk, and a look at purses.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    orders: Sender<Order>,
    purses: Purses,
}

/// The clerk before its work begins.
pub(crate) struct Clerk {
    history: Arc<History>,
    purses: Purses,
    inbox: Receiver<Order>,
}

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Order")
    }
}

impl Ledger {
    /// The ledger as it was stored, and the clerk that keeps it.
    pub(crate) fn open(history: Arc<History>, intents: &Intents) -> (Ledger, Clerk) {
        let mut purses: BTreeMap<Name, Purse> = BTreeMap::new();
        for (key, text) in &intents.kept {
            let name = key.strip_prefix(KEY).and_then(|name| Name::known(name).ok());
            if let (Some(name), Ok(purse)) = (name, serde_json::from_str(text)) {
                purses.insert(name, purse);
            }
        }
        for (name, balances) in &intents.balances {
            let purse = purses.entry(name.clone()).or_default();
            purse.balances =
                balances.iter().map(|(unit, Balance(micros))| (unit.clone(), *micros)).collect();
        }
        let purses: Purses = Arc::new(Mutex::new(purses));
        let (orders, inbox) = channel();
        (Ledger { orders, purses: purses.clone() }, Clerk { history, purses, inbox })
    }

    /// Gives opening balances, those that have not been given before.
    pub(crate) fn give_opening(&self, agent: Name, balances: BTreeMap<String, f64>) {
        self.order(Order::Open { agent, balances });
    }

    /// Gives an agent something. Answered when it is on disk and the engine knows.
    pub(crate) fn fund(&self, agent: Name, unit: String, micros: i64, answer: Answer<Receipt>) {
        self.order(Order::Fund { agent, unit, micros, answer });
    }

    /// An agent says what it spent. Answered when it is on disk and the engine knows.
    #[allow(dead_code, reason = "the route of `self spend` comes with the agents' own channel")]
    pub(crate) fn spend(
        &self,
        agent: Name,
        run: RunId,
        unit: String,
        micros: i64,
        answer: Answer<Receipt>,
    ) {
        self.order(Order::Spend { agent, run, unit, micros, answer });
    }

    /// A meter says what a run has spent so far. `then` is done once that is on disk and the engine
    /// can know; without it, that may be lost with us.
    pub(crate) fn metered(
        &self,
        agent: Name,
        run: RunId,
        meter: Meter,
        totals: Amounts,
        then: Option<Then>,
    ) {
        self.order(Order::Metered { agent, run, meter, totals, then });
    }

    /// A meter says where threads stand that may be older than the run. It says so before the totals
    /// that this is a part of.
    pub(crate) fn taken_up(&self, agent: Name, run: RunId, threads: BTreeMap<String, Told>) {
        self.order(Order::TakenUp { agent, run, threads });
    }

    /// Does something when all that counts is on disk.
    pub(crate) fn flush(&self, then: impl FnOnce() + Send + 'static) {
        self.order(Order::Flush(Box::new(then)));
    }

    /// Looks at an agent's purse.
    pub(crate) fn look<T>(&self, agent: &Name, look: impl FnOnce(&Purse) -> T) -> Option<T> {
        lock(&self.purses).get(agent).map(look)
    }

    fn order(&self, order: Order) {
        // The clerk ends only with the process.
        let _ = self.orders.send(order);
    }
}

fn lock(purses: &Purses) -> MutexGuard<'_, BTreeMap<Name, Purse>> {
    purses.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was spent and has not been told.
struct Untold {
    spent: BTreeMap<RunId, Amounts>,
    /// Lines that are not stored.
    lines: BTreeMap<u64, Entry>,
    /// Nothing is told before.
    not_before: Instant,
}

impl Default for Untold {
    fn default() -> Untold {
        Untold { spent: BTreeMap::new(), lines: BTreeMap::new(), not_before: Instant::now() }
    }
}

impl Untold {
    fn note(&mut self, entry: &Entry, micros: i64) {
        if let Some(run) = entry.run {
            let amount = self.spent.entry(run).or_default().entry(entry.unit.clone()).or_insert(0);
            *amount = amount.saturating_add(micros);
        }
    }

    fn due(&self) -> Option<Instant> {
        let is_idle = self.spent.is_empty() && self.lines.is_empty();
        (!is_idle).then_some(self.not_before)
    }
}

impl Clerk {
    /// Puts the clerk to work. `tell` must not block.
    pub(crate) fn start(self, tell: impl Fn(Notice) + Send + 'static) -> io::Result<()> {
        let mut desk = Desk {
            history: self.history,
            purses: self.purses,
            untold: BTreeMap::new(),
            tell: Box::new(tell),
        };
        let inbox = self.inbox;
        let work = move || desk.work(&inbox);
        std::thread::Builder::new().name("clerk".to_owned()).spawn(work).map(drop)
    }
}

struct Desk {
    history: Arc<History>,
    purses: Purses,
    untold: BTreeMap<Name, Untold>,
    tell: Box<dyn Fn(Notice) + Send>,
}

impl Desk {
    fn work(&mut self, inbox: &Receiver<Order>) {
        loop {
            let due = self.untold.values().filter_map(Untold::due).min();
            let first = match due {
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => inbox.recv_timeout(due.saturating_duration_since(Instant::now())),
            };
            match first {
                Ok(order) => {
                    let mut changed = BTreeSet::new();
                    let mut thens = Vec::new();
                    self.carry_out(order, &mut changed, &mut thens);
                    // What has come meanwhile is stored and told in one.
                    for order in inbox.try_iter().take(256) {
                        self.carry_out(order, &mut changed, &mut thens);
                    }
                    if !thens.is_empty() {
                        self.store();
                    }
                    if !changed.is_empty() {
                        (self.tell)(Notice::Changed(changed.into_iter().collect(), None));
                    }
                    for then in thens {
                        then();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.tell_what_is_due();
        }
    }

    fn carry_out(&mut self, order: Order, changed: &mut BTreeSet<Name>, thens: &mut Vec<Then>) {
        let at = moment(now().wall);
        match order {
            Order::Open { agent, balances } => self.open(&agent, &balances, &at, changed),
            Order::Fund { agent, unit, micros, answer } => {
                let mut purse = self.purse(&agent);
                let entry = purse.fund(&agent, &unit, micros, &at);
                let entries = self.with_unstored(&agent, [entry.clone()]);
                if let Err(error) = self.history.store_intents(intents(&agent, &purse, entries)) {
                    let change = format!("fund {agent}");
                    let _ = answer.send(Err(refused_unstored(&change, error)));
                    return;
                }
                self.stored(&agent);
                lock(&self.purses).insert(agent.clone(), purse);
                let receipt = receipt(&entry);
                (self.tell)(Notice::Funded(entry));
                (self.tell)(Notice::Changed(vec![agent], Some((receipt, answer))));
            }
            Order::Spend { agent, run, unit, micros, answer } => {
                let mut purse = self.purse(&agent);
                let Some(entry) = purse.spend(&agent, run, &unit, micros, &at) else {
                    let message = format!("run {run} of {agent} is long over");
                    let code = ErrorCode::NotInState;
                    let _ = answer.send(Err(ErrorDetail { code, message, hint: None }));
                    return;
                };
                let entries = self.with_unstored(&agent, [entry.clone()]);
                let all: Vec<Intent> = intents(&agent, &purse, entries).collect();
                // A disk that fails makes nothing free of charge: it is stored when it can be.
                if self.history.store_intents(all.clone()).is_err() {
                    self.history.store_later(all);
                }
                self.stored(&agent);
                let alarms = std::mem::take(&mut purse.alarms);
                lock(&self.purses).insert(agent.clone(), purse);
                self.untold.entry(agent.clone()).or_default().note(&entry, micros);
                self.alarm(&agent, run, alarms);
                let receipt = receipt(&entry);
                (self.tell)(Notice::Changed(vec![agent], Some((receipt, answer))));
            }
            Order::Metered { agent, run, meter, totals, then } => {
                let mut purses = lock(&self.purses);
                let purse = purses.entry(agent.clone()).or_default();
                let before: Amounts =
                    totals.keys().map(|unit| (unit.clone(), purse.in_run(run, unit))).collect();
                let entries = purse.metered(&agent, run, meter, &totals, &at);
                let untold = self.untold.entry(agent.clone()).or_default();
                for entry in entries {
                    let was = before.get(&entry.unit).copied().unwrap_or(0);
                    untold.note(&entry, purse.in_run(run, &entry.unit).saturating_sub(was));
                    untold.lines.insert(entry.number, entry);
                    changed.insert(agent.clone());
                }
                let alarms = std::mem::take(&mut purse.alarms);
                drop(purses);
                self.alarm(&agent, run, alarms);
                thens.extend(then);
            }
            // Stored with the totals that follow it.
            Order::TakenUp { agent, run, threads } => {
                lock(&self.purses).entry(agent).or_default().take_up(run, &threads);
            }
            Order::Flush(then) => thens.push(then),
        }
    }

    fn open(
        &mut self,
        agent: &Name,
        balances: &BTreeMap<String, f64>,
        at: &Moment,
        changed: &mut BTreeSet<Name>,
    ) {
        let mut purse = self.purse(agent);
        let given: Vec<Entry> = balances
            .iter()
            .filter_map(|(unit, given)| purse.open(agent, unit, micros(*given), at))
            .collect();
        if given.is_empty() {
            return;
        }
        let entries = self.with_unstored(agent, given.clone());
        let all: Vec<Intent> = intents(agent, &purse, entries).collect();
        if self.history.store_intents(all.clone()).is_err() {
            self.history.store_later(all);
        }
        self.stored(agent);
        lock(&self.purses).insert(agent.clone(), purse);
        for entry in given {
            (self.tell)(Notice::Funded(entry));
        }
        changed.insert(agent.clone());
    }

    fn alarm(&self, agent: &Name, run: RunId, alarms: Vec<Burning>) {
        for burning in alarms {
            (self.tell)(Notice::Burning(agent.clone(), run, burning));
        }
    }

    fn purse(&self, agent: &Name) -> Purse {
        lock(&self.purses).get(agent).cloned().unwrap_or_default()
    }

    /// New lines after those that are not stored yet: a purse is never stored without its lines.
    fn with_unstored(&self, agent: &Name, new: impl IntoIterator<Item = Entry>) -> Vec<Entry> {
        let waiting = self.untold.get(agent);
        let mut lines: BTreeMap<u64, Entry> =
            waiting.map(|untold| untold.lines.clone()).unwrap_or_default();
        lines.extend(new.into_iter().map(|entry| (entry.number, entry)));
        lines.into_values().collect()
    }

    /// Stores every line that is not stored yet, and returns when that is done, and with it whatever
    /// was to be stored later.
    fn store(&mut self) {
        let mut all = Vec::new();
        let purses = lock(&self.purses);
        for (agent, untold) in &mut self.untold {
            let lines = std::mem::take(&mut untold.lines);
            if let Some(purse) = purses.get(agent).filter(|_| !lines.is_empty()) {
                all.extend(intents(agent, purse, lines.into_values()));
            }
        }
        drop(purses);
        // A disk that fails is said elsewhere; it is tried until it is stored.
        self.history.store_later(all);
        let _ = self.history.settle_intents();
    }

    fn stored(&mut self, agent: &Name) {
        if let Some(untold) = self.untold.get_mut(agent) {
            untold.lines.clear();
        }
    }

    fn tell_what_is_due(&mut self) {
        let now = Instant::now();
        for (agent, untold) in &mut self.untold {
            if untold.due().is_none_or(|due| due > now) {
                continue;
            }
            untold.not_before = now + TELL_EVERY;
            let lines = std::mem::take(&mut untold.lines);
            if !lines.is_empty()
                && let Some(purse) = lock(&self.purses).get(agent)
            {
                self.history.store_later(intents(agent, purse, lines.into_values()));
            }
            for (run, amounts) in std::mem::take(&mut untold.spent) {
                (self.tell)(Notice::Spent { agent: agent.clone(), run, amounts });
            }
        }
    }
}

/// A purse and lines of it, to be stored in one.
fn intents(
    agent: &Name,
    purse: &Purse,
    lines: impl IntoIterator<Item = Entry>,
) -> impl Iterator<Item = Intent> {
    let balances: Vec<Intent> = purse
        .balances
        .iter()
        .map(|(unit, micros)| Intent::Balance {
            agent: agent.clone(),
            unit: unit.clone(),
            micros: *micros,
        })
        .collect();
    // A purse is made of maps with words and numbers for keys: it can always be written.
    let value = serde_json::to_string(purse).unwrap_or_default();
    let kept = Intent::Keep { key: format!("{KEY}{agent}"), value };
    let lines: Vec<Intent> = lines.into_iter().map(Intent::Entry).collect();
    balances.into_iter().chain([kept]).chain(lines)
}

fn receipt(entry: &Entry) -> Receipt {
    let Entry { agent, unit, balance, .. } = entry;
    Receipt { agent: agent.clone(), unit: unit.clone(), balance: balance.map(amount) }
}

#[cfg(test)]
mod tests;

/// A moment as the calendar on the wall has it.
pub(crate) fn moment(wall: Wall) -> Moment {
    let stamp = jiff::Timestamp::from_millisecond(wall.as_millis()).unwrap_or_default();
    Moment { wall, date: stamp.to_zoned(TimeZone::system()).date().to_string() }
}

/// When the local day of a moment is over.
pub(crate) fn end_of_day(wall: Wall) -> Wall {
    let stamp = jiff::Timestamp::from_millisecond(wall.as_millis()).unwrap_or_default();
    let today = stamp.to_zoned(TimeZone::system());
    let tomorrow = today.tomorrow().and_then(|tomorrow| tomorrow.start_of_day());
    tomorrow.map_or(wall, |start| Wall::from_millis(start.timestamp().as_millisecond()))
}
