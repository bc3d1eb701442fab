//! What a decision costs, and what an agent takes: `cargo bench -p defib-core`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use defib_core::limit::Limit;
use defib_core::run::Status;
use defib_core::{
    AgentId, AgentSpec, Effect, Input, Mono, Name, Now, Outbox, Policy, Preset, RunId, Scope,
    Settings, Supervisor, Topology,
};
use divan::Bencher;

fn main() {
    print_memory();
    divan::main();
}

/// A fleet that is up, each agent in its first run.
struct Fleet {
    supervisor: Supervisor,
    agents: Vec<(AgentId, RunId)>,
    out: Outbox,
    now: Now,
    next: usize,
}

impl Fleet {
    fn new(size: usize, policy: &Policy) -> Fleet {
        let policy = Arc::new(policy.clone());
        let name = |text: &str| Name::parse(text).expect("a plain name");
        let project = name("bench");
        let agents = (0..size)
            .map(|n| AgentSpec::new(name(&format!("agent-{n}")), project.clone(), policy.clone()))
            .collect();
        let settings = Settings { jitter_seed: Some(1) };
        let mut fleet = Fleet {
            supervisor: Supervisor::new(settings),
            agents: Vec::with_capacity(size),
            out: Outbox::default(),
            now: Now::default(),
            next: 0,
        };
        fleet.tell(Input::Apply(Box::new(Topology { agents, ..Topology::default() })));
        fleet.out.clear();
        fleet.tell(Input::UpAsked(Scope::All));
        let spawned = |effect: &Effect| match effect {
            Effect::Spawn { agent, run, .. } => Some((*agent, *run)),
            Effect::StoreGoal { .. }
            | Effect::Signal { .. }
            | Effect::Inquire { .. }
            | Effect::Forget { .. } => None,
        };
        fleet.agents = fleet.out.effects.iter().filter_map(spawned).collect();
        for (agent, run) in fleet.agents.clone() {
            fleet.out.clear();
            fleet.tell(Input::Spawned { agent, run });
        }
        fleet
    }

    fn tell(&mut self, input: Input) {
        let answer = self.supervisor.handle(self.now, input, &mut self.out);
        answer.expect("nothing here is refused");
    }

    /// One agent dies, and whatever has come due by then happens.
    fn one_death(&mut self) -> usize {
        let at = self.next;
        self.next = (at + 1) % self.agents.len();
        let (agent, run) = self.agents[at];
        self.agents[at].1 = RunId(run.0 + 1);
        self.now.mono = self.now.mono + Duration::from_micros(100);
        self.out.clear();
        self.tell(Input::Exited { agent, run, report: Status::Exited(1).into() });
        black_box(self.out.effects.len())
    }
}

/// Restarts at once and never gives up, so that every death leads to a respawn.
fn tireless() -> Policy {
    let limits = vec![Limit::deaths(u32::MAX, Duration::from_millis(1))];
    Policy { limits, ..Preset::Celistra.policy() }
}

#[divan::bench(args = [1, 100, 10_000, 100_000])]
fn one_death_and_its_respawn_among(bencher: Bencher, agents: usize) {
    let mut fleet = Fleet::new(agents, &tireless());
    bencher.bench_local(|| fleet.one_death());
}

#[divan::bench(args = [1, 100, 10_000, 100_000])]
fn one_death_and_its_backoff_among(bencher: Bencher, agents: usize) {
    // Each agent dies once in a while; its delay is over long before its turn comes again.
    let mut policy = Preset::Default.policy();
    policy.backoff.base = Duration::from_micros(1000);
    policy.backoff.cap = Duration::from_millis(1);
    policy.limits = vec![Limit::deaths(u32::MAX, Duration::from_millis(1))];
    let mut fleet = Fleet::new(agents.max(64), &policy);
    bencher.bench_local(|| fleet.one_death());
}

#[divan::bench(args = [10_000])]
fn one_beat_among(bencher: Bencher, agents: usize) {
    let policy = Policy { start_gap: Duration::ZERO, ..Preset::Aivex.policy() };
    let mut fleet = Fleet::new(agents, &policy);
    bencher.bench_local(|| {
        let (agent, run) = fleet.agents[fleet.next];
        fleet.next = (fleet.next + 1) % agents;
        fleet.now.mono = fleet.now.mono + Duration::from_micros(1);
        fleet.out.clear();
        fleet.tell(Input::BeatSeen { agent, run });
    });
}

/// What 100,000 agents add to the process, as the kernel counts it.
fn print_memory() {
    const AGENTS: usize = 100_000;
    let before = resident_bytes();
    let fleet = Fleet::new(AGENTS, &Preset::Default.policy());
    let after = resident_bytes();
    black_box(&fleet);
    match before.zip(after) {
        Some((before, after)) => {
            let each = after.saturating_sub(before) / AGENTS;
            println!("memory per agent in the core: {each} bytes ({AGENTS} agents, one policy)");
        }
        None => println!("memory per agent in the core: not known on this system"),
    }
    assert!(fleet.supervisor.next_deadline().is_none_or(|due| due > Mono::ZERO));
}

fn resident_bytes() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}
