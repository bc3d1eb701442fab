//! Projects and the daemon itself: up, plan, down, close, upgrade.

use axum::Router;
use axum::extract::State;
use axum::response::Json;
use axum::routing::{get, post};
use defib_core::Name;
use defib_history::{Intent, Project};
use serde::Deserialize;

use super::{Desk, Trouble};
use crate::engine::Ask;
use crate::wire::{DaemonInfo, ErrorCode, ErrorDetail, Plan, UpRequest};

pub(super) fn routes() -> Router<Desk> {
    Router::new()
        .route("/api/v1/daemon", get(info))
        .route("/api/v1/up", post(up))
        .route("/api/v1/plan", post(plan))
        .route("/api/v1/down", post(down))
        .route("/api/v1/close", post(close))
        .route("/api/v1/upgrade", post(upgrade))
}

async fn info(State(desk): State<Desk>) -> Result<Json<DaemonInfo>, Trouble> {
    desk.ask(Ask::Info).await.map(Json)
}

async fn up(
    State(desk): State<Desk>,
    Json(request): Json<UpRequest>,
) -> Result<Json<Vec<Name>>, Trouble> {
    // Whether it can be applied at all is known before it is stored, and it is stored before it is
    // acted on; the engine waits for neither.
    let asked = Box::new(request.clone());
    desk.ask(|answer| Ask::Plan(asked, answer)).await?;
    store(&desk, &request).await?;
    desk.ask(|answer| Ask::Up(Box::new(request), answer)).await.map(Json)
}

async fn store(desk: &Desk, request: &UpRequest) -> Result<(), Trouble> {
    let intent = Intent::Apply(Project {
        name: request.config.project.clone(),
        file: request.path.clone(),
        folder: request.config.folder.clone(),
        mode: request.mode.word().to_owned(),
        // How it was read: the file itself is read again, by the same rules.
        config: serde_json::to_value(&request.options).unwrap_or_default(),
        hash: String::new(),
    });
    let engine = desk.engine.clone();
    let stored = tokio::task::spawn_blocking(move || engine.store(intent)).await;
    match stored {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Trouble(ErrorDetail {
            code: ErrorCode::Failed,
            message: format!("cannot store the project: {error}"),
            hint: Some("see that there is space in the home folder".to_owned()),
        })),
        Err(_) => Err(Trouble::new(ErrorCode::Failed, "the daemon is ending")),
    }
}

async fn plan(
    State(desk): State<Desk>,
    Json(request): Json<UpRequest>,
) -> Result<Json<Plan>, Trouble> {
    desk.ask(|answer| Ask::Plan(Box::new(request), answer)).await.map(Json)
}

#[derive(Deserialize)]
struct DownRequest {
    project: Option<Name>,
}

async fn down(
    State(desk): State<Desk>,
    Json(request): Json<DownRequest>,
) -> Result<Json<Vec<Name>>, Trouble> {
    desk.ask(|answer| Ask::Down(request.project, answer)).await.map(Json)
}

async fn close(State(desk): State<Desk>) -> Result<Json<()>, Trouble> {
    desk.ask(Ask::CloseAll).await.map(Json)
}

#[derive(Deserialize)]
struct UpgradeRequest {
    program: String,
}

async fn upgrade(
    State(desk): State<Desk>,
    Json(request): Json<UpgradeRequest>,
) -> Result<Json<()>, Trouble> {
    desk.ask(|answer| Ask::Replace(request.program, answer)).await.map(Json)
}
