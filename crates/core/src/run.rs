//! One life of an agent, and the facts about its end.

use alloc::boxed::Box;

use serde::{Deserialize, Serialize};

use crate::class::Class;
use crate::signal::Signal;
use crate::time::Wall;

/// How a run ended, as the host saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Status {
    /// It exited with a code.
    Exited(i32),
    /// A signal ended it.
    Signaled(Signal),
    /// It never came to life.
    NotSpawned {
        /// Whether the command is there and may be run: another try may do.
        usable: bool,
    },
    /// Nobody could see how.
    Unseen,
}

impl Status {
    /// The exit code, where there is one.
    pub const fn exit_code(self) -> Option<i32> {
        match self {
            Status::Exited(code) => Some(code),
            Status::Signaled(_) | Status::NotSpawned { .. } | Status::Unseen => None,
        }
    }

    /// The signal, where one ended it.
    pub const fn signal(self) -> Option<Signal> {
        match self {
            Status::Signaled(signal) => Some(signal),
            Status::Exited(_) | Status::NotSpawned { .. } | Status::Unseen => None,
        }
    }
}

/// What an autopsy found beyond the wait status.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Finding {
    /// The class.
    pub class: Class,
    /// The line or field that decided.
    pub evidence: Option<Box<str>>,
    /// When the cause goes away, where that was stated.
    pub resets_at: Option<Wall>,
}

/// The end of a run: the raw fact, and what an autopsy made of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ExitReport {
    /// How it ended.
    pub status: Status,
    /// What the autopsy found; nothing means: judge by the status.
    pub finding: Option<Finding>,
    /// Whether the run wrote anything. A sign of life, as a beat is.
    pub spoke: bool,
}

/// A report of nothing but a status, of a run that wrote something.
impl From<Status> for ExitReport {
    fn from(status: Status) -> ExitReport {
        ExitReport { status, finding: None, spoke: true }
    }
}
