//! `defib attach`.

use std::io::{IsTerminal, Read};

use defib_core::State;
use defib_daemon::wire::{TerminalNews, TerminalRequest};
use futures_util::{SinkExt, StreamExt};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::status::{is_down, statuses};
use super::{Context, segment};
use crate::failure::{Code, Failure};
use crate::output;
use crate::tty;

/// Ctrl-\, as terminals send it and as those do that report keys at length.
const DETACH: [&[u8]; 2] = [b"\x1c", b"\x1b[92;5u"];
/// What makes a terminal well again, whatever an agent has done to it.
const MEND: &str = "\x1b[?1049l\x1b[!p\x1b[m\x1b[?25h\x1b[<u\
    \x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1005l\x1b[?1006l\x1b[?1015l\x1b[?2004l";

/// Sit down at an agent's terminal
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The agent needs `pty = true`. What it shows is shown, with what it showed before; what is typed goes \
to it. Ctrl-\\ detaches, and the agent goes on. When its run ends, its next one is shown.

Examples:
  defib attach reviewer")]
pub(crate) struct Attach {
    /// The agent
    #[arg(value_name = "NAME")]
    name: String,
}

/// How looking at a terminal came to its end.
enum Parting {
    /// The person has seen enough.
    Detached,
    /// The agent does nothing any more by itself.
    AtRest(State),
    /// The daemon went away.
    Lost,
}

impl Attach {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let name = &self.name;
        let agents = statuses(context, std::slice::from_ref(name))?;
        let [agent] = agents.as_slice() else {
            return Err(Failure::new(Code::Usage, format!("{name} is a group"))
                .hint("attach to one of its members"));
        };
        if !agent.pty {
            return Err(Failure::new(Code::NotInState, format!("{name} has no terminal"))
                .hint("`pty = true` gives it one; `defib logs -f` shows what it writes"));
        }
        if is_down(agent.state) {
            return Err(at_rest(name, agent.state));
        }
        if !(std::io::stdin().is_terminal() && std::io::stdout().is_terminal()) {
            return Err(Failure::new(Code::Usage, "this is no terminal to show another one on")
                .hint(format!("`defib logs -f {name}` prints what it writes")));
        }
        let client = context.client()?;
        let mut typed = typed();
        let parting = loop {
            let raw = tty::raw().map_err(|error| Failure::new(Code::Failed, error))?;
            let parting = client.block_on(self.look(context, &mut typed));
            output::raw(MEND.as_bytes())?;
            drop(raw);
            match parting? {
                Parting::Lost if client.comes_back() => {}
                parting @ (Parting::Lost | Parting::Detached | Parting::AtRest(_)) => {
                    break parting;
                }
            }
        };
        match parting {
            Parting::Detached => output::print(&format!("\ndetached; {name} goes on\n")),
            Parting::AtRest(state) => Err(at_rest(name, state)),
            Parting::Lost => Err(Failure::new(Code::NoDaemon, "the daemon has ended")),
        }
    }

    async fn look(
        &self,
        context: &Context,
        typed: &mut mpsc::Receiver<Vec<u8>>,
    ) -> Result<Parting, Failure> {
        let mut socket = self.connect(context).await?;
        let failed = |error: std::io::Error| Failure::new(Code::Failed, error);
        let mut resized = signal(SignalKind::window_change()).map_err(failed)?;
        let mut ended = signal(SignalKind::terminate()).map_err(failed)?;
        let mut gone = signal(SignalKind::hangup()).map_err(failed)?;
        loop {
            tokio::select! {
                message = socket.next() => match message {
                    Some(Ok(Message::Binary(bytes))) => if !output::raw(&bytes)? {
                        return Ok(Parting::Detached);
                    },
                    Some(Ok(Message::Text(text))) => {
                        if let Some(parting) = self.hear(&text)? {
                            return Ok(parting);
                        }
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return Ok(Parting::Lost),
                },
                bytes = typed.recv() => {
                    let Some(bytes) = bytes else { return Ok(Parting::Detached) };
                    if DETACH.iter().any(|way| bytes.windows(way.len()).any(|part| part == *way)) {
                        let _ = socket.close(None).await;
                        return Ok(Parting::Detached);
                    }
                    if socket.send(Message::Binary(bytes.into())).await.is_err() {
                        return Ok(Parting::Lost);
                    }
                }
                _ = resized.recv() => if let Some((rows, columns)) = tty::size() {
                    let request = TerminalRequest::Resize { rows, columns };
                    let text = serde_json::to_string(&request).unwrap_or_default();
                    if socket.send(Message::Text(text.into())).await.is_err() {
                        return Ok(Parting::Lost);
                    }
                },
                _ = ended.recv() => return Ok(Parting::Detached),
                _ = gone.recv() => return Ok(Parting::Detached),
            }
        }
    }

    async fn connect(&self, context: &Context) -> Result<WebSocketStream<UnixStream>, Failure> {
        let lost = |error: &dyn std::fmt::Display| {
            Failure::lost(format!("cannot look at its terminal: {error}"))
        };
        let socket = context.home()?.socket();
        let stream = UnixStream::connect(socket).await.map_err(|error| lost(&error))?;
        let (rows, columns) = tty::size().unwrap_or((24, 80));
        let name = segment(&self.name)?;
        let address =
            format!("ws://defib/api/v1/agents/{name}/terminal?rows={rows}&columns={columns}");
        let (socket, _) =
            tokio_tungstenite::client_async(address, stream).await.map_err(|error| lost(&error))?;
        Ok(socket)
    }

    /// What the daemon says beside what is shown. Says whether that is the end.
    fn hear(&self, text: &str) -> Result<Option<Parting>, Failure> {
        let say = |text: String| output::raw(format!("{MEND}\r\n[{text}]\r\n").as_bytes());
        match serde_json::from_str(text) {
            Ok(TerminalNews::Ended { run }) => {
                say(format!("run {run} of {} has ended", self.name))?;
            }
            Ok(TerminalNews::Without { state, next_at }) => match state {
                State::Idle | State::Stopped | State::Done | State::Halted | State::CrashedOut => {
                    return Ok(Some(Parting::AtRest(state)));
                }
                State::Starting
                | State::Running
                | State::Stopping
                | State::Backoff
                | State::Waiting => {
                    let until = next_at.map(|at| format!(" until {at}")).unwrap_or_default();
                    say(format!("{state}{until}; Ctrl-\\ detaches"))?;
                }
            },
            // A newer daemon may say more.
            Ok(TerminalNews::Shown { .. }) | Err(_) => {}
        }
        Ok(None)
    }
}

fn at_rest(name: &str, state: State) -> Failure {
    let hint = match state {
        State::Halted | State::CrashedOut => {
            format!("`defib why {name}` says why; `defib revive {name}` puts it back")
        }
        State::Idle
        | State::Starting
        | State::Running
        | State::Backoff
        | State::Waiting
        | State::Stopping
        | State::Stopped
        | State::Done => format!("`defib start {name}` starts it"),
    };
    Failure::new(Code::NotInState, format!("{name} is {state}")).hint(hint)
}

/// What is typed, in pieces as it comes.
fn typed() -> mpsc::Receiver<Vec<u8>> {
    let (sender, typed) = mpsc::channel(64);
    // It ends with the process, or with the terminal.
    std::thread::spawn(move || {
        let mut block = [0; 4096];
        while let Ok(read) = std::io::stdin().read(&mut block) {
            if read == 0 || sender.blocking_send(block[..read].to_vec()).is_err() {
                return;
            }
        }
    });
    typed
}
