//! The names that are taken, for those who ask before the driver does.
//!
//! A name is taken when the order to add it is given and free again when nothing is left of the task.
//! So whoever gives an order hears at once what the driver would refuse it for, and need not wait.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use defib_core::Name;

use crate::error::Error;

#[derive(Default)]
pub(crate) struct Roster(Mutex<Listed>);

#[derive(Default)]
struct Listed {
    names: BTreeSet<Name>,
    closed: bool,
}

impl Roster {
    /// Takes all of these names and gives the order, or does neither. Nothing comes between the two.
    pub(crate) fn take<'n>(
        &self,
        names: impl Iterator<Item = &'n Name>,
        order: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.with(|listed| {
            if listed.closed {
                return Err(Error::Ended);
            }
            let mut new = BTreeSet::new();
            for name in names {
                if listed.names.contains(name) || !new.insert(name.clone()) {
                    return Err(Error::NameTaken(name.to_string()));
                }
            }
            order()?;
            listed.names.append(&mut new);
            Ok(())
        })
    }

    /// Takes no names from now on, and gives the order to end.
    pub(crate) fn close(&self, order: impl FnOnce()) {
        self.with(|listed| {
            listed.closed = true;
            order();
        });
    }

    /// Nothing has this name any more.
    pub(crate) fn free(&self, name: &Name) {
        self.with(|listed| listed.names.remove(name));
    }

    fn with<T>(&self, act: impl FnOnce(&mut Listed) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
