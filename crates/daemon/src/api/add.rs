//! Adding an agent without a file.

use std::path::Path;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Json;
use defib_config::{Config, Format, Options};
use defib_core::Name;
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::control::bring_up;
use super::extract::{Body, plain};
use super::spec::{Usual, WithBody};
use super::{Desk, Trouble};
use crate::adhoc;
use crate::engine::Ask;
use crate::intents::refused_unstored;
use crate::policy::{Declared, declare};
use crate::recipe::environment_for;
use crate::wire::words::NameWord;
use crate::wire::{AgentStatus, ErrorCode, Mode, UpRequest};

/// By these keys a request is one in the words of a spawn request: `autoRestart` and its numbers.
const SPAWN_REQUEST: [&str; 7] = [
    "autoRestart",
    "maxDeaths",
    "windowSeconds",
    "respawnOnZero",
    "args",
    "workingDirectory",
    "environment",
];

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(add))
}

/// The file of a spawn request, and what it says. What would only be warned of in a file is refused:
/// nobody would read the warning.
fn requested(
    folder: &Path,
    name: &Name,
    mut keys: Map<String, Value>,
) -> Result<(String, Config), Trouble> {
    keys.insert("name".to_owned(), name.as_str().into());
    let options = Options { format: Some(Format::Celistra), ..Options::default() };
    let body = Value::Object(keys).to_string();
    let imported = defib_config::import(Path::new("spawn.json"), &body, &options);
    if let Some(found) = imported.diagnostics.into_iter().next() {
        let trouble = Trouble::new(ErrorCode::Config, found.message);
        return Err(found.help.iter().fold(trouble, |trouble, help| trouble.hint(help)));
    }
    let text = imported.toml.unwrap_or_default();
    let config = defib_config::parse_in(folder, &text).config;
    let config = config.ok_or_else(|| Trouble::new(ErrorCode::Config, "it cannot be used"))?;
    Ok((text, config))
}

/// An agent. Beside these it takes every key that an agent has in a file, and those of a spawn request:
/// `autoRestart`, `maxDeaths`, `windowSeconds`, `respawnOnZero`, `args`.
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
    let name = plain(name.as_str())?;
    keys.insert("command".to_owned(), command);
    let user_home = || std::env::var("HOME").unwrap_or_else(|_| "/".to_owned());
    if !keys.contains_key("workingDirectory") {
        keys.entry("cwd").or_insert_with(|| Value::from(user_home()));
    }
    let folder = desk.home.join("adhoc");
    let path = folder.join(format!("{name}.toml"));
    let (text, config) = if keys.keys().any(|key| SPAWN_REQUEST.contains(&key.as_str())) {
        requested(&folder, &name, keys)?
    } else {
        declare(&folder, &name, &Declared::Json(&keys)).map_err(Trouble)?
    };
    let environment = environment_for(&config, std::env::vars());
    let up = UpRequest {
        path: path.clone(),
        config,
        mode: Mode::Continuous,
        environment,
        options: Options::default(),
        reload: false,
    };
    // Whether it can be applied is known before its file is there.
    let asked = Box::new(up.clone());
    desk.ask(|answer| Ask::Plan(asked, answer)).await?;
    let written = tokio::task::spawn_blocking(move || adhoc::keep(&path, &text));
    match written.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            return Err(Trouble(refused_unstored(&format!("run {name}"), error)));
        }
        Err(_) => return Err(Trouble::new(ErrorCode::Failed, "the daemon is ending")),
    }
    bring_up(&desk, up).await?;
    // Its project has its name.
    let names = vec![Name::in_full(&name, &name).into()];
    let added = desk.ask(|answer| Ask::Status(names, answer)).await?;
    Ok((StatusCode::CREATED, Json(desk.engine.shown().statuses(added))))
}
