//! Agents on one credential: what one of them learns of its quota holds for all.
//!
//! While any agent on an account waits for its quota, none on it starts by itself. When the wait is
//! over, one is tried. The others follow one after another once it has shown that it works, by
//! output or a beat; if it dies before that, the next is tried; if it says nothing, they do not wait
//! for ever. What a person starts is started.

use alloc::vec::Vec;
use core::time::Duration;

use super::Supervisor;
use crate::agent::{Phase, Trial};
use crate::class::Class;
use crate::name::AgentId;
use crate::record::{Cause, WaitReason};
use crate::verdict::Until;

/// How long one that says nothing is on trial.
const TRIAL: Duration = Duration::from_secs(60);
/// The pause between those who follow. A run that meets its limit at once has died by then.
const STAGGER: Duration = Duration::from_secs(10);

impl Supervisor {
    /// What keeps an agent from starting because of the others on its account, and until when.
    pub(super) fn parked(&self, id: AgentId, cause: Cause) -> Option<(WaitReason, Until)> {
        match cause {
            Cause::Operator | Cause::Revive | Cause::Fund => return None,
            Cause::Up | Cause::Restart | Cause::Group | Cause::Wait | Cause::Trigger => {}
        }
        let quotas = self.mates(id).filter_map(|mate| match self.life(mate).phase {
            Phase::Waiting { reason: WaitReason::Cause(Class::Quota), until, .. } => {
                Some((until.due()?, until))
            }
            Phase::Idle
            | Phase::Waiting { .. }
            | Phase::Backoff { .. }
            | Phase::Starting(_)
            | Phase::Running(_)
            | Phase::Stopping { .. }
            | Phase::Stopped { .. }
            | Phase::Done
            | Phase::Halted(_)
            | Phase::CrashedOut(_) => None,
        });
        let quota = quotas.filter(|(due, _)| *due > self.now.mono).max_by_key(|(due, _)| *due);
        if let Some((_, until)) = quota {
            return Some((WaitReason::Cause(Class::Quota), until));
        }
        let trials = self.mates(id).filter_map(|mate| {
            let run = self.life(mate).phase.run()?;
            (run.trial == Trial::Open).then_some(run.started + TRIAL)
        });
        let end = trials.filter(|end| *end > self.now.mono).max()?;
        let before = self.in_line(id).filter(|other| *other < id).count();
        let turn = end + STAGGER * u32::try_from(before).unwrap_or(u32::MAX);
        Some((WaitReason::Account, Until::Mono(turn)))
    }

    /// Whether a run that begins now is one by which its account is tried. Where another one lives,
    /// its time is over, or this one would not begin.
    pub(super) fn begins_trial(&self, id: AgentId) -> bool {
        let held = matches!(
            self.life(id).phase.held_for(),
            Some(WaitReason::Cause(Class::Quota) | WaitReason::Account)
        );
        let tried =
            |mate: AgentId| self.life(mate).phase.run().is_some_and(|run| run.trial != Trial::None);
        held && self.agents[id.index()].account.is_some() && !self.mates(id).any(tried)
    }

    /// The agent's run has shown that it works. Whoever waited for that follows.
    pub(super) fn prove(&mut self, id: AgentId) {
        let Some(run) = self.agents[id.index()].life.phase.run_mut() else { return };
        if run.trial != Trial::Open {
            return;
        }
        run.trial = Trial::Passed;
        let line: Vec<AgentId> = self.in_line(id).collect();
        let mut turn = self.now.mono;
        for mate in line {
            turn = turn + STAGGER;
            if let Phase::Waiting { then, .. } = self.life(mate).phase {
                self.wait(mate, WaitReason::Account, Until::Mono(turn), then);
            }
        }
    }

    /// A run on trial is over and has shown nothing: the next is tried.
    pub(super) fn try_next(&mut self, id: AgentId) {
        let next = self.in_line(id).next();
        if let Some(mate) = next
            && let Phase::Waiting { then, .. } = self.life(mate).phase
        {
            self.launch(mate, then);
        }
    }

    /// Those on the agent's account who wait for their turn, in order.
    fn in_line(&self, id: AgentId) -> impl Iterator<Item = AgentId> {
        self.mates(id).filter(|mate| self.life(*mate).phase.held_for() == Some(WaitReason::Account))
    }

    /// The others on the agent's account.
    fn mates(&self, id: AgentId) -> impl Iterator<Item = AgentId> {
        let account = self.agents[id.index()].account.as_ref();
        let on_it = move |mate: &AgentId| {
            let mate = &self.agents[mate.index()];
            mate.declared && mate.account.as_ref() == account
        };
        let all = account.map(|_| self.ids()).into_iter().flatten();
        all.filter(move |mate| *mate != id).filter(on_it)
    }
}
