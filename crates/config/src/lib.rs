//! `defib.toml`: parsed with spans, checked whole, explained with diagnostics.
//!
//! [`load()`] reads a file, [`parse`] a text that is already there. Either gives all that is wrong
//! with it at once, each with its place, and a [`Config`] exactly when nothing is. Text becomes a
//! tree of values with spans, the tree is held against one description of the file's shape, and
//! what is right is lowered to types; [`schema()`] writes the same description down for editors.
//! Files of other systems become the same tree in [`foreign`], and [`import()`] writes that down.
//!
//! No input makes it panic. It reads the file or folder it is told to and nothing else: no variable,
//! no clock, no path that the file may name.
#![forbid(unsafe_code)]

mod check;
pub mod config;
mod cron;
mod diagnostic;
mod fields;
pub mod foreign;
mod import;
mod load;
mod lower;
mod order;
mod passed;
mod report;
mod schema;
mod shape;
mod source;
mod suggest;
mod tree;
mod words;

pub use config::Config;
pub use diagnostic::{Diagnostic, MAX_KEPT, Related, Severity};
pub use foreign::{Format, Options, Watchdog};
pub use import::{Imported, import};
pub use load::{LoadError, Loaded, Outcome, load, load_with, parse, parse_bytes, parse_in};
pub use passed::{Passed, fits};
pub use report::{Report, Told};
pub use schema::schema;
pub use source::{Position, Span};
pub use suggest::nearest;
