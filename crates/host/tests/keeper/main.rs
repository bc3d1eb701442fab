//! The keeper's rules, each with real processes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test waits for one of many news")]
#![allow(clippy::needless_pass_by_value, reason = "requests are made where they are asked")]

mod commands;
mod confining;
mod endings;
mod extremes;
mod harness;
mod hung;
mod spawning;
mod succession;
