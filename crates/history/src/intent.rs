//! What was wanted, and must be known before it is acted on: the words, and their tables.
//!
//! Each intent sets one thing to one value, so that writing it twice does no harm and the last one
//! counts. The file is small and holds the present only; how it came to be is in the events.

use std::collections::BTreeMap;
use std::path::PathBuf;

use defib_core::{Goal, Name};
use rusqlite::{Connection, params};
use serde_json::Value;

use crate::file::Layout;
use crate::ledger::Entry;

/// Something to be known after a crash, before it is acted on.
#[derive(Debug, Clone, PartialEq)]
pub enum Intent {
    /// What an operator wants of an agent.
    Goal {
        /// Whose.
        agent: Name,
        /// What.
        goal: Goal,
    },
    /// A project's file has been applied.
    Apply(Project),
    /// A project is gone.
    Withdraw(Name),
    /// What an agent has of a unit.
    Balance {
        /// Whose.
        agent: Name,
        /// Of what: `scrip`, `usd`.
        unit: String,
        /// How much, in millionths.
        micros: i64,
    },
    /// A line of an agent's ledger.
    Entry(Entry),
    /// A value under a key of the daemon's own, such as an agent's life as it was last known.
    Keep {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// The key is gone.
    Drop {
        /// The key.
        key: String,
    },
}

/// A project whose file has been applied.
#[derive(Debug, Clone, PartialEq)]
pub struct Project {
    /// Its name.
    pub name: Name,
    /// The file it was read from.
    pub file: PathBuf,
    /// The folder it stands in.
    pub folder: PathBuf,
    /// How it was brought up: `continuous`, `once`, `dev`.
    pub mode: String,
    /// What the file said.
    pub config: Value,
}

/// What an agent has of a unit, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Balance(pub i64);

/// Everything that is wanted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Intents {
    /// Goals by agent.
    pub goals: BTreeMap<Name, Goal>,
    /// Applied projects, by name.
    pub projects: BTreeMap<Name, Project>,
    /// Balances by agent and unit.
    pub balances: BTreeMap<Name, BTreeMap<String, Balance>>,
    /// Values by the daemon's own keys.
    pub kept: BTreeMap<String, String>,
    /// Rows that could not be understood, and were left where they are.
    pub unreadable: u64,
}

/// The number of the last commit, which both copies have.
const GENERATION: &str = "
    CREATE TABLE IF NOT EXISTS generation (
        one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL
    );
";

/// What nobody fills any more (`ad_hoc`, `hash`) is made all the same: a file is then the same to every
/// build of its version, and a daemon can be replaced by an older one.
pub(crate) const LAYOUT: Layout = Layout {
    application_id: 0x6446_6962,
    version: 1,
    schema: "
        CREATE TABLE goals (agent TEXT PRIMARY KEY, goal TEXT NOT NULL) WITHOUT ROWID;
        CREATE TABLE ad_hoc (agent TEXT PRIMARY KEY, spec TEXT NOT NULL) WITHOUT ROWID;
        CREATE TABLE projects (
            name TEXT PRIMARY KEY, file BLOB NOT NULL, folder BLOB NOT NULL, mode TEXT NOT NULL,
            config TEXT NOT NULL, hash TEXT NOT NULL
        );
        CREATE TABLE balances (
            agent TEXT NOT NULL, unit TEXT NOT NULL, micros INTEGER NOT NULL,
            PRIMARY KEY (agent, unit)
        ) WITHOUT ROWID;
        CREATE TABLE kept (key TEXT PRIMARY KEY, value TEXT NOT NULL);
        CREATE TABLE ceiling (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL);
    ",
    at_hand_kib: 128,
    additions: &[crate::ledger::TABLE, GENERATION],
    synchronous: "FULL",
};

impl Intent {
    /// Writes it, within the transaction that is open.
    pub(crate) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        let run = |sql: &str, values: &[&dyn rusqlite::ToSql]| -> rusqlite::Result<()> {
            connection.prepare_cached(sql)?.execute(values).map(drop)
        };
        match self {
            Intent::Goal { agent, goal } => run(
                "INSERT OR REPLACE INTO goals VALUES (?1, ?2)",
                params![agent.as_str(), goal_word(*goal)],
            ),
            Intent::Apply(project) => {
                let Project { name, file, folder, mode, config } = project;
                run(
                    "INSERT OR REPLACE INTO projects VALUES (?1, ?2, ?3, ?4, ?5, '')",
                    params![
                        name.as_str(),
                        file.as_os_str().as_encoded_bytes(),
                        folder.as_os_str().as_encoded_bytes(),
                        mode,
                        config.to_string(),
                    ],
                )
            }
            Intent::Withdraw(name) => {
                run("DELETE FROM projects WHERE name = ?1", params![name.as_str()])
            }
            Intent::Balance { agent, unit, micros } => run(
                "INSERT OR REPLACE INTO balances VALUES (?1, ?2, ?3)",
                params![agent.as_str(), unit, micros],
            ),
            Intent::Entry(entry) => entry.write(connection),
            Intent::Keep { key, value } => {
                run("INSERT OR REPLACE INTO kept VALUES (?1, ?2)", params![key, value])
            }
            Intent::Drop { key } => run("DELETE FROM kept WHERE key = ?1", params![key]),
        }
    }
}

/// Writes down that numbers of events up to this one may have been used.
pub(crate) fn write_ceiling(connection: &Connection, seq: u64) -> rusqlite::Result<()> {
    let seq = i64::try_from(seq).unwrap_or(i64::MAX);
    let sql = "INSERT OR REPLACE INTO ceiling VALUES (1, ?1)";
    connection.prepare_cached(sql)?.execute([seq]).map(drop)
}

/// The highest number that an event may have; zero where none was written down.
pub(crate) fn read_ceiling(connection: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT coalesce(max(seq), 0) FROM ceiling";
    let seq: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    Ok(u64::try_from(seq).unwrap_or(0))
}

/// Numbers the commit that is under way.
pub(crate) fn write_generation(connection: &Connection, number: u64) -> rusqlite::Result<()> {
    let number = i64::try_from(number).unwrap_or(i64::MAX);
    let sql = "INSERT OR REPLACE INTO generation VALUES (1, ?1)";
    connection.prepare_cached(sql)?.execute([number]).map(drop)
}

/// The number of the last commit; zero before the first.
pub(crate) fn read_generation(connection: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT coalesce(max(number), 0) FROM generation";
    let number: i64 = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    Ok(u64::try_from(number).unwrap_or(0))
}

/// Removes everything that is wanted, within the transaction that is open.
pub(crate) fn clear(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(
        "DELETE FROM goals; DELETE FROM projects; DELETE FROM balances; DELETE FROM kept; \
         DELETE FROM ledger;",
    )
}

impl Intents {
    /// Reads all of it. A row that cannot be understood is counted and passed over: one bad word
    /// must not cost the others their goals.
    pub(crate) fn read(connection: &Connection) -> rusqlite::Result<Intents> {
        let mut all = Intents::default();
        Intents::PARTS.iter().try_for_each(|part| part(&mut all, connection))?;
        Ok(all)
    }

    /// Reads what can be read of a broken file.
    pub(crate) fn salvage(connection: &Connection) -> Intents {
        let mut all = Intents::default();
        for part in Intents::PARTS {
            if part(&mut all, connection).is_err() {
                all.unreadable += 1;
            }
        }
        all
    }

    /// All of it, as it would be told one by one.
    pub(crate) fn into_intents(self) -> impl Iterator<Item = Intent> {
        let goals = self.goals.into_iter().map(|(agent, goal)| Intent::Goal { agent, goal });
        let projects = self.projects.into_values().map(Intent::Apply);
        let balances = self.balances.into_iter().flat_map(|(agent, units)| {
            let of = move |(unit, Balance(micros))| Intent::Balance {
                agent: agent.clone(),
                unit,
                micros,
            };
            units.into_iter().map(of)
        });
        let kept = self.kept.into_iter().map(|(key, value)| Intent::Keep { key, value });
        goals.chain(projects).chain(balances).chain(kept)
    }

    const PARTS: [fn(&mut Intents, &Connection) -> rusqlite::Result<()>; 4] =
        [Intents::read_goals, Intents::read_projects, Intents::read_balances, Intents::read_kept];

    fn read_goals(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        for_rows(connection, "SELECT agent, goal FROM goals", |row| {
            let (agent, word): (String, String) = (row.get(0)?, row.get(1)?);
            match (Name::known(&agent), goal_of(&word)) {
                (Ok(agent), Some(goal)) => drop(self.goals.insert(agent, goal)),
                (_, _) => self.unreadable += 1,
            }
            Ok(())
        })
    }

    fn read_projects(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let sql = "SELECT name, file, folder, mode, config FROM projects";
        for_rows(connection, sql, |row| {
            let (name, config): (String, String) = (row.get(0)?, row.get(4)?);
            let (file, folder) = (path_of(row.get(1)?), path_of(row.get(2)?));
            match (Name::known(&name), serde_json::from_str(&config)) {
                (Ok(name), Ok(config)) => {
                    let mode = row.get(3)?;
                    let project = Project { name: name.clone(), file, folder, mode, config };
                    self.projects.insert(name, project);
                }
                (_, _) => self.unreadable += 1,
            }
            Ok(())
        })
    }

    fn read_balances(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        for_rows(connection, "SELECT agent, unit, micros FROM balances", |row| {
            match Name::known(&row.get::<_, String>(0)?) {
                Ok(agent) => {
                    let units = self.balances.entry(agent).or_default();
                    units.insert(row.get(1)?, Balance(row.get(2)?));
                }
                Err(_) => self.unreadable += 1,
            }
            Ok(())
        })
    }

    fn read_kept(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        for_rows(connection, "SELECT key, value FROM kept", |row| {
            self.kept.insert(row.get(0)?, row.get(1)?);
            Ok(())
        })
    }
}

fn for_rows(
    connection: &Connection,
    sql: &str,
    mut take: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        take(row)?;
    }
    Ok(())
}

fn path_of(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

const fn goal_word(goal: Goal) -> &'static str {
    match goal {
        Goal::Up => "up",
        Goal::Stopped => "stopped",
        Goal::Down => "down",
    }
}

fn goal_of(word: &str) -> Option<Goal> {
    [Goal::Up, Goal::Stopped, Goal::Down].into_iter().find(|goal| goal_word(*goal) == word)
}
