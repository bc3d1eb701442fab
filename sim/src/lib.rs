//! The supervisor on a virtual clock.
//!
//! A [`rehearsal`] shows what one policy would make of one agent's deaths; [`fleet`] runs the whole
//! supervisor against a seeded world that breaks in every way we know.

#![forbid(unsafe_code)]

pub mod fleet;
pub mod rehearsal;
pub mod script;
