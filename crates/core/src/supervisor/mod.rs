//! The supervisor: every agent, every group, and what becomes of them.
//!
//! One call of [`Supervisor::handle`] takes one input at one moment. It does what was due before,
//! then what the input asks for, then what has become due by that; a delay of zero is over within
//! the call. Everything that changes an agent goes through `set_phase`, so that its deadline, those
//! who wait for it and its snapshot cannot be forgotten.

mod account;
mod allowance;
mod death;
mod declare;
mod group;
mod launch;
mod operator;
mod sight;
mod snapshot;
mod stop;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use crate::agent::{Agent, Launch, Overdue, Phase, Rung, Sign, Why};
use crate::input::{Ask, Effect, Input, Outbox};
use crate::limit::{Gauge, Limit, Span};
use crate::name::{AgentId, GroupId, Name, RunId};
use crate::policy::Reset;
use crate::record::{Record, WaitReason, What};
use crate::rng::Jitter;
use crate::run::Status;
use crate::time::{Mono, Now, Seconds, millis};
use crate::verdict::Until;

pub(crate) use group::Group;
pub use operator::{Refusal, Remedy};
pub use sight::{Reason, Sight, State};
pub use snapshot::{Continuity, Snapshot, Totals};

/// A step of the wall clock smaller than this is drift.
const WALL_STEP: Duration = Duration::from_secs(1);

/// What holds for the whole supervisor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// The seed of all jitter; nothing is no jitter.
    pub jitter_seed: Option<u64>,
}

/// Decides what becomes of agents. Pure: no clock, no I/O; the same inputs at the same moments give
/// the same records and effects.
///
/// The caller hands every input to [`handle`](Supervisor::handle) with the time at which it was
/// taken, calls it with [`Input::Tick`] at [`next_deadline`](Supervisor::next_deadline) at the
/// latest, and deals with the [`Outbox`] in its order before the next input.
#[derive(Debug, Clone)]
pub struct Supervisor {
    agents: Vec<Agent>,
    /// The declared ones, in the order of declaration.
    listed: Vec<AgentId>,
    groups: Vec<Group>,
    max_total_restarts: Option<u32>,
    /// How often what is declared has been changed.
    edition: u64,
    by_name: BTreeMap<Name, AgentId>,
    groups_by_name: BTreeMap<Name, GroupId>,
    timers: BTreeSet<(Mono, AgentId)>,
    jitter: Jitter,
    total_restarts: u32,
    closing: bool,
    /// Restored, and nothing has been said or done since.
    restored: bool,
    /// Restored after a reboot, of which the agents have still to hear.
    rebooted: bool,
    now: Now,
    /// Agents whose deadline may have changed.
    unarmed: Vec<AgentId>,
    /// Agents whose change may concern others.
    changed: Vec<AgentId>,
    /// The caller's outbox, for the time of a call.
    out: Outbox,
}

impl Supervisor {
    /// A supervisor of nothing.
    pub fn new(settings: Settings) -> Supervisor {
        let jitter = settings.jitter_seed.map_or(Jitter::OFF, Jitter::seeded);
        Supervisor {
            agents: Vec::new(),
            listed: Vec::new(),
            groups: Vec::new(),
            max_total_restarts: None,
            edition: 0,
            by_name: BTreeMap::new(),
            groups_by_name: BTreeMap::new(),
            timers: BTreeSet::new(),
            jitter,
            total_restarts: 0,
            closing: false,
            restored: false,
            rebooted: false,
            now: Now::default(),
            unarmed: Vec::new(),
            changed: Vec::new(),
            out: Outbox::default(),
        }
    }

    /// Takes one input at one moment and adds what comes of it to `out`.
    ///
    /// Only an operator's request can be refused, and then nothing of it was done that `out` does
    /// not say. A moment before the last one counts as the last one. A [sign](Input::is_sign) makes
    /// nothing come due, so that all signs of one moment are heard before anybody is ended for
    /// silence, however late we hear of them; another input has to follow.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Outbox) -> Result<(), Refusal> {
        mem::swap(&mut self.out, out);
        self.observe(now);
        if mem::take(&mut self.restored) {
            self.store_goals_again();
        }
        if let Input::Slept(span) = input {
            self.excuse(span);
        }
        let is_sign = input.is_sign();
        // Where everything is to end, nothing is begun whose time has come unnoticed.
        let ends_all = matches!(input, Input::CloseAsked);
        if !is_sign && !ends_all {
            self.do_what_is_due();
        }
        let answer = self.take(input);
        if is_sign {
            self.follow_up();
        } else {
            self.do_what_is_due();
        }
        for id in &self.out.touched {
            self.agents[id.index()].touched = false;
        }
        mem::swap(&mut self.out, out);
        answer
    }

    /// When [`handle`](Supervisor::handle) has to be called again if nothing happens before.
    pub fn next_deadline(&self) -> Option<Mono> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// The automatic restarts that were decided since the supervisor began.
    pub const fn total_restarts(&self) -> u32 {
        self.total_restarts
    }

    /// Whether everything is to end, whatever is wanted: after [`Input::CloseAsked`].
    pub const fn is_closing(&self) -> bool {
        self.closing
    }

    fn take(&mut self, input: Input) -> Result<(), Refusal> {
        match input {
            // What slept was excused before anything came due.
            Input::Tick | Input::Slept(_) => {}
            Input::Apply(topology) => self.apply(*topology),
            Input::Booted => self.boot(),
            Input::UpAsked(scope) => return self.up(&scope),
            Input::DownAsked(scope) => return self.down(&scope),
            Input::StartAsked(scope) => return self.start(&scope),
            Input::StopAsked { scope, kill } => return self.stop(&scope, kill),
            Input::RestartAsked { scope, fresh } => return self.restart(&scope, fresh),
            Input::ReviveAsked(scope) => return self.revive(&scope),
            Input::CloseAsked => self.close(),
            Input::Spawned { agent, run } => self.spawned(agent, run),
            Input::Readied { agent, run } => self.readied(agent, run),
            Input::Ended { agent, run } => self.ended(agent, run),
            Input::Exited { agent, run, report } => self.exited(agent, run, report),
            Input::BeatSeen { agent, run } => self.beat(agent, run),
            Input::ActivitySeen { agent, run } => self.active(agent, run),
            Input::PromptSeen { agent, run, waiting } => self.prompted(agent, run, waiting),
            Input::FinishSeen { agent, run, finished } => self.finish_seen(agent, run, finished),
            Input::Lingered { agent, run } => self.lingered(agent, run),
            Input::Extended { agent, run, by } => self.extend(agent, run, by),
            Input::ProbeFailed { agent, run } => self.probe_failed(agent, run),
            Input::Overspent { agent, run } if self.works(agent) => {
                self.end_run(agent, run, Why::Overspent);
            }
            // The run has finished or ended by itself; its report says whether it spent too much.
            Input::Overspent { .. } => {}
            Input::ShutdownWished { agent, run } => self.wished(agent, run),
            Input::WaitOver(agent) => self.wait_over(agent),
            Input::Triggered(agent) => self.triggered(agent),
            Input::BalanceSeen { agent, empty } => self.balance(agent, empty),
            Input::AllowanceSeen { agent, spent_until } => self.allow(agent, spent_until),
            Input::Found { agent, run } => self.found(agent, run),
        }
        Ok(())
    }

    /// Notes the time. Waits for a stated time follow the wall clock where it is moved.
    fn observe(&mut self, now: Now) {
        let before = self.now;
        self.now = Now { mono: now.mono.max(before.mono), wall: now.wall };
        let expected = before.wall + self.now.mono.since(before.mono);
        if now.wall.since(expected).max(expected.since(now.wall)) < WALL_STEP {
            return;
        }
        for id in self.ids() {
            let Phase::Waiting { reason, until: Until::Wall { stated, .. }, then } =
                self.life(id).phase
            else {
                continue;
            };
            self.wait(id, reason, Until::at(stated, self.now), then);
        }
    }

    /// Everything whose time has come, and everything that follows from it.
    fn do_what_is_due(&mut self) {
        loop {
            self.follow_up();
            match self.timers.first() {
                Some((due, id)) if *due <= self.now.mono => self.fire(*id),
                Some(_) | None => return,
            }
        }
    }

    /// What follows at once from what has changed: whoever waited for it goes on, and deadlines move.
    fn follow_up(&mut self) {
        while let Some(id) = self.changed.pop() {
            self.tell_those_who_wait_for(id);
        }
        while let Some(id) = self.unarmed.pop() {
            self.arm(id);
        }
    }

    fn arm(&mut self, id: AgentId) {
        let agent = &mut self.agents[id.index()];
        let deadline = agent.deadline();
        if agent.armed == deadline {
            return;
        }
        if let Some(old) = mem::replace(&mut agent.armed, deadline) {
            self.timers.remove(&(old, id));
        }
        if let Some(due) = deadline {
            self.timers.insert((due, id));
        }
    }

    /// An agent's deadline has come. What is done here moves or removes it.
    fn fire(&mut self, id: AgentId) {
        let now = self.now.mono;
        match self.life(id).phase.clone() {
            Phase::Waiting { then, .. } | Phase::Backoff { then, .. } => self.launch(id, then),
            Phase::Starting(run) | Phase::Running(run) => {
                match run.deadline(&self.agents[id.index()].policy) {
                    Some((_, Overdue::Beat { ttl })) => {
                        let silent_s = Seconds(now.since(run.silent_since));
                        let missed = What::HeartbeatMissed { silent_s, ttl_s: Seconds(ttl) };
                        self.tell(id, missed);
                        self.begin_stop(id, Why::Unresponsive);
                    }
                    Some((_, Overdue::Silent)) => self.begin_stop(id, Why::Unresponsive),
                    Some((_, Overdue::Wish)) => self.begin_stop(id, Why::Wished),
                    None => {}
                }
            }
            Phase::Stopping { run, rung, .. } => match rung {
                Rung::Queued => {}
                Rung::Asked { .. } => self.kill(id),
                Rung::Killed { .. } => self.inquire(id, run.id),
            },
            Phase::Idle
            | Phase::Stopped { .. }
            | Phase::Done
            | Phase::Halted(_)
            | Phase::CrashedOut(_) => {}
        }
    }

    /// The run is the agent's current one. If it is not, whatever was said of it is stale.
    fn is_current(&mut self, id: AgentId, run: RunId) -> bool {
        let current = self.agents.get(id.index()).and_then(|agent| agent.life.phase.run());
        let is_current = current.is_some_and(|current| current.id == run);
        if !is_current {
            self.out.stale += 1;
        }
        is_current
    }

    fn set_phase(&mut self, id: AgentId, phase: Phase) {
        let life = &mut self.agents[id.index()].life;
        life.sequenced &= match phase {
            Phase::Starting(_) | Phase::Backoff { .. } => true,
            Phase::Waiting { reason, .. } => reason == WaitReason::Dependency,
            Phase::Idle
            | Phase::Running(_)
            | Phase::Stopping { .. }
            | Phase::Stopped { .. }
            | Phase::Done
            | Phase::Halted(_)
            | Phase::CrashedOut(_) => false,
        };
        life.phase = phase;
        self.changed.push(id);
        self.touch(id);
    }

    fn touch(&mut self, id: AgentId) {
        self.unarmed.push(id);
        let agent = &mut self.agents[id.index()];
        if !agent.touched {
            agent.touched = true;
            self.out.touched.push(id);
        }
    }

    fn tell(&mut self, id: AgentId, what: What) {
        let Agent { name, life, .. } = &self.agents[id.index()];
        let run = (life.last_run.0 > 0).then_some(life.last_run);
        self.out.records.push(Record { agent: name.clone(), run, what });
    }

    fn order(&mut self, effect: Effect) {
        self.out.effects.push(effect);
    }

    /// Holds an agent, and says so.
    fn wait(&mut self, id: AgentId, reason: WaitReason, until: Until, then: Launch) {
        let wait_ms = until.due().map(|due| millis(due.since(self.now.mono)));
        self.tell(id, What::WaitStarted { reason, wait_ms });
        self.set_phase(id, Phase::Waiting { reason, until, then });
    }

    /// The bound on all restarts of all agents, where it has been reached.
    fn exhausted(&self) -> Option<Gauge> {
        let max = self.max_total_restarts?;
        let limit = Limit::restarts(max, Span::Lifetime);
        (self.total_restarts >= max).then_some(Gauge { limit, count: self.total_restarts })
    }

    /// The machine slept: nobody could beat, or end when asked.
    fn excuse(&mut self, slept: Duration) {
        for id in self.ids() {
            let phase = &mut self.agents[id.index()].life.phase;
            if let Phase::Stopping { rung: Rung::Asked { kill_at }, .. } = phase {
                *kill_at = *kill_at + slept;
            }
            if let Some(run) = phase.run_mut() {
                run.excuse(slept, self.now.mono);
                self.touch(id);
            }
        }
    }

    /// Whoever has ended by itself is not ended for its silence or its age while it is examined.
    fn ended(&mut self, id: AgentId, run: RunId) {
        if !self.is_current(id, run) {
            return;
        }
        let now = self.now.mono;
        if let Some(run) = self.agents[id.index()].life.phase.run_mut() {
            run.ended.get_or_insert(now);
        }
        // A successor hears of it again, so it need not be kept; only its deadlines go.
        self.unarmed.push(id);
    }

    fn beat(&mut self, id: AgentId, run: RunId) {
        if !self.is_current(id, run) {
            return;
        }
        let now = self.now.mono;
        let agent = &mut self.agents[id.index()];
        if agent.policy.reset == Reset::Beat {
            agent.life.counters.succeed(&agent.policy);
        }
        if let Some(run) = agent.life.phase.run_mut() {
            run.sign = Sign::Beat;
            // An extension that was granted is not cut short by a beat.
            run.silent_since = run.silent_since.max(now);
            run.idle_since = run.idle_since.max(now);
        }
        self.prove(id);
        self.touch(id);
    }

    fn active(&mut self, id: AgentId, run: RunId) {
        if !self.is_current(id, run) {
            return;
        }
        if let Some(run) = self.agents[id.index()].life.phase.run_mut() {
            run.sign = run.sign.max(Sign::Active);
            run.idle_since = run.idle_since.max(self.now.mono);
        }
        self.prove(id);
        self.touch(id);
    }

    fn extend(&mut self, id: AgentId, run: RunId, by: Duration) {
        if !self.is_current(id, run) {
            return;
        }
        let now = self.now.mono;
        let until = now + by;
        let agent = &mut self.agents[id.index()];
        let policy = agent.policy.clone();
        if let Phase::Stopping { rung: Rung::Asked { kill_at }, .. } = &mut agent.life.phase {
            *kill_at = (*kill_at).max(until);
        }
        if let Some(run) = agent.life.phase.run_mut() {
            // Whoever asks for time lives.
            run.silent_since = run.silent_since.max(now);
            run.idle_since = run.idle_since.max(now);
            run.extend(&policy, until);
        }
        self.touch(id);
    }

    /// The run stands at a prompt that only a person can answer, or no longer does. As long as it
    /// stands there, its silence means nothing.
    fn prompted(&mut self, id: AgentId, run: RunId, waiting: bool) {
        if !self.is_current(id, run) {
            return;
        }
        let now = self.now.mono;
        let Phase::Running(run) = &mut self.agents[id.index()].life.phase else { return };
        if run.prompted.is_some() == waiting {
            return;
        }
        run.prompted = waiting.then_some(now);
        (run.silent_since, run.idle_since) = (now, now);
        let reason = WaitReason::Prompt;
        self.tell(
            id,
            if waiting {
                What::WaitStarted { reason, wait_ms: None }
            } else {
                What::WaitEnded { reason }
            },
        );
        self.touch(id);
    }

    /// The run's work is over, or goes on after all. A run that goes on has shown that it lives.
    fn finish_seen(&mut self, id: AgentId, run: RunId, finished: bool) {
        if !self.is_current(id, run) {
            return;
        }
        let now = self.now.mono;
        if let Some(run) = self.agents[id.index()].life.phase.run_mut() {
            if !finished {
                run.silent_since = run.silent_since.max(now);
                run.idle_since = run.idle_since.max(now);
            }
            run.finished = if finished { run.finished.or(Some(now)) } else { None };
        }
        self.touch(id);
        if !finished && self.spent_until(id).is_some() {
            self.end_run(id, run, Why::SpentUp);
        }
    }

    /// The run may have begun to work again since its time was over.
    fn lingered(&mut self, id: AgentId, run: RunId) {
        let agent = self.agents.get(id.index());
        let known = agent.and_then(|agent| agent.life.phase.run());
        if known.is_none_or(|run| run.ended.is_none() && run.finished.is_some()) {
            self.end_run(id, run, Why::Lingered);
        }
    }

    fn wished(&mut self, id: AgentId, run: RunId) {
        if !self.is_current(id, run) {
            return;
        }
        let now = self.now.mono;
        if let Phase::Starting(run) | Phase::Running(run) = &mut self.agents[id.index()].life.phase
        {
            run.wished.get_or_insert(now);
            self.touch(id);
        }
    }

    /// A probe that fails because the run has ended, or has finished its work, is not a failure.
    fn probe_failed(&mut self, id: AgentId, run: RunId) {
        if self.works(id) {
            self.end_run(id, run, Why::Unresponsive);
        }
    }

    /// Whether the agent's run has neither finished its work nor ended.
    fn works(&self, id: AgentId) -> bool {
        let agent = self.agents.get(id.index());
        let run = agent.and_then(|agent| agent.life.phase.run());
        run.is_some_and(|run| run.ended.is_none() && run.finished.is_none())
    }

    fn end_run(&mut self, id: AgentId, run: RunId, why: Why) {
        if self.is_current(id, run) && !self.life(id).phase.is_stopping() {
            self.begin_stop(id, why);
        }
    }

    /// The daemon before us may have died between a decision and the storing of its goal.
    fn store_goals_again(&mut self) {
        for id in self.ids() {
            let agent = &self.agents[id.index()];
            if agent.declared {
                let goal = agent.life.goal;
                self.order(Effect::StoreGoal { agent: id, goal });
            }
        }
    }

    /// What the host holds, after a restore. Orders that may have been lost are given again.
    fn found(&mut self, id: AgentId, found: Option<RunId>) {
        let Some(agent) = self.agents.get(id.index()) else { return };
        let declared = agent.declared;
        let known = agent.life.phase.run().cloned();
        if let Some(found) = found {
            if known.as_ref().is_some_and(|run| run.id == found) {
                self.spawned(id, found);
                self.signal_again(id);
                if !declared {
                    self.begin_stop(id, Why::Removed);
                }
                return;
            }
            // A run that we do not know of is one too many.
            self.order(Effect::Signal { agent: id, run: found, ask: Ask::Kill });
        }
        let Some(run) = known else {
            if !declared {
                self.order(Effect::Forget { agent: id });
            }
            return;
        };
        if run.spawned || !declared || self.life(id).phase.is_stopping() {
            self.exited(id, run.id, Status::Unseen.into());
        } else {
            self.order(Effect::Spawn { agent: id, run: run.id, fresh: run.fresh });
        }
    }
}
