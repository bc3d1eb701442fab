//! What processes use now, for people who look. The figures are old the moment they are read.

use std::time::Duration;

use defib_core::{Name, RunId};

use crate::activity::{activity, cgroup_memory};
use crate::stat::Stat;

/// One process's memory and CPU time, without what descends from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Memory it has in use, in bytes.
    pub resident_bytes: u64,
    /// CPU time it has had, in milliseconds, in user mode and in the kernel.
    pub cpu_ms: u64,
    /// When it began, in clock ticks since boot: two processes with one number differ in this.
    pub started_ticks: u64,
}

/// What a run uses, with all that descends from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunUsage {
    /// Memory in use: that of its cgroup, or what its processes have resident together, in which
    /// what they share is counted for each.
    pub memory_bytes: u64,
    /// CPU time so far.
    pub cpu: Duration,
    /// How many processes it has.
    pub processes: u32,
}

/// Looks at a run by its first process.
pub fn run_usage(first: u32, agent: &Name, run: RunId) -> RunUsage {
    let seen = activity(first, agent, run);
    let resident = || {
        let each = seen.processes.iter().filter_map(|pid| usage(*pid));
        each.map(|usage| usage.resident_bytes).fold(0, u64::saturating_add)
    };
    RunUsage {
        memory_bytes: cgroup_memory(first, agent).unwrap_or_else(resident),
        cpu: seen.cpu,
        processes: u32::try_from(seen.processes.len()).unwrap_or(u32::MAX),
    }
}

/// Reads it. `None`: there is no such process, or it has ended and was not waited for.
pub fn usage(pid: u32) -> Option<Usage> {
    figures(&Stat::of(pid)?)
}

/// The most memory that a process has had in use at once since it runs its program, in bytes.
pub fn peak(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn figures(stat: &Stat) -> Option<Usage> {
    if !stat.lives() {
        return None;
    }
    let number = |place| stat.number::<u64>(place);
    let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    Some(Usage {
        resident_bytes: number(24)?.saturating_mul(page),
        cpu_ms: number(14)?.saturating_add(number(15)?).saturating_mul(1000) / ticks_per_second,
        started_ticks: number(22)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory_and_a_missing_one_nothing() {
        let own = usage(std::process::id()).unwrap();
        assert!(own.resident_bytes > 100_000);
        assert!(own.started_ticks > 0);
        assert_eq!(usage(u32::MAX), None);
        assert!(peak(std::process::id()) >= Some(own.resident_bytes));
        assert_eq!(peak(u32::MAX), None);
    }

    #[test]
    fn any_text_gives_figures_or_nothing() {
        let parse = |text: &str| figures(&Stat::parse(text.into())?);
        for text in ["", ")", "1 (a", "1 (a) S", "1 (x) y) Z 1 1", "1 (a) S 1 2 x"] {
            assert_eq!(parse(text), None, "{text}");
        }
        let line = "7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 30 20 0 0 20 0 1 0 99 0 5 0";
        let usage = parse(line).unwrap();
        assert_eq!(usage.started_ticks, 99);
        assert_eq!(usage.resident_bytes, 5 * rustix::param::page_size() as u64);
    }
}
