//! What a supervisor refuses, and what to do then.

use std::fmt;

use defib_core::name::BadName;
use defib_core::{Refusal, Remedy, State};

/// Why a supervisor did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A text is no name.
    BadName {
        /// The text.
        name: String,
        /// What is wrong with it.
        why: BadName,
    },
    /// Tasks and groups share one set of names, and this one is taken.
    NameTaken(String),
    /// No task and no group has this name.
    Unknown(String),
    /// The task is not in a state for that.
    NotInState {
        /// Which task.
        name: String,
        /// The state it is in.
        state: State,
        /// What would help.
        remedy: Remedy,
    },
    /// The supervisor has ended.
    Ended,
    /// There is no tokio runtime here.
    NoRuntime,
}

impl Error {
    pub(crate) fn refused(name: &str, refusal: Refusal) -> Error {
        match refusal {
            Refusal::Unknown => Error::Unknown(name.to_owned()),
            Refusal::NotInState { agent, state, remedy } => {
                Error::NotInState { name: agent.to_string(), state, remedy }
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::BadName { name, why } => write!(f, "{name:?} is no name: {why}"),
            Error::NameTaken(name) => {
                write!(f, "{name} is taken: each task and each group needs a name of its own")
            }
            Error::Unknown(name) => write!(f, "no task and no group is called {name}"),
            Error::NotInState { name, state, remedy } => match remedy {
                Remedy::Revive => write!(f, "{name} is {state}: `revive` puts it back"),
                Remedy::Fund => {
                    write!(f, "{name} is {state}: it has nothing left to spend; `fund` starts it")
                }
                Remedy::Start => write!(f, "{name} is {state}: `start` starts it"),
                Remedy::Nothing => write!(f, "{name} is {state}: there is nothing to do"),
            },
            Error::Ended => f.write_str("the supervisor has ended"),
            Error::NoRuntime => {
                f.write_str("there is no tokio runtime here: start the supervisor inside of one")
            }
        }
    }
}

impl std::error::Error for Error {}
