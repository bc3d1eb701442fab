//! What agents may do: shown, granted and revoked.

use axum::extract::State;
use axum::response::Json;
use defib_core::Capability;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Body, Segments};
use super::spec::{InState, OfAgent, Usual, WithBody};
use super::{Desk, Trouble};
use crate::engine::Ask;
use crate::wire::{CapabilityChange, CapabilityRequest, Caps, ErrorCode};

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(caps)).routes(routes!(grant)).routes(routes!(revoke))
}

/// What an agent may do, and what of that this kernel enforces.
#[utoipa::path(
    get, path = "/api/v1/agents/{name}/caps", tag = "agents",
    params(("name" = String, Path, description = "The agent.")),
    responses((status = 200, body = Caps), OfAgent, Usual)
)]
async fn caps(
    State(desk): State<Desk>,
    Segments(name): Segments<String>,
) -> Result<Json<Caps>, Trouble> {
    desk.ask(|answer| Ask::Caps(name, answer)).await.map(Json)
}

/// Lets an agent do more, from its next run on.
#[utoipa::path(
    post, path = "/api/v1/agents/{name}/grant", tag = "agents", request_body = CapabilityRequest,
    params(("name" = String, Path, description = "The agent.")),
    responses((status = 200, body = Caps), OfAgent, InState, WithBody, Usual)
)]
async fn grant(
    State(desk): State<Desk>,
    Segments(name): Segments<String>,
    Body(request): Body<CapabilityRequest>,
) -> Result<Json<Caps>, Trouble> {
    change(&desk, name, CapabilityChange::Grant, &request).await
}

/// Lets an agent do less, from its next run on.
#[utoipa::path(
    post, path = "/api/v1/agents/{name}/revoke", tag = "agents", request_body = CapabilityRequest,
    params(("name" = String, Path, description = "The agent.")),
    responses((status = 200, body = Caps), OfAgent, InState, WithBody, Usual)
)]
async fn revoke(
    State(desk): State<Desk>,
    Segments(name): Segments<String>,
    Body(request): Body<CapabilityRequest>,
) -> Result<Json<Caps>, Trouble> {
    change(&desk, name, CapabilityChange::Revoke, &request).await
}

/// Answers when it is on disk.
async fn change(
    desk: &Desk,
    name: String,
    change: CapabilityChange,
    request: &CapabilityRequest,
) -> Result<Json<Caps>, Trouble> {
    if request.capabilities.is_empty() {
        let trouble = Trouble::new(ErrorCode::BadRequest, "no capability is named");
        return Err(trouble.hint("name at least one, such as `read:/etc`"));
    }
    let mut tokens = Vec::new();
    for text in &request.capabilities {
        let token = Capability::parse(text)
            .map_err(|bad| Trouble::new(ErrorCode::BadRequest, &bad).hint(bad.help()))?;
        tokens.push(token);
    }
    desk.ask(|answer| Ask::Capabilities(name, change, tokens, answer)).await.map(Json)
}
