//! The tables of the account, and how events become rows and runs.
//!
//! Runs are a fold of the events, done in the transaction that stores them: there is never an event
//! without its effect on its run, nor the other way round. An event whose number is there already is
//! passed over whole, so that a batch may be tried again when nobody can say whether it was stored.

use std::sync::Arc;

use defib_core::time::{Seconds, millis};
use defib_core::{Class, Name, Signal, Verdict};
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use serde::Deserialize;
use serde_json::Value;

use crate::event::Event;
use crate::file::Layout;
use crate::postmortem::{PostMortem, TAIL_MAX};

/// Columns that nobody fills any more (`generation`, `log_…`) are made all the same: a file is then the
/// same to every build of its version, and a daemon can be replaced by an older one.
pub(crate) const LAYOUT: Layout = Layout {
    application_id: 0x6446_6862,
    version: 1,
    schema: "
        CREATE TABLE boots (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
        CREATE TABLE events (
            seq INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, mono_ns INTEGER NOT NULL,
            boot INTEGER NOT NULL, project TEXT, agent TEXT, run INTEGER, type TEXT NOT NULL,
            body TEXT NOT NULL
        );
        CREATE INDEX events_by_time ON events (at_ms);
        CREATE INDEX events_by_agent ON events (agent) WHERE agent IS NOT NULL;
        CREATE TABLE runs (
            id INTEGER PRIMARY KEY, agent TEXT NOT NULL, run INTEGER NOT NULL, project TEXT,
            generation INTEGER, started_ms INTEGER NOT NULL, ended_ms INTEGER, ran_ms INTEGER,
            class TEXT, exit_code INTEGER, signal INTEGER, evidence TEXT, verdict TEXT, trace TEXT,
            alive INTEGER NOT NULL, cpu_user_ms INTEGER, cpu_system_ms INTEGER,
            memory_peak_bytes INTEGER, log_from_segment INTEGER, log_from_offset INTEGER,
            log_to_segment INTEGER, log_to_offset INTEGER
        );
        CREATE INDEX runs_by_agent ON runs (agent, run);
        CREATE TABLE tails (run_id INTEGER PRIMARY KEY, bytes BLOB NOT NULL);
    ",
    // A storm touches the same pages again and again.
    at_hand_kib: 2048,
    additions: &[],
    synchronous: "FULL",
};

/// A number as `SQLite` keeps it. None of ours comes near the end of the range.
pub(crate) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The highest number of an event; zero where there is none.
pub(crate) fn highest_seq(connection: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT coalesce(max(seq), 0) FROM events";
    let seq: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    Ok(u64::try_from(seq).unwrap_or(0))
}

/// What is stored together, in one transaction.
pub(crate) struct Batch<'c> {
    connection: &'c Connection,
    /// The boot that the last event was of, and its row: mostly the next one's too.
    boot: Option<(Arc<str>, i64)>,
}

impl<'c> Batch<'c> {
    pub(crate) fn new(transaction: &'c Transaction<'_>) -> Batch<'c> {
        Batch { connection: transaction, boot: None }
    }

    /// Stores an event and what it makes of its run.
    pub(crate) fn event(&mut self, event: &Event) -> rusqlite::Result<()> {
        let boot = self.boot_id(&event.boot)?;
        let sql = "INSERT OR IGNORE INTO events (seq, at_ms, mono_ns, boot, project, agent, run, \
                   type, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let stored = self.connection.prepare_cached(sql)?.execute(params![
            integer(event.seq),
            event.at.as_millis(),
            integer(event.mono.as_nanos()),
            boot,
            event.project.as_ref().map(Name::as_str),
            event.agent.as_ref().map(Name::as_str),
            event.run.map(|run| integer(run.0)),
            event.kind,
            event.body.text(),
        ])?;
        if stored == 0 {
            return Ok(());
        }
        match event.kind.as_str() {
            "run-started" => begin_run(self.connection, event),
            "run-died" => end_run(self.connection, event),
            _ => Ok(()),
        }
    }

    /// Adds to a run what was found on it.
    pub(crate) fn post_mortem(&self, found: &PostMortem) -> rusqlite::Result<()> {
        write_post_mortem(self.connection, found)
    }

    fn boot_id(&mut self, name: &Arc<str>) -> rusqlite::Result<i64> {
        if let Some((known, id)) = &self.boot
            && known == name
        {
            return Ok(*id);
        }
        let sql = "SELECT id FROM boots WHERE name = ?1";
        let mut known = self.connection.prepare_cached(sql)?;
        let known = known.query_row([name], |row| row.get(0)).optional()?;
        let id = if let Some(id) = known {
            id
        } else {
            self.connection.execute("INSERT INTO boots (name) VALUES (?1)", [name])?;
            self.connection.last_insert_rowid()
        };
        self.boot = Some((name.clone(), id));
        Ok(id)
    }
}

fn begin_run(connection: &Connection, event: &Event) -> rusqlite::Result<()> {
    let (Some(agent), Some(run)) = (&event.agent, event.run) else { return Ok(()) };
    // An agent has at most one live run: one of which no death was stored is over all the same.
    // It is looked for first: an update of rows that it finds itself takes a table of its own to note
    // them in, and there is seldom one.
    let sql = "SELECT id FROM runs WHERE agent = ?1 AND alive \
               AND run = (SELECT max(run) FROM runs WHERE agent = ?1)";
    let alive: Option<i64> =
        connection.prepare_cached(sql)?.query_row([agent.as_str()], |row| row.get(0)).optional()?;
    if let Some(id) = alive {
        let over = "UPDATE runs SET alive = 0 WHERE id = ?1";
        connection.prepare_cached(over)?.execute([id])?;
    }
    let sql = "INSERT OR REPLACE INTO runs (id, agent, run, project, started_ms, alive) \
               VALUES (?1, ?2, ?3, ?4, ?5, 1)";
    connection.prepare_cached(sql)?.execute(params![
        integer(event.seq),
        agent.as_str(),
        integer(run.0),
        event.project.as_ref().map(Name::as_str),
        event.at.as_millis(),
    ])?;
    Ok(())
}

/// What the history takes from the death of a run.
#[derive(Deserialize)]
struct Died {
    class: Class,
    exit_code: Option<i32>,
    signal: Option<Signal>,
    ran_s: Seconds,
    verdict: Verdict,
    evidence: Option<Box<str>>,
    cpu_user_ms: Option<u64>,
    cpu_system_ms: Option<u64>,
    memory_peak_bytes: Option<u64>,
}

fn end_run(connection: &Connection, event: &Event) -> rusqlite::Result<()> {
    let (Some(agent), Some(run)) = (&event.agent, event.run) else { return Ok(()) };
    let Ok(died) = serde_json::from_str::<Died>(event.body.text()) else { return Ok(()) };
    let verdict = match serde_json::to_value(died.verdict) {
        Ok(Value::String(word)) => Some(word),
        Ok(_) | Err(_) => None,
    };
    let ran_ms = integer(millis(died.ran_s.0));
    let known = latest(connection, agent.as_str(), integer(run.0), true)?;
    let id = known.unwrap_or_else(|| integer(event.seq));
    if known.is_none() {
        // Its start was lost; its death says when that must have been.
        let sql = "INSERT OR REPLACE INTO runs (id, agent, run, project, started_ms, alive) \
                   VALUES (?1, ?2, ?3, ?4, ?5, 0)";
        connection.prepare_cached(sql)?.execute(params![
            id,
            agent.as_str(),
            integer(run.0),
            event.project.as_ref().map(Name::as_str),
            event.at.as_millis().saturating_sub(ran_ms),
        ])?;
    }
    let sql = "UPDATE runs SET alive = 0, ended_ms = ?2, ran_ms = ?3, class = ?4, exit_code = ?5, \
               signal = ?6, evidence = ?7, verdict = ?8, cpu_user_ms = ?9, cpu_system_ms = ?10, \
               memory_peak_bytes = ?11 WHERE id = ?1";
    connection.prepare_cached(sql)?.execute(params![
        id,
        event.at.as_millis(),
        ran_ms,
        died.class.word(),
        died.exit_code,
        died.signal.map(|signal| signal.0),
        died.evidence,
        verdict,
        died.cpu_user_ms.map(integer),
        died.cpu_system_ms.map(integer),
        died.memory_peak_bytes.map(integer),
    ])?;
    Ok(())
}

/// Adds to a run what was found on it. A run that is not there any more is passed over.
fn write_post_mortem(connection: &Connection, found: &PostMortem) -> rusqlite::Result<()> {
    let Some(id) = latest(connection, found.agent.as_str(), integer(found.run.0), false)? else {
        return Ok(());
    };
    let sql = "UPDATE runs SET trace = coalesce(?2, trace) WHERE id = ?1";
    connection.prepare_cached(sql)?.execute(params![id, found.trace])?;
    if let Some(tail) = &found.tail {
        let last = &tail[tail.len().saturating_sub(TAIL_MAX)..];
        let sql = "INSERT OR REPLACE INTO tails (run_id, bytes) VALUES (?1, ?2)";
        connection.prepare_cached(sql)?.execute(params![id, last])?;
    }
    Ok(())
}

/// The row of a run. Should its number have been given twice, after the loss of both files, the
/// later one is meant.
pub(crate) fn latest(
    connection: &Connection,
    agent: &str,
    run: i64,
    undead: bool,
) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT id FROM runs WHERE agent = ?1 AND run = ?2 AND (NOT ?3 OR ended_ms IS NULL) \
               ORDER BY id DESC LIMIT 1";
    connection
        .prepare_cached(sql)?
        .query_row(params![agent, run, undead], |row| row.get(0))
        .optional()
}
