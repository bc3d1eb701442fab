//! Random policies: one of the six rule sets, with any field changed.
//!
//! The numbers stay in the range where a day shows them: a window of a month would never trip.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use defib_core::backoff::{Backoff, Growth};
use defib_core::limit::{Limit, Span, Then};
use defib_core::policy::{
    Heartbeat, Mode, Order, Pace, Ready, Reset, ShortDone, SpawnFailure, Treatment, Trigger,
};
use defib_core::{Class, Policy, Preset};

use super::draw::Draw;

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

const ORDERS: [Order; 4] = [Order::Restart, Order::Wait, Order::Rest, Order::Halt];

/// A policy that some file might declare.
pub(crate) fn policy(draw: &mut Draw) -> Arc<Policy> {
    let mut policy = draw.pick(&Preset::ALL).policy();
    // A plain rule set is worth a day of its own.
    let per_mille = draw.pick(&[0, 100, 100, 300]);
    override_verdicts(draw, per_mille, &mut policy);
    override_watching(draw, per_mille, &mut policy);
    override_starts(draw, per_mille, &mut policy);
    // Beats every minute would be most of what happens in a day.
    if policy.heartbeat.is_some() && draw.chance(900) {
        policy.heartbeat = Some(heartbeat(draw));
    }
    Arc::new(policy)
}

fn override_verdicts(draw: &mut Draw, per_mille: u64, policy: &mut Policy) {
    if draw.chance(per_mille) {
        policy.mode = draw.pick(&[Mode::Always, Mode::OnFailure, Mode::Never]);
    }
    if draw.chance(per_mille) {
        policy.backoff = backoff(draw);
    }
    if draw.chance(per_mille * 2) {
        policy.limits = limits(draw);
    }
    if draw.chance(per_mille) {
        policy.reset = draw.pick(&[Reset::Success, Reset::Stable, Reset::Beat, Reset::Window]);
    }
    if draw.chance(per_mille) {
        policy.stable_after = draw.stated(SECOND, HOUR);
    }
    if draw.chance(per_mille) {
        policy.short_done = draw.pick(&[ShortDone::Death, ShortDone::Plain, ShortDone::Loop]);
    }
    if draw.chance(per_mille / 2) {
        for _ in 0..draw.below(4) {
            let order = draw.pick(&ORDERS);
            let pace = draw.pick(&[Pace::Own, Pace::Environment, Pace::AtOnce]);
            policy.treat(class(draw), Treatment { order, counts: draw.chance(500), pace });
        }
    }
    if draw.chance(per_mille) {
        policy.on = (0..draw.below(5)).map(|_| (class(draw), draw.pick(&ORDERS))).collect();
    }
    if draw.chance(per_mille) {
        policy.exit_codes = BTreeMap::from([
            (2, class(draw)),
            (3, draw.pick(&[Class::Quota, Class::Disk, Class::Done])),
            (75, Class::Throttle),
        ]);
    }
    if draw.chance(per_mille) {
        policy.spawn_failure = draw.pick(&[SpawnFailure::Config, SpawnFailure::Error]);
    }
}

fn override_watching(draw: &mut Draw, per_mille: u64, policy: &mut Policy) {
    if draw.chance(per_mille) {
        policy.heartbeat = draw.chance(700).then(|| heartbeat(draw));
    }
    if draw.chance(per_mille) {
        policy.silent_for = draw.chance(700).then(|| draw.stated(15 * MINUTE, 3 * HOUR));
    }
    if draw.chance(per_mille) {
        policy.max_runtime = draw.chance(700).then(|| draw.stated(30 * MINUTE, 8 * HOUR));
    }
    if draw.chance(per_mille) {
        let some = draw.stated(MILLISECOND, 5 * MINUTE);
        policy.stop_timeout = draw.pick(&[Duration::ZERO, SECOND, 10 * SECOND, some]);
    }
}

fn override_starts(draw: &mut Draw, per_mille: u64, policy: &mut Policy) {
    if draw.chance(per_mille) {
        policy.ready = draw.pick(&[Ready::AtSpawn, Ready::WhenTold]);
    }
    if draw.chance(per_mille) {
        policy.trigger = draw.pick(&[Trigger::Boot, Trigger::Manual, Trigger::Cron]);
    }
    if draw.chance(per_mille) {
        policy.revive_on_boot = draw.chance(500);
    }
    if draw.chance(per_mille) {
        policy.start_gap = draw.pick(&[Duration::ZERO, 100 * MILLISECOND, SECOND, 5 * SECOND]);
    }
}

fn heartbeat(draw: &mut Draw) -> Heartbeat {
    let grace = draw.pick(&[Duration::ZERO, MINUTE, HOUR]);
    Heartbeat { ttl: draw.stated(15 * MINUTE, 3 * HOUR), grace }
}

fn backoff(draw: &mut Draw) -> Backoff {
    let growth = draw.pick(&[Growth::Exponential, Growth::Linear, Growth::Fixed, Growth::None]);
    Backoff {
        growth,
        base: draw.pick(&[Duration::ZERO, 100 * MILLISECOND, SECOND, 10 * SECOND]),
        factor: draw.pick(&[1.0, 1.5, 2.0, 10.0]),
        cap: draw.stated(SECOND, 10 * MINUTE),
        jitter: draw.pick(&[0.0, 0.1, 0.5, 1.0]),
        first_exponent: draw.count(0, 3),
    }
}

/// Up to three limits, all different: a file that states one twice is refused.
fn limits(draw: &mut Draw) -> Vec<Limit> {
    let mut limits: Vec<Limit> = Vec::new();
    for _ in 0..draw.below(4) {
        let within = draw.stated(SECOND, 2 * HOUR);
        let plain = match draw.below(5) {
            0 | 1 => Limit::deaths(draw.count(0, 6), within),
            _ => restarts(draw, within),
        };
        let then = if draw.chance(350) { Then::Escalate } else { Then::CrashOut };
        let limit = Limit { then, ..plain };
        if !limits.contains(&limit) {
            limits.push(limit);
        }
    }
    limits
}

/// A bound on restarts over any span.
pub(crate) fn restarts(draw: &mut Draw, within: Duration) -> Limit {
    let spans = [Span::Rolling(within), Span::Tumbling(within), Span::Consecutive, Span::Lifetime];
    Limit::restarts(draw.count(0, 8), draw.pick(&spans))
}

/// A class that a file may name: those that we ourselves bring about are not among them.
fn class(draw: &mut Draw) -> Class {
    loop {
        let class = draw.pick(Class::ALL);
        if !matches!(class, Class::Stopped | Class::Group | Class::Broke) {
            return class;
        }
    }
}
