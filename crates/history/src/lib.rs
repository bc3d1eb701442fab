//! What happened: every run, death and decision, in `SQLite`; and what was wanted, durably.
//!
//! Two files stand side by side. `history.db` is the account: [`Event`]s as the daemon numbered
//! them, and the [`Run`]s they add up to. `intent.db` is what must be known before it is acted on:
//! goals, applied projects, balances. A damaged account is set aside and
//! begun anew without losing an intent.
//!
//! [`History`] is the only writer. [`History::append`] never waits for the disk;
//! [`History::store_intent`] always does. A disk that fails ends and blocks nothing: events are held
//! in a ring, retried, and what falls out of it is counted and written down as a gap. A [`Reader`]
//! opens a connection of its own and may be anywhere, also in another process.
//!
//! Nothing here decides anything, reads a clock for anything but retention, or redacts by guess:
//! secrets that must not be stored are named to [`redact`] by whoever knows them.

#![forbid(unsafe_code)]

mod body;
mod check;
mod event;
mod file;
mod fold;
mod history;
mod intent;
mod intents;
mod ledger;
mod lifeline;
mod pair;
mod postmortem;
mod queue;
mod reader;
mod redact;
mod retention;
mod run;
mod stamp;
mod trace;
mod trouble;
mod usage;
mod writer;

pub use body::Body;
pub use event::{Event, Stamp};
pub use history::{History, Opened, Options};
pub use intent::{Balance, Intent, Intents, Project};
pub use ledger::Entry;
pub use lifeline::{Lifeline, LifelineFilter, Wait};
pub use postmortem::{PostMortem, TAIL_MAX};
pub use queue::Lost;
pub use reader::{EventFilter, OpenRun, Reader, RunFilter, Take};
pub use redact::{Redactor, redact};
pub use retention::Tails;
pub use run::{Run, RunDeath};
pub use stamp::rfc3339;
pub use trace::{TRACE_MAX, find_trace};
pub use trouble::{HistoryError, Store, Trouble};
pub use usage::Usage;
