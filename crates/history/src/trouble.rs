//! What can go wrong with the files, and how it is told.
//!
//! Every failure is sorted into one of two: a file that is damaged is set aside and begun anew, a
//! disk that fails is tried again. Neither ends anything.

use std::fmt;
use std::path::PathBuf;

use rusqlite::ErrorCode;

/// Which of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Store {
    /// `history.db`: events and runs.
    History,
    /// `intent.db`: what was wanted.
    Intent,
    /// `witness.db`: the second copy of `intent.db`.
    Witness,
}

/// What the daemon should hear of, by [`Options::on_trouble`](crate::Options::on_trouble).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// A file was damaged. It was set aside, and a new one begun.
    Damaged {
        /// Which.
        store: Store,
        /// Where it is now; nothing where it had vanished.
        aside: Option<PathBuf>,
        /// What was wrong with it.
        why: String,
    },
    /// A file was lost, damaged or outdated. Everything was restored from its second copy.
    Restored {
        /// Which.
        store: Store,
        /// Where the old file is now; nothing if there was none.
        aside: Option<PathBuf>,
        /// The file that it was restored from.
        from: Store,
        /// What was wrong with it.
        why: String,
    },
    /// A file cannot be written at the moment. Said once, until it works again.
    Failing {
        /// Which.
        store: Store,
        /// Why.
        why: String,
    },
    /// A file that could not be written can be written again, and nothing is held back any more.
    Recovered {
        /// Which.
        store: Store,
        /// How many events were lost in the meantime. They are in the history as an `output-lost`
        /// event already.
        lost: u64,
    },
}

/// Why something could not be stored or read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HistoryError {
    /// There is no such file.
    Absent(PathBuf),
    /// The file is damaged, or not ours.
    Damaged(String),
    /// The disk or the file system refused.
    Failing(String),
    /// It took longer than it may.
    TimedOut,
    /// Some of it had to be dropped.
    Lost(u64),
    /// The history has been closed.
    Closed,
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Store::History => "history.db",
            Store::Intent => "intent.db",
            Store::Witness => "witness.db",
        })
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Damaged { store, aside: Some(aside), why } => {
                write!(f, "{store} was damaged ({why}); it is now {}", aside.display())
            }
            Trouble::Damaged { store, aside: None, why } => {
                write!(f, "{store} was lost ({why}); a new one has been begun")
            }
            Trouble::Restored { store, aside, from, why } => {
                write!(f, "{store} was damaged ({why}); it was restored from {from}")?;
                aside.as_ref().map_or(Ok(()), |aside| {
                    write!(f, ", and the old file is now {}", aside.display())
                })
            }
            Trouble::Failing { store, why } => write!(f, "{store} cannot be written: {why}"),
            Trouble::Recovered { store, lost: 0 } => write!(f, "{store} can be written again"),
            Trouble::Recovered { store, lost } => {
                write!(f, "{store} can be written again; {lost} events were lost")
            }
        }
    }
}

impl fmt::Display for HistoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HistoryError::Absent(path) => write!(f, "there is no {}", path.display()),
            HistoryError::Damaged(why) => write!(f, "the file is damaged: {why}"),
            HistoryError::Failing(why) => write!(f, "the file cannot be used: {why}"),
            HistoryError::TimedOut => f.write_str("it took too long"),
            HistoryError::Lost(count) => write!(f, "{count} events were lost"),
            HistoryError::Closed => f.write_str("the history is closed"),
        }
    }
}

impl std::error::Error for HistoryError {}

impl From<rusqlite::Error> for HistoryError {
    fn from(error: rusqlite::Error) -> HistoryError {
        let why = error.to_string();
        // A statement of ours that does not compile: the tables are not what they should be.
        let foreign = matches!(error, rusqlite::Error::SqlInputError { .. });
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                HistoryError::Damaged(why)
            }
            Some(_) | None if foreign => HistoryError::Damaged(why),
            Some(_) | None => HistoryError::Failing(why),
        }
    }
}
