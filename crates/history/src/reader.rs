//! Reading beside the writer: a connection of one's own, which never holds the writer up.
//!
//! A reader sees what was committed when it asked. It is cheap to open and best opened for a
//! question or two: after a damaged file was set aside, an old reader still reads the old file. A
//! row that cannot be understood is passed over; a reader never fails on another's words.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use defib_core::{Mono, Name, RunId, View, Wall};
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter, types};

use crate::body::Body;
use crate::event::Event;
use crate::file;
use crate::fold::{self, integer};
use crate::history::intent_path;
use crate::intent::{self, Intents};
use crate::ledger::Entry;
use crate::run::{self, Run};
use crate::trouble::HistoryError;

/// While a file is being set aside there is none for a moment; a reader waits this long for it.
const ABSENCE: Duration = Duration::from_millis(50);

/// Which events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventFilter {
    /// Those with a higher number.
    pub after: Option<u64>,
    /// Those not before this moment.
    pub since: Option<Wall>,
    /// Those about this agent.
    pub agent: Option<Name>,
    /// Those of the run with this number.
    pub run: Option<RunId>,
    /// Those not after this moment.
    pub until: Option<Wall>,
    /// Those of these types; of every type where none is named.
    pub kinds: Vec<String>,
    /// How many of them.
    pub take: Take,
}

/// How many events, and which. They always come oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Take {
    /// Every one.
    #[default]
    All,
    /// The oldest of them.
    First(u32),
    /// The newest of them.
    Last(u32),
}

/// Which runs. They come newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunFilter {
    /// Those of this agent.
    pub agent: Option<Name>,
    /// Those that an agent of this project lived.
    pub project: Option<Name>,
    /// Those that live, or ended at or after this moment; where nobody knows when, began after it.
    pub since: Option<Wall>,
    /// At most so many.
    pub limit: Option<u32>,
    /// Those that began before the one with this [`Run::id`].
    pub before: Option<i64>,
}

/// A run of which no end is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRun {
    /// Whose.
    pub agent: Name,
    /// Which.
    pub run: RunId,
    /// When it began.
    pub started_at: Wall,
    /// The boot in which it began, and when on that boot's clock; nothing where that is no longer kept.
    pub began: Option<(String, Mono)>,
}

/// A connection that only reads.
#[derive(Debug)]
pub struct Reader {
    connection: Connection,
    intents: PathBuf,
}

impl Reader {
    /// Opens the history at `path` for reading, whether a daemon runs or not.
    pub fn open(path: &Path) -> Result<Reader, HistoryError> {
        let connection = patiently(|| file::open_to_read(path, &fold::LAYOUT))?;
        Ok(Reader { connection, intents: intent_path(path) })
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The events, oldest first.
    pub fn events(&self, filter: &EventFilter) -> Result<Vec<Event>, HistoryError> {
        let mut events = Vec::new();
        self.each_event(filter, |event| {
            events.push(event);
            ControlFlow::Continue(())
        })?;
        Ok(events)
    }

    /// The newest lines of an agent's ledger, oldest first.
    pub fn ledger(&self, agent: &Name, most: u32) -> Result<Vec<Entry>, HistoryError> {
        let connection = patiently(|| file::open_to_read(&self.intents, &intent::LAYOUT))?;
        Ok(Entry::read(&connection, agent, most)?)
    }

    /// Goes through the events, oldest first, one at a time, as long as it is wanted.
    pub fn each_event(
        &self,
        filter: &EventFilter,
        mut take: impl FnMut(Event) -> ControlFlow<()>,
    ) -> Result<(), HistoryError> {
        let mut wheres = vec![String::from("1")];
        let mut values: Vec<types::Value> = Vec::new();
        let mut clause = |sql: &str, value: types::Value| {
            wheres.push(sql.to_owned());
            values.push(value);
        };
        if let Some(seq) = filter.after {
            clause("seq > ?", integer(seq).into());
        }
        if let Some(since) = filter.since {
            clause("at_ms >= ?", since.as_millis().into());
        }
        if let Some(agent) = &filter.agent {
            clause("agent = ?", String::from(agent.as_str()).into());
        }
        if let Some(run) = filter.run {
            clause("run = ?", integer(run.0).into());
        }
        if let Some(until) = filter.until {
            clause("at_ms <= ?", until.as_millis().into());
        }
        if !filter.kinds.is_empty() {
            let places = vec!["?"; filter.kinds.len()].join(", ");
            wheres.push(format!("type IN ({places})"));
            values.extend(filter.kinds.iter().map(|kind| kind.clone().into()));
        }
        let wheres = wheres.join(" AND ");
        let columns = "seq, at_ms, mono_ns, boots.name, project, agent, run, type, body";
        let from = format!("FROM events LEFT JOIN boots ON boots.id = boot WHERE {wheres}");
        let sql = match filter.take {
            Take::All => format!("SELECT {columns} {from} ORDER BY seq"),
            Take::First(count) => format!("SELECT {columns} {from} ORDER BY seq LIMIT {count}"),
            Take::Last(count) => format!(
                "SELECT * FROM (SELECT {columns} {from} ORDER BY seq DESC LIMIT {count}) \
                 ORDER BY seq"
            ),
        };
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        // Events next to one another are of one boot: its name is not made anew for each.
        let mut boot: Arc<str> = Arc::from("");
        while let Some(row) = rows.next()? {
            let Some(event) = event_of(row, &mut boot)? else { continue };
            if take(event).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The view that the stored events add up to.
    pub fn view(&self) -> Result<View, HistoryError> {
        let mut view = View::default();
        self.each_event(&EventFilter::default(), |event| {
            if let Some(record) = event.record() {
                view.fold(event.now(), &record);
            }
            ControlFlow::Continue(())
        })?;
        Ok(view)
    }

    /// The highest number of an event; zero where there is none.
    pub fn highest_seq(&self) -> Result<u64, HistoryError> {
        Ok(fold::highest_seq(&self.connection)?)
    }

    /// Runs, newest first.
    pub fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, HistoryError> {
        let columns = run::COLUMNS;
        // For one agent the index is in the order of its runs already.
        let (whose, order) = match filter.agent {
            Some(_) => ("agent = ?1", "run DESC, id DESC"),
            None => ("?1 IS NULL", "id DESC"),
        };
        let sql = format!(
            "SELECT {columns} FROM runs WHERE {whose} \
             AND (?2 IS NULL OR alive OR coalesce(ended_ms, started_ms) >= ?2) \
             AND (?4 IS NULL OR id < ?4) AND (?5 IS NULL OR project = ?5) ORDER BY {order} LIMIT ?3"
        );
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params![
            filter.agent.as_ref().map(Name::as_str),
            filter.since.map(Wall::as_millis),
            filter.limit.map_or(-1, i64::from),
            filter.before,
            filter.project.as_ref().map(Name::as_str),
        ])?;
        let mut runs = Vec::new();
        while let Some(row) = rows.next()? {
            runs.extend(Run::of_row(row)?);
        }
        Ok(runs)
    }

    /// One run.
    pub fn run(&self, agent: &Name, run: RunId) -> Result<Option<Run>, HistoryError> {
        let Some(id) = self.id(agent, run)? else { return Ok(None) };
        let columns = run::COLUMNS;
        let sql = format!("SELECT {columns} FROM runs WHERE id = ?1");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let found = statement.query_row([id], Run::of_row).optional()?;
        Ok(found.flatten())
    }

    /// The last output of a run, where it is still kept.
    pub fn tail(&self, agent: &Name, run: RunId) -> Result<Option<Vec<u8>>, HistoryError> {
        let Some(id) = self.id(agent, run)? else { return Ok(None) };
        let sql = "SELECT bytes FROM tails WHERE run_id = ?1";
        Ok(self.connection.query_row(sql, [id], |row| row.get(0)).optional()?)
    }

    /// The highest number that a run of each agent has had: no run may get one again, even if the
    /// intents were lost.
    pub fn last_runs(&self) -> Result<BTreeMap<Name, RunId>, HistoryError> {
        let sql = "SELECT agent, max(run) FROM runs GROUP BY agent";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([])?;
        let mut last = BTreeMap::new();
        while let Some(row) = rows.next()? {
            if let Ok(agent) = Name::known(&row.get::<_, String>(0)?) {
                last.insert(agent, RunId(row.get::<_, i64>(1)?.cast_unsigned()));
            }
        }
        Ok(last)
    }

    /// The newest run of each agent.
    pub fn newest_runs(&self) -> Result<Vec<Run>, HistoryError> {
        let columns = run::COLUMNS;
        // The numbers are all in the index; only the newest rows are looked up. Should a number have been
        // given twice, the later one is meant.
        let sql = format!(
            "SELECT {columns} FROM (SELECT agent AS whose, max(run) AS newest FROM runs GROUP BY agent) \
             JOIN runs ON agent = whose AND run = newest ORDER BY id"
        );
        let mut statement = self.connection.prepare(&sql)?;
        let mut rows = statement.query([])?;
        let mut newest = BTreeMap::new();
        while let Some(row) = rows.next()? {
            if let Some(run) = Run::of_row(row)? {
                newest.insert(run.agent.clone(), run);
            }
        }
        Ok(newest.into_values().collect())
    }

    /// The runs of which no end is known: at most one of an agent is not over.
    pub fn open_runs(&self) -> Result<Vec<OpenRun>, HistoryError> {
        let sql = "SELECT runs.agent, runs.run, started_ms, boots.name, mono_ns FROM runs \
                   LEFT JOIN events ON seq = runs.id LEFT JOIN boots ON boots.id = boot WHERE alive";
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        let mut open = Vec::new();
        while let Some(row) = rows.next()? {
            let Ok(agent) = Name::known(&row.get::<_, String>(0)?) else { continue };
            let run = RunId(row.get::<_, i64>(1)?.cast_unsigned());
            let started_at = Wall::from_millis(row.get(2)?);
            let mono = row.get::<_, Option<i64>>(4)?.map(|at| Mono::from_nanos(at.cast_unsigned()));
            let began = row.get::<_, Option<String>>(3)?.zip(mono);
            open.push(OpenRun { agent, run, started_at, began });
        }
        Ok(open)
    }

    /// Everything that is wanted.
    pub fn intents(&self) -> Result<Intents, HistoryError> {
        let connection = patiently(|| file::open_to_read(&self.intents, &intent::LAYOUT))?;
        Ok(Intents::read(&connection)?)
    }

    fn id(&self, agent: &Name, run: RunId) -> Result<Option<i64>, HistoryError> {
        Ok(fold::latest(&self.connection, agent.as_str(), integer(run.0), false)?)
    }
}

/// Tries until a file is there, for as long as one is away while it is set aside.
fn patiently<T>(mut open: impl FnMut() -> Result<T, HistoryError>) -> Result<T, HistoryError> {
    let deadline = Instant::now() + ABSENCE;
    loop {
        match open() {
            Err(HistoryError::Absent(_)) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

fn event_of(row: &Row<'_>, boot: &mut Arc<str>) -> rusqlite::Result<Option<Event>> {
    let name = |at: usize| -> rusqlite::Result<Option<Name>> {
        let word = row.get_ref(at)?.as_str_or_null().ok().flatten();
        Ok(word.and_then(|word| Name::known(word).ok()))
    };
    let Some(body) = Body::parse(row.get(8)?) else { return Ok(None) };
    let booted = row.get_ref(3)?.as_str_or_null().ok().flatten().unwrap_or("");
    if **boot != *booted {
        *boot = Arc::from(booted);
    }
    Ok(Some(Event {
        seq: row.get::<_, i64>(0)?.cast_unsigned(),
        at: Wall::from_millis(row.get(1)?),
        mono: Mono::from_nanos(row.get::<_, i64>(2)?.cast_unsigned()),
        boot: Arc::clone(boot),
        project: name(4)?,
        agent: name(5)?,
        run: row.get::<_, Option<i64>>(6)?.map(|run| RunId(run.cast_unsigned())),
        kind: row.get(7)?,
        body,
    }))
}
