//! What a daemon leaves to the keeper that it becomes, when its own was killed.
//!
//! The agents have died with their keeper, and so has what it held for the next daemon. What agents
//! are to be is stored; what only the callers of `up` could say, their variables, was nowhere but in
//! memory, and goes on from there. It refuses to leave anything that is said to be running.

use std::io;

use serde::{Deserialize, Serialize};

/// What the next daemon is told that was in memory only.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Will(Vec<(String, Vec<u8>)>);

impl Will {
    pub(crate) fn new(kept: impl Iterator<Item = (String, Vec<u8>)>) -> Will {
        Will(kept.collect())
    }

    /// As it is handed on.
    ///
    /// # Errors
    /// Never with what [`Will::read`] reads.
    pub fn written(&self) -> io::Result<Vec<u8>> {
        postcard::to_allocvec(self).map_err(io::Error::other)
    }

    /// What was handed on.
    ///
    /// # Errors
    /// If it was something else.
    pub fn read(bytes: &[u8]) -> io::Result<Will> {
        postcard::from_bytes(bytes).map_err(io::Error::other)
    }

    /// By its keys, as keepers hold it.
    pub fn into_kept(self) -> Vec<(String, Vec<u8>)> {
        self.0
    }
}
