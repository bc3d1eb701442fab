//! Figures for programs that watch: gathered once, shown as text to who asks (`text`) and sent by
//! OpenTelemetry to who is named (`otlp`, `export`). Both say the same of the same things.
//!
//! Counters are a fold of the events since this daemon began, brought up to date when somebody asks:
//! nobody asks, nothing is done. Everything else is what can be seen at that moment. An agent that is
//! gone leaves no series behind.

mod counters;
mod export;
mod otlp;
mod text;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use defib_history::{EventFilter, HistoryError, Reader};
use tokio::sync::oneshot;

pub(crate) use export::{Exporter, Target};

use self::counters::Counters;
use crate::engine::{Answer, Ask, EngineHandle};
use crate::wire::{AgentStatus, DaemonInfo};

/// What tells a series from the others of its figure.
type Labels = Vec<(&'static str, String)>;

/// From a twentieth of a second to an hour: a respawn at once, and a long backoff.
const RECOVERY_S: [f64; 14] =
    [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 150.0, 300.0, 900.0, 3600.0];

/// A number, as it was counted or measured.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Number {
    Whole(u64),
    Real(f64),
}

/// How values are spread over [`RECOVERY_S`].
#[derive(Debug, Clone, PartialEq, Default)]
struct Spread {
    /// How many are at most as large as each bound and larger than the one before; then the others.
    counts: [u64; RECOVERY_S.len() + 1],
    sum: f64,
}

impl Spread {
    fn add(&mut self, value: f64) {
        let place = RECOVERY_S.iter().position(|bound| value <= *bound);
        self.counts[place.unwrap_or(RECOVERY_S.len())] += 1;
        self.sum += value;
    }

    fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// The series of a figure.
#[derive(Debug, Clone, PartialEq)]
enum Series {
    /// They only grow: since this daemon began.
    Counted(Vec<(Labels, Number)>),
    /// They only grow: since before this daemon began.
    Lasting(Vec<(Labels, Number)>),
    /// They go up and down.
    Seen(Vec<(Labels, Number)>),
    /// Values in classes of their size, since this daemon began.
    Spread(Vec<(Labels, Spread)>),
}

/// One thing that is shown, of everything that it can be shown of.
#[derive(Debug, Clone, PartialEq)]
struct Figure {
    /// Its name behind `defib_`; what it ends in says its unit.
    name: &'static str,
    help: &'static str,
    series: Series,
}

/// What one of our own processes uses.
struct Own {
    process: &'static str,
    cpu_s: f64,
    resident_bytes: f64,
}

/// The figures, for whoever wants them.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    engine: EngineHandle,
    history: Arc<PathBuf>,
    counters: Arc<Mutex<Counters>>,
}

impl Metrics {
    /// Figures of what happens after the event with this number.
    pub(crate) fn after(seq: u64, engine: EngineHandle, history: Arc<PathBuf>) -> Metrics {
        Metrics { engine, history, counters: Arc::new(Mutex::new(Counters::after(seq))) }
    }

    /// What there is to show, as `OpenMetrics` text.
    pub(crate) async fn text(&self) -> Result<String, String> {
        self.with_figures(text::text).await
    }

    /// Gathers the figures and makes something of them, where that keeps nobody waiting.
    async fn with_figures<T: Send + 'static>(
        &self,
        make: impl FnOnce(Vec<Figure>) -> T + Send + 'static,
    ) -> Result<T, String> {
        let agents = self.ask(|answer| Ask::Status(Vec::new(), answer)).await?;
        let info = self.ask(Ask::Info).await?;
        let this = self.clone();
        let made = tokio::task::spawn_blocking(move || {
            this.gather(&agents, &info).map(make).map_err(|error| error.to_string())
        });
        made.await.map_err(|error| error.to_string())?
    }

    async fn ask<T>(&self, ask: impl FnOnce(Answer<T>) -> Ask) -> Result<T, String> {
        let (answer, answered) = oneshot::channel();
        self.engine.tell(ask(answer));
        let answered = answered.await.map_err(|_| "the daemon is ending".to_owned())?;
        answered.map_err(|detail| detail.message)
    }

    fn gather(
        &self,
        agents: &[AgentStatus],
        info: &DaemonInfo,
    ) -> Result<Vec<Figure>, HistoryError> {
        self.engine.flush_history();
        let mut counters = self.counters();
        let filter = EventFilter { after: Some(counters.seq()), ..EventFilter::default() };
        Reader::open(&self.history)?.each_event(&filter, |event| {
            counters.add(&event);
            ControlFlow::Continue(())
        })?;
        let mut figures = counters.figures(agents);
        drop(counters);
        figures.extend(of_agents(agents));
        let processes = [("daemon", info.pid), ("keeper", info.keeper_pid)];
        let own: Vec<Own> = processes.into_iter().filter_map(used).collect();
        figures.extend(of_ourselves(&own));
        Ok(figures)
    }

    fn counters(&self) -> MutexGuard<'_, Counters> {
        // Whoever panicked in there has counted wrongly at worst.
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(clippy::cast_precision_loss, reason = "no process has so much memory or time")]
fn used((process, pid): (&'static str, u32)) -> Option<Own> {
    let used = defib_host::usage::usage(pid)?;
    let cpu_s = used.cpu_ms as f64 / 1000.0;
    Some(Own { process, cpu_s, resident_bytes: used.resident_bytes as f64 })
}

fn of(agent: &AgentStatus) -> Labels {
    vec![("agent", agent.name.plain().into()), ("project", agent.project.as_str().to_owned())]
}

fn with(mut labels: Labels, key: &'static str, value: &str) -> Labels {
    labels.push((key, value.to_owned()));
    labels
}

/// What can be seen of each agent.
fn of_agents(agents: &[AgentStatus]) -> [Figure; 7] {
    use Number::{Real, Whole};
    type Amounts = Option<BTreeMap<String, f64>>;
    let each = |number: &dyn Fn(&AgentStatus) -> Option<Number>| {
        let series = agents.iter().filter_map(|agent| Some((of(agent), number(agent)?)));
        series.collect::<Vec<_>>()
    };
    let by_unit = |amounts: fn(&AgentStatus) -> &Amounts| {
        let of_one = move |agent: &'_ AgentStatus| {
            let amounts = amounts(agent).iter().flatten();
            let shown =
                |(unit, amount): (&String, &f64)| (with(of(agent), "unit", unit), Real(*amount));
            amounts.map(shown).collect::<Vec<_>>()
        };
        agents.iter().flat_map(of_one).collect::<Vec<_>>()
    };
    let state = |agent: &AgentStatus| (with(of(agent), "state", agent.state.word()), Whole(1));
    let figure = |name, help, series| Figure { name, help, series };
    [
        figure(
            "agent_state",
            "1 for the state that an agent is in",
            Series::Seen(agents.iter().map(state).collect()),
        ),
        figure(
            "agent_flapping",
            "Whether it died 3 counted deaths in 10 minutes",
            Series::Seen(each(&|agent| Some(Whole(agent.flapping.into())))),
        ),
        figure(
            "agent_consecutive_failures",
            "Failures in a row",
            Series::Seen(each(&|agent| Some(Whole(agent.consecutive_failures)))),
        ),
        figure(
            "agent_uptime_seconds",
            "How long its run has lived",
            Series::Seen(each(&|agent| Some(Real(agent.uptime_s?.0.as_secs_f64())))),
        ),
        figure(
            "agent_heartbeat_age_seconds",
            "How long ago it last showed that it lives, where that is asked of it",
            Series::Seen(each(&|agent| Some(Real(agent.heartbeat_age_s?.0.as_secs_f64())))),
        ),
        figure(
            "agent_spent",
            "What it has spent, by unit",
            Series::Lasting(by_unit(|agent| &agent.spent)),
        ),
        figure(
            "agent_balance",
            "What it has left to spend, by unit",
            Series::Seen(by_unit(|agent| &agent.balance)),
        ),
    ]
}

/// What we use ourselves.
fn of_ourselves(own: &[Own]) -> [Figure; 3] {
    let each = |number: &dyn Fn(&Own) -> f64| {
        let series = own.iter().map(|one| (vec![("process", one.process.to_owned())], number(one)));
        series.map(|(labels, number)| (labels, Number::Real(number))).collect::<Vec<_>>()
    };
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    [
        Figure {
            name: "process_cpu_seconds",
            help: "CPU time of defib's own processes",
            series: Series::Lasting(each(&|one| one.cpu_s)),
        },
        Figure {
            name: "process_resident_memory_bytes",
            help: "Memory that defib's own processes have resident",
            series: Series::Seen(each(&|one| one.resident_bytes)),
        },
        Figure {
            name: "build_info",
            help: "The daemon's version",
            series: Series::Seen(vec![(version, Number::Whole(1))]),
        },
    ]
}
