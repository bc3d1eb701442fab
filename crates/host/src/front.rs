//! A client that the keeper's process started before it was the keeper, and that is no agent's.
//!
//! It is known by its number and by when it began: a number is given to somebody else once its process
//! has ended, and then that may be an agent.

use std::fmt;
use std::str::FromStr;

use crate::usage::usage;

/// Which process it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Front {
    /// Its number.
    pub pid: u32,
    /// When it began, in clock ticks since boot.
    pub started_ticks: u64,
}

impl Front {
    /// This process, if it lives.
    pub fn of(pid: u32) -> Option<Front> {
        usage(pid).map(|usage| Front { pid, started_ticks: usage.started_ticks })
    }

    /// Whether it is the process that has this number now.
    pub(crate) fn is(self, pid: u32) -> bool {
        self.pid == pid && Front::of(pid) == Some(self)
    }
}

impl fmt::Display for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.pid, self.started_ticks)
    }
}

impl FromStr for Front {
    type Err = String;

    fn from_str(text: &str) -> Result<Front, String> {
        let parts = text.split_once('@').map(|(pid, ticks)| (pid.parse(), ticks.parse()));
        match parts {
            Some((Ok(pid), Ok(started_ticks))) => Ok(Front { pid, started_ticks }),
            Some(_) | None => Err(format!("{text:?} is not a process: NUMBER@TICKS")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_front_is_told_by_number_and_start() {
        let own = Front::of(std::process::id()).unwrap();
        assert!(own.is(own.pid) && !own.is(1));
        assert!(!Front { started_ticks: own.started_ticks + 1, ..own }.is(own.pid));
        assert_eq!(own.to_string().parse(), Ok(own));
        for wrong in ["", "7", "7@", "@7", "x@1"] {
            assert!(wrong.parse::<Front>().is_err(), "{wrong}");
        }
    }
}
