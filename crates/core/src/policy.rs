//! A policy: everything that decides what becomes of one agent's deaths.
//!
//! A policy is data. [`Policy::preset`](crate::preset) gives each of the six rule sets with its
//! exact numbers; every field may then be changed. What a policy makes of a death is in
//! [`verdict`](crate::verdict).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backoff::Backoff;
use crate::class::{Class, Kind};
use crate::limit::Limit;
use crate::run::Status;

/// After which ends an agent is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// After success and failure.
    Always,
    /// After failure.
    OnFailure,
    /// Never.
    Never,
}

/// What a policy may order for a class of death.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Start it again, after a delay.
    Restart,
    /// Hold it until a known moment or event.
    Wait,
    /// Leave it: it is over.
    Rest,
    /// Leave it until a person has put something right.
    Halt,
}

/// Which delays a restart takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Pace {
    /// The agent's own backoff.
    Own,
    /// The backoff for the world outside, [`Backoff::ENVIRONMENT`].
    Environment,
    /// None.
    AtOnce,
}

/// How a rule set treats a class, before the agent's mode and its `on` table have their say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Treatment {
    /// What it orders.
    pub order: Order,
    /// Whether the death counts towards limits on deaths.
    pub counts: bool,
    /// Which delays a restart takes.
    pub pace: Pace,
}

impl Treatment {
    /// A failure like any other: restart on the agent's own backoff, and count.
    pub const FAILURE: Treatment =
        Treatment { order: Order::Restart, counts: true, pace: Pace::Own };
    /// Hold it; that is no crash.
    pub const WAIT: Treatment =
        Treatment { order: Order::Wait, counts: false, pace: Pace::Environment };
    /// Leave it until somebody has fixed it. Where the order is overridden by a restart, the
    /// death counts: an agent that nobody fixed would loop.
    pub const HALT: Treatment = Treatment { order: Order::Halt, counts: true, pace: Pace::Own };

    /// What the model's table of deaths says of a class.
    pub const fn of(class: Class) -> Treatment {
        match class {
            Class::Done | Class::Voluntary | Class::Stopped | Class::Group => {
                Treatment { order: Order::Rest, counts: false, pace: Pace::Own }
            }
            Class::Error | Class::Timeout | Class::Oom | Class::Context | Class::Lost => {
                Treatment::FAILURE
            }
            Class::Interrupted => Treatment { pace: Pace::AtOnce, ..Treatment::FAILURE },
            Class::Network | Class::Overload | Class::Throttle => {
                Treatment { order: Order::Restart, ..Treatment::WAIT }
            }
            Class::Quota | Class::Disk => Treatment::WAIT,
            Class::Budget | Class::Broke | Class::Config | Class::Auth | Class::Billing => {
                Treatment::HALT
            }
        }
    }
}

/// When the count of consecutive failures goes back to zero. A `done` always does that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reset {
    /// By `done` alone.
    Success,
    /// Also by a run that lived `stable_after`.
    Stable,
    /// Also by a beat, or a run that lived `stable_after`.
    Beat,
    /// The count is that of the restarts in the policy's tumbling window; without such a limit
    /// only `done` resets it.
    Window,
}

/// What a clean end that comes early is under `always`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ShortDone {
    /// Before `stable_after` it is a death: it counts towards limits on deaths.
    Death,
    /// An end like any other clean one.
    Plain,
    /// It is never a death. Consecutive ends before [`SHORT_LIFE`] wait longer and longer, by the backoff.
    Loop,
}

/// A clean end before this is one of a loop, under [`ShortDone::Loop`].
pub const SHORT_LIFE: Duration = Duration::from_secs(60);

/// What a failure to spawn is, where the command is not there or may not be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SpawnFailure {
    /// A fix is needed: `config`.
    Config,
    /// A death like any other: `error`.
    Error,
}

/// When a run is ready, that is, when those that wait for it may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Ready {
    /// As soon as it has been spawned.
    AtSpawn,
    /// When the host says so, by the agent's own message or a probe.
    WhenTold,
}

/// What starts an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trigger {
    /// `up`, and the start of the machine.
    Boot,
    /// An operator only.
    Manual,
    /// Ticks, which the host counts.
    Cron,
}

/// How often an agent has to show that it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The longest silence between two beats.
    pub ttl: Duration,
    /// What is added to it until the first beat of a run.
    pub grace: Duration,
}

/// Everything that decides what becomes of one agent's deaths.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// After which ends it is started again.
    pub mode: Mode,
    /// The delays between consecutive failures.
    pub backoff: Backoff,
    /// The bounds; each may trip.
    pub limits: Vec<Limit>,
    /// When the count of consecutive failures goes back to zero.
    pub reset: Reset,
    /// A life this long is a success.
    pub stable_after: Duration,
    /// Whether such a life is a success only with a sign of life: output, a beat or a passed probe.
    pub needs_sign: bool,
    /// What a clean end that comes early is under `always`.
    pub short_done: ShortDone,
    /// Whether a full context ends the restarts if the run was a fresh session already.
    pub halts_fresh_context: bool,
    /// How the rule set treats each class, in the order of [`Class::ALL`].
    pub treatments: [Treatment; Class::COUNT],
    /// The operator's own orders by class; they go before mode and treatment.
    pub on: BTreeMap<Class, Order>,
    /// Classes by exit code; 0 is `done` and any other code `error` unless it says otherwise.
    pub exit_codes: BTreeMap<u8, Class>,
    /// What a failure to spawn is.
    pub spawn_failure: SpawnFailure,
    /// How often it has to show that it lives.
    pub heartbeat: Option<Heartbeat>,
    /// The longest time without any activity.
    pub silent_for: Option<Duration>,
    /// The longest life.
    pub max_runtime: Option<Duration>,
    /// When a run is ready.
    pub ready: Ready,
    /// How long a run may take to end after it has been asked to.
    pub stop_timeout: Duration,
    /// What starts it.
    pub trigger: Trigger,
    /// Whether a boot brings it back when it is crashed out.
    pub revive_on_boot: bool,
    /// The pause between the starts of many such agents.
    pub start_gap: Duration,
}

impl Policy {
    /// How it treats a class.
    pub const fn treatment(&self, class: Class) -> Treatment {
        self.treatments[class as usize]
    }

    /// Changes how it treats a class.
    pub const fn treat(&mut self, class: Class, treatment: Treatment) {
        self.treatments[class as usize] = treatment;
    }

    /// What it orders for a class: what we or the agent wanted, else the operator's table, else the
    /// mode, else the rule set.
    pub fn order(&self, class: Class) -> Order {
        if matches!(class, Class::Stopped | Class::Group) {
            return Order::Rest;
        }
        if let Some(order) = self.on.get(&class) {
            return *order;
        }
        match (class, self.mode) {
            (_, Mode::Never) | (Class::Done, Mode::OnFailure) => Order::Rest,
            (Class::Done, Mode::Always) => Order::Restart,
            (_, Mode::Always | Mode::OnFailure) => self.treatment(class).order,
        }
    }

    /// Takes the environment and fix-needed classes as evidence only: failures like any other.
    pub(crate) fn treat_outside_causes_as_failures(&mut self) {
        for class in Class::ALL {
            if let Some(Kind::Environment | Kind::FixNeeded) = class.kind() {
                self.treat(*class, Treatment::FAILURE);
            }
        }
    }

    /// The class of an end by its wait status alone: a code by the exit-code map, a signal as
    /// `error`, a failure to spawn by the rule set's row.
    pub fn class_of(&self, status: Status) -> Class {
        match status {
            Status::Exited(code) => {
                let plain = if code == 0 { Class::Done } else { Class::Error };
                u8::try_from(code)
                    .ok()
                    .and_then(|code| self.exit_codes.get(&code))
                    .map_or(plain, |c| *c)
            }
            Status::Signaled(_) => Class::Error,
            Status::NotSpawned { usable } => match self.spawn_failure {
                SpawnFailure::Config if !usable => Class::Config,
                SpawnFailure::Config | SpawnFailure::Error => Class::Error,
            },
            Status::Unseen => Class::Lost,
        }
    }
}
