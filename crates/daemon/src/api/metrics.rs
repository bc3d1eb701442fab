//! Figures: `/metrics` for programs that watch, totals for people.

use std::ops::ControlFlow;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Json, Response};
use defib_history::{EventFilter, Reader};
use defib_host::clock::now;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::events::blocking;
use super::extract::{Params, moment};
use super::spec::Usual;
use super::{Desk, Trouble};
use crate::tally::{Happened, KINDS, Tally};
use crate::wire::{ErrorCode, TotalsStatus, stamp};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(metrics)).routes(routes!(totals))
}

/// Figures for programs that watch, as `OpenMetrics` text.
#[utoipa::path(
    get, path = "/metrics", tag = "daemon",
    responses(
        (status = 200, content_type = "application/openmetrics-text", body = String), Usual
    )
)]
async fn metrics(State(desk): State<Desk>) -> Result<Response, Trouble> {
    let text = desk.metrics.text().await;
    let text = text.map_err(|why| Trouble::new(ErrorCode::Failed, why))?;
    Ok(([(CONTENT_TYPE, OPEN_METRICS)], text).into_response())
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct TotalsQuery {
    /// Since when: RFC 3339, or how long ago. A day ago without it.
    since: Option<String>,
}

/// What everything adds up to: restarts, deaths that needed a person, time to recovery.
#[utoipa::path(
    get, path = "/api/v1/totals", tag = "history", params(TotalsQuery),
    responses((status = 200, body = TotalsStatus), Usual)
)]
async fn totals(
    State(desk): State<Desk>,
    Params(query): Params<TotalsQuery>,
) -> Result<Json<TotalsStatus>, Trouble> {
    let since = moment("since", query.since.as_deref().unwrap_or("24h"), now().wall)?;
    let (path, engine) = (desk.history.clone(), desk.engine.clone());
    let counted = blocking(move || {
        engine.flush_history();
        let (mut tally, mut recoveries) = (Tally::default(), Vec::<Duration>::new());
        let mut totals = TotalsStatus {
            since: stamp(since),
            runs: 0,
            deaths: 0,
            restarts: 0,
            permanent_deaths: 0,
            recoveries: 0,
            mean_recovery_s: None,
            median_recovery_s: None,
        };
        let kinds = KINDS.map(str::to_owned).to_vec();
        let filter = EventFilter { since: Some(since), kinds, ..EventFilter::default() };
        Reader::open(&path)?.each_event(&filter, |event| {
            match tally.add(&event) {
                Some(Happened::Began { restart }) => {
                    totals.runs += 1;
                    totals.restarts += u64::from(restart);
                }
                Some(Happened::Died(_)) => totals.deaths += 1,
                Some(Happened::Recovered(after)) => recoveries.push(after),
                Some(Happened::Lost) => totals.permanent_deaths += 1,
                None => {}
            }
            ControlFlow::Continue(())
        })?;
        summarise(&mut totals, recoveries);
        Ok(totals)
    });
    counted.await.map(Json)
}

fn summarise(totals: &mut TotalsStatus, mut recoveries: Vec<Duration>) {
    recoveries.sort_unstable();
    let count = recoveries.len();
    totals.recoveries = count as u64;
    let Ok(divisor) = u32::try_from(count) else { return };
    if divisor == 0 {
        return;
    }
    let sum: Duration = recoveries.iter().fold(Duration::ZERO, |sum, one| sum.saturating_add(*one));
    totals.mean_recovery_s = Some((sum / divisor).as_secs_f64());
    let middle = (recoveries[(count - 1) / 2] + recoveries[count / 2]) / 2;
    totals.median_recovery_s = Some(middle.as_secs_f64());
}
