//! Runs: what agents lived through, newest first.

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use defib_core::{Name, RunId, Wall};
use defib_history::{Reader, RunFilter};
use defib_host::clock::now;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Listed;
use super::events::blocking;
use super::extract::{Params, Segments, bounded, moment};
use super::spec::{OfAgent, Usual};
use super::{Desk, Trouble};
use crate::doors::Sees;
use crate::engine::Ask;
use crate::wire::ErrorCode;
use crate::wire::words::RunWord;

/// No answer has more runs.
const MOST: u32 = 100_000;

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(history)).routes(routes!(runs)).routes(routes!(tail))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct HistoryQuery {
    /// Only those of this agent, also of one that is gone.
    agent: Option<String>,
    /// Only those that live, or ended at or after this moment: RFC 3339, or how long ago (`7d`).
    since: Option<String>,
    /// The same in milliseconds since the epoch.
    #[param(minimum = 0)]
    since_ms: Option<i64>,
    /// At most so many.
    #[param(minimum = 1, maximum = 100_000)]
    limit: Option<u32>,
    /// Those before this one, as the `Link` of the page before says.
    #[param(minimum = 0)]
    cursor: Option<i64>,
}

/// Runs and how they ended, newest first.
#[utoipa::path(
    get, path = "/api/v1/history", tag = "history", params(HistoryQuery),
    responses((status = 200, body = [RunWord]), (status = 304, description = "It is as it was."), Usual)
)]
async fn history(
    State(desk): State<Desk>,
    headers: HeaderMap,
    uri: Uri,
    sees: Option<Extension<Sees>>,
    Params(query): Params<HistoryQuery>,
) -> Result<Response, Trouble> {
    let agent = desk.key(query.agent).await?;
    let since = match (&query.since, query.since_ms) {
        (Some(since), _) => Some(moment("since", since, now().wall)?),
        (None, Some(millis)) if millis < 0 => {
            let message = format!("since_ms is {millis}, before the epoch");
            return Err(Trouble::new(ErrorCode::BadRequest, message));
        }
        (None, millis) => millis.map(Wall::from_millis),
    };
    let limit = bounded("limit", query.limit, MOST, MOST)?;
    let project = sees.map(|Extension(Sees(project))| project);
    let limit = Some(limit);
    let filter = RunFilter { agent, project, since, limit, before: query.cursor };
    page(&desk, &headers, &uri, filter).await
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct RunsQuery {
    /// At most so many.
    #[param(minimum = 1, maximum = 100_000)]
    limit: Option<u32>,
    /// Those before this one, as the `Link` of the page before says.
    #[param(minimum = 0)]
    cursor: Option<i64>,
}

/// The runs of one agent, newest first.
#[utoipa::path(
    get, path = "/api/v1/agents/{name}/runs", tag = "history",
    params(("name" = String, Path, description = "The agent."), RunsQuery),
    responses(
        (status = 200, body = [RunWord]), (status = 304, description = "It is as it was."), OfAgent, Usual
    )
)]
async fn runs(
    State(desk): State<Desk>,
    headers: HeaderMap,
    uri: Uri,
    Segments(name): Segments<String>,
    Params(query): Params<RunsQuery>,
) -> Result<Response, Trouble> {
    let agent = desk.agent(&name).await?;
    let limit = bounded("limit", query.limit, 100, MOST)?;
    let (agent, limit, before) = (Some(agent), Some(limit), query.cursor);
    let filter = RunFilter { agent, limit, before, ..RunFilter::default() };
    page(&desk, &headers, &uri, filter).await
}

async fn page(
    desk: &Desk,
    headers: &HeaderMap,
    uri: &Uri,
    filter: RunFilter,
) -> Result<Response, Trouble> {
    let (path, engine) = (desk.history.clone(), desk.engine.clone());
    let limit = filter.limit.unwrap_or(MOST);
    let runs = blocking(move || {
        engine.flush_history();
        Reader::open(&path)?.runs(&filter)
    });
    let mut runs = runs.await?;
    let shown = desk.engine.shown();
    for run in &mut runs {
        run.agent = shown.name(&run.agent);
    }
    let is_full = runs.len() >= limit as usize;
    let next = runs.last().filter(|_| is_full).map(|run| ("cursor", run.id.to_string()));
    Listed { list: &runs, next }.answer(headers, uri)
}

/// The end of what a run wrote, as it is kept with its death: without secrets.
#[utoipa::path(
    get, path = "/api/v1/agents/{name}/runs/{run}/tail", tag = "history",
    params(
        ("name" = String, Path, description = "The agent."),
        ("run" = u64, Path, description = "The number of the run.")
    ),
    responses(
        (status = 200, content_type = "application/octet-stream", body = Vec<u8>), OfAgent, Usual
    )
)]
async fn tail(
    State(desk): State<Desk>,
    Segments((name, run)): Segments<(String, u64)>,
) -> Result<Vec<u8>, Trouble> {
    let name = desk.ask(|answer| Ask::Key(name, answer)).await?;
    let (path, engine) = (desk.history.clone(), desk.engine.clone());
    let tail = blocking(move || {
        engine.flush_history();
        Reader::open(&path)?.tail(&name, RunId(run))
    });
    Ok(tail.await?.unwrap_or_default())
}

impl Desk {
    /// The key of an agent that is asked for, also of one that is gone.
    pub(super) async fn key(&self, name: Option<String>) -> Result<Option<Name>, Trouble> {
        match name {
            Some(name) => {
                if let Err(error) = Name::known(&name) {
                    let message = format!("{name:?} is no name: {error}");
                    return Err(Trouble::new(ErrorCode::BadRequest, message));
                }
                self.ask(|answer| Ask::Key(name, answer)).await.map(Some)
            }
            None => Ok(None),
        }
    }

    /// The key of the one agent of that name. A group is not one.
    pub(super) async fn agent(&self, name: &str) -> Result<Name, Trouble> {
        self.status(name).await.map(|status| status.name)
    }

    /// What is to be said of the one agent of that name, under its key. A group is not one.
    pub(super) async fn status(&self, name: &str) -> Result<crate::wire::AgentStatus, Trouble> {
        let asked = name.to_owned();
        let key = self.ask(|answer| Ask::Key(asked, answer)).await?;
        let statuses = self.ask(|answer| Ask::StatusOf(vec![key], answer)).await?;
        if let Some(status) = statuses.into_iter().next() {
            return Ok(status);
        }
        let asked = name.to_owned();
        let members = self.ask(|answer| Ask::Status(vec![asked], answer)).await?;
        let members = self.engine.shown().statuses(members);
        let members: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
        Err(Trouble::new(ErrorCode::NoSuchAgent, format!("{name} is a group, not an agent"))
            .hint(&format!("ask about one of its members: {}", members.join(", "))))
    }
}
