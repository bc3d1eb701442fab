//! What an agent may spend in a stretch of time, and waits for once it is spent.
//!
//! Unlike an empty balance, which ends no run and needs a person, a spent allowance ends the run and
//! comes back by itself. No start passes it by, not even an operator's: it would end at once.

use super::Supervisor;
use crate::agent::{Launch, Phase, Why};
use crate::class::Class;
use crate::name::AgentId;
use crate::record::WaitReason;
use crate::time::Wall;
use crate::verdict::Until;

const REASON: WaitReason = WaitReason::Cause(Class::Budget);

impl Supervisor {
    /// The agent may spend nothing before this moment; nothing means that it may.
    pub(super) fn allow(&mut self, id: AgentId, spent_until: Option<Wall>) {
        let Some(agent) = self.agents.get_mut(id.index()) else {
            return;
        };
        if agent.life.spent_until == spent_until {
            return;
        }
        agent.life.spent_until = spent_until;
        self.touch(id);
        let is_spent = self.spent_until(id).is_some();
        match self.life(id).phase {
            // What ran before a reboot has ended with it; the boot has still to say so.
            // A run that has finished its work spends nothing more: it rests as what it finished as.
            Phase::Starting(_) | Phase::Running(_)
                if is_spent && !self.rebooted && self.works(id) =>
            {
                self.begin_stop(id, Why::SpentUp);
            }
            Phase::Waiting { reason: REASON, then, .. } if !is_spent => self.launch(id, then),
            Phase::Idle
            | Phase::Waiting { .. }
            | Phase::Backoff { .. }
            | Phase::Starting(_)
            | Phase::Running(_)
            | Phase::Stopping { .. }
            | Phase::Stopped { .. }
            | Phase::Done
            | Phase::Halted(_)
            | Phase::CrashedOut(_) => {}
        }
    }

    /// Until when the agent may spend nothing, where that is still to come.
    pub(super) fn spent_until(&self, id: AgentId) -> Option<Wall> {
        self.life(id).spent_until.filter(|until| *until > self.now.wall)
    }

    /// Holds the agent until it may spend again.
    pub(super) fn hold_until_allowed(&mut self, id: AgentId, until: Wall, then: Launch) {
        self.hold(id, REASON, Until::at(until, self.now), then);
    }
}
