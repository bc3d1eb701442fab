//! A run's processes, all of them: by cgroup, or by walking.
//!
//! Invariant: killing is done when there is nothing left, and not before. Neither way blocks: what is
//! still dying is looked at again later.

use std::sync::Arc;

use rustix::process::Pid;

use crate::cgroup::Cgroups;
use crate::child::Child;
use crate::descent::Descent;

/// How the processes of a run are found.
#[derive(Debug)]
pub(crate) enum Tree {
    /// By the cgroup that they were born in.
    Cgroup {
        name: Arc<str>,
        /// How many had been killed in it for want of memory when the run began.
        oom_before: u64,
        killed: u32,
    },
    /// By who descends from whom.
    Walked(Box<Descent>),
}

/// What has become of the run's first process.
#[derive(Debug, Clone, Copy)]
pub(crate) enum First<'a> {
    Lives(&'a Child),
    /// It has ended, but its number is still its own.
    Unwaited,
    Gone,
}

impl Tree {
    /// Kills what there is. Says whether there was anything, the first process aside.
    ///
    /// The first process is killed before the others, so that it does not see them die and exit of
    /// its own will.
    pub(crate) fn kill(
        &mut self,
        cgroups: Option<&Cgroups>,
        first: First<'_>,
        known: impl Fn(Pid) -> bool,
    ) -> bool {
        match (self, cgroups) {
            (Tree::Cgroup { name, killed, .. }, Some(cgroups)) => {
                let beside_it = match first {
                    First::Lives(child) => {
                        // Counted before it is killed: nobody can say afterwards whether it is still
                        // among those who are counted.
                        let others = cgroups.count(name).saturating_sub(1);
                        // By itself, not only with its cgroup: it may have the right to move elsewhere.
                        child.kill();
                        Some(others)
                    }
                    First::Unwaited | First::Gone => None,
                };
                if !cgroups.populated(name) {
                    *killed = (*killed).max(beside_it.unwrap_or(0));
                    return false;
                }
                *killed = (*killed).max(beside_it.unwrap_or_else(|| cgroups.count(name)));
                cgroups.kill(name);
                true
            }
            (Tree::Cgroup { .. }, None) => false,
            (Tree::Walked(descent), _) => descent.kill(!matches!(first, First::Gone), known),
        }
    }

    /// Whether to look before the first process is waited for: it is what attributes the others.
    pub(crate) fn looks_before_waiting(&self) -> bool {
        matches!(self, Tree::Walked(_))
    }

    /// How many processes were killed, the first aside.
    pub(crate) fn killed(&self) -> u32 {
        match self {
            Tree::Cgroup { killed, .. } => *killed,
            Tree::Walked(descent) => descent.killed(),
        }
    }

    /// The keeper's children that nobody can say whose they are. Of a cgroup all are known.
    pub(crate) fn strays(&self) -> &[Pid] {
        match self {
            Tree::Cgroup { .. } => &[],
            Tree::Walked(descent) => descent.strays(),
        }
    }

    /// Whether one was killed for want of memory.
    pub(crate) fn oom(&self, cgroups: Option<&Cgroups>) -> bool {
        match (self, cgroups) {
            (Tree::Cgroup { name, oom_before, .. }, Some(cgroups)) => {
                cgroups.oom_kills(name) > *oom_before
            }
            (Tree::Cgroup { .. } | Tree::Walked(_), _) => false,
        }
    }

    /// The cgroup, if something is left in it.
    pub(crate) fn populated_cgroup(&self, cgroups: Option<&Cgroups>) -> bool {
        match (self, cgroups) {
            (Tree::Cgroup { name, .. }, Some(cgroups)) => cgroups.populated(name),
            (Tree::Cgroup { .. } | Tree::Walked(_), _) => false,
        }
    }
}
