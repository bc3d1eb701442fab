//! What a run may do for itself: beat, say that it is ready, say what it does, ask to end.

use defib_config::config::{ReadyBy, Views};
use defib_core::{AgentId, Input, Name, RunId};
use defib_history::Intent;
use defib_host::protocol::{Request, RunKey};

use super::Engine;
use super::ask::{Answer, Failed};
use crate::doors::Onlooker;
use crate::intents::in_effect_unstored;
use crate::liveness::{Own, OwnWord, mint, one_line};
use crate::wire::{ErrorCode, ErrorDetail};

impl Engine {
    /// A token for a run that is about to be spawned. It is with the keeper before the run is.
    pub(super) fn token_for(&mut self, name: &Name, run: RunId) -> Option<String> {
        let (token, hash) = self.next_token.take().or_else(mint)?;
        self.own.insert(name.clone(), Own::new(run, hash));
        self.keep_own(name);
        Some(token)
    }

    /// Has a token at hand for whoever is spawned next: that one does not wait for random bytes.
    pub(super) fn prepare_token(&mut self) {
        if self.next_token.is_none() {
            self.next_token = mint();
        }
    }

    /// Hands to the keeper what a successor must know of what a run said of itself.
    pub(super) fn keep_own(&mut self, name: &Name) {
        let bytes = self.own.get(name).and_then(|own| postcard::to_allocvec(own).ok());
        self.send(&Request::Keep { key: format!("own/{name}"), bytes: bytes.unwrap_or_default() });
    }

    /// The agent is gone, and what it said with it.
    pub(super) fn forget_own(&mut self, name: &Name) {
        if self.own.remove(name).is_some() {
            self.keep_own(name);
        }
    }

    /// The run that a token belongs to, if that run lives: nothing else may be done with it.
    pub(super) fn bearer(&self, token: &str) -> Result<(AgentId, RunKey), Failed> {
        let owner = self.own.bearer(token);
        let found = owner.and_then(|(name, own)| {
            let agent = self.supervisor.known(name)?;
            let lives = self.supervisor.live_run(agent) == Some(own.run);
            lives.then(|| (agent, RunKey { agent: name.clone(), run: own.run }))
        });
        found.ok_or_else(|| ErrorDetail {
            code: ErrorCode::Unauthorized,
            message: "this token is no living run's".to_owned(),
            hint: Some("a run's DEFIB_TOKEN is good until that run ends".to_owned()),
        })
    }

    /// The agent in whose tree somebody lives, by the run's first process or by its cgroup.
    pub(super) fn onlooker(&self, line: &[u32], agent: Option<Name>) -> Result<Onlooker, Failed> {
        let by_line = self.processes.iter().find(|(_, process)| line.contains(&process.pid));
        let found = by_line.map(|(name, _)| name.clone()).or(agent);
        let found = found.and_then(|name| {
            let (project, agent) = self.recipe(&name)?;
            let sees = agent.views == Views::Project;
            Some(Onlooker { agent: name, project: sees.then(|| project.config.project.clone()) })
        });
        found.ok_or_else(|| ErrorDetail {
            code: ErrorCode::Forbidden,
            message: "this comes from inside of an agent that is not known".to_owned(),
            hint: None,
        })
    }

    /// Does what a run asks for, and answers when it is so; a wish to end is on disk by then.
    pub(super) fn own_word(&mut self, token: &str, word: OwnWord, answer: Answer<()>) {
        let (agent, key) = match self.bearer(token) {
            Ok(bearer) => bearer,
            Err(failed) => return drop(answer.send(Err(failed))),
        };
        let run = key.run;
        match word {
            OwnWord::Beat => self.handle(Input::BeatSeen { agent, run }),
            OwnWord::Ready => self.ready_by(&key, ReadyBy::Notify),
            OwnWord::Text(text) => self.say_text(&key, &text),
            OwnWord::Shutdown(reason) => return self.wish_to_end(agent, &key, reason, answer),
        }
        let _ = answer.send(Ok(()));
    }

    /// What a run says that it is doing.
    pub(super) fn say_text(&mut self, key: &RunKey, text: &str) {
        let text = one_line(&self.without_secrets(&key.agent, text));
        let text = Some(text).filter(|text| !text.is_empty());
        let Some(own) = self.own.get_mut(&key.agent).filter(|own| own.run == key.run) else {
            return;
        };
        if own.text != text {
            own.text = text;
            self.keep_own(&key.agent);
        }
    }

    /// It says that it is ending, and nothing else yet.
    pub(super) fn say_stopping(&mut self, key: &RunKey) {
        if self.own.get(&key.agent).is_some_and(|own| own.text.is_none()) {
            self.say_text(key, "stopping");
        }
    }

    /// Why a run is going to end, for its post-mortem.
    pub(super) fn blame(&mut self, key: &RunKey, why: &str) {
        let why = self.without_secrets(&key.agent, why);
        let own = self.own.get_mut(&key.agent).filter(|own| own.run == key.run);
        if let Some(own) = own.filter(|own| own.blame.is_none()) {
            own.blame = Some(why);
            self.keep_own(&key.agent);
        }
    }

    /// Why a run ended, where that was known before it did.
    pub(super) fn blame_of(&self, key: &RunKey) -> Option<Box<str>> {
        let own = self.own.get(&key.agent).filter(|own| own.run == key.run)?;
        own.blame.as_deref().map(Box::from)
    }

    fn wish_to_end(
        &mut self,
        agent: AgentId,
        key: &RunKey,
        reason: Option<String>,
        answer: Answer<()>,
    ) {
        // A cut would leave a part of a secret that nobody knows for one.
        let reason = reason.map(|reason| one_line(&self.without_secrets(&key.agent, &reason)));
        let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        self.blame(key, &format!("the agent asked for its own shutdown{reason}"));
        self.handle(Input::ShutdownWished { agent, run: key.run });
        // With the keeper it outlives this daemon; on disk it outlives the machine as well.
        let Ok(value) = serde_json::to_string(self.supervisor.life(agent)) else {
            return drop(answer.send(Ok(())));
        };
        self.stored_lives.insert(key.agent.clone());
        let wish = Intent::Keep { key: format!("life/{}", key.agent), value };
        self.intents.store(vec![wish], move |stored| {
            let unstored = |why| in_effect_unstored("the shutdown", &why);
            drop(answer.send(stored.map_err(unstored)));
        });
    }
}
