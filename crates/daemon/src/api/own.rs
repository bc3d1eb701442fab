//! The agent's own side: what a run may do by its token, and for itself alone.

use axum::Router;
use axum::extract::{FromRequestParts, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::response::Json;
use axum::routing::post;
use defib_host::protocol::RunKey;
use serde::Deserialize;
use tokio::sync::oneshot;

use super::money::checked;
use super::{Desk, Trouble};
use crate::engine::Ask;
use crate::ledger::Receipt;
use crate::liveness::OwnWord;
use crate::wire::ErrorCode;

pub(super) fn routes() -> Router<Desk> {
    Router::new()
        .route("/api/v1/self/beat", post(beat))
        .route("/api/v1/self/ready", post(ready))
        .route("/api/v1/self/spend", post(spend))
        .route("/api/v1/self/status", post(status))
        .route("/api/v1/self/shutdown", post(shutdown))
}

/// The token that came with a request.
pub(super) struct Token(pub(super) String);

impl<S: Sync> FromRequestParts<S> for Token {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Token, Trouble> {
        let header = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = header.and_then(|header| {
            let (scheme, token) = header.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
        });
        token.map(Token).ok_or_else(|| {
            Trouble::new(ErrorCode::Unauthorized, "this is for agents, which have a token")
                .hint("send `Authorization: Bearer` with the agent's DEFIB_TOKEN")
        })
    }
}

async fn tell(desk: &Desk, token: Token, word: OwnWord) -> Result<Json<()>, Trouble> {
    desk.ask(|answer| Ask::Own(token.0, word, answer)).await.map(Json)
}

async fn beat(State(desk): State<Desk>, token: Token) -> Result<Json<()>, Trouble> {
    tell(&desk, token, OwnWord::Beat).await
}

async fn ready(State(desk): State<Desk>, token: Token) -> Result<Json<()>, Trouble> {
    tell(&desk, token, OwnWord::Ready).await
}

#[derive(Deserialize)]
struct StatusRequest {
    text: String,
}

async fn status(
    State(desk): State<Desk>,
    token: Token,
    Json(request): Json<StatusRequest>,
) -> Result<Json<()>, Trouble> {
    tell(&desk, token, OwnWord::Text(request.text)).await
}

#[derive(Deserialize)]
struct SpendRequest {
    amount: f64,
    unit: String,
}

/// What a run says that it has spent. It is on disk when that is answered.
async fn spend(
    State(desk): State<Desk>,
    token: Token,
    Json(request): Json<SpendRequest>,
) -> Result<Json<Receipt>, Trouble> {
    let micros = checked(request.amount, &request.unit)?;
    let RunKey { agent, run } = desk.ask(|answer| Ask::Bearer(token.0, answer)).await?;
    let (answer, answered) = oneshot::channel();
    desk.engine.ledger().spend(agent, run, request.unit, micros, answer);
    match answered.await {
        Ok(receipt) => receipt.map(Json).map_err(Trouble),
        Err(_) => Err(Trouble::new(ErrorCode::Failed, "the daemon is ending")),
    }
}

#[derive(Deserialize)]
struct ShutdownRequest {
    #[serde(default)]
    reason: Option<String>,
}

async fn shutdown(
    State(desk): State<Desk>,
    token: Token,
    Json(request): Json<ShutdownRequest>,
) -> Result<Json<()>, Trouble> {
    tell(&desk, token, OwnWord::Shutdown(request.reason)).await
}
