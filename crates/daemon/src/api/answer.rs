//! Answers that are lists: with an `ETag`, so that what has not changed is not sent again, and a
//! `Link` to the next page, so that the list itself stays an array.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LINK};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, Uri};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::Trouble;
use crate::wire::ErrorCode;

/// A list on its way to a client.
pub(super) struct Listed<'a, T> {
    /// What is sent.
    pub(super) list: &'a T,
    /// Where there is more: the parameter that leads there, and its value.
    pub(super) next: Option<(&'static str, String)>,
}

impl<T: Serialize> Listed<'_, T> {
    /// The answer, or that nothing has changed.
    pub(super) fn answer(&self, headers: &HeaderMap, uri: &Uri) -> Result<Response<Body>, Trouble> {
        self.answer_as(headers, uri, || self.list)
    }

    /// The same for a list in which something always changes: `essence` is the list without that.
    pub(super) fn answer_as<E: Serialize>(
        &self,
        headers: &HeaderMap,
        uri: &Uri,
        essence: impl FnOnce() -> E,
    ) -> Result<Response<Body>, Trouble> {
        let failed = |error: serde_json::Error| Trouble::new(ErrorCode::Failed, error);
        let next = self.next.as_ref().map(|(key, value)| following(uri, key, value));
        let tag = (!stores_nothing(headers)).then(|| tag_of(&essence(), next.as_deref()));
        let tag = tag.transpose().map_err(failed)?;
        let mut response = if tag.as_deref().is_some_and(|tag| is_known(headers, tag)) {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            let body = serde_json::to_vec(self.list).map_err(failed)?;
            let mut response = Response::new(Body::from(body));
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            response
        };
        let value = |text: &str| HeaderValue::from_str(text).ok();
        let links = next.map(|next| format!("<{next}>; rel=\"next\""));
        for (name, text) in [(ETAG, tag), (LINK, links)] {
            if let Some(text) = text.as_deref().and_then(value) {
                response.headers_mut().insert(name, text);
            }
        }
        Ok(response)
    }
}

/// Weak: what is the same but for an age counts as the same.
fn tag_of(essence: &impl Serialize, next: Option<&str>) -> Result<String, serde_json::Error> {
    let mut hash = Sha256::new();
    hash.update(serde_json::to_vec(essence)?);
    hash.update(next.unwrap_or_default());
    let digest: String = hash.finalize()[..12].iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("W/\"{digest}\""))
}

/// Whether a client says that it will not remember the answer: then it has no use for a tag, which
/// costs as much as the answer itself.
fn stores_nothing(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let mut words = values.flat_map(|value| value.split(','));
    words.any(|word| word.trim().eq_ignore_ascii_case("no-store"))
        && !headers.contains_key(IF_NONE_MATCH)
}

/// Whether a client has what it asks for.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let plain = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let values = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .any(|one| one.trim() == "*" || plain(one) == plain(tag))
}

/// The same address with one parameter changed.
fn following(uri: &Uri, key: &str, value: &str) -> String {
    let is_other = |pair: &&str| pair.split('=').next() != Some(key) && !pair.is_empty();
    let mut query: Vec<&str> =
        uri.query().unwrap_or_default().split('&').filter(is_other).collect();
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    let pair = format!("{key}={}", value.bytes().map(escape).collect::<String>());
    query.push(&pair);
    format!("{}?{}", uri.path(), query.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(headers: &[(&str, &str)], list: &[u32], next: Option<&str>) -> Response<Body> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(
                axum::http::HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        let uri: Uri = "/api/v1/x?limit=2&cursor=a".parse().unwrap();
        let next = next.map(|next| ("cursor", next.to_owned()));
        Listed { list: &list, next }.answer(&map, &uri).unwrap()
    }

    #[test]
    fn what_a_client_has_is_not_sent_again() {
        let first = ask(&[], &[1, 2], None);
        assert_eq!(first.status(), StatusCode::OK);
        let tag = first.headers()[ETAG].to_str().unwrap().to_owned();
        for known in [tag.clone(), format!("\"x\", {tag}"), tag.replace("W/", ""), "*".to_owned()] {
            let again = ask(&[("if-none-match", &known)], &[1, 2], None);
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{known}");
            assert_eq!(again.headers()[ETAG].to_str().unwrap(), tag);
        }
        assert_eq!(ask(&[("if-none-match", &tag)], &[1, 3], None).status(), StatusCode::OK);
    }

    #[test]
    fn who_will_not_remember_the_answer_is_given_no_tag_unless_it_has_one() {
        let (plain, other) =
            (("cache-control", "max-age=0, No-Store"), ("cache-control", "no-cache"));
        assert!(!ask(&[plain], &[1], None).headers().contains_key(ETAG));
        assert!(ask(&[other], &[1], None).headers().contains_key(ETAG));
        let again = ask(&[plain, ("if-none-match", "*")], &[1], None);
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    }

    #[test]
    fn the_next_page_is_the_same_question_from_another_place() {
        let answer = ask(&[], &[1], Some("é b"));
        let link = answer.headers()[LINK].to_str().unwrap();
        assert_eq!(link, "</api/v1/x?limit=2&cursor=%C3%A9%20b>; rel=\"next\"");
    }
}
