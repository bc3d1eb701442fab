//! Invariant 5: each restart comes exactly when it was announced, and was announced as its policy
//! says.
//!
//! A restart that was scheduled is expected at its moment. Only a record about the same agent lifts
//! that expectation; whatever other agents do, it stands.

use std::ops::RangeInclusive;
use std::time::Duration;

use defib_core::backoff::{Backoff, Growth};
use defib_core::policy::{Pace, Policy};
use defib_core::record::{Cause, WaitReason};
use defib_core::{Class, Mono, Now, Record, Wall, What};

use super::{Checked, Invariant};
use crate::fleet::forest::{Forest, Slot};

#[derive(Debug, Clone, Copy)]
struct Expected {
    due: Mono,
    /// Its group restarts with it, and in order.
    grouped: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Course {
    expected: Option<Expected>,
    /// What it died of, until something has become of that.
    died_of: Option<Class>,
    grouped: bool,
    /// It was due and is held, within the step.
    held: bool,
    /// When the cause of its death goes away, as was stated.
    resets_at: Option<Wall>,
}

/// What is expected of every agent.
#[derive(Debug)]
pub(crate) struct Delays {
    courses: Vec<Course>,
    /// Since when a daemon has been there, awake, without a break.
    watched_since: Mono,
    /// How many restarts came exactly when they were due.
    pub(crate) exact: u64,
    /// Whether a stated reset is followed by a pause of one to two minutes.
    jitters: bool,
    /// The agent of whose end the supervisor hears, and the reset that was stated with it.
    hears: Option<(Slot, Wall)>,
    /// Whether it is by the clock alone that something happens.
    by_clock: bool,
}

impl Delays {
    pub(crate) fn new(slots: usize, jitters: bool) -> Delays {
        Delays {
            courses: vec![Course::default(); slots],
            watched_since: Mono::ZERO,
            exact: 0,
            jitters,
            hears: None,
            by_clock: false,
        }
    }

    /// A step begins: by the clock alone, or with an end for which a reset was stated.
    pub(crate) fn begin(&mut self, by_clock: bool, hears: Option<(Slot, Wall)>) {
        (self.by_clock, self.hears) = (by_clock, hears);
    }

    /// From here on a daemon is there and awake.
    pub(crate) fn watch_from(&mut self, now: Mono) {
        self.watched_since = now;
    }

    /// The machine started anew: nothing is expected any more.
    pub(crate) fn reboot(&mut self, now: Mono) {
        self.courses.iter_mut().for_each(|course| *course = Course::default());
        self.watched_since = now;
    }

    pub(crate) fn record(
        &mut self,
        forest: &Forest,
        slot: Slot,
        Now { mono: now, wall }: Now,
        record: &Record,
    ) -> Checked {
        let (jitters, by_clock) = (self.jitters, self.by_clock);
        let hears = self.hears.filter(|(hears, _)| *hears == slot).map(|(_, stated)| stated);
        let course = &mut self.courses[slot];
        match &record.what {
            What::RunStarted { cause, .. } => {
                let expected = course.expected.take();
                course.held = false;
                let timed = by_clock && *cause == Cause::Wait;
                let early = course.resets_at.take();
                let early = early.filter(|reset| timed && reset.since(wall) > DRIFT);
                Invariant::Delay.check(early.is_none(), || {
                    format!("a{slot}: it starts at {wall:?}, its quota is reset at {early:?}")
                })?;
                if *cause == Cause::Restart
                    && let Some(Expected { due, .. }) = expected
                {
                    let punctual = now == due || (now > due && due < self.watched_since);
                    self.exact += u64::from(now == due);
                    Invariant::Delay.check(punctual, || {
                        format!("a{slot}: its restart was due at {due:?} and comes at {now:?}")
                    })?;
                }
            }
            What::RunDied { class, .. } => {
                *course = Course { died_of: Some(*class), ..Course::default() };
            }
            What::GroupRestarted { .. } => course.grouped = true,
            What::RestartScheduled { delay_ms, attempt, .. } => {
                let due = now + Duration::from_millis(*delay_ms);
                course.expected = Some(Expected { due, grouped: course.grouped });
                if let Some(class) = course.died_of.take() {
                    let policy = &forest.plants[slot].policy;
                    is_allowed(policy, class, *attempt, Duration::from_millis(*delay_ms)).map_err(
                        |breach| super::Breach {
                            what: format!("a{slot}: {}", breach.what),
                            ..breach
                        },
                    )?;
                }
            }
            What::WaitStarted { reason: WaitReason::Dependency, .. } => {
                if let Some(expected) = course.expected.take() {
                    course.held = expected.due <= now && !expected.grouped;
                }
            }
            What::WaitStarted { reason: WaitReason::Cause(class), wait_ms } => {
                course.expected = None;
                // It was told that its own wait is over, and waits with others.
                if !by_clock {
                    course.resets_at = None;
                }
                // Of another on its account it hears something else.
                if let Some(stated) = hears
                    && course.died_of.take() == Some(*class)
                {
                    course.resets_at = Some(stated.min(wall + LONGEST_WAIT));
                    let until = stated.since(wall).min(LONGEST_WAIT);
                    let wait = wait_ms.map(Duration::from_millis);
                    let pause = wait.and_then(|wait| wait.checked_sub(until));
                    let allowed = if jitters { PAUSE } else { Duration::ZERO..=ROUNDING };
                    // A limit that outlives its stated reset is retried at growing intervals.
                    let retries = until.is_zero() && wait.is_some_and(is_retry);
                    let fits = retries || pause.is_some_and(|pause| allowed.contains(&pause));
                    Invariant::Delay.check(fits, || {
                        format!("a{slot}: it waits {wait:?} for a reset in {until:?}")
                    })?;
                }
            }
            // Its turn on its account comes when others have shown that it works, whatever was stated
            // to itself: a clock that is set back afterwards makes nobody wait for that again.
            What::WaitStarted { reason: WaitReason::Account, .. } => {
                (course.expected, course.resets_at) = (None, None);
            }
            // Nobody prompts here; and who does runs on.
            What::WaitStarted { reason: WaitReason::Prompt, .. } => {}
            What::CrashedOut { .. }
            | What::Halted { .. }
            | What::StopRequested { .. }
            | What::Stopped { .. }
            | What::Rested { .. }
            | What::Revived => (course.expected, course.resets_at) = (None, None),
            What::RunReady
            | What::WaitEnded { .. }
            | What::LimitTripped { .. }
            | What::Escalated { .. }
            | What::HeartbeatMissed { .. } => {}
        }
        Ok(())
    }

    /// A step is over: nobody whose time has come is still waiting for it, and nobody is held by
    /// another that it did not name.
    pub(crate) fn step_over(
        &mut self,
        forest: &Forest,
        now: Mono,
        is_ready: impl Fn(Slot) -> bool,
    ) -> Checked {
        for (slot, course) in self.courses.iter_mut().enumerate() {
            if let Some(Expected { due, .. }) = course.expected {
                Invariant::Delay.check(due > now, || {
                    format!("a{slot}: its restart was due at {due:?}, it is {now:?}")
                })?;
            }
            if std::mem::replace(&mut course.held, false) {
                let named = forest.plants[slot].after.iter().copied();
                let mut unready = named.filter(|s| forest.plants[*s].declared && !is_ready(*s));
                Invariant::Delay.check(unready.next().is_some(), || {
                    format!(
                        "a{slot}: its restart is held, and nothing that it starts after is down"
                    )
                })?;
            }
        }
        Ok(())
    }
}

/// No wait for a stated reset is longer.
const LONGEST_WAIT: Duration = Duration::from_secs(8 * 86_400);
/// What is waited beyond a stated reset.
const PAUSE: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(121);
/// Records state spans in whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(1);

/// A clock in whole milliseconds is that far off after some sleeps.
const DRIFT: Duration = Duration::from_millis(100);

/// Whether the delay is one that the policy's formula gives, jitter and cap included.
fn is_allowed(policy: &Policy, class: Class, attempt: u64, delay: Duration) -> Checked {
    let rule = match (class, policy.treatment(class).pace) {
        (Class::Done, _) | (_, Pace::Own) => policy.backoff,
        (_, Pace::Environment) => Backoff::ENVIRONMENT,
        (_, Pace::AtOnce) => Backoff::NONE,
    };
    Invariant::Delay.check(is_delay_of(&rule, attempt, delay), || {
        format!("a delay of {delay:?} at attempt {attempt} after {class}, under {rule:?}")
    })
}

/// Whether the wait is one of the delays for trouble in the environment. From attempt 7 on the cap applies.
fn is_retry(wait: Duration) -> bool {
    (1..=7).any(|attempt| is_delay_of(&Backoff::ENVIRONMENT, attempt, wait))
}

/// Whether a rule gives this delay at this attempt.
fn is_delay_of(rule: &Backoff, attempt: u64, delay: Duration) -> bool {
    let n = i32::try_from(attempt.max(1)).unwrap_or(i32::MAX);
    let exponent = (n - 1).saturating_add(i32::try_from(rule.first_exponent).unwrap_or(i32::MAX));
    let base = rule.base.as_secs_f64();
    let plain = match rule.growth {
        Growth::None => 0.0,
        Growth::Fixed => base,
        Growth::Linear => base * f64::from(n),
        Growth::Exponential => base * rule.factor.powi(exponent),
    };
    let cap = rule.cap.as_secs_f64();
    let (low, high) = (plain * (1.0 - rule.jitter), plain * (1.0 + rule.jitter));
    let delay = delay.as_secs_f64();
    delay >= low.min(cap) - 0.001 && delay <= high.min(cap) + 0.001
}
