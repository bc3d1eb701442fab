//! What has happened since this daemon began, counted; and how often figures were sent.

use std::collections::{BTreeMap, BTreeSet};

use defib_core::{Class, Name};
use defib_history::Event;

use super::{Figure, Labels, Number, Series, Spread, with};
use crate::tally::{Happened, Tally};
use crate::wire::AgentStatus;

/// What happened to one agent.
#[derive(Debug, Default)]
struct Counts {
    runs: u64,
    restarts: u64,
    permanent: u64,
    deaths: BTreeMap<Class, u64>,
}

/// How often figures were sent, and how often that failed.
#[derive(Debug, Clone, Copy, Default)]
struct Exports {
    delivered: u64,
    failed: u64,
}

/// The counters.
#[derive(Debug)]
pub(super) struct Counters {
    /// The number of the last event that was counted.
    seq: u64,
    tally: Tally,
    /// By agent and project.
    agents: BTreeMap<(Name, Option<Name>), Counts>,
    /// By project: from a death that is restarted to the next run that is ready.
    recovery: BTreeMap<Option<Name>, Spread>,
    /// Nothing where they are sent to nobody.
    exports: Option<Exports>,
}

impl Counters {
    /// Counters of what happens after the event with this number.
    pub(super) fn after(seq: u64) -> Counters {
        Counters {
            seq,
            tally: Tally::default(),
            agents: BTreeMap::new(),
            recovery: BTreeMap::new(),
            exports: None,
        }
    }

    /// The number of the last event that was counted.
    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    /// Counts an event.
    pub(super) fn add(&mut self, event: &Event) {
        self.seq = self.seq.max(event.seq);
        let Some(happened) = self.tally.add(event) else { return };
        let Some(agent) = &event.agent else { return };
        let counts = self.agents.entry((agent.clone(), event.project.clone())).or_default();
        match happened {
            Happened::Began { restart } => {
                counts.runs += 1;
                counts.restarts += u64::from(restart);
            }
            Happened::Died(class) => *counts.deaths.entry(class).or_default() += 1,
            Happened::Recovered(after) => {
                let spread = self.recovery.entry(event.project.clone()).or_default();
                spread.add(after.as_secs_f64());
            }
            Happened::Lost => counts.permanent += 1,
        }
    }

    /// Counts an attempt to send figures.
    pub(super) fn sent(&mut self, has_arrived: bool) {
        let exports = self.exports.get_or_insert_default();
        if has_arrived {
            exports.delivered += 1;
        } else {
            exports.failed += 1;
        }
    }

    /// Figures are sent to nobody any more.
    pub(super) fn sent_to_nobody(&mut self) {
        self.exports = None;
    }

    /// What was counted of these agents. Those that are gone are forgotten.
    pub(super) fn figures(&mut self, agents: &[AgentStatus]) -> Vec<Figure> {
        let names: BTreeSet<&Name> = agents.iter().map(|agent| &agent.name).collect();
        let projects: BTreeSet<&Name> = agents.iter().map(|agent| &agent.project).collect();
        self.agents.retain(|(agent, _), _| names.contains(agent));
        self.recovery
            .retain(|project, _| project.as_ref().is_none_or(|project| projects.contains(project)));
        let each = |number: &dyn Fn(&Counts) -> u64| {
            let series = self.agents.iter();
            let series = series.map(|(of, counts)| (labels(of), Number::Whole(number(counts))));
            Series::Counted(series.collect())
        };
        let deaths = self.agents.iter().flat_map(|(of, counts)| {
            let by_class = counts.deaths.iter();
            by_class.map(|(class, count)| {
                (with(labels(of), "class", class.word()), Number::Whole(*count))
            })
        });
        let recovery = self.recovery.iter();
        let recovery =
            recovery.map(|(project, spread)| (vec![of_project(project.as_ref())], spread.clone()));
        let mut figures = vec![
            Figure { name: "runs", help: "Runs that began", series: each(&|counts| counts.runs) },
            Figure {
                name: "deaths",
                help: "Runs that ended, by what they died of",
                series: Series::Counted(deaths.collect()),
            },
            Figure {
                name: "restarts",
                help: "Automatic restarts",
                series: each(&|counts| counts.restarts),
            },
            Figure {
                name: "permanent_deaths",
                help: "Deaths that need a person: crashed-out, halted, or failed and never restarted",
                series: each(&|counts| counts.permanent),
            },
            Figure {
                name: "recovery_seconds",
                help: "From a death that is restarted to the next run that is ready",
                series: Series::Spread(recovery.collect()),
            },
        ];
        figures.extend(self.exports.map(Exports::figure));
        figures
    }
}

impl Exports {
    fn figure(self) -> Figure {
        let outcomes = [("delivered", self.delivered), ("failed", self.failed)];
        let series = outcomes
            .map(|(outcome, count)| (vec![("outcome", outcome.to_owned())], Number::Whole(count)));
        Figure {
            name: "otlp_exports",
            help: "How often these figures were sent by OpenTelemetry, by what came of it",
            series: Series::Counted(series.to_vec()),
        }
    }
}

fn labels((agent, project): &(Name, Option<Name>)) -> Labels {
    vec![("agent", agent.plain().into()), of_project(project.as_ref())]
}

fn of_project(project: Option<&Name>) -> (&'static str, String) {
    ("project", project.map(|name| name.as_str().to_owned()).unwrap_or_default())
}
