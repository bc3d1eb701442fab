//! The API: HTTP on the daemon's socket. One family of routes a file.
//!
//! Handlers ask the engine and wait for its answer; none of them holds anything that the engine
//! needs. What goes wrong is a JSON object with a code, a message and a hint.

mod access;
mod agents;
mod control;
mod events;
mod logs;
mod money;
mod own;
mod terminal;

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use tokio::sync::oneshot;

use crate::doors::{Doors, guard};
use crate::engine::{Answer, Ask, EngineHandle};
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
}

/// Every route, with the guard before it.
pub(crate) fn routes(desk: Desk) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .merge(access::routes())
        .merge(agents::routes())
        .merge(control::routes())
        .merge(events::routes())
        .merge(logs::routes())
        .merge(own::routes())
        .merge(money::routes())
        .merge(terminal::routes())
        .fallback(async || Trouble::new(ErrorCode::NotFound, "there is nothing at this address"))
        // The guard has read the body by then, and knows how large it may be.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(desk.clone(), guard))
        .with_state(desk)
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
        };
        (status, Json(ErrorBody { error: self.0 })).into_response()
    }
}
