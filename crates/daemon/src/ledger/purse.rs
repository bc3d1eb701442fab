//! What one agent has and has spent. Pure: amounts in millionths, time handed in, lines out.
//!
//! Meters say totals of a run, never differences: to hear the same total twice changes nothing, so
//! that a meter may begin anew at the run's first line after any death of ours. Two meters of one run
//! are two views of the same spending; the larger of them counts, never their sum. What an agent says
//! of itself comes on top.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use defib_core::{Name, RunId, Wall};
use defib_history::Entry;
use serde::{Deserialize, Serialize};

use super::threads::{Threads, Told};
use crate::meter::burn::{self, Burning};

/// Amounts by unit, in millionths.
pub(crate) type Amounts = BTreeMap<String, i64>;

/// Of so many runs it is known what was counted. Reports of older ones come too late.
const RUNS_KEPT: usize = 4;
/// So many minutes in which something was spent are kept for the baseline.
const MINUTES_KEPT: usize = 60;

/// Who says what a run spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Meter {
    /// What the agent printed.
    Output,
    /// What it sent over OpenTelemetry.
    Otlp,
    /// What the tokens that it printed cost, by a table of prices.
    Estimate,
}

impl Meter {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Meter::Output => "output",
            Meter::Otlp => "otlp",
            Meter::Estimate => "estimated",
        }
    }
}

/// What is known of one run's spending.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct RunSpending {
    /// What the agent said itself.
    own: Amounts,
    /// The latest total of each meter.
    metered: BTreeMap<Meter, Amounts>,
    /// How many tokens of what it printed were printed by earlier runs too.
    #[serde(default)]
    carried: i64,
}

impl RunSpending {
    fn of(&self, unit: &str) -> i64 {
        let own = self.own.get(unit).copied().unwrap_or(0);
        own.saturating_add(self.metered_of(unit))
    }

    /// The part of an estimate that is for this run's own tokens, not for those that earlier runs printed.
    fn own_part(&self, total: i64) -> i64 {
        let printed = self.metered.get(&Meter::Output).and_then(|totals| totals.get("tokens"));
        let own = i128::from(printed.copied().unwrap_or(0));
        let all = own + i128::from(self.carried);
        let part = if all > 0 { i128::from(total) * own / all } else { i128::from(total) };
        i64::try_from(part).unwrap_or(i64::MAX)
    }

    fn metered_of(&self, unit: &str) -> i64 {
        self.metered.values().filter_map(|totals| totals.get(unit)).max().copied().unwrap_or(0)
    }
}

/// What was spent on one day.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct DaySpending {
    /// Which, as `2026-11-16`.
    date: String,
    spent: Amounts,
}

/// The line that further spending of the same sort is added to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct OpenLine {
    number: u64,
    run: RunId,
    source: String,
    micros: i64,
}

/// What was spent in a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Minute {
    /// Minutes since the epoch.
    pub(crate) at: i64,
    pub(crate) micros: i64,
}

/// When something happens, as the caller's clock and calendar say.
#[derive(Debug, Clone)]
pub(crate) struct Moment {
    pub(crate) wall: Wall,
    /// The local date, as `2026-11-16`.
    pub(crate) date: String,
}

/// What one agent has and has spent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Purse {
    /// What is left of the units that it was given; stored in a table of its own.
    #[serde(skip)]
    pub(crate) balances: Amounts,
    /// Units whose opening balance has been given.
    opened: BTreeSet<String>,
    /// All that it ever spent.
    pub(crate) spent: Amounts,
    runs: BTreeMap<RunId, RunSpending>,
    #[serde(default)]
    threads: Threads,
    day: DaySpending,
    /// How many lines its ledger has had.
    lines: u64,
    /// The line of each unit that may still be added to.
    open_lines: BTreeMap<String, OpenLine>,
    /// What was spent when, by unit, oldest first.
    minutes: BTreeMap<String, VecDeque<Minute>>,
    /// The minute in which each unit last burned.
    burned: BTreeMap<String, i64>,
    /// Alarms that nobody has been told of.
    #[serde(skip)]
    pub(crate) alarms: Vec<Burning>,
}

impl Purse {
    /// Gives the opening balance of a unit, unless it was given before.
    pub(crate) fn open(
        &mut self,
        agent: &Name,
        unit: &str,
        micros: i64,
        at: &Moment,
    ) -> Option<Entry> {
        if !self.opened.insert(unit.to_owned()) {
            return None;
        }
        Some(self.give(agent, unit, micros, "opening", "config", at))
    }

    /// Whether the opening balance of a unit has still to be given.
    pub(crate) fn is_unopened(&self, unit: &str) -> bool {
        !self.opened.contains(unit)
    }

    /// Adds to a balance.
    pub(crate) fn fund(&mut self, agent: &Name, unit: &str, micros: i64, at: &Moment) -> Entry {
        self.give(agent, unit, micros, "funded", "operator", at)
    }

    fn give(
        &mut self,
        agent: &Name,
        unit: &str,
        micros: i64,
        what: &str,
        source: &str,
        at: &Moment,
    ) -> Entry {
        let balance = self.balances.entry(unit.to_owned()).or_insert(0);
        *balance = balance.saturating_add(micros);
        let balance = Some(*balance);
        self.open_lines.remove(unit);
        self.lines += 1;
        Entry {
            agent: agent.clone(),
            number: self.lines,
            at: at.wall,
            what: what.to_owned(),
            unit: unit.to_owned(),
            micros,
            balance,
            run: None,
            source: source.to_owned(),
        }
    }

    /// The agent says that it spent so much.
    pub(crate) fn spend(
        &mut self,
        agent: &Name,
        run: RunId,
        unit: &str,
        micros: i64,
        at: &Moment,
    ) -> Option<Entry> {
        let spending = self.run_mut(run)?;
        let own = spending.own.entry(unit.to_owned()).or_insert(0);
        *own = own.saturating_add(micros);
        Some(self.charge(agent, run, unit, micros, "agent", at))
    }

    /// A run has told totals of threads that earlier runs may have told of too. Comes before the
    /// totals that it is a part of.
    pub(crate) fn take_up(&mut self, run: RunId, told: &BTreeMap<String, Told>) {
        let carried = self.threads.carried(run, told);
        if let Some(spending) = self.run_mut(run) {
            spending.carried = carried;
        }
    }

    /// A meter says what the run has spent so far. Nothing where that is no news.
    pub(crate) fn metered(
        &mut self,
        agent: &Name,
        run: RunId,
        meter: Meter,
        totals: &Amounts,
        at: &Moment,
    ) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (unit, total) in totals {
            let Some(spending) = self.run_mut(run) else { return entries };
            let total = match meter {
                Meter::Output if unit == "tokens" => total.saturating_sub(spending.carried),
                Meter::Estimate => spending.own_part(*total),
                Meter::Output | Meter::Otlp => *total,
            };
            let before = spending.metered_of(unit);
            let known = spending.metered.entry(meter).or_default().entry(unit.clone()).or_insert(0);
            // A meter that has lost the beginning of a run knows less than was counted.
            *known = (*known).max(total);
            let more = spending.metered_of(unit).saturating_sub(before);
            if more > 0 {
                entries.push(self.charge(agent, run, unit, more, meter.word(), at));
            }
        }
        entries
    }

    /// The run's spending; nothing for one of which too many have come since.
    fn run_mut(&mut self, run: RunId) -> Option<&mut RunSpending> {
        if !self.runs.contains_key(&run) {
            if self.runs.len() >= RUNS_KEPT && self.runs.keys().next().is_some_and(|k| run < *k) {
                return None;
            }
            while self.runs.len() >= RUNS_KEPT {
                self.runs.pop_first();
            }
        }
        Some(self.runs.entry(run).or_default())
    }

    fn charge(
        &mut self,
        agent: &Name,
        run: RunId,
        unit: &str,
        micros: i64,
        source: &str,
        at: &Moment,
    ) -> Entry {
        add(&mut self.spent, unit, micros);
        if self.day.date != at.date {
            self.day = DaySpending { date: at.date.clone(), spent: Amounts::new() };
        }
        add(&mut self.day.spent, unit, micros);
        self.note_minute(unit, micros, at);
        let balance = self.balances.get_mut(unit).map(|balance| {
            *balance = balance.saturating_sub(micros);
            *balance
        });
        let same = |line: &OpenLine| line.run == run && line.source == source;
        let line = if let Some(line) = self.open_lines.remove(unit).filter(same) {
            OpenLine { micros: line.micros.saturating_add(micros), ..line }
        } else {
            self.lines += 1;
            OpenLine { number: self.lines, run, source: source.to_owned(), micros }
        };
        let entry = Entry {
            agent: agent.clone(),
            number: line.number,
            at: at.wall,
            what: "spent".to_owned(),
            unit: unit.to_owned(),
            micros: line.micros.saturating_neg(),
            balance,
            run: Some(run),
            source: source.to_owned(),
        };
        self.open_lines.insert(unit.to_owned(), line);
        entry
    }

    fn note_minute(&mut self, unit: &str, micros: i64, at: &Moment) {
        let minute = at.wall.as_millis().div_euclid(60_000);
        let minutes = self.minutes.entry(unit.to_owned()).or_default();
        match minutes.back_mut() {
            // A clock that was set back goes on in the minute that it had reached.
            Some(last) if last.at >= minute => last.micros = last.micros.saturating_add(micros),
            Some(_) | None => minutes.push_back(Minute { at: minute, micros }),
        }
        while minutes.len() > MINUTES_KEPT {
            minutes.pop_front();
        }
        let mut burned = self.burned.get(unit).copied();
        self.alarms.extend(burn::judge(minutes, unit, &mut burned));
        self.burned.extend(burned.map(|minute| (unit.to_owned(), minute)));
    }

    /// The first unit of which nothing is left.
    pub(crate) fn empty_unit(&self) -> Option<(&str, i64)> {
        let empty = self.balances.iter().find(|(_, balance)| **balance <= 0);
        empty.map(|(unit, balance)| (unit.as_str(), *balance))
    }

    /// What a meter has counted of a run.
    pub(crate) fn counted(&self, run: RunId, meter: Meter, unit: &str) -> i64 {
        let totals = self.runs.get(&run).and_then(|spending| spending.metered.get(&meter));
        totals.and_then(|totals| totals.get(unit)).copied().unwrap_or(0)
    }

    /// What a run has spent of a unit.
    pub(crate) fn in_run(&self, run: RunId, unit: &str) -> i64 {
        self.runs.get(&run).map_or(0, |spending| spending.of(unit))
    }

    /// What was spent of a unit on a day.
    pub(crate) fn on_day(&self, date: &str, unit: &str) -> i64 {
        if self.day.date == date { self.day.spent.get(unit).copied().unwrap_or(0) } else { 0 }
    }
}

fn add(amounts: &mut Amounts, unit: &str, micros: i64) {
    let amount = amounts.entry(unit.to_owned()).or_insert(0);
    *amount = amount.saturating_add(micros);
}

/// An amount in millionths; the nearest there is.
#[expect(clippy::cast_possible_truncation, reason = "a cast of a float saturates, which is meant")]
pub(crate) fn micros(amount: f64) -> i64 {
    (amount * 1e6).round() as i64
}

/// An amount as people write it.
#[expect(clippy::cast_precision_loss, reason = "what is lost is beyond the millionth of a billion")]
pub(crate) fn amount(micros: i64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent() -> Name {
        Name::parse("a").unwrap()
    }

    fn at(minute: i64) -> Moment {
        Moment { wall: Wall::from_millis(minute * 60_000), date: "2026-11-16".to_owned() }
    }

    fn totals(tokens: i64) -> Amounts {
        Amounts::from([("tokens".to_owned(), tokens)])
    }

    #[test]
    fn the_opening_balance_is_given_once() {
        let mut purse = Purse::default();
        assert!(purse.open(&agent(), "scrip", 100, &at(0)).is_some());
        assert!(purse.open(&agent(), "scrip", 100, &at(1)).is_none());
        assert_eq!(purse.balances["scrip"], 100);
        purse.fund(&agent(), "scrip", 5, &at(2));
        assert_eq!(purse.balances["scrip"], 105);
        assert_eq!(purse.empty_unit(), None);
    }

    #[test]
    fn a_balance_of_zero_or_below_is_empty_and_a_unit_without_balance_never_is() {
        let (mut purse, run) = (Purse::default(), RunId(1));
        purse.open(&agent(), "scrip", 10, &at(0));
        purse.spend(&agent(), run, "usd", 99, &at(0));
        assert_eq!(purse.empty_unit(), None);
        purse.spend(&agent(), run, "scrip", 10, &at(0));
        assert_eq!(purse.empty_unit(), Some(("scrip", 0)));
        purse.spend(&agent(), run, "scrip", 3, &at(0));
        assert_eq!(purse.empty_unit(), Some(("scrip", -3)));
        purse.fund(&agent(), "scrip", 4, &at(0));
        assert_eq!(purse.empty_unit(), None);
    }

    #[test]
    fn the_same_total_twice_is_counted_once_and_a_smaller_one_not_at_all() {
        let (mut purse, run) = (Purse::default(), RunId(1));
        purse.open(&agent(), "tokens", 1000, &at(0));
        for total in [100, 100, 40, 250, 250, 0] {
            purse.metered(&agent(), run, Meter::Output, &totals(total), &at(0));
        }
        assert_eq!(purse.in_run(run, "tokens"), 250);
        assert_eq!(purse.balances["tokens"], 750);
    }

    #[test]
    fn of_two_meters_of_a_run_the_larger_counts_and_the_agent_s_own_word_comes_on_top() {
        let (mut purse, run) = (Purse::default(), RunId(1));
        purse.metered(&agent(), run, Meter::Otlp, &totals(90), &at(0));
        purse.metered(&agent(), run, Meter::Output, &totals(100), &at(0));
        purse.metered(&agent(), run, Meter::Otlp, &totals(95), &at(0));
        assert_eq!(purse.spent["tokens"], 100);
        purse.spend(&agent(), run, "tokens", 7, &at(0));
        purse.metered(&agent(), run, Meter::Output, &totals(110), &at(0));
        assert_eq!(purse.in_run(run, "tokens"), 117);
    }

    #[test]
    fn one_run_s_spending_is_one_line_until_another_comes_between() {
        let (mut purse, run) = (Purse::default(), RunId(1));
        purse.open(&agent(), "tokens", 1000, &at(0));
        let line = |entry: Entry| (entry.number, entry.micros, entry.balance);
        let spend = |purse: &mut Purse, run, micros| {
            line(purse.spend(&agent(), run, "tokens", micros, &at(0)).unwrap())
        };
        assert_eq!(spend(&mut purse, run, 10), (2, -10, Some(990)));
        assert_eq!(spend(&mut purse, run, 5), (2, -15, Some(985)));
        purse.fund(&agent(), "tokens", 15, &at(0));
        assert_eq!(spend(&mut purse, run, 1), (4, -1, Some(999)));
        assert_eq!(spend(&mut purse, RunId(2), 1), (5, -1, Some(998)));
    }

    #[test]
    fn a_day_begins_at_nothing_and_runs_that_are_long_gone_are_not_counted() {
        let mut purse = Purse::default();
        purse.spend(&agent(), RunId(9), "usd", 5, &at(0));
        assert_eq!(purse.on_day("2026-11-16", "usd"), 5);
        assert_eq!(purse.on_day("2026-11-17", "usd"), 0);
        for run in 10..13 {
            purse.spend(&agent(), RunId(run), "usd", 5, &at(0));
        }
        assert!(purse.spend(&agent(), RunId(1), "usd", 5, &at(0)).is_none());
        assert_eq!(purse.spent["usd"], 20);
    }

    #[test]
    fn huge_amounts_stay_at_the_end_of_the_scale() {
        let mut purse = Purse::default();
        purse.open(&agent(), "scrip", i64::MAX, &at(0));
        purse.fund(&agent(), "scrip", i64::MAX, &at(0));
        assert_eq!(purse.balances["scrip"], i64::MAX);
        for _ in 0..3 {
            purse.spend(&agent(), RunId(1), "scrip", i64::MAX, &at(0));
        }
        assert!(purse.balances["scrip"] < 0);
        assert_eq!((micros(f64::NAN), micros(1e300), micros(0.5)), (0, i64::MAX, 500_000));
    }

    #[test]
    fn spending_far_above_the_baseline_alarms_once() {
        let mut purse = Purse::default();
        for minute in 0..10 {
            purse.spend(&agent(), RunId(1), "usd", 1_000_000, &at(minute));
        }
        assert!(purse.alarms.is_empty());
        for _ in 0..9 {
            purse.spend(&agent(), RunId(1), "usd", 1_000_000, &at(10));
        }
        let alarm = Burning { unit: "usd".into(), per_minute: 6_000_000, baseline: 1_000_000 };
        assert_eq!(purse.alarms, [alarm]);
    }

    #[test]
    fn a_thread_that_is_taken_up_again_is_charged_once_also_after_a_death_of_ours() {
        let mut purse = Purse::default();
        for (run, total) in [(1, 100), (2, 130), (3, 150)] {
            let thread = BTreeMap::from([("t".to_owned(), Told { first: total, last: total })]);
            for _ in 0..2 {
                purse.take_up(RunId(run), &thread);
                purse.metered(&agent(), RunId(run), Meter::Output, &totals(total), &at(7));
                let text = serde_json::to_string(&purse).unwrap();
                purse = serde_json::from_str(&text).unwrap();
            }
        }
        assert_eq!(purse.spent, totals(150));
        assert_eq!(purse.in_run(RunId(3), "tokens"), 20);
    }

    #[test]
    fn an_estimate_of_a_thread_that_is_taken_up_again_is_for_the_new_tokens_alone() {
        let mut purse = Purse::default();
        for (run, total) in [(1, 100), (2, 400)] {
            let thread = BTreeMap::from([("t".to_owned(), Told { first: total, last: total })]);
            purse.take_up(RunId(run), &thread);
            purse.metered(&agent(), RunId(run), Meter::Output, &totals(total), &at(7));
            // Two for each token, of the whole thread.
            let estimate = Amounts::from([("usd".to_owned(), 2 * total)]);
            purse.metered(&agent(), RunId(run), Meter::Estimate, &estimate, &at(7));
        }
        assert_eq!((purse.spent["tokens"], purse.spent["usd"]), (400, 800));
        assert_eq!(purse.in_run(RunId(2), "usd"), 600);
    }

    #[test]
    fn what_was_counted_survives_the_disk() {
        let mut purse = Purse::default();
        purse.metered(&agent(), RunId(3), Meter::Output, &totals(50), &at(7));
        let text = serde_json::to_string(&purse).unwrap();
        let mut read: Purse = serde_json::from_str(&text).unwrap();
        assert_eq!(read, purse);
        assert!(read.metered(&agent(), RunId(3), Meter::Output, &totals(50), &at(8)).is_empty());
    }
}
