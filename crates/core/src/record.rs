//! What was decided, in the past tense, with the numbers that decided it.
//!
//! Records are the only account of the supervisor: history stores them, and every view of it is a
//! [fold](crate::view) over them. In JSON a record is flat: `agent`, `run`, `type` and its numbers.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::class::{Class, Kind};
use crate::input::Goal;
use crate::limit::{Gauge, Limit};
use crate::name::{Name, RunId};
use crate::signal::Signal;
use crate::time::Seconds;
use crate::topology::Strategy;
use crate::verdict::Verdict;

/// One thing that was decided or has happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record {
    /// Whom it is about.
    pub agent: Name,
    /// Its latest run, where it had one.
    pub run: Option<RunId>,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum What {
    /// A run begins: its spawn has been ordered.
    RunStarted {
        /// Why now.
        cause: Cause,
        /// As a fresh session.
        fresh: bool,
        /// The agent's own automatic restarts since `up` or `revive`, this one included.
        restarts: u32,
    },
    /// The run is ready.
    RunReady,
    /// The run is over.
    RunDied {
        /// What it died of.
        class: Class,
        /// What sort of death that is.
        kind: Option<Kind>,
        /// Its exit code, where it had one.
        exit_code: Option<i32>,
        /// The signal that ended it, where one did.
        signal: Option<Signal>,
        /// How long it lived.
        ran_s: Seconds,
        /// What policy makes of it.
        verdict: Verdict,
        /// Whether it counts towards limits on deaths.
        counted: bool,
        /// Failures in a row, this one included.
        consecutive_failures: u64,
        /// The line or field that decided the class.
        evidence: Option<Box<str>>,
    },
    /// It will be started again.
    RestartScheduled {
        /// In this time.
        delay_ms: u64,
        /// Which delay of its backoff that is, counted from 1.
        attempt: u64,
        /// The limit that is nearest to tripping.
        #[serde(flatten)]
        gauge: Option<Gauge>,
    },
    /// It is held.
    WaitStarted {
        /// For this.
        reason: WaitReason,
        /// For this long, where that is known.
        wait_ms: Option<u64>,
    },
    /// It is held no longer.
    WaitEnded {
        /// For what it was.
        reason: WaitReason,
    },
    /// A limit was reached.
    LimitTripped {
        /// The group whose budget it is; nothing where it is the agent's own limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<Name>,
        /// Its numbers.
        #[serde(flatten)]
        gauge: Gauge,
    },
    /// It is not restarted any more until it is revived.
    CrashedOut {
        /// What ended the restarts.
        by: Trip,
    },
    /// It is not restarted until something has been put right.
    Halted {
        /// What it died of.
        reason: Class,
    },
    /// An operator put it back.
    Revived,
    /// Its run is to end, or it is not to start.
    StopRequested {
        /// Who wants that.
        by: By,
        /// Without asking the run first.
        kill: bool,
    },
    /// It is stopped.
    Stopped {
        /// What is wanted of it.
        goal: Goal,
    },
    /// It is over, and that is all right.
    Rested {
        /// How it rests.
        #[serde(rename = "as")]
        rest: Rest,
    },
    /// A failure was passed up.
    Escalated {
        /// The group that has failed; nothing where the agent is in none.
        group: Option<Name>,
        /// The group that hears of it; nothing is the root.
        to: Option<Name>,
    },
    /// A group restarts members because of this agent.
    GroupRestarted {
        /// The group.
        group: Name,
        /// What it does.
        strategy: Strategy,
        /// In this time.
        delay_ms: u64,
        /// How many agents are started again, this one included.
        members: u32,
        /// Its budget.
        #[serde(flatten)]
        gauge: Option<Gauge>,
    },
    /// The run has not beaten in time.
    HeartbeatMissed {
        /// How long it was silent.
        silent_s: Seconds,
        /// How long it may be.
        ttl_s: Seconds,
    },
}

/// Why a run begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// The project came up, or the machine did.
    Up,
    /// An automatic restart after a death.
    Restart,
    /// Its group is restarted.
    Group,
    /// What it waited for has come.
    Wait,
    /// An operator said so.
    Operator,
    /// Its trigger came.
    Trigger,
    /// It was revived.
    Revive,
    /// It has money again.
    Fund,
}

/// Who wants a run to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// A person.
    Operator,
    /// Its group, which is restarted or has failed.
    Group,
    /// The clock: it no longer shows that it lives, or has lived too long.
    Timeout,
    /// Its budget.
    Budget,
    /// The agent itself.
    Agent,
    /// It finished its work and did not exit.
    Linger,
}

/// What an agent is held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitReason {
    /// The cause of its last death has to go away.
    Cause(Class),
    /// Others have to be ready first, or it is not yet its turn.
    Dependency,
    /// Another agent on its account is tried first.
    Account,
    /// Its run stands at a prompt that only a person can answer.
    Prompt,
}

/// What ended the automatic restarts of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trip {
    /// A limit over a stretch of time.
    Window,
    /// A limit over any other span.
    Count,
    /// The bound on all restarts of all agents.
    Total,
    /// Its group has failed.
    Group,
}

/// How an agent rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rest {
    /// It has finished.
    Done,
    /// It failed, and is not to be restarted.
    Failed,
    /// Until its next trigger.
    Idle,
}

impl What {
    /// Whether nothing follows a death by itself any more: its restarts have reached a limit, something
    /// has to be put right first, or it failed and is not to be restarted.
    pub const fn is_permanent_death(&self) -> bool {
        match self {
            What::CrashedOut { .. } | What::Halted { .. } | What::Rested { rest: Rest::Failed } => {
                true
            }
            What::RunStarted { .. }
            | What::RunReady
            | What::RunDied { .. }
            | What::RestartScheduled { .. }
            | What::WaitStarted { .. }
            | What::WaitEnded { .. }
            | What::LimitTripped { .. }
            | What::Revived
            | What::StopRequested { .. }
            | What::Stopped { .. }
            | What::Rested { rest: Rest::Done | Rest::Idle }
            | What::Escalated { .. }
            | What::GroupRestarted { .. }
            | What::HeartbeatMissed { .. } => false,
        }
    }
}

impl Trip {
    /// What it is called when a limit of an agent's own ended its restarts.
    pub const fn of(limit: &Limit) -> Trip {
        if limit.within().is_some() { Trip::Window } else { Trip::Count }
    }
}

impl WaitReason {
    /// The word by which JSON and people call it.
    pub const fn word(self) -> &'static str {
        match self {
            WaitReason::Cause(class) => class.word(),
            WaitReason::Dependency => "dependency",
            WaitReason::Account => "account",
            WaitReason::Prompt => "prompt",
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl Serialize for WaitReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl<'de> Deserialize<'de> for WaitReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WaitReason, D::Error> {
        let word = String::deserialize(deserializer)?;
        let plain = [WaitReason::Dependency, WaitReason::Account, WaitReason::Prompt];
        if let Some(reason) = plain.into_iter().find(|reason| reason.word() == word) {
            return Ok(reason);
        }
        let class = Class::from_word(&word).ok_or_else(|| D::Error::custom("no such reason"))?;
        Ok(WaitReason::Cause(class))
    }
}
