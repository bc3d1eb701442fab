//! Why an agent is as it is.

use axum::extract::State;
use axum::response::Json;
use defib_core::RunId;
use defib_history::{EventFilter, Reader, Run, RunFilter, Take, rfc3339};
use defib_host::clock::now;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::events::blocking;
use super::extract::{Params, Segments};
use super::money::lines_of;
use super::spec::{OfAgent, Usual};
use super::{Desk, Trouble};
use crate::why::Facts;
use crate::wire::{ErrorCode, Why};

/// How far back the last run that ended is looked for: all since then were cut off by a lost disk.
const RUNS: u32 = 1_000;
/// No more events of one run are told: the newest.
const EVENTS: u32 = 1_000;

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(why))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct WhyQuery {
    /// About this run, not the last one that ended.
    run: Option<u64>,
}

/// Why an agent is as it is: what it died of and how that is known, what was decided and by which
/// numbers, what happens next, what to do.
#[utoipa::path(
    get, path = "/api/v1/agents/{name}/why", tag = "agents",
    params(("name" = String, Path, description = "The agent."), WhyQuery),
    responses((status = 200, body = Why), OfAgent, Usual)
)]
async fn why(
    State(desk): State<Desk>,
    Segments(name): Segments<String>,
    Params(query): Params<WhyQuery>,
) -> Result<Json<Why>, Trouble> {
    let agent = desk.status(&name).await?;
    let lines = if agent.balance.is_some() || agent.spent.is_some() {
        lines_of(&desk, agent.name.clone()).await?
    } else {
        Vec::new()
    };
    let (path, engine) = (desk.history.clone(), desk.engine.clone());
    let (name, wanted) = (agent.name.clone(), query.run.map(RunId));
    let read = blocking(move || {
        engine.flush_history();
        let reader = Reader::open(&path)?;
        let run = if let Some(wanted) = wanted {
            reader.run(&name, wanted)?
        } else {
            let agent = Some(name.clone());
            let runs = RunFilter { agent, limit: Some(RUNS), ..RunFilter::default() };
            reader.runs(&runs)?.into_iter().find(|run| run.death.is_some())
        };
        let Some(run) = run else { return Ok((None, Vec::new(), Vec::new())) };
        let events = EventFilter {
            after: u64::try_from(run.id).ok(),
            agent: Some(name.clone()),
            run: Some(run.run),
            take: Take::Last(EVENTS),
            ..EventFilter::default()
        };
        let mut events = reader.events(&events)?;
        events.retain(|event| event.kind != "run-ready");
        let tail = reader.tail(&name, run.run)?.unwrap_or_default();
        Ok((Some(run), events, tail))
    });
    let (mut run, mut events, mut tail) = read.await?;
    // A history that cannot be written does not have the last death: an earlier one is not to be taken
    // for it.
    let is_earlier = |run: &Run| {
        let (told, last) = (run.death.as_ref(), agent.last_death.as_ref());
        told.zip(last).is_some_and(|(told, last)| rfc3339(told.at) < last.at)
    };
    if query.run.is_none() && run.as_ref().is_some_and(is_earlier) {
        (run, events, tail) = (None, Vec::new(), Vec::new());
    }
    let shown = desk.engine.shown();
    let agent = shown.status(agent);
    if let Some(run) = &mut run {
        run.agent = shown.name(&run.agent);
    }
    let events = events.into_iter().map(|event| shown.event(event)).collect();
    if let (Some(wanted), None) = (query.run, &run) {
        let message = format!("{} has no run {wanted}", agent.name);
        let hint = format!("`defib history {}` lists its runs", agent.name);
        return Err(Trouble::new(ErrorCode::NoSuchAgent, message).hint(&hint));
    }
    Ok(Json(Facts { agent, run, events, tail, lines, now: now().wall }.told()))
}
