//! Logs: what agents wrote, and on as they write.
//!
//! One agent's log can be had as it is. Those of several come in frames that say whose each piece is
//! and where it ends; with that a client goes on under the next daemon, and misses nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use defib_core::{Name, RunId};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Body as Asked, Params, Segments};
use super::spec::{OfAgent, Usual, WithBody};
use super::{Desk, Trouble};
use crate::bugs::contained;
use crate::engine::Ask;
use crate::logs::{Extent, Frame, LogReader, folder};
use crate::wire::{ErrorCode, ErrorDetail, LogRequest};

/// How much of one log is sent before it is another's turn.
const PIECE: usize = 1 << 18;

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(plain)).routes(routes!(framed))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct LogQuery {
    /// The last so many lines.
    #[serde(default = "hundred")]
    #[param(maximum = 1_000_000)]
    lines: u32,
    /// Of this run only.
    run: Option<u64>,
    /// And on, as they are written.
    #[serde(default)]
    follow: bool,
}

const fn hundred() -> u32 {
    100
}

/// The log of one agent, nothing but its bytes.
///
/// With `follow` the answer goes on as the agent writes.
#[utoipa::path(
    get, path = "/api/v1/agents/{name}/logs", tag = "agents",
    params(("name" = String, Path, description = "The agent."), LogQuery),
    responses(
        (status = 200, content_type = "application/octet-stream", body = Vec<u8>), OfAgent, Usual
    )
)]
async fn plain(
    State(desk): State<Desk>,
    Segments(name): Segments<String>,
    Params(query): Params<LogQuery>,
) -> Result<Response, Trouble> {
    let LogQuery { lines, run, follow } = query;
    let lines = lines as usize;
    let asked = name.clone();
    let agents = desk.ask(|answer| Ask::Status(vec![asked], answer)).await?;
    let [agent] = agents.as_slice() else {
        let message = format!("{name} is a group; a log is one agent's");
        let hint = "ask for each of its members, or for several by POST /api/v1/logs";
        return Err(Trouble::new(ErrorCode::BadRequest, message).hint(hint));
    };
    let name = agent.name.clone();
    let request = LogRequest { agents: vec![(name, None)], lines, run: run.map(RunId), follow };
    let readers = open(&desk, &request)?;
    Ok(stream(&desk, readers, follow, BTreeMap::new(), |frame| frame.bytes))
}

/// The logs of several agents, in frames.
///
/// Each frame is a length, whose it is, where it ends, and its bytes; with that a client goes on under
/// the next daemon and misses nothing. It is what `defib logs` reads.
#[utoipa::path(
    post, path = "/api/v1/logs", tag = "agents", request_body = LogRequest,
    responses(
        (status = 200, content_type = "application/octet-stream", body = Vec<u8>),
        OfAgent, WithBody, Usual
    )
)]
async fn framed(
    State(desk): State<Desk>,
    Asked(request): Asked<LogRequest>,
) -> Result<Response, Trouble> {
    let (mut request, mut called) = (request, BTreeMap::new());
    for (name, _) in &mut request.agents {
        let asked = name.to_string();
        let key = desk.ask(|answer| Ask::Key(asked, answer)).await?;
        called.insert(key.clone(), std::mem::replace(name, key));
    }
    let readers = open(&desk, &request)?;
    Ok(stream(&desk, readers, request.follow, called, |frame| frame.encode()))
}

type Readers = Vec<(Name, LogReader)>;

/// Readers that stand where the request says. Of several agents, those without the run that is asked
/// for are left out.
fn open(desk: &Desk, request: &LogRequest) -> Result<Readers, Trouble> {
    let LogRequest { agents, lines, run, follow } = request;
    let extent = match run {
        Some(run) => Extent::Run(*run, *lines),
        None => Extent::LastLines(*lines),
    };
    let (mut readers, mut trouble) = (Readers::new(), None);
    for (name, after) in agents {
        let folder = folder(&desk.home, name);
        let opened = match after {
            Some(place) if *follow => Ok(LogReader::resume(&folder, *place, *run)),
            Some(place) => LogReader::resume_until_now(&folder, *place, *run),
            None if *follow => LogReader::open(&folder, extent),
            None => LogReader::open_until_now(&folder, extent),
        };
        match opened {
            Ok(reader) => readers.push((name.clone(), reader)),
            Err(error) => trouble = Some(error),
        }
    }
    match (trouble, run) {
        (Some(error), Some(run)) if readers.is_empty() => Err(Trouble(ErrorDetail {
            code: ErrorCode::NoSuchAgent,
            message: format!("run {run}: {error}"),
            hint: Some("`defib history NAME` lists the runs of an agent".to_owned()),
        })),
        (Some(error), None) => Err(Trouble::new(ErrorCode::Failed, error)),
        (Some(_) | None, _) => Ok(readers),
    }
}

fn stream(
    desk: &Desk,
    readers: Readers,
    follow: bool,
    called: BTreeMap<Name, Name>,
    form: fn(Frame) -> Vec<u8>,
) -> Response {
    let (sender, receiver) = mpsc::channel(16);
    let feed = Feed { desk: desk.clone(), called, form, sender };
    tokio::spawn(contained(async move {
        if follow {
            feed.on(readers).await;
        } else {
            feed.once(readers).await;
        }
    }));
    let mut response = Response::new(Body::from_stream(ReceiverStream::new(receiver)));
    let bytes = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(CONTENT_TYPE, bytes);
    response
}

/// What goes to one client.
struct Feed {
    desk: Desk,
    /// What each was called by whoever asked: for them it goes by that to the end.
    called: BTreeMap<Name, Name>,
    form: fn(Frame) -> Vec<u8>,
    sender: mpsc::Sender<Result<Bytes, Infallible>>,
}

/// What became of sending a piece.
enum Sent {
    /// There may be more.
    Some(LogReader),
    /// There is nothing more for now.
    Nothing(LogReader),
    /// No more will be sent: the client has gone, or the log cannot be read.
    End,
}

impl Feed {
    /// What there is: one log after the other.
    async fn once(&self, readers: Readers) {
        for (name, mut reader) in readers {
            loop {
                match self.send(&name, reader).await {
                    Sent::Some(same) => reader = same,
                    Sent::Nothing(_) => break,
                    Sent::End => return,
                }
            }
        }
    }

    /// What there is and what comes, in turn.
    async fn on(&self, readers: Readers) {
        // From before the first look on, so that no growth is missed.
        let mut growth = self.desk.engine.growth();
        let mut order: Vec<Name> = readers.iter().map(|(name, _)| name.clone()).collect();
        let mut readers: BTreeMap<Name, LogReader> = readers.into_iter().collect();
        while !readers.is_empty() {
            let mut more = Vec::new();
            for name in order {
                let Some(reader) = readers.remove(&name) else { continue };
                match self.send(&name, reader).await {
                    Sent::Some(reader) => {
                        readers.insert(name.clone(), reader);
                        more.push(name);
                    }
                    Sent::Nothing(reader) if reader.is_over() => {}
                    Sent::Nothing(reader) => drop(readers.insert(name, reader)),
                    Sent::End => return,
                }
            }
            order = more;
            if !order.is_empty() || readers.is_empty() {
                continue;
            }
            let grown = tokio::select! {
                grown = growth.recv() => grown,
                () = self.sender.closed() => return,
            };
            let mut due: BTreeSet<Name> = match grown {
                Ok(name) => BTreeSet::from([name]),
                // There was too much to be told of each: all are looked at.
                Err(_) => readers.keys().cloned().collect(),
            };
            while let Ok(name) = growth.try_recv() {
                due.insert(name);
            }
            order = due.into_iter().collect();
        }
    }

    async fn send(&self, name: &Name, mut reader: LogReader) -> Sent {
        let read = tokio::task::spawn_blocking(move || {
            let bytes = reader.read(PIECE);
            (reader, bytes)
        });
        match read.await {
            Ok((reader, Ok(bytes))) if bytes.is_empty() => Sent::Nothing(reader),
            Ok((reader, Ok(bytes))) => {
                let agent = self.called.get(name).unwrap_or(name).clone();
                let frame = Frame { agent, end: reader.place(), bytes };
                match self.sender.send(Ok((self.form)(frame).into())).await {
                    Ok(()) => Sent::Some(reader),
                    Err(_) => Sent::End,
                }
            }
            Ok((_, Err(_))) | Err(_) => Sent::End,
        }
    }
}
