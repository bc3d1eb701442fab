//! The agent's own side: what a run may do by its token, and for itself alone.

use axum::extract::{FromRequestParts, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::response::Json;
use defib_host::protocol::RunKey;
use serde::Deserialize;
use tokio::sync::oneshot;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::Body;
use super::money::checked;
use super::spec::{Usual, WithBody};
use super::{Desk, Trouble};
use crate::engine::Ask;
use crate::ledger::Receipt;
use crate::liveness::OwnWord;
use crate::wire::ErrorCode;

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(beat))
        .routes(routes!(ready))
        .routes(routes!(spend))
        .routes(routes!(status))
        .routes(routes!(shutdown))
}

/// The token that came with a request.
pub(crate) struct Token(pub(crate) String);

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

/// Shows that the run lives.
///
/// For the agent itself, by the bearer token of its run.
#[utoipa::path(
    post, path = "/api/v1/self/beat", tag = "self",
    responses((status = 200), Usual)
)]
async fn beat(State(desk): State<Desk>, token: Token) -> Result<Json<()>, Trouble> {
    tell(&desk, token, OwnWord::Beat).await
}

/// Says that the run is ready.
///
/// For the agent itself, by the bearer token of its run.
#[utoipa::path(
    post, path = "/api/v1/self/ready", tag = "self",
    responses((status = 200), Usual)
)]
async fn ready(State(desk): State<Desk>, token: Token) -> Result<Json<()>, Trouble> {
    tell(&desk, token, OwnWord::Ready).await
}

#[derive(Deserialize, ToSchema)]
struct StatusRequest {
    /// A line for `status`.
    text: String,
}

/// Says what the run is doing.
///
/// For the agent itself, by the bearer token of its run.
#[utoipa::path(
    post, path = "/api/v1/self/status", tag = "self", request_body = StatusRequest,
    responses((status = 200), WithBody, Usual)
)]
async fn status(
    State(desk): State<Desk>,
    token: Token,
    Body(request): Body<StatusRequest>,
) -> Result<Json<()>, Trouble> {
    tell(&desk, token, OwnWord::Text(request.text)).await
}

#[derive(Deserialize, ToSchema)]
struct SpendRequest {
    /// How much, to the millionth.
    amount: f64,
    /// Of what: `scrip`, `usd`, `tokens`.
    unit: String,
}

/// Says what the run has spent. It is on disk when that is answered.
///
/// For the agent itself, by the bearer token of its run.
#[utoipa::path(
    post, path = "/api/v1/self/spend", tag = "self", request_body = SpendRequest,
    responses((status = 200, body = Receipt), WithBody, Usual)
)]
async fn spend(
    State(desk): State<Desk>,
    token: Token,
    Body(request): Body<SpendRequest>,
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

#[derive(Deserialize, ToSchema)]
struct ShutdownRequest {
    /// Why, for `why`.
    #[serde(default)]
    reason: Option<String>,
}

/// Asks to stay down when the run ends. The wish is stored when that is answered.
///
/// For the agent itself, by the bearer token of its run.
#[utoipa::path(
    post, path = "/api/v1/self/shutdown", tag = "self", request_body = ShutdownRequest,
    responses((status = 200), WithBody, Usual)
)]
async fn shutdown(
    State(desk): State<Desk>,
    token: Token,
    Body(request): Body<ShutdownRequest>,
) -> Result<Json<()>, Trouble> {
    tell(&desk, token, OwnWord::Shutdown(request.reason)).await
}
