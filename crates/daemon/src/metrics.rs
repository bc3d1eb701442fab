//! What `/metrics` shows, in the form of `OpenMetrics`.
//!
//! Counters are a fold of the events since this daemon began, brought up to date when somebody asks:
//! nobody asks, nothing is done. Everything else is what can be seen at that moment. An agent that is
//! gone leaves no series behind.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;

use defib_core::Name;
use defib_history::Event;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::tally::{Happened, Tally};
use crate::wire::AgentStatus;

type Labels = Vec<(&'static str, String)>;
type Number = Gauge<f64, AtomicU64>;
type Amount = Counter<f64, AtomicU64>;

/// From a tenth of a second to an hour: a respawn at once, and a long backoff.
const RECOVERY_S: [f64; 14] =
    [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 150.0, 300.0, 900.0, 3600.0];

/// What one process uses.
pub(crate) struct Own {
    pub(crate) process: &'static str,
    pub(crate) cpu_s: f64,
    pub(crate) resident_bytes: f64,
}

/// The counters.
pub(crate) struct Metrics {
    /// The number of the last event that was counted.
    seq: u64,
    tally: Tally,
    runs: Family<Labels, Counter>,
    deaths: Family<Labels, Counter>,
    restarts: Family<Labels, Counter>,
    permanent: Family<Labels, Counter>,
    recovery: Family<Labels, Histogram, fn() -> Histogram>,
    /// Every set of labels that was counted for an agent, and for a project.
    seen: BTreeSet<(Name, Labels)>,
    projects: BTreeSet<Name>,
}

impl Metrics {
    /// Counters of what happens after the event with this number.
    pub(crate) fn after(seq: u64) -> Metrics {
        let recovery: fn() -> Histogram = || Histogram::new(RECOVERY_S);
        Metrics {
            seq,
            tally: Tally::default(),
            runs: Family::default(),
            deaths: Family::default(),
            restarts: Family::default(),
            permanent: Family::default(),
            recovery: Family::new_with_constructor(recovery),
            seen: BTreeSet::new(),
            projects: BTreeSet::new(),
        }
    }

    /// The number of the last event that was counted.
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// Counts an event.
    pub(crate) fn add(&mut self, event: &Event) {
        self.seq = self.seq.max(event.seq);
        let Some(happened) = self.tally.add(event) else { return };
        let Some(agent) = &event.agent else { return };
        let project = event.project.as_ref().map(|name| name.as_str().to_owned());
        let project = project.unwrap_or_default();
        let labels: Labels = vec![("agent", agent.plain().into()), ("project", project.clone())];
        self.seen.insert((agent.clone(), labels.clone()));
        match happened {
            Happened::Began { restart } => {
                self.runs.get_or_create(&labels).inc();
                let restarts = self.restarts.get_or_create(&labels);
                if restart {
                    restarts.inc();
                }
            }
            Happened::Died(class) => {
                let mut labels = labels;
                labels.push(("class", class.word().to_owned()));
                self.deaths.get_or_create(&labels).inc();
                self.seen.insert((agent.clone(), labels));
            }
            Happened::Recovered(after) => {
                let labels = vec![("project", project)];
                self.recovery.get_or_create(&labels).observe(after.as_secs_f64());
                self.projects.extend(event.project.clone());
            }
            Happened::Lost => {
                self.permanent.get_or_create(&labels).inc();
            }
        }
    }

    /// What there is to show of these agents, and of nobody else.
    pub(crate) fn text(&mut self, agents: &[AgentStatus], own: &[Own]) -> String {
        self.forget_all_but(agents);
        let mut registry = Registry::with_prefix("defib");
        registry.register("runs", "Runs that began", self.runs.clone());
        registry.register("deaths", "Runs that ended, by what they died of", self.deaths.clone());
        registry.register("restarts", "Automatic restarts", self.restarts.clone());
        let permanent = "Deaths that need a person: crashed-out or halted";
        registry.register("permanent_deaths", permanent, self.permanent.clone());
        let recovery = "From a death that is restarted to the next run that is ready";
        registry.register("recovery_seconds", recovery, self.recovery.clone());
        show_agents(&mut registry, agents);
        show_own(&mut registry, own);
        let mut text = String::new();
        // A String takes whatever is written to it.
        let _ = encode(&mut text, &registry);
        text
    }

    fn forget_all_but(&mut self, agents: &[AgentStatus]) {
        let names: BTreeSet<&Name> = agents.iter().map(|agent| &agent.name).collect();
        let projects: BTreeSet<&Name> = agents.iter().map(|agent| &agent.project).collect();
        let gone = self.seen.extract_if(.., |(agent, _)| !names.contains(agent));
        for (_, labels) in gone {
            for family in [&self.runs, &self.deaths, &self.restarts, &self.permanent] {
                family.remove(&labels);
            }
        }
        for project in self.projects.extract_if(.., |project| !projects.contains(project)) {
            self.recovery.remove(&vec![("project", project.as_str().to_owned())]);
        }
    }
}

/// What can be seen of each agent.
fn show_agents(registry: &mut Registry, agents: &[AgentStatus]) {
    let state: Family<Labels, Gauge> = Family::default();
    let flapping: Family<Labels, Gauge> = Family::default();
    let failures: Family<Labels, Number> = Family::default();
    let uptime: Family<Labels, Number> = Family::default();
    let heartbeat: Family<Labels, Number> = Family::default();
    let spent: Family<Labels, Amount> = Family::default();
    let balance: Family<Labels, Number> = Family::default();
    for agent in agents {
        let labels: Labels = vec![
            ("agent", agent.name.plain().into()),
            ("project", agent.project.as_str().to_owned()),
        ];
        let with = |key: &'static str, value: &str| {
            let mut labels = labels.clone();
            labels.push((key, value.to_owned()));
            labels
        };
        state.get_or_create(&with("state", agent.state.word())).set(1);
        flapping.get_or_create(&labels).set(i64::from(agent.flapping));
        #[expect(clippy::cast_precision_loss, reason = "nothing fails so often")]
        failures.get_or_create(&labels).set(agent.consecutive_failures as f64);
        if let Some(lived) = agent.uptime_s {
            uptime.get_or_create(&labels).set(lived.0.as_secs_f64());
        }
        if let Some(age) = agent.heartbeat_age_s {
            heartbeat.get_or_create(&labels).set(age.0.as_secs_f64());
        }
        for (unit, amount) in agent.spent.iter().flatten() {
            spent.get_or_create(&with("unit", unit)).inc_by(*amount);
        }
        for (unit, amount) in agent.balance.iter().flatten() {
            balance.get_or_create(&with("unit", unit)).set(*amount);
        }
    }
    registry.register("agent_state", "1 for the state that an agent is in", state);
    registry.register("agent_flapping", "Whether it died 3 counted deaths in 10 minutes", flapping);
    registry.register("agent_consecutive_failures", "Failures in a row", failures);
    registry.register("agent_uptime_seconds", "How long its run has lived", uptime);
    let age = "How long ago it last showed that it lives, where that is asked of it";
    registry.register("agent_heartbeat_age_seconds", age, heartbeat);
    registry.register("agent_spent", "What it has spent, by unit", spent);
    registry.register("agent_balance", "What it has left to spend, by unit", balance);
}

/// What we use ourselves.
fn show_own(registry: &mut Registry, own: &[Own]) {
    let cpu: Family<Labels, Amount> = Family::default();
    let memory: Family<Labels, Number> = Family::default();
    for process in own {
        let labels: Labels = vec![("process", process.process.to_owned())];
        cpu.get_or_create(&labels).inc_by(process.cpu_s);
        memory.get_or_create(&labels).set(process.resident_bytes);
    }
    registry.register("process_cpu_seconds", "CPU time of defib's own processes", cpu);
    let resident = "Memory that defib's own processes have resident";
    registry.register("process_resident_memory_bytes", resident, memory);
    let version: Family<Labels, Gauge> = Family::default();
    version.get_or_create(&vec![("version", env!("CARGO_PKG_VERSION").to_owned())]).set(1);
    registry.register("build_info", "The daemon's version", version);
}
