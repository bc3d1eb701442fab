//! The API: HTTP on the daemon's socket. One family of routes a file.
//!
//! Handlers ask the engine and wait for its answer; none of them holds anything that the engine
//! needs. What goes wrong is a JSON object with a code, a message and a hint.

mod access;
mod add;
mod agents;
mod answer;
mod capabilities;
mod control;
mod events;
mod extract;
mod lab;
mod logs;
mod look;
mod metrics;
mod money;
mod notify;
mod own;
mod page;
mod runs;
mod spec;
mod supervisor;
mod terminal;
mod why;

pub(crate) use money::checked;
pub(crate) use own::Token;

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Json, Response};
use tokio::sync::oneshot;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::doors::{Doors, Recorder, guard};
use crate::engine::{Answer, Ask, EngineHandle};
use crate::metrics::Metrics;
use crate::notify::Heralds;
use crate::terminal::Terminals;
use crate::wire::{ErrorBody, ErrorCode, ErrorDetail};

/// What handlers need.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) engine: EngineHandle,
    pub(crate) home: Arc<PathBuf>,
    pub(crate) history: Arc<PathBuf>,
    pub(crate) terminals: Terminals,
    pub(crate) doors: Doors,
    pub(crate) recorder: Recorder,
    /// What the API says of itself.
    pub(crate) description: spec::Text,
    /// Figures for whoever watches.
    pub(crate) metrics: Metrics,
    /// The way to who tells people.
    pub(crate) heralds: Heralds,
}

/// Every route, with what is said of it.
fn described() -> OpenApiRouter<Desk> {
    OpenApiRouter::with_openapi(spec::Whole::openapi())
        .routes(routes!(health))
        .merge(access::routes())
        .merge(add::routes())
        .merge(agents::routes())
        .merge(capabilities::routes())
        .merge(control::routes())
        .merge(events::routes())
        .merge(lab::routes())
        .merge(logs::routes())
        .merge(look::routes())
        .merge(own::routes())
        .merge(runs::routes())
        .merge(metrics::routes())
        .merge(money::routes())
        .merge(notify::routes())
        .merge(spec::routes())
        .merge(supervisor::routes())
        .merge(terminal::routes())
        .merge(why::routes())
}

/// What the API says of itself.
pub(crate) fn description() -> spec::Text {
    let mut whole = described().into_openapi();
    whole.info.version = env!("CARGO_PKG_VERSION").to_owned();
    serde_json::to_string(&whole).unwrap_or_default().into()
}

/// Every route, with the guard before it.
pub(crate) fn routes(desk: Desk) -> Router {
    let (router, _) = described().split_for_parts();
    router
        .fallback(page::page)
        .method_not_allowed_fallback(async || {
            Trouble::new(ErrorCode::NotAllowed, "nothing like that can be done at this address")
        })
        // The guard has read the body by then, and knows how large it may be.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(desk.clone(), guard))
        .with_state(desk)
}

/// Whether the daemon answers.
#[utoipa::path(
    get, path = "/healthz", tag = "daemon",
    responses((status = 200, description = "It does.", content_type = "text/plain", body = String), spec::Usual)
)]
async fn health() -> &'static str {
    "ok\n"
}

impl Desk {
    /// Asks the engine something and waits for the answer.
    pub(crate) async fn ask<T>(&self, ask: impl FnOnce(Answer<T>) -> Ask) -> Result<T, Trouble> {
        let (answer, answered) = oneshot::channel();
        self.engine.tell(ask(answer));
        match answered.await {
            Ok(answer) => answer.map_err(Trouble),
            Err(_) => Err(Trouble::new(ErrorCode::Failed, "the daemon is ending")),
        }
    }
}

/// What went wrong, as an answer.
#[derive(Debug)]
pub(crate) struct Trouble(pub(crate) ErrorDetail);

impl Trouble {
    pub(crate) fn new(code: ErrorCode, message: impl std::fmt::Display) -> Trouble {
        Trouble(ErrorDetail { code, message: format!("{message}"), hint: None })
    }

    /// Says what to do.
    pub(crate) fn hint(mut self, hint: &str) -> Trouble {
        self.0.hint = Some(hint.to_owned());
        self
    }
}

impl IntoResponse for Trouble {
    fn into_response(self) -> Response {
        let status = match self.0.code {
            ErrorCode::Failed => StatusCode::INTERNAL_SERVER_ERROR,
            ErrorCode::NotStored => StatusCode::INSUFFICIENT_STORAGE,
            ErrorCode::BadRequest => StatusCode::BAD_REQUEST,
            ErrorCode::Config => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorCode::NoSuchAgent => StatusCode::NOT_FOUND,
            ErrorCode::NotInState => StatusCode::CONFLICT,
            ErrorCode::Unauthorized => StatusCode::UNAUTHORIZED,
            ErrorCode::Forbidden => StatusCode::FORBIDDEN,
            ErrorCode::NotFound => StatusCode::NOT_FOUND,
            ErrorCode::TooSlow => StatusCode::REQUEST_TIMEOUT,
            ErrorCode::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorCode::WrongType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ErrorCode::WrongHost => StatusCode::MISDIRECTED_REQUEST,
            ErrorCode::TooMany => StatusCode::TOO_MANY_REQUESTS,
            ErrorCode::NotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            ErrorCode::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorCode::Ending => StatusCode::SERVICE_UNAVAILABLE,
        };
        (status, Json(ErrorBody { error: self.0 })).into_response()
    }
}
