//! What the five documents say, one test a behaviour. `docs/conformance.md` lists them; the check in
//! [`list`] fails when a behaviour has no test, or a test no behaviour.
//!
//! What is about time runs on the virtual clock, from the file as a user writes it to the decisions;
//! what is about processes runs the real binary.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::unchecked_time_subtraction,
    clippy::must_use_candidate,
    clippy::float_cmp,
    missing_docs,
    reason = "a test says what it expects, and ends where it is wrong"
)]

#[path = "../../../crates/core/tests/bench/mod.rs"]
mod bench;
mod c000_aide;
mod c000_files;
mod c001_celistra;
mod c001_processes;
mod c002_ecology;
mod c002_processes;
mod c003_aivex;
mod c003_processes;
mod c004_groups;
mod c004_weft;
mod list;
mod stage;

/// The scripted child.
const FAKE_AGENT: &str = env!("CARGO_BIN_EXE_fake-agent");
