//! Money: what agents are given, and what became of it.

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{Json, Response};
use defib_core::Name;
use defib_history::{Entry, Reader};
use serde::Deserialize;
use tokio::sync::oneshot;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Listed;
use super::events::blocking;
use super::extract::{Body, Params, Segments, bounded};
use super::spec::{OfAgent, Usual, WithBody};
use super::{Desk, Trouble};
use crate::ledger::{Receipt, amount, micros};
use crate::wire::{ErrorCode, LedgerLine, stamp};

/// The newest lines that are shown.
const LINES: u32 = 1000;
/// A unit is a word, not a story.
const LONGEST_UNIT: usize = 32;

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(fund)).routes(routes!(ledger))
}

#[derive(Deserialize, ToSchema)]
struct FundRequest {
    /// How much, to the millionth.
    #[schema(exclusive_minimum = 0)]
    amount: f64,
    /// Of what: `scrip`, `usd`, `tokens`.
    #[schema(min_length = 1, max_length = 32)]
    unit: String,
}

/// Gives an agent something to spend.
///
/// Answers when that is on disk and counts.
#[utoipa::path(
    post, path = "/api/v1/agents/{name}/fund", tag = "agents", request_body = FundRequest,
    params(("name" = String, Path, description = "The agent.")),
    responses((status = 200, body = Receipt), OfAgent, WithBody, Usual)
)]
async fn fund(
    State(desk): State<Desk>,
    Segments(name): Segments<String>,
    Body(request): Body<FundRequest>,
) -> Result<Json<Receipt>, Trouble> {
    let FundRequest { amount, unit } = request;
    let amount = checked(amount, &unit)?;
    let agent = desk.agent(&name).await?;
    let (answer, answered) = oneshot::channel();
    desk.engine.ledger().fund(agent, unit, amount, answer);
    match answered.await {
        Ok(Ok(mut receipt)) => {
            receipt.agent = desk.engine.shown().name(&receipt.agent);
            Ok(Json(receipt))
        }
        Ok(Err(error)) => Err(Trouble(error)),
        Err(_) => Err(Trouble::new(ErrorCode::Failed, "the daemon is ending")),
    }
}

/// An amount that can be given or spent, in millionths.
pub(crate) fn checked(amount: f64, unit: &str) -> Result<i64, Trouble> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if unit.is_empty() || unit.len() > LONGEST_UNIT || !unit.chars().all(is_word) {
        let trouble = Trouble::new(ErrorCode::BadRequest, format!("{unit:?} is no unit"));
        return Err(trouble.hint("a unit is a word such as scrip, usd or tokens"));
    }
    let micros = micros(amount);
    if !amount.is_finite() || micros <= 0 {
        let trouble = Trouble::new(ErrorCode::BadRequest, format!("{amount} is no amount"));
        return Err(trouble.hint("an amount is a number above zero, to the millionth"));
    }
    Ok(micros)
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct LedgerQuery {
    /// At most so many: the newest. A `Link` says where those before them are.
    #[param(minimum = 1, maximum = 1_000)]
    limit: Option<u32>,
    /// Those before this line, as the `Link` of the page before says.
    cursor: Option<u64>,
}

/// What an agent was given and what it spent, oldest first: the newest of the thousand lines that are
/// kept.
#[utoipa::path(
    get, path = "/api/v1/agents/{name}/ledger", tag = "agents",
    params(("name" = String, Path, description = "The agent."), LedgerQuery),
    responses(
        (status = 200, body = [LedgerLine]), (status = 304, description = "It is as it was."),
        OfAgent, Usual
    )
)]
async fn ledger(
    State(desk): State<Desk>,
    headers: HeaderMap,
    uri: Uri,
    Segments(name): Segments<String>,
    Params(query): Params<LedgerQuery>,
) -> Result<Response, Trouble> {
    let agent = desk.agent(&name).await?;
    let limit = bounded("limit", query.limit, LINES, LINES)? as usize;
    let mut entries = entries_of(&desk, agent).await?;
    entries.retain(|entry| query.cursor.is_none_or(|cursor| entry.number < cursor));
    let older = entries.len().saturating_sub(limit);
    entries.drain(..older);
    let first = entries.first().filter(|_| older > 0);
    let next = first.map(|entry| ("cursor", entry.number.to_string()));
    let lines: Vec<LedgerLine> = entries.into_iter().map(|entry| line(&desk, entry)).collect();
    Listed { list: &lines, next }.answer(&headers, &uri)
}

/// The newest lines of an agent's ledger, oldest first.
pub(super) async fn lines_of(desk: &Desk, agent: Name) -> Result<Vec<LedgerLine>, Trouble> {
    Ok(entries_of(desk, agent).await?.into_iter().map(|entry| line(desk, entry)).collect())
}

async fn entries_of(desk: &Desk, agent: Name) -> Result<Vec<Entry>, Trouble> {
    let (flushed, until) = oneshot::channel();
    let tell = move || {
        let _ = flushed.send(());
    };
    desk.engine.ledger().flush(tell);
    // Without an answer the daemon is ending; what is on disk is shown.
    let _ = until.await;
    let path = desk.history.clone();
    blocking(move || Reader::open(&path)?.ledger(&agent, LINES)).await
}

fn line(desk: &Desk, entry: Entry) -> LedgerLine {
    let Entry { agent, number: _, at, what, unit, micros, balance, run, source } = entry;
    LedgerLine {
        agent: desk.engine.shown().name(&agent),
        at: stamp(at),
        what,
        unit,
        amount: amount(micros),
        balance: balance.map(amount),
        run,
        by: source,
    }
}
