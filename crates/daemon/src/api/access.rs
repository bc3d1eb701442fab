//! Access: tokens, links that log a browser in, and the login itself.

use axum::Router;
use axum::extract::{Extension, Path, Query, State};
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{delete, get, post};
use defib_core::{Name, Wall};
use defib_history::Intent;
use defib_host::clock::now;
use serde::Deserialize;

use super::{Desk, Trouble};
use crate::doors::{Caller, Listening, NotMade, Open, Role, SESSION, cookie};
use crate::wire::{ErrorCode, LoginLink, NewToken, TokenStatus, stamp};

pub(super) fn routes() -> Router<Desk> {
    Router::new()
        .route("/login", get(log_in))
        .route("/api/v1/logout", post(log_out))
        .route("/api/v1/links", post(new_link))
        .route("/api/v1/audit", get(audit))
        .route("/api/v1/tokens", get(tokens).post(new_token))
        .route("/api/v1/tokens/{name}", delete(revoke))
}

/// Where the doors are, or why there are none.
async fn door(desk: &Desk) -> Result<std::sync::Arc<Open>, Trouble> {
    match desk.doors.settled().await {
        Listening::At(open) => Ok(open),
        Listening::Off => Err(Trouble::new(ErrorCode::NotInState, "the web server is off")
            .hint("take `listen = \"off\"` out of [server] and run `defib reload`")),
        Listening::Failed(why) => {
            Err(Trouble::new(ErrorCode::Failed, format!("the web server does not listen: {why}"))
                .hint("give [server] another `listen` address and run `defib reload`"))
        }
        Listening::NotYet => Err(Trouble::new(ErrorCode::Failed, "the daemon is still starting")
            .hint("try again in a moment")),
    }
}

async fn new_link(
    State(desk): State<Desk>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<LoginLink>, Trouble> {
    let open = door(&desk).await?;
    let by = match &caller {
        // Whoever is logged in may log in elsewhere, as the same.
        Caller::Session { by } => by.clone(),
        Caller::Operator { .. } | Caller::Token { .. } | Caller::Agent | Caller::Nobody => {
            caller.to_string()
        }
    };
    let secret = desk.doors.roster().new_link(by, now().mono).ok_or_else(no_random)?;
    Ok(Json(LoginLink { url: format!("{}/login?key={secret}", open.url()) }))
}

fn no_random() -> Trouble {
    Trouble::new(ErrorCode::Failed, "the kernel has no random bytes to give")
}

#[derive(Deserialize)]
struct LoginQuery {
    #[serde(default)]
    key: String,
}

/// Uses a link up, and sends the browser to the page with a cookie.
async fn log_in(
    State(desk): State<Desk>,
    method: Method,
    Query(LoginQuery { key }): Query<LoginQuery>,
) -> Result<Response, Trouble> {
    let used_up = || {
        Trouble::new(ErrorCode::Unauthorized, "this link has been used, or is too old")
            .hint("`defib dashboard` prints another")
    };
    let Listening::At(open) = desk.doors.listening() else { return Err(used_up()) };
    // One who only looks whether there is something does not use it up.
    if method != Method::GET {
        return Ok(StatusCode::OK.into_response());
    }
    let made = desk.doors.roster().log_in(&key, now()).ok_or_else(used_up)?;
    store(&desk, made.intents).await?;
    let who = desk.doors.roster().session(&made.secret, now().wall).unwrap_or_default();
    let (who, what) = (format!("session of {who}"), "GET /login".to_owned());
    desk.recorder.write(who, what, None, "ok".to_owned()).await;
    let cookie = set_cookie(&open, &made.secret, SESSION.as_secs());
    let mut response = StatusCode::SEE_OTHER.into_response();
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/"));
    response.headers_mut().insert(SET_COOKIE, cookie.ok_or_else(no_random)?);
    Ok(response)
}

fn set_cookie(open: &Open, value: &str, seconds: u64) -> Option<HeaderValue> {
    let (name, secure) = (open.cookie(), if open.is_tls() { "; Secure" } else { "" });
    let text =
        format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::from_str(&text).ok()
}

async fn log_out(State(desk): State<Desk>, headers: HeaderMap) -> Result<Response, Trouble> {
    let mut response = Json(()).into_response();
    if let Listening::At(open) = desk.doors.listening() {
        let session = cookie(&headers, &open.cookie());
        let gone = session.and_then(|secret| desk.doors.roster().log_out(secret));
        store(&desk, gone.into_iter().collect()).await?;
        if let Some(cookie) = set_cookie(&open, "", 0) {
            response.headers_mut().insert(SET_COOKIE, cookie);
        }
    }
    Ok(response)
}

#[derive(Deserialize)]
struct TokenRequest {
    name: Option<Name>,
    role: Role,
}

async fn new_token(
    State(desk): State<Desk>,
    Extension(caller): Extension<Caller>,
    Json(TokenRequest { name, role }): Json<TokenRequest>,
) -> Result<Json<NewToken>, Trouble> {
    let roster = desk.doors.roster();
    let name = name.map_or_else(|| roster.free_name(role), |name| name.to_string());
    let made =
        roster.new_token(&name, role, caller.to_string(), now().wall).map_err(|why| match why {
            NotMade::Taken => {
                let message = format!("there is a token {name:?} already");
                Trouble::new(ErrorCode::NotInState, message)
                    .hint("choose another name, or revoke it first: `defib token revoke`")
            }
            NotMade::NoRandom => no_random(),
        })?;
    if let Err(trouble) = store(&desk, made.intents).await {
        let _ = desk.doors.roster().revoke(&name);
        return Err(trouble);
    }
    Ok(Json(NewToken { name, role, token: made.secret }))
}

async fn tokens(State(desk): State<Desk>) -> Json<Vec<TokenStatus>> {
    let all = desk.doors.roster().tokens().into_iter();
    let shown = all.map(|(name, entry)| TokenStatus {
        name,
        role: entry.role,
        created_at: stamp(Wall::from_millis(entry.created_ms)),
        created_by: entry.created_by,
    });
    Json(shown.collect())
}

async fn revoke(State(desk): State<Desk>, Path(name): Path<String>) -> Result<Json<()>, Trouble> {
    let gone = desk.doors.roster().revoke(&name).ok_or_else(|| {
        Trouble::new(ErrorCode::NoSuchAgent, format!("there is no token {name:?}"))
            .hint("`defib token list` shows those that there are")
    })?;
    // It is of no use any more, whatever the disk says; what it says is that it would be again.
    store(&desk, gone).await.map(Json)
}

#[derive(Deserialize)]
struct AuditQuery {
    /// At most so many, the newest.
    last: Option<usize>,
}

async fn audit(
    State(desk): State<Desk>,
    Query(query): Query<AuditQuery>,
) -> Result<Json<Vec<crate::audit::Entry>>, Trouble> {
    let home = desk.home.clone();
    let read = tokio::task::spawn_blocking(move || crate::audit::read(&home)).await;
    match read {
        Ok(Ok(mut entries)) => {
            let before = entries.len().saturating_sub(query.last.unwrap_or(1000));
            Ok(Json(entries.split_off(before)))
        }
        Ok(Err(error)) => Err(Trouble::new(ErrorCode::Failed, error)),
        Err(_) => Err(Trouble::new(ErrorCode::Failed, "the daemon is ending")),
    }
}

/// Waits until it is on disk.
async fn store(desk: &Desk, intents: Vec<Intent>) -> Result<(), Trouble> {
    let engine = desk.engine.clone();
    let stored = tokio::task::spawn_blocking(move || engine.store_all(intents)).await;
    match stored {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Trouble::new(ErrorCode::Failed, format!("cannot store it: {error}"))
            .hint("see that there is space in the home folder")),
        Err(_) => Err(Trouble::new(ErrorCode::Failed, "the daemon is ending")),
    }
}
