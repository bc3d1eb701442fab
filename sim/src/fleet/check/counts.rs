//! Invariant 11: what records say of failures in a row and of restarts is what happened.
//!
//! Both are counted anew here, from deaths, beats and starts alone. A daemon that dies, a policy that
//! changes or a restart by others must not lose or invent any.

use defib_core::policy::{Pace, Policy, Reset, SHORT_LIFE, ShortDone};
use defib_core::record::Cause;
use defib_core::{Class, Goal, Record, Verdict, What};

use super::{Checked, Invariant};
use crate::fleet::forest::{Forest, Slot};

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    failures: u64,
    /// Early clean ends in a row.
    loops: u64,
    restarts: u32,
    generation: u64,
    died_of: Option<Class>,
}

/// What is counted of every agent.
#[derive(Debug)]
pub(crate) struct Counts {
    counts: Vec<Count>,
    /// The machine has just started anew: ends that are told now are no deaths.
    pub(crate) booting: bool,
}

impl Counts {
    pub(crate) fn new(slots: usize) -> Counts {
        Counts { counts: vec![Count::default(); slots], booting: false }
    }

    /// The machine started anew: failures are forgotten.
    pub(crate) fn reboot(&mut self) {
        self.counts.iter_mut().for_each(|count| (count.failures, count.loops) = (0, 0));
    }

    /// The agent is a new one.
    pub(crate) fn forget(&mut self, slot: Slot) {
        (self.counts[slot].failures, self.counts[slot].loops) = (0, 0);
    }

    /// The agent has beaten, and the supervisor has heard it.
    pub(crate) fn beat(&mut self, slot: Slot, policy: &Policy) {
        if policy.reset == Reset::Beat {
            self.counts[slot].failures = 0;
        }
    }

    pub(crate) fn record(&mut self, forest: &Forest, slot: Slot, record: &Record) -> Checked {
        let plant = &forest.plants[slot];
        // By which policy an agent ends that is no longer declared is nobody's concern; how it is
        // forgotten is.
        if !plant.declared && !matches!(record.what, What::Stopped { .. }) {
            return Ok(());
        }
        let booting = self.booting;
        let count = &mut self.counts[slot];
        match &record.what {
            What::RunStarted { cause, restarts, .. } => {
                if std::mem::replace(&mut count.generation, plant.generation) != plant.generation {
                    (count.failures, count.loops, count.restarts) = (0, 0, 0);
                }
                match cause {
                    Cause::Restart => count.restarts += 1,
                    Cause::Up | Cause::Revive => count.restarts = 0,
                    Cause::Group | Cause::Wait | Cause::Operator | Cause::Trigger | Cause::Fund => {
                    }
                }
                let counted = count.restarts;
                same(slot, "restarts", (*restarts).into(), counted.into())
            }
            What::RunDied { class, ran_s, verdict, consecutive_failures, .. } => {
                let stable = match plant.policy.reset {
                    Reset::Stable | Reset::Beat => ran_s.0 >= plant.policy.stable_after,
                    Reset::Success | Reset::Window => false,
                };
                if stable && *class != Class::Broke {
                    count.failures = 0;
                }
                if !booting {
                    let before = count.failures;
                    count.failures = failures_after(before, &plant.policy, *class, *verdict);
                    let is_loop =
                        plant.policy.short_done == ShortDone::Loop && ran_s.0 < SHORT_LIFE;
                    if *class == Class::Done {
                        count.loops = if is_loop { count.loops + 1 } else { 0 };
                    } else if count.failures > before {
                        count.loops = 0;
                    }
                }
                count.died_of = Some(*class);
                same(slot, "failures in a row", *consecutive_failures, count.failures)
            }
            What::RestartScheduled { attempt, .. } => {
                let Some(class) = count.died_of.take() else { return Ok(()) };
                let counts_failures = plant.policy.treatment(class).pace != Pace::Environment
                    && plant.policy.reset != Reset::Window;
                let expected =
                    if class == Class::Done { count.loops.max(1) } else { count.failures };
                if counts_failures { same(slot, "attempt", *attempt, expected) } else { Ok(()) }
            }
            What::Revived => {
                (count.failures, count.loops, count.restarts) = (0, 0, 0);
                Ok(())
            }
            What::Stopped { goal } => {
                if *goal != Goal::Stopped {
                    (count.failures, count.loops, count.restarts) = (0, 0, 0);
                }
                Ok(())
            }
            What::RunReady
            | What::WaitStarted { .. }
            | What::WaitEnded { .. }
            | What::LimitTripped { .. }
            | What::CrashedOut { .. }
            | What::Halted { .. }
            | What::StopRequested { .. }
            | What::Rested { .. }
            | What::Escalated { .. }
            | What::GroupRestarted { .. }
            | What::HeartbeatMissed { .. } => Ok(()),
        }
    }
}

/// How many failures in a row there are after another end.
fn failures_after(before: u64, policy: &Policy, class: Class, verdict: Verdict) -> u64 {
    match class {
        Class::Done => 0,
        Class::Stopped | Class::Group | Class::Broke | Class::Voluntary => before,
        Class::Error
        | Class::Timeout
        | Class::Oom
        | Class::Interrupted
        | Class::Context
        | Class::Lost
        | Class::Network
        | Class::Overload
        | Class::Throttle
        | Class::Quota
        | Class::Disk
        | Class::Budget
        | Class::Config
        | Class::Auth
        | Class::Billing => {
            let outside = policy.treatment(class).pace == Pace::Environment;
            if outside || verdict == Verdict::Wait { before } else { before + 1 }
        }
    }
}

fn same(slot: Slot, what: &str, said: u64, counted: u64) -> Checked {
    Invariant::Counts.check(said == counted, || {
        format!("a{slot}: the record says {said} {what}, {counted} were counted")
    })
}
