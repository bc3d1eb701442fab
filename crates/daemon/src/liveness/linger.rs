//! How long a run may go on after the record that ends its work.

use std::time::Duration;

use defib_core::Mono;

/// The longest time for which work of the run's children puts off its end.
const LONGEST: Duration = Duration::from_mins(10);
/// The shortest and the longest time between two looks at the children.
const SHORTEST_GAP: Duration = Duration::from_millis(250);
const LONGEST_GAP: Duration = Duration::from_secs(5);
/// Children that use more than one part in this many of a processor are at work. The CLIs themselves,
/// which are children where a wrapper runs them, use up to 4 % while they idle.
const IDLE_PART: u32 = 20;

/// A run that has finished its work and has not exited.
#[derive(Debug)]
pub(super) struct Lingering {
    since: Mono,
    /// How long it may linger since its final record, or since its children were last at work.
    span: Duration,
    until: Mono,
    /// The last look: when, and how much CPU time its children had had.
    looked: Option<(Mono, Duration)>,
}

impl Lingering {
    pub(super) fn new(now: Mono, span: Duration) -> Lingering {
        Lingering { since: now, span, until: now + span, looked: None }
    }

    /// Changes how long it may linger.
    pub(super) fn change(&mut self, span: Duration) {
        (self.span, self.until) = (span, self.since + span);
    }

    /// When to look at its children again.
    pub(super) fn next_look(&self) -> Mono {
        let gap = (self.span / 4).clamp(SHORTEST_GAP, LONGEST_GAP);
        self.looked.map_or(Mono::ZERO, |(at, _)| at + gap)
    }

    /// Takes the CPU time that its children have had so far. Says whether its time is over.
    pub(super) fn look(&mut self, now: Mono, cpu: Duration) -> bool {
        let (at, before) = self.looked.replace((now, cpu)).unwrap_or((now, cpu));
        if cpu.saturating_sub(before) > now.since(at) / IDLE_PART {
            self.until = (now + self.span).min(self.since + self.span.max(LONGEST));
        }
        now >= self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Mono {
        Mono::ZERO + Duration::from_secs(seconds)
    }

    /// The second at which a run is ended whose children have had this much CPU time at each second.
    fn ends(span: Duration, cpu: impl Fn(u64) -> Duration) -> u64 {
        let mut lingering = Lingering::new(at(0), span);
        let mut is_over = |second: u64| {
            lingering.next_look() <= at(second) && lingering.look(at(second), cpu(second))
        };
        (0..2000).find(|second| is_over(*second)).unwrap_or(2000)
    }

    #[test]
    fn idle_children_do_not_extend_and_working_ones_do_up_to_ten_minutes() {
        assert_eq!(ends(SPAN, |_| Duration::ZERO), 30);
        assert_eq!(ends(SPAN, |second| Duration::from_millis(40 * second)), 30, "idle CLI");
        assert_eq!(ends(SPAN, Duration::from_secs), 600);
        let works_a_minute = |second: u64| Duration::from_secs(second.min(60));
        assert_eq!(ends(SPAN, works_a_minute), 90);
        let hour = Duration::from_hours(1);
        assert_eq!(ends(hour, |_| Duration::ZERO), 2000, "a longer `linger` is not cut");
    }
}
