//! One step of the daemon: an input, and everything that comes of it, in the order of the contract.
//!
//! Handle; keep what was touched; store the records; carry out the effects one at a time; only then
//! acknowledge. The daemon may die before the first and after each of the others. What was kept and
//! stored belongs together: either both happened or neither.

use defib_core::run::Status;
use defib_core::{
    AgentId, Ask, Effect, Goal, Input, Now, Record, Refusal, RunId, Scope, State, Topology, Wall,
    What,
};

use super::Sabotage;
use super::check::{Breach, Checked, Invariant, rest, runs, silence, views};
use super::clock::after;
use super::coverage::Outcome;
use super::day::{Cut, Day};
use super::draw::Draw;
use super::forest::Slot;
use super::queue::{End, Event};
use std::time::Duration;

/// How often everything is compared, and not only what was touched.
const FULL_EVERY: u64 = 64;

/// What came of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// The daemon acknowledged it.
    Done(Result<(), Refusal>),
    /// There is no daemon, or none any more.
    Nobody,
}

impl Day {
    /// Hands one input to the daemon.
    pub(super) fn step(&mut self, input: Input) -> Result<Answer, Breach> {
        self.step_with(input, &[])
    }

    /// Hands one request to the daemon, which makes these goals of it.
    pub(super) fn step_with(
        &mut self,
        input: Input,
        goals: &[(Slot, Goal)],
    ) -> Result<Answer, Breach> {
        let Some(core) = &mut self.core else { return Ok(Answer::Nobody) };
        let cut = self.next.dying.take();
        if cut == Some(Cut::BeforeKeep) {
            self.coverage.note(Outcome::DiedBeforeKeep);
            self.daemon_dies();
            return Ok(Answer::Nobody);
        }
        let now = self.clock.now();
        self.trace.line(&self.clock, || format!("> {input:?}"));
        let probed = matches!(input, Input::ProbeFailed { .. });
        let applied = matches!(input, Input::Apply(_));
        let is_sign = input.is_sign();
        // Whoever comes after a daemon that dies over this goes on with it.
        self.next.closing |= input == Input::CloseAsked;
        self.counts.booting = matches!(input, Input::Booted);
        self.order.begin(ends_many(&input));
        self.delays.begin(input == Input::Tick, stated_reset(&input, &self.slots));
        self.out.clear();
        let answer = core.handle(now, input, &mut self.out);
        self.handled += 1;
        let deadline = core.next_deadline();
        self.digest.deadline(deadline);
        self.coverage.stale(self.out.stale);
        if applied {
            self.learn_ids();
            self.limits.declare(&self.forest);
            self.order.forget();
        }
        for (slot, goal) in goals {
            self.goals.want(*slot, *goal);
        }
        self.keep();
        self.store(now, probed)?;
        self.compare(now)?;
        // A sign makes nothing come due; the tick that follows it does.
        let in_time = deadline.is_none_or(|due| due > now.mono);
        Invariant::Contract.check(is_sign || in_time, || {
            format!("the deadline {deadline:?} is not after {now:?}")
        })?;
        if self.carry_out_all(cut)? == Answer::Nobody {
            return Ok(Answer::Nobody);
        }
        for (slot, _) in goals {
            self.goals.acknowledged(*slot, &self.keeper.cells[*slot])?;
        }
        Ok(Answer::Done(answer))
    }

    /// Which agent of the supervisor has which slot.
    pub(super) fn learn_ids(&mut self) {
        let Some(core) = &self.core else { return };
        for (slot, plant) in self.forest.plants.iter().enumerate() {
            self.ids[slot] = core.known(&plant.name);
            if let Some(id) = self.ids[slot] {
                let len = self.slots.len().max(id.index() + 1);
                self.slots.resize(len, 0);
                self.slots[id.index()] = slot;
            }
        }
    }

    /// A daemon that has just risen keeps everything.
    pub(super) fn keep_all(&mut self) {
        let Some(core) = &self.core else { return };
        for (slot, id) in self.ids.iter().enumerate() {
            self.keeper.cells[slot].life = id.map(|id| core.life(id).clone());
        }
    }

    fn keep(&mut self) {
        if self.sabotage == Some(Sabotage::KeepNothing) && self.handled.is_multiple_of(7) {
            return;
        }
        let Some(core) = &self.core else { return };
        for id in &self.out.touched {
            let slot = self.slots[id.index()];
            self.keeper.cells[slot].life = Some(core.life(*id).clone());
        }
    }

    /// Stores the records and looks at each.
    fn store(&mut self, now: Now, probed: bool) -> Checked {
        let mut records = std::mem::take(&mut self.out.records);
        let dropping = self.sabotage == Some(Sabotage::DropRecord);
        let mut missed = None;
        for mut record in records.drain(..) {
            if self.sabotage == Some(Sabotage::Miscount)
                && let What::RunDied { consecutive_failures, .. } = &mut record.what
            {
                *consecutive_failures += 1;
            }
            self.trace.line(&self.clock, || {
                format!("    {} {:?} {:?}", record.agent, record.run, record.what)
            });
            self.digest.record(&record);
            self.coverage.record(&record);
            let slot = slot_of(&record);
            self.limits.record(&self.forest, slot, now.mono, &record)?;
            self.delays.record(&self.forest, slot, now, &record)?;
            self.counts.record(&self.forest, slot, &record)?;
            self.ladder.record(slot, &record);
            self.order.record(&self.forest, &self.view, slot, &record)?;
            let process = self.keeper.cells[slot].process.as_ref();
            let process = process.filter(|process| Some(process.run) == record.run);
            match &record.what {
                What::HeartbeatMissed { ttl_s, .. } => {
                    missed = Some(slot);
                    let rule = self.forest.plants[slot].policy.heartbeat;
                    let grace = rule.map_or(Duration::ZERO, |rule| rule.grace);
                    silence::heartbeat_missed(slot, process, self.moment(), ttl_s.0, grace)?;
                }
                What::StopRequested { by: defib_core::record::By::Timeout, .. } => {
                    if missed != Some(slot) && !probed {
                        let policy = &self.forest.plants[slot].policy;
                        silence::overdue(slot, process, self.clock.moment(), policy)?;
                    }
                }
                What::RestartScheduled { .. } => self.restarts += 1,
                What::RunStarted { .. } => {
                    self.keeper.cells[slot].decided = self.clock.moment();
                }
                What::RunReady
                | What::RunDied { .. }
                | What::WaitStarted { .. }
                | What::WaitEnded { .. }
                | What::LimitTripped { .. }
                | What::CrashedOut { .. }
                | What::Halted { .. }
                | What::Revived
                | What::StopRequested { .. }
                | What::Stopped { .. }
                | What::Rested { .. }
                | What::Escalated { .. }
                | What::GroupRestarted { .. } => {}
            }
            if !dropping || self.history.len() % 50 != 49 {
                self.view.fold(now, &record);
            }
            self.history.push((now, record));
        }
        // Its room is used again.
        self.out.records = records;
        Ok(())
    }

    /// Compares what the supervisor sees with what was stored and kept.
    fn compare(&mut self, now: Now) -> Checked {
        let Some(core) = &self.core else { return Ok(()) };
        let sees = |id: AgentId| views::agrees(&self.view, core.name(id), core.sight(id));
        for id in &self.out.touched {
            sees(*id)?;
            let slot = self.slots[id.index()];
            let declared = self.forest.plants[slot].declared && !self.next.closing;
            let wanted = if declared { self.goals.wanted(slot) } else { Goal::Down };
            rest::is_no_riddle(slot, wanted, core.sight(*id))?;
        }
        if self.handled.is_multiple_of(FULL_EVERY) {
            for (slot, id) in self.ids.iter().enumerate() {
                let Some(id) = id else { continue };
                sees(*id)?;
                let kept = self.keeper.cells[slot].life.as_ref();
                Invariant::Contract.check(kept == Some(core.life(*id)), || {
                    format!("a{slot} is {:?} and was kept as {kept:?}", core.life(*id))
                })?;
            }
        }
        let state_of = |slot: Slot| self.ids[slot].map_or(State::Idle, |id| core.sight(id).state);
        self.order.step_over(&self.forest, state_of)?;
        self.delays.step_over(&self.forest, now.mono, |slot| {
            matches!(state_of(slot), State::Running | State::Done)
        })
    }

    fn carry_out_all(&mut self, cut: Option<Cut>) -> Result<Answer, Breach> {
        let effects = std::mem::take(&mut self.out.effects);
        let reached = match cut {
            None | Some(Cut::BeforeKeep) => None,
            // It waits for a step that has effects.
            Some(Cut::BetweenEffects) if effects.is_empty() => {
                self.next.dying = cut;
                None
            }
            Some(Cut::BetweenEffects) => Some(self.draw.place(effects.len())),
            Some(Cut::BeforeAck) => Some(effects.len()),
        };
        for effect in effects.iter().take(reached.unwrap_or(effects.len())) {
            self.trace.line(&self.clock, || format!("  < {effect:?}"));
            self.digest.effect(effect);
            self.carry_out(*effect)?;
        }
        let answer = match reached {
            None => Answer::Done(Ok(())),
            Some(reached) => {
                self.coverage.note(if reached < effects.len() {
                    Outcome::DiedBetweenEffects
                } else {
                    Outcome::DiedBeforeAck
                });
                self.daemon_dies();
                Answer::Nobody
            }
        };
        self.out.effects = effects;
        Ok(answer)
    }

    fn carry_out(&mut self, effect: Effect) -> Checked {
        match effect {
            Effect::StoreGoal { agent, goal } => {
                if self.sabotage != Some(Sabotage::SwallowStoreGoal) {
                    self.keeper.cells[self.slots[agent.index()]].goal = Some(goal);
                }
                Ok(())
            }
            Effect::Spawn { agent, run, .. } => {
                let slot = self.slots[agent.index()];
                self.spawn(slot, run)?;
                if self.sabotage == Some(Sabotage::SpawnTwice) {
                    self.spawn(slot, RunId(run.0 + 1))?;
                }
                Ok(())
            }
            Effect::Signal { agent, run, ask } => {
                let skips = self.sabotage == Some(Sabotage::SkipTheLadder);
                self.signal(self.slots[agent.index()], run, if skips { Ask::Kill } else { ask })
            }
            Effect::Inquire { agent, run } => {
                self.inquire(self.slots[agent.index()], run);
                Ok(())
            }
            Effect::Forget { agent } => self.forget(self.slots[agent.index()]),
        }
    }

    fn spawn(&mut self, slot: Slot, run: RunId) -> Checked {
        let cell = &self.keeper.cells[slot];
        self.goals.may_spawn(slot, cell)?;
        Invariant::Goal.check(!self.next.closing, || {
            format!("a{slot}: a spawn is ordered while everything is to end")
        })?;
        if !runs::spawn(&self.keeper, slot, run)? {
            self.come_to_life(slot, run);
        }
        Ok(())
    }

    fn signal(&mut self, slot: Slot, run: RunId, ask: Ask) -> Checked {
        self.goals.may_signal(slot, &self.keeper.cells[slot])?;
        self.ladder.signal(&self.forest, slot, run, ask, self.clock.moment())?;
        if self.sabotage == Some(Sabotage::SwallowSignal) {
            return Ok(());
        }
        if ask == Ask::Stop
            && let Some(core) = &self.core
        {
            self.order.asked(&self.forest, slot, |other| {
                self.ids[other].is_some_and(|id| core.sight(id).state == State::Stopping)
            })?;
        }
        let moment = self.moment();
        let latency = match ask {
            Ask::Stop => self.draw.spread(Duration::from_micros(100), Duration::from_secs(3)),
            Ask::Kill => latency(&mut self.draw),
        };
        if let Some(process) = self.keeper.process(slot, run) {
            let end = match ask {
                Ask::Stop if process.plan.deaf => return Ok(()),
                Ask::Stop => End::Asked,
                Ask::Kill => End::Killed,
            };
            if end == End::Killed {
                self.coverage.note(Outcome::Killed);
            }
            self.queue.push(after(moment, latency), Event::Ends(slot, run, end));
        }
        Ok(())
    }

    /// What became of a run: nothing yet, or its report, or that nobody knows.
    fn inquire(&mut self, slot: Slot, run: RunId) {
        self.coverage.note(Outcome::Inquired);
        if self.keeper.process(slot, run).is_some() {
            return;
        }
        if self.keeper.report(slot, run).is_none() {
            let report = Status::Unseen.into();
            self.keeper.reports.push(super::keeper::Kept { slot, run, report });
        }
        let at = after(self.moment(), latency(&mut self.draw));
        self.queue.push(at, Event::Report(slot, run, false));
    }

    fn forget(&mut self, slot: Slot) -> Checked {
        self.coverage.note(Outcome::Forgotten);
        let process = self.keeper.cells[slot].process.as_ref();
        Invariant::Contract
            .check(process.is_none(), || format!("a{slot} is forgotten while {process:?} lives"))?;
        self.keeper.forget(slot);
        self.goals.want(slot, Goal::Up);
        self.limits.clear(slot);
        Ok(())
    }

    /// What the supervisor is told of the forest.
    pub(super) fn topology(&self) -> Topology {
        let mut topology = self.forest.topology();
        topology.max_total_restarts = self.max_total_restarts;
        if self.sabotage == Some(Sabotage::ReverseMembers) {
            topology.groups.iter_mut().for_each(|group| group.members.reverse());
        }
        if self.sabotage == Some(Sabotage::LoosenLimits) {
            for agent in &mut topology.agents {
                let policy = std::sync::Arc::make_mut(&mut agent.policy);
                policy.limits.iter_mut().for_each(|limit| limit.max += 1);
            }
        }
        topology
    }
}

/// Whether the input may end many runs, each in its turn.
fn ends_many(input: &Input) -> bool {
    match input {
        Input::DownAsked(_) | Input::CloseAsked => true,
        Input::StopAsked { scope, .. } | Input::RestartAsked { scope, .. } => {
            !matches!(scope, Scope::Agent(_))
        }
        Input::Tick
        | Input::Apply(_)
        | Input::Booted
        | Input::UpAsked(_)
        | Input::StartAsked(_)
        | Input::ReviveAsked(_)
        | Input::Spawned { .. }
        | Input::Readied { .. }
        | Input::Ended { .. }
        | Input::Exited { .. }
        | Input::BeatSeen { .. }
        | Input::ActivitySeen { .. }
        | Input::PromptSeen { .. }
        | Input::FinishSeen { .. }
        | Input::Lingered { .. }
        | Input::Extended { .. }
        | Input::ProbeFailed { .. }
        | Input::Overspent { .. }
        | Input::ShutdownWished { .. }
        | Input::WaitOver(_)
        | Input::Triggered(_)
        | Input::BalanceSeen { .. }
        | Input::AllowanceSeen { .. }
        | Input::Found { .. }
        | Input::Slept(_) => false,
    }
}

/// The agent of whose end the input speaks, and the reset that was stated with it.
fn stated_reset(input: &Input, slots: &[Slot]) -> Option<(Slot, Wall)> {
    let Input::Exited { agent, report, .. } = input else { return None };
    Some((slots[agent.index()], report.finding.as_ref()?.resets_at?))
}

/// How long a word between host and daemon takes.
pub(super) fn latency(draw: &mut Draw) -> Duration {
    draw.spread(Duration::from_micros(20), Duration::from_millis(50))
}

/// Whom a record is about: agents are called by their slots.
fn slot_of(record: &Record) -> Slot {
    record.agent.as_str()[1..].parse().unwrap_or(0)
}
