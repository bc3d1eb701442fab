//! The six rule sets, with their exact numbers.

use alloc::collections::BTreeMap;
use alloc::vec;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backoff::{Backoff, Growth};
use crate::class::Class;
use crate::limit::{Limit, Span};
use crate::policy::{
    Heartbeat, Mode, Policy, Ready, Reset, ShortDone, SpawnFailure, Treatment, Trigger,
};

/// A named rule set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// Our own: short exponential backoff, 5 deaths per minute, 8 deaths in a row.
    Default,
    /// A daemon block's: seconds doubling to 5 minutes, 10 consecutive restarts.
    Aide,
    /// No backoff, 5 deaths a minute.
    Celistra,
    /// 5 s doubling to 5 minutes, 10 restarts an hour, waits for resources.
    Ecology,
    /// 10 s doubling to 5 minutes, 5 deaths in 5 minutes, heartbeats.
    Aivex,
    /// 100 ms doubling to 30 s, 5 restarts in a tumbling minute, then escalation.
    Weft,
}

impl Preset {
    /// Every rule set.
    pub const ALL: [Preset; 6] = [
        Preset::Default,
        Preset::Aide,
        Preset::Celistra,
        Preset::Ecology,
        Preset::Aivex,
        Preset::Weft,
    ];

    /// The word by which config and people call it.
    pub const fn word(self) -> &'static str {
        match self {
            Preset::Default => "default",
            Preset::Aide => "aide",
            Preset::Celistra => "celistra",
            Preset::Ecology => "ecology",
            Preset::Aivex => "aivex",
            Preset::Weft => "weft",
        }
    }

    /// The rule set that a word names.
    pub fn from_word(word: &str) -> Option<Preset> {
        Preset::ALL.into_iter().find(|preset| preset.word() == word)
    }

    /// What its readers call an agent that will not be restarted any more.
    pub const fn terminal_word(self) -> &'static str {
        match self {
            Preset::Default | Preset::Celistra => "crashed-out",
            Preset::Aide => "gave up",
            Preset::Ecology => "permanent death",
            Preset::Aivex => "LOOP_DETECTED / CRASHED",
            Preset::Weft => "escalated",
        }
    }

    /// The rule set as a policy.
    pub fn policy(self) -> Policy {
        match self {
            Preset::Default => ours(),
            Preset::Aide => aide(),
            Preset::Celistra => celistra(),
            Preset::Ecology => ecology(),
            Preset::Aivex => aivex(),
            Preset::Weft => weft(),
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

fn ours() -> Policy {
    let mut treatments = [Treatment::FAILURE; Class::COUNT];
    for class in Class::ALL {
        treatments[*class as usize] = Treatment::of(*class);
    }
    Policy {
        mode: Mode::OnFailure,
        backoff: exponential(Duration::from_millis(100), Duration::from_secs(30), 0.1),
        limits: vec![Limit::deaths(5, Duration::from_secs(60)), Limit::deaths_in_a_row(8)],
        reset: Reset::Stable,
        stable_after: Duration::from_secs(30 * 60),
        needs_sign: true,
        short_done: ShortDone::Loop,
        halts_fresh_context: true,
        treatments,
        on: BTreeMap::new(),
        exit_codes: BTreeMap::new(),
        spawn_failure: SpawnFailure::Config,
        heartbeat: None,
        silent_for: None,
        max_runtime: None,
        ready: Ready::AtSpawn,
        stop_timeout: Duration::from_secs(10),
        trigger: Trigger::Boot,
        revive_on_boot: false,
        start_gap: Duration::ZERO,
    }
}

/// What the five documents have in common: they know success and failure, and no outside causes.
fn documented() -> Policy {
    let mut policy = ours();
    policy.treat_outside_causes_as_failures();
    Policy {
        limits: vec![Limit::deaths(5, Duration::from_secs(60))],
        stable_after: Duration::from_secs(60),
        needs_sign: false,
        short_done: ShortDone::Death,
        halts_fresh_context: false,
        spawn_failure: SpawnFailure::Error,
        ..policy
    }
}

fn aide() -> Policy {
    let mut policy = documented();
    policy.treat(Class::Budget, Treatment::FAILURE);
    Policy {
        backoff: exponential(Duration::from_secs(1), Duration::from_secs(300), 0.0),
        limits: vec![Limit::restarts(10, Span::Consecutive)],
        reset: Reset::Success,
        short_done: ShortDone::Plain,
        ..policy
    }
}

fn celistra() -> Policy {
    Policy { backoff: Backoff::NONE, ..documented() }
}

fn ecology() -> Policy {
    let mut policy = documented();
    for class in [Class::Oom, Class::Disk, Class::Quota] {
        policy.treat(class, Treatment::WAIT);
    }
    Policy {
        backoff: exponential(Duration::from_secs(5), Duration::from_secs(300), 0.1),
        limits: vec![Limit::restarts(10, Span::Rolling(Duration::from_secs(3600)))],
        reset: Reset::Beat,
        ..policy
    }
}

fn aivex() -> Policy {
    let mut policy = documented();
    policy.treat(Class::Config, Treatment::HALT);
    Policy {
        backoff: Backoff {
            first_exponent: 1,
            ..exponential(Duration::from_secs(5), Duration::from_secs(300), 0.0)
        },
        limits: vec![
            Limit::deaths(5, Duration::from_secs(300)),
            Limit::restarts(10, Span::Lifetime),
        ],
        stable_after: Duration::from_secs(300),
        exit_codes: BTreeMap::from([(2, Class::Config)]),
        heartbeat: Some(Heartbeat { ttl: Duration::from_secs(120), grace: Duration::ZERO }),
        start_gap: Duration::from_secs(1),
        ..policy
    }
}

fn weft() -> Policy {
    Policy {
        mode: Mode::Always,
        backoff: exponential(Duration::from_millis(100), Duration::from_secs(30), 0.0),
        limits: vec![Limit::restarts(5, Span::Tumbling(Duration::from_secs(60))).escalating()],
        reset: Reset::Window,
        ..documented()
    }
}

const fn exponential(base: Duration, cap: Duration, jitter: f64) -> Backoff {
    Backoff { growth: Growth::Exponential, base, factor: 2.0, cap, jitter, first_exponent: 0 }
}
