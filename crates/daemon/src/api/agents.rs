//! Agents: what they are, and what is done to them.

use std::collections::BTreeMap;

use axum::extract::{Extension, State};
use axum::http::{HeaderMap, Uri};
use axum::response::{Json, Response};
use defib_core::{Name, RunId, Signal, State as AgentState};
use defib_history::Intent;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Listed;
use super::control::stored;
use super::extract::{Body, Maybe, Params, Segments, bounded};
use super::spec::{InState, OfAgent, Usual, WithBody};
use super::{Desk, Trouble};
use crate::doors::Sees;
use crate::engine::Ask;
use crate::intents::{Done, refused_unstored};
use crate::wire::words::NameWord;
use crate::wire::{Action, ActionOptions, AgentLine, AgentStatus, ErrorCode, ErrorDetail};

/// No page of agents is longer.
const MOST: u32 = 10_000;

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(overview))
        .routes(routes!(one, remove))
        .routes(routes!(signal))
        .routes(routes!(start))
        .routes(routes!(stop))
        .routes(routes!(restart))
        .routes(routes!(revive))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// At most so many; all without it.
    #[param(minimum = 1, maximum = 10_000)]
    limit: Option<u32>,
    /// Those after the agent of this name, as the `Link` of the page before says.
    cursor: Option<String>,
}

/// Every agent.
///
/// The `ETag` changes with everything but how long something has lasted (`uptime_s`,
/// `heartbeat_age_s`).
#[utoipa::path(
    get, path = "/api/v1/agents", tag = "agents", params(ListQuery),
    responses(
        (status = 200, body = [AgentStatus]), (status = 304, description = "It is as it was."), Usual
    )
)]
async fn list(
    State(desk): State<Desk>,
    headers: HeaderMap,
    uri: Uri,
    sees: Option<Extension<Sees>>,
    Params(query): Params<ListQuery>,
) -> Result<Response, Trouble> {
    let limit = bounded("limit", query.limit, MOST, MOST)?;
    let agents = desk.ask(|answer| Ask::Status(Vec::new(), answer)).await?;
    let mut agents = desk.engine.shown().statuses(agents);
    if let Some(Extension(Sees(project))) = sees {
        agents.retain(|agent| agent.project == project);
    }
    if let Some(cursor) = query.cursor {
        let at = agents.iter().position(|agent| agent.name.as_str() == cursor);
        let Some(at) = at else {
            let trouble = Trouble::new(ErrorCode::BadRequest, format!("{cursor:?} is no agent"));
            return Err(trouble.hint("begin again without a cursor"));
        };
        agents.drain(..=at);
    }
    let has_more = agents.len() > limit as usize;
    agents.truncate(limit as usize);
    let last = agents.last().filter(|_| has_more).map(|agent| agent.name.as_str().to_owned());
    for agent in &mut agents {
        agent.channels_failing = desk.heralds.failing(&agent.project);
    }
    let ageless = |agent: &AgentStatus| AgentStatus {
        uptime_s: None,
        heartbeat_age_s: None,
        ..agent.clone()
    };
    let ageless = || agents.iter().map(ageless).collect::<Vec<_>>();
    let listed = Listed { list: &agents, next: last.map(|last| ("cursor", last)) };
    listed.answer_as(&headers, &uri, ageless)
}

/// Every agent, in a few words.
///
/// What a table of all of them shows, for those who look often or at many. What does not apply is left
/// out instead of null.
#[utoipa::path(
    get, path = "/api/v1/overview", tag = "agents",
    responses((status = 200, body = [AgentLine]), Usual)
)]
async fn overview(
    State(desk): State<Desk>,
    sees: Option<Extension<Sees>>,
) -> Result<Json<Vec<AgentLine>>, Trouble> {
    let lines = desk.ask(Ask::Overview).await?;
    let mut lines = desk.engine.shown().lines(lines);
    if let Some(Extension(Sees(project))) = sees {
        lines.retain(|line| line.project == project);
    }
    for line in &mut lines {
        line.channels_failing = desk.heralds.failing(&line.project);
    }
    Ok(Json(lines))
}

/// One agent, or the members of a group.
///
/// An array in both cases.
#[utoipa::path(
    get, path = "/api/v1/agents/{name}", tag = "agents",
    params(("name" = String, Path, description = "The agent, or a group for its members.")),
    responses((status = 200, body = [AgentStatus]), OfAgent, Usual)
)]
async fn one(
    State(desk): State<Desk>,
    Segments(name): Segments<String>,
) -> Result<Json<Vec<AgentStatus>>, Trouble> {
    let mut agents = desk.ask(|answer| Ask::Status(vec![name], answer)).await?;
    for agent in &mut agents {
        agent.channels_failing = desk.heralds.failing(&agent.project);
    }
    Ok(Json(desk.engine.shown().statuses(agents)))
}

/// Takes an agent away that was added without a file.
///
/// Answers with its name when that is on disk; its run ends as by `stop`.
#[utoipa::path(
    delete, path = "/api/v1/agents/{name}", tag = "agents",
    params(("name" = String, Path, description = "The agent.")),
    responses((status = 200, body = NameWord), OfAgent, InState, Usual)
)]
async fn remove(
    State(desk): State<Desk>,
    Segments(name): Segments<String>,
) -> Result<Json<Name>, Trouble> {
    // Whether it can be taken away is known before that is stored, and it is stored before it is acted
    // on: whoever is told that it failed finds the agent as it was.
    let asked = name.clone();
    let project = desk.ask(|answer| Ask::Removable(asked, answer)).await?;
    let (engine, gone) = (desk.engine.clone(), project.clone());
    let stored = tokio::task::spawn_blocking(move || engine.store(Intent::Withdraw(gone)));
    match stored.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            return Err(Trouble(refused_unstored(&format!("rm {name}"), error)));
        }
        Err(_) => return Err(Trouble::new(ErrorCode::Failed, "the daemon is ending")),
    }
    let name = desk.ask(|answer| Ask::Remove(name, answer)).await?;
    // The file that `run` wrote for it has the name of its project. Nobody reads one that is left.
    let file = desk.home.join("adhoc").join(format!("{project}.toml"));
    let _ = tokio::task::spawn_blocking(move || std::fs::remove_file(file)).await;
    Ok(Json(name))
}

#[derive(Deserialize, ToSchema)]
struct SignalRequest {
    /// By name or number: `TERM`, `SIGUSR1`, `9`.
    signal: String,
}

/// Sends a signal to an agent's first process, or to those of a group's members.
///
/// What comes of it is a death like any other. To end an agent for good, stop it.
#[utoipa::path(
    post, path = "/api/v1/agents/{name}/signal", tag = "agents", request_body = SignalRequest,
    params(("name" = String, Path, description = "The agent, or a group for its members.")),
    responses((status = 200, body = NameWord), OfAgent, InState, WithBody, Usual)
)]
async fn signal(
    State(desk): State<Desk>,
    Segments(name): Segments<String>,
    Body(request): Body<SignalRequest>,
) -> Result<Json<Name>, Trouble> {
    let Some(signal) = Signal::parse(&request.signal) else {
        return Err(Trouble(ErrorDetail {
            code: ErrorCode::BadRequest,
            message: format!("no signal is called {:?}", request.signal),
            hint: Some("signals go by name or number: TERM, SIGUSR1, 9".to_owned()),
        }));
    };
    desk.ask(|answer| Ask::Signal(name, signal, answer)).await.map(Json)
}

/// Starts an agent, or the members of a group, in order.
///
/// Answers when it is so, at once with `no_wait`.
#[utoipa::path(
    post, path = "/api/v1/agents/{name}/start", tag = "agents", request_body = Option<ActionOptions>,
    params(("name" = String, Path, description = "The agent, or a group for its members.")),
    responses((status = 200, body = [AgentStatus]), OfAgent, InState, WithBody, Usual)
)]
async fn start(
    State(desk): State<Desk>,
    Segments(name): Segments<String>,
    Maybe(options): Maybe<ActionOptions>,
) -> Result<Json<Vec<AgentStatus>>, Trouble> {
    act(&desk, name, Action::Start, options).await
}

/// Stops an agent, or the members of a group, in reverse order.
///
/// Answers when it is so, at once with `no_wait`.
#[utoipa::path(
    post, path = "/api/v1/agents/{name}/stop", tag = "agents", request_body = Option<ActionOptions>,
    params(("name" = String, Path, description = "The agent, or a group for its members.")),
    responses((status = 200, body = [AgentStatus]), OfAgent, InState, WithBody, Usual)
)]
async fn stop(
    State(desk): State<Desk>,
    Segments(name): Segments<String>,
    Maybe(options): Maybe<ActionOptions>,
) -> Result<Json<Vec<AgentStatus>>, Trouble> {
    act(&desk, name, Action::Stop, options).await
}

/// Ends the run of an agent and begins another.
///
/// Answers when it is so, at once with `no_wait`.
#[utoipa::path(
    post, path = "/api/v1/agents/{name}/restart", tag = "agents", request_body = Option<ActionOptions>,
    params(("name" = String, Path, description = "The agent, or a group for its members.")),
    responses((status = 200, body = [AgentStatus]), OfAgent, InState, WithBody, Usual)
)]
async fn restart(
    State(desk): State<Desk>,
    Segments(name): Segments<String>,
    Maybe(options): Maybe<ActionOptions>,
) -> Result<Json<Vec<AgentStatus>>, Trouble> {
    act(&desk, name, Action::Restart, options).await
}

/// Puts an agent back that has crashed out or was halted.
///
/// Answers when it is so, at once with `no_wait`.
#[utoipa::path(
    post, path = "/api/v1/agents/{name}/revive", tag = "agents", request_body = Option<ActionOptions>,
    params(("name" = String, Path, description = "The agent, or a group for its members.")),
    responses((status = 200, body = [AgentStatus]), OfAgent, InState, WithBody, Usual)
)]
async fn revive(
    State(desk): State<Desk>,
    Segments(name): Segments<String>,
    Maybe(options): Maybe<ActionOptions>,
) -> Result<Json<Vec<AgentStatus>>, Trouble> {
    act(&desk, name, Action::Revive, options).await
}

/// Does it, and answers when it is so.
async fn act(
    desk: &Desk,
    name: String,
    action: Action,
    options: ActionOptions,
) -> Result<Json<Vec<AgentStatus>>, Trouble> {
    // From before the request on, so that nothing that follows from it is missed.
    let mut events = desk.engine.subscribe();
    let done: Done<BTreeMap<Name, Option<RunId>>> = {
        let name = name.clone();
        desk.ask(|answer| Ask::Act(name, action, options, answer)).await?
    };
    loop {
        let asked = name.clone();
        let now = desk.ask(|answer| Ask::Status(vec![asked], answer)).await?;
        let is_so = |status: &AgentStatus| {
            let was = done.value.get(&status.name).copied().flatten();
            has_come_about(action, status, was)
        };
        if options.no_wait || now.iter().all(is_so) {
            // The action takes effect whether or not the disk takes it: a stop still stops.
            stored(done, &format!("{} {name}", action.word()))?;
            return Ok(Json(desk.engine.shown().statuses(now)));
        }
        // Somebody may have asked for the opposite: then it will never be so.
        let asked = name.clone();
        desk.ask(|answer| Ask::IsWanted(asked, action, answer)).await?;
        // A watcher that was too slow has missed something; the next look shows what.
        let _ = events.recv().await;
    }
}

/// Whether what was asked for is so, or will never be.
fn has_come_about(action: Action, status: &AgentStatus, before: Option<RunId>) -> bool {
    let is_moving = matches!(status.state, AgentState::Starting | AgentState::Stopping);
    match action {
        Action::Stop => !matches!(
            status.state,
            AgentState::Starting
                | AgentState::Running
                | AgentState::Stopping
                | AgentState::Backoff
                | AgentState::Waiting
        ),
        Action::Start => !is_moving,
        Action::Restart => {
            let waits = status.state == AgentState::Waiting;
            !is_moving && (status.run > before || waits)
        }
        // Of a group, those that had not fallen go on as they are.
        Action::Revive => {
            let is_fallen = matches!(status.state, AgentState::Halted | AgentState::CrashedOut);
            !is_moving && (status.run > before || !is_fallen)
        }
    }
}
