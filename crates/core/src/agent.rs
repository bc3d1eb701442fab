//! One agent: what is wanted of it and what is the case.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::class::Class;
use crate::input::Goal;
use crate::name::{AgentId, GroupId, Name, RunId};
use crate::policy::Policy;
use crate::record::{Cause, Rest, Trip, WaitReason, What};
use crate::time::{Mono, Wall};
use crate::topology::Strategy;
use crate::verdict::{Counters, Lived, Until};

/// What is the case with an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// Declared; its trigger has not come yet.
    Idle,
    /// Held until a moment or an event, then started.
    Waiting { reason: WaitReason, until: Until, then: Launch },
    /// To be restarted at a known time.
    Backoff { until: Mono, then: Launch },
    /// A spawn has been ordered; the run is not ready yet.
    Starting(Run),
    /// The run is ready.
    Running(Run),
    /// The run is to end.
    Stopping { run: Run, why: Why, rung: Rung },
    /// At rest because somebody said so, or because it failed and is not to be restarted.
    Stopped { failed: bool },
    /// At rest because it has finished.
    Done,
    /// At rest until something has been put right.
    Halted(Class),
    /// At rest until it is revived.
    CrashedOut(Trip),
}

/// How an agent is started when its time comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Launch {
    pub(crate) cause: Cause,
    pub(crate) fresh: bool,
}

/// A life of the agent that is not over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) id: RunId,
    pub(crate) started: Mono,
    /// Whether it is a fresh session.
    pub(crate) fresh: bool,
    /// Whether the host has said that it exists.
    pub(crate) spawned: bool,
    /// The strongest sign of life that it has shown.
    pub(crate) sign: Sign,
    /// From when its silence is measured: its last beat, or its start.
    pub(crate) silent_since: Mono,
    /// From when its inactivity is measured: its last activity, or its start.
    pub(crate) idle_since: Mono,
    /// How long the machine slept during its life.
    pub(crate) slept: Duration,
    /// When it asked for its own shutdown.
    pub(crate) wished: Option<Mono>,
    /// Whether its account is tried by it.
    pub(crate) trial: Trial,
    /// Since when it stands at a prompt that only a person can answer.
    pub(crate) prompted: Option<Mono>,
    /// When its process ended, while what it left is being looked at.
    pub(crate) ended: Option<Mono>,
    /// When it printed the record that ends its work. The host tells a successor again, so it is not stored.
    #[serde(skip)]
    pub(crate) finished: Option<Mono>,
}

/// A sign of life of a run, from the weakest to the strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Sign {
    None,
    /// It did something, or passed a probe.
    Active,
    /// It has beaten.
    Beat,
}

/// Whether others on its account wait for what becomes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Trial {
    /// Nobody does.
    None,
    /// They do.
    Open,
    /// They did; it has shown that it works.
    Passed,
}

/// Why a run is to end. It decides the class of the death.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Why {
    /// An operator stopped it, or took its project down, or we close.
    Asked,
    /// An operator wants it started again: as soon as it has ended, or in the order of its group.
    Restart { fresh: bool, ordered: bool },
    /// It is no longer declared.
    Removed,
    /// Its group is restarted, and starts again at this moment.
    Group { resume_at: Mono, fresh: bool },
    /// Its group has failed for good.
    GroupFailed,
    /// It no longer shows that it lives, or has lived too long.
    Unresponsive,
    /// It spent more than it may.
    Overspent,
    /// It spent what it may for now.
    SpentUp,
    /// It asked for its own shutdown.
    Wished,
    /// It finished its work and did not exit.
    Lingered,
}

/// How far the stop has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Rung {
    /// Others have to end first.
    Queued,
    /// It has been asked; it is killed at this moment.
    Asked { kill_at: Mono },
    /// It has been killed; at this moment the host is asked what became of it.
    Killed { inquire_at: Mono },
}

/// Everything about an agent that changes: what a daemon must hand to its successor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    pub(crate) goal: Goal,
    pub(crate) phase: Phase,
    pub(crate) counters: Counters,
    /// The number of the latest run; zero before the first.
    pub(crate) last_run: RunId,
    /// The generation that the counters belong to.
    pub(crate) generation: u64,
    /// It takes part in an ordered start that has not reached it, or has not got past it.
    pub(crate) sequenced: bool,
    /// Its balance is zero or below.
    pub(crate) broke: bool,
    /// It may spend nothing before this moment.
    #[serde(default)]
    pub(crate) spent_until: Option<Wall>,
}

impl Life {
    /// The life of an agent of which nothing is known.
    pub fn blank() -> Life {
        Life::new(0)
    }

    /// Takes a goal from where it was stored.
    pub fn want(&mut self, goal: Goal) {
        self.goal = goal;
    }

    /// Takes care that no run number up to this one is used again.
    pub fn number_from(&mut self, run: RunId) {
        self.last_run = self.last_run.max(run);
    }

    /// Takes a run for one that lived when it was last heard of, unless a later one is known. It has
    /// ended since, after at most this time, and may have wished for that.
    pub fn was_running(&mut self, run: RunId, wished: bool, lived: Duration) {
        if run >= self.last_run {
            self.last_run = run;
            // It may have begun on the clock of another boot: its life is told on one of its own.
            let (begun, ended) = (Mono::ZERO, Some(Mono::ZERO + lived));
            let wished = wished.then_some(Mono::ZERO);
            let run = Run { spawned: true, wished, ended, ..Run::new(run, false, begun) };
            self.phase = Phase::Running(run);
        }
    }

    /// Takes a record of the agent's last days for true: whether it had come to rest, and how. Of an
    /// agent that had not, a run that lived is told by [`was_running`](Life::was_running).
    pub fn recall(&mut self, what: &What) {
        self.phase = match what {
            What::CrashedOut { by } => Phase::CrashedOut(*by),
            What::Halted { reason } => Phase::Halted(*reason),
            What::Rested { rest: Rest::Done } => Phase::Done,
            What::Rested { rest: Rest::Failed } => Phase::Stopped { failed: true },
            What::Stopped { .. } => Phase::Stopped { failed: false },
            What::Rested { rest: Rest::Idle }
            | What::RunStarted { .. }
            | What::RestartScheduled { .. }
            | What::WaitStarted { .. }
            | What::Revived => Phase::Idle,
            What::RunReady
            | What::RunDied { .. }
            | What::WaitEnded { .. }
            | What::LimitTripped { .. }
            | What::StopRequested { .. }
            | What::Escalated { .. }
            | What::GroupRestarted { .. }
            | What::HeartbeatMissed { .. } => return,
        };
    }

    /// The run that wished for its end, if one has and has not ended.
    pub fn wished(&self) -> Option<RunId> {
        self.phase.run().filter(|run| run.wished.is_some()).map(|run| run.id)
    }

    /// Whether it rests, in a way that outlives the machine.
    pub fn rests(&self) -> bool {
        match self.phase {
            Phase::Done | Phase::Halted(_) | Phase::CrashedOut(_) => true,
            Phase::Stopped { failed } => failed || self.goal == Goal::Stopped,
            Phase::Idle
            | Phase::Waiting { .. }
            | Phase::Backoff { .. }
            | Phase::Starting(_)
            | Phase::Running(_)
            | Phase::Stopping { .. } => false,
        }
    }

    /// The latest run of an agent that rests. That run has ended, whatever an older record says.
    pub fn rested_after(&self) -> Option<RunId> {
        self.rests().then_some(self.last_run)
    }

    /// No run of it lives, as others have written down. One that is known here all the same was
    /// stored for its wish to end, which has come true.
    pub fn has_ended(&mut self) {
        if self.phase.run().is_some() {
            self.phase = Phase::Done;
        }
    }

    pub(crate) fn new(generation: u64) -> Life {
        Life {
            goal: Goal::Up,
            phase: Phase::Idle,
            counters: Counters::default(),
            last_run: RunId(0),
            generation,
            sequenced: false,
            broke: false,
            spent_until: None,
        }
    }
}

impl Phase {
    /// The run that is not over, where there is one.
    pub(crate) fn run(&self) -> Option<&Run> {
        match self {
            Phase::Starting(run) | Phase::Running(run) | Phase::Stopping { run, .. } => Some(run),
            Phase::Idle
            | Phase::Waiting { .. }
            | Phase::Backoff { .. }
            | Phase::Stopped { .. }
            | Phase::Done
            | Phase::Halted(_)
            | Phase::CrashedOut(_) => None,
        }
    }

    pub(crate) fn run_mut(&mut self) -> Option<&mut Run> {
        match self {
            Phase::Starting(run) | Phase::Running(run) | Phase::Stopping { run, .. } => Some(run),
            Phase::Idle
            | Phase::Waiting { .. }
            | Phase::Backoff { .. }
            | Phase::Stopped { .. }
            | Phase::Done
            | Phase::Halted(_)
            | Phase::CrashedOut(_) => None,
        }
    }

    /// Whether those that wait for the agent may start.
    pub(crate) const fn is_ready(&self) -> bool {
        matches!(self, Phase::Running(_) | Phase::Done)
    }

    /// What it waits for, if it waits.
    pub(crate) const fn held_for(&self) -> Option<WaitReason> {
        if let Phase::Waiting { reason, .. } = self { Some(*reason) } else { None }
    }

    pub(crate) const fn is_stopping(&self) -> bool {
        matches!(self, Phase::Stopping { .. })
    }
}

/// An agent's place in the tree: which top group, and where in the order of its agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) group: GroupId,
    pub(crate) top: GroupId,
    pub(crate) at: usize,
}

/// An agent as the supervisor keeps it.
#[derive(Debug, Clone)]
pub(crate) struct Agent {
    pub(crate) name: Name,
    pub(crate) project: Name,
    pub(crate) policy: Arc<Policy>,
    pub(crate) after: Vec<AgentId>,
    /// Those that start after this one, by their own word.
    pub(crate) dependents: Vec<AgentId>,
    pub(crate) strategy: Option<Strategy>,
    pub(crate) account: Option<Arc<str>>,
    pub(crate) generation: u64,
    pub(crate) place: Option<Place>,
    /// Whether it is declared. An undeclared one keeps its place and its run numbers.
    pub(crate) declared: bool,
    /// The last edition of what is declared that it was in.
    pub(crate) edition: u64,
    pub(crate) life: Life,
    /// The deadline it is queued under.
    pub(crate) armed: Option<Mono>,
    pub(crate) touched: bool,
}

/// Why a run has to be ended by the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// No beat in time.
    Beat { ttl: Duration },
    /// No activity in time, or it has lived too long.
    Silent,
    /// It asked for its own shutdown and did not end.
    Wish,
}

impl Run {
    pub(crate) const fn new(id: RunId, fresh: bool, now: Mono) -> Run {
        Run {
            id,
            started: now,
            fresh,
            spawned: false,
            sign: Sign::None,
            silent_since: now,
            idle_since: now,
            slept: Duration::ZERO,
            wished: None,
            trial: Trial::None,
            prompted: None,
            ended: None,
            finished: None,
        }
    }

    /// How long it has lived, without the time that the machine slept. The time that its examination
    /// takes is no part of its life.
    pub(crate) fn age(&self, now: Mono) -> Duration {
        self.ended.unwrap_or(now).since(self.started).saturating_sub(self.slept)
    }

    /// What policy needs to know of its life.
    pub(crate) fn lived(&self, now: Mono) -> Lived {
        Lived {
            ran: if self.spawned { self.age(now) } else { Duration::ZERO },
            signed: self.sign > Sign::None,
            fresh: self.fresh,
        }
    }

    /// The machine slept: silence during that time means nothing.
    pub(crate) fn excuse(&mut self, slept: Duration, now: Mono) {
        if self.ended.is_some() {
            return;
        }
        // An extension may reach beyond now, and is not cut short by sleep.
        self.silent_since = (self.silent_since + slept).min(now.max(self.silent_since));
        self.idle_since = (self.idle_since + slept).min(now.max(self.idle_since));
        self.slept = self.slept.saturating_add(slept);
        self.wished = self.wished.map(|at| at + slept);
    }

    /// Nothing ends the run for silence before this moment, nor for a wish to end that it is slow in.
    pub(crate) fn extend(&mut self, policy: &Policy, until: Mono) {
        let before = |span: Duration| Mono::ZERO + until.since(Mono::ZERO + span);
        if let Some(rule) = policy.heartbeat {
            self.silent_since = self.silent_since.max(before(rule.ttl));
        }
        if let Some(span) = policy.silent_for {
            self.idle_since = self.idle_since.max(before(span));
        }
        self.wished = self.wished.map(|at| at.max(before(policy.stop_timeout)));
    }

    /// The moment at which the clock ends the run, and why. A run that has ended by itself has none:
    /// its own end says what it died of. A run that has finished its work owes no sign of life.
    pub(crate) fn deadline(&self, policy: &Policy) -> Option<(Mono, Overdue)> {
        if self.ended.is_some() {
            return None;
        }
        let beat = policy.heartbeat.map(|rule| {
            let grace = if self.sign == Sign::Beat { Duration::ZERO } else { rule.grace };
            (self.silent_since + rule.ttl + grace, Overdue::Beat { ttl: rule.ttl })
        });
        let silent = policy.silent_for.map(|span| (self.idle_since + span, Overdue::Silent));
        let old =
            policy.max_runtime.map(|span| (self.started + span + self.slept, Overdue::Silent));
        let (beat, silent) = if self.prompted.is_some() { (None, None) } else { (beat, silent) };
        let wish = self.wished.map(|at| (at + policy.stop_timeout, Overdue::Wish));
        if self.finished.is_some() {
            return wish;
        }
        [wish, beat, silent, old].into_iter().flatten().min_by_key(|(due, _)| *due)
    }
}

impl Agent {
    /// Nobody listened until now, so silence means nothing; and a stop may not have gone out, so its
    /// time begins now.
    pub(crate) fn excuse_until(&mut self, now: Mono) {
        if let Some(run) = self.life.phase.run_mut() {
            run.silent_since = run.silent_since.max(now);
            run.idle_since = run.idle_since.max(now);
        }
        if let Phase::Stopping { rung: Rung::Asked { kill_at }, .. } = &mut self.life.phase {
            *kill_at = (*kill_at).max(now + self.policy.stop_timeout);
        }
    }

    /// The moment at which something has to happen to the agent if nothing else does before.
    pub(crate) fn deadline(&self) -> Option<Mono> {
        match &self.life.phase {
            Phase::Waiting { until, .. } => until.due(),
            Phase::Backoff { until, .. } => Some(*until),
            Phase::Starting(run) | Phase::Running(run) => {
                run.deadline(&self.policy).map(|(due, _)| due)
            }
            Phase::Stopping { rung, .. } => match rung {
                Rung::Queued => None,
                Rung::Asked { kill_at } => Some(*kill_at),
                Rung::Killed { inquire_at } => Some(*inquire_at),
            },
            Phase::Idle
            | Phase::Stopped { .. }
            | Phase::Done
            | Phase::Halted(_)
            | Phase::CrashedOut(_) => None,
        }
    }
}
