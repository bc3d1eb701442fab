//! What agents may do: as their files say, as operators have changed it since, and as their runs began.
//!
//! A change is on disk before it is acknowledged, and counts from the next spawn on: a sandbox cannot be
//! changed around a run that is in it. Until then the change is pending, and is shown as that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;
use std::time::Duration;

use defib_config::config::{Isolation, Probe, ProbeTarget};
use defib_core::{Capability, Name, RunId};
use defib_history::{Intent, Intents};
use defib_host::protocol::{
    ISOLATING_VERSION, IsolationKind, Profile, Request, RunKey, SpawnOrder,
};
use defib_host::sandbox::support;
use serde::{Deserialize, Serialize};

use super::Engine;
use super::ask::{Answer, Failed};
use crate::intents::in_effect_unstored;
use crate::old_keeper::{NO_NAMESPACES, OLD_NAMESPACES, OLD_SANDBOX, REPLACE_KEEPER};
use crate::places::AgentFile;
use crate::recipe::{Project, RunFacts, argv};
use crate::sandbox::{self, Confined, Situation, report};
use crate::wire::{CapabilityChange, Caps, ErrorCode, ErrorDetail};

/// The first version of the keeper that can confine a run.
const CONFINING_KEEPER: u32 = 3;
/// What the keys begin with under which changes are on disk.
const CHANGES: &str = "capabilities/";

/// How long an operator waits for a look at the paths that tokens name.
const LONGEST_LOOK: Duration = Duration::from_secs(2);

/// What is known of what agents may do.
#[derive(Debug, Default)]
pub(super) struct Capabilities {
    /// By project and agent: another project's agent of the same name is another.
    changes: BTreeMap<(Name, Name), Changes>,
    in_force: BTreeMap<Name, InForce>,
    /// What was said of tokens that lead nowhere, so that it is said once.
    said: BTreeMap<Name, Vec<(Capability, String)>>,
}

/// What operators have changed of what a file says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Changes {
    granted: BTreeSet<Capability>,
    revoked: BTreeSet<Capability>,
}

/// What a run began with. No tokens: it is not confined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InForce {
    run: RunId,
    tokens: Option<Vec<Capability>>,
}

impl Capabilities {
    /// What was changed before us, and what the runs began with that an earlier daemon spawned.
    pub(super) fn stored<'k>(
        intents: &Intents,
        kept: impl Iterator<Item = (Name, &'k [u8])>,
    ) -> Capabilities {
        let changes = intents.kept.iter().filter_map(|(key, text)| {
            let (project, agent) = key.strip_prefix(CHANGES)?.split_once('/')?;
            let of = (Name::known(project).ok()?, Name::known(agent).ok()?);
            Some((of, serde_json::from_str(text).ok()?))
        });
        let in_force =
            kept.filter_map(|(name, bytes)| Some((name, postcard::from_bytes(bytes).ok()?)));
        Capabilities {
            changes: changes.collect(),
            in_force: in_force.collect(),
            said: BTreeMap::new(),
        }
    }
}

/// Where a run finds itself, before the agent's paths have been looked at.
pub(super) struct Unlooked {
    situation: Situation,
    heartbeat: Option<AgentFile>,
}

impl Unlooked {
    /// Looks at the heartbeat file. Whatever the agent has put in its place, such as a symlink, is not
    /// granted. This can block.
    pub(super) fn looked_at(self) -> Situation {
        let heartbeat = self.heartbeat.filter(AgentFile::may_be_granted);
        Situation { heartbeat: heartbeat.map(|file| file.path), ..self.situation }
    }
}

impl Changes {
    /// A file's tokens without those that were revoked, and those that were granted beside.
    fn apply(&self, declared: &[Capability]) -> Vec<Capability> {
        let kept = declared.iter().filter(|token| !self.revoked.contains(token));
        let mut tokens: Vec<Capability> = kept.cloned().collect();
        let granted = self.granted.iter().filter(|token| !declared.contains(token));
        tokens.extend(granted.cloned());
        tokens
    }
}

impl Engine {
    /// The tokens that an agent's next run gets. Nothing: it is not confined.
    pub(super) fn capabilities_of(&self, name: &Name) -> Option<Vec<Capability>> {
        let (_, agent) = self.recipe(name)?;
        let declared = agent.capabilities.as_deref()?;
        let changes = self.changes_of(name);
        Some(changes.map_or_else(|| declared.to_vec(), |changes| changes.apply(declared)))
    }

    fn changes_of(&self, name: &Name) -> Option<&Changes> {
        let (project, _) = self.recipe(name)?;
        self.capabilities.changes.get(&(project.config.project.clone(), name.clone()))
    }

    /// The tokens that an agent has now, and those that it will have, where that is something else.
    pub(super) fn capabilities_shown(
        &self,
        name: &Name,
    ) -> (Option<Vec<String>>, Option<Vec<String>>) {
        let next = self.capabilities_of(name);
        match self.in_force(name) {
            Some(now) if now.tokens != next => {
                // Whoever is to be without a sandbox is shown to get everything.
                let all = || vec![Capability::Privileged];
                (texts(now.tokens.as_deref()), texts(Some(&next.unwrap_or_else(all))))
            }
            Some(_) | None => (texts(next.as_deref()), None),
        }
    }

    /// What the living run of an agent began with.
    fn in_force(&self, name: &Name) -> Option<&InForce> {
        let id = self.supervisor.known(name)?;
        let live = self.supervisor.live_run(id)?;
        self.capabilities.in_force.get(name).filter(|now| now.run == live)
    }

    /// Notes the tokens that a run has as those in force, and gives the profile that the keeper enforces.
    /// `None`: the run is not confined.
    ///
    /// # Errors
    /// With what is to be done, if the keeper cannot confine it.
    pub(super) fn enforce(
        &mut self,
        key: &RunKey,
        tokens: Option<Vec<Capability>>,
        confined: Option<Confined>,
    ) -> Result<Option<Box<Profile>>, String> {
        if confined.is_some() && self.liveness.keeper_version < CONFINING_KEEPER {
            return Err("it has capabilities, and the keeper that runs is too old to confine it; \
                        `defib down --all`, then `defib up`"
                .to_owned());
        }
        if let Some(why) = self.cannot_isolate(&key.agent).filter(|_| confined.is_some()) {
            return Err(why);
        }
        if tokens.is_some() || self.capabilities.in_force.contains_key(&key.agent) {
            let now = InForce { run: key.run, tokens };
            let bytes = postcard::to_allocvec(&now).unwrap_or_default();
            self.capabilities.in_force.insert(key.agent.clone(), now);
            self.send(&Request::Keep { key: format!("capabilities/{}", key.agent), bytes });
        }
        let Some(Confined { profile, warnings }) = confined else { return Ok(None) };
        self.warn(key, warnings);
        Ok(Some(Box::new(profile)))
    }

    /// The sandbox that an agent's file asks for.
    fn isolation_of(&self, name: &Name) -> IsolationKind {
        match self.recipe(name).and_then(|(_, agent)| agent.isolation) {
            Some(Isolation::Namespaces) => IsolationKind::Namespaces,
            Some(Isolation::Landlock) | None => IsolationKind::Landlock,
        }
    }

    /// Why an agent cannot have the sandbox that its file asks for. It is not started with a weaker one.
    fn cannot_isolate(&self, name: &Name) -> Option<String> {
        if self.isolation_of(name) != IsolationKind::Namespaces {
            return None;
        }
        if self.liveness.keeper_version < ISOLATING_VERSION {
            return Some(format!("{OLD_NAMESPACES}; {REPLACE_KEEPER}"));
        }
        (!support().namespaces).then(|| NO_NAMESPACES.to_owned())
    }

    /// Where a run finds itself. The agent's paths are not looked at.
    pub(super) fn situation(
        &self,
        name: &Name,
        order: &SpawnOrder,
        meter: Option<u16>,
    ) -> Option<Unlooked> {
        let (project, agent) = self.recipe(name)?;
        let heartbeat = agent.heartbeat_file.is_some();
        let heartbeat = heartbeat.then(|| project.heartbeat_file(&self.home, agent));
        let situation = Situation {
            cwd: order.cwd.clone().into(),
            state: Project::state_folder(&self.home, agent),
            probe: agent.probe.as_ref().and_then(|probe| probe_program(probe)),
            // The default file is in the state folder.
            heartbeat: None,
            meter,
            home: self.home.clone(),
            isolation: self.isolation_of(name),
        };
        Some(Unlooked { situation, heartbeat })
    }

    /// Says which tokens lead nowhere, unless that was said before.
    fn warn(&mut self, key: &RunKey, warnings: Vec<(Capability, String)>) {
        if self.capabilities.said.get(&key.agent).is_some_and(|said| *said == warnings) {
            return;
        }
        for (capability, why) in &warnings {
            let body =
                [("capability", capability.to_string().into()), ("why", why.as_str().into())];
            self.tell("capability-unusable", Some(key.clone()), body);
        }
        self.capabilities.said.insert(key.agent.clone(), warnings);
    }

    /// Grants or revokes tokens, all of them or none, and answers when that is on disk.
    pub(super) fn change_capabilities(
        &mut self,
        name: &str,
        change: CapabilityChange,
        tokens: &[Capability],
        answer: Answer<Caps>,
    ) {
        match self.try_change(name, change, tokens) {
            Err(failed) => drop(answer.send(Err(failed))),
            Ok((name, intent)) => {
                let caps = self.caps_of(&name);
                let warnings = self.warnings_of(&name);
                let runtime = self.liveness.runtime.clone();
                self.intents.store(vec![intent], move |stored| match stored {
                    Ok(()) => warnings.complete(&runtime, caps, answer),
                    Err(why) => {
                        let unstored = in_effect_unstored("the change of capabilities", &why);
                        drop(answer.send(Err(unstored)));
                    }
                });
            }
        }
    }

    fn try_change(
        &mut self,
        name: &str,
        change: CapabilityChange,
        tokens: &[Capability],
    ) -> Result<(Name, Intent), Failed> {
        let agent = self.find(name)?;
        let name = self.supervisor.name(agent).clone();
        let shown = self.handle.shown.name(&name);
        let declared = self.recipe(&name).and_then(|(project, agent)| {
            Some((project.config.project.clone(), agent.capabilities.clone()?))
        });
        let Some((project, declared)) = declared else {
            return Err(refused(
                format!("{shown} has no sandbox, so there is nothing to grant or revoke"),
                "give it `capabilities = […]` in its file and run `defib reload`".to_owned(),
            ));
        };
        let before = self.changes_of(&name).cloned().unwrap_or_default();
        let has = before.apply(&declared);
        let mut after = before;
        for token in tokens {
            match change {
                CapabilityChange::Grant => {
                    after.revoked.remove(token);
                    after.granted.insert(token.clone());
                }
                CapabilityChange::Revoke if has.contains(token) => {
                    after.granted.remove(token);
                    if declared.contains(token) {
                        after.revoked.insert(token.clone());
                    }
                }
                CapabilityChange::Revoke => {
                    return Err(refused(
                        format!("{shown} does not have {token}"),
                        format!("`defib caps {shown}` shows what it has"),
                    ));
                }
            }
        }
        // What the file says anyway need not be remembered.
        after.granted.retain(|token| !declared.contains(token));
        let value = serde_json::to_string(&after).unwrap_or_default();
        let key = format!("{CHANGES}{project}/{name}");
        self.capabilities.changes.insert((project, name.clone()), after);
        let kind = match change {
            CapabilityChange::Grant => "capability-granted",
            CapabilityChange::Revoke => "capability-revoked",
        };
        for token in tokens {
            let of = RunKey { agent: name.clone(), run: RunId(0) };
            self.tell(kind, Some(of), [("capability", token.to_string().into())]);
        }
        Ok((name, Intent::Keep { key, value }))
    }

    /// What an agent may do, now and next, and what of that is enforced here.
    pub(super) fn caps(&self, name: &str, answer: Answer<Caps>) {
        let name = match self.find(name) {
            Ok(agent) => self.supervisor.name(agent).clone(),
            Err(failed) => return drop(answer.send(Err(failed))),
        };
        self.warnings_of(&name).complete(&self.liveness.runtime, self.caps_of(&name), answer);
    }

    fn caps_of(&self, name: &Name) -> Caps {
        let next = self.capabilities_of(name);
        let (capabilities, pending) = self.capabilities_shown(name);
        let changes = self.changes_of(name);
        let granted =
            |token: &Capability| changes.is_some_and(|changes| changes.granted.contains(token));
        let revoked = changes.map(|changes| changes.revoked.iter().map(ToString::to_string));
        let mut warnings = Vec::new();
        if next.as_ref().is_some_and(|next| !next.contains(&Capability::Privileged)) {
            warnings.extend(self.cannot_isolate(name));
            if self.liveness.keeper_version < ISOLATING_VERSION {
                warnings.push(format!("{OLD_SANDBOX}; {REPLACE_KEEPER}"));
            }
        }
        Caps {
            run: self.in_force(name).map(|now| now.run),
            capabilities,
            capabilities_pending: pending,
            tokens: report::tokens(next.as_deref().unwrap_or_default(), granted),
            revoked: revoked.into_iter().flatten().collect(),
            warnings,
            ..report::caps(
                self.handle.shown.name(name),
                next.as_deref(),
                self.isolation_of(name),
                support(),
            )
        }
    }

    /// Which tokens would lead nowhere now. A worker looks.
    fn warnings_of(&self, name: &Name) -> Warnings {
        let (answer, warnings) = mpsc::sync_channel(1);
        let recipe = self.recipe(name);
        let file = self.known_env_text(name).cloned().unwrap_or_else(|| Ok(String::new()));
        let facts = RunFacts::default();
        let order = recipe.and_then(|(project, agent)| {
            project.order(&self.home, agent, RunId(0), &facts, Some(&file)).ok()
        });
        let (Some(order), Some(next)) = (order, self.capabilities_of(name)) else {
            return Warnings(warnings);
        };
        let situation = self.situation(name, &order, None);
        self.preparing.workers.run(name, move || {
            let confined = situation
                .and_then(|situation| sandbox::confine(&next, &order, &situation.looked_at()));
            let warnings = confined.map(|confined| confined.warnings).unwrap_or_default();
            let text = |(token, why)| format!("{token}: {why}");
            drop(answer.try_send(warnings.into_iter().map(text).collect()));
        });
        Warnings(warnings)
    }

    /// The agent's runs are over for good.
    pub(super) fn forget_capabilities(&mut self, name: &Name) {
        self.capabilities.said.remove(name);
        if self.capabilities.in_force.remove(name).is_some() {
            let key = format!("capabilities/{name}");
            self.send(&Request::Keep { key, bytes: Vec::new() });
        }
    }

    /// What was granted to an agent that its file no longer has is not for a later one of its name. A
    /// project that is down keeps what its agents were granted.
    pub(super) fn drop_stale_changes(&mut self) {
        let is_stale = |(project, agent): &(Name, Name)| {
            let project = self.projects.get(project);
            project.is_some_and(|project| {
                project.config.agents.iter().all(|known| known.name != *agent)
            })
        };
        let stale: Vec<(Name, Name)> =
            self.capabilities.changes.keys().filter(|of| is_stale(of)).cloned().collect();
        for of in stale {
            self.drop_changes(&of);
        }
    }

    /// Forgets what was granted and revoked.
    pub(super) fn drop_changes(&mut self, of: &(Name, Name)) {
        if self.capabilities.changes.remove(of).is_some() {
            let key = format!("{CHANGES}{}/{}", of.0, of.1);
            self.history.store_later([Intent::Drop { key }]);
        }
    }
}

/// Warnings that a worker looks for.
struct Warnings(mpsc::Receiver<Vec<String>>);

impl Warnings {
    /// Answers with them as soon as they are there, without keeping the caller.
    fn complete(self, runtime: &tokio::runtime::Handle, mut caps: Caps, answer: Answer<Caps>) {
        runtime.spawn_blocking(move || {
            caps.warnings.splice(0..0, self.await_all());
            drop(answer.send(Ok(caps)));
        });
    }

    /// Waits for them, but not for a file system that does not answer.
    fn await_all(&self) -> Vec<String> {
        match self.0.recv_timeout(LONGEST_LOOK) {
            Ok(warnings) => warnings,
            Err(mpsc::RecvTimeoutError::Disconnected) => Vec::new(),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                vec!["the paths of its tokens: the file system does not answer".to_owned()]
            }
        }
    }
}

fn texts(tokens: Option<&[Capability]>) -> Option<Vec<String>> {
    tokens.map(|tokens| tokens.iter().map(ToString::to_string).collect())
}

fn refused(message: String, hint: String) -> Failed {
    ErrorDetail { code: ErrorCode::NotInState, message, hint: Some(hint) }
}

/// The program that an exec probe runs. It runs in the agent's sandbox, so the sandbox has to permit it.
fn probe_program(probe: &Probe) -> Option<String> {
    match &probe.target {
        ProbeTarget::Exec(command) => argv(command).into_iter().next(),
        ProbeTarget::Http(_) | ProbeTarget::Tcp(_) => None,
    }
}
