//! The policy lab: an agent's policy as a file says it, and its real deaths under another one.

use std::time::Duration;

use axum::extract::State;
use axum::response::Json;
use defib_core::{Policy, Preset};
use defib_history::{Reader, RunFilter};
use defib_sim::rehearsal::Rehearsal;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Body, Segments};
use super::spec::{InState, OfAgent, Usual, WithBody};
use super::{Desk, Trouble};
use crate::engine::Ask;
use crate::policy::{Declared, declare, only, written};
use crate::replay::Replay;
use crate::wire::ErrorCode;
use crate::wire::words::{NameWord, RunWord};

/// No more of an agent's runs are replayed: the newest.
const RUNS: u32 = 10_000;

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(policy)).routes(routes!(simulate))
}

/// An agent's policy.
#[derive(Serialize, ToSchema)]
struct PolicyText {
    /// The rule set it started from.
    #[schema(value_type = String)]
    preset: Preset,
    /// The lines that would give it under `[agent.NAME]` in a file.
    toml: String,
}

/// What decides about an agent's deaths, as lines of a file.
#[utoipa::path(
    get, path = "/api/v1/agents/{name}/policy", tag = "agents",
    params(("name" = String, Path, description = "The agent.")),
    responses((status = 200, body = PolicyText), OfAgent, Usual)
)]
async fn policy(
    State(desk): State<Desk>,
    Segments(name): Segments<String>,
) -> Result<Json<PolicyText>, Trouble> {
    let (preset, policy) = *desk.ask(|answer| Ask::Policy(name, answer)).await?;
    Ok(Json(PolicyText { preset, toml: written(preset, &policy) }))
}

/// Under which policy. With neither form, under the agent's own.
#[derive(Debug, Deserialize, ToSchema)]
struct SimulateRequest {
    /// Lines as under `[agent.NAME]` in a file: `preset`, `restart`, `backoff`, `limits`, `on` …
    toml: Option<String>,
    /// The same keys as JSON.
    #[schema(value_type = Option<Object>)]
    policy: Option<Map<String, Value>>,
    /// Fixes the jitter; without it there is none.
    seed: Option<u64>,
}

/// What did happen, and what would.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it is what is written down, not what is used")]
struct Simulation {
    /// Whose deaths.
    #[schema(value_type = NameWord)]
    agent: String,
    /// What did happen: its runs, oldest first.
    #[schema(value_type = Vec<RunWord>)]
    did: Vec<()>,
    /// The numbers of those runs that were replayed: one for each `run-died` in `would`, in order.
    replayed: Vec<u64>,
    /// What would have happened: events as in `/api/v1/events`, with `at_s` from the first start on.
    #[schema(value_type = Vec<Object>)]
    would: Vec<()>,
    /// How it would have ended.
    outcome: SimulationOutcome,
}

/// How it would have ended.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it is what is written down, not what is used")]
struct SimulationOutcome {
    /// `at-rest`, `time-up`, `history-over` or `cut-off`.
    end: String,
    /// The state of the agent then.
    state: Option<String>,
    /// When, from the first start on.
    at_s: f64,
}

/// Replays an agent's real deaths under another policy.
///
/// On a virtual clock, by the supervisor itself; nothing is changed. Runs that people or a group ended
/// are left out.
#[utoipa::path(
    post, path = "/api/v1/agents/{name}/simulate", tag = "agents", request_body = SimulateRequest,
    params(("name" = String, Path, description = "The agent.")),
    responses((status = 200, body = Simulation), OfAgent, InState, WithBody, Usual)
)]
async fn simulate(
    State(desk): State<Desk>,
    Segments(name): Segments<String>,
    Body(request): Body<SimulateRequest>,
) -> Result<Json<Value>, Trouble> {
    let agent = desk.agent(&name).await?;
    let (plain, shown) = (agent.plain(), desk.engine.shown().name(&agent));
    let policy = match (&request.toml, &request.policy) {
        (Some(_), Some(_)) => {
            let message = "a policy is given as toml or as policy, not as both";
            return Err(Trouble::new(ErrorCode::Invalid, message));
        }
        (Some(lines), None) => tried(&plain, &Declared::Toml(&format!("{COMMAND}{lines}\n")))?,
        (None, Some(keys)) => {
            let mut keys = keys.clone();
            keys.insert("command".to_owned(), Value::from("true"));
            tried(&plain, &Declared::Json(&keys))?
        }
        (None, None) => desk.ask(|answer| Ask::Policy(name, answer)).await?.1,
    };
    let (path, engine) = (desk.history.clone(), desk.engine.clone());
    let played = tokio::task::spawn_blocking(move || {
        engine.flush_history();
        let filter = RunFilter { agent: Some(agent), limit: Some(RUNS), ..RunFilter::default() };
        let mut runs = Reader::open(&path)?.runs(&filter)?;
        runs.reverse();
        let replay = Replay::from_runs(runs);
        Ok(replay.script().map(|script| {
            let rehearsal = Rehearsal {
                agent: plain,
                policy,
                script,
                horizon: Duration::MAX,
                jitter_seed: request.seed,
                max_total_restarts: None,
            };
            replay.json(&shown, &rehearsal.play())
        }))
    });
    let played: Result<Option<Value>, defib_history::HistoryError> = played
        .await
        .map_err(|_| Trouble::new(ErrorCode::Failed, "the rehearsal could not be played"))?;
    match played {
        Ok(Some(account)) => Ok(Json(account)),
        Ok(None) => {
            let message = "no run of it has died by itself: there is nothing to replay";
            Err(Trouble::new(ErrorCode::NotInState, message))
        }
        Err(error) => Err(Trouble::new(ErrorCode::Failed, error)),
    }
}

/// An agent needs a command, and a rehearsal runs none.
const COMMAND: &str = "command = [\"true\"]\n";

fn tried(agent: &defib_core::Name, declared: &Declared<'_>) -> Result<Policy, Trouble> {
    let (_, config) = declare(std::path::Path::new("/"), agent, declared).map_err(Trouble)?;
    let agent = only(config);
    let agent = agent.ok_or_else(|| Trouble::new(ErrorCode::Config, "it declares no agent"))?;
    Ok((*agent.policy).clone())
}
