//! Money: what agents are given, and what became of it.

use axum::Router;
use axum::extract::{Path, State};
use axum::response::Json;
use axum::routing::{get, post};
use defib_core::Name;
use defib_history::{Entry, Reader};
use serde::Deserialize;
use tokio::sync::oneshot;

use super::{Desk, Trouble};
use crate::engine::Ask;
use crate::ledger::{Receipt, amount, micros};
use crate::wire::{ErrorCode, LedgerLine, stamp};

/// The newest lines that are shown.
const LINES: u32 = 1000;
/// A unit is a word, not a story.
const LONGEST_UNIT: usize = 32;

pub(super) fn routes() -> Router<Desk> {
    Router::new()
        .route("/api/v1/agents/{name}/fund", post(fund))
        .route("/api/v1/agents/{name}/ledger", get(ledger))
}

#[derive(Deserialize)]
struct FundRequest {
    amount: f64,
    unit: String,
}

/// Answers when it is on disk and counts.
async fn fund(
    State(desk): State<Desk>,
    Path(name): Path<String>,
    Json(request): Json<FundRequest>,
) -> Result<Json<Receipt>, Trouble> {
    let FundRequest { amount, unit } = request;
    let amount = checked(amount, &unit)?;
    let agent = one(&desk, name).await?;
    let (answer, answered) = oneshot::channel();
    desk.engine.ledger().fund(agent, unit, amount, answer);
    match answered.await {
        Ok(answer) => answer.map(Json).map_err(Trouble),
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

async fn ledger(
    State(desk): State<Desk>,
    Path(name): Path<String>,
) -> Result<Json<Vec<LedgerLine>>, Trouble> {
    let agent = one(&desk, name).await?;
    let (flushed, until) = oneshot::channel();
    let tell = move || {
        let _ = flushed.send(());
    };
    desk.engine.ledger().flush(tell);
    // Without an answer the daemon is ending; what is on disk is shown.
    let _ = until.await;
    let path = desk.history.clone();
    let read = tokio::task::spawn_blocking(move || {
        Reader::open(&path).and_then(|reader| reader.ledger(&agent, LINES))
    });
    match read.await {
        Ok(Ok(entries)) => Ok(Json(entries.into_iter().map(line).collect())),
        Ok(Err(error)) => Err(Trouble::new(ErrorCode::Failed, error)),
        Err(_) => Err(Trouble::new(ErrorCode::Failed, "the daemon is ending")),
    }
}

fn line(entry: Entry) -> LedgerLine {
    let Entry { agent, number: _, at, what, unit, micros, balance, run, source } = entry;
    LedgerLine {
        agent,
        at: stamp(at),
        what,
        unit,
        amount: amount(micros),
        balance: balance.map(amount),
        run,
        by: source,
    }
}

/// The one agent of that name. A group has no ledger.
async fn one(desk: &Desk, name: String) -> Result<Name, Trouble> {
    let asked = name.clone();
    let statuses = desk.ask(|answer| Ask::Status(vec![asked], answer)).await?;
    let bare = name.rsplit('/').next().unwrap_or(&name);
    let found = statuses.into_iter().map(|status| status.name).find(|own| own.as_str() == bare);
    found.ok_or_else(|| {
        let trouble = Trouble::new(ErrorCode::NoSuchAgent, format!("no agent is called {name:?}"));
        trouble.hint("a group has no ledger; its members have")
    })
}
