//! What happened over all days: every fault and every outcome worth naming, counted.
//!
//! A simulator that never meets a case proves nothing about it; a test holds that each of these
//! numbers is above zero over the fixed seeds.

use defib_core::record::{By, Cause, Rest, Trip, WaitReason};
use defib_core::{Class, Record, Strategy, Verdict, What};

use super::weather::Fault;

macro_rules! outcomes {
    ($($variant:ident = $word:literal),* $(,)?) => {
        /// An outcome that is counted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the words say it")]
        pub enum Outcome {
            $($variant),*
        }

        impl Outcome {
            /// Every outcome.
            pub const ALL: &[Outcome] = &[$(Outcome::$variant),*];

            /// How it is called in the account of many days.
            pub const fn word(self) -> &'static str {
                match self { $(Outcome::$variant => $word),* }
            }
        }
    };
}

outcomes! {
    StartedUp = "run started: up",
    StartedRestart = "run started: restart",
    StartedGroup = "run started: group",
    StartedWait = "run started: wait",
    StartedOperator = "run started: operator",
    StartedTrigger = "run started: trigger",
    StartedRevive = "run started: revive",
    StartedFund = "run started: fund",
    Ready = "run ready",
    VerdictRestart = "verdict: restart",
    VerdictWait = "verdict: wait",
    VerdictRest = "verdict: rest",
    VerdictHalt = "verdict: halt",
    VerdictCrashOut = "verdict: crash out",
    VerdictEscalate = "verdict: escalate",
    CrashedOutWindow = "crashed out: window",
    CrashedOutCount = "crashed out: count",
    CrashedOutTotal = "crashed out: total",
    CrashedOutGroup = "crashed out: group",
    Halted = "halted",
    Revived = "revived",
    RestedDone = "rested: done",
    RestedFailed = "rested: failed",
    RestedIdle = "rested: idle",
    WaitTimed = "wait: until a moment",
    WaitTold = "wait: until told",
    WaitDependency = "wait: dependency",
    WaitQuota = "wait: quota",
    WaitAccount = "wait: a turn on its account",
    WaitDisk = "wait: disk",
    WaitOom = "wait: oom",
    WaitEnded = "wait ended",
    OneForOne = "group restart: one-for-one",
    OneForAll = "group restart: one-for-all",
    RestForOne = "group restart: rest-for-one",
    EscalatedAlone = "escalated: no group",
    EscalatedOnce = "escalated: one level",
    EscalatedTwice = "escalated: two levels",
    EscalatedThrice = "escalated: three levels",
    EscalatedFour = "escalated: four levels",
    EscalatedToRoot = "escalated: to the root",
    StopByOperator = "stop: operator",
    StopByGroup = "stop: group",
    StopByTimeout = "stop: timeout",
    StopByBudget = "stop: budget",
    StopByAgent = "stop: agent",
    Killed = "killed after the stop signal",
    HeartbeatMissed = "heartbeat missed",
    Inquired = "host asked for a report",
    Stale = "stale input",
    Refused = "request refused",
    Forgotten = "agent forgotten",
    Adopted = "run adopted by the next daemon",
    SpawnedAgain = "spawn ordered again by the next daemon",
    DiedBeforeKeep = "daemon died before it kept anything",
    DiedBetweenEffects = "daemon died between two effects",
    DiedBeforeAck = "daemon died before it acknowledged",
    DiedIdle = "daemon died idle",
    EditPolicy = "edit: policy",
    EditGeneration = "edit: generation",
    EditRemoved = "edit: agent removed",
    EditAdded = "edit: agent added",
    EditGrouping = "edit: grouping",
    EditBudget = "edit: budget",
    EditAfter = "edit: after",
    Undisturbed = "restart exactly when it was due",
}

/// How often everything happened.
#[derive(Debug, Clone)]
pub struct Coverage {
    faults: [u64; Fault::ALL.len()],
    outcomes: [u64; Outcome::ALL.len()],
    deaths: [u64; Class::COUNT],
    /// How often a failure has been passed up for one death.
    escalations: usize,
}

impl Default for Coverage {
    fn default() -> Coverage {
        Coverage {
            faults: [0; Fault::ALL.len()],
            outcomes: [0; Outcome::ALL.len()],
            deaths: [0; Class::COUNT],
            escalations: 0,
        }
    }
}

impl Coverage {
    /// Every case, with the number of times it came up.
    pub fn cases(&self) -> impl Iterator<Item = (String, u64)> {
        let faults = Fault::ALL
            .iter()
            .map(|fault| (format!("fault: {}", fault.word()), self.faults[*fault as usize]));
        let deaths = Class::ALL
            .iter()
            .map(|class| (format!("death: {}", class.word()), self.deaths[*class as usize]));
        let outcomes = Outcome::ALL
            .iter()
            .map(|outcome| (outcome.word().to_owned(), self.outcomes[*outcome as usize]));
        faults.chain(deaths).chain(outcomes)
    }

    /// How often a fault struck.
    pub fn struck(&self, fault: Fault) -> u64 {
        self.faults[fault as usize]
    }

    /// How often an outcome was seen.
    pub fn seen(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize]
    }

    /// Adds what happened on other days.
    pub fn add(&mut self, other: &Coverage) {
        let sum = |ours: &mut [u64], theirs: &[u64]| {
            ours.iter_mut().zip(theirs).for_each(|(ours, theirs)| *ours += theirs);
        };
        sum(&mut self.faults, &other.faults);
        sum(&mut self.outcomes, &other.outcomes);
        sum(&mut self.deaths, &other.deaths);
    }

    pub(crate) fn strike(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    pub(crate) fn note(&mut self, outcome: Outcome) {
        self.outcomes[outcome as usize] += 1;
    }

    pub(crate) fn stale(&mut self, inputs: u32) {
        self.outcomes[Outcome::Stale as usize] += u64::from(inputs);
    }

    pub(crate) fn undisturbed(&mut self, restarts: u64) {
        self.outcomes[Outcome::Undisturbed as usize] += restarts;
    }

    /// Notes what a record says.
    pub(crate) fn record(&mut self, record: &Record) {
        match &record.what {
            What::RunStarted { cause, .. } => self.note(match cause {
                Cause::Up => Outcome::StartedUp,
                Cause::Restart => Outcome::StartedRestart,
                Cause::Group => Outcome::StartedGroup,
                Cause::Wait => Outcome::StartedWait,
                Cause::Operator => Outcome::StartedOperator,
                Cause::Trigger => Outcome::StartedTrigger,
                Cause::Revive => Outcome::StartedRevive,
                Cause::Fund => Outcome::StartedFund,
            }),
            What::RunReady => self.note(Outcome::Ready),
            What::RunDied { class, verdict, .. } => {
                self.deaths[*class as usize] += 1;
                self.escalations = 0;
                self.note(match verdict {
                    Verdict::Restart => Outcome::VerdictRestart,
                    Verdict::Wait => Outcome::VerdictWait,
                    Verdict::Rest => Outcome::VerdictRest,
                    Verdict::Halt => Outcome::VerdictHalt,
                    Verdict::CrashOut => Outcome::VerdictCrashOut,
                    Verdict::Escalate => Outcome::VerdictEscalate,
                });
            }
            What::WaitStarted { reason, wait_ms } => {
                self.note(if wait_ms.is_some() { Outcome::WaitTimed } else { Outcome::WaitTold });
                match reason {
                    WaitReason::Dependency => self.note(Outcome::WaitDependency),
                    WaitReason::Cause(Class::Quota) => self.note(Outcome::WaitQuota),
                    WaitReason::Cause(Class::Disk) => self.note(Outcome::WaitDisk),
                    WaitReason::Cause(Class::Oom) => self.note(Outcome::WaitOom),
                    WaitReason::Account => self.note(Outcome::WaitAccount),
                    WaitReason::Cause(_) | WaitReason::Prompt => {}
                }
            }
            What::WaitEnded { .. } => self.note(Outcome::WaitEnded),
            What::CrashedOut { by } => self.note(match by {
                Trip::Window => Outcome::CrashedOutWindow,
                Trip::Count => Outcome::CrashedOutCount,
                Trip::Total => Outcome::CrashedOutTotal,
                Trip::Group => Outcome::CrashedOutGroup,
            }),
            What::Halted { .. } => self.note(Outcome::Halted),
            What::Revived => self.note(Outcome::Revived),
            What::StopRequested { by, .. } => self.note(match by {
                By::Operator => Outcome::StopByOperator,
                By::Group => Outcome::StopByGroup,
                By::Timeout => Outcome::StopByTimeout,
                By::Budget => Outcome::StopByBudget,
                By::Agent => Outcome::StopByAgent,
                // No run of the fleet prints records.
                By::Linger => return,
            }),
            What::Rested { rest } => self.note(match rest {
                Rest::Done => Outcome::RestedDone,
                Rest::Failed => Outcome::RestedFailed,
                Rest::Idle => Outcome::RestedIdle,
            }),
            What::Escalated { group, to } => self.escalated(group.is_some(), to.is_some()),
            What::GroupRestarted { strategy, .. } => self.note(match strategy {
                Strategy::OneForOne => Outcome::OneForOne,
                Strategy::OneForAll => Outcome::OneForAll,
                Strategy::RestForOne => Outcome::RestForOne,
            }),
            What::HeartbeatMissed { .. } => self.note(Outcome::HeartbeatMissed),
            What::RestartScheduled { .. } | What::LimitTripped { .. } | What::Stopped { .. } => {}
        }
    }

    fn escalated(&mut self, grouped: bool, heard: bool) {
        self.escalations += 1;
        self.note(match (grouped, self.escalations) {
            (false, _) => Outcome::EscalatedAlone,
            (true, 1) => Outcome::EscalatedOnce,
            (true, 2) => Outcome::EscalatedTwice,
            (true, 3) => Outcome::EscalatedThrice,
            (true, _) => Outcome::EscalatedFour,
        });
        if grouped && !heard {
            self.note(Outcome::EscalatedToRoot);
        }
    }
}
