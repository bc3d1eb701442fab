//! What another daemon had not put on disk when it ended, found again by its successor.
//!
//! Events are in the journal or with the keeper; what is in neither is said to be missing. The last
//! output of a run is in its log. It refuses to hold up the agents: nothing here fails a start.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use defib_core::view::LastDeath;
use defib_core::{Life, Mono, Name, Now, Record, RunId, View};
use defib_history::{
    Event, History, Intent, Intents, OpenRun, Reader, Run, RunDeath, Stamp, Usage,
};
use defib_host::clock::{boot_id, now};
use defib_host::protocol::RunKey;

use super::Engine;
use super::ask::Ask;
use super::facts::{self, records};
use crate::journal::Journal;
use crate::logs;

/// Of so many of the last deaths the output is looked for again.
const MOST_TAILS: usize = 256;
/// What is found on a run is on disk this long after its death, unless the disk fails.
const SETTLED: Duration = Duration::from_secs(10);

/// What was in the journal.
pub(super) struct TakenUp {
    pub(super) journal: Journal,
    /// Every record in it, by event number.
    pub(super) last_days: BTreeMap<u64, Record>,
    /// The number of the last that the history had not.
    pub(super) last_unwritten: u64,
    /// What those runs used of whose deaths the history had not heard.
    pub(super) used: BTreeMap<Name, (RunId, Usage)>,
    /// The last of those runs.
    pub(super) deaths: Vec<RunKey>,
}

/// What is known of the numbers of events.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    /// The highest that the history has; zero where it is new.
    pub(super) stored: u64,
    /// The highest that has happened, where the last daemon could say so: what was written and not
    /// kept has not, and its news come again.
    pub(super) happened: Option<u64>,
}

impl TakenUp {
    /// Hands on what the journal has and the history has not, as far as it has happened. `kept` is what
    /// was to be written to it last.
    pub(super) fn from(
        home: &Path,
        kept: &[u8],
        history: &History,
        numbers: Numbers,
        rests_are_stored: bool,
    ) -> TakenUp {
        let (mut journal, mut unwritten) = Journal::open(&home.join("journal"), kept);
        let last_days = records(&unwritten);
        let happened = numbers.happened.unwrap_or(u64::MAX);
        unwritten.retain(|event| event.seq > numbers.stored && event.seq <= happened);
        fill_gaps(&mut unwritten, numbers);
        if rests_are_stored {
            // A journal that cannot be written is no reason not to start.
            let _ = journal.begin_anew(&unwritten);
        }
        let last_unwritten = unwritten.last().map_or(0, |event| event.seq);
        let deaths = unwritten.iter().filter(|event| event.kind == "run-died");
        let deaths: Vec<(RunKey, Usage)> = deaths
            .filter_map(|event| {
                let key = RunKey { agent: event.agent.clone()?, run: event.run? };
                Some((key, event.used()))
            })
            .collect();
        let used = deaths.iter().map(|(key, used)| (key.agent.clone(), (key.run, *used))).collect();
        let deaths = deaths.into_iter().rev().take(MOST_TAILS).map(|(key, _)| key).collect();
        history.append(unwritten);
        TakenUp { journal, last_days, last_unwritten, used, deaths }
    }
}

/// Puts on disk who rests, and takes off it who does not, as the last daemon knew at event `happened`:
/// it may have been killed before it had. Until that is done only the journal knows. Says whether it is.
pub(super) fn store_rests(
    lives: &BTreeMap<Name, Life>,
    happened: Option<u64>,
    intents: &mut Intents,
    history: &History,
) -> bool {
    let mut changes = Vec::new();
    for (name, life) in lives {
        let key = format!("life/{name}");
        let stored = intents.kept.get(&key);
        if life.rests() {
            let Ok(value) = serde_json::to_string(life) else { continue };
            if stored != Some(&value) {
                intents.kept.insert(key.clone(), value.clone());
                changes.push(Intent::Keep { key, value });
            }
        } else if stored.is_some() && life.wished().is_none() {
            intents.kept.remove(&key);
            changes.push(Intent::Drop { key });
        }
    }
    if changes.is_empty() {
        return true;
    }
    changes.extend(happened.map(facts::mark));
    let stored = history.store_intents(changes.clone()).is_ok();
    if !stored {
        history.store_later(changes);
    }
    stored
}

/// Where events are missing between what is stored and what has happened, an event says so. Those
/// before the first that is known, where the history is new, have gone with the last history.
fn fill_gaps(events: &mut Vec<Event>, Numbers { stored, happened }: Numbers) {
    let Some(happened) = happened else { return };
    let first = events.first().map_or(happened + 1, |event| event.seq);
    let mut last = if stored > 0 { stored } else { first - 1 };
    let mut filled = Vec::with_capacity(events.len());
    let gap = |last: u64, next: u64| {
        let boot = boot_id().unwrap_or_default().into();
        let stamp = Stamp { seq: last + 1, now: now(), boot, project: None };
        Event::gap(stamp, next - last - 1, next - 1)
    };
    for event in events.drain(..) {
        if event.seq > last + 1 {
            filled.push(gap(last, event.seq));
        }
        last = event.seq;
        filled.push(event);
    }
    if happened > last {
        filled.push(gap(last, happened + 1));
    }
    *events = filled;
}

impl Engine {
    /// Has the last output of runs read from their logs again, as far as the history has it not: what
    /// was found on them may have gone with whoever found it.
    pub(super) fn recover_tails(&self, runs: Vec<RunKey>) {
        if runs.is_empty() {
            return;
        }
        let (home, path, handle) =
            (self.home.clone(), self.history.path().to_owned(), self.handle.clone());
        let recover = move || {
            let Ok(reader) = Reader::open(&path) else { return };
            for key in runs {
                let is_there = reader.tail(&key.agent, key.run).is_ok_and(|tail| tail.is_some());
                let folder = logs::folder(&home, &key.agent);
                if !is_there && let Ok(tail) = logs::last_of_run(&folder, key.run) {
                    handle.tell(Ask::Tail(key, tail));
                }
            }
        };
        // Without a thread those few deaths have their numbers and no last words.
        let _ = std::thread::Builder::new()
            .name("tails".to_owned())
            .spawn(move || defib_host::in_background(recover));
    }

    /// Takes from the history what a death's event does not say: its trace, and what the run used.
    pub(super) fn remember(&mut self, agent: Name, run: RunId, death: RunDeath) {
        if let Some(trace) = death.trace {
            self.traces.insert(agent.clone(), (run, trace));
        }
        // The journal may know of a later one.
        let known = self.used.entry(agent).or_insert((run, death.used));
        if known.0 < run {
            *known = (run, death.used);
        }
    }

    /// Takes the last death of every agent from the history. Of one whose run was open nobody has told
    /// yet how it ended, and that is its last.
    pub(super) fn recall_deaths(&mut self) {
        for run in newest_runs(&self.history) {
            let Run { agent, run, death: Some(death), .. } = run else { continue };
            let last = LastDeath {
                // Nobody asks when it was on a clock that may have been another boot's.
                at: Now { mono: Mono::ZERO, wall: death.at },
                run: Some(run),
                class: death.class,
                kind: death.kind,
                exit_code: death.exit_code,
                signal: death.signal,
                ran: death.ran_s.0,
                evidence: death.evidence.as_deref().map(Box::from),
            };
            self.view.recall(agent.clone(), last);
            self.remember(agent, run, death);
        }
    }

    /// The last output of a run that another daemon saw end.
    pub(super) fn hear_tail(&mut self, key: RunKey, tail: &[u8]) {
        self.learn_secrets(&key.agent);
        let secrets = self.redactor(&key, tail);
        self.note_tail(key.agent, key.run, tail, &secrets);
    }

    /// The deaths whose last output may not be on disk: those that the history had not heard of, and
    /// the latest that it had.
    pub(super) fn unsettled(&self, unwritten: Vec<RunKey>) -> Vec<RunKey> {
        let now = now().mono;
        let is_late = |at: Mono| at + SETTLED >= now;
        let late = self.view.agents().filter_map(|(agent, view)| {
            let death = view.last_death.as_ref().filter(|death| is_late(death.at.mono))?;
            Some((agent.clone(), death.run?))
        });
        let unwritten = unwritten.into_iter().map(|RunKey { agent, run }| (agent, run));
        let all: BTreeSet<(Name, RunId)> = unwritten.chain(late).collect();
        all.into_iter().map(|(agent, run)| RunKey { agent, run }).collect()
    }

    /// Waits for the history to have all that was set aside of the journal, for as long as it takes a
    /// disk to work again.
    pub(super) fn settle_journal(&self) {
        let (history, handle) = (self.history.clone(), self.handle.clone());
        // Without a thread the journal grows until the next daemon begins.
        let _ = std::thread::Builder::new().name("journal".to_owned()).spawn(move || {
            if settled(&history) {
                handle.tell(Ask::Flushed);
            }
        });
    }
}

/// Waits until everything that was handed to the history is on disk, or is said to be missing there.
/// False: there is no history any more.
fn settled(history: &Arc<History>) -> bool {
    use defib_history::HistoryError;
    loop {
        match history.flush(Duration::from_secs(600)) {
            // What was lost stands as a gap in the history.
            Ok(()) | Err(HistoryError::Lost(_)) => return true,
            Err(HistoryError::Closed) => return false,
            // It is tried again by itself, and until that has worked there is nothing to be done.
            Err(_) => std::thread::sleep(SETTLED),
        }
    }
}

/// The last run of each agent that the history knows of.
pub(super) fn last_runs(history: &History) -> BTreeMap<Name, RunId> {
    let reader = Reader::open(history.path());
    reader.and_then(|reader| reader.last_runs()).unwrap_or_default()
}

/// The newest run of each agent that the history knows of.
pub(super) fn newest_runs(history: &History) -> Vec<Run> {
    let reader = Reader::open(history.path());
    reader.and_then(|reader| reader.newest_runs()).unwrap_or_default()
}

/// The runs of which no end is known: they ended with whoever could have seen it.
pub(super) fn open_runs(history: &History) -> Vec<OpenRun> {
    let reader = Reader::open(history.path());
    reader.and_then(|reader| reader.open_runs()).unwrap_or_default()
}

/// How long a run has lived of which only now is known that it is over. Within one boot that is measured
/// on the clock that nobody moves.
pub(super) fn lived(run: &OpenRun, now: Now, boot: &str) -> Duration {
    match &run.began {
        Some((began_in, at)) if began_in == boot => now.mono.since(*at),
        Some(_) | None => now.wall.since(run.started_at),
    }
}

/// The runs of the deaths that the view has, as far as the history does.
pub(super) fn last_deaths(history: &History, view: &View) -> Vec<Run> {
    let deaths = view.agents().filter_map(|(name, agent)| {
        let run = agent.last_death.as_ref()?.run?;
        Some((name.clone(), run))
    });
    let deaths: Vec<(Name, RunId)> = deaths.collect();
    if deaths.is_empty() {
        return Vec::new();
    }
    let Ok(reader) = Reader::open(history.path()) else { return Vec::new() };
    deaths.into_iter().filter_map(|(name, run)| reader.run(&name, run).ok()?).collect()
}

#[cfg(test)]
mod tests {
    use defib_core::Wall;
    use serde_json::Map;

    use super::*;

    fn events(seqs: &[u64]) -> Vec<Event> {
        let event = |seq: &u64| {
            let stamp = Stamp { seq: *seq, now: Now::default(), boot: "b".into(), project: None };
            Event::new(stamp, "notified", None, None, Map::new())
        };
        seqs.iter().map(event).collect()
    }

    fn filled(seqs: &[u64], stored: u64, happened: Option<u64>) -> Vec<String> {
        let mut events = events(seqs);
        fill_gaps(&mut events, Numbers { stored, happened });
        let shown = |event: &Event| match event.body.get("last_seq") {
            Some(last) => format!("{}..{last}", event.seq),
            None => event.seq.to_string(),
        };
        events.iter().map(shown).collect()
    }

    #[test]
    fn a_lost_run_lived_since_it_began_whatever_was_done_to_the_clock() {
        let open = |began: Option<(&str, u64)>| OpenRun {
            agent: Name::parse("a").unwrap(),
            run: RunId(1),
            started_at: Wall::from_millis(10_000),
            began: began.map(|(boot, s)| (boot.to_owned(), Mono::from_nanos(s * 1_000_000_000))),
        };
        // The wall clock was put forward by an hour.
        let (mono, wall) = (Mono::from_nanos(70_000_000_000), Wall::from_millis(3_670_000));
        let seconds = |began| lived(&open(began), Now { mono, wall }, "now").as_secs();
        assert_eq!(seconds(Some(("now", 10))), 60);
        assert_eq!(seconds(Some(("before", 10))), 3_660, "another boot's clock says nothing");
        assert_eq!(seconds(None), 3_660, "all that is left is when it began");
    }

    #[test]
    fn events_that_are_nowhere_are_said_to_be_missing_where_they_are() {
        assert_eq!(filled(&[5, 6], 4, Some(6)), ["5", "6"]);
        assert_eq!(filled(&[5, 9], 4, Some(9)), ["5", "6..8", "9"]);
        assert_eq!(filled(&[7], 4, Some(9)), ["5..6", "7", "8..9"]);
        assert_eq!(filled(&[], 4, Some(9)), ["5..9"]);
        assert_eq!(filled(&[], 4, Some(4)), [""; 0]);
        // Of a history that was lost nobody knows where it ended.
        assert_eq!(filled(&[7, 9], 0, Some(9)), ["7", "8..8", "9"]);
        // After a reboot nobody knows what has happened beyond what was written.
        assert_eq!(filled(&[7, 9], 4, None), ["7", "9"]);
    }
}
