//! The burn alarm: spending far above what is usual for this very agent. Pure.
//!
//! What is usual is the median of the minutes in which it spent anything, the last sixty of them
//! before this one; fewer than ten say nothing. A minute burns when it is above five times that and
//! above a floor, so that cheap agents alarm nobody. One alarm an episode: it is over when a minute
//! has passed that did not burn.

use std::collections::VecDeque;

use crate::ledger::{Minute, micros};

/// How far above the median is far.
pub(crate) const FACTOR: i64 = 5;
/// So many minutes make a baseline.
const BASELINE: usize = 10;

/// Spending that is far above the baseline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Burning {
    pub(crate) unit: String,
    /// What was spent in the minute so far, in millionths.
    pub(crate) per_minute: i64,
    /// What is usual.
    pub(crate) baseline: i64,
}

/// What the last of these minutes is, with those before it for a baseline: burning or not, and then
/// an alarm unless the episode has begun before. `burned` is the minute that last burned.
pub(crate) fn judge(
    minutes: &VecDeque<Minute>,
    unit: &str,
    burned: &mut Option<i64>,
) -> Option<Burning> {
    let last = minutes.len().checked_sub(1)?;
    let Minute { at, micros: per_minute } = minutes[last];
    let baseline = baseline(minutes, last)?;
    if per_minute <= baseline.saturating_mul(FACTOR).max(floor(unit)) {
        return None;
    }
    let goes_on = burned.replace(at).is_some_and(|before| before + 1 >= at);
    (!goes_on).then(|| Burning { unit: unit.to_owned(), per_minute, baseline })
}

/// The median of the minutes before this one, where there are enough.
fn baseline(minutes: &VecDeque<Minute>, at: usize) -> Option<i64> {
    let mut before: Vec<i64> = minutes.iter().take(at).map(|minute| minute.micros).collect();
    if before.len() < BASELINE {
        return None;
    }
    before.sort_unstable();
    Some(before[before.len() / 2])
}

/// Less than this in a minute is no burn, whatever is usual.
fn floor(unit: &str) -> i64 {
    micros(match unit {
        "tokens" => 20_000.0,
        "usd" => 0.5,
        _ => 10.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Minutes one after the other, in whole tokens.
    fn minutes(tokens: &[i64]) -> VecDeque<Minute> {
        let minute = |(at, tokens): (i64, &i64)| Minute { at, micros: tokens * 1_000_000 };
        (0..).zip(tokens).map(minute).collect()
    }

    fn alarms(tokens: &[i64]) -> Vec<usize> {
        let (all, mut burned) = (minutes(tokens), None);
        (1..=all.len())
            .filter(|to| {
                let so_far: VecDeque<Minute> = all.iter().take(*to).copied().collect();
                judge(&so_far, "tokens", &mut burned).is_some()
            })
            .map(|to| to - 1)
            .collect()
    }

    #[test]
    fn only_what_is_far_above_its_own_baseline_and_above_the_floor_burns() {
        let steady = [10_000; 10];
        let with = |more: &[i64]| [&steady[..], more].concat();
        for (what, tokens, expected) in [
            ("nothing", vec![], vec![]),
            ("no baseline yet", vec![10_000, 900_000], vec![]),
            ("nine minutes are no baseline", [&steady[..9], &[900_000]].concat(), vec![]),
            ("five times is not above five times", with(&[50_000]), vec![]),
            ("more than five times", with(&[50_001]), vec![10]),
            ("a cheap agent below the floor", [&[100; 10][..], &[20_000]].concat(), vec![]),
            ("a cheap agent above the floor", [&[100; 10][..], &[20_001]].concat(), vec![10]),
            ("once an episode", with(&[90_000, 80_000, 90_000]), vec![10]),
            ("again after a minute that did not", with(&[90_000, 10, 90_000]), vec![10, 12]),
        ] {
            assert_eq!(alarms(&tokens), expected, "{what}");
        }
    }

    #[test]
    fn a_pause_ends_an_episode() {
        let mut all = minutes(&[&[10_000; 10][..], &[90_000, 90_000]].concat());
        let mut burned = Some(10);
        assert_eq!(judge(&all, "tokens", &mut burned), None);
        all[11].at = 60;
        assert!(judge(&all, "tokens", &mut Some(10)).is_some());
    }
}
