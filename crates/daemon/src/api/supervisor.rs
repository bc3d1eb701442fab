//! The supervisor as a whole: restarts, delays and permanent deaths, by agent and in all.
//!
//! What it adds up it takes from the events, so that it says the same after a daemon was replaced.
//! The hour slides; the totals begin with the daemon that was started anew.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use axum::extract::State;
use axum::response::Json;
use defib_core::record::Cause;
use defib_core::{CrashReason, Name, Record, Verdict, Wall, What};
use defib_history::{Event, EventFilter, HistoryError, Reader, Take};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::events::blocking;
use super::spec::Usual;
use super::{Desk, Trouble};
use crate::engine::Ask;
use crate::names::Shown;
use crate::wire::{SupervisorStatus, stamp};

/// What restarts are counted over.
const HOUR: Duration = Duration::from_secs(3600);

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(supervisor))
}

/// Restarts, delays and permanent deaths, by agent and in all.
#[utoipa::path(
    get, path = "/api/v1/supervisor", tag = "agents",
    responses((status = 200, body = SupervisorStatus), Usual)
)]
async fn supervisor(State(desk): State<Desk>) -> Result<Json<SupervisorStatus>, Trouble> {
    let mut status = desk.ask(Ask::Supervisor).await?;
    let (path, engine) = (desk.history.clone(), desk.engine.clone());
    let told = blocking(move || {
        engine.flush_history();
        Told::read(&Reader::open(&path)?)
    });
    let told = told.await?;
    for (name, restarts) in &mut status.agent_restart_counts {
        *restarts = told.in_the_hour.get(name).copied().unwrap_or(0);
    }
    let known = |name: &Name| status.agent_restart_counts.contains_key(name);
    status.agent_last_restart = told.last_restart.into_iter().filter(|(n, _)| known(n)).collect();
    status.agent_crash_reason = told.crash_reason.into_iter().filter(|(n, _)| known(n)).collect();
    status.restart_reasons = told.reasons;
    status.total_permanent_deaths = told.permanent_deaths;
    let shown = desk.engine.shown();
    status.agent_restart_counts = by_shown(shown, status.agent_restart_counts);
    status.agent_current_backoff = by_shown(shown, status.agent_current_backoff);
    status.agent_last_restart = by_shown(shown, status.agent_last_restart);
    status.agent_crash_reason = by_shown(shown, status.agent_crash_reason);
    Ok(Json(status))
}

fn by_shown<T>(shown: &Shown, by_key: BTreeMap<Name, T>) -> BTreeMap<Name, T> {
    by_key.into_iter().map(|(key, value)| (shown.name(&key), value)).collect()
}

/// What the events since the daemon was started add up to.
#[derive(Default)]
struct Told {
    in_the_hour: BTreeMap<Name, u32>,
    last_restart: BTreeMap<Name, String>,
    crash_reason: BTreeMap<Name, CrashReason>,
    reasons: BTreeMap<CrashReason, u64>,
    permanent_deaths: u64,
}

impl Told {
    fn read(reader: &Reader) -> Result<Told, HistoryError> {
        let of =
            |kind: &str| EventFilter { kinds: vec![kind.to_owned()], ..EventFilter::default() };
        let start = EventFilter { take: Take::Last(1), ..of("daemon-started") };
        let after = reader.events(&start)?.first().map(|event| event.seq);
        let now = defib_host::clock::now().wall;
        let mut told = Told::default();
        for kind in ["run-started", "run-died", "crashed-out", "halted", "rested"] {
            let filter = EventFilter { after, ..of(kind) };
            reader.each_event(&filter, |event| {
                told.fold(&event, now);
                ControlFlow::Continue(())
            })?;
        }
        Ok(told)
    }

    fn fold(&mut self, event: &Event, now: Wall) {
        let Some(Record { agent: name, what, .. }) = event.record() else { return };
        self.permanent_deaths += u64::from(what.is_permanent_death());
        if let What::RunStarted { cause: Cause::Restart, .. } = what {
            if now.since(event.at) < HOUR {
                *self.in_the_hour.entry(name.clone()).or_default() += 1;
            }
            self.last_restart.insert(name, stamp(event.at));
        } else if let What::RunDied { class, verdict, .. } = what
            && let Some(reason) = CrashReason::of(class)
        {
            self.crash_reason.insert(name, reason);
            if verdict == Verdict::Restart {
                *self.reasons.entry(reason).or_default() += 1;
            }
        }
    }
}
