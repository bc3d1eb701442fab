//! Channels: how they are, and whether messages arrive.

use axum::extract::State;
use axum::response::Json;
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::Body;
use super::spec::{Usual, WithBody};
use super::{Desk, Trouble};
use crate::wire::{ChannelStatus, ChannelTest};

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(test))
}

/// Every channel of the projects that are up, with the last failure of those that fail.
#[utoipa::path(
    get, path = "/api/v1/notify", tag = "daemon",
    responses((status = 200, body = [ChannelStatus]), Usual)
)]
async fn list(State(desk): State<Desk>) -> Json<Vec<ChannelStatus>> {
    Json(desk.heralds.channels())
}

#[derive(Deserialize, ToSchema)]
struct TestRequest {
    /// Which, as `name` or `project/name`; every one without.
    channel: Option<String>,
}

/// Sends a test message through channels. Answers when each has arrived or has not.
///
/// An empty answer means that no channel is called so, or that none is up.
#[utoipa::path(
    post, path = "/api/v1/notify/test", tag = "daemon", request_body = TestRequest,
    responses((status = 200, body = [ChannelTest]), WithBody, Usual)
)]
async fn test(
    State(desk): State<Desk>,
    Body(request): Body<TestRequest>,
) -> Result<Json<Vec<ChannelTest>>, Trouble> {
    Ok(Json(desk.heralds.test(request.channel).await))
}
