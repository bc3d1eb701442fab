//! What a daemon leaves to its successor.
//!
//! A daemon that was replaced or killed while its agents ran on is succeeded by one that knows all
//! it knew. After a reboot, or after both daemon and keeper died, only goals and rests are left.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Settings, Supervisor};
use crate::agent::{Life, Phase, Why};
use crate::class::Class;
use crate::input::Goal;
use crate::limit::Tally;
use crate::name::{AgentId, Name, RunId};
use crate::policy::Order;
use crate::preset::Preset;
use crate::record::Rest;
use crate::rng::Jitter;
use crate::run::Status;
use crate::time::Now;
use crate::topology::{AgentSpec, Topology};
use crate::verdict::{self, Verdict};

/// Everything about a supervisor that is not declared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// What changes about each agent.
    pub lives: BTreeMap<Name, Life>,
    /// What each group has spent of its budget.
    pub spent: BTreeMap<Name, Tally>,
    /// What holds for all agents together.
    pub totals: Totals,
}

/// What a supervisor counts for all agents together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    restarts: u32,
    jitter: Jitter,
    closing: bool,
    now: Now,
}

/// What lies between a snapshot and its restoration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Continuity {
    /// Agents ran on.
    Unbroken,
    /// The machine started anew, and no agent is left.
    Reboot,
}

impl Supervisor {
    /// Everything that is not declared.
    pub fn snapshot(&self) -> Snapshot {
        let lives = self.agents.iter().map(|agent| (agent.name.clone(), agent.life.clone()));
        Snapshot { lives: lives.collect(), spent: self.spent(), totals: self.totals() }
    }

    /// What each group has spent of its budget.
    pub fn spent(&self) -> BTreeMap<Name, Tally> {
        self.groups.iter().map(|group| (group.name.clone(), group.spent.clone())).collect()
    }

    /// What is counted for all agents together.
    pub fn totals(&self) -> Totals {
        Totals {
            restarts: self.total_restarts,
            jitter: self.jitter.clone(),
            closing: self.closing,
            now: self.now,
        }
    }

    /// A supervisor that goes on from a snapshot at `now`.
    ///
    /// After [`Continuity::Unbroken`] the caller hands over the exit reports that waited, then an
    /// [`Input::Found`](crate::Input::Found) for each agent that is [`known`](Supervisor::known);
    /// after [`Continuity::Reboot`], an [`Input::Booted`](crate::Input::Booted) before all else.
    pub fn restore(
        settings: Settings,
        topology: Topology,
        snapshot: Snapshot,
        continuity: Continuity,
        now: Now,
    ) -> Supervisor {
        let Snapshot { mut lives, mut spent, totals } = snapshot;
        let mut supervisor = Supervisor::new(settings);
        supervisor.apply(topology);
        for agent in &mut supervisor.agents {
            let Some(life) = lives.remove(&agent.name) else { continue };
            agent.life = life;
            agent.life.counters.fit(&agent.policy.limits, &agent.policy.limits);
        }
        // What is no longer declared may still have a run, and its numbers are not used again.
        let policy = Arc::new(Preset::Default.policy());
        for (name, life) in lives {
            let spec = AgentSpec::new(name.clone(), name, policy.clone());
            supervisor.add(&spec, life, false);
        }
        match continuity {
            Continuity::Unbroken => {
                supervisor.now = totals.now;
                supervisor.total_restarts = totals.restarts;
                supervisor.jitter = totals.jitter;
                supervisor.closing = totals.closing;
                for group in &mut supervisor.groups {
                    group.spent = spent.remove(&group.name).unwrap_or_default();
                }
                for agent in &mut supervisor.agents {
                    agent.excuse_until(now.mono);
                }
                for id in supervisor.ids() {
                    supervisor.arm(id);
                }
            }
            Continuity::Reboot => {
                supervisor.now = now;
                supervisor.rebooted = true;
            }
        }
        supervisor.restored = true;
        supervisor.unarmed.clear();
        supervisor.changed.clear();
        supervisor.out.clear();
        for agent in &mut supervisor.agents {
            agent.touched = false;
        }
        supervisor
    }

    /// What is left of an agent after a reboot: its goal, its rest, and its run numbers. A reboot is a
    /// free respawn of what is restarted; what runs once has had its run. Says whether a run was cut short
    /// that is to be followed by another.
    pub(super) fn wake_after_reboot(&mut self, id: AgentId) -> bool {
        let had_its_run = self.had_its_one_run(id);
        let cut_short = !had_its_run && self.is_to_live_on(id);
        let agent = &mut self.agents[id.index()];
        let (declared, revive) = (agent.declared, agent.policy.revive_on_boot);
        agent.life.sequenced = false;
        agent.life.counters.forget_deaths();
        self.touch(id);
        if let Some(run) = self.life(id).phase.run().cloned() {
            // It wanted to end, and has; any other end is one that nobody saw.
            let class = if run.wished.is_some() { Class::Voluntary } else { Class::Lost };
            self.tell_end(id, &run, class, Verdict::Rest, &Status::Unseen.into());
            if declared && class == Class::Voluntary && self.life(id).goal == Goal::Up {
                self.rest(id, Rest::Done);
            }
        }
        if !declared {
            self.forget(id);
            return false;
        }
        match (&self.life(id).phase, self.life(id).goal) {
            (Phase::CrashedOut(_), Goal::Up) if revive => {
                self.put_back(id);
                self.rest(id, Rest::Idle);
            }
            (Phase::Done | Phase::Halted(_) | Phase::CrashedOut(_), _)
            | (Phase::Stopped { failed: true }, Goal::Up) => {}
            (
                Phase::Starting(_)
                | Phase::Running(_)
                | Phase::Stopping { .. }
                | Phase::Stopped { failed: false },
                Goal::Up,
            ) if had_its_run => {
                let rest = verdict::rest(&self.agents[id.index()].policy, Class::Lost);
                self.rest(id, rest);
            }
            (
                Phase::Idle
                | Phase::Waiting { .. }
                | Phase::Backoff { .. }
                | Phase::Starting(_)
                | Phase::Running(_)
                | Phase::Stopping { .. }
                | Phase::Stopped { .. },
                Goal::Up,
            ) => self.rest(id, Rest::Idle),
            (
                Phase::Idle
                | Phase::Waiting { .. }
                | Phase::Backoff { .. }
                | Phase::Starting(_)
                | Phase::Running(_)
                | Phase::Stopping { .. }
                | Phase::Stopped { .. },
                Goal::Stopped | Goal::Down,
            ) => self.settle(id),
        }
        cut_short && self.life(id).phase == Phase::Idle
    }

    /// Whether an agent has a run that nobody wants to end, or that another is to follow at once.
    fn is_to_live_on(&self, id: AgentId) -> bool {
        match &self.life(id).phase {
            Phase::Starting(_) | Phase::Running(_) => true,
            Phase::Stopping { why, .. } => matches!(why, Why::Restart { .. } | Why::Group { .. }),
            Phase::Idle
            | Phase::Waiting { .. }
            | Phase::Backoff { .. }
            | Phase::Stopped { .. }
            | Phase::Done
            | Phase::Halted(_)
            | Phase::CrashedOut(_) => false,
        }
    }

    /// Whether an agent that is never restarted was running when the machine or the daemon ended. One
    /// that a person or its group was about to start again was not.
    fn had_its_one_run(&self, id: AgentId) -> bool {
        let life = self.life(id);
        let ran = match &life.phase {
            Phase::Starting(_) | Phase::Running(_) => true,
            Phase::Stopping { why, .. } => !matches!(why, Why::Restart { .. } | Why::Group { .. }),
            Phase::Stopped { .. } => life.last_run > RunId(0),
            Phase::Idle
            | Phase::Waiting { .. }
            | Phase::Backoff { .. }
            | Phase::Done
            | Phase::Halted(_)
            | Phase::CrashedOut(_) => false,
        };
        ran && self.policy(id).order(Class::Lost) == Order::Rest
    }
}
