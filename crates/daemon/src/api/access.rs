//! Access: tokens, links that log a browser in, and the login itself.

use axum::extract::{Extension, State};
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use defib_core::{Name, Wall};
use defib_history::Intent;
use defib_host::clock::now;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Body, Params, Segments};
use super::spec::{InState, OfAgent, Usual, WithBody};
use super::{Desk, Trouble};
use crate::doors::{Caller, Listening, NotMade, Open, Role, SESSION, cookie};
use crate::intents::{in_effect_unstored, refused_unstored};
use crate::wire::words::NameWord;
use crate::wire::{ErrorCode, LoginLink, NewToken, TokenStatus, stamp};

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(log_in))
        .routes(routes!(log_out))
        .routes(routes!(new_link))
        .routes(routes!(audit))
        .routes(routes!(tokens, new_token))
        .routes(routes!(revoke))
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

/// Makes a link that logs a browser in, once.
#[utoipa::path(
    post, path = "/api/v1/links", tag = "access",
    responses((status = 200, body = LoginLink), InState, Usual)
)]
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

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct LoginQuery {
    /// What the link has.
    #[serde(default)]
    key: String,
}

/// Uses a link up, and sends the browser to the page with a cookie.
#[utoipa::path(
    get, path = "/login", tag = "access", params(LoginQuery),
    responses(
        (status = 200, description = "Somebody has only looked whether there is something."),
        (status = 303, description = "Logged in: on to the page."),
        Usual
    )
)]
async fn log_in(
    State(desk): State<Desk>,
    method: Method,
    Params(LoginQuery { key }): Params<LoginQuery>,
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

/// Logs the browser out whose cookie comes with the request.
#[utoipa::path(
    post, path = "/api/v1/logout", tag = "access", responses((status = 200), Usual)
)]
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

#[derive(Deserialize, ToSchema)]
struct TokenRequest {
    /// What to call it; by default its role and a number.
    #[schema(value_type = Option<NameWord>)]
    name: Option<Name>,
    /// What it may do.
    role: Role,
}

/// Makes a token. It is shown this once.
#[utoipa::path(
    post, path = "/api/v1/tokens", tag = "access", request_body = TokenRequest,
    responses((status = 200, body = NewToken), InState, WithBody, Usual)
)]
async fn new_token(
    State(desk): State<Desk>,
    Extension(caller): Extension<Caller>,
    Body(TokenRequest { name, role }): Body<TokenRequest>,
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

/// Every token, without what it is.
#[utoipa::path(
    get, path = "/api/v1/tokens", tag = "access", responses((status = 200, body = [TokenStatus]), Usual)
)]
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

/// Takes a token away, and logs out the browsers that it logged in.
#[utoipa::path(
    delete, path = "/api/v1/tokens/{name}", tag = "access",
    params(("name" = String, Path, description = "What the token is called.")),
    responses((status = 200), OfAgent, Usual)
)]
async fn revoke(
    State(desk): State<Desk>,
    Segments(name): Segments<String>,
) -> Result<Json<()>, Trouble> {
    let gone = desk.doors.roster().revoke(&name).ok_or_else(|| {
        Trouble::new(ErrorCode::NoSuchAgent, format!("there is no token {name:?}"))
            .hint("`defib token list` shows those that there are")
    })?;
    // The token is invalid from now on, whether or not the disk takes that.
    let stored = {
        let (engine, gone) = (desk.engine.clone(), gone.clone());
        blocking(move || engine.store_all(gone)).await?
    };
    if let Err(why) = stored {
        for intent in gone {
            desk.engine.store_later(intent);
        }
        return Err(Trouble(in_effect_unstored(&format!("token revoke {name}"), &why)));
    }
    Ok(Json(()))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct AuditQuery {
    /// At most so many, the newest.
    last: Option<usize>,
}

/// What operators did, the oldest first.
#[utoipa::path(
    get, path = "/api/v1/audit", tag = "access", params(AuditQuery),
    responses((status = 200, body = [Object]), Usual)
)]
async fn audit(
    State(desk): State<Desk>,
    Params(query): Params<AuditQuery>,
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
    let stored = blocking(move || engine.store_all(intents)).await?;
    stored.map_err(|why| Trouble(refused_unstored("the change", why)))
}

/// Waits for the disk on a thread that may wait.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Trouble> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Trouble::new(ErrorCode::Failed, "the daemon is ending"))
}
