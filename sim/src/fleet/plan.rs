//! What a run will do with its life, drawn when it is spawned.
//!
//! A plan knows nothing of the supervisor: it is what the world does to it.

use std::time::Duration;

use defib_core::run::{ExitReport, Finding, Status};
use defib_core::{Class, Signal, Wall};

use super::draw::Draw;
use super::weather::{Fault, Weather};

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// What a run does beside living and dying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Odd {
    Wish,
    Overspend,
    ProbeFails,
}

/// What a run will do with its life.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// It never comes to life; whether another try may do.
    pub(crate) not_spawned: Option<bool>,
    /// When it ends by itself, and how.
    pub(crate) end: Option<(Duration, ExitReport)>,
    /// It ignores the stop signal.
    pub(crate) deaf: bool,
    /// It neither beats nor does anything.
    pub(crate) hangs: bool,
    /// When it says that it is ready; nothing is never.
    pub(crate) ready_in: Option<Duration>,
    /// What it does beside that.
    pub(crate) odd: Option<(Duration, Odd)>,
}

impl Plan {
    /// A run that is well and lives on.
    pub(crate) fn healthy(draw: &mut Draw) -> Plan {
        Plan {
            not_spawned: None,
            end: None,
            deaf: false,
            hangs: false,
            ready_in: Some(draw.spread(MILLISECOND, 2 * SECOND)),
            odd: None,
        }
    }

    /// A run that the day's weather strikes, or not; and what struck it.
    pub(crate) fn struck(
        draw: &mut Draw,
        weather: &Weather,
        looping: bool,
        wall: Wall,
        seen: &mut impl FnMut(Fault),
    ) -> Plan {
        let mut plan = Plan::healthy(draw);
        let mut strikes = |draw: &mut Draw, fault: Fault| {
            let strikes = draw.chance(weather.odds(fault));
            if strikes {
                seen(fault);
            }
            strikes
        };
        plan.deaf = strikes(draw, Fault::Deaf);
        if strikes(draw, Fault::NeverReady) {
            plan.ready_in = None;
        } else if strikes(draw, Fault::SlowReady) {
            plan.ready_in = Some(draw.spread(SECOND, 30 * MINUTE));
        }
        let short = draw.spread(MILLISECOND, 2 * SECOND);
        if looping {
            plan.end = Some((short, crash(draw)));
        } else if strikes(draw, Fault::SpawnFailure) {
            plan.not_spawned = Some(draw.chance(500));
        } else if strikes(draw, Fault::Finding) {
            let life = draw.spread(MILLISECOND, 2 * HOUR);
            plan.end = Some((life, finding(draw, wall + life)));
        } else if strikes(draw, Fault::QuickDone) {
            plan.end = Some((draw.spread(MILLISECOND, MINUTE), Status::Exited(0).into()));
        } else if strikes(draw, Fault::Wish) {
            let at = draw.spread(SECOND, HOUR);
            plan.odd = Some((at, Odd::Wish));
            if draw.chance(500) {
                let lingering = draw.spread(MILLISECOND, 2 * MINUTE);
                plan.end = Some((at + lingering, Status::Exited(0).into()));
            }
        } else if strikes(draw, Fault::Overspend) {
            plan.odd = Some((draw.spread(SECOND, 2 * HOUR), Odd::Overspend));
        } else if strikes(draw, Fault::ProbeFailed) {
            plan.odd = Some((draw.spread(SECOND, 2 * HOUR), Odd::ProbeFails));
        } else if strikes(draw, Fault::Hang) {
            plan.hangs = true;
        } else if strikes(draw, Fault::Crash) {
            plan.end = Some((draw.spread(MILLISECOND, HOUR), crash(draw)));
        } else {
            let report = if draw.chance(300) { Status::Exited(0).into() } else { crash(draw) };
            plan.end = draw.chance(800).then(|| (draw.spread(MINUTE, 8 * HOUR), report));
        }
        plan
    }
}

/// An end that says nothing but its wait status.
fn crash(draw: &mut Draw) -> ExitReport {
    let status = match draw.below(8) {
        0 => Status::Signaled(Signal(11)),
        1 => Status::Signaled(Signal::KILL),
        2 => Status::Exited(2),
        3 => Status::Exited(3),
        4 => Status::Exited(75),
        5 => Status::Unseen,
        _ => Status::Exited(1),
    };
    status.into()
}

/// An end of which an autopsy finds the cause.
fn finding(draw: &mut Draw, wall: Wall) -> ExitReport {
    let class = draw.pick(&[
        Class::Quota,
        Class::Quota,
        Class::Quota,
        Class::Disk,
        Class::Network,
        Class::Overload,
        Class::Throttle,
        Class::Auth,
        Class::Billing,
        Class::Config,
        Class::Context,
        Class::Oom,
        Class::Interrupted,
        Class::Voluntary,
        Class::Budget,
        Class::Timeout,
    ]);
    let resets_at = (class == Class::Quota && draw.chance(600)).then(|| match draw.below(6) {
        0 => Wall::from_millis(wall.as_millis() - 3_600_000),
        1 => wall + draw.span(HOUR, 480 * HOUR),
        _ => wall + draw.spread(SECOND, 4 * HOUR),
    });
    let evidence = draw.chance(300).then(|| Box::from("it said so"));
    let status = if draw.chance(200) { Status::Exited(0) } else { Status::Exited(1) };
    ExitReport { status, finding: Some(Finding { class, evidence, resets_at }), spoke: true }
}
