//! `defib top`: every agent on a full screen, as it is now, and keys to steer them.
//!
//! [`App`] is what is known: news and key presses change it, and it says what is to be done outside.
//! `view` draws it, `feed` brings what comes from outside, and here is the loop that owns the
//! terminal. Nothing is polled for: it wakes up when something has happened, and when something that
//! is shown by the second or the minute is to change.

mod app;
mod columns;
mod feed;
mod keys;
mod look;
mod pane;
mod presses;
mod rows;
mod screen;
#[cfg(test)]
mod tests;
mod view;

use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use defib_core::Name;
use defib_daemon::wire::{ActionOptions, AgentStatus, CapabilityRequest, Caps};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;

use self::app::{App, Effect, News};
use self::feed::{Happening, Keys, Watch};
use self::look::Look;
use self::screen::Screen;
use crate::client::Client;
use crate::commands::{number, segment};
use crate::failure::{Code, Failure};
use crate::home::Home;

/// However much happens, the screen is not drawn more often; a key is answered at once.
const FRAME: Duration = Duration::from_millis(50);

/// Shows the agents of a home until the person has seen enough.
pub(crate) fn run(home: &Home) -> Result<(), Failure> {
    let client = || Client::new(home.clone());
    // Where there is no daemon, that is said before anything is drawn.
    let first = feed::list(&client()?)?;
    let (sender, happenings) = channel();
    feed::listen_to_signals(sender.clone())?;
    let list = feed::keep_listed(client()?, sender.clone());
    feed::follow_events(client()?, sender.clone(), list.clone());
    let why = feed::answer_why(client()?, sender.clone());
    let log = feed::follow_log(home, sender.clone())?;
    let mut app = App::new(Timestamp::now(), TimeZone::system());
    app.take(first);
    let sitting = Sitting { home: home.clone(), app, sender, happenings, list, why, log };
    sitting.sit()
}

/// A person in front of the screen.
struct Sitting {
    home: Home,
    app: App,
    sender: Sender<Happening>,
    happenings: Receiver<Happening>,
    list: Sender<()>,
    why: Sender<Name>,
    log: UnboundedSender<Watch>,
}

/// What comes after an effect.
enum Flow {
    On,
    /// Draw on an empty screen.
    Redraw,
    /// Leave the screen to this agent's terminal.
    Attach(Name),
    Quit,
}

impl Sitting {
    fn sit(mut self) -> Result<(), Failure> {
        loop {
            let flow = self.show()?;
            let Flow::Attach(name) = flow else { return Ok(()) };
            let answer = self.attach(&name);
            self.app.take(News::Done(answer));
        }
    }

    /// Has the screen, until it is left for good or to a terminal.
    fn show(&mut self) -> Result<Flow, Failure> {
        let failed = |error: std::io::Error| Failure::new(Code::Failed, error);
        let look = Look::find();
        let mut screen = Screen::enter().map_err(failed)?;
        let keys = Keys::listen(self.sender.clone())?;
        let flow = loop {
            self.app.now = Timestamp::now();
            screen.terminal.draw(|frame| view::draw(frame, &mut self.app, look)).map_err(failed)?;
            match self.wait(Instant::now()) {
                Flow::On => {}
                Flow::Redraw => screen.clear().map_err(failed)?,
                flow @ (Flow::Attach(_) | Flow::Quit) => break flow,
            }
        };
        drop(keys);
        Ok(flow)
    }

    /// Waits until something has changed, and takes in all that has by then.
    fn wait(&mut self, drawn: Instant) -> Flow {
        let first = match self.app.rests_for() {
            Some(span) => self.happenings.recv_timeout(span),
            None => self.happenings.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        self.app.now = Timestamp::now();
        let mut next = match first {
            Ok(happening) => happening,
            Err(RecvTimeoutError::Timeout) => {
                let effects = self.app.tick();
                return self.carry_out(effects);
            }
            Err(RecvTimeoutError::Disconnected) => return Flow::Quit,
        };
        loop {
            let is_press = matches!(next, Happening::Press(_));
            let effects = match next {
                Happening::Press(press) => self.app.press(press),
                Happening::News(news) => self.app.take(news),
                Happening::Resized => Vec::new(),
                Happening::End | Happening::HangUp => return Flow::Quit,
            };
            match self.carry_out(effects) {
                Flow::On => {}
                flow @ (Flow::Redraw | Flow::Attach(_) | Flow::Quit) => return flow,
            }
            let rest =
                if is_press { Duration::ZERO } else { FRAME.saturating_sub(drawn.elapsed()) };
            match self.happenings.recv_timeout(rest) {
                Ok(happening) => next = happening,
                Err(_) => return Flow::On,
            }
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>) -> Flow {
        for effect in effects {
            // Their threads live as long as we do.
            match effect {
                Effect::Quit => return Flow::Quit,
                Effect::Redraw => return Flow::Redraw,
                Effect::Attach(name) => return Flow::Attach(name),
                Effect::List => drop(self.list.send(())),
                Effect::Why(name) => drop(self.why.send(name)),
                Effect::Follow { name, watch } => drop(self.log.send(Some((name, watch)))),
                Effect::Unfollow => drop(self.log.send(None)),
                Effect::Act { name, action, kill } => self.ask(move |client| {
                    let options = ActionOptions { kill, ..ActionOptions::default() };
                    let path =
                        format!("/api/v1/agents/{}/{}", segment(name.as_str())?, action.word());
                    let agents: Vec<AgentStatus> = client.insist(&path, &options)?;
                    let all = agents.iter().map(|agent| format!("{}: {}", agent.name, agent.state));
                    Ok(all.collect::<Vec<_>>().join(", "))
                }),
                Effect::Fund { name, amount, unit } => self.ask(move |client| {
                    let path = format!("/api/v1/agents/{}/fund", segment(name.as_str())?);
                    let body = json!({ "amount": amount, "unit": unit });
                    let receipt: Value = client.post(&path, &body)?;
                    let left = receipt["balance"].as_f64().map(number).unwrap_or_default();
                    Ok(format!("{name}: {left} {unit}"))
                }),
                Effect::Change { name, change, token } => self.ask(move |client| {
                    let path =
                        format!("/api/v1/agents/{}/{}", segment(name.as_str())?, change.word());
                    let request = CapabilityRequest { capabilities: vec![token] };
                    let caps: Caps = client.post(&path, &request)?;
                    let next = caps.capabilities_pending.as_ref();
                    let when = if next.is_some() { " from its next run on" } else { "" };
                    let may = next.or(caps.capabilities.as_ref()).map(|all| all.join(" "));
                    Ok(format!("{name} may{when}: {}", may.as_deref().unwrap_or("everything")))
                }),
            }
        }
        Flow::On
    }

    /// Asks for something that may take its time, and goes on.
    fn ask(&self, ask: impl FnOnce(&Client) -> Result<String, Failure> + Send + 'static) {
        let (home, sender) = (self.home.clone(), self.sender.clone());
        std::thread::spawn(move || {
            let answer = Client::new(home).and_then(|client| ask(&client));
            let _ = sender.send(Happening::News(News::Done(answer)));
        });
    }

    /// Runs `defib attach` where the screen was. It is a process of its own: nothing of it goes on
    /// reading the terminal when it has ended.
    fn attach(&self, name: &Name) -> Result<String, Failure> {
        let failed = |error: std::io::Error| Failure::new(Code::Failed, error);
        let program = std::env::current_exe().map_err(failed)?;
        let child = Command::new(program)
            .arg("--home")
            .arg(self.home.path())
            .args(["attach", name.as_str()])
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let output = child.wait_with_output().map_err(failed)?;
        if output.status.success() {
            return Ok(format!("detached; {name} goes on"));
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = said.lines().map(str::trim).collect();
        Err(Failure::new(Code::Failed, lines.join("; ").trim_start_matches("error: ")))
    }
}
