//! Taking requests apart. What does not fit is an error of the API like any other, never plain text.

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Json;
use defib_core::{Name, Wall, span};
use serde::de::DeserializeOwned;

use super::Trouble;
use crate::wire::ErrorCode;

/// A JSON body.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Trouble;

    async fn from_request(request: Request, state: &S) -> Result<Body<T>, Trouble> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(body)) => Ok(Body(body)),
            Err(rejection) => Err(Trouble::from(rejection)),
        }
    }
}

/// A JSON body that may be left out.
pub(super) struct Maybe<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for Maybe<T> {
    type Rejection = Trouble;

    async fn from_request(request: Request, state: &S) -> Result<Maybe<T>, Trouble> {
        let length = request.headers().get("content-length");
        let is_there = length.is_some_and(|length| length.as_bytes() != b"0")
            || request.headers().contains_key("transfer-encoding");
        if !is_there {
            return Ok(Maybe(T::default()));
        }
        Body::from_request(request, state).await.map(|Body(body)| Maybe(body))
    }
}

/// What stands after the `?`.
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Params<T>, Trouble> {
        let query: Result<Query<T>, QueryRejection> = Query::from_request_parts(parts, state).await;
        query.map(|Query(query)| Params(query)).map_err(|rejection| {
            Trouble::new(ErrorCode::BadRequest, rejection.body_text())
                .hint("/api/v1/openapi.json says what can be asked for")
        })
    }
}

/// The parts of the address that vary.
pub(super) struct Segments<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Segments<T> {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Segments<T>, Trouble> {
        let path: Result<Path<T>, PathRejection> = Path::from_request_parts(parts, state).await;
        path.map(|Path(path)| Segments(path))
            .map_err(|rejection| Trouble::new(ErrorCode::BadRequest, rejection.body_text()))
    }
}

impl From<JsonRejection> for Trouble {
    fn from(rejection: JsonRejection) -> Trouble {
        let code = match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => ErrorCode::TooLarge,
            StatusCode::UNSUPPORTED_MEDIA_TYPE => ErrorCode::WrongType,
            StatusCode::UNPROCESSABLE_ENTITY => ErrorCode::Invalid,
            _ => ErrorCode::BadRequest,
        };
        let trouble = Trouble::new(code, rejection.body_text());
        if code == ErrorCode::WrongType {
            return trouble.hint("send `Content-Type: application/json`");
        }
        trouble
    }
}

/// A number within bounds.
pub(super) fn bounded(
    what: &str,
    value: Option<u32>,
    otherwise: u32,
    most: u32,
) -> Result<u32, Trouble> {
    match value.unwrap_or(otherwise) {
        number if (1..=most).contains(&number) => Ok(number),
        number => {
            let message = format!("{what} is {number}, and may be from 1 to {most}");
            Err(Trouble::new(ErrorCode::BadRequest, message))
        }
    }
}

/// A name, where one is given.
pub(super) fn plain(text: &str) -> Result<Name, Trouble> {
    Name::parse(text).map_err(|error| {
        Trouble::new(ErrorCode::BadRequest, format!("{text:?} is no name: {error}"))
    })
}

/// A moment: RFC 3339, or how long ago it was, such as `10m` or `7d`.
pub(super) fn moment(what: &str, text: &str, now: Wall) -> Result<Wall, Trouble> {
    if let Ok(ago) = span::parse(text) {
        let millis = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
        return Ok(Wall::from_millis(now.as_millis().saturating_sub(millis).max(0)));
    }
    let stated: Option<jiff::Timestamp> = text.parse().ok();
    let millis = stated.map(jiff::Timestamp::as_millisecond).filter(|millis| *millis >= 0);
    millis.map(Wall::from_millis).ok_or_else(|| {
        Trouble::new(ErrorCode::BadRequest, format!("{what}: {text:?} is no moment"))
            .hint("write 2026-11-16T04:00:00Z, or how long ago: 10m, 7d")
    })
}
