//! A database file: opening it, judging whether it is sound and ours, setting it aside if not.
//!
//! A file is only changed after it has been found to be ours. One that is damaged, foreign or of a
//! newer schema is never deleted and never repaired: it is renamed, with what belongs to it, and its
//! place is free for a new one. A disk that fails is no damage: then nothing is renamed.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use defib_core::Wall;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::stamp;
use crate::trouble::HistoryError;

/// How long the writer waits for a stranger that holds a lock. There is a queue behind it.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a reader waits for one.
const READER_PATIENCE: Duration = Duration::from_secs(10);

/// A file that is larger than this is not read through before it is used, but while it is: a daemon
/// that comes back has agents to look after.
const CHECKED_UP_TO: u64 = 64 * 1024 * 1024;
/// The log is brought into the file when it has so many pages, and not kept longer than that.
const LOG_PAGES: i64 = 4096;

/// What a file has to be.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Marks the file as ours; `SQLite` keeps it in the header.
    pub(crate) application_id: i32,
    /// The newest schema we know.
    pub(crate) version: i32,
    /// Makes an empty file one of that version.
    pub(crate) schema: &'static str,
    /// Makes the tables that a file of the same version may lack, because they came later.
    pub(crate) additions: &'static [&'static str],
    /// When the file is synced: `FULL` is at each commit, `NORMAL` is when its log is brought in.
    pub(crate) synchronous: &'static str,
    /// So many KiB of it whoever writes it keeps at hand at most.
    pub(crate) at_hand_kib: u32,
}

/// An open file that was found sound.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) connection: Connection,
    pub(crate) identity: Identity,
    /// Whether it was read through.
    pub(crate) checked: bool,
}

impl Opening {
    /// Closes a file that was found damaged, and leaves it and its log as they are.
    pub(crate) fn abandon(self) {
        let leave = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        // Where that is refused the file is closed as any other: it is damaged already.
        let _ = self.connection.set_db_config(leave, true);
    }
}

/// Which file stands at a path: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity(u64, u64);

impl Identity {
    /// The file that stands at the path now; nothing where there is none.
    pub(crate) fn of(path: &Path) -> Option<Identity> {
        fs::metadata(path).ok().map(|meta| Identity(meta.dev(), meta.ino()))
    }
}

/// Opens a file for writing, makes it if it is not there, and checks it.
pub(crate) fn open(path: &Path, layout: &Layout) -> Result<Opening, HistoryError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    refuse_odd(path)?;
    // What agents printed is nobody else's business; the log takes its mode from the file. Where this
    // fails, opening says why.
    drop(fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path));
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    // As long as it may be damaged, closing it must not bring its log into it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "synchronous", layout.synchronous)?;
    if judge(&connection, layout)? == Content::Nothing {
        // Only an empty file can be told to give free pages back one at a time.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        return Err(HistoryError::Failing(format!("the file system allows no WAL, only {mode}")));
    }
    connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", LOG_PAGES * 4096)?;
    // A negative number is one of KiB, a positive one of pages.
    connection.pragma_update(None, "cache_size", -i64::from(layout.at_hand_kib))?;
    connection.set_prepared_statement_cache_capacity(32);
    // Else a statement is planned anew for each value that is bound to it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    found(&connection, layout)?;
    let size = fs::metadata(path).map_or(0, |meta| meta.len());
    let checked = size <= CHECKED_UP_TO;
    if checked {
        check(&connection)?;
    }
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    let identity = Identity::of(path)
        .ok_or_else(|| HistoryError::Failing("the file vanished while it was opened".into()))?;
    Ok(Opening { connection, identity, checked })
}

/// Refuses what cannot hold a database: a FIFO would block the open, and a symlink that leads nowhere would
/// put the database somewhere else.
pub(crate) fn refuse_odd(path: &Path) -> Result<(), HistoryError> {
    let is_there = fs::symlink_metadata(path).is_ok();
    if is_there && !fs::metadata(path).is_ok_and(|meta| meta.is_file()) {
        return Err(HistoryError::Damaged("it is not a regular file".into()));
    }
    Ok(())
}

/// Opens a file only to read it.
pub(crate) fn open_to_read(path: &Path, layout: &Layout) -> Result<Connection, HistoryError> {
    if !path.exists() {
        return Err(HistoryError::Absent(path.into()));
    }
    refuse_odd(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(READER_PATIENCE)?;
    match judge(&connection, layout)? {
        Content::Ours => Ok(connection),
        // Somebody is just making it: there is nothing in it yet.
        Content::Nothing => Err(HistoryError::Absent(path.into())),
    }
}

/// Opens a file to read it where the disk has no room for the files that readers share. Nobody else
/// can use the file while this connection is open.
pub(crate) fn open_alone(path: &Path, layout: &Layout) -> Result<Connection, HistoryError> {
    if !path.exists() {
        return Err(HistoryError::Absent(path.into()));
    }
    refuse_odd(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    match judge(&connection, layout)? {
        Content::Ours => Ok(connection),
        Content::Nothing => Err(HistoryError::Absent(path.into())),
    }
}

/// Renames a file and what belongs to it, out of the way of a new one. Gives its new name.
pub(crate) fn set_aside(path: &Path, now: Wall) -> io::Result<PathBuf> {
    let with = |base: &Path, suffix: &str| {
        let mut name = base.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let wanted = format!(".damaged-{}", stamp::compact(now));
    let mut aside = with(path, &wanted);
    let mut again = 1;
    while aside.exists() {
        again += 1;
        aside = with(path, &format!("{wanted}-{again}"));
    }
    fs::rename(path, &aside)?;
    // Beside a new database the old log would be taken for its own, so it must not stay.
    for suffix in ["-wal", "-shm"] {
        match fs::rename(with(path, suffix), with(&aside, suffix)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(aside)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Nothing,
    Ours,
}

/// Says whose a file is, without changing it.
fn judge(connection: &Connection, layout: &Layout) -> Result<Content, HistoryError> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let (application, version) = (number("application_id")?, number("user_version")?);
    if tables == 0 && application == 0 && version == 0 {
        return Ok(Content::Nothing);
    }
    if application != layout.application_id {
        return Err(HistoryError::Damaged("it is the database of another program".into()));
    }
    if version > layout.version {
        let known = layout.version;
        let why = format!("its schema is version {version}, and we know {known}");
        return Err(HistoryError::Damaged(why));
    }
    Ok(Content::Ours)
}

/// Makes the tables in an empty file, all of them or none.
fn found(connection: &Connection, layout: &Layout) -> Result<(), HistoryError> {
    if judge(connection, layout)? == Content::Nothing {
        let Layout { application_id, version, schema, .. } = layout;
        connection.execute_batch(&format!(
            "BEGIN IMMEDIATE; {schema}; PRAGMA application_id = {application_id}; \
             PRAGMA user_version = {version}; COMMIT;"
        ))?;
    }
    layout.additions.iter().try_for_each(|addition| Ok(connection.execute_batch(addition)?))
}

/// Reads the file through and refuses it if its structure is broken.
pub(crate) fn check(connection: &Connection) -> Result<(), HistoryError> {
    let finding: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if finding == "ok" { Ok(()) } else { Err(HistoryError::Damaged(finding)) }
}
