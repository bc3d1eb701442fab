//! Projects and the daemon itself: up, plan, down, close, upgrade.

use std::path::PathBuf;
use std::time::Duration;

use axum::extract::State;
use axum::response::Json;
use defib_core::Name;
use defib_history::{Intent, Project};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::Body;
use super::spec::{OfAgent, Usual, WithBody};
use super::{Desk, Trouble};
use crate::doors::Listening;
use crate::engine::Ask;
use crate::intents::{Done, in_effect_unstored, refused_unstored};
use crate::wire::words::NameWord;
use crate::wire::{Closing, DaemonInfo, ErrorCode, Plan, UpRequest};

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(info))
        .routes(routes!(up))
        .routes(routes!(plan))
        .routes(routes!(down))
        .routes(routes!(close, closing))
        .routes(routes!(upgrade))
}

/// Who the daemon is.
#[utoipa::path(
    get, path = "/api/v1/daemon", tag = "daemon",
    responses((status = 200, body = DaemonInfo), Usual)
)]
async fn info(State(desk): State<Desk>) -> Result<Json<DaemonInfo>, Trouble> {
    let mut info = desk.ask(Ask::Info).await?;
    // Only the doors know where they are.
    if let Listening::At(open) = desk.doors.listening() {
        info.address = Some(open.url());
    }
    Ok(Json(info))
}

/// Brings a project up. Answers with the names of its agents.
#[utoipa::path(
    post, path = "/api/v1/up", tag = "projects", request_body = UpRequest,
    responses((status = 200, body = [NameWord]), WithBody, Usual)
)]
async fn up(
    State(desk): State<Desk>,
    Body(request): Body<UpRequest>,
) -> Result<Json<Vec<Name>>, Trouble> {
    bring_up(&desk, request).await.map(Json)
}

/// Brings a project up that comes from outside.
pub(super) async fn bring_up(desk: &Desk, request: UpRequest) -> Result<Vec<Name>, Trouble> {
    // Whether it can be applied at all is known before it is stored, and it is stored before it is
    // acted on; the engine waits for neither.
    let asked = Box::new(request.clone());
    let names = desk.ask(|answer| Ask::Claim(asked, answer)).await?;
    store(desk, &request, names).await?;
    let done = desk.ask(|answer| Ask::Up(Box::new(request), answer)).await?;
    stored(done, "up")
}

async fn store(desk: &Desk, request: &UpRequest, names: Option<Intent>) -> Result<(), Trouble> {
    let applied = Intent::Apply(Project {
        name: request.config.project.clone(),
        file: request.path.clone(),
        folder: request.config.folder.clone(),
        mode: request.mode.word().to_owned(),
        // How it was read: the file itself is read again, by the same rules.
        config: serde_json::to_value(&request.options).unwrap_or_default(),
    });
    let engine = desk.engine.clone();
    let intents = names.into_iter().chain([applied]).collect();
    let stored = tokio::task::spawn_blocking(move || engine.store_all(intents)).await;
    match stored {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Trouble(refused_unstored("up", error))),
        Err(_) => Err(Trouble::new(ErrorCode::Failed, "the daemon is ending")),
    }
}

/// The value of a change, or the error that it is in effect and not stored.
pub(super) fn stored<T>(done: Done<T>, change: &str) -> Result<T, Trouble> {
    let Done { value, stored } = done;
    stored.map_err(|why| Trouble(in_effect_unstored(change, &why))).map(|()| value)
}

/// Says what bringing a project up would change.
#[utoipa::path(
    post, path = "/api/v1/plan", tag = "projects", request_body = UpRequest,
    responses((status = 200, body = Plan), WithBody, Usual)
)]
async fn plan(
    State(desk): State<Desk>,
    Body(request): Body<UpRequest>,
) -> Result<Json<Plan>, Trouble> {
    desk.ask(|answer| Ask::Plan(Box::new(request), answer)).await.map(Json)
}

#[derive(Deserialize, ToSchema)]
struct DownRequest {
    /// Which; all of them without one.
    #[schema(value_type = Option<NameWord>)]
    project: Option<Name>,
    /// The config file: the project that is up from it, where none of that name is known.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    file: Option<PathBuf>,
    /// Whether to answer when all of it is down, not at once.
    #[serde(default)]
    wait: bool,
}

/// How often it is seen whether all of a project is down.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Takes a project down, or all of them. Answers with the names of the agents.
///
/// With `wait`, it answers when they are down, or that somebody wants some of them up again.
#[utoipa::path(
    post, path = "/api/v1/down", tag = "projects", request_body = DownRequest,
    responses((status = 200, body = [NameWord]), OfAgent, WithBody, Usual)
)]
async fn down(
    State(desk): State<Desk>,
    Body(request): Body<DownRequest>,
) -> Result<Json<Vec<Name>>, Trouble> {
    let DownRequest { mut project, file, wait } = request;
    if let Some(file) = file {
        let name = project.take();
        project = Some(desk.ask(|answer| Ask::ProjectOf(file, name, answer)).await?);
    }
    let asked = project.clone();
    let done = desk.ask(|answer| Ask::Down(asked, answer)).await?;
    let mut is_over = !wait;
    while !is_over {
        tokio::time::sleep(LOOK_EVERY).await;
        let asked = project.clone();
        is_over = desk.ask(|answer| Ask::IsDown(asked, answer)).await?;
    }
    // The agents end whether or not the disk takes their goals.
    stored(done, "down").map(Json)
}

/// Ends every agent, and the daemon with them, unless somebody wants some of it up before.
#[utoipa::path(
    post, path = "/api/v1/close", tag = "daemon",
    responses((status = 200), Usual)
)]
async fn close(State(desk): State<Desk>) -> Result<Json<()>, Trouble> {
    stored(desk.ask(Ask::CloseAll).await?, "down --all").map(Json)
}

/// Says whether everything is to end, for those who wait for it.
#[utoipa::path(
    get, path = "/api/v1/close", tag = "daemon",
    responses((status = 200, body = Closing), Usual)
)]
async fn closing(State(desk): State<Desk>) -> Result<Json<Closing>, Trouble> {
    desk.ask(Ask::Closing).await.map(Json)
}

#[derive(Deserialize, ToSchema)]
struct UpgradeRequest {
    /// The path of the program that the next daemon is started from.
    program: String,
}

/// Replaces this daemon by one from another program. No agent notices.
#[utoipa::path(
    post, path = "/api/v1/upgrade", tag = "daemon", request_body = UpgradeRequest,
    responses((status = 200), WithBody, Usual)
)]
async fn upgrade(
    State(desk): State<Desk>,
    Body(request): Body<UpgradeRequest>,
) -> Result<Json<()>, Trouble> {
    desk.ask(|answer| Ask::Replace(request.program, answer)).await.map(Json)
}
