//! What runs show of themselves, handed to the core; and what has to be known before a deadline
//! passes: that a beat came which nobody has looked at yet.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::Duration;

use defib_config::config::ReadyBy;
use defib_core::policy::Reset;
use defib_core::record::By;
use defib_core::span::Shown as Span;
use defib_core::{Input, Name, Now, Outbox, Record, RunId, State, What};
use defib_host::clock::now;
use defib_host::protocol::{Request, RunKey};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::ask::Ask;
use super::commands::CommandAsk;
use super::{Engine, EngineHandle};
use crate::liveness::{Probed, Shown, Sign, Sockets, Vigil, Watch, Word, watch_probe};
use crate::places::owner_of;
use crate::recipe::RunFacts;
use crate::workers::Workers;

/// The first version of the keeper that gives a notify socket to another user.
const GIVING_KEEPER: u32 = 7;
/// The keeper's version from which on it can forget an agent.
const FORGETTING_KEEPER: u32 = 5;

/// What the engine needs for knowing whether runs live.
pub(super) struct Liveness {
    pub(super) vigil: Vigil,
    /// Where the API's tasks run, and the probes.
    pub(super) runtime: tokio::runtime::Handle,
    probes: BTreeMap<Name, (RunId, AbortHandle)>,
    /// The notify sockets that the keeper was asked for.
    pub(super) sockets: Sockets,
    /// Whether it has been said that some agents go without.
    said_scarce: bool,
    pub(super) keeper_version: u32,
    /// Runs that live though they were killed.
    pub(super) stuck: BTreeMap<Name, RunId>,
}

impl Liveness {
    /// Starts the vigil.
    pub(super) fn begin(
        home: &Path,
        engine: &EngineHandle,
        runtime: tokio::runtime::Handle,
        keeper_version: u32,
        workers: Workers,
    ) -> io::Result<Liveness> {
        // Where notify sockets are; without it agents have none, and run all the same.
        let _ = std::fs::DirBuilder::new().mode(0o700).create(home.join("n"));
        let waker = engine.clone();
        Ok(Liveness {
            vigil: Vigil::start(workers, move || waker.wake())?,
            runtime,
            probes: BTreeMap::new(),
            sockets: Sockets::new(home),
            said_scarce: false,
            keeper_version,
            stuck: BTreeMap::new(),
        })
    }
}

impl Engine {
    /// A run was killed a while ago and has not gone: the kernel holds it, mostly for a disk or a network
    /// that does not answer. Nothing can be done but to say so.
    pub(super) fn is_stuck(&mut self, key: RunKey) {
        let key = RunKey { agent: self.at_hand(key.agent), run: key.run };
        self.liveness.stuck.insert(key.agent.clone(), key.run);
        let pid = self.processes.get(&key.agent).map(|process| process.pid);
        self.tell("run-stuck", Some(key), [("pid", pid.into())]);
    }

    /// The time, for an input. Nothing is due yet that a run has an excuse for.
    pub(super) fn heed(&mut self) -> Now {
        let at = now();
        if self.supervisor.next_deadline().is_some_and(|due| due <= at.mono) {
            for sign in self.liveness.vigil.look_now(at.mono) {
                self.hear_sign(&sign);
            }
        }
        at
    }

    /// Hands an input to the core with the time at which it happened.
    pub(super) fn hand_over(&mut self, at: Now, input: Input) {
        let mut out = Outbox::default();
        // Nothing of what runs show can be refused.
        let _ = self.supervisor.handle(at, input, &mut out);
        self.drain(&mut out);
    }

    /// What the vigil has seen meanwhile.
    pub(super) fn hear_vigil(&mut self) {
        for sign in self.liveness.vigil.take() {
            self.hear_sign(&sign);
        }
    }

    fn hear_sign(&mut self, sign: &Sign) {
        let Sign { key, shown } = sign;
        let Some(agent) = self.supervisor.known(&key.agent) else { return };
        let run = key.run;
        let at = now();
        match shown {
            Shown::Activity => self.hand_over(at, Input::ActivitySeen { agent, run }),
            Shown::Lingered => self.hand_over(at, Input::Lingered { agent, run }),
            Shown::Word(Word::Beat) => self.hand_over(at, Input::BeatSeen { agent, run }),
            Shown::Word(Word::Ready) => self.ready_by(key, ReadyBy::Notify),
            Shown::Word(Word::Extend(by)) => {
                self.hand_over(at, Input::Extended { agent, run, by: *by });
            }
            Shown::Word(Word::Text(text)) => self.say_text(key, text),
            Shown::Word(Word::Stopping) => self.say_stopping(key),
            Shown::Word(Word::Trigger) => {
                self.blame(key, "it triggered its own watchdog");
                self.hand_over(at, Input::ProbeFailed { agent, run });
            }
        }
    }

    /// Somebody says that a run is ready; whether that is who has to say so is for its config.
    pub(super) fn ready_by(&mut self, key: &RunKey, who: ReadyBy) {
        let wanted = self.recipe(&key.agent).is_some_and(|(_, agent)| agent.ready == who);
        if let Some(agent) = self.supervisor.known(&key.agent).filter(|_| wanted) {
            self.handle(Input::Readied { agent, run: key.run });
        }
    }

    /// A run lives: it is watched from here on, in all the ways its config asks for.
    pub(super) fn attend(&mut self, key: &RunKey, pid: u32) {
        self.watch(key, pid);
        self.begin_probe(key);
    }

    fn watch(&self, key: &RunKey, pid: u32) {
        let recipe = self.recipe(&key.agent);
        let policy = recipe.map(|(_, agent)| &agent.policy);
        let heartbeat = policy.and_then(|policy| policy.heartbeat);
        let beats = heartbeat.is_some() || policy.is_some_and(|rule| rule.reset == Reset::Beat);
        let beating = recipe.filter(|_| beats);
        let file = beating.map(|(project, agent)| project.heartbeat_file(&self.home, agent));
        let hang = policy.and_then(|policy| policy.silent_for);
        self.liveness.vigil.attend(Watch {
            key: key.clone(),
            pid,
            user: recipe.and_then(|(_, agent)| owner_of(agent)).map(|owner| owner.user),
            file,
            hang: hang.map(|span| Box::new((span, crate::logs::folder(&self.home, &key.agent)))),
        });
    }

    /// What is declared has changed: runs that go on are watched as it says now.
    pub(super) fn attend_anew(&mut self) {
        let pids: Vec<(Name, u32)> =
            self.processes.iter().map(|(name, process)| (name.clone(), process.pid)).collect();
        for (name, pid) in pids {
            let Some(run) =
                self.supervisor.known(&name).and_then(|id| self.supervisor.live_run(id))
            else {
                continue;
            };
            let key = RunKey { agent: name, run };
            self.end_probe(&key.agent);
            self.attend(&key, pid);
            let id = self.supervisor.known(&key.agent);
            if id.is_some_and(|id| self.supervisor.has_finished(id)) {
                self.finish_seen(&key, true);
            }
        }
    }

    /// A run printed the record that ends its work, or a record of work after it.
    pub(super) fn finish_seen(&mut self, key: &RunKey, finished: bool) {
        let Some(agent) = self.supervisor.known(&key.agent) else { return };
        // A stop has been asked for already; what the run prints on that decides at its death.
        if self.supervisor.sight(agent).state == State::Stopping {
            return;
        }
        let linger = self.recipe(&key.agent).and_then(|(_, agent)| agent.linger.limit());
        let linger = linger.filter(|_| finished);
        let finished = linger.is_some();
        self.hand_over(now(), Input::FinishSeen { agent, run: key.run, finished });
        self.liveness.vigil.finished(key, linger);
    }

    /// A run is over: what it said before that comes first.
    pub(super) fn part_from(&mut self, key: &RunKey) {
        for sign in self.liveness.vigil.leave(key) {
            self.hear_sign(&sign);
        }
        if self.liveness.probes.get(&key.agent).is_some_and(|(run, _)| *run == key.run) {
            self.end_probe(&key.agent);
        }
    }

    fn end_probe(&mut self, name: &Name) {
        if let Some((_, probe)) = self.liveness.probes.remove(name) {
            probe.abort();
            self.cancel_command(name);
        }
    }

    fn begin_probe(&mut self, key: &RunKey) {
        if self.holds_command(&key.agent) {
            return;
        }
        let Some((project, agent)) = self.recipe(&key.agent) else { return };
        let Some(probe) = agent.probe.clone() else { return };
        let id = self.supervisor.known(&key.agent);
        let starts = id.is_some_and(|id| self.supervisor.sight(id).state == State::Starting);
        let makes_ready = starts && agent.ready == ReadyBy::Probe;
        // As the run has it, without what the run proves itself with: a probe does not speak for it.
        let file = self.known_env_text(&key.agent);
        let order = project.order(&self.home, agent, key.run, &RunFacts::default(), file);
        let env = order.map(|order| order.env).unwrap_or_default();
        let (engine, whose) = (self.handle.clone(), key.clone());
        let runner = move |argv: Vec<String>, timeout| {
            let (answer, end) = oneshot::channel();
            let (key, env) = (whose.clone(), env.clone());
            let ask = CommandAsk { key, argv, env, timeout, answer };
            engine.tell(Ask::Command(Box::new(ask)));
            end
        };
        let (handle, whose) = (self.handle.clone(), key.clone());
        let tell = move |probed| handle.tell(Ask::Probed(whose.clone(), probed));
        let task = self.liveness.runtime.spawn(watch_probe(*probe, makes_ready, runner, tell));
        self.liveness.probes.insert(key.agent.clone(), (key.run, task.abort_handle()));
    }

    /// What came of a run's probes.
    pub(super) fn probed(&mut self, key: &RunKey, probed: Probed) {
        match probed {
            Probed::Good => {
                if let Some(agent) = self.supervisor.known(&key.agent) {
                    self.hand_over(now(), Input::ActivitySeen { agent, run: key.run });
                }
                self.ready_by(key, ReadyBy::Probe);
            }
            Probed::Bad(why) => {
                let Some(agent) = self.supervisor.known(&key.agent) else { return };
                if self.supervisor.live_run(agent) == Some(key.run) {
                    self.blame(key, &why);
                    self.handle(Input::ProbeFailed { agent, run: key.run });
                }
            }
        }
    }

    /// Where an agent's notify socket is. The keeper is asked for it once, before the first run. Among
    /// very many agents only those have one that cannot do without.
    pub(super) fn notify_socket(&mut self, name: &Name) -> Option<String> {
        let owner = self.recipe(name).and_then(|(_, agent)| owner_of(agent));
        // An older keeper cannot give a socket to another user.
        let owner = owner.filter(|_| self.liveness.keeper_version >= GIVING_KEEPER);
        let user = owner.map(|owner| owner.user);
        if let Some(path) = self.liveness.sockets.path_for(name, user) {
            return Some(path);
        }
        if self.liveness.keeper_version < 2 {
            return None;
        }
        if self.liveness.sockets.remove(name) {
            // The agent has another user now.
            self.send(&Request::Unlisten(name.clone()));
        }
        let needs = self.recipe(name).is_some_and(|(_, agent)| {
            agent.ready == ReadyBy::Notify || agent.policy.heartbeat.is_some()
        });
        let (agents, limit) = (self.declared.len(), defib_host::descriptor_limit());
        if !needs && !self.liveness.sockets.has_room(agents, limit) {
            if !std::mem::replace(&mut self.liveness.said_scarce, true) {
                say!(
                    "{agents} agents and {limit} descriptors: those without a heartbeat or \
                     `ready = \"notify\"` have no notify socket from here on"
                );
            }
            return None;
        }
        let path = self.liveness.sockets.claim(name, user);
        let agent = name.clone();
        self.send(&match user {
            Some(user) => Request::ListenFor { agent, path: path.clone(), user },
            None => Request::Listen { agent, path: path.clone() },
        });
        Some(path)
    }

    /// The agent is gone.
    pub(super) fn forget_liveness(&mut self, name: &Name) {
        self.liveness.vigil.forget(name);
        self.end_probe(name);
        if self.liveness.sockets.remove(name) {
            self.send(&Request::Unlisten(name.clone()));
        }
    }

    /// The keeper may forget the agent, but for its life, which has the number of its last run.
    pub(super) fn forget_with_keeper(&mut self, name: &Name) {
        if self.liveness.keeper_version >= FORGETTING_KEEPER {
            self.send(&Request::Forget(name.clone()));
        }
    }

    /// A record that says why a run is going to end: that is kept for its post-mortem.
    pub(super) fn note_blame(&mut self, record: &Record) {
        let Some(run) = record.run else { return };
        let why = if let What::HeartbeatMissed { silent_s, ttl_s } = &record.what {
            let (silent, ttl) = (Span(tenths(silent_s.0)), Span(ttl_s.0));
            Some(format!("no heartbeat for {silent}, ttl {ttl}"))
        } else if let What::StopRequested { by: By::Timeout, .. } = &record.what {
            self.overdue(&record.agent, run)
        } else {
            None
        };
        if let Some(why) = why {
            self.blame(&RunKey { agent: record.agent.clone(), run }, &why);
        }
    }

    /// Which bound a run is past that ended by the clock and not for want of a beat.
    fn overdue(&self, name: &Name, run: RunId) -> Option<String> {
        let id = self.supervisor.known(name)?;
        let policy = self.supervisor.policy(id);
        let started = self.view.agent(name).filter(|view| view.sight.run == Some(run))?.started?;
        let age = now().mono.since(started.mono);
        if let Some(most) = policy.max_runtime.filter(|most| age >= *most) {
            return Some(format!("it ran past max_runtime, {}", Span(most)));
        }
        let silent = policy.silent_for?;
        Some(format!("no output, CPU time or child activity for {}", Span(silent)))
    }
}

/// Nobody reads more than tenths of a second.
fn tenths(span: Duration) -> Duration {
    Duration::from_millis(u64::try_from(span.as_millis() / 100 * 100).unwrap_or(u64::MAX))
}
