//! An agent's terminal over a WebSocket.
//!
//! Binary messages are what is shown, and what is typed. Text messages are JSON: the server says
//! which run is shown, that it is over, and what the agent's state is then; the client says its size.
//! A viewer stays through deaths and gets each next run's terminal as it comes.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use defib_core::Name;
use defib_host::protocol::TerminalSize;
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Params, Segments};
use super::spec::{InState, OfAgent, Usual};
use super::{Desk, Trouble};
use crate::bugs::contained;
use crate::engine::Ask;
use crate::terminal::Terminal;
use crate::wire::{AgentStatus, ErrorCode, TerminalNews, TerminalRequest};

/// No person types more at once.
const LONGEST: usize = 1 << 20;

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(terminal))
}

#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct TerminalQuery {
    /// The viewer's lines.
    rows: Option<u16>,
    /// The viewer's characters on a line.
    columns: Option<u16>,
}

impl TerminalQuery {
    fn size(self) -> Option<TerminalSize> {
        Some(TerminalSize { rows: self.rows?, columns: self.columns? })
    }
}

/// An agent's terminal, as a WebSocket.
///
/// Binary messages to the client are what the terminal shows: first one that draws the screen and
/// what has scrolled off it, then what the run writes, as it writes. Binary messages from the client
/// are what is typed. Text messages are JSON: the server says `TerminalNews` (which run is shown, that
/// it is over, what the agent does without one), the client may say `TerminalRequest`
/// (`{"type": "resize", "rows": 40, "columns": 120}`, `{"type": "input", "data": "ls\n"}`). Any number may watch and type at once; the last
/// size that one of them says holds. A viewer stays through deaths and is shown each next run.
#[utoipa::path(
    get, path = "/api/v1/agents/{name}/terminal", tag = "agents",
    params(("name" = String, Path, description = "The agent."), TerminalQuery),
    responses((status = 101, description = "The WebSocket is open."), OfAgent, InState, Usual)
)]
async fn terminal(
    State(desk): State<Desk>,
    Segments(name): Segments<String>,
    Params(query): Params<TerminalQuery>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Trouble> {
    let agents = desk.ask(|answer| Ask::Status(vec![name.clone()], answer)).await?;
    let [agent] = agents.as_slice() else {
        let message = format!("{name} is a group; a terminal is one agent's");
        return Err(Trouble::new(ErrorCode::BadRequest, message));
    };
    if !agent.pty {
        return Err(Trouble::new(ErrorCode::NotInState, format!("{name} has no terminal")).hint(
            "`pty = true` gives it one with its next run; `defib logs -f` shows what it writes",
        ));
    }
    let upgrade = upgrade.map_err(|rejection| {
        Trouble::new(ErrorCode::BadRequest, rejection.body_text())
            .hint("a terminal is a WebSocket: connect to this address with one")
    })?;
    let viewer = Viewer { name: agent.name.clone(), desk, size: query.size() };
    Ok(upgrade.max_message_size(LONGEST).on_upgrade(async move |socket| {
        // A client that goes away in the middle is no trouble of ours.
        let _ = contained(viewer.serve(socket)).await;
    }))
}

/// Somebody who looks at an agent's terminal.
struct Viewer {
    name: Name,
    desk: Desk,
    size: Option<TerminalSize>,
}

/// The client has gone.
struct Gone;

impl From<axum::Error> for Gone {
    fn from(_: axum::Error) -> Gone {
        Gone
    }
}

impl Viewer {
    async fn serve(mut self, mut socket: WebSocket) -> Result<(), Gone> {
        let mut changes = self.desk.terminals.changes();
        let mut said = None;
        loop {
            changes.mark_unchanged();
            if let Some(terminal) = self.desk.terminals.of(&self.name) {
                self.show(&mut socket, terminal).await?;
                said = None;
                continue;
            }
            let mut events = self.desk.engine.subscribe();
            let Some(agent) = self.status().await else { return Ok(()) };
            if said != Some(agent.state) {
                said = Some(agent.state);
                let news = TerminalNews::Without { state: agent.state, next_at: agent.next_at };
                say(&mut socket, &news).await?;
            }
            // Something about the agent, a terminal, or the client: then everything is looked at anew.
            let about = async {
                loop {
                    match events.recv().await {
                        Ok(event) if event.agent.as_ref() != Some(&self.name) => {}
                        Ok(_) | Err(RecvError::Lagged(_)) => return true,
                        Err(RecvError::Closed) => return false,
                    }
                }
            };
            tokio::select! {
                goes_on = about => if !goes_on { return Ok(()) },
                _ = changes.changed() => {}
                message = socket.recv() => {
                    if let Message::Text(text) = message.ok_or(Gone)?? {
                        // Without a run nobody reads what is typed.
                        let _ = self.heed(&text, None);
                    }
                }
            }
        }
    }

    async fn status(&self) -> Option<AgentStatus> {
        let keys = vec![self.name.clone()];
        self.desk.ask(|answer| Ask::StatusOf(keys, answer)).await.ok()?.pop()
    }

    /// Shows one run's terminal until the run is over.
    async fn show(&mut self, socket: &mut WebSocket, terminal: Arc<Terminal>) -> Result<(), Gone> {
        if let Some(size) = self.size {
            terminal.resize(size);
        }
        let Some((drawn, mut blocks)) = terminal.watch() else { return Ok(()) };
        let run = terminal.run;
        say(socket, &TerminalNews::Shown { run }).await?;
        socket.send(Message::Binary(drawn.into())).await?;
        loop {
            tokio::select! {
                block = blocks.recv() => match block {
                    Ok(bytes) => socket.send(Message::Binary(bytes)).await?,
                    // It cannot keep up: the screen as it is now is drawn again.
                    Err(RecvError::Lagged(_)) => {
                        let Some((drawn, newer)) = terminal.watch() else { continue };
                        blocks = newer;
                        socket.send(Message::Binary(drawn.into())).await?;
                    }
                    Err(RecvError::Closed) => return say(socket, &TerminalNews::Ended { run }).await,
                },
                message = socket.recv() => match message.ok_or(Gone)?? {
                    Message::Binary(typed) => type_in(&terminal, typed).await,
                    Message::Text(text) => {
                        if let Some(typed) = self.heed(&text, Some(&terminal)) {
                            type_in(&terminal, typed.into()).await;
                        }
                    }
                    Message::Close(_) => return Err(Gone),
                    Message::Ping(_) | Message::Pong(_) => {}
                },
            }
        }
    }

    /// Does what a text message says, or gives what it types. One that makes no sense is passed over.
    fn heed(&mut self, text: &str, terminal: Option<&Arc<Terminal>>) -> Option<String> {
        match serde_json::from_str(text).ok()? {
            TerminalRequest::Resize { rows, columns } => {
                let size = TerminalSize { rows, columns };
                self.size = Some(size);
                if let Some(terminal) = terminal {
                    terminal.resize(size);
                }
                None
            }
            TerminalRequest::Input { data } => Some(data),
        }
    }
}

/// A program that does not read holds up whoever types to it, and nobody else.
async fn type_in(terminal: &Arc<Terminal>, typed: Bytes) {
    let terminal = terminal.clone();
    let _ = tokio::task::spawn_blocking(move || terminal.type_in(&typed)).await;
}

async fn say(socket: &mut WebSocket, news: &TerminalNews) -> Result<(), Gone> {
    let text = serde_json::to_string(news).map_err(|_| Gone)?;
    Ok(socket.send(Message::Text(text.into())).await?)
}
