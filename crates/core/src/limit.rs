//! Limits: bounds on deaths or restarts, and the tallies that are kept for them.
//!
//! A tally holds times, not verdicts: what is in a window follows from the moment it is asked.
//! No rolling tally holds more entries than its limit's maximum.

use alloc::collections::VecDeque;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::{Mono, Seconds};

/// What a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// Counted deaths. The limit trips at the death that reaches it.
    Deaths,
    /// Automatic restarts. The limit trips when one more would be needed.
    Restarts,
}

/// Over what stretch a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Span {
    /// Inside any stretch of this length.
    Rolling(Duration),
    /// In a stretch of this length that starts with its first entry; then it starts again.
    Tumbling(Duration),
    /// Since the last success.
    Consecutive,
    /// For the life of the daemon.
    Lifetime,
}

/// What happens when a limit trips.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Then {
    /// The agent is crashed out.
    CrashOut,
    /// Its group has failed.
    Escalate,
}

/// A bound on deaths or restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limit {
    /// What is counted.
    pub measure: Measure,
    /// How many trip it (deaths), or how many are allowed (restarts).
    pub max: u32,
    /// Over what stretch.
    pub span: Span,
    /// What happens when it trips.
    pub then: Then,
}

impl Limit {
    /// At most `max` counted deaths inside any stretch of `within`.
    pub const fn deaths(max: u32, within: Duration) -> Limit {
        Limit { measure: Measure::Deaths, max, span: Span::Rolling(within), then: Then::CrashOut }
    }

    /// At most `max` counted deaths since the last success.
    pub const fn deaths_in_a_row(max: u32) -> Limit {
        Limit { measure: Measure::Deaths, max, span: Span::Consecutive, then: Then::CrashOut }
    }

    /// At most `max` restarts over `span`.
    pub const fn restarts(max: u32, span: Span) -> Limit {
        Limit { measure: Measure::Restarts, max, span, then: Then::CrashOut }
    }

    /// The same limit, escalating when it trips.
    #[must_use]
    pub const fn escalating(self) -> Limit {
        Limit { then: Then::Escalate, ..self }
    }

    /// The length of its window, where it has one.
    pub const fn within(&self) -> Option<Duration> {
        match self.span {
            Span::Rolling(within) | Span::Tumbling(within) => Some(within),
            Span::Consecutive | Span::Lifetime => None,
        }
    }
}

/// What has been counted towards one limit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Rolling: the latest entries, oldest first. Tumbling: the window's first entry only.
    times: VecDeque<Mono>,
    /// All other spans than rolling: how many.
    count: u32,
}

impl Tally {
    /// What has been counted in a tumbling window: so many entries, the first of them at `first`.
    pub fn tumbling(first: Mono, count: u32) -> Tally {
        Tally { times: VecDeque::from([first]), count }
    }

    /// Rolling: the oldest entry that is kept. Tumbling: the window's first.
    pub fn first(&self) -> Option<Mono> {
        self.times.front().copied()
    }

    /// How many entries count at `now`. An entry exactly as old as the window is out.
    pub fn count(&self, limit: &Limit, now: Mono) -> u32 {
        match limit.span {
            Span::Rolling(within) => {
                let old = self.times.partition_point(|time| now.since(*time) >= within);
                u32::try_from(self.times.len() - old).unwrap_or(u32::MAX)
            }
            Span::Tumbling(within) => match self.times.front() {
                Some(first) if now.since(*first) < within => self.count,
                Some(_) | None => 0,
            },
            Span::Consecutive | Span::Lifetime => self.count,
        }
    }

    /// Adds an entry at `now`.
    pub fn add(&mut self, limit: &Limit, now: Mono) {
        match limit.span {
            Span::Rolling(within) => {
                while self.times.front().is_some_and(|time| now.since(*time) >= within) {
                    self.times.pop_front();
                }
                if self.times.len() >= limit.max.max(1) as usize {
                    self.times.pop_front();
                }
                self.times.push_back(now);
            }
            Span::Tumbling(_) => {
                if self.count(limit, now) == 0 {
                    self.times.clear();
                    self.times.push_back(now);
                    self.count = 0;
                }
                self.count = self.count.saturating_add(1);
            }
            Span::Consecutive | Span::Lifetime => self.count = self.count.saturating_add(1),
        }
    }

    /// A success: what counts only since the last one starts again.
    pub fn succeed(&mut self, limit: &Limit) {
        if limit.span == Span::Consecutive {
            self.count = 0;
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Tally::default();
    }
}

/// Where a limit stands: the numbers behind a decision, as records carry them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "GaugeJson", into = "GaugeJson")]
pub struct Gauge {
    /// The limit.
    pub limit: Limit,
    /// How many of its `max` are used.
    pub count: u32,
}

impl Gauge {
    /// How many are left before it trips.
    pub const fn left(&self) -> u32 {
        self.limit.max.saturating_sub(self.count)
    }
}

/// A gauge in JSON: `{ deaths: 4, max: 5, within_s: 60 }`.
#[derive(Serialize, Deserialize)]
struct GaugeJson {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deaths: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    restarts: Option<u32>,
    max: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    within_s: Option<Seconds>,
    #[serde(default, skip_serializing_if = "is_false")]
    tumbling: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    consecutive: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    escalates: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl From<Gauge> for GaugeJson {
    fn from(Gauge { limit, count }: Gauge) -> GaugeJson {
        let counted = |measure| (limit.measure == measure).then_some(count);
        GaugeJson {
            deaths: counted(Measure::Deaths),
            restarts: counted(Measure::Restarts),
            max: limit.max,
            within_s: limit.within().map(Seconds),
            tumbling: matches!(limit.span, Span::Tumbling(_)),
            consecutive: limit.span == Span::Consecutive,
            escalates: limit.then == Then::Escalate,
        }
    }
}

impl From<GaugeJson> for Gauge {
    fn from(json: GaugeJson) -> Gauge {
        let (measure, count) = match json.deaths {
            Some(count) => (Measure::Deaths, count),
            None => (Measure::Restarts, json.restarts.unwrap_or(0)),
        };
        let span = match json.within_s {
            Some(Seconds(within)) if json.tumbling => Span::Tumbling(within),
            Some(Seconds(within)) => Span::Rolling(within),
            None if json.consecutive => Span::Consecutive,
            None => Span::Lifetime,
        };
        let then = if json.escalates { Then::Escalate } else { Then::CrashOut };
        Gauge { limit: Limit { measure, max: json.max, span, then }, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Mono {
        Mono::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn an_entry_exactly_as_old_as_the_window_is_out() {
        let limit = Limit::deaths(5, MINUTE);
        let mut tally = Tally::default();
        tally.add(&limit, at(0));
        assert_eq!(tally.count(&limit, Mono::from_nanos(60_000_000_000 - 1)), 1);
        assert_eq!(tally.count(&limit, at(60)), 0);
    }

    #[test]
    fn a_rolling_tally_never_holds_more_than_its_limit_needs() {
        let limit = Limit::deaths(3, MINUTE);
        let mut tally = Tally::default();
        for second in 0..1000 {
            tally.add(&limit, at(second / 100));
            assert!(tally.times.len() <= 3);
        }
        assert_eq!(tally.count(&limit, at(10)), 3);
    }

    #[test]
    fn a_tumbling_window_starts_again_with_the_first_entry_after_it() {
        let limit = Limit::restarts(5, Span::Tumbling(MINUTE));
        let mut tally = Tally::default();
        for second in [0, 10, 59] {
            tally.add(&limit, at(second));
        }
        assert_eq!(tally.count(&limit, at(59)), 3);
        assert_eq!(tally.count(&limit, at(60)), 0);
        tally.add(&limit, at(70));
        assert_eq!(tally.count(&limit, at(129)), 1, "the new window began at 70, not at 60");
        assert_eq!(tally.count(&limit, at(130)), 0);
    }

    #[test]
    fn only_what_is_consecutive_is_forgotten_on_success() {
        for (span, left) in
            [(Span::Consecutive, 0), (Span::Lifetime, 1), (Span::Rolling(MINUTE), 1)]
        {
            let limit = Limit::restarts(5, span);
            let mut tally = Tally::default();
            tally.add(&limit, at(1));
            tally.succeed(&limit);
            assert_eq!(tally.count(&limit, at(2)), left, "{span:?}");
        }
    }

    #[test]
    fn a_gauge_says_its_numbers_and_is_read_back() {
        for (limit, json) in [
            (Limit::deaths(5, MINUTE), r#"{"deaths":4,"max":5,"within_s":60}"#),
            (
                Limit::restarts(5, Span::Tumbling(Duration::from_millis(1500))).escalating(),
                r#"{"restarts":4,"max":5,"within_s":1.5,"tumbling":true,"escalates":true}"#,
            ),
            (
                Limit::restarts(10, Span::Consecutive),
                r#"{"restarts":4,"max":10,"consecutive":true}"#,
            ),
            (Limit::restarts(10, Span::Lifetime), r#"{"restarts":4,"max":10}"#),
        ] {
            let gauge = Gauge { limit, count: 4 };
            assert_eq!(serde_json::to_string(&gauge).unwrap(), json);
            assert_eq!(serde_json::from_str::<Gauge>(json).unwrap(), gauge);
        }
    }
}
