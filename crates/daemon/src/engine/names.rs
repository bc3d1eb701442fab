//! What a name that somebody wrote means at this moment.

use defib_core::{AgentId, Name, Scope};
use defib_history::Intent;

use super::Engine;
use super::ask::{Failed, failed};
use crate::names::{not_plain, only};
use crate::recipe::Project;
use crate::wire::{ErrorCode, UpRequest};

/// Who asks for an agent that is not there is told this many that are.
const NAMED: usize = 8;

impl Engine {
    /// Sees whether a project can be brought up, and gives all that it declares its keys. The answer is
    /// what has to be on disk before it is.
    pub(super) fn claim(&mut self, request: &UpRequest) -> Result<Option<Intent>, Failed> {
        self.check_names(request)?;
        Ok(self.names.claim(&request.config))
    }

    /// Whether a config has names that can be used.
    pub(super) fn check_keys(&self, request: &UpRequest) -> Result<(), Failed> {
        if let Some(name) = not_plain(&request.config) {
            let message =
                format!("{name} cannot be declared: a name in a file is without its project");
            let hint = "write the name alone: its project is said once, in the file".to_owned();
            return Err(failed(ErrorCode::Config, message, Some(hint)));
        }
        // An agent without a file has no project that anybody named: it would be `name/name`.
        let is_new = !self.projects.contains_key(&request.config.project);
        let has_no_file = request.path.starts_with(self.home.join("adhoc"));
        if let Some(other) =
            self.holder_of(&request.config.project).filter(|_| is_new && has_no_file)
        {
            let message =
                format!("{} is declared by project {other} already", request.config.project);
            let hint = "give it another name".to_owned();
            return Err(failed(ErrorCode::Config, message, Some(hint)));
        }
        if let Some(key) = self.names.too_long(&request.config) {
            let message =
                format!("{} is too long: another project has that name too", key.written());
            let hint = "give the agent or the project a shorter name".to_owned();
            return Err(failed(ErrorCode::Config, message, Some(hint)));
        }
        Ok(())
    }

    /// The agent or group that a name means.
    pub(super) fn scope(&self, text: &str) -> Result<Scope, Failed> {
        let key = self.declared_key(text)?;
        match (self.supervisor.group(&key), self.supervisor.agent(&key)) {
            (Some(group), _) => Ok(Scope::Group(group)),
            (None, Some(agent)) => Ok(Scope::Agent(agent)),
            (None, None) => Err(self.no_such_agent(text)),
        }
    }

    /// The agent that a name means.
    pub(super) fn find(&self, text: &str) -> Result<AgentId, Failed> {
        let key = self.declared_key(text)?;
        self.supervisor.agent(&key).ok_or_else(|| self.no_such_agent(text))
    }

    /// The key of what a name means, also of one that is gone.
    pub(super) fn key_of(&self, text: &str) -> Result<Name, Failed> {
        match self.declared_key(text) {
            Ok(key) => Ok(key),
            Err(Failed { code: ErrorCode::NoSuchAgent, .. }) => {
                self.names.past(text).ok_or_else(|| self.no_such_agent(text))
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn declared_key(&self, text: &str) -> Result<Name, Failed> {
        let (project, name) = match text.split_once('/') {
            Some((project, name)) => (Some(project), name),
            None => (None, text),
        };
        let Ok(name) = Name::parse(name) else { return Err(self.no_such_agent(text)) };
        let all: Vec<(&Name, Name, bool)> = self
            .projects
            .iter()
            .filter(|(of, _)| project.is_none_or(|project| of.as_str() == project))
            .map(|(of, project)| (of, self.names.key(of, &name), project))
            .filter(|(of, key, _)| self.is_declared(of, key))
            .map(|(of, key, project)| (of, key, self.is_wanted(project)))
            .collect();
        if let Some((_, key, _)) = only(&all) {
            return Ok(key.clone());
        }
        if all.is_empty() {
            return Err(self.no_such_agent(text));
        }
        let written: Vec<String> = all.iter().map(|(of, _, _)| format!("{of}/{name}")).collect();
        let message = format!("{name} could be {}", written.join(" or "));
        let hint = "say which, with its project in front".to_owned();
        Err(failed(ErrorCode::BadRequest, message, Some(hint)))
    }

    /// Whether a project has an agent or a group of this key.
    fn is_declared(&self, project: &Name, key: &Name) -> bool {
        let agent = self.supervisor.agent(key);
        agent.is_some_and(|id| self.supervisor.project(id) == project)
            || (self.supervisor.group(key).is_some()
                && self.projects.get(project).is_some_and(|of| of.has_group(key)))
    }

    /// A project that has an agent or a group of this name.
    fn holder_of(&self, name: &Name) -> Option<&Name> {
        let mut projects = self.projects.keys();
        projects.find(|of| self.is_declared(of, &self.names.key(of, name)))
    }

    /// What to do about a project that is not up: one of those that are was meant, or it has to come up.
    pub(super) fn who_is_up(&self) -> String {
        let up: Vec<String> = self.projects.keys().map(Name::to_string).take(8).collect();
        if up.is_empty() {
            return "no project is; `defib up` brings one up".to_owned();
        }
        format!("these are: {}; `defib up` brings up another", up.join(", "))
    }

    fn no_such_agent(&self, text: &str) -> Failed {
        let declared = self.supervisor.declared();
        let known: Vec<String> =
            declared.map(|(_, key)| self.handle.shown.name(key).to_string()).collect();
        let first = &known[..known.len().min(NAMED)];
        let hint = match defib_config::nearest(text, known.iter().map(String::as_str)) {
            Some(meant) => format!("did you mean {meant}?"),
            None if known.is_empty() => {
                "no agent is declared; `defib up` brings a project up".to_owned()
            }
            None => format!("there are: {}", first.join(", ")),
        };
        failed(ErrorCode::NoSuchAgent, format!("no agent is called {text:?}"), Some(hint))
    }

    /// Brings what is shown up to date. Whoever watches is told: names may have become others.
    pub(super) fn show_names(&mut self) {
        let projects = self.projects.values();
        let shown = self.names.shown(projects.map(|project| (project, self.is_wanted(project))));
        if self.handle.shown.put(shown) {
            let count = self.supervisor.declared().count();
            self.tell("config-applied", None, [("agents", count.into())]);
        }
    }

    /// What these are shown as.
    pub(super) fn shown_of(&self, project: &Project) -> Vec<Name> {
        project.specs().iter().map(|spec| self.handle.shown.name(&spec.name)).collect()
    }
}
