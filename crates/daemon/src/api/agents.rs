//! Agents: what they are, and what is done to them.

use std::collections::BTreeMap;

use axum::Router;
use axum::extract::{Path, State};
use axum::response::Json;
use axum::routing::{get, post};
use defib_core::{Name, RunId, Signal, State as AgentState};
use defib_history::Intent;
use serde::Deserialize;

use super::{Desk, Trouble};
use crate::engine::Ask;
use crate::wire::{Action, ActionOptions, AgentStatus, ErrorCode, ErrorDetail};

pub(super) fn routes() -> Router<Desk> {
    Router::new()
        .route("/api/v1/agents", get(list))
        .route("/api/v1/agents/{name}", get(one).delete(remove))
        .route("/api/v1/agents/{name}/signal", post(signal))
        .route("/api/v1/agents/{name}/{action}", post(act))
}

async fn list(State(desk): State<Desk>) -> Result<Json<Vec<AgentStatus>>, Trouble> {
    desk.ask(|answer| Ask::Status(Vec::new(), answer)).await.map(Json)
}

/// The agent, or the members of the group, of that name.
async fn one(
    State(desk): State<Desk>,
    Path(name): Path<String>,
) -> Result<Json<Vec<AgentStatus>>, Trouble> {
    desk.ask(|answer| Ask::Status(vec![name], answer)).await.map(Json)
}

async fn remove(State(desk): State<Desk>, Path(name): Path<String>) -> Result<Json<Name>, Trouble> {
    let name = desk.ask(|answer| Ask::Remove(name, answer)).await?;
    let (engine, home, gone) = (desk.engine.clone(), desk.home.clone(), name.clone());
    let forgotten = tokio::task::spawn_blocking(move || {
        // Its project has its name, and so has the file that `run` wrote for it.
        let _ = std::fs::remove_file(home.join("adhoc").join(format!("{gone}.toml")));
        engine.store(Intent::Withdraw(gone))
    });
    match forgotten.await {
        Ok(Ok(())) => Ok(Json(name)),
        Ok(Err(error)) => Err(Trouble::new(ErrorCode::Failed, error)),
        Err(_) => Err(Trouble::new(ErrorCode::Failed, "the daemon is ending")),
    }
}

#[derive(Deserialize)]
struct SignalRequest {
    signal: String,
}

async fn signal(
    State(desk): State<Desk>,
    Path(name): Path<String>,
    Json(request): Json<SignalRequest>,
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

/// Does it, and answers when it is so.
async fn act(
    State(desk): State<Desk>,
    Path((name, action)): Path<(String, Action)>,
    Json(options): Json<ActionOptions>,
) -> Result<Json<Vec<AgentStatus>>, Trouble> {
    // From before the request on, so that nothing that follows from it is missed.
    let mut events = desk.engine.subscribe();
    let before: BTreeMap<Name, Option<RunId>> = {
        let name = name.clone();
        desk.ask(|answer| Ask::Act(name, action, options, answer)).await?
    };
    loop {
        let name = name.clone();
        let now = desk.ask(|answer| Ask::Status(vec![name], answer)).await?;
        let is_so = |status: &AgentStatus| {
            let was = before.get(&status.name).copied().flatten();
            has_come_about(action, status, was)
        };
        if options.no_wait || now.iter().all(is_so) {
            return Ok(Json(now));
        }
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
        Action::Restart | Action::Revive => {
            let waits = status.state == AgentState::Waiting;
            !is_moving && (status.run > before || waits)
        }
    }
}
