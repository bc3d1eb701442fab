//! What a run's processes do: how much CPU time they have had, and which they are.
//!
//! Read from the run's cgroup where it has one, else from /proc by who descends from whom. It is for
//! telling whether anything moves at all, not for accounting.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use defib_core::{Name, RunId};
use rustix::process::Pid;

use crate::cgroup::find_cgroup;
use crate::descent::{carries_command, carries_run, numbers_in};
use crate::stat::Stat;

/// What a run's processes have done so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Activity {
    /// The CPU time that they have had, and those that they waited for.
    pub cpu: Duration,
    /// Which they are.
    pub processes: BTreeSet<u32>,
}

/// Looks at a run by its first process.
pub fn activity(first: u32, agent: &Name, run: RunId) -> Activity {
    by_cgroup(first, agent).unwrap_or_else(|| by_descent(first, agent, run))
}

fn by_cgroup(first: u32, agent: &Name) -> Option<Activity> {
    read_cgroup(&own_cgroup(first, agent)?)
}

/// The folder of the cgroup that the keeper made for a run.
fn own_cgroup(first: u32, agent: &Name) -> Option<PathBuf> {
    let cgroup = std::fs::read_to_string(format!("/proc/{first}/cgroup")).ok()?;
    let own = cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    // Only the one that the keeper made for it: another may be shared with strangers.
    let (name, _) = own.rsplit('/').next()?.split_once('@')?;
    let mounts = (name == agent.as_str()).then(|| std::fs::read_to_string("/proc/self/mountinfo"));
    find_cgroup(&cgroup, &mounts?.ok()?)
}

fn read_cgroup(folder: &Path) -> Option<Activity> {
    let times = std::fs::read_to_string(folder.join("cpu.stat")).ok()?;
    let used = times.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    let processes = std::fs::read_to_string(folder.join("cgroup.procs")).ok()?;
    Some(Activity {
        cpu: Duration::from_micros(used.parse().ok()?),
        processes: processes.lines().filter_map(|line| line.parse().ok()).collect(),
    })
}

/// The CPU time that the descendants of a run's first process have had, and those that were waited for.
pub fn descendants_cpu(first: u32, agent: &Name, run: RunId) -> Duration {
    let ticks_of = |pid: u32, places: std::ops::RangeInclusive<usize>| {
        let stat = Stat::of(pid)?;
        Some(places.filter_map(|place| stat.number(place)).fold(0, u64::saturating_add))
    };
    let each = activity(first, agent, run).processes.into_iter().filter_map(|pid| {
        // Of the first process only what its children had before it waited for them.
        ticks_of(pid, if pid == first { 16..=17 } else { 14..=17 })
    });
    in_time(each.fold(0, u64::saturating_add))
}

fn in_time(ticks: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_millis(ticks.saturating_mul(1000) / per_second)
}

/// The memory of a run's cgroup, where it has one of its own and somebody counts.
pub(crate) fn cgroup_memory(first: u32, agent: &Name) -> Option<u64> {
    let text = std::fs::read_to_string(own_cgroup(first, agent)?.join("memory.current")).ok()?;
    text.trim().parse().ok()
}

/// What `stat` says of a process.
struct Facts {
    parent: u32,
    session: u32,
    ticks: u64,
}

fn facts(pid: u32) -> Option<Facts> {
    let stat = Stat::of(pid)?;
    // Its own time and that of the children it waited for, in user mode and in the kernel.
    let ticks = (14..=17).filter_map(|place| stat.number(place)).fold(0, u64::saturating_add);
    Some(Facts { parent: stat.parent()?, session: stat.session()?, ticks })
}

fn by_descent(first: u32, agent: &Name, run: RunId) -> Activity {
    let numbers = numbers_in("/proc").into_iter().map(|pid| pid.as_raw_pid().unsigned_abs());
    let all: BTreeMap<u32, Facts> = numbers.filter_map(|pid| Some((pid, facts(pid)?))).collect();
    let keeper = all.get(&first).map(|facts| facts.parent);
    let is_root = |pid: u32, facts: &Facts| {
        let number = || Pid::from_raw(i32::try_from(pid).ok()?);
        pid == first
            || facts.session == first
            // An orphan of the run has become the keeper's child. A probe is not a sign of life of its agent.
            || (Some(facts.parent) == keeper
                && number().is_some_and(|number| {
                    carries_run(number, agent, run) && !carries_command(number, agent, run)
                }))
    };
    let roots = all.iter().filter(|(pid, facts)| is_root(**pid, facts)).map(|(pid, _)| *pid);
    let mut processes: BTreeSet<u32> = roots.collect();
    loop {
        let known = processes.len();
        for (pid, facts) in &all {
            if processes.contains(&facts.parent) {
                processes.insert(*pid);
            }
        }
        if processes.len() == known {
            break;
        }
    }
    let ticks = processes.iter().filter_map(|pid| all.get(pid)).map(|facts| facts.ticks);
    let ticks = ticks.fold(0, u64::saturating_add);
    Activity { cpu: in_time(ticks), processes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_child_shows_and_its_time_counts_when_it_has_been_waited_for() {
        let own = std::process::id();
        let (agent, run) = (Name::parse("nobody").unwrap(), RunId(1));
        let before = activity(own, &agent, run);
        assert!(before.processes.contains(&own));
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(activity(own, &agent, run).processes.contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        let busy = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        while activity(own, &agent, run).cpu <= before.cpu {
            Command::new("sh").args(["-c", busy]).status().unwrap();
        }
    }
}
