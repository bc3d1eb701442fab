//! Retention: what is older than it needs to be goes, a little at a time.
//!
//! Tails are large, so there is a number of them as well, of each agent and of all: one that dies again
//! and again takes the place of its own first.
//!
//! A live run stays however old it is, with the events that say that it lives. The newest event
//! stays as well, because numbering goes on from it. Pages that became free are given back to the
//! file system in small steps, so that no commit ever waits long for a sweep.

use std::time::{Duration, Instant};

use defib_core::Wall;
use defib_core::time::millis;
use rusqlite::{Connection, params};

/// So many rows of each table go in one step.
const ROWS: u32 = 500;
/// So many pages are given back in one step.
const PAGES: u32 = 256;
/// A sweep that found nothing to do is not repeated before.
const REST: Duration = Duration::from_secs(3600);

/// Of how many runs the last output is kept: the newest, and of every agent something before of any
/// agent much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tails {
    /// Of how many of one agent.
    pub of_each: u32,
    /// Of how many in all.
    pub of_all: u32,
}

impl Default for Tails {
    fn default() -> Tails {
        Tails { of_each: 256, of_all: 4096 }
    }
}

/// What is kept, and when to look again.
#[derive(Debug)]
pub(crate) struct Retention {
    /// Nothing: nobody has said yet.
    keep: Option<Duration>,
    tails: Tails,
    due: Option<Instant>,
}

/// When the next sweep is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// There is more to do.
    Now,
    /// Nothing is due before.
    In(Duration),
}

impl Retention {
    pub(crate) fn new(keep: Option<Duration>, tails: Tails) -> Retention {
        Retention { keep, tails, due: Some(Instant::now()) }
    }

    /// Looks again at once, where that is something new.
    pub(crate) fn keep(&mut self, keep: Duration) {
        if self.keep.replace(keep) != Some(keep) {
            self.due = Some(Instant::now());
        }
    }

    /// When to sweep next.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(crate) fn plan(&mut self, next: Next) {
        self.due = match next {
            Next::Now => Some(Instant::now()),
            // A moment beyond the end of the clock never comes.
            Next::In(span) => Instant::now().checked_add(span),
        };
    }

    pub(crate) fn rest(&mut self) {
        self.plan(Next::In(REST));
    }
}

/// Deletes one batch of what is too old.
pub(crate) fn sweep(
    connection: &Connection,
    now: Wall,
    retention: &Retention,
) -> rusqlite::Result<Next> {
    let keep_ms = retention.keep.map(millis).and_then(|keep| i64::try_from(keep).ok());
    let keep_ms = keep_ms.unwrap_or(i64::MAX);
    let before = now.as_millis().saturating_sub(keep_ms);
    let transaction = connection.unchecked_transaction()?;
    // Of a live run the events stay that a fold needs to know that it lives.
    let events = "DELETE FROM events WHERE seq IN (SELECT e.seq FROM events e WHERE e.at_ms < ?1 \
         AND e.seq < (SELECT max(seq) FROM events) \
         AND NOT (e.type IN ('run-started', 'run-ready', 'stop-requested') AND EXISTS ( \
             SELECT 1 FROM runs r WHERE r.agent = e.agent AND r.run = e.run AND r.alive)) \
         ORDER BY e.at_ms LIMIT ?2)";
    let mut gone = transaction.prepare_cached(events)?.execute(params![before, ROWS])?;
    // A run has the number of its start, and it started before it ended: only runs before the first
    // event that stays are looked at. One whose death was lost has its start for its age.
    let doomed = "SELECT id FROM runs WHERE id < coalesce( \
             (SELECT seq FROM events WHERE at_ms >= ?1 ORDER BY at_ms LIMIT 1), \
             9223372036854775807) \
         AND NOT alive AND coalesce(ended_ms, started_ms) < ?1 LIMIT ?2";
    let tails = format!("DELETE FROM tails WHERE run_id IN ({doomed})");
    transaction.prepare_cached(&tails)?.execute(params![before, ROWS])?;
    let runs = format!("DELETE FROM runs WHERE id IN ({doomed})");
    gone += transaction.prepare_cached(&runs)?.execute(params![before, ROWS])?;
    // Every agent's newest goes before anybody's second newest.
    let surplus = "WITH own AS (SELECT t.run_id, \
             row_number() OVER (PARTITION BY r.agent ORDER BY t.run_id DESC) AS nth \
             FROM tails t LEFT JOIN runs r ON r.id = t.run_id), \
         placed AS (SELECT run_id, nth, row_number() OVER (ORDER BY nth, run_id DESC) AS place \
             FROM own) \
         DELETE FROM tails WHERE run_id IN \
             (SELECT run_id FROM placed WHERE nth > ?1 OR place > ?2 LIMIT ?3)";
    let Tails { of_each, of_all } = retention.tails;
    gone += transaction.prepare_cached(surplus)?.execute(params![of_each, of_all, ROWS])?;
    transaction.commit()?;
    let freed = give_back(connection)?;
    if gone > 0 || freed {
        return Ok(Next::Now);
    }
    Ok(Next::In(REST))
}

/// Gives free pages back to the file system; says whether that made a difference.
fn give_back(connection: &Connection) -> rusqlite::Result<bool> {
    let free = || connection.pragma_query_value(None, "freelist_count", |row| row.get::<_, i64>(0));
    let before = free()?;
    if before == 0 {
        return Ok(false);
    }
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({PAGES})"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(free()? < before)
}
