//! Events and history: what has happened, and on as it happens.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use defib_core::{RunId, Wall};
use defib_history::{Event, EventFilter, Reader, RunFilter, Take};
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::{Desk, Trouble};
use crate::wire::ErrorCode;

pub(super) fn routes() -> Router<Desk> {
    Router::new()
        .route("/api/v1/events", get(events))
        .route("/api/v1/history", get(history))
        .route("/api/v1/agents/{name}/runs/{run}/tail", get(tail))
}

#[derive(Debug, Deserialize)]
struct EventQuery {
    /// Only those after this number.
    after: Option<u64>,
    /// At most so many of the past.
    last: Option<u32>,
    /// And on, as they happen.
    #[serde(default)]
    follow: bool,
}

async fn events(
    State(desk): State<Desk>,
    headers: HeaderMap,
    Query(query): Query<EventQuery>,
) -> Result<Response, Trouble> {
    let resumed = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let after = query.after.or(resumed);
    // Listen first, then read the past: what is in both is told once, by its number.
    let live = desk.engine.subscribe();
    let past = past(&desk, after, query.last).await?;
    if !query.follow {
        return Ok(Json(past).into_response());
    }
    let (sender, receiver) = mpsc::channel(256);
    tokio::spawn(follow(desk, after.unwrap_or(0), past, live, sender));
    Ok(Sse::new(ReceiverStream::new(receiver)).keep_alive(KeepAlive::default()).into_response())
}

type SseSender = mpsc::Sender<Result<SseEvent, Infallible>>;

async fn follow(
    desk: Desk,
    mut last: u64,
    mut past: Vec<Event>,
    mut live: tokio::sync::broadcast::Receiver<Arc<Event>>,
    sender: SseSender,
) {
    loop {
        for event in past.drain(..) {
            last = event.seq;
            if sender.send(Ok(sse(&event))).await.is_err() {
                return;
            }
        }
        let event = loop {
            match live.recv().await {
                Ok(event) if event.seq > last => break event,
                Ok(_) => {}
                // Too slow: the client connects again with the number it has, and misses nothing.
                Err(RecvError::Lagged(_) | RecvError::Closed) => return,
            }
        };
        // A disk that was too slow when the past was read left a gap: what is in it is on disk by now,
        // or was lost.
        if last > 0 && event.seq > last + 1 {
            let between = self::past(&desk, Some(last), None).await.unwrap_or_default();
            past.extend(between.into_iter().filter(|between| between.seq < event.seq));
        }
        past.push((*event).clone());
    }
}

fn sse(event: &Event) -> SseEvent {
    let data = serde_json::to_string(event).unwrap_or_default();
    SseEvent::default().id(event.seq.to_string()).data(data)
}

/// What is on disk, once everything that was decided before is.
async fn past(desk: &Desk, after: Option<u64>, last: Option<u32>) -> Result<Vec<Event>, Trouble> {
    let path = desk.history.clone();
    let engine = desk.engine.clone();
    blocking(move || {
        engine.flush_history();
        let reader = Reader::open(&path)?;
        let take = last.map_or(Take::All, Take::Last);
        reader.events(&EventFilter { after, take, ..EventFilter::default() })
    })
    .await
}

#[derive(Debug, Deserialize)]
struct HistoryQuery {
    agent: Option<String>,
    /// Milliseconds since the epoch.
    since_ms: Option<i64>,
    limit: Option<u32>,
}

async fn history(
    State(desk): State<Desk>,
    Query(query): Query<HistoryQuery>,
) -> Result<Json<Vec<defib_history::Run>>, Trouble> {
    let path = desk.history.clone();
    let engine = desk.engine.clone();
    let agent = query.agent.as_deref().and_then(|name| defib_core::Name::parse(name).ok());
    let filter =
        RunFilter { agent, since: query.since_ms.map(Wall::from_millis), limit: query.limit };
    blocking(move || {
        engine.flush_history();
        Reader::open(&path)?.runs(&filter)
    })
    .await
    .map(Json)
}

/// The end of what a run wrote, as it is kept with its death: without secrets.
async fn tail(
    State(desk): State<Desk>,
    Path((name, run)): Path<(String, u64)>,
) -> Result<Vec<u8>, Trouble> {
    let name = defib_core::Name::parse(&name)
        .map_err(|error| Trouble::new(ErrorCode::NoSuchAgent, format!("{name:?}: {error}")))?;
    let (path, engine) = (desk.history.clone(), desk.engine.clone());
    let tail = blocking(move || {
        engine.flush_history();
        Reader::open(&path)?.tail(&name, RunId(run))
    });
    Ok(tail.await?.unwrap_or_default())
}

/// Runs something that waits for the disk where waiting harms nobody.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, defib_history::HistoryError> + Send + 'static,
) -> Result<T, Trouble> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| Trouble::new(ErrorCode::Failed, error)),
        Err(_) => Err(Trouble::new(ErrorCode::Failed, "the daemon is ending")),
    }
}
