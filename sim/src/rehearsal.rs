//! A rehearsal: one agent, its policy and a script, on a virtual clock.
//!
//! What a rehearsal prints is what the supervisor would do, because it is the supervisor that does
//! it: only the world around it is made up. A rehearsal always ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use defib_core::policy::Trigger;
use defib_core::record::Record;
use defib_core::run::{ExitReport, Finding, Status};
use defib_core::time::Seconds;
use defib_core::{
    AgentId, AgentSpec, Class, Effect, Input, Mono, Name, Now, Outbox, Policy, RunId, Scope,
    Settings, Signal, State, Supervisor, Topology, Wall,
};
use serde::Serialize;

use crate::script::{End, Script};

/// A policy without limits and delays could restart for ever in no time.
const MOST_RUNS: u64 = 100_000;

/// What is rehearsed.
#[derive(Debug, Clone)]
pub struct Rehearsal {
    /// The agent's name.
    pub agent: Name,
    /// Its policy.
    pub policy: Policy,
    /// What its runs do.
    pub script: Script,
    /// How long it goes on at the most.
    pub horizon: Duration,
    /// The seed of the jitter; nothing is no jitter.
    pub jitter_seed: Option<u64>,
    /// The bound on all restarts of the supervisor.
    pub max_total_restarts: Option<u32>,
}

/// One event of a rehearsal, in the form of `events --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// Its number, from 1.
    pub seq: u64,
    /// Virtual seconds from the first start.
    pub at_s: Seconds,
    /// What happened.
    #[serde(flatten)]
    pub record: Record,
}

/// How a rehearsal ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The agent is at rest, in this state.
    AtRest(State),
    /// Time was up, and the agent in this state.
    TimeUp(State),
    /// The script was over, and the agent in this state.
    ScriptOver(State),
    /// It was cut off after too many runs.
    CutOff,
}

/// Everything that happened.
#[derive(Debug, Clone)]
pub struct Account {
    /// The events, in order.
    pub events: Vec<Event>,
    /// How it ended.
    pub outcome: Outcome,
    /// When it ended, from the first start on.
    pub ended: Duration,
}

impl Rehearsal {
    /// Plays it through.
    pub fn play(self) -> Account {
        let mut stage = Stage::new(self);
        let outcome = stage.play();
        let ended = stage.now.since(Mono::ZERO);
        Account { events: stage.events, outcome, ended }
    }
}

/// What the scripted agent does next by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    /// It shows that it lives.
    Beat,
    /// It does what its step ends with.
    End(End),
}

/// A run that lives.
#[derive(Debug, Clone, Copy)]
struct Alive {
    run: RunId,
    started: Mono,
    /// What it does next by itself, if anything.
    next: Option<(Mono, Deed)>,
}

struct Stage {
    rehearsal: Rehearsal,
    supervisor: Supervisor,
    agent: AgentId,
    now: Mono,
    alive: Option<Alive>,
    /// What the supervisor has still to be told at this moment.
    news: VecDeque<Input>,
    events: Vec<Event>,
}

impl Stage {
    fn new(rehearsal: Rehearsal) -> Stage {
        let mut supervisor = Supervisor::new(Settings { jitter_seed: rehearsal.jitter_seed });
        let name = rehearsal.agent.clone();
        let spec = AgentSpec::new(name.clone(), name.clone(), Arc::new(rehearsal.policy.clone()));
        let topology = Topology {
            agents: vec![spec],
            max_total_restarts: rehearsal.max_total_restarts,
            ..Topology::default()
        };
        // A topology is never refused.
        let apply = Input::Apply(Box::new(topology));
        let _ = supervisor.handle(Now::default(), apply, &mut Outbox::default());
        let agent = supervisor.agent(&name).expect("the agent was declared just now");
        let (now, alive) = (Mono::ZERO, None);
        let start = match rehearsal.policy.trigger {
            Trigger::Boot => Input::UpAsked(Scope::All),
            Trigger::Manual => Input::StartAsked(Scope::Agent(agent)),
            Trigger::Cron => Input::Triggered(agent),
        };
        let news = VecDeque::from([start]);
        Stage { rehearsal, supervisor, agent, now, alive, news, events: Vec::new() }
    }

    fn play(&mut self) -> Outcome {
        let horizon = Mono::ZERO + self.rehearsal.horizon;
        loop {
            while let Some(input) = self.news.pop_front() {
                self.tell(input);
            }
            let sight = self.supervisor.sight(self.agent);
            match sight.state {
                State::Idle | State::Stopped | State::Done | State::Halted | State::CrashedOut => {
                    return Outcome::AtRest(sight.state);
                }
                State::Starting
                | State::Running
                | State::Backoff
                | State::Waiting
                | State::Stopping => {}
            }
            if sight.run.is_some_and(|run| run.0 > MOST_RUNS) {
                return Outcome::CutOff;
            }
            if self.alive.is_some_and(|alive| !self.rehearsal.script.covers(alive.run.0)) {
                return Outcome::ScriptOver(sight.state);
            }
            let deed = self.alive.and_then(|alive| alive.next);
            let due = self.supervisor.next_deadline();
            let next = deed.map(|(at, _)| at).into_iter().chain(due).min();
            let Some(next) = next.filter(|next| *next <= horizon) else {
                self.now = horizon;
                return Outcome::TimeUp(sight.state);
            };
            self.now = next;
            match (self.alive, deed) {
                (Some(alive), Some((at, deed))) if at == next => self.perform(alive, deed),
                _ => self.news.push_back(Input::Tick),
            }
        }
    }

    /// The agent does what its script says.
    fn perform(&mut self, alive: Alive, deed: Deed) {
        match deed {
            Deed::Beat => {
                self.show_life(alive.run);
                self.alive = Some(Alive { next: Some(self.next_deed(&alive)), ..alive });
            }
            // From now on it is silent, and only the supervisor can end it.
            Deed::End(End::Hang) => {
                if self.now > alive.started {
                    self.show_life(alive.run);
                }
                self.alive = Some(Alive { next: None, ..alive });
            }
            Deed::End(end) => self.end(alive.run, end),
        }
    }

    fn show_life(&mut self, run: RunId) {
        let agent = self.agent;
        if self.rehearsal.policy.heartbeat.is_some() {
            self.news.push_back(Input::BeatSeen { agent, run });
        }
        self.news.push_back(Input::ActivitySeen { agent, run });
    }

    fn end(&mut self, run: RunId, end: End) {
        self.alive = None;
        let report = self.report(end);
        self.news.push_back(Input::Exited { agent: self.agent, run, report });
    }

    fn report(&self, end: End) -> ExitReport {
        match end {
            End::Exit(code) => Status::Exited(code).into(),
            End::Signal(signal) => Status::Signaled(signal).into(),
            End::Hang => Status::Signaled(Signal::TERM).into(),
            End::SpawnError => Status::NotSpawned { usable: false }.into(),
            End::Class { class, reset } => {
                let status = if matches!(class, Class::Done | Class::Voluntary) {
                    Status::Exited(0)
                } else {
                    Status::Exited(1)
                };
                let resets_at = reset.map(|reset| self.clock().wall + reset);
                let finding = Some(Finding { class, evidence: None, resets_at });
                ExitReport { status, finding, spoke: true }
            }
            End::Recorded { status, class } => {
                let found = |class| Finding { class, evidence: None, resets_at: None };
                ExitReport { status, finding: class.map(found), spoke: true }
            }
        }
    }

    /// What the run does next by itself: it shows that it lives where that is asked of it, and then
    /// does what its step says.
    fn next_deed(&self, alive: &Alive) -> (Mono, Deed) {
        let step = self.rehearsal.script.step(alive.run.0);
        let policy = &self.rehearsal.policy;
        let end = alive.started + step.run;
        let spans = [policy.heartbeat.map(|rule| rule.ttl), policy.silent_for];
        let beat = spans.into_iter().flatten().min().map(|span| self.now + span / 2);
        match beat {
            Some(beat) if self.now < beat && beat < end => (beat, Deed::Beat),
            Some(_) | None => (end, Deed::End(step.end)),
        }
    }

    fn clock(&self) -> Now {
        Now { mono: self.now, wall: Wall::default() + self.now.since(Mono::ZERO) }
    }

    /// Hands an input to the supervisor, notes what it decided and does what it orders.
    fn tell(&mut self, input: Input) {
        let mut out = Outbox::default();
        // Only the start is an operator's request, and a new agent takes that.
        let _ = self.supervisor.handle(self.clock(), input, &mut out);
        let at_s = Seconds(self.now.since(Mono::ZERO));
        for record in out.records {
            let seq = self.events.len() as u64 + 1;
            self.events.push(Event { seq, at_s, record });
        }
        for effect in out.effects {
            match effect {
                Effect::Spawn { run, .. } => self.spawn(run),
                Effect::Signal { run, .. } => self.end(run, End::Hang),
                Effect::StoreGoal { .. } | Effect::Inquire { .. } | Effect::Forget { .. } => {}
            }
        }
    }

    fn spawn(&mut self, run: RunId) {
        if run.0 > MOST_RUNS {
            return;
        }
        let end = self.rehearsal.script.step(run.0).end;
        if end.is_stillborn() && self.rehearsal.script.covers(run.0) {
            self.end(run, end);
            return;
        }
        let agent = self.agent;
        let alive = Alive { run, started: self.now, next: None };
        self.alive = Some(Alive { next: Some(self.next_deed(&alive)), ..alive });
        self.news.extend([Input::Spawned { agent, run }, Input::Readied { agent, run }]);
    }
}
