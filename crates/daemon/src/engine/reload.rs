//! What a changed file changes: told before it is done, and nothing else is started for it.

use std::collections::BTreeMap;
use std::path::Path;

use defib_core::policy::Trigger;
use defib_core::{AgentId, AgentSpec, Goal, Name, Scope, State};

use super::Engine;
use super::ask::{Failed, failed};
use crate::recipe::Project;
use crate::wire::{ErrorCode, Plan, UpRequest};

/// What a file makes of the agents of its project, by their keys.
#[derive(Debug, Default)]
pub(super) struct Changes {
    added: Vec<Name>,
    /// The command or the environment is another.
    renewed: Vec<Name>,
    changed: Vec<Name>,
    removed: Vec<Name>,
    unchanged: Vec<Name>,
}

/// Whether two paths are of one file, however each of them gets there.
pub(super) fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    one == other || real(one).is_some_and(|one| Some(one) == real(other))
}

impl Engine {
    /// One file, one project: whoever has renamed it would run everything twice.
    pub(super) fn check_path(&self, request: &UpRequest) -> Result<(), Failed> {
        let UpRequest { path, config, .. } = request;
        let other = self.projects.iter().find(|(name, other)| {
            **name != config.project && is_same(&other.path, path) && self.is_wanted(other)
        });
        let Some((other, _)) = other else { return Ok(()) };
        let message = format!("{} is up as project {other}", path.display());
        let hint = format!(
            "`defib down` takes that down; then `defib up` brings it up as {}",
            config.project
        );
        Err(failed(ErrorCode::Config, message, Some(hint)))
    }

    /// Which project a file means: that of the name that is in it, or the one that is up from it, where
    /// the file was renamed, broken or removed meanwhile.
    pub(super) fn project_of(&self, file: &Path, name: Option<Name>) -> Result<Name, Failed> {
        if let Some(name) = name.as_ref().filter(|name| self.projects.contains_key(*name)) {
            return Ok(name.clone());
        }
        let from_it = || self.projects.iter().filter(|(_, project)| is_same(&project.path, file));
        let wanted = from_it().find(|(_, project)| self.is_wanted(project));
        if let Some((name, _)) = wanted.or_else(|| from_it().next()) {
            return Ok(name.clone());
        }
        name.ok_or_else(|| {
            let message = format!("no project is up from {}", file.display());
            let hint = "`defib down --all` ends every project, `defib stop NAME` one agent; neither \
                        needs the file";
            failed(ErrorCode::NoSuchAgent, message, Some(hint.to_owned()))
        })
    }

    /// Only what is up can be reloaded.
    pub(super) fn check_is_up(&self, request: &UpRequest) -> Result<(), Failed> {
        let name = &request.config.project;
        let is_up = |known: &Project| known.config.agents.is_empty() || self.is_wanted(known);
        if !request.reload || self.projects.get(name).is_some_and(is_up) {
            return Ok(());
        }
        let hint = "`defib up` brings it up".to_owned();
        Err(failed(ErrorCode::NotInState, format!("project {name} is not up"), Some(hint)))
    }

    /// What bringing a project up, or reloading it, would change.
    pub(super) fn plan(&mut self, request: &UpRequest) -> Result<Plan, Failed> {
        self.check_names(request)?;
        let Changes { added, renewed, changed, removed, unchanged } = self.changes(request);
        // It is about one file, and so are the names.
        let plain = |keys: &[Name]| keys.iter().map(Name::plain).collect::<Vec<_>>();
        let mut plan = Plan {
            added: plain(&added),
            changed: plain(&changed),
            removed: plain(&removed),
            unchanged: plain(&unchanged),
            ..Plan::default()
        };
        for key in renewed {
            let Some(id) = self.supervisor.agent(&key) else { continue };
            let to = match self.supervisor.sight(id).state {
                State::Starting | State::Running if self.should_be_up(id) => &mut plan.restarted,
                State::Idle | State::Stopped | State::Done
                    if self.should_be_up(id)
                        && self.supervisor.policy(id).trigger == Trigger::Boot =>
                {
                    &mut plan.started
                }
                State::Backoff | State::Halted | State::CrashedOut if self.should_be_up(id) => {
                    &mut plan.started
                }
                State::Starting
                | State::Running
                | State::Idle
                | State::Stopped
                | State::Done
                | State::Backoff
                | State::Halted
                | State::CrashedOut
                | State::Waiting
                | State::Stopping => &mut plan.pending,
            };
            to.push(key.plain());
        }
        Ok(plan)
    }

    pub(super) fn changes(&self, request: &UpRequest) -> Changes {
        let new = self.project_from(request.clone());
        let old = self.projects.get(&new.config.project);
        let before: BTreeMap<Name, AgentSpec> = old
            .map(Project::specs)
            .unwrap_or_default()
            .into_iter()
            .map(|spec| (spec.name.clone(), spec))
            .collect();
        // What a run is confined to cannot change, so the agent runs on and the change is pending.
        let is_confined_otherwise = |name: &Name| {
            let tokens = |project: &Project| {
                let agent = project.config.agents.iter().find(|agent| agent.name == *name);
                agent.and_then(|agent| agent.capabilities.clone())
            };
            old.is_some_and(|old| tokens(old) != tokens(&new))
        };
        let mut changes = Changes::default();
        let specs = new.specs();
        for spec in &specs {
            let to = match before.get(&spec.name) {
                None => &mut changes.added,
                Some(old) if old.generation != spec.generation => &mut changes.renewed,
                Some(old) if old != spec || is_confined_otherwise(&spec.name) => {
                    &mut changes.changed
                }
                Some(_) => &mut changes.unchanged,
            };
            to.push(spec.name.clone());
        }
        let gone = before.into_keys().filter(|name| !specs.iter().any(|spec| spec.name == *name));
        changes.removed = gone.collect();
        changes
    }

    /// The agents that a reload brings up once its file holds: those that are new or run something else
    /// now, as far as nobody has stopped them.
    pub(super) fn due_after(&self, changes: &Changes) -> Scope {
        let keys = changes.added.iter().chain(&changes.renewed);
        let ids = keys.filter_map(|key| self.supervisor.agent(key));
        Scope::Agents(ids.filter(|id| self.should_be_up(*id)).collect())
    }

    fn should_be_up(&self, id: AgentId) -> bool {
        self.supervisor.goal(id) == Goal::Up
    }
}
