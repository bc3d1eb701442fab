//! Stopping: a phase with a deadline, never a wait.
//!
//! A run is asked, then killed, then the host is asked what became of it. Where many stop together
//! the members of a group stop in reverse order, and agents before those they named in `after`.

use alloc::vec::Vec;
use core::time::Duration;

use super::Supervisor;
use crate::agent::{Phase, Rung, Why};
use crate::input::{Ask, Effect};
use crate::name::{AgentId, RunId};
use crate::record::{By, What};

/// How long after a kill the host is asked what became of the run.
const INQUIRE_AFTER: Duration = Duration::from_secs(5);

impl Supervisor {
    /// Ends the agent's run now, if it has one that is not ending already.
    pub(super) fn begin_stop(&mut self, id: AgentId, why: Why) {
        if self.queue_stop(id, why, false) {
            self.ask(id);
        }
    }

    /// Ends the runs of many, each when it is its turn.
    pub(super) fn begin_ordered_stop(&mut self, ids: &[AgentId], why: Why) {
        let queued: Vec<AgentId> =
            ids.iter().rev().copied().filter(|id| self.queue_stop(*id, why, false)).collect();
        for id in queued {
            if self.may_stop(id) {
                self.ask(id);
            }
        }
    }

    /// Marks the agent's run as one that is to end. A run that is ending already does so for the
    /// weightier of the two reasons, and is not queued again.
    pub(super) fn queue_stop(&mut self, id: AgentId, why: Why, kill: bool) -> bool {
        let (run, why, rung, is_new) = match &self.life(id).phase {
            Phase::Starting(run) | Phase::Running(run) => (run.clone(), why, Rung::Queued, true),
            Phase::Stopping { run, why: old, rung } => {
                (run.clone(), old.weighed_against(why), *rung, false)
            }
            Phase::Idle
            | Phase::Waiting { .. }
            | Phase::Backoff { .. }
            | Phase::Stopped { .. }
            | Phase::Done
            | Phase::Halted(_)
            | Phase::CrashedOut(_) => return false,
        };
        self.tell(id, What::StopRequested { by: why.by(), kill });
        self.set_phase(id, Phase::Stopping { run, why, rung });
        is_new
    }

    /// Asks the run to end.
    pub(super) fn ask(&mut self, id: AgentId) {
        let kill_at = self.now.mono + self.agents[id.index()].policy.stop_timeout;
        self.climb(id, Rung::Asked { kill_at }, Ask::Stop);
    }

    /// Kills the run and its whole tree.
    pub(super) fn kill(&mut self, id: AgentId) {
        let inquire_at = self.now.mono + INQUIRE_AFTER;
        self.climb(id, Rung::Killed { inquire_at }, Ask::Kill);
    }

    fn climb(&mut self, id: AgentId, next: Rung, ask: Ask) {
        if let Phase::Stopping { run, rung, .. } = &mut self.agents[id.index()].life.phase {
            *rung = next;
            let run = run.id;
            self.touch(id);
            self.order(Effect::Signal { agent: id, run, ask });
        }
    }

    /// The run was killed and nobody has said that it is gone.
    pub(super) fn inquire(&mut self, id: AgentId, run: RunId) {
        let later = Rung::Killed { inquire_at: self.now.mono + INQUIRE_AFTER };
        if let Phase::Stopping { rung, .. } = &mut self.agents[id.index()].life.phase {
            *rung = later;
            self.touch(id);
            self.order(Effect::Inquire { agent: id, run });
        }
    }

    /// Gives the last signal again: it may not have gone out.
    pub(super) fn signal_again(&mut self, id: AgentId) {
        if let Phase::Stopping { run, rung, .. } = &self.life(id).phase {
            let run = run.id;
            let ask = match rung {
                Rung::Queued => return,
                Rung::Asked { .. } => Ask::Stop,
                Rung::Killed { .. } => Ask::Kill,
            };
            self.order(Effect::Signal { agent: id, run, ask });
        }
    }

    /// Whether everyone that has to end before this agent has ended.
    pub(super) fn may_stop(&self, id: AgentId) -> bool {
        let agent = &self.agents[id.index()];
        let ending = |other: &AgentId| self.life(*other).phase.is_stopping();
        let later = agent.place.is_some_and(|place| {
            self.groups[place.top.index()].order[place.at + 1..].iter().any(ending)
        });
        !later && !agent.dependents.iter().any(ending)
    }

    /// An agent changed: it, or those who waited for its end, may be asked to end now.
    pub(super) fn continue_stops_around(&mut self, id: AgentId) {
        let agent = &self.agents[id.index()];
        if agent.life.phase.is_stopping() {
            self.ask_if_it_may(id);
            return;
        }
        let last_of_group = agent.place.and_then(|place| {
            let order = self.groups[place.top.index()].order.iter().rev().copied();
            order.into_iter().find(|member| self.life(*member).phase.is_stopping())
        });
        let before: Vec<AgentId> = agent.after.iter().copied().chain(last_of_group).collect();
        for other in before {
            self.ask_if_it_may(other);
        }
    }

    fn ask_if_it_may(&mut self, id: AgentId) {
        let is_queued = matches!(self.life(id).phase, Phase::Stopping { rung: Rung::Queued, .. });
        if is_queued && self.may_stop(id) {
            self.ask(id);
        }
    }
}

impl Why {
    const fn by(self) -> By {
        match self {
            Why::Asked | Why::Restart { .. } | Why::Removed => By::Operator,
            Why::Group { .. } | Why::GroupFailed => By::Group,
            Why::Unresponsive => By::Timeout,
            Why::Overspent | Why::SpentUp => By::Budget,
            Why::Wished => By::Agent,
            Why::Lingered => By::Linger,
        }
    }

    /// Of two reasons for one end, the one that decides what comes after it: a person's word goes
    /// before ours, and an end for good before a restart.
    fn weighed_against(self, new: Why) -> Why {
        match (self, new) {
            (Why::Removed, _) => self,
            (_, Why::Removed | Why::Asked | Why::Restart { .. }) => new,
            (Why::Group { resume_at: old, fresh }, Why::Group { resume_at, fresh: also }) => {
                Why::Group { resume_at: old.max(resume_at), fresh: fresh || also }
            }
            (Why::Restart { fresh, .. }, Why::Group { resume_at, fresh: also }) => {
                Why::Group { resume_at, fresh: fresh || also }
            }
            (Why::Unresponsive, Why::Group { .. }) => new,
            (Why::Group { .. } | Why::Unresponsive | Why::Restart { .. }, Why::GroupFailed) => new,
            (
                Why::Asked
                | Why::Restart { .. }
                | Why::Group { .. }
                | Why::GroupFailed
                | Why::Unresponsive
                | Why::Overspent
                | Why::SpentUp
                | Why::Wished
                | Why::Lingered,
                Why::Group { .. }
                | Why::GroupFailed
                | Why::Unresponsive
                | Why::Overspent
                | Why::SpentUp
                | Why::Wished
                | Why::Lingered,
            ) => self,
        }
    }
}
