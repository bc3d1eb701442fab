//! Threads that outlive runs. An agent that takes one up again tells the thread's total so far, with
//! all that earlier runs told of it: that part was spent once. Pure.

use std::collections::BTreeMap;

use defib_core::RunId;
use serde::{Deserialize, Serialize};

/// So many threads of an agent are remembered, the latest ones.
const KEPT: usize = 16;

/// What one run has told of a thread, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    /// The first total that it told.
    pub(crate) first: i64,
    /// The last one.
    pub(crate) last: i64,
}

/// What is known of an agent's threads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Threads(BTreeMap<String, Thread>);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Thread {
    /// The latest run that told of it.
    run: RunId,
    /// Where it stood before that run.
    before: i64,
    /// Where it stands.
    last: i64,
}

impl Threads {
    /// Notes what a run tells of its threads, and gives how much of that is none of its own spending.
    /// To hear the same again changes nothing.
    pub(super) fn carried(&mut self, run: RunId, told: &BTreeMap<String, Told>) -> i64 {
        let carried = told.iter().map(|(id, told)| self.of(id, run, *told)).sum();
        while self.0.len() > KEPT {
            let oldest = self.0.iter().min_by_key(|(_, thread)| thread.run);
            let Some(oldest) = oldest.map(|(id, _)| id.clone()) else { break };
            self.0.remove(&oldest);
        }
        carried
    }

    fn of(&mut self, id: &str, run: RunId, told: Told) -> i64 {
        let thread =
            self.0.entry(id.to_owned()).or_insert(Thread { run, before: 0, last: told.last });
        if run < thread.run {
            // A report that comes too late is no longer told apart from what came after it.
            return told.first;
        }
        if run > thread.run {
            // A total that has fallen is one that counts anew, as some versions do with each run.
            let before = if told.first < thread.last { 0 } else { thread.last };
            *thread = Thread { run, before, last: told.last };
        }
        thread.last = told.last;
        thread.before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(all: &[(&str, i64, i64)]) -> BTreeMap<String, Told> {
        let told = |(id, first, last): &(&str, i64, i64)| {
            ((*id).to_owned(), Told { first: *first, last: *last })
        };
        all.iter().map(told).collect()
    }

    #[test]
    fn what_earlier_runs_told_of_a_thread_is_carried_and_said_again_changes_nothing() {
        let mut threads = Threads::default();
        for (what, run, said, carried) in [
            ("a new thread", 1, told(&[("t", 100, 100)]), 0),
            ("its next turn", 1, told(&[("t", 100, 300)]), 0),
            ("taken up again", 2, told(&[("t", 350, 350)]), 300),
            ("read again from the start", 2, told(&[("t", 350, 350)]), 300),
            ("and its next turn", 2, told(&[("t", 350, 500)]), 300),
            ("beside another", 3, told(&[("t", 600, 600), ("u", 50, 50)]), 500),
            ("one that counts anew with each run", 4, told(&[("t", 20, 40)]), 0),
            ("a report that is too late", 3, told(&[("t", 600, 700)]), 600),
        ] {
            assert_eq!(threads.carried(RunId(run), &said), carried, "{what}");
        }
    }

    #[test]
    fn only_the_latest_are_remembered() {
        let mut threads = Threads::default();
        for run in 1..=100 {
            threads.carried(RunId(run), &told(&[(&format!("t{run}"), 5, 5)]));
        }
        assert_eq!(threads.0.len(), KEPT);
        assert_eq!(threads.carried(RunId(101), &told(&[("t100", 7, 7)])), 5);
    }
}
