//! Logs: what an agent wrote, and on as it writes.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::routing::get;
use defib_core::{Name, RunId};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::{Desk, Trouble};
use crate::engine::Ask;
use crate::logs::{Extent, LogReader, folder};
use crate::wire::ErrorCode;

pub(super) fn routes() -> Router<Desk> {
    Router::new().route("/api/v1/agents/{name}/logs", get(logs))
}

#[derive(Debug, Deserialize)]
struct LogQuery {
    /// The last so many lines.
    #[serde(default = "hundred")]
    lines: usize,
    /// Of this run only.
    run: Option<u64>,
    /// And on, as they are written.
    #[serde(default)]
    follow: bool,
}

const fn hundred() -> usize {
    100
}

async fn logs(
    State(desk): State<Desk>,
    Path(name): Path<String>,
    Query(query): Query<LogQuery>,
) -> Result<Response, Trouble> {
    let agents = desk.ask(|answer| Ask::Status(vec![name], answer)).await?;
    let Some(name) = agents.into_iter().next().map(|agent| agent.name) else {
        return Err(Trouble::new(ErrorCode::NoSuchAgent, "the group has no members"));
    };
    let extent = match query.run {
        Some(run) => Extent::Run(RunId(run), query.lines),
        None => Extent::LastLines(query.lines),
    };
    let reader = LogReader::open(&folder(&desk.home, &name), extent)
        .map_err(|error| Trouble::new(ErrorCode::NoSuchAgent, format!("run: {error}")))?;
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(feed(desk, name, reader, query.follow, sender));
    Ok(Response::new(Body::from_stream(ReceiverStream::new(receiver))))
}

/// Reads on until there is nothing more, and where it is followed, whenever there is more.
async fn feed(
    desk: Desk,
    name: Name,
    mut reader: LogReader,
    follow: bool,
    sender: mpsc::Sender<Result<Bytes, Infallible>>,
) {
    let mut growth = desk.engine.growth();
    loop {
        let read = tokio::task::spawn_blocking(move || {
            let bytes = reader.read(1 << 18);
            (reader, bytes)
        });
        let bytes: io::Result<Vec<u8>>;
        match read.await {
            Ok((back, read)) => (reader, bytes) = (back, read),
            Err(_) => return,
        }
        match bytes {
            Ok(bytes) if bytes.is_empty() && !follow => return,
            Ok(bytes) if bytes.is_empty() => {
                // A growth that was missed is seen a little later.
                let grown = async { while growth.recv().await.is_ok_and(|grown| grown != name) {} };
                tokio::select! {
                    () = grown => {}
                    () = sender.closed() => return,
                    () = tokio::time::sleep(Duration::from_secs(5)) => {}
                }
            }
            Ok(bytes) => {
                if sender.send(Ok(bytes.into())).await.is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}
