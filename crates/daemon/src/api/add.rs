//! Adding an agent without a file.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Json;
use defib_core::Name;
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::control::bring_up;
use super::extract::Body;
use super::spec::{Usual, WithBody};
use super::{Desk, Trouble};
use crate::engine::Ask;
use crate::policy::{Declared, declare};
use crate::recipe::environment_for;
use crate::wire::words::NameWord;
use crate::wire::{AgentStatus, ErrorCode, Mode, UpRequest};

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(add))
}

/// An agent. Beside these it takes every key that an agent has in a file.
#[derive(Deserialize, ToSchema)]
struct AddRequest {
    /// Its name.
    #[schema(value_type = NameWord)]
    name: Name,
    /// What is run: words, or a line that is split into words.
    #[schema(value_type = Vec<String>, min_items = 1)]
    command: Value,
    /// `restart`, `cwd`, `env`, `pty`, `preset` and all others.
    #[serde(flatten)]
    #[schema(ignore)]
    others: Map<String, Value>,
}

/// Adds an agent without a file, and starts it.
///
/// It is a project of its own, and is there until it is deleted, also after a reboot. One of that name
/// which was added before is changed. It runs with the daemon's clean environment, in the home folder
/// of its user unless `cwd` says otherwise.
#[utoipa::path(
    post, path = "/api/v1/agents", tag = "agents", request_body = AddRequest,
    responses((status = 201, body = [AgentStatus]), WithBody, Usual)
)]
async fn add(
    State(desk): State<Desk>,
    Body(request): Body<AddRequest>,
) -> Result<(StatusCode, Json<Vec<AgentStatus>>), Trouble> {
    let AddRequest { name, command, others: mut keys } = request;
    keys.insert("command".to_owned(), command);
    let user_home = || std::env::var("HOME").unwrap_or_else(|_| "/".to_owned());
    keys.entry("cwd").or_insert_with(|| Value::from(user_home()));
    let folder = desk.home.join("adhoc");
    let path = folder.join(format!("{name}.toml"));
    let (text, config) = declare(&folder, &name, &Declared::Json(&keys)).map_err(Trouble)?;
    let environment = environment_for(&config, std::env::vars());
    let up = UpRequest {
        path: path.clone(),
        config,
        mode: Mode::Continuous,
        environment,
        options: defib_config::Options::default(),
        reload: false,
    };
    // Whether it can be applied is known before its file is there.
    let asked = Box::new(up.clone());
    desk.ask(|answer| Ask::Plan(asked, answer)).await?;
    let written = tokio::task::spawn_blocking(move || {
        std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, text))
    });
    match written.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            return Err(Trouble::new(ErrorCode::Failed, format!("cannot keep it: {error}"))
                .hint("see that there is space in the home folder"));
        }
        Err(_) => return Err(Trouble::new(ErrorCode::Failed, "the daemon is ending")),
    }
    bring_up(&desk, up).await?;
    let names = vec![name.as_str().to_owned()];
    let added = desk.ask(|answer| Ask::Status(names, answer)).await?;
    Ok((StatusCode::CREATED, Json(added)))
}
