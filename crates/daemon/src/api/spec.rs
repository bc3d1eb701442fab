//! What the API says of itself: `GET /api/v1/openapi.json`, put together from the handlers.
//!
//! Routes are made by `utoipa_axum`, which takes a route and its description from the same attribute;
//! a test holds that no route is made another way.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::{Content, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Desk;
use crate::wire::{ErrorBody, TerminalNews, TerminalRequest};

/// What is said of the API as a whole.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "defib",
        description = "Keeps long-running AI agents alive, and knows why they died.\n\n\
            The same on the daemon's Unix socket and, where it listens, on loopback TCP. Times are \
            RFC 3339 in UTC, absent values are null, and what goes wrong is \
            `{\"error\": {\"code\", \"message\", \"hint\"}}`. Lists that have more to show say where in a \
            `Link` header with `rel=\"next\"`; those with an `ETag` answer 304 to its `If-None-Match`.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    components(schemas(ErrorBody, TerminalNews, TerminalRequest))
)]
pub(super) struct Whole;

/// The description itself, made once.
pub(crate) type Text = std::sync::Arc<str>;

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(description))
}

/// This description of the API, as `OpenAPI` 3.1.
#[utoipa::path(
    get, path = "/api/v1/openapi.json", tag = "daemon",
    responses((status = 200, content_type = "application/json", body = Object), Usual)
)]
async fn description(State(desk): State<Desk>) -> Response {
    let text = String::from(&*desk.description);
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

/// Errors as answers.
fn troubles(of: &[(u16, &str)]) -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
    let response = |(status, description): &(u16, &str)| {
        let content = Content::new(Some(Ref::from_schema_name("ErrorBody")));
        let response =
            ResponseBuilder::new().description(*description).content("application/json", content);
        (status.to_string(), RefOr::T(response.build()))
    };
    of.iter().map(response).collect()
}

/// What may come of any request.
pub(super) struct Usual;

impl IntoResponses for Usual {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        troubles(&[
            (400, "The request makes no sense."),
            (401, "Whoever asks has not said who they are."),
            (403, "Whoever asks may not."),
            (408, "The request does not come to an end."),
            (413, "The body is too large."),
            (415, "The body is not said to be JSON."),
            (421, "The request is meant for another host."),
            (429, "Whoever asks follows too much at once."),
            (500, "It did not work."),
            (503, "The daemon is ending, and begins nothing any more."),
            (507, "The change cannot be stored, because the disk is full or fails."),
        ])
    }
}

/// What may come of a request about one agent or group.
pub(super) struct OfAgent;

impl IntoResponses for OfAgent {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        troubles(&[(404, "There is no such agent, or no such run of it.")])
    }
}

/// What may come of a request that is about a state.
pub(super) struct InState;

impl IntoResponses for InState {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        troubles(&[(409, "The agent is not in a state for that.")])
    }
}

/// What may come of a request with a body.
pub(super) struct WithBody;

impl IntoResponses for WithBody {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let said =
            "The body is JSON, and does not say what it should; or a config cannot be applied.";
        troubles(&[(422, said)])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// The paths that a router answers to, as its debug form tells them: there is no other way to ask.
    fn paths_of(router: &axum::Router<super::Desk>) -> BTreeSet<String> {
        let told = format!("{router:?}");
        let quoted = told.split('"').skip(1).step_by(2);
        // The rest is how axum keeps what answers when nothing else does.
        let is_route =
            |text: &&str| text.len() > 1 && text.starts_with('/') && !text.starts_with("/{*");
        quoted.filter(is_route).map(str::to_owned).collect()
    }

    #[test]
    fn every_route_is_described() {
        let (router, described) = crate::api::described().split_for_parts();
        let paths = paths_of(&router);
        let told: BTreeSet<String> = described.paths.paths.keys().cloned().collect();
        assert!(paths.len() > 20, "the router tells of {paths:?}");
        assert_eq!(paths, told);
        // What the design names is there.
        for path in [
            "/api/v1/agents",
            "/api/v1/agents/{name}",
            "/api/v1/agents/{name}/start",
            "/api/v1/agents/{name}/stop",
            "/api/v1/agents/{name}/restart",
            "/api/v1/agents/{name}/revive",
            "/api/v1/agents/{name}/fund",
            "/api/v1/agents/{name}/logs",
            "/api/v1/agents/{name}/terminal",
            "/api/v1/history",
            "/api/v1/events",
            "/api/v1/self/beat",
            "/api/v1/openapi.json",
            "/healthz",
        ] {
            assert!(paths.contains(path), "{path} is missing");
        }
    }

    #[test]
    fn every_operation_says_what_may_go_wrong() {
        let described = crate::api::described().into_openapi();
        let text = serde_json::to_value(&described).unwrap();
        for (path, item) in text["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let statuses = operation["responses"].as_object().unwrap();
                assert!(statuses.contains_key("500"), "{method} {path}: {statuses:?}");
                assert!(!operation["summary"].is_null(), "{method} {path} has no summary");
            }
        }
        // Every reference leads somewhere.
        let schemas = text["components"]["schemas"].as_object().unwrap();
        let whole = text.to_string();
        for part in whole.split("\"#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "{name} is referred to and not there");
        }
    }
}
