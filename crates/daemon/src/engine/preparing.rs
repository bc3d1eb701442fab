//! What a start needs of the agent's own paths, gathered by workers before the keeper is asked to spawn.
//!
//! The `env_file` is read, the `heartbeat_file` is made, and what `capabilities` name is looked at. Each of
//! these can block for ever, so the engine does none of them. A start that is not prepared within
//! [`spawn_deadline`] is given up: the run counts as not spawned, and the policy says when to try again.
//! What its worker brings later is dropped.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use defib_core::run::Status;
use defib_core::span::Shown as Span;
use defib_core::{Capability, Mono, Name, RunId};
use defib_host::clock::now;
use defib_host::protocol::{ISOLATING_VERSION, Request, RunKey, SpawnOrder};
use defib_host::spawn_deadline;

use super::Engine;
use super::ask::Ask;
use crate::plain::read_plain;
use crate::recipe::EnvText;
use crate::sandbox::{self, Confined};
use crate::workers::Workers;

/// How long the engine waits for an `env_file` if a run is there already: its secrets are to be known before
/// its output is shown.
const PATIENCE: Duration = Duration::from_millis(250);

/// What a worker is doing.
const STEPS: [&str; 3] = ["its env_file", "its heartbeat_file", "its capabilities"];
const ENV_FILE: usize = 0;
const HEARTBEAT: usize = 1;
const CAPABILITIES: usize = 2;

/// The starts that are being prepared.
#[derive(Default)]
pub(super) struct Preparing {
    pub(super) workers: Workers,
    of: BTreeMap<Name, Preparation>,
    last_number: u64,
    /// The texts of the env files that were read last.
    texts: BTreeMap<Name, EnvText>,
    /// Whether an `env_file` has not been read in time: the engine does not wait for others.
    is_slow: bool,
}

struct Preparation {
    run: RunId,
    fresh: bool,
    number: u64,
    due: Mono,
    step: Arc<AtomicUsize>,
}

/// What a worker brings.
#[derive(Debug)]
pub(crate) struct Prepared {
    agent: Name,
    number: u64,
    what: Ready,
}

#[derive(Debug)]
enum Ready {
    /// The text of the `env_file`, if there is one.
    Files(Option<EnvText>),
    /// A file system has failed, not the config: another try may do.
    Failed(String),
    /// What the run is confined to.
    Confined(Box<SpawnOrder>, Vec<Capability>, Option<Box<Confined>>),
}

impl Engine {
    /// Has everything gathered that a start needs of the agent's paths. False: it needs nothing.
    pub(super) fn prepare(&mut self, name: &Name, run: RunId, fresh: bool) -> bool {
        let Some((project, agent)) = self.recipe(name) else { return false };
        let env_file = agent.env_file.as_ref().map(|file| project.config.folder.join(file));
        let chosen = agent.heartbeat_file.is_some();
        let heartbeat = chosen.then(|| project.heartbeat_file(&self.home, agent));
        let confined = agent.capabilities.is_some();
        if env_file.is_none() && heartbeat.is_none() {
            self.preparing.texts.remove(name);
            return false;
        }
        self.send_worker(name, run, fresh, move |step| {
            step.store(ENV_FILE, Ordering::Relaxed);
            let text = match env_file.map(|path| read_plain(&path)).transpose() {
                Ok(text) => text.map(Ok),
                Err(error) if may_go_away(&error) => {
                    return Ready::Failed(format!("its env_file: {error}"));
                }
                Err(error) => Some(Err(error.to_string())),
            };
            step.store(HEARTBEAT, Ordering::Relaxed);
            if let Some(file) = heartbeat {
                // If this fails, the agent's own attempt shows why. Only a file that is there can be
                // granted to a confined agent. One that is there already is not opened: it may be a pipe
                // without a reader.
                let _ = if confined { file.make() } else { file.folder(true).map(drop) };
            }
            Ready::Files(text)
        });
        true
    }

    /// Has a worker find out what a run is confined to by these tokens.
    pub(super) fn prepare_confinement(
        &mut self,
        key: &RunKey,
        fresh: bool,
        (order, tokens): (Box<SpawnOrder>, Vec<Capability>),
        meter: Option<u16>,
    ) {
        let situation = self.situation(&key.agent, &order, meter);
        self.send_worker(&key.agent, key.run, fresh, move |step| {
            step.store(CAPABILITIES, Ordering::Relaxed);
            let confined = situation
                .and_then(|situation| sandbox::confine(&tokens, &order, &situation.looked_at()));
            Ready::Confined(order, tokens, confined.map(Box::new))
        });
    }

    fn send_worker(
        &mut self,
        name: &Name,
        run: RunId,
        fresh: bool,
        job: impl FnOnce(&AtomicUsize) -> Ready + Send + 'static,
    ) {
        let preparing = &mut self.preparing;
        preparing.last_number += 1;
        let number = preparing.last_number;
        let step = Arc::new(AtomicUsize::new(ENV_FILE));
        let due = now().mono + spawn_deadline();
        // The second job of a start has what is left of the time of the first.
        let before = preparing.of.get(name).filter(|before| before.run == run);
        let due = before.map_or(due, |before| before.due);
        let preparation = Preparation { run, fresh, number, due, step: step.clone() };
        preparing.of.insert(name.clone(), preparation);
        let (handle, agent) = (self.handle.clone(), name.clone());
        let begun = preparing.workers.run(name, move || {
            let what = job(&step);
            handle.tell(Ask::Prepared(Box::new(Prepared { agent, number, what })));
        });
        if !begun {
            preparing.of.remove(name);
            let why = "earlier starts still wait for a file system that does not answer";
            let key = RunKey { agent: name.clone(), run };
            self.handle.tell(Ask::NotStarted { key, why: why.to_owned() });
        }
    }

    /// A worker is done.
    pub(super) fn prepared(&mut self, prepared: Prepared) {
        let Prepared { agent, number, what } = prepared;
        let of = &mut self.preparing.of;
        let Some(preparation) = of.get(&agent).filter(|of| of.number == number) else { return };
        let (run, fresh) = (preparation.run, preparation.fresh);
        match what {
            Ready::Files(text) => {
                match text {
                    Some(text) => drop(self.preparing.texts.insert(agent.clone(), text)),
                    None => drop(self.preparing.texts.remove(&agent)),
                }
                self.spawn_prepared(&agent, run, fresh);
                // Unless a worker has the second job of the start.
                if self.preparing.of.get(&agent).is_some_and(|of| of.number == number) {
                    self.preparing.of.remove(&agent);
                }
            }
            Ready::Failed(why) => {
                self.preparing.of.remove(&agent);
                self.not_started(&RunKey { agent, run }, &why);
            }
            Ready::Confined(order, tokens, confined) => {
                self.preparing.of.remove(&agent);
                let key = RunKey { agent, run };
                match self.enforce(&key, Some(tokens), confined.map(|confined| *confined)) {
                    Ok(None) => self.send(&Request::Spawn(order)),
                    Ok(Some(profile)) if self.liveness.keeper_version < ISOLATING_VERSION => {
                        self.send(&Request::SpawnConfined(order, profile));
                    }
                    Ok(Some(profile)) => self.send(&Request::SpawnIsolated(order, profile)),
                    Err(why) => self.handle.tell(Ask::Unspawnable { key, why }),
                }
            }
        }
    }

    /// A run is to end. If the keeper has not been asked for it, it never begins. Says whether that is so.
    pub(super) fn cancel_start(&mut self, key: &RunKey) -> bool {
        if self.preparing.of.get(&key.agent).is_none_or(|of| of.run != key.run) {
            return false;
        }
        self.preparing.of.remove(&key.agent);
        let why = "it was stopped before it started".to_owned();
        self.handle.tell(Ask::NotStarted { key: key.clone(), why });
        true
    }

    /// Gives up the starts that are not prepared in time.
    pub(super) fn give_up_preparing(&mut self) {
        let now = now().mono;
        let late = self.preparing.of.iter().filter(|(_, of)| of.due <= now);
        let late: Vec<_> = late
            .map(|(name, of)| {
                let step = STEPS.get(of.step.load(Ordering::Relaxed)).copied();
                (RunKey { agent: name.clone(), run: of.run }, step.unwrap_or_default())
            })
            .collect();
        for (key, step) in late {
            self.preparing.of.remove(&key.agent);
            self.not_started(&key, &took_too_long(step));
        }
    }

    /// When to look at preparations again.
    pub(super) fn next_preparation(&self) -> Option<Mono> {
        let grows = self.preparing.workers.look();
        let grows = grows.map(|at| now().mono + at.saturating_duration_since(Instant::now()));
        self.preparing.of.values().map(|of| of.due).chain(grows).min()
    }

    /// A run did not come to life, for a reason that may go away.
    pub(super) fn not_started(&mut self, key: &RunKey, why: &str) {
        self.died(key, Status::NotSpawned { usable: true }, Some(why.into()));
    }

    /// The text of an agent's `env_file`, as it was read for the last start. The engine waits a moment for
    /// that of a run which an earlier daemon started.
    pub(super) fn env_text(&mut self, name: &Name) -> Option<EnvText> {
        let (project, agent) = self.recipe(name)?;
        let path = project.config.folder.join(agent.env_file.as_ref()?);
        let Preparing { workers, texts, is_slow, .. } = &mut self.preparing;
        let text = texts.entry(name.clone()).or_insert_with(|| {
            let patience = if *is_slow { Duration::ZERO } else { PATIENCE };
            let read = move || read_plain(&path).map_err(|error| error.to_string());
            workers.ask(name, patience, read).unwrap_or_else(|| {
                *is_slow = true;
                Err("the file system does not answer".to_owned())
            })
        });
        Some(text.clone())
    }

    /// The text that was read last.
    pub(super) fn known_env_text(&self, name: &Name) -> Option<&EnvText> {
        self.preparing.texts.get(name)
    }

    /// The agent is gone.
    pub(super) fn forget_preparing(&mut self, name: &Name) {
        self.preparing.of.remove(name);
        self.preparing.texts.remove(name);
    }
}

/// Whether an error is one of a file system or a device, and not one of the file that was asked for.
fn may_go_away(error: &io::Error) -> bool {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound, PermissionDenied};
    let lasts = [IsADirectory, NotADirectory, NotFound, PermissionDenied];
    error.raw_os_error().is_some() && !lasts.contains(&error.kind())
}

/// Why a start was given up, with what was being done.
pub(super) fn took_too_long(step: &str) -> String {
    format!("the start did not finish within {}: {step} does not answer", Span(spawn_deadline()))
}
