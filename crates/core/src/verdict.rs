//! What policy makes of a death: the one place where class, mode, limits and backoff meet.
//!
//! Nothing here knows of phases, groups or runs. A death comes in with the numbers kept for its
//! agent, a [`Decision`] goes out, and the numbers are brought up to date.

use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backoff::Backoff;
use crate::class::Class;
use crate::limit::{Gauge, Limit, Measure, Span, Tally, Then};
use crate::policy::{Order, Pace, Policy, Reset, SHORT_LIFE, ShortDone, Trigger};
use crate::record::{Rest, Trip};
use crate::rng::Jitter;
use crate::time::{Mono, Now, Wall};

/// No wait for a stated reset is longer than this.
const LONGEST_WAIT: Duration = Duration::from_secs(8 * 86_400);

/// What policy makes of a death, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Start it again.
    Restart,
    /// Hold it until a known moment or event.
    Wait,
    /// Leave it: it is over.
    Rest,
    /// Leave it until something has been put right.
    Halt,
    /// Leave it until it is revived.
    CrashOut,
    /// Let its group deal with it.
    Escalate,
}

/// A classified end, as policy sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Death {
    pub(crate) class: Class,
    pub(crate) lived: Lived,
    pub(crate) resets_at: Option<Wall>,
}

/// What is known of the life before an end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lived {
    pub(crate) ran: Duration,
    /// Whether the run showed output, a beat or a passed probe.
    pub(crate) signed: bool,
    /// Whether the run was a fresh session.
    pub(crate) fresh: bool,
}

/// A verdict with everything needed to carry it out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Decision {
    Restart(Restart),
    Wait(Until),
    Rest(Rest),
    Halt,
    CrashOut(Trip, Gauge),
    /// The limit tripped, and passes the failure up. Whoever restarts the agent all the same does
    /// so by these numbers.
    Escalate(Gauge, Restart),
}

/// How an agent is started again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Restart {
    pub(crate) delay: Duration,
    pub(crate) attempt: u64,
    pub(crate) fresh: bool,
    pub(crate) gauge: Option<Gauge>,
}

/// When a wait ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Until {
    /// After a time.
    Mono(Mono),
    /// At a stated time, wherever the wall clock is moved to.
    Wall {
        stated: Wall,
        /// When that is, as the clocks stand.
        due: Mono,
    },
    /// When somebody says so.
    Told,
}

impl Until {
    /// The moment at which it ends by itself, where it does.
    pub(crate) const fn due(&self) -> Option<Mono> {
        match self {
            Until::Mono(due) | Until::Wall { due, .. } => Some(*due),
            Until::Told => None,
        }
    }

    /// A stated time, as the clocks stand.
    pub(crate) fn at(stated: Wall, now: Now) -> Until {
        Until::Wall { stated, due: now.mono + stated.since(now.wall) }
    }
}

impl Decision {
    pub(crate) const fn verdict(&self) -> Verdict {
        match self {
            Decision::Restart(_) => Verdict::Restart,
            Decision::Wait(_) => Verdict::Wait,
            Decision::Rest(_) => Verdict::Rest,
            Decision::Halt => Verdict::Halt,
            Decision::CrashOut(..) => Verdict::CrashOut,
            Decision::Escalate(..) => Verdict::Escalate,
        }
    }
}

/// What is counted for one agent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Counters {
    /// Failures in a row.
    pub(crate) failures: u64,
    /// Deaths in a row that the world outside caused.
    pub(crate) outages: u64,
    /// Automatic restarts since `up` or `revive`.
    pub(crate) restarts: u32,
    /// Clean ends in a row that came before [`SHORT_LIFE`].
    #[serde(default)]
    pub(crate) loops: u64,
    /// One for each limit of the policy, in its order.
    tallies: Vec<Tally>,
}

impl Counters {
    /// Counters for a policy whose limits may have changed: what was counted for a limit that is
    /// still there is kept.
    pub(crate) fn fit(&mut self, old: &[Limit], new: &[Limit]) {
        if old == new && self.tallies.len() == new.len() {
            return;
        }
        let mut kept: Vec<(Limit, Tally)> =
            old.iter().copied().zip(self.tallies.drain(..)).collect();
        // Allocate exactly: there may be 100,000 agents.
        self.tallies.reserve_exact(new.len());
        self.tallies.extend(new.iter().map(|limit| {
            match kept.iter().position(|(known, _)| known == limit) {
                Some(at) => kept.swap_remove(at).1,
                None => Tally::default(),
            }
        }));
    }

    /// Forgets every count.
    pub(crate) fn clear(&mut self) {
        self.forget_deaths();
        self.restarts = 0;
    }

    /// Forgets every count but that of the restarts.
    pub(crate) fn forget_deaths(&mut self) {
        (self.failures, self.outages, self.loops) = (0, 0, 0);
        self.clear_windows();
    }

    /// Forgets what limits have counted.
    pub(crate) fn clear_windows(&mut self) {
        self.tallies.iter_mut().for_each(Tally::clear);
    }

    /// The agent has shown that it works.
    pub(crate) fn succeed(&mut self, policy: &Policy) {
        (self.failures, self.outages) = (0, 0);
        for (limit, tally) in policy.limits.iter().zip(&mut self.tallies) {
            tally.succeed(limit);
        }
    }

    /// A run has ended. If it lived long enough, it was a success.
    pub(crate) fn note_life(&mut self, policy: &Policy, lived: Lived) {
        let resets = match policy.reset {
            Reset::Stable | Reset::Beat => true,
            Reset::Success | Reset::Window => false,
        };
        if resets && lived.ran >= policy.stable_after && (lived.signed || !policy.needs_sign) {
            self.succeed(policy);
        }
    }

    /// Counts a clean end: consecutive early ones are a loop.
    fn note_done(&mut self, policy: &Policy, ran: Duration) {
        (self.failures, self.outages) = (0, 0);
        let is_loop = policy.short_done == ShortDone::Loop && ran < SHORT_LIFE;
        self.loops = if is_loop { self.loops.saturating_add(1) } else { 0 };
    }

    /// The agent is restarted, automatically, now.
    pub(crate) fn note_restart(&mut self, policy: &Policy, now: Mono) {
        self.restarts = self.restarts.saturating_add(1);
        self.note(policy, Measure::Restarts, now);
    }

    fn note(&mut self, policy: &Policy, measure: Measure, now: Mono) {
        for (limit, tally) in policy.limits.iter().zip(&mut self.tallies) {
            if limit.measure == measure {
                tally.add(limit, now);
            }
        }
    }

    fn gauges<'a>(&'a self, policy: &'a Policy, now: Mono) -> impl Iterator<Item = Gauge> + 'a {
        let pairs = policy.limits.iter().zip(&self.tallies);
        pairs.map(move |(limit, tally)| Gauge { limit: *limit, count: tally.count(limit, now) })
    }

    /// The count of restarts in the policy's tumbling window, where its delays go by that.
    fn windowed_restarts(&self, policy: &Policy, now: Mono) -> Option<u64> {
        let tumbling = |gauge: &Gauge| {
            gauge.limit.measure == Measure::Restarts
                && matches!(gauge.limit.span, Span::Tumbling(_))
        };
        match policy.reset {
            Reset::Window => self.gauges(policy, now).find(tumbling).map(|g| g.count.into()),
            Reset::Success | Reset::Stable | Reset::Beat => None,
        }
    }
}

/// A decision about a death, and how the death was taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Judgement {
    pub(crate) class: Class,
    pub(crate) counted: bool,
    pub(crate) decision: Decision,
}

/// Judges a death and brings the counters up to date.
///
/// `vetoed` says that the agent has no money left; `exhausted` that no agent may be restarted any
/// more, and by which bound.
pub(crate) fn judge(
    policy: &Policy,
    counters: &mut Counters,
    jitter: &mut Jitter,
    now: Now,
    death: Death,
    vetoed: bool,
    exhausted: Option<Gauge>,
) -> Judgement {
    let Death { class, lived, resets_at } = death;
    let order = order(policy, class, lived);
    if vetoed && matches!(order, Order::Restart | Order::Wait) {
        return Judgement { class: Class::Broke, counted: false, decision: Decision::Halt };
    }
    let short_done = class == Class::Done
        && lived.ran < policy.stable_after
        && policy.short_done == ShortDone::Death;
    counters.note_life(policy, lived);
    if class == Class::Done && !short_done {
        counters.succeed(policy);
    }
    let treatment = policy.treatment(class);
    match (class, order, treatment.pace) {
        (Class::Done, _, _) => counters.note_done(policy, lived.ran),
        (Class::Voluntary | Class::Stopped | Class::Group, _, _) => {}
        (_, Order::Wait, _) | (_, _, Pace::Environment) => {
            counters.outages = counters.outages.saturating_add(1);
        }
        (_, _, Pace::Own | Pace::AtOnce) => {
            counters.failures = counters.failures.saturating_add(1);
            (counters.outages, counters.loops) = (0, 0);
        }
    }
    let counted = order == Order::Restart && (treatment.counts || short_done);
    if counted {
        counters.note(policy, Measure::Deaths, now.mono);
    }
    let decision = match order {
        Order::Restart => match exhausted {
            Some(gauge) => Decision::CrashOut(Trip::Total, gauge),
            None => restart(policy, counters, jitter, now.mono, class, counted),
        },
        Order::Wait => Decision::Wait(wait(counters, jitter, now, class, resets_at)),
        Order::Rest => Decision::Rest(rest(policy, class)),
        Order::Halt => Decision::Halt,
    };
    Judgement { class, counted, decision }
}

/// What the policy orders. A fresh session whose context is full again would only burn money.
fn order(policy: &Policy, class: Class, lived: Lived) -> Order {
    let order = policy.order(class);
    let hopeless = class == Class::Context && lived.fresh && policy.halts_fresh_context;
    let is_own = policy.on.contains_key(&class);
    if hopeless && !is_own && order == Order::Restart { Order::Halt } else { order }
}

fn restart(
    policy: &Policy,
    counters: &Counters,
    jitter: &mut Jitter,
    now: Mono,
    class: Class,
    counted: bool,
) -> Decision {
    let tripped = counters.gauges(policy, now).find(|gauge| {
        let concerns = counted || gauge.limit.measure == Measure::Restarts;
        concerns && gauge.count >= gauge.limit.max
    });
    let (backoff, attempt) = match (class, policy.treatment(class).pace) {
        (Class::Done, _) => {
            let windowed = counters.windowed_restarts(policy, now).unwrap_or(0) + 1;
            (policy.backoff, windowed.max(counters.loops))
        }
        (_, Pace::Environment) => (Backoff::ENVIRONMENT, counters.outages),
        (_, Pace::AtOnce) => (Backoff::NONE, counters.failures),
        (_, Pace::Own) => {
            let windowed = counters.windowed_restarts(policy, now).map(|count| count + 1);
            (policy.backoff, windowed.unwrap_or(counters.failures))
        }
    };
    // What is shown includes the restart that is being decided.
    let including = |gauge: Gauge| match gauge.limit.measure {
        Measure::Deaths => gauge,
        Measure::Restarts => Gauge { count: gauge.count.saturating_add(1), ..gauge },
    };
    let restart = Restart {
        delay: backoff.delay(attempt, jitter),
        attempt,
        fresh: class == Class::Context,
        gauge: counters.gauges(policy, now).map(including).min_by_key(Gauge::left),
    };
    match tripped {
        None => Decision::Restart(restart),
        Some(gauge) => match gauge.limit.then {
            Then::Escalate => Decision::Escalate(gauge, restart),
            Then::CrashOut => Decision::CrashOut(Trip::of(&gauge.limit), gauge),
        },
    }
}

fn wait(
    counters: &Counters,
    jitter: &mut Jitter,
    now: Now,
    class: Class,
    resets_at: Option<Wall>,
) -> Until {
    match (resets_at, class) {
        // The reset has passed and the limit holds all the same: retry at growing intervals, not at once.
        (Some(stated), _) if stated <= now.wall && counters.outages > 1 => {
            Until::Mono(now.mono + Backoff::ENVIRONMENT.delay(counters.outages - 1, jitter))
        }
        (Some(stated), _) => {
            let reset = stated.clamp(now.wall, now.wall + LONGEST_WAIT) + jitter.after_reset();
            Until::at(reset, now)
        }
        (None, Class::Disk | Class::Budget) => Until::Told,
        (None, _) => Until::Mono(now.mono + Backoff::ENVIRONMENT.delay(counters.outages, jitter)),
    }
}

/// How an agent rests after an end that orders so.
pub(crate) const fn rest(policy: &Policy, class: Class) -> Rest {
    match (class, policy.trigger) {
        (Class::Voluntary, _) => Rest::Done,
        (_, Trigger::Cron) => Rest::Idle,
        (Class::Done, Trigger::Boot | Trigger::Manual) => Rest::Done,
        (_, Trigger::Boot | Trigger::Manual) => Rest::Failed,
    }
}
