//! What people look at: groups as a tree, lifelines, what a live run uses.
//!
//! Nothing here is kept: figures are read when somebody asks.

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{Json, Response};
use defib_core::{Name, Wall};
use defib_history::{LifelineFilter, Reader};
use defib_host::clock::now;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Listed;
use super::events::blocking;
use super::extract::{Params, Segments, bounded, moment};
use super::spec::{OfAgent, Usual};
use super::{Desk, Trouble};
use crate::engine::Ask;
use crate::wire::{
    AgentStatus, Bar, ErrorCode, GroupStatus, Lifeline, Lifelines, Pause, RunUsage, stamp,
};

/// No page of lifelines has more agents.
const MOST_AGENTS: u32 = 1_000;
/// No lifeline has more bars.
const MOST_BARS: u32 = 2_000;

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(groups)).routes(routes!(usage)).routes(routes!(lifelines))
}

/// The groups as a tree, each with its strategy, its budget and its members.
#[utoipa::path(
    get, path = "/api/v1/groups", tag = "agents",
    responses(
        (status = 200, body = [GroupStatus]), (status = 304, description = "It is as it was."), Usual
    )
)]
async fn groups(
    State(desk): State<Desk>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Trouble> {
    let groups = desk.ask(Ask::Groups).await?.into_iter();
    let groups: Vec<_> = groups.map(|group| desk.engine.shown().group(group)).collect();
    Listed { list: &groups, next: None }.answer(&headers, &uri)
}

/// What the live run of an agent uses: memory, CPU time, processes.
///
/// Read at this moment, from its cgroup or from its processes.
#[utoipa::path(
    get, path = "/api/v1/agents/{name}/usage", tag = "agents",
    params(("name" = String, Path, description = "The agent.")),
    responses((status = 200, body = RunUsage), OfAgent, Usual)
)]
async fn usage(
    State(desk): State<Desk>,
    Segments(name): Segments<String>,
) -> Result<Json<RunUsage>, Trouble> {
    let AgentStatus { name: agent, pid, run, .. } = desk.status(&name).await?;
    let alive = pid.zip(run);
    let shown = desk.engine.shown().name(&agent);
    let looked = tokio::task::spawn_blocking(move || {
        let used = alive.map(|(pid, run)| defib_host::usage::run_usage(pid, &agent, run));
        RunUsage {
            run: alive.map(|(_, run)| run),
            at: stamp(now().wall),
            memory_bytes: used.map(|used| used.memory_bytes),
            cpu_s: used.map(|used| used.cpu.as_secs_f64()),
            processes: used.map(|used| used.processes),
            agent: shown,
        }
    });
    looked.await.map(Json).map_err(|_| Trouble::new(ErrorCode::Failed, "the daemon is ending"))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct LifelineQuery {
    /// Where the stretch begins: RFC 3339, or how long ago. An hour ago without it.
    since: Option<String>,
    /// Where it ends; now without it.
    until: Option<String>,
    /// Of this agent only, or of the members of this group.
    agent: Option<String>,
    /// At most so many agents; a `Link` says where the others are.
    #[param(minimum = 1, maximum = 1_000)]
    limit: Option<u32>,
    /// At most so many runs of each: the newest.
    #[param(minimum = 1, maximum = 2_000)]
    bars: Option<u32>,
    /// Those after the agent of this name, as the `Link` of the page before says.
    cursor: Option<String>,
}

/// What agents lived through: their runs as bars, their waits between.
#[utoipa::path(
    get, path = "/api/v1/lifelines", tag = "history", params(LifelineQuery),
    responses(
        (status = 200, body = Lifelines), (status = 304, description = "It is as it was."),
        OfAgent, Usual
    )
)]
async fn lifelines(
    State(desk): State<Desk>,
    headers: HeaderMap,
    uri: Uri,
    Params(query): Params<LifelineQuery>,
) -> Result<Response, Trouble> {
    let at = now().wall;
    let since = moment("since", query.since.as_deref().unwrap_or("1h"), at)?;
    let until = query.until.as_deref().map_or(Ok(at), |until| moment("until", until, at))?;
    if until < since {
        let message = "the stretch ends before it begins: until is earlier than since";
        return Err(Trouble::new(ErrorCode::BadRequest, message));
    }
    let limit = bounded("limit", query.limit, 100, MOST_AGENTS)? as usize;
    let most = bounded("bars", query.bars, 500, MOST_BARS)?;
    let names = query.agent.into_iter().collect();
    let mut agents = desk.ask(|answer| Ask::Status(names, answer)).await?;
    if let Some(cursor) = query.cursor {
        let shown = desk.engine.shown();
        let at = agents.iter().position(|agent| shown.name(&agent.name).as_str() == cursor);
        let Some(at) = at else {
            let trouble = Trouble::new(ErrorCode::BadRequest, format!("{cursor:?} is no agent"));
            return Err(trouble.hint("begin again without a cursor"));
        };
        agents.drain(..=at);
    }
    let has_more = agents.len() > limit;
    agents.truncate(limit);
    let last = agents.last().filter(|_| has_more);
    let last = last.map(|agent| desk.engine.shown().name(&agent.name).into());
    let (path, engine) = (desk.history.clone(), desk.engine.clone());
    let agents = blocking(move || {
        engine.flush_history();
        let reader = Reader::open(&path)?;
        let drawn = agents.into_iter().map(|agent| draw(&reader, agent, since, until, most));
        drawn.collect::<Result<Vec<Lifeline>, _>>()
    });
    let mut agents = agents.await?;
    for lifeline in &mut agents {
        lifeline.agent = desk.engine.shown().name(&lifeline.agent);
    }
    let lifelines = Lifelines { since: stamp(since), until: stamp(until), agents };
    let listed = Listed { list: &lifelines, next: last.map(|last| ("cursor", last)) };
    // A stretch that ends now is another at each look: what counts is what happened in it.
    listed.answer_as(&headers, &uri, || &lifelines.agents)
}

fn draw(
    reader: &Reader,
    agent: AgentStatus,
    since: Wall,
    until: Wall,
    most: u32,
) -> Result<Lifeline, defib_history::HistoryError> {
    let AgentStatus { name, project, state, .. } = agent;
    let filter = LifelineFilter { agent: Name::clone(&name), since, until, most };
    let found = reader.lifeline(&filter)?;
    let runs = found.runs.into_iter().map(|run| Bar {
        run: run.run,
        started_at: stamp(run.started_at),
        ended_at: run.ended_at.map(stamp),
        class: run.death.as_ref().map(|death| death.class),
        exit_code: run.death.as_ref().and_then(|death| death.exit_code),
        signal: run.death.as_ref().and_then(|death| death.signal),
    });
    let waits = found.waits.into_iter().map(|wait| Pause {
        from: stamp(wait.from),
        until: wait.until.map(stamp),
        reason: wait.reason,
    });
    let (runs, waits) = (runs.collect(), waits.collect());
    Ok(Lifeline { agent: name, project, state, runs, waits, more: found.more })
}
