//! A run is over: what it died of, what policy makes of that, and what comes next.

use super::Supervisor;
use crate::agent::{Launch, Phase, Run, Trial, Why};
use crate::class::Class;
use crate::input::Goal;
use crate::limit::Gauge;
use crate::name::{AgentId, RunId};
use crate::record::{Cause, Rest, Trip, WaitReason, What};
use crate::run::ExitReport;
use crate::time::{Seconds, millis};
use crate::verdict::{Death, Decision, Restart, Until, Verdict, judge};

impl Supervisor {
    /// The host says that a run is over.
    pub(super) fn exited(&mut self, id: AgentId, run: RunId, report: ExitReport) {
        if !self.is_current(id, run) {
            return;
        }
        let life = &mut self.agents[id.index()].life;
        life.sequenced = false;
        let failed_trial = life.phase.run().is_some_and(|run| run.trial == Trial::Open);
        match core::mem::replace(&mut life.phase, Phase::Idle) {
            Phase::Stopping { run, why, .. } => self.ended_by_us(id, &run, why, report),
            Phase::Starting(run) | Phase::Running(run) => {
                let class = if run.wished.is_some() { Some(Class::Voluntary) } else { None };
                self.died(id, &run, class, report);
            }
            // `is_current` has seen a run in it.
            Phase::Idle
            | Phase::Waiting { .. }
            | Phase::Backoff { .. }
            | Phase::Stopped { .. }
            | Phase::Done
            | Phase::Halted(_)
            | Phase::CrashedOut(_) => {}
        }
        if failed_trial {
            self.try_next(id);
        }
    }

    /// The run ended because we wanted it to: that decides the class, whatever the report says. The
    /// exception is a run that had finished its work: its final record decides.
    fn ended_by_us(&mut self, id: AgentId, run: &Run, why: Why, report: ExitReport) {
        let finished = report.finding.as_ref().is_some_and(|found| found.class == Class::Done);
        match why {
            // It had finished when its money was counted: the budget stops further runs, not this one.
            Why::Overspent | Why::SpentUp if finished => self.died(id, run, None, report),
            Why::Lingered => self.died(id, run, None, report),
            Why::Unresponsive if run.finished.is_some() => self.died(id, run, None, report),
            Why::Unresponsive => self.died(id, run, Some(Class::Timeout), report),
            Why::Overspent => self.died(id, run, Some(Class::Budget), report),
            Why::SpentUp => {
                self.tell_end(id, run, Class::Budget, Verdict::Wait, &report);
                self.launch(id, Launch { cause: Cause::Wait, fresh: false });
            }
            Why::Wished => self.died(id, run, Some(Class::Voluntary), report),
            Why::Asked => {
                self.tell_end(id, run, Class::Stopped, Verdict::Rest, &report);
                // Somebody has changed their mind since, but nothing has started it yet.
                if self.life(id).goal == Goal::Up && !self.closing {
                    self.rest(id, Rest::Idle);
                } else {
                    self.settle(id);
                }
            }
            Why::Removed => {
                self.tell_end(id, run, Class::Stopped, Verdict::Rest, &report);
                self.forget(id);
            }
            Why::Restart { fresh, ordered } => {
                self.tell_end(id, run, Class::Stopped, Verdict::Restart, &report);
                if ordered {
                    self.join_sequence(id);
                }
                self.launch(id, Launch { cause: Cause::Operator, fresh });
            }
            Why::Group { resume_at, fresh } => {
                self.tell_end(id, run, Class::Group, Verdict::Restart, &report);
                self.join_sequence(id);
                let then = Launch { cause: Cause::Group, fresh };
                let until =
                    if resume_at > self.now.mono { Until::Mono(resume_at) } else { Until::Told };
                self.wait(id, WaitReason::Dependency, until, then);
            }
            Why::GroupFailed => {
                self.tell_end(id, run, Class::Group, Verdict::CrashOut, &report);
                self.crash_out(id, Trip::Group);
            }
        }
    }

    /// The run died: `class` where we know better than the report.
    fn died(&mut self, id: AgentId, run: &Run, class: Option<Class>, report: ExitReport) {
        let ExitReport { status, finding, spoke } = report;
        let exhausted = self.exhausted();
        let agent = &mut self.agents[id.index()];
        let found = finding.as_ref().map(|finding| finding.class);
        let class = class.or(found).unwrap_or_else(|| agent.policy.class_of(status));
        let resets_at = finding.as_ref().and_then(|finding| finding.resets_at);
        let mut lived = run.lived(self.now.mono);
        lived.signed |= spoke;
        let judgement = judge(
            &agent.policy,
            &mut agent.life.counters,
            &mut self.jitter,
            self.now,
            Death { class, lived, resets_at },
            agent.life.broke,
            exhausted,
        );
        let consecutive_failures = agent.life.counters.failures;
        let decision = judgement.decision;
        let overdrawn = match decision {
            Decision::Restart(_) => self.overdrawn_group_of(id),
            Decision::Wait(_)
            | Decision::Rest(_)
            | Decision::Halt
            | Decision::CrashOut(..)
            | Decision::Escalate(..) => None,
        };
        let class = judgement.class;
        self.tell(
            id,
            What::RunDied {
                class,
                kind: class.kind(),
                exit_code: status.exit_code(),
                signal: status.signal(),
                ran_s: Seconds(lived.ran),
                verdict: if overdrawn.is_some() { Verdict::Escalate } else { decision.verdict() },
                counted: judgement.counted,
                consecutive_failures,
                evidence: finding.and_then(|finding| finding.evidence),
            },
        );
        match decision {
            Decision::Restart(restart) => match overdrawn {
                Some((group, gauge)) => self.overdraw(group, gauge, id, restart),
                None => self.restart_after(id, restart),
            },
            Decision::Wait(until) => {
                let then = Launch { cause: Cause::Wait, fresh: false };
                self.wait(id, WaitReason::Cause(class), until, then);
            }
            Decision::Rest(rest) => self.rest(id, rest),
            Decision::Halt => self.halt(id, class),
            Decision::CrashOut(trip, gauge) => {
                self.tell_trip(id, None, gauge);
                self.crash_out(id, trip);
            }
            Decision::Escalate(gauge, restart) => {
                self.tell_trip(id, None, gauge);
                self.escalate(id, gauge, restart);
            }
        }
    }

    /// Restarts the agent alone, after its delay.
    pub(super) fn back_off(&mut self, id: AgentId, restart: Restart, cause: Cause) {
        let Restart { delay, attempt, fresh, gauge } = restart;
        let delay_ms = millis(delay);
        self.tell(id, What::RestartScheduled { delay_ms, attempt, gauge });
        let until = self.now.mono + delay;
        self.set_phase(id, Phase::Backoff { until, then: Launch { cause, fresh } });
    }

    /// The agent is at rest because somebody wants that. Only a stop by name leaves what it
    /// remembers of its deaths.
    pub(super) fn settle(&mut self, id: AgentId) {
        let life = &mut self.agents[id.index()].life;
        let goal = life.goal;
        if goal != Goal::Stopped {
            life.counters.clear();
        }
        self.tell(id, What::Stopped { goal });
        self.set_phase(id, Phase::Stopped { failed: false });
    }

    pub(super) fn rest(&mut self, id: AgentId, rest: Rest) {
        self.tell(id, What::Rested { rest });
        self.set_phase(
            id,
            match rest {
                Rest::Done => Phase::Done,
                Rest::Failed => Phase::Stopped { failed: true },
                Rest::Idle => Phase::Idle,
            },
        );
    }

    pub(super) fn halt(&mut self, id: AgentId, reason: Class) {
        self.tell(id, What::Halted { reason });
        self.set_phase(id, Phase::Halted(reason));
    }

    pub(super) fn crash_out(&mut self, id: AgentId, by: Trip) {
        self.tell(id, What::CrashedOut { by });
        self.set_phase(id, Phase::CrashedOut(by));
    }

    pub(super) fn tell_trip(
        &mut self,
        id: AgentId,
        group: Option<crate::name::Name>,
        gauge: Gauge,
    ) {
        self.tell(id, What::LimitTripped { group, gauge });
    }

    /// Tells of an end that policy has no say in.
    pub(super) fn tell_end(
        &mut self,
        id: AgentId,
        run: &Run,
        class: Class,
        verdict: Verdict,
        report: &ExitReport,
    ) {
        let status = report.status;
        let mut lived = run.lived(self.now.mono);
        lived.signed |= report.spoke;
        let agent = &mut self.agents[id.index()];
        agent.life.counters.note_life(&agent.policy, lived);
        let consecutive_failures = agent.life.counters.failures;
        self.tell(
            id,
            What::RunDied {
                class,
                kind: class.kind(),
                exit_code: status.exit_code(),
                signal: status.signal(),
                ran_s: Seconds(lived.ran),
                verdict,
                counted: false,
                consecutive_failures,
                evidence: None,
            },
        );
    }
}
