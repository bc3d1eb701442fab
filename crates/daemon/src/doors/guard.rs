//! The guard at both doors: who is asking, whether they may, and whether it is really them.
//!
//! In this order: is the request meant for us (Host), did a page of ours send it (Origin), who sends
//! it, may they, and is it small and plain enough to be read. What is refused is refused before any
//! route has seen it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, ORIGIN,
    TRANSFER_ENCODING, UPGRADE, WWW_AUTHENTICATE,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use defib_host::clock::now;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::address::Open;
use super::caller::{Caller, Need, need};
use super::kin::confine;
use super::record::{UnderWay, ends_the_daemon};
use super::serve::{Connection, Peer};
use crate::api::{Desk, Trouble};
use crate::engine::Ask;
use crate::wire::ErrorCode;

/// The largest request: a project of ten thousand agents is a third of it.
const LARGEST_PROJECT: usize = 64 << 20;
/// The largest of any other.
const LARGEST: usize = 1 << 20;
/// How long a body may take to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// How much a caller may follow at once: over TCP, and at this machine.
const FOLLOWS: (usize, usize) = (64, 1024);

/// Lets a request through to its route, or says why not.
pub(crate) async fn guard(State(desk): State<Desk>, request: Request, next: Next) -> Response {
    let wants_page =
        word(request.headers(), &ACCEPT).is_some_and(|kinds| kinds.contains("text/html"));
    let connection = request.extensions().get::<Arc<Connection>>().cloned();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut known = None;
    let response = match admit(&desk, request, next, &mut known).await {
        Ok(response) => plain_words(response).await,
        Err(trouble) => refusal(trouble, wants_page),
    };
    let status = response.status();
    let is_refusal = matches!(
        status,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST
    );
    if let Some(connection) = connection.filter(|_| is_refusal) {
        let unknown = || match &connection.peer {
            Peer::Local { uid, .. } => format!("unknown, uid {uid}"),
            Peer::Remote { from, .. } => format!("unknown, at {from}"),
        };
        desk.recorder.refused(known.unwrap_or_else(unknown), &method, &path, status);
    }
    response
}

/// Who it is goes to `known` as soon as that is seen: the audit names also those who are refused.
async fn admit(
    desk: &Desk,
    request: Request,
    next: Next,
    known: &mut Option<String>,
) -> Result<Response, Trouble> {
    let connection = request.extensions().get::<Arc<Connection>>().cloned();
    let Some(connection) = connection else {
        return Err(Trouble::new(ErrorCode::Failed, "a request without a connection"));
    };
    let request = match &connection.peer {
        Peer::Local { kin, .. } => confine(desk, kin, request, known).await?,
        Peer::Remote { .. } => request,
    };
    let (method, headers) = (request.method(), request.headers());
    let needs = need(method, request.uri().path());
    if let Peer::Remote { open, .. } = &connection.peer
        && request.uri().path() != "/healthz"
    {
        check_address(open, &request)?;
    }
    let caller = identify(desk, &connection.peer, headers, needs, known).await?;
    match &caller {
        Caller::Operator { .. } | Caller::Token { .. } | Caller::Session { .. } => {
            *known = Some(caller.to_string());
        }
        // Whether it is a run is for the route to find out.
        Caller::Agent | Caller::Nobody => {}
    }
    match needs {
        Need::Nothing | Need::OwnToken => {}
        Need::Role(role) if caller.role() >= Some(role) => {}
        Need::Role(role) => {
            let message = format!("{caller} may not do this: it needs the role {role}");
            return Err(Trouble::new(ErrorCode::Forbidden, message)
                .hint("`defib token new --role` makes a token that may"));
        }
    }
    check_form(&caller, method, headers)?;
    if follows(&request) && connection.follows.get().is_none() {
        let most = match connection.peer {
            Peer::Local { .. } => FOLLOWS.1,
            Peer::Remote { .. } => FOLLOWS.0,
        };
        let Some(permit) = desk.doors.follow(&caller, most) else {
            let message = format!("{caller} follows {most} streams already");
            return Err(Trouble::new(ErrorCode::TooMany, message).hint("close some of them"));
        };
        let _ = connection.follows.set(permit);
    }
    let most = match (&connection.peer, request.uri().path()) {
        (Peer::Local { .. }, "/api/v1/up" | "/api/v1/plan") => LARGEST_PROJECT,
        (Peer::Local { .. } | Peer::Remote { .. }, _) => LARGEST,
    };
    let (mut parts, body) = read_body(request, most).await?;
    let deed = (&parts.method, parts.uri.path(), &body);
    let deed = UnderWay::begin(&desk.recorder, &caller, needs, deed);
    let is_last = ends_the_daemon(parts.uri.path());
    parts.extensions.insert(caller);
    let request = Request::from_parts(parts, Body::from(body));
    match deed {
        Some(deed) if is_last => {
            deed.beforehand().await;
            Ok(next.run(request).await)
        }
        Some(deed) => {
            let response = next.run(request).await;
            deed.over(response.status()).await;
            Ok(response)
        }
        None => Ok(next.run(request).await),
    }
}

/// Whether a request means us, and not another by whose name a browser was led here; and whether the
/// page that sent it, if one did, is ours.
fn check_address(open: &Open, request: &Request) -> Result<(), Trouble> {
    let headers = request.headers();
    let is_one = headers.get_all(HOST).iter().count() == 1;
    let host = word(headers, &HOST).filter(|_| is_one).unwrap_or_default();
    if !open.is_called(host) || request.uri().authority().is_some() {
        let message = format!("nothing here is called {host:?}");
        return Err(
            Trouble::new(ErrorCode::WrongHost, message).hint(&format!("ask {}", open.url()))
        );
    }
    match headers.get(ORIGIN).map(HeaderValue::to_str) {
        None => Ok(()),
        Some(Ok(origin)) if open.is_origin(origin) => Ok(()),
        Some(_) => Err(Trouble::new(ErrorCode::Forbidden, "a page of another origin asks")
            .hint("programs send no Origin header; pages have to be ours")),
    }
}

async fn identify(
    desk: &Desk,
    peer: &Peer,
    headers: &HeaderMap,
    needs: Need,
    known: &mut Option<String>,
) -> Result<Caller, Trouble> {
    match needs {
        Need::Nothing => return Ok(Caller::Nobody),
        // The route itself looks whether the token is a living run's.
        Need::OwnToken => return Ok(Caller::Agent),
        Need::Role(_) => {}
    }
    if let Some(header) = headers.get(AUTHORIZATION) {
        let secret = header.to_str().ok().and_then(|header| header.split_once(' '));
        let secret = secret.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let Some((_, secret)) = secret else { return Err(unknown()) };
        let secret = secret.trim();
        if let Some((name, role)) = desk.doors.roster().token(secret) {
            return Ok(Caller::Token { name, role });
        }
        let secret = secret.to_owned();
        return match desk.ask(|answer| Ask::Bearer(secret, answer)).await {
            Ok(key) => {
                *known = Some(format!("agent:{}", key.agent));
                let message = format!("this token acts for {} alone", key.agent);
                Err(Trouble::new(ErrorCode::Forbidden, message)
                    .hint("`defib self --help` shows what an agent may do"))
            }
            Err(_) => Err(unknown()),
        };
    }
    match peer {
        Peer::Local { uid, .. } if *uid == desk.doors.0.uid || *uid == 0 => {
            Ok(Caller::Operator { uid: *uid })
        }
        Peer::Local { uid, .. } => {
            let message = format!("this daemon is another user's than {uid}'s");
            Err(Trouble::new(ErrorCode::Forbidden, message))
        }
        Peer::Remote { open, .. } => {
            let session = cookie(headers, &open.cookie());
            let by = session.and_then(|secret| desk.doors.roster().session(secret, now().wall));
            by.map(|by| Caller::Session { by }).ok_or_else(unknown)
        }
    }
}

/// The value of a cookie.
pub(crate) fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

fn unknown() -> Trouble {
    Trouble::new(ErrorCode::Unauthorized, "whoever asks is not known here").hint(
        "`defib dashboard` prints a link that logs a browser in; `defib token new` makes a token",
    )
}

/// A browser adds its cookie to whatever page asks: what changes something must come from a page that
/// names itself, and in a form that no plain HTML form can have.
fn check_form(caller: &Caller, method: &Method, headers: &HeaderMap) -> Result<(), Trouble> {
    let looks = matches!(*method, Method::GET | Method::HEAD);
    let is_session = matches!(caller, Caller::Session { .. });
    if is_session && (!looks || headers.contains_key(UPGRADE)) && !headers.contains_key(ORIGIN) {
        return Err(Trouble::new(ErrorCode::Forbidden, "a browser must say which page asks")
            .hint("programs use a token instead of a cookie: `defib token new`"));
    }
    let length = word(headers, &CONTENT_LENGTH).unwrap_or("0");
    let has_body = length != "0" || headers.contains_key(TRANSFER_ENCODING);
    let kind = word(headers, &CONTENT_TYPE).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if has_body && !kind.eq_ignore_ascii_case("application/json") {
        return Err(Trouble::new(ErrorCode::WrongType, "bodies are JSON here")
            .hint("send `Content-Type: application/json`"));
    }
    Ok(())
}

/// Whether a request may hold its connection for long.
fn follows(request: &Request) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let kinds = word(request.headers(), &ACCEPT).unwrap_or_default();
    request.headers().contains_key(UPGRADE)
        || query.split('&').any(|pair| pair == "follow=true")
        || kinds.contains("text/event-stream")
        || request.uri().path() == "/api/v1/logs"
}

/// Reads a body whole, so that no route waits for one who does not send it, or is sent too much.
async fn read_body(request: Request, most: usize) -> Result<(Parts, Bytes), Trouble> {
    let too_large = || {
        let message = format!("a request has at most {most} bytes");
        Trouble::new(ErrorCode::TooLarge, message)
            .hint("projects are applied by `defib up`, over the daemon's own socket")
    };
    let (parts, body) = request.into_parts();
    let said = word(&parts.headers, &CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    if said.is_some_and(|said| said > most as u64) {
        return Err(too_large());
    }
    let read = tokio::time::timeout(BODY_WITHIN, Limited::new(body, most).collect());
    match read.await {
        Ok(Ok(body)) => Ok((parts, body.to_bytes())),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Trouble::new(ErrorCode::BadRequest, "the request breaks off")),
        Err(_) => Err(Trouble::new(ErrorCode::TooSlow, "the request does not come to an end")),
    }
}

/// A header as text.
fn word<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// What a route refused before it was one of ours that spoke, in the form that all troubles have.
async fn plain_words(response: Response) -> Response {
    let status = response.status();
    let kind = word(response.headers(), &CONTENT_TYPE).unwrap_or_default();
    if !status.is_client_error() || !kind.starts_with("text/plain") {
        return response;
    }
    let code = match status {
        StatusCode::NOT_FOUND => ErrorCode::NotFound,
        StatusCode::PAYLOAD_TOO_LARGE => ErrorCode::TooLarge,
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ErrorCode::WrongType,
        _ => ErrorCode::BadRequest,
    };
    let said = axum::body::to_bytes(response.into_body(), LARGEST).await.unwrap_or_default();
    let trouble = Trouble::new(code, String::from_utf8_lossy(&said).trim());
    let mut response = trouble.into_response();
    *response.status_mut() = status;
    response
}

/// Says why not. A person who has a browser open is told what to do in a page.
fn refusal(trouble: Trouble, wants_page: bool) -> Response {
    let is_unknown = trouble.0.code == ErrorCode::Unauthorized;
    let mut response = if is_unknown && wants_page {
        (StatusCode::UNAUTHORIZED, Html(include_str!("unknown.html"))).into_response()
    } else {
        trouble.into_response()
    };
    if is_unknown {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    // Whoever was refused has to come in again, so that nobody holds a place for nothing.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
