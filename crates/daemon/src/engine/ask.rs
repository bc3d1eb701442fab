//! What the rest of the daemon asks of the engine, and what it answers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use defib_core::run::{ExitReport, Finding, Status};
use defib_core::{
    Capability, Class, Goal, Input, Name, Outbox, Policy, Preset, Refusal, RunId, Scope, Signal,
    Topology,
};
use defib_history::Intent;
use defib_host::protocol::{Request, RunKey};
use serde_json::Value;
use tokio::sync::oneshot;

use super::Engine;
use super::commands::CommandAsk;
use super::preparing::Prepared;
use super::reload::is_same;
use crate::coroner::{Examined, Said};
use crate::doors::Onlooker;
use crate::intents::Done;
use crate::ledger::Notice;
use crate::liveness::{OwnWord, Probed};
use crate::logs::ScribeEvent;
use crate::recipe::Project;
use crate::wire::{
    Action, ActionOptions, AgentLine, AgentStatus, CapabilityChange, Caps, Closing, DaemonInfo,
    ErrorCode, ErrorDetail, GroupStatus, Plan, SupervisorStatus, UpRequest,
};

/// What is said of more agents than this takes memory that is worth giving back.
const MANY: usize = 100;

/// Why something that was asked for was not done.
pub(crate) type Failed = ErrorDetail;

/// The way an answer comes back.
pub(crate) type Answer<T> = oneshot::Sender<Result<T, Failed>>;

/// A request to the engine.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Every agent, or those named.
    Status(Vec<String>, Answer<Vec<AgentStatus>>),
    /// Every agent, in a few words.
    Overview(Answer<Vec<AgentLine>>),
    /// Agents by their keys, as far as they are there.
    StatusOf(Vec<Name>, Answer<Vec<AgentStatus>>),
    /// The groups, as a tree.
    Groups(Answer<Vec<GroupStatus>>),
    /// What decides about an agent's deaths, and the rule set that it started from.
    Policy(String, Answer<Box<(Preset, Policy)>>),
    /// The supervisor as a whole, as far as no event is needed for it.
    Supervisor(Answer<SupervisorStatus>),
    /// Who the daemon is.
    Info(Answer<DaemonInfo>),
    /// Bring a project up, which has been stored. The answer names its agents.
    Up(Box<UpRequest>, Answer<Done<Vec<Name>>>),
    /// See whether a project can be brought up, and give all that it declares its keys. The answer is what
    /// has to be on disk before it is.
    Claim(Box<UpRequest>, Answer<Option<Intent>>),
    /// The key of the agent or group that a name means, also of one that is gone.
    Key(String, Answer<Name>),
    /// What bringing a project up would change.
    Plan(Box<UpRequest>, Answer<Plan>),
    /// Which project a file means that may have changed or vanished since: that of the name that is in
    /// it, or the one that is up from it.
    ProjectOf(PathBuf, Option<Name>, Answer<Name>),
    /// Take a project down, or all of them. The answer names the agents.
    Down(Option<Name>, Answer<Done<Vec<Name>>>),
    /// Whether a project that was taken down is down, or all of them are; an error where somebody wants
    /// some of it up again.
    IsDown(Option<Name>, Answer<bool>),
    /// Whether what was asked of an agent or a group is still wanted; an error where it is not.
    IsWanted(String, Action, Answer<()>),
    /// See whether an agent can be taken away. The answer names its project, which is to be forgotten on
    /// disk before it is.
    Removable(String, Answer<Name>),
    /// Take an agent away that was added without a file. The answer names it.
    Remove(String, Answer<Name>),
    /// Do something to an agent or a group. The answer names the agents and their runs before it.
    Act(String, Action, ActionOptions, Answer<Done<BTreeMap<Name, Option<RunId>>>>),
    /// Grant or revoke capabilities. Answered when it is on disk.
    Capabilities(String, CapabilityChange, Vec<Capability>, Answer<Caps>),
    /// What an agent may do.
    Caps(String, Answer<Caps>),
    /// Send a signal to an agent's process, or to those of a group. The answer is what was meant.
    Signal(String, Signal, Answer<Name>),
    /// End everything, and the daemon with it.
    CloseAll(Answer<Done<()>>),
    /// Whether everything is to end, or who wants some of it up again.
    Closing(Answer<Closing>),
    /// End this daemon; the keeper starts the next one, from this program.
    Replace(String, Answer<()>),
    /// Whose token it is, if that run lives.
    Bearer(String, Answer<RunKey>),
    /// Which agent somebody belongs to who lives in an agent's tree, and what it may look at.
    Onlooker {
        /// Its process and those that it descends from.
        line: Vec<u32>,
        /// The agent whose cgroup it is in.
        agent: Option<Name>,
        /// The answer.
        answer: Answer<Onlooker>,
    },
    /// A run asks for something itself, by its token.
    Own(String, OwnWord, Answer<()>),
    /// Run a command on behalf of a run.
    Command(Box<CommandAsk>),
    /// A run's probes came to something.
    Probed(RunKey, Probed),
    /// The scribe has something to say.
    Scribe(ScribeEvent),
    /// The coroner has something to say.
    Coroner(Said),
    /// It has been examined, and what it spent is known.
    Metered(Box<Examined>),
    /// A run has finished its work, or works again.
    Finished(RunKey, bool),
    /// The last output of a run that another daemon saw end.
    Tail(RunKey, Vec<u8>),
    /// The ledger has something to say.
    Ledger(Notice),
    /// A goal is on disk.
    Stored(u64),
    /// The history has on disk what the journal set aside.
    Flushed,
    /// Something has happened that is to be in the history, and about no agent.
    Say(&'static str, Vec<(&'static str, Value)>),
    /// A worker has gathered what a start needs of the agent's paths.
    Prepared(Box<Prepared>),
    /// A run has not started, for a reason that may go away.
    NotStarted {
        /// Which.
        key: RunKey,
        /// Why.
        why: String,
    },
    /// A run cannot be spawned as declared.
    Unspawnable {
        /// Which.
        key: RunKey,
        /// Why.
        why: String,
    },
}

pub(super) fn failed(code: ErrorCode, message: String, hint: Option<String>) -> Failed {
    ErrorDetail { code, message, hint }
}

impl Engine {
    pub(super) fn answer(&mut self, ask: Ask) {
        self.rise_for(&ask);
        // Whoever asked may have gone; that is no concern of ours.
        match ask {
            Ask::Status(names, answer) => {
                let statuses = self.statuses(&names);
                self.tidy_after(statuses.as_ref().map_or(0, Vec::len));
                drop(answer.send(statuses));
            }
            Ask::Overview(answer) => {
                let lines = self.lines();
                self.tidy_after(lines.len());
                drop(answer.send(Ok(lines)));
            }
            Ask::StatusOf(keys, answer) => drop(answer.send(Ok(self.statuses_of(&keys)))),
            Ask::Groups(answer) => drop(answer.send(Ok(self.groups()))),
            Ask::Policy(name, answer) => drop(answer.send(self.policy_of(&name))),
            Ask::Supervisor(answer) => drop(answer.send(Ok(self.supervisor_status()))),
            Ask::Info(answer) => {
                let mut troubles = self.troubles.lines();
                troubles.extend(self.held_commands());
                let keeper_protocol = Some(self.liveness.keeper_version);
                let info = DaemonInfo { keeper_protocol, troubles, ..self.info.clone() };
                drop(answer.send(Ok(info)));
            }
            Ask::Up(request, answer) => {
                let names = self.up(*request);
                self.answer_when_stored(names, answer);
            }
            Ask::Claim(request, answer) => drop(answer.send(self.claim(&request))),
            Ask::Key(name, answer) => drop(answer.send(self.key_of(&name))),
            Ask::Plan(request, answer) => drop(answer.send(self.plan(&request))),
            Ask::ProjectOf(file, name, answer) => drop(answer.send(self.project_of(&file, name))),
            Ask::Down(project, answer) => {
                let names = self.down(project);
                self.answer_when_stored(names, answer);
            }
            Ask::Removable(name, answer) => {
                drop(answer.send(self.removable(&name).map(|(_, project)| project)));
            }
            Ask::IsDown(project, answer) => drop(answer.send(self.is_down(project.as_ref()))),
            Ask::IsWanted(name, action, answer) => {
                drop(answer.send(self.is_still_wanted(&name, action)));
            }
            Ask::Remove(name, answer) => drop(answer.send(self.remove(&name))),
            Ask::Act(name, action, options, answer) => {
                let before = self.act(&name, action, options);
                self.answer_when_stored(before, answer);
            }
            Ask::Capabilities(name, change, tokens, answer) => {
                self.change_capabilities(&name, change, &tokens, answer);
            }
            Ask::Caps(name, answer) => self.caps(&name, answer),
            Ask::Signal(name, signal, answer) => drop(answer.send(self.signal(&name, signal))),
            Ask::CloseAll(answer) => {
                self.withdrawn = self.projects.keys().cloned().collect();
                self.keep_closing();
                let _ = self.ask_core(Input::DownAsked(Scope::All));
                self.answer_when_stored(Ok(()), answer);
            }
            Ask::Closing(answer) => drop(answer.send(Ok(self.closing()))),
            Ask::Replace(program, answer) => drop(answer.send(self.replace(program))),
            Ask::Bearer(token, answer) => {
                drop(answer.send(self.bearer(&token).map(|(_, key)| key)));
            }
            Ask::Onlooker { line, agent, answer } => {
                drop(answer.send(self.onlooker(&line, agent)));
            }
            Ask::Own(token, word, answer) => self.own_word(&token, word, answer),
            Ask::Command(command) => self.run_command(*command),
            Ask::Probed(key, probed) => self.probed(&key, probed),
            Ask::Scribe(event) => self.hear_scribe(event),
            Ask::Coroner(said) => self.hear_coroner(said),
            Ask::Metered(examined) => self.examined(*examined),
            Ask::Finished(key, finished) => self.finish_seen(&key, finished),
            Ask::Tail(key, tail) => self.hear_tail(key, &tail),
            Ask::Ledger(notice) => self.hear_ledger(notice),
            Ask::Stored(ticket) => self.stored(ticket),
            Ask::Flushed => self.journal.forget(),
            Ask::Say(kind, body) => self.tell(kind, None, body),
            Ask::Prepared(prepared) => self.prepared(*prepared),
            Ask::NotStarted { key, why } => self.not_started(&key, &why),
            Ask::Unspawnable { key, why } => self.unspawnable(&key, why),
        }
    }

    /// Answers when everything that the request led to is on disk, or cannot be put there.
    fn answer_when_stored<T: Send + 'static>(
        &self,
        outcome: Result<T, Failed>,
        answer: Answer<Done<T>>,
    ) {
        match outcome {
            Ok(value) => self.intents.store(Vec::new(), move |stored| {
                drop(answer.send(Ok(Done { value, stored })));
            }),
            Err(failed) => drop(answer.send(Err(failed))),
        }
    }

    /// So many agents were told of.
    fn tidy_after(&mut self, agents: usize) {
        if agents > MANY {
            self.tidy_soon();
        }
    }

    /// Whoever asks for agents finds them started. The first `up` that was awaited starts its own with
    /// what its caller gave: started without that, they would have to be started twice.
    fn rise_for(&mut self, ask: &Ask) {
        match ask {
            // Whether it could be brought up is asked before it is.
            Ask::Plan(..) | Ask::Claim(..) | Ask::Info(_) | Ask::Closing(_) => return,
            Ask::Up(request, _) if self.dawn.is_some() => {
                let known = self.projects.get(&request.config.project);
                // Without intents the file that is brought up says which agents there are: those
                // that the history shows to be stopped are not started.
                let is_lost = self.dawn.as_ref().is_some_and(|dawn| dawn.intents_lost);
                if known.map_or(is_lost, |known| is_same(&known.path, &request.path)) {
                    let project = self.project_from(UpRequest::clone(request));
                    self.projects.insert(project.config.project.clone(), project);
                }
            }
            Ask::Up(..)
            | Ask::Status(..)
            | Ask::Overview(_)
            | Ask::StatusOf(..)
            | Ask::Groups(_)
            | Ask::Policy(..)
            | Ask::Supervisor(_)
            | Ask::Key(..)
            | Ask::ProjectOf(..)
            | Ask::Down(..)
            | Ask::Removable(..)
            | Ask::IsDown(..)
            | Ask::IsWanted(..)
            | Ask::Remove(..)
            | Ask::Act(..)
            | Ask::Capabilities(..)
            | Ask::Caps(..)
            | Ask::Signal(..)
            | Ask::CloseAll(_)
            | Ask::Replace(..)
            | Ask::Bearer(..)
            | Ask::Onlooker { .. }
            | Ask::Own(..)
            | Ask::Command(_)
            | Ask::Probed(..)
            | Ask::Scribe(_)
            | Ask::Coroner(_)
            | Ask::Metered(_)
            | Ask::Finished(..)
            | Ask::Tail(..)
            | Ask::Ledger(_)
            | Ask::Stored(_)
            | Ask::Flushed
            | Ask::Say(..)
            | Ask::Prepared(_)
            | Ask::NotStarted { .. }
            | Ask::Unspawnable { .. } => {}
        }
        self.rise();
    }

    /// Hands a person's request to the core.
    pub(super) fn ask_core(&mut self, input: Input) -> Result<(), Failed> {
        let mut out = Outbox::default();
        let at = self.heed();
        let answer = self.supervisor.handle(at, input, &mut out);
        self.drain(&mut out);
        self.show_names();
        answer.map_err(|refusal| match refusal {
            Refusal::Unknown => failed(ErrorCode::NoSuchAgent, refusal.to_string(), None),
            Refusal::NotInState { agent, state, remedy } => {
                // Keys are ours; people know names.
                let agent = self.handle.shown.name(&agent);
                let text = Refusal::NotInState { agent, state, remedy }.to_string();
                let (message, hint) = text.split_once(": ").unwrap_or((&text, ""));
                failed(ErrorCode::NotInState, message.to_owned(), Some(hint.to_owned()))
            }
        })
    }

    fn up(&mut self, request: UpRequest) -> Result<Vec<Name>, Failed> {
        self.claim(&request)?;
        self.names.note_stored(&request.config);
        let changes = request.reload.then(|| self.changes(&request));
        let project = self.project_from(request);
        let name = project.config.project.clone();
        self.keep_project(&project);
        self.projects.insert(name.clone(), project);
        self.apply();
        self.open_purses();
        let scope = match changes {
            // A reload starts what its plan names, and nothing else.
            Some(changes) => self.due_after(&changes),
            None => Scope::Project(name.clone()),
        };
        self.ask_core(Input::UpAsked(scope))?;
        // Also where it has no agent that could be wanted.
        self.reopen();
        Ok(self.projects.get(&name).map(|project| self.shown_of(project)).unwrap_or_default())
    }

    /// The project of a request. A reload keeps what the caller of `up` gave: its own caller may be
    /// another shell.
    pub(super) fn project_from(&self, request: UpRequest) -> Project {
        let UpRequest { path, mut config, mut mode, mut environment, options: _, reload } = request;
        self.names.put_keys(&mut config);
        config.compact();
        // Who came to the same folder by another way has changed nothing.
        if let Some(old) = self.projects.get(&config.project)
            && is_same(&old.config.folder, &config.folder)
        {
            config.folder.clone_from(&old.config.folder);
        }
        if let Some(old) = self.projects.get(&config.project).filter(|_| reload) {
            mode = old.mode;
            environment.extend(old.environment.clone());
        }
        Project { path, config, mode, environment }
    }

    /// One name, one project: whoever comes second is told. Agents of two projects may share one.
    pub(super) fn check_names(&self, request: &UpRequest) -> Result<(), Failed> {
        self.check_goes_on()?;
        self.check_agreement(request)?;
        self.check_keys(request)?;
        self.check_path(request)?;
        self.check_is_up(request)?;
        let UpRequest { path, config, .. } = request;
        let known = self.projects.get(&config.project).filter(|known| !is_same(&known.path, path));
        if let Some(known) = known.filter(|known| self.is_wanted(known)) {
            let (name, other) = (&config.project, known.path.display());
            let message = format!("project {name} is up from {other}");
            let hint = format!(
                "`defib down -f {other}` takes it down; a name of its own is `name` in [project]"
            );
            return Err(failed(ErrorCode::Config, message, Some(hint)));
        }
        Ok(())
    }

    /// Whether anything of a project should be up.
    pub(super) fn is_wanted(&self, project: &Project) -> bool {
        let agents = project.config.agents.iter();
        let ids = agents.filter_map(|agent| self.supervisor.agent(&agent.name));
        ids.into_iter().any(|id| self.supervisor.goal(id) != Goal::Down)
    }

    /// The project as it was applied, with the caller's variables: for a successor, in memory only.
    pub(super) fn keep_project(&mut self, project: &Project) {
        if let Some((key, bytes)) = project.kept() {
            self.send(&Request::Keep { key, bytes });
        }
    }

    /// Everything that is declared, to the core.
    pub(super) fn apply(&mut self) {
        self.index_agents();
        self.drop_stale_changes();
        self.tell_roll(Some(self.seq));
        let topology = self.topology();
        let count = topology.agents.len();
        let _ = self.ask_core(Input::Apply(Box::new(topology)));
        self.attend_anew();
        self.tell("config-applied", None, [("agents", count.into())]);
    }

    pub(super) fn topology(&self) -> Topology {
        Topology {
            agents: self.projects.values().flat_map(Project::specs).collect(),
            groups: self.projects.values().flat_map(Project::groups).collect(),
            max_total_restarts: self.said_by_one(|config| config.supervisor.max_total_restarts),
        }
    }

    fn down(&mut self, project: Option<Name>) -> Result<Vec<Name>, Failed> {
        let scope = match project {
            Some(name) if self.projects.contains_key(&name) => Scope::Project(name),
            Some(name) => {
                let message = format!("project {name} is not up");
                let hint = self.who_is_up();
                return Err(failed(ErrorCode::NoSuchAgent, message, Some(hint)));
            }
            None => Scope::All,
        };
        self.ask_core(Input::DownAsked(scope.clone()))?;
        let of_scope = |project: &&Project| match &scope {
            Scope::Project(name) => project.config.project == *name,
            Scope::Agent(_) | Scope::Group(_) | Scope::Agents(_) | Scope::All => true,
        };
        let projects = self.projects.values().filter(of_scope);
        Ok(projects.flat_map(|project| self.shown_of(project)).collect())
    }

    /// The agent of a name and its project, if it was added without a file.
    fn removable(&self, name: &str) -> Result<(Name, Name), Failed> {
        let agent = self.find(name)?;
        let name = self.supervisor.name(agent).clone();
        let project = self.supervisor.project(agent).clone();
        let own_file = self.home.join("adhoc");
        let added = self.projects.get(&project).is_some_and(|of| of.path.starts_with(&own_file));
        if !added {
            let message = format!("{} is declared in a file", self.handle.shown.name(&name));
            let hint = "take it out of the file and run `defib reload`".to_owned();
            return Err(failed(ErrorCode::NotInState, message, Some(hint)));
        }
        Ok((name, project))
    }

    fn remove(&mut self, name: &str) -> Result<Name, Failed> {
        let (name, project) = self.removable(name)?;
        self.drop_changes(&(project.clone(), name.clone()));
        self.projects.remove(&project);
        self.send(&Request::Keep { key: format!("project/{project}"), bytes: Vec::new() });
        let shown = self.handle.shown.name(&name);
        self.apply();
        Ok(shown)
    }

    fn act(
        &mut self,
        name: &str,
        action: Action,
        options: ActionOptions,
    ) -> Result<BTreeMap<Name, Option<RunId>>, Failed> {
        let scope = self.scope(name)?;
        match action {
            Action::Start | Action::Restart | Action::Revive => self.check_goes_on()?,
            Action::Stop => {}
        }
        let before = self.runs_in(&scope);
        self.forget_silence(before.keys().cloned());
        let ActionOptions { kill, fresh, .. } = options;
        self.ask_core(match action {
            Action::Start => Input::StartAsked(scope),
            Action::Stop => Input::StopAsked { scope, kill },
            Action::Restart => Input::RestartAsked { scope, fresh },
            Action::Revive => Input::ReviveAsked(scope),
        })?;
        Ok(before)
    }

    fn replace(&mut self, program: String) -> Result<(), Failed> {
        self.check_goes_on()?;
        self.send(&Request::Replace { program });
        self.leave = true;
        Ok(())
    }

    fn policy_of(&self, name: &str) -> Result<Box<(Preset, Policy)>, Failed> {
        let id = self.find(name)?;
        let preset = self.recipe(self.supervisor.name(id)).map(|(_, agent)| agent.preset);
        Ok(Box::new((preset.unwrap_or(Preset::Default), self.supervisor.policy(id).clone())))
    }

    fn signal(&mut self, name: &str, signal: Signal) -> Result<Name, Failed> {
        let scope = self.scope(name)?;
        let shown = self.handle.shown.name(&self.declared_key(name)?);
        let lives = |(agent, run): (Name, Option<RunId>)| {
            let run = run.filter(|_| self.processes.contains_key(&agent))?;
            Some(RunKey { agent, run })
        };
        let keys: Vec<RunKey> = self.runs_in(&scope).into_iter().filter_map(lives).collect();
        if keys.is_empty() {
            let message = match scope {
                Scope::Agent(_) => format!("{shown} has no process"),
                Scope::Group(_) | Scope::Agents(_) | Scope::Project(_) | Scope::All => {
                    format!("no member of {shown} has a process")
                }
            };
            let hint = format!("`defib start {shown}` starts it");
            return Err(failed(ErrorCode::NotInState, message, Some(hint)));
        }
        for key in keys {
            self.send(&Request::Signal { key, signal: signal.0 });
        }
        Ok(shown)
    }

    fn unspawnable(&mut self, key: &RunKey, why: String) {
        let Some(agent) = self.supervisor.known(&key.agent) else { return };
        let status = Status::NotSpawned { usable: false };
        let finding = Finding { class: Class::Config, evidence: Some(why.into()), resets_at: None };
        let report = ExitReport { status, finding: Some(finding), spoke: false };
        self.handle(Input::Exited { agent, run: key.run, report });
    }
}
