//! Events: what was decided and has happened, and on as it happens.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, Uri};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use defib_history::{Event, EventFilter, Reader, Take};
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Listed;
use super::extract::{Params, bounded};
use super::spec::Usual;
use super::{Desk, Trouble};
use crate::bugs::contained;
use crate::wire::ErrorCode;
use crate::wire::words::EventWord;

/// No answer has more events.
const MOST: u32 = 1_000_000;
/// How many of the past are read at a time for one who follows.
const PIECE: u32 = 2_000;

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(events))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct EventQuery {
    /// Only those after this number.
    after: Option<u64>,
    /// The newest so many of the past.
    #[param(minimum = 1, maximum = 1_000_000)]
    last: Option<u32>,
    /// The oldest so many; a `Link` says where the others are.
    #[param(minimum = 1, maximum = 1_000_000)]
    limit: Option<u32>,
    /// Only those of this agent. Not together with `follow`.
    agent: Option<String>,
    /// And on, as they happen: the same as `Accept: text/event-stream`.
    #[serde(default)]
    follow: bool,
}

/// Every decision, oldest first, and on as they are taken.
///
/// As JSON an array; with `Accept: text/event-stream` or `follow` a stream of server-sent events that
/// does not end. There each event's number is its `id`: a client that comes back with it as
/// `Last-Event-ID`, also to the next daemon, misses none and gets none twice.
#[utoipa::path(
    get, path = "/api/v1/events", tag = "history",
    params(
        EventQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "The same as `after`, which goes before it.")
    ),
    responses(
        (status = 200, content(([EventWord] = "application/json"), (String = "text/event-stream"))),
        (status = 304, description = "It is as it was."),
        Usual
    )
)]
async fn events(
    State(desk): State<Desk>,
    headers: HeaderMap,
    uri: Uri,
    Params(query): Params<EventQuery>,
) -> Result<Response, Trouble> {
    let resumed = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let after = query.after.or(resumed);
    let accepted = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if query.follow || accepted.starts_with("text/event-stream") {
        // Listen first, then read the past: what is in both is told once, by its number.
        let live = desk.engine.subscribe();
        let past = match query.last {
            Some(last) if after.is_none() => {
                past(&desk, None, Take::Last(bounded("last", Some(last), 1, MOST)?), None).await?
            }
            Some(_) | None => Vec::new(),
        };
        let (sender, receiver) = mpsc::channel(256);
        let follower = Follower { desk, told: after.unwrap_or(0), sender };
        tokio::spawn(contained(follower.follow(past, live)));
        let stream = Sse::new(ReceiverStream::new(receiver));
        return Ok(stream.keep_alive(KeepAlive::default()).into_response());
    }
    let agent = desk.key(query.agent).await?;
    let (take, limit) = match (query.last, query.limit) {
        (Some(last), _) => (Take::Last(bounded("last", Some(last), 1, MOST)?), None),
        (None, limit) => {
            let limit = bounded("limit", limit, MOST, MOST)?;
            (Take::First(limit), Some(limit))
        }
    };
    let events = past(&desk, after, take, agent).await?;
    let is_full = limit.is_some_and(|limit| events.len() >= limit as usize);
    let last = events.last().filter(|_| is_full).map(|event| ("after", event.seq.to_string()));
    let shown = desk.engine.shown();
    let events: Vec<Event> = events.into_iter().map(|event| shown.event(event)).collect();
    Listed { list: &events, next: last }.answer(&headers, &uri)
}

type SseSender = mpsc::Sender<Result<SseEvent, Infallible>>;

/// The client has gone, or it cannot be told what comes next and has to ask again.
struct Gone;

/// One who follows.
struct Follower {
    desk: Desk,
    /// The number of the last event that was sent.
    told: u64,
    sender: SseSender,
}

impl Follower {
    /// Sends what was after the last one, then what comes.
    async fn follow(
        mut self,
        first: Vec<Event>,
        mut live: broadcast::Receiver<Arc<Event>>,
    ) -> Result<(), Gone> {
        for event in &first {
            self.tell(event).await?;
        }
        self.catch_up(u64::MAX).await?;
        loop {
            let event = tokio::select! {
                event = live.recv() => event,
                () = self.sender.closed() => return Err(Gone),
            };
            match event {
                Ok(event) if event.seq <= self.told => {}
                Ok(event) => {
                    // A disk that was too slow when the past was read left a gap: what is in it is on
                    // disk by now, or was lost.
                    if event.seq > self.told + 1 {
                        self.catch_up(event.seq).await?;
                    }
                    self.tell(&event).await?;
                }
                // Too slow: what was missed is in the history.
                Err(RecvError::Lagged(_)) => self.catch_up(u64::MAX).await?,
                Err(RecvError::Closed) => return Ok(()),
            }
        }
    }

    /// Sends what the history has after the last one and before `end`, piece by piece: a client that
    /// is slow holds up nothing but the piece that it reads. Where it cannot be read the stream ends:
    /// whoever comes back with the last number gets all of it then, and nothing is passed over.
    async fn catch_up(&mut self, end: u64) -> Result<(), Gone> {
        loop {
            let piece = past(&self.desk, Some(self.told), Take::First(PIECE), None).await;
            let piece = piece.map_err(|_| Gone)?;
            for event in piece.iter().take_while(|event| event.seq < end) {
                self.tell(event).await?;
            }
            let is_last = piece.len() < PIECE as usize;
            if is_last || piece.last().is_none_or(|event| event.seq >= end) {
                return Ok(());
            }
        }
    }

    async fn tell(&mut self, event: &Event) -> Result<(), Gone> {
        self.told = event.seq;
        let shown = self.desk.engine.shown().event(event.clone());
        self.sender.send(Ok(sse(&shown))).await.map_err(|_| Gone)
    }
}

fn sse(event: &Event) -> SseEvent {
    let data = serde_json::to_string(event).unwrap_or_default();
    SseEvent::default().id(event.seq.to_string()).data(data)
}

/// What is on disk, once everything that was decided before is.
async fn past(
    desk: &Desk,
    after: Option<u64>,
    take: Take,
    agent: Option<defib_core::Name>,
) -> Result<Vec<Event>, Trouble> {
    let path = desk.history.clone();
    let engine = desk.engine.clone();
    blocking(move || {
        engine.flush_history();
        let reader = Reader::open(&path)?;
        reader.events(&EventFilter { after, take, agent, ..EventFilter::default() })
    })
    .await
}

/// Runs something that waits for the disk where waiting harms nobody.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, defib_history::HistoryError> + Send + 'static,
) -> Result<T, Trouble> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| Trouble::new(ErrorCode::Failed, error)),
        Err(_) => Err(Trouble::new(ErrorCode::Failed, "the daemon is ending")),
    }
}
