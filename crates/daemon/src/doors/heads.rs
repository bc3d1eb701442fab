//! The heads of requests and answers: how large a request's head may be, and the headers of every answer.
//!
//! HTTP is spoken by hyper, which answers a request that it cannot parse by itself, without any header of
//! ours. [`Dressed`] stands between hyper and the connection and replaces such an answer.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::Request;
use axum::http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::api::Trouble;
use crate::wire::ErrorCode;

/// The largest head of a request in bytes, and the largest number of its headers.
pub(super) const LIMITS: (usize, usize) = (32 << 10, 100);
/// How much more of a refused request is read, so that the client gets to see the answer.
const REST: usize = 1 << 20;
/// How long that may take.
const REST_WITHIN: Duration = Duration::from_secs(2);

/// The content security policy of every answer: a page loads what is served here and nothing else, and no
/// other page frames it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// The headers of every answer. A route chooses its own caching, and nothing else of it.
const HEADERS: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (CACHE_CONTROL, "no-store"),
];

/// Sets the headers of every answer.
pub(super) fn dress(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        if name != CACHE_CONTROL || !headers.contains_key(&name) {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
}

/// Refuses a request whose head is too large. hyper notices that only when a read ends inside of the head.
pub(super) fn refuse_large(request: &Request) -> Option<Response> {
    let line =
        request.method().as_str().len() + request.uri().to_string().len() + " HTTP/1.1  ".len();
    let headers =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    let is_large = line + headers.sum::<usize>() > LIMITS.0 || request.headers().len() > LIMITS.1;
    is_large.then(|| {
        let mut response = too_large().into_response();
        *response.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response
    })
}

fn too_large() -> Trouble {
    let (bytes, count) = LIMITS;
    let message = format!("the head of a request has at most {bytes} bytes and {count} headers");
    Trouble::new(ErrorCode::TooLarge, message)
}

/// A whole answer as bytes, after which the connection is closed.
pub(super) fn last_answer(status: StatusCode, trouble: &Trouble, more: &str) -> Vec<u8> {
    let body = crate::wire::ErrorBody { error: trouble.0.clone() };
    let body = serde_json::to_string(&body).unwrap_or_default() + "\n";
    let headers: String = HEADERS.map(|(name, value)| format!("{name}: {value}\r\n")).concat();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n{more}{headers}\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// What hyper's own answer becomes. Nothing if the bytes are something else.
///
/// hyper writes such an answer at once and as the last of its connection, and gives it no header that an
/// answer of ours lacks.
fn in_place_of(bytes: &[u8]) -> Option<Vec<u8>> {
    let head = bytes.strip_prefix(b"HTTP/1.1 ")?.strip_suffix(b"\r\n\r\n")?;
    let head = std::str::from_utf8(head).ok()?;
    let (status, headers) = head.split_once("\r\n")?;
    let is_bare = headers.split("\r\n").all(|header| {
        header == "connection: close"
            || header == "content-length: 0"
            || header.starts_with("date: ")
    });
    let status = StatusCode::from_bytes(status.as_bytes().get(..3)?).ok()?;
    let trouble = match status {
        _ if !is_bare => return None,
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE | StatusCode::URI_TOO_LONG => too_large(),
        StatusCode::BAD_REQUEST => Trouble::new(ErrorCode::BadRequest, "this is not HTTP/1.1"),
        _ => return None,
    };
    Some(last_answer(status, &trouble, ""))
}

/// A connection on which also hyper's own answers have our headers.
pub(super) struct Dressed<S> {
    stream: S,
    /// What is left to be written of an answer in place of hyper's.
    answer: Vec<u8>,
    /// Set once hyper's answer was replaced: how much more of the request may be read, and until when.
    rest: Option<(usize, Pin<Box<Sleep>>)>,
}

impl<S> Dressed<S> {
    pub(super) fn new(stream: S) -> Dressed<S> {
        Dressed { stream, answer: Vec::new(), rest: None }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Dressed<S> {
    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.answer.is_empty() {
            let written =
                std::task::ready!(Pin::new(&mut self.stream).poll_write(context, &self.answer))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.answer.drain(..written);
        }
        Poll::Ready(Ok(()))
    }

    /// Reads the rest of a refused request: a connection that is closed with unread bytes is reset, and the
    /// client may lose the answer.
    fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some((left, until)) = &mut self.rest else { return Poll::Ready(()) };
        let mut block = [0; 4096];
        while *left > 0 && until.as_mut().poll(context).is_pending() {
            let mut read = ReadBuf::new(&mut block);
            match std::task::ready!(Pin::new(&mut self.stream).poll_read(context, &mut read)) {
                Ok(()) if !read.filled().is_empty() => {
                    *left = left.saturating_sub(read.filled().len());
                }
                Ok(()) | Err(_) => break,
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Dressed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

/// Not vectored, so that an answer without a body comes in one piece.
impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Dressed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(answer) = in_place_of(bytes) {
            self.answer = answer;
            self.rest = Some((REST, Box::pin(tokio::time::sleep(REST_WITHIN))));
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.poll_answer(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.poll_answer(context))?;
        std::task::ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        self.poll_rest(context).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_without_headers_of_ours_is_replaced() {
        let bare = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\
                    content-length: 0\r\ndate: Wed, 18 Nov 2026 13:00:00 GMT\r\n\r\n";
        let text = String::from_utf8(in_place_of(bare.as_bytes()).unwrap()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 431 ") && head.contains("default-src 'none'"), "{text}");
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{text}");
        assert!(serde_json::from_str::<crate::wire::ErrorBody>(body).is_ok(), "{text}");
        for other in
            [&text, "", "HTTP/1.1 200 OK\r\n\r\n", &bare.replace("date", "x-a"), &bare[9..]]
        {
            assert!(in_place_of(other.as_bytes()).is_none(), "{other}");
        }
    }
}
