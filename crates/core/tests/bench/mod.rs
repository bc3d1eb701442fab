//! A test bench: a supervisor, a virtual clock and obedient processes.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use defib_core::run::{ExitReport, Finding, Status};
use defib_core::{
    AgentId, AgentSpec, Ask, Class, Continuity, Effect, GroupSpec, Input, Mono, Name, Now, Outbox,
    Policy, Preset, Record, Refusal, RunId, Scope, Settings, Signal, Snapshot, State, Strategy,
    Supervisor, Topology, View, Wall, What,
};

pub fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

pub fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A preset's policy without jitter, so that delays are plain numbers.
pub fn plain(preset: Preset) -> Policy {
    preset.policy()
}

pub fn agent(text: &str, policy: &Policy) -> AgentSpec {
    AgentSpec::new(name(text), name("project"), Arc::new(policy.clone()))
}

pub fn group(text: &str, strategy: Strategy, members: &[&str]) -> GroupSpec {
    let members = members.iter().map(|member| name(member)).collect();
    let budget = Some(GroupSpec::DEFAULT_BUDGET);
    GroupSpec { name: name(text), strategy, budget, members }
}

/// A supervisor whose processes spawn at once and end when asked, unless they are deaf.
pub struct Bench {
    pub supervisor: Supervisor,
    pub view: View,
    pub log: Vec<(Mono, Record)>,
    pub effects: Vec<Effect>,
    pub stale: u32,
    pub deaf: BTreeSet<&'static str>,
    now: Mono,
    wall_ahead: Duration,
}

impl Bench {
    pub fn new(settings: Settings, topology: Topology) -> Bench {
        let mut bench = Bench {
            supervisor: Supervisor::new(settings),
            view: View::default(),
            log: Vec::new(),
            effects: Vec::new(),
            stale: 0,
            deaf: BTreeSet::new(),
            now: Mono::ZERO,
            wall_ahead: Duration::ZERO,
        };
        bench.tell(Input::Apply(Box::new(topology))).unwrap();
        bench
    }

    /// One agent called `a`, up.
    pub fn solo(policy: &Policy) -> Bench {
        Bench::fleet(vec![agent("a", policy)], Vec::new())
    }

    /// Agents and groups, up, without jitter.
    pub fn fleet(agents: Vec<AgentSpec>, groups: Vec<GroupSpec>) -> Bench {
        let mut bench =
            Bench::new(Settings::default(), Topology { agents, groups, ..Topology::default() });
        bench.tell(Input::UpAsked(Scope::All)).unwrap();
        bench
    }

    pub fn now(&self) -> Duration {
        self.now.since(Mono::ZERO)
    }

    pub fn clock(&self) -> Now {
        let wall = Wall::from_millis(1_000_000_000_000) + self.now() + self.wall_ahead;
        Now { mono: self.now, wall }
    }

    pub fn tell(&mut self, input: Input) -> Result<(), Refusal> {
        let mut out = Outbox::default();
        let answer = self.supervisor.handle(self.clock(), input, &mut out);
        self.stale += out.stale;
        for record in out.records {
            self.view.fold(self.clock(), &record);
            self.log.push((self.now, record));
        }
        self.effects.extend(&out.effects);
        for effect in out.effects {
            match effect {
                Effect::Spawn { agent, run, .. } => self.tell(Input::Spawned { agent, run })?,
                Effect::Signal { agent, run, ask } => {
                    let deaf = self.deaf.contains(self.supervisor.name(agent).as_str());
                    let signal = match ask {
                        Ask::Stop if deaf => continue,
                        Ask::Stop => Signal::TERM,
                        Ask::Kill => Signal::KILL,
                    };
                    let report = Status::Signaled(signal).into();
                    self.tell(Input::Exited { agent, run, report })?;
                }
                Effect::StoreGoal { .. } | Effect::Inquire { .. } | Effect::Forget { .. } => {}
            }
        }
        answer
    }

    pub fn id(&self, who: &str) -> AgentId {
        self.supervisor.agent(&name(who)).unwrap()
    }

    pub fn scope(&self, who: &str) -> Scope {
        match self.supervisor.group(&name(who)) {
            Some(group) => Scope::Group(group),
            None => Scope::Agent(self.id(who)),
        }
    }

    pub fn run(&self, who: &str) -> RunId {
        self.supervisor.sight(self.id(who)).run.unwrap()
    }

    pub fn state(&self, who: &str) -> State {
        let sight = self.supervisor.sight(self.id(who));
        if let Some(view) = self.view.agent(&name(who)) {
            assert_eq!(view.sight, sight, "the view of {who} is not what is the case");
        }
        sight.state
    }

    /// The agent's run ends now.
    pub fn end(&mut self, who: &str, report: impl Into<ExitReport>) {
        let (agent, run) = (self.id(who), self.run(who));
        self.tell(Input::Exited { agent, run, report: report.into() }).unwrap();
    }

    pub fn exit(&mut self, who: &str, code: i32) {
        self.end(who, Status::Exited(code));
    }

    pub fn end_as(&mut self, who: &str, class: Class, resets_in: Option<Duration>) {
        let resets_at = resets_in.map(|span| self.clock().wall + span);
        let finding = Some(Finding { class, evidence: None, resets_at });
        self.end(who, ExitReport { status: Status::Exited(1), finding, spoke: true });
    }

    /// Lets time pass, with everything that comes due in it.
    pub fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(due) = self.supervisor.next_deadline().filter(|due| *due <= end) {
            assert!(due > self.now, "a deadline was left behind");
            self.now = due;
            self.tell(Input::Tick).unwrap();
        }
        self.now = end;
    }

    /// Lets time pass until something comes due.
    pub fn pass_to_next(&mut self) -> Duration {
        let due = self.supervisor.next_deadline().expect("something should be due");
        let span = due.since(self.now);
        self.pass(span);
        span
    }

    /// The machine sleeps: the clock goes on, and nobody can look at it.
    pub fn sleep(&mut self, span: Duration) {
        self.now = self.now + span;
        self.tell(Input::Slept(span)).unwrap();
    }

    /// The daemon dies and its successor goes on, on the same or on a newly started machine.
    pub fn succeed(&mut self, topology: Topology, continuity: Continuity) {
        let json = serde_json::to_string(&self.supervisor.snapshot()).unwrap();
        self.resume(serde_json::from_str(&json).unwrap(), topology, continuity);
    }

    /// A daemon goes on from a snapshot, on the same or on a newly started machine.
    pub fn resume(&mut self, snapshot: Snapshot, topology: Topology, continuity: Continuity) {
        if continuity == Continuity::Reboot {
            self.now = Mono::from_nanos(1_000_000_000);
        }
        let settings = Settings::default();
        self.supervisor =
            Supervisor::restore(settings, topology, snapshot, continuity, self.clock());
    }

    /// Lets time pass, and nobody looks what has come due in it.
    pub fn pass_unnoticed(&mut self, span: Duration) {
        self.now = self.now + span;
    }

    pub fn step_wall(&mut self, span: Duration) {
        self.wall_ahead += span;
        self.tell(Input::Tick).unwrap();
    }

    /// The types of the records of an agent since the `from`-th record.
    pub fn types(&self, from: usize, who: &str) -> Vec<String> {
        let json = |record: &Record| serde_json::to_value(record).unwrap()["type"].clone();
        self.log[from..]
            .iter()
            .filter(|(_, record)| record.agent.as_str() == who)
            .map(|(_, record)| json(record).as_str().unwrap().to_owned())
            .collect()
    }

    /// The delays of the restarts that were scheduled for an agent.
    pub fn delays_ms(&self, who: &str) -> Vec<u64> {
        self.told(who)
            .filter_map(|what| match what {
                What::RestartScheduled { delay_ms, .. } => Some(*delay_ms),
                _ => None,
            })
            .collect()
    }

    pub fn runs(&self, who: &str) -> usize {
        self.told(who).filter(|what| matches!(what, What::RunStarted { .. })).count()
    }

    pub fn told(&self, who: &str) -> impl Iterator<Item = &What> {
        self.log
            .iter()
            .filter(move |(_, record)| record.agent.as_str() == who)
            .map(|(_, r)| &r.what)
    }

    /// The agents in the order in which something of the kind was told of them.
    pub fn order(&self, from: usize, wanted: impl Fn(&What) -> bool) -> Vec<String> {
        self.log[from..]
            .iter()
            .filter(|(_, record)| wanted(&record.what))
            .map(|(_, record)| record.agent.to_string())
            .collect()
    }

    /// Fails the agent at once, again and again, until it is not restarted any more or was
    /// restarted `most` times. Gives the delays.
    pub fn crash_loop(&mut self, who: &str, most: usize) -> Vec<u64> {
        let before = self.delays_ms(who).len();
        for _ in 0..=most {
            self.exit(who, 1);
            match self.state(who) {
                State::Backoff => {
                    self.pass_to_next();
                }
                State::Starting | State::Running => {}
                _ => break,
            }
        }
        self.delays_ms(who).split_off(before)
    }
}
