//! The dashboard: the files of a page that is built into the binary.
//!
//! It answers where no route does. A browser that asks for a page gets the one page there is, whatever
//! the address, so that links into the dashboard work; everybody else is told that there is nothing.
//! Nothing comes from another host, and no script or style stands in the page itself.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};

use super::Trouble;
use crate::wire::ErrorCode;

include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));

/// Files in here have a hash of what is in them in their name: what was once fetched stays right.
const HASHED: &str = "/assets/";

/// A file that is served.
struct File {
    path: &'static str,
    /// What is in it, as an `ETag`.
    tag: &'static str,
    plain: &'static [u8],
    brotli: Option<&'static [u8]>,
    gzip: Option<&'static [u8]>,
}

/// The file at the address, the page, or that there is nothing.
pub(super) async fn page(request: Request) -> Response {
    let path = request.uri().path();
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let file = FILES.iter().find(|file| file.path == path && is_read).or_else(|| {
        let is_ours = path == "/" || !path.starts_with("/api/") && !path.starts_with(HASHED);
        let is_page = is_read && is_ours && wants_page(request.headers());
        FILES.iter().find(|file| file.path == "/index.html" && is_page)
    });
    match file {
        Some(file) => file.answer(request.headers()),
        None => {
            Trouble::new(ErrorCode::NotFound, "there is nothing at this address").into_response()
        }
    }
}

/// Whether a browser asks for something to show. Programs that take anything get JSON.
fn wants_page(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("text/html"))
}

impl File {
    fn answer(&self, headers: &HeaderMap) -> Response {
        let lasts = self.path.starts_with(HASHED);
        let caching = if lasts { "public, max-age=31536000, immutable" } else { "no-cache" };
        let mut answer = Response::new(Body::empty());
        let mut say = |name: HeaderName, value: &'static str| {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        };
        say(CACHE_CONTROL, caching);
        say(ETAG, self.tag);
        say(VARY, "accept-encoding");
        say(CONTENT_TYPE, self.content_type());
        let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        if known.is_some_and(|known| known.split(',').any(|tag| tag.trim() == self.tag)) {
            *answer.status_mut() = StatusCode::NOT_MODIFIED;
            return answer;
        }
        let (encoding, bytes) = self.encoded(headers);
        if let Some(encoding) = encoding {
            say(CONTENT_ENCODING, encoding);
        }
        *answer.body_mut() = Body::from(bytes);
        answer
    }

    /// The smallest form that the client takes.
    fn encoded(&self, headers: &HeaderMap) -> (Option<&'static str>, &'static [u8]) {
        let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
        let takes = |name: &str| {
            accepted.unwrap_or_default().split(',').any(|offer| {
                let (encoding, weight) = offer.split_once(';').unwrap_or((offer, ""));
                let refused = matches!(weight.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000");
                encoding.trim().eq_ignore_ascii_case(name) && !refused
            })
        };
        match (self.brotli, self.gzip) {
            (Some(bytes), _) if takes("br") => (Some("br"), bytes),
            (_, Some(bytes)) if takes("gzip") => (Some("gzip"), bytes),
            (_, _) => (None, self.plain),
        }
    }

    fn content_type(&self) -> &'static str {
        match self.path.rsplit('.').next() {
            Some("html") => "text/html; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            Some("webmanifest") => "application/manifest+json",
            Some(_) | None => "application/octet-stream",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> File {
        File {
            path: "/assets/app-1.js",
            tag: "\"1\"",
            plain: b"plain",
            brotli: Some(b"br"),
            gzip: Some(b"gz"),
        }
    }

    fn with(name: HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn the_smallest_form_that_the_client_takes_is_sent() {
        for (accepted, encoding) in [
            ("gzip, deflate, br", Some("br")),
            ("gzip, br;q=0", Some("gzip")),
            ("GZIP;q=0.5", Some("gzip")),
            ("identity", None),
            ("brotli", None),
        ] {
            assert_eq!(file().encoded(&with(ACCEPT_ENCODING, accepted)).0, encoding, "{accepted}");
        }
        assert_eq!(file().encoded(&HeaderMap::new()).1, b"plain");
    }

    #[test]
    fn what_is_known_is_not_sent_again() {
        let answer = file().answer(&with(IF_NONE_MATCH, "\"0\", \"1\""));
        assert_eq!(answer.status(), StatusCode::NOT_MODIFIED);
        let answer = file().answer(&with(IF_NONE_MATCH, "\"0\""));
        assert_eq!(answer.status(), StatusCode::OK);
    }

    #[test]
    fn there_is_always_a_page_and_only_it_may_be_stale() {
        let page = FILES.iter().find(|file| file.path == "/index.html").unwrap();
        assert_eq!(page.answer(&HeaderMap::new()).headers()[CACHE_CONTROL], "no-cache");
        assert!(
            file().answer(&HeaderMap::new()).headers()[CACHE_CONTROL]
                .to_str()
                .unwrap()
                .contains("immutable")
        );
    }
}
