//! The processes that one descends from, read so that no death on the way leads astray.
//!
//! Each step opens the parent by its number and then reads the child's parent again. If the number is
//! still the same, the opened process is the parent: a parent is older than its child and keeps its number
//! until it ends, so no other process had that number in between.
//!
//! Invariant: a walk that begins in an agent's tree meets the keeper or has no result. The parent of a
//! process in the tree is in the tree or is the keeper, at every moment: the kernel gives orphans to
//! the nearest living ancestor that adopts, and the keeper does.

use crate::descent::Held;

/// Number of walks that may meet a process that ends, before the answer is [`End::Unclear`].
const MOST_WALKS: u32 = 32;

/// A process and those that it descends from.
#[derive(Debug)]
pub(crate) struct Line {
    /// Their numbers, the process itself first. Not complete if the end is not clear.
    pub(crate) pids: Vec<u32>,
    pub(crate) end: End,
}

/// Why a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The process that was looked for is the last one.
    Reached,
    /// The last process has no parent in this PID namespace.
    Top,
    /// There are more steps than the caller wants to wait for.
    TooLong,
    /// Processes ended during each walk, or the kernel does not show one of them.
    Unclear,
}

/// Walks from a process up to the one with the number `stop`, or to the top.
pub(crate) fn line(process: &Held, stop: u32, most_steps: usize) -> Line {
    let mut pids = Vec::new();
    for _ in 0..MOST_WALKS {
        pids.clear();
        if let Some(end) = walk(process, stop, most_steps, &mut pids) {
            return Line { pids, end };
        }
        if !process.lives() {
            break;
        }
    }
    Line { pids, end: End::Unclear }
}

/// `None`: a process on the way has ended, or cannot be seen.
fn walk(process: &Held, stop: u32, most_steps: usize, pids: &mut Vec<u32>) -> Option<End> {
    let mut above: Option<Held> = None;
    loop {
        let here = above.as_ref().unwrap_or(process);
        pids.push(here.number());
        if here.number() == stop {
            return Some(End::Reached);
        }
        let parent = here.parent()?;
        if parent == 0 {
            // A process whose parent is just being reaped shows no parent for a moment.
            return (here.parent() == Some(0)).then_some(End::Top);
        }
        if pids.len() > most_steps {
            return Some(End::TooLong);
        }
        let next = Held::numbered(parent)?;
        if here.parent() != Some(parent) {
            return None;
        }
        above = Some(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_at_the_process_looked_for_or_at_the_top() {
        let (own, parent) = (std::process::id(), std::os::unix::process::parent_id());
        let held = Held::numbered(own).unwrap();
        let found = line(&held, parent, usize::MAX);
        assert_eq!((found.pids, found.end), (vec![own, parent], End::Reached));
        assert_eq!(line(&held, own, usize::MAX).pids, [own]);
        let whole = line(&held, u32::MAX, usize::MAX);
        assert_eq!((whole.end, &whole.pids[..2]), (End::Top, &[own, parent][..]));
        assert_eq!(line(&held, u32::MAX, 0).end, End::TooLong);
    }

    #[test]
    fn ended_process_has_no_line() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let held = Held::numbered(child.id()).unwrap();
        child.wait().unwrap();
        assert_eq!(line(&held, u32::MAX, usize::MAX).end, End::Unclear);
    }
}
