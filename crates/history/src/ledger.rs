//! What was given to agents and what they spent: the lines of their ledgers, beside the balances.
//!
//! A line is written in the transaction that writes the balance it led to. Lines are for people and
//! may go when there are very many of an agent's; a balance never does.

use defib_core::{Name, RunId, Wall};
use rusqlite::{Connection, Row, params};
use serde::{Deserialize, Serialize};

/// So many lines are kept of each agent.
const KEPT: u64 = 1000;

/// Tables that files of older versions do not have.
pub(crate) const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS ledger (
        agent TEXT NOT NULL, number INTEGER NOT NULL, at_ms INTEGER NOT NULL, what TEXT NOT NULL,
        unit TEXT NOT NULL, micros INTEGER NOT NULL, balance INTEGER, run INTEGER,
        source TEXT NOT NULL, PRIMARY KEY (agent, number)
    ) WITHOUT ROWID;
";

/// One line of an agent's ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Whose.
    pub agent: Name,
    /// Which line of it. One that is written again replaces what it said.
    pub number: u64,
    /// When it was last added to.
    pub at: Wall,
    /// What it was: `opening`, `funded`, `spent`.
    pub what: String,
    /// Of what.
    pub unit: String,
    /// How much the balance changed by, in millionths.
    pub micros: i64,
    /// What was left after it, in millionths; nothing where the agent has no balance of the unit.
    pub balance: Option<i64>,
    /// The run that spent it.
    pub run: Option<RunId>,
    /// Who said so: `config`, `operator`, `agent`, or a meter.
    pub source: String,
}

impl Entry {
    /// Writes it, within the transaction that is open.
    pub(crate) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        let number = integer(self.number);
        let sql = "INSERT OR REPLACE INTO ledger VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        connection.prepare_cached(sql)?.execute(params![
            self.agent.as_str(),
            number,
            self.at.as_millis(),
            self.what,
            self.unit,
            self.micros,
            self.balance,
            self.run.map(|run| integer(run.0)),
            self.source,
        ])?;
        let sql = "DELETE FROM ledger WHERE agent = ?1 AND number <= ?2";
        let gone = integer(self.number.saturating_sub(KEPT));
        connection.prepare_cached(sql)?.execute(params![self.agent.as_str(), gone]).map(drop)
    }

    /// The newest lines of an agent, oldest first.
    pub(crate) fn read(
        connection: &Connection,
        agent: &Name,
        most: u32,
    ) -> rusqlite::Result<Vec<Entry>> {
        let sql = "SELECT agent, number, at_ms, what, unit, micros, balance, run, source \
             FROM ledger WHERE agent = ?1 ORDER BY number DESC LIMIT ?2";
        let mut statement = connection.prepare(sql)?;
        let rows = statement.query_map(params![agent.as_str(), most], Entry::of_row)?;
        let mut entries: Vec<Entry> = rows.filter_map(Result::ok).flatten().collect();
        entries.reverse();
        Ok(entries)
    }

    /// Every line that can be read of a file that has to be replaced.
    pub(crate) fn salvage(connection: &Connection) -> Vec<Entry> {
        let sql = "SELECT agent, number, at_ms, what, unit, micros, balance, run, source \
             FROM ledger ORDER BY agent, number";
        let Ok(mut statement) = connection.prepare(sql) else { return Vec::new() };
        let Ok(rows) = statement.query_map([], Entry::of_row) else { return Vec::new() };
        rows.filter_map(Result::ok).flatten().collect()
    }

    /// Nothing where the agent's name is none: the line is passed over.
    fn of_row(row: &Row<'_>) -> rusqlite::Result<Option<Entry>> {
        let Ok(agent) = Name::known(&row.get::<_, String>(0)?) else { return Ok(None) };
        let run: Option<i64> = row.get(7)?;
        Ok(Some(Entry {
            agent,
            number: row.get::<_, i64>(1)?.unsigned_abs(),
            at: Wall::from_millis(row.get(2)?),
            what: row.get(3)?,
            unit: row.get(4)?,
            micros: row.get(5)?,
            balance: row.get(6)?,
            run: run.map(|run| RunId(run.unsigned_abs())),
            source: row.get(8)?,
        }))
    }
}

fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
