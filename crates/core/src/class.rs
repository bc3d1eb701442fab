//! Deaths: the classes an end can have, and the kinds that classes fall into.

use core::fmt;

use serde::{Deserialize, Serialize};

macro_rules! classes {
    ($($(#[doc = $doc:literal])* $variant:ident = $word:literal),* $(,)?) => {
        /// What an agent died of.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(rename_all = "lowercase")]
        pub enum Class {
            $($(#[doc = $doc])* $variant),*
        }

        impl Class {
            /// Every class, in the order of the model's table.
            pub const ALL: &[Class] = &[$(Class::$variant),*];

            /// The word by which config, JSON and people call it.
            pub const fn word(self) -> &'static str {
                match self { $(Class::$variant => $word),* }
            }
        }
    };
}

classes! {
    /// Exit 0 with nothing that contradicts it.
    Done = "done",
    /// The agent asked for shutdown through its own channel.
    Voluntary = "voluntary",
    /// We ended it because an operator said so.
    Stopped = "stopped",
    /// We ended it for its group's restart.
    Group = "group",
    /// Non-zero exit, signal, panic, runner error, spawn failure.
    Error = "error",
    /// Stale heartbeat, failed probe, silent too long, ran past `max_runtime`.
    Timeout = "timeout",
    /// Killed for memory, by the kernel or by its own runtime.
    Oom = "oom",
    /// The transport broke mid-turn, or the machine slept.
    Interrupted = "interrupted",
    /// The model's context is full.
    Context = "context",
    /// The run ended while nobody could see how.
    Lost = "lost",
    /// No route to the service.
    Network = "network",
    /// The service is at capacity.
    Overload = "overload",
    /// Too many requests, without a quota behind it.
    Throttle = "throttle",
    /// A usage limit, with or without a reset time.
    Quota = "quota",
    /// No space left.
    Disk = "disk",
    /// The run exceeded what it was allowed to spend.
    Budget = "budget",
    /// The ledger balance is zero or below.
    Broke = "broke",
    /// Wrong command or option.
    Config = "config",
    /// Not logged in.
    Auth = "auth",
    /// No credit.
    Billing = "billing",
}

/// What sort of death a class is: whose fault, and so whose turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// It finished.
    Clean,
    /// It wanted to, or we were told to.
    Voluntary,
    /// A bug or an accident: another try may do.
    Dumb,
    /// The world outside: it will come back.
    Environment,
    /// Out of means: only more means help.
    Smart,
    /// A person must put something right.
    FixNeeded,
}

/// What made an agent crash, in the three words that plan 145 tells crashes apart by: its conditions
/// for restarts go by them, and so do its figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CrashReason {
    /// It failed, or what it needs to run did.
    Runtime,
    /// It no longer showed that it lives, or lived too long.
    Timeout,
    /// A resource was exhausted that comes back.
    Resource,
}

impl CrashReason {
    /// Every reason.
    pub const ALL: [CrashReason; 3] =
        [CrashReason::Runtime, CrashReason::Timeout, CrashReason::Resource];

    /// The reason that a class is; nothing for an end that is no crash, which smart deaths are not.
    pub const fn of(class: Class) -> Option<CrashReason> {
        Some(match class {
            Class::Done
            | Class::Voluntary
            | Class::Stopped
            | Class::Group
            | Class::Budget
            | Class::Broke => return None,
            Class::Timeout => CrashReason::Timeout,
            // Those that the rule set waits for; what the plan has no word for is an error.
            Class::Oom | Class::Disk | Class::Quota => CrashReason::Resource,
            Class::Error
            | Class::Interrupted
            | Class::Context
            | Class::Lost
            | Class::Network
            | Class::Overload
            | Class::Throttle
            | Class::Config
            | Class::Auth
            | Class::Billing => CrashReason::Runtime,
        })
    }

    /// The classes that it stands for.
    pub fn classes(self) -> impl Iterator<Item = Class> {
        let is_one = move |class: &Class| CrashReason::of(*class) == Some(self);
        Class::ALL.iter().copied().filter(is_one)
    }
}

impl Class {
    /// How many classes there are.
    pub const COUNT: usize = Class::ALL.len();

    /// The class that a word names.
    pub fn from_word(word: &str) -> Option<Class> {
        Class::ALL.iter().copied().find(|class| class.word() == word)
    }

    /// The kind it falls into. A death for the group's sake is of no kind of its own.
    pub const fn kind(self) -> Option<Kind> {
        Some(match self {
            Class::Done => Kind::Clean,
            Class::Voluntary | Class::Stopped => Kind::Voluntary,
            Class::Group => return None,
            Class::Error
            | Class::Timeout
            | Class::Oom
            | Class::Interrupted
            | Class::Context
            | Class::Lost => Kind::Dumb,
            Class::Network | Class::Overload | Class::Throttle | Class::Quota | Class::Disk => {
                Kind::Environment
            }
            Class::Budget | Class::Broke => Kind::Smart,
            Class::Config | Class::Auth | Class::Billing => Kind::FixNeeded,
        })
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl Kind {
    /// The word by which JSON and people call it.
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Clean => "clean",
            Kind::Voluntary => "voluntary",
            Kind::Dumb => "dumb",
            Kind::Environment => "environment",
            Kind::Smart => "smart",
            Kind::FixNeeded => "fix-needed",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_is_found_again_by_its_word() {
        for class in Class::ALL {
            assert_eq!(Class::from_word(class.word()), Some(*class));
            assert_eq!(Class::ALL[*class as usize], *class);
        }
        assert_eq!(Class::from_word("Done"), None);
    }

    #[test]
    fn a_crash_has_one_reason_and_what_is_no_crash_has_none() {
        use CrashReason::{Resource, Runtime, Timeout};
        for (class, reason) in [
            (Class::Done, None),
            (Class::Voluntary, None),
            (Class::Stopped, None),
            (Class::Group, None),
            (Class::Error, Some(Runtime)),
            (Class::Timeout, Some(Timeout)),
            (Class::Oom, Some(Resource)),
            (Class::Interrupted, Some(Runtime)),
            (Class::Context, Some(Runtime)),
            (Class::Lost, Some(Runtime)),
            (Class::Network, Some(Runtime)),
            (Class::Overload, Some(Runtime)),
            (Class::Throttle, Some(Runtime)),
            (Class::Quota, Some(Resource)),
            (Class::Disk, Some(Resource)),
            (Class::Budget, None),
            (Class::Broke, None),
            (Class::Config, Some(Runtime)),
            (Class::Auth, Some(Runtime)),
            (Class::Billing, Some(Runtime)),
        ] {
            assert_eq!(CrashReason::of(class), reason, "{class}");
        }
        let all: usize = CrashReason::ALL.into_iter().map(|reason| reason.classes().count()).sum();
        let none = Class::ALL.iter().filter(|class| CrashReason::of(**class).is_none()).count();
        assert_eq!(all + none, Class::COUNT);
    }
}
