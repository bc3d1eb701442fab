//! Processes that descend from this one: who they are, what they cost, and their end.
//!
//! Invariant: only descendants are ever ended. This process adopts what its descendants orphan, so
//! that daemons are found too, and a mistake in a supervisor leaves nothing behind.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

/// Takes in what descendants orphan from now on.
pub(crate) fn adopt_orphans() {
    // Without it clean-up would miss daemons, and nothing else would be wrong.
    let _ = rustix::process::set_child_subreaper(Some(getpid()));
}

/// The fields of `stat` after the program's name: state, parent, …
fn stat(pid: i32) -> Option<Vec<String>> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let (_, rest) = text.rsplit_once(") ")?;
    Some(rest.split(' ').map(str::to_owned).collect())
}

/// Whether it lives. One that has ended and was not waited for does not.
pub(crate) fn lives(pid: i32) -> bool {
    stat(pid).and_then(|stat| stat.into_iter().next()).is_some_and(|is| is != "Z" && is != "X")
}

/// All that live and descend from this process.
pub(crate) fn descendants() -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for pid in numbers {
        let Some(stat) = stat(pid) else { continue };
        let dead = stat.first().is_some_and(|state| state == "Z" || state == "X");
        let parent = stat.get(1).and_then(|parent| parent.parse().ok());
        if let Some(parent) = parent.filter(|_| !dead) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![getpid().as_raw_pid()];
    while let Some(pid) = next.pop() {
        let below = children.remove(&pid).unwrap_or_default();
        found.extend(&below);
        next.extend(below);
    }
    found
}

/// Those of them that are not the supervised child: what the supervisor itself costs.
pub(crate) fn supervisors(child: &Path) -> Vec<i32> {
    let is_child =
        |pid: &i32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == child);
    descendants().into_iter().filter(|pid| !is_child(pid)).collect()
}

/// Ends every descendant and waits for that.
pub(crate) fn end_all() {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let left = descendants();
        for pid in left.iter().filter_map(|pid| Pid::from_raw(*pid)) {
            let _ = kill_process(pid, Signal::KILL);
        }
        while matches!(waitpid(None, WaitOptions::NOHANG), Ok(Some(_))) {}
        if left.is_empty() || Instant::now() > end {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal to one process, which may have gone.
pub(crate) fn send(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// Waits until all of these are dead. Says whether it came to that.
pub(crate) fn await_dead(pids: &[i32], patience: Duration) -> bool {
    let end = Instant::now() + patience;
    for pid in pids {
        while lives(*pid) {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }
    true
}

/// The memory of a process, shared pages by share, in KiB.
pub(crate) fn pss_kib(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// What a process has done so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Effort {
    /// How often one of its threads was put on a processor.
    pub(crate) switches: u64,
    /// Time on the processor in ticks, of which there are a hundred a second.
    pub(crate) ticks: u64,
}

impl Effort {
    pub(crate) fn of(pid: i32) -> Effort {
        let mut effort = Effort::default();
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return effort };
        for task in tasks.flatten() {
            let text = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let counts = text.lines().filter(|line| line.contains("voluntary_ctxt_switches:"));
            let count = |line: &str| line.rsplit('\t').next()?.parse::<u64>().ok();
            effort.switches += counts.filter_map(count).sum::<u64>();
        }
        let fields = stat(pid).unwrap_or_default();
        let times = fields.get(11..13).unwrap_or_default();
        effort.ticks = times.iter().filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        effort
    }

    pub(crate) fn since(self, before: Effort) -> Effort {
        Effort {
            switches: self.switches.saturating_sub(before.switches),
            ticks: self.ticks.saturating_sub(before.ticks),
        }
    }
}

/// The program of a process, by its file's name.
pub(crate) fn program(pid: i32) -> String {
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    exe.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Where the supervised child is.
pub(crate) fn child_program() -> PathBuf {
    PathBuf::from(env!("BENCH_CHILD"))
}
