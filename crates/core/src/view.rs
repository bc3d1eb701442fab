//! The view: what records add up to.
//!
//! Status, dashboard, metrics and notifications look at a [`View`], live or replayed from history;
//! both are the same fold, so no rule is written twice. A view knows nothing but records.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::class::{Class, Kind};
use crate::input::Goal;
use crate::name::{Name, RunId};
use crate::policy::SHORT_LIFE;
use crate::record::{Record, Rest, WaitReason, What};
use crate::signal::Signal;
use crate::supervisor::{Reason, Sight, State};
use crate::time::{Mono, Now};
use crate::verdict::Verdict;

/// So many counted deaths in [`FLAPPING_WITHIN`] make an agent one that flaps.
const FLAPPING_DEATHS: usize = 3;
/// Over what stretch an agent flaps.
const FLAPPING_WITHIN: Duration = Duration::from_secs(600);

/// Number of short clean ends in a row that make a loop.
const LOOP_ENDS: usize = 3;
/// A loop is over when its last clean end is older than this: longer than a short life and any usual delay.
const LOOP_WITHIN: Duration = Duration::from_secs(300);

/// What is known of every agent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct View {
    agents: BTreeMap<Name, AgentView>,
}

/// What is known of one agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentView {
    /// Its state and what belongs to it.
    pub sight: Sight,
    /// Failures in a row, as of its last death.
    pub consecutive_failures: u64,
    /// When its run began, while it has one.
    pub started: Option<Now>,
    /// Its last death.
    pub last_death: Option<Box<LastDeath>>,
    /// When its last counted deaths were, oldest first.
    counted: [Option<Mono>; FLAPPING_DEATHS],
    /// When its last short clean ends were, oldest first, as long as they come in a row.
    clean_ends: [Option<Mono>; LOOP_ENDS],
}

/// The last death of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LastDeath {
    /// When.
    pub at: Now,
    /// Which run.
    pub run: Option<RunId>,
    /// Of what.
    pub class: Class,
    /// What sort of death that is.
    pub kind: Option<Kind>,
    /// The exit code, where there was one.
    pub exit_code: Option<i32>,
    /// The signal, where one ended it.
    pub signal: Option<Signal>,
    /// How long the run lived.
    pub ran: Duration,
    /// The line or field that decided the class.
    pub evidence: Option<Box<str>>,
}

impl AgentView {
    const NEW: AgentView = AgentView {
        sight: Sight::NEW,
        consecutive_failures: 0,
        started: None,
        last_death: None,
        counted: [None; FLAPPING_DEATHS],
        clean_ends: [None; LOOP_ENDS],
    };

    /// Whether it died three or more counted deaths in the last ten minutes.
    pub fn is_flapping(&self, now: Mono) -> bool {
        self.counted.iter().all(|at| at.is_some_and(|at| now.since(at) < FLAPPING_WITHIN))
    }
}

impl AgentView {
    /// The pace of an agent that is restarted after one short clean end after the other, in runs per hour.
    pub fn loops_per_hour(&self, now: Mono) -> Option<u64> {
        let [Some(first), .., Some(last)] = self.clean_ends else { return None };
        if now.since(last) >= LOOP_WITHIN {
            return None;
        }
        let ms = u64::try_from(last.since(first).as_millis()).unwrap_or(u64::MAX).max(1);
        Some((LOOP_ENDS as u64 - 1) * 3_600_000 / ms)
    }

    fn note_clean_end(&mut self, at: Mono, is_short: bool) {
        if is_short {
            self.clean_ends.rotate_left(1);
            self.clean_ends[LOOP_ENDS - 1] = Some(at);
        } else {
            self.clean_ends = [None; LOOP_ENDS];
        }
    }
}

impl View {
    /// What is known of an agent; nothing has been recorded of one that is not in it.
    pub fn agent(&self, name: &Name) -> Option<&AgentView> {
        self.agents.get(name)
    }

    /// Takes what another view knew of an agent.
    pub fn put(&mut self, name: Name, agent: AgentView) {
        self.agents.insert(name, agent);
    }

    /// Takes an agent's last death from where it was stored, unless one is known already.
    pub fn recall(&mut self, name: Name, death: LastDeath) {
        let agent = self.agents.entry(name).or_insert(AgentView::NEW);
        agent.last_death.get_or_insert_with(|| Box::new(death));
    }

    /// Takes no more memory than it needs. A map that grew in order has half empty nodes, one that is
    /// made at once has full ones.
    pub fn pack(&mut self) {
        self.agents = core::mem::take(&mut self.agents).into_iter().collect();
    }

    /// Every agent of which something was recorded, by name.
    pub fn agents(&self) -> impl Iterator<Item = (&Name, &AgentView)> {
        self.agents.iter()
    }

    /// Adds a record that was made at `at`.
    pub fn fold(&mut self, at: Now, record: &Record) {
        // Nearly every record is of an agent that is known: its name is not cloned for that.
        if let Some(agent) = self.agents.get_mut(&record.agent) {
            agent.fold(at, record);
        } else {
            let agent = self.agents.entry(record.agent.clone()).or_insert(AgentView::NEW);
            agent.fold(at, record);
        }
    }
}

impl AgentView {
    fn fold(&mut self, at: Now, record: &Record) {
        match &record.what {
            What::RunStarted { restarts, .. } => {
                self.be(State::Starting, None);
                self.sight.run = record.run;
                self.sight.restarts = *restarts;
                self.started = Some(at);
            }
            What::RunReady => self.be(State::Running, None),
            What::RunDied {
                class,
                kind,
                exit_code,
                signal,
                ran_s,
                counted,
                consecutive_failures,
                evidence,
                verdict,
                ..
            } => {
                let restarts = *class == Class::Done && *verdict == Verdict::Restart;
                self.note_clean_end(at.mono, restarts && ran_s.0 < SHORT_LIFE);
                self.started = None;
                self.consecutive_failures = *consecutive_failures;
                if *counted {
                    self.counted.rotate_left(1);
                    self.counted[FLAPPING_DEATHS - 1] = Some(at.mono);
                }
                self.last_death = Some(Box::new(LastDeath {
                    at,
                    run: record.run,
                    class: *class,
                    kind: *kind,
                    exit_code: *exit_code,
                    signal: *signal,
                    ran: ran_s.0,
                    evidence: evidence.clone(),
                }));
            }
            What::StopRequested { .. } if self.started.is_some() => {
                self.be(State::Stopping, None);
            }
            What::RestartScheduled { delay_ms, .. } => {
                self.be(State::Backoff, None);
                self.sight.next_at = Some(at.mono + Duration::from_millis(*delay_ms));
            }
            What::WaitStarted { reason, wait_ms } => {
                self.be(State::Waiting, Some(Reason::Wait(*reason)));
                self.sight.next_at = wait_ms.map(|ms| at.mono + Duration::from_millis(ms));
            }
            What::CrashedOut { by } => self.be(State::CrashedOut, Some(Reason::Trip(*by))),
            What::Halted { reason } => self.be(State::Halted, Some(Reason::Halt(*reason))),
            What::Revived => {
                self.be(State::Stopped, None);
                self.sight.restarts = 0;
            }
            What::Stopped { goal } => {
                self.be(State::Stopped, None);
                if *goal != Goal::Stopped {
                    self.sight.restarts = 0;
                }
                self.clean_ends = [None; LOOP_ENDS];
                // `down` empties what was counted.
                if *goal == Goal::Down {
                    self.consecutive_failures = 0;
                    self.counted = [None; FLAPPING_DEATHS];
                }
            }
            What::Rested { rest } => match rest {
                Rest::Done => self.be(State::Done, None),
                Rest::Failed => self.be(State::Stopped, Some(Reason::Failed)),
                Rest::Idle => self.be(State::Idle, None),
            },
            What::WaitEnded { reason: WaitReason::Prompt } => self.be(State::Running, None),
            What::WaitEnded { .. }
            | What::LimitTripped { .. }
            | What::StopRequested { .. }
            | What::Escalated { .. }
            | What::GroupRestarted { .. }
            | What::HeartbeatMissed { .. } => {}
        }
    }

    fn be(&mut self, state: State, reason: Option<Reason>) {
        (self.sight.state, self.sight.reason, self.sight.next_at) = (state, reason, None);
    }
}
