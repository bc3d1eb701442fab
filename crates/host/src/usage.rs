//! What a process uses now, for people who look.
//!
//! These are figures of one process, not of what descends from it, and old the moment they are read.

/// A process's memory and CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Memory it has in use, in bytes.
    pub resident_bytes: u64,
    /// CPU time it has had, in milliseconds, in user mode and in the kernel.
    pub cpu_ms: u64,
    /// When it began, in clock ticks since boot: two processes with one number differ in this.
    pub started_ticks: u64,
}

/// Reads it. `None`: there is no such process, or it has ended and was not waited for.
pub fn usage(pid: u32) -> Option<Usage> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse(&String::from_utf8_lossy(&text))
}

fn parse(text: &str) -> Option<Usage> {
    // The name is in parentheses and may hold anything, parentheses too. What follows begins with
    // the third field.
    let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    if matches!(fields.first(), None | Some(&"Z" | &"X")) {
        return None;
    }
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
    }

    #[test]
    fn any_text_gives_figures_or_nothing() {
        for text in ["", ")", "1 (a", "1 (a) S", "1 (x) y) Z 1 1", "1 (a) S 1 2 x"] {
            assert_eq!(parse(text), None, "{text}");
        }
        let line = "7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 30 20 0 0 20 0 1 0 99 0 5 0";
        let usage = parse(line).unwrap();
        assert_eq!(usage.started_ticks, 99);
        assert_eq!(usage.resident_bytes, 5 * rustix::param::page_size() as u64);
    }
}
