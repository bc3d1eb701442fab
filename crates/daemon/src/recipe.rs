//! From what a file declares to what the host needs: topology, environment, spawn orders.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use defib_config::config::{self, Command, Notify, NotifyTarget, Otlp};
use defib_config::{Config, Passed, fits};
use defib_core::policy::Mode as RestartMode;
use defib_core::{AgentSpec, GroupSpec, RunId};
use defib_host::protocol::{Leftovers, RunKey, SpawnOrder, TerminalSize};
use serde::{Deserialize, Serialize};

use crate::metrics::Target;
use crate::notify::Channel;
use crate::places::{AgentFile, Outside, owner_of};
use crate::wire::Mode;

/// What no agent gets, because it would think that it runs inside another.
const NEVER: [&str; 2] = ["CLAUDECODE", "CLAUDE_CODE_CHILD_SESSION"];
/// What a program needs that shows something on the caller's desktop.
const DESKTOP: [&str; 4] =
    ["DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR"];
const TERMINAL: TerminalSize = TerminalSize { rows: 40, columns: 120 };

/// A project as it was applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Project {
    pub(crate) path: PathBuf,
    pub(crate) config: Config,
    pub(crate) mode: Mode,
    /// The caller's variables; kept in the keeper's memory, never on disk.
    pub(crate) environment: BTreeMap<String, String>,
}

/// Why an agent cannot be spawned as declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unspawnable {
    /// A variable that `env_pass` names is not there.
    MissingVariable(String),
    /// The `env_file` cannot be read.
    EnvFile(PathBuf, String),
}

impl fmt::Display for Unspawnable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unspawnable::MissingVariable(name) => {
                write!(f, "env_pass names {name}, which is not set; run `defib up` where it is")
            }
            Unspawnable::EnvFile(path, error) => {
                write!(f, "env_file {} cannot be read: {error}", path.display())
            }
        }
    }
}

/// The text of an `env_file`, or why it cannot be read.
pub(crate) type EnvText = Result<String, String>;

/// What is told to a run about itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunFacts {
    pub(crate) restarts: u32,
    pub(crate) last_class: Option<&'static str>,
    pub(crate) last_exit: Option<i32>,
    /// The session that it takes up.
    pub(crate) session: Option<String>,
    /// What it proves itself with.
    pub(crate) token: Option<String>,
    /// Where it can say what state it is in.
    pub(crate) notify: Option<String>,
}

impl Project {
    /// As it is kept for a successor, and under which key: a thousand agents are much alike, and the
    /// keeper is small.
    pub(crate) fn kept(&self) -> Option<(String, Vec<u8>)> {
        let packed = lz4_flex::compress_prepend_size(&serde_json::to_vec(self).ok()?);
        Some((format!("project/{}", self.config.project), packed))
    }

    /// What was kept.
    pub(crate) fn unpacked(bytes: &[u8]) -> Option<Project> {
        let text = lz4_flex::decompress_size_prepended(bytes).ok()?;
        let mut project: Project = serde_json::from_slice(&text).ok()?;
        project.config.compact();
        Some(project)
    }

    /// The agents for the core, in the order of the file.
    pub(crate) fn specs(&self) -> Vec<AgentSpec> {
        let enabled = self.config.agents.iter().filter(|agent| agent.enabled);
        enabled.map(|agent| self.spec(agent)).collect()
    }

    /// The groups for the core.
    pub(crate) fn groups(&self) -> Vec<GroupSpec> {
        let groups = self.config.groups.iter();
        groups
            .map(|group| GroupSpec {
                name: group.name.clone(),
                strategy: group.strategy,
                budget: group.budget,
                members: group.members.clone(),
            })
            .collect()
    }

    /// Whether it has a group of this name.
    pub(crate) fn has_group(&self, name: &defib_core::Name) -> bool {
        self.config.groups.iter().any(|group| group.name == *name)
    }

    fn spec(&self, agent: &config::Agent) -> AgentSpec {
        let mut policy = agent.policy.clone();
        match self.mode {
            Mode::Continuous => {}
            Mode::Once => Arc::make_mut(&mut policy).mode = RestartMode::Never,
            Mode::Dev => Arc::make_mut(&mut policy).start_gap = std::time::Duration::ZERO,
        }
        let after = agent.after.iter().flat_map(|name| self.config.agents_of(name));
        AgentSpec {
            name: agent.name.clone(),
            project: self.config.project.clone(),
            policy,
            after: after.cloned().collect(),
            strategy: agent.strategy,
            account: agent.account.as_deref().map(Arc::from),
            generation: self.generation(agent),
        }
    }

    /// A number that is another when the agent would be spawned differently.
    fn generation(&self, agent: &config::Agent) -> u64 {
        let mut hasher = DefaultHasher::new();
        let passed: Vec<(&String, &String)> =
            self.environment.iter().filter(|(name, _)| is_named(&agent.env_pass, name)).collect();
        let command = serde_json::to_string(&(&agent.command, &agent.resume)).unwrap_or_default();
        (command, self.cwd(agent), &agent.env, &agent.env_pass, passed).hash(&mut hasher);
        (&agent.env_file, agent.pty, &agent.user, agent.umask, &agent.limits_os).hash(&mut hasher);
        hasher.finish()
    }

    /// The value of a variable in an agent's environment, as far as it is known without its `env_file`.
    pub(crate) fn variable(&self, agent: &config::Agent, name: &str) -> Option<String> {
        let passed = || self.environment.get(name).filter(|_| is_named(&agent.env_pass, name));
        agent.env.get(name).or_else(passed).cloned()
    }

    pub(crate) fn cwd(&self, agent: &config::Agent) -> PathBuf {
        match &agent.cwd {
            Some(cwd) => self.config.folder.join(cwd),
            None => self.config.folder.clone(),
        }
    }

    /// The folder that an agent keeps its state in: in the home, or outside of it if the agent has another
    /// user, for whom the home is shut.
    pub(crate) fn state_folder(home: &Path, agent: &config::Agent) -> PathBuf {
        match owner_of(agent) {
            Some(_) => Outside::of(home).state(agent.name.as_str()),
            None => home.join("state").join(agent.name.as_str()),
        }
    }

    /// The file whose touch is a beat of an agent.
    pub(crate) fn heartbeat_file(&self, home: &Path, agent: &config::Agent) -> AgentFile {
        let (path, own) = if let Some(path) = &agent.heartbeat_file {
            (self.cwd(agent).join(path), self.cwd(agent))
        } else {
            let state = Project::state_folder(home, agent);
            (state.join("heartbeat"), state)
        };
        let owner = owner_of(agent);
        let guarded = owner.is_some() || agent.capabilities.is_some();
        AgentFile { path, own, guarded, owner, in_state: agent.heartbeat_file.is_none() }
    }

    /// Everything the keeper needs to spawn a run. `file` is the text of its `env_file`, which the caller has
    /// had read: this does not touch the agent's paths.
    pub(crate) fn order(
        &self,
        home: &Path,
        agent: &config::Agent,
        run: RunId,
        facts: &RunFacts,
        file: Option<&EnvText>,
    ) -> Result<SpawnOrder, Unspawnable> {
        let mut env = self.environment(agent, file)?;
        let state = Project::state_folder(home, agent);
        let heartbeat = self.heartbeat_file(home, agent).path;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let own = [
            ("DEFIB_AGENT", agent.name.plain().to_string()),
            ("DEFIB_RUN", run.to_string()),
            ("DEFIB_RESTARTS", facts.restarts.to_string()),
            ("DEFIB_LAST_CLASS", facts.last_class.unwrap_or_default().to_owned()),
            ("DEFIB_LAST_EXIT", facts.last_exit.map(|code| code.to_string()).unwrap_or_default()),
            ("DEFIB_STATE_DIR", text(&state)),
            ("DEFIB_HEARTBEAT_FILE", text(&heartbeat)),
            ("DEFIB_SOCKET", text(&home.join("defib.sock"))),
            ("DEFIB_MODE", self.mode.word().to_owned()),
        ];
        env.extend(own.map(|(name, value)| (name.to_owned(), value)));
        let watchdog = agent.policy.heartbeat.map(|rule| rule.ttl.as_micros().to_string());
        let some = [
            ("DEFIB_TOKEN", facts.token.clone()),
            ("NOTIFY_SOCKET", facts.notify.clone()),
            ("WATCHDOG_USEC", watchdog),
        ];
        env.extend(some.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        Ok(SpawnOrder {
            key: RunKey { agent: agent.name.clone(), run },
            argv: command_line(agent, facts.session.as_deref()),
            env: env.into_iter().collect(),
            cwd: text(&self.cwd(agent)),
            terminal: agent.pty.then_some(TERMINAL),
            umask: agent.umask,
            user: agent.user.clone(),
            leftovers: match agent.leftovers {
                config::Leftovers::Kill => Leftovers::Kill,
                config::Leftovers::Keep => Leftovers::Keep,
            },
            rlimits: rlimits(&agent.limits_os),
            memory: agent.limits_os.memory,
        })
    }

    /// What the agent is given beyond the clean base: values that are nobody's business.
    pub(crate) fn secrets(&self, agent: &config::Agent, file: Option<&EnvText>) -> Vec<String> {
        let passed = self.environment.iter().filter(|(name, _)| !is_base(name));
        let mut secrets: Vec<String> =
            passed.map(|(_, value)| value).chain(agent.env.values()).cloned().collect();
        if let Some(Ok(text)) = file.filter(|_| agent.env_file.is_some()) {
            secrets.extend(variables(text).map(|(_, value)| value));
        }
        // What is shorter is in every other line, and no secret worth the name.
        secrets.retain(|value| value.len() >= 6);
        secrets
    }

    /// Who is told of what becomes of its agents. Commands get the clean base; passwords and the like
    /// are for the daemon alone.
    pub(crate) fn channels(&self) -> impl Iterator<Item = Channel> {
        let vars = |wanted: &dyn Fn(&str) -> bool| {
            let all = self.environment.iter().filter(|(name, _)| wanted(name));
            all.map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        self.config.notify.iter().map(move |notify| {
            let is_secret = |name: &str| notify.variables().any(|own| own == name);
            let is_open =
                |name: &str| (is_base(name) || is_of_channel(notify, name)) && !is_secret(name);
            Channel {
                project: self.config.project.clone(),
                notify: notify.clone(),
                folder: self.config.folder.clone(),
                env: vars(&is_open),
                secrets: vars(&is_secret),
            }
        })
    }

    /// Whom the daemon's figures are sent to, where it says so.
    pub(crate) fn export(&self) -> Option<Target> {
        let metrics = &self.config.metrics;
        let variable = |name: &str| {
            let value = self.environment.get(name).filter(|value| !value.is_empty());
            value.cloned().ok_or_else(|| {
                format!("{name} is not set; run `defib up` or `defib reload` where it is")
            })
        };
        let base = match metrics.otlp.as_ref()? {
            Otlp::At(url) => Ok(url.clone()),
            Otlp::Env => variable(Otlp::ENDPOINT),
        };
        let headers = match (&metrics.headers_env, &metrics.otlp) {
            (Some(name), _) => variable(name),
            // Those that go with the address, if there are any.
            (None, Some(Otlp::Env)) => Ok(variable(Otlp::HEADERS).unwrap_or_default()),
            (None, Some(Otlp::At(_)) | None) => Ok(String::new()),
        };
        Some(Target {
            url: base.map(|base| format!("{}/v1/metrics", base.trim_end_matches('/'))),
            headers,
            interval: metrics.interval.unwrap_or(config::Metrics::DEFAULT_INTERVAL),
        })
    }

    /// The clean base, then what is passed on, then the file's, then what is declared.
    fn environment(
        &self,
        agent: &config::Agent,
        file: Option<&EnvText>,
    ) -> Result<BTreeMap<String, String>, Unspawnable> {
        let wanted = |name: &str| is_base(name) || is_named(&agent.env_pass, name);
        let mut env: BTreeMap<String, String> = self
            .environment
            .iter()
            .filter(|(name, _)| wanted(name) && !NEVER.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let mut needed = agent.env_pass.iter().filter_map(Passed::needed);
        if let Some(missing) = needed.find(|name| !env.contains_key(*name)) {
            return Err(Unspawnable::MissingVariable(missing.to_owned()));
        }
        if let Some(name) = &agent.env_file {
            let unread =
                |why: &str| Unspawnable::EnvFile(self.config.folder.join(name), why.to_owned());
            let text = file.ok_or_else(|| unread("it has not been read"))?;
            env.extend(variables(text.as_ref().map_err(|why| unread(why))?));
        }
        env.extend(agent.env.clone());
        Ok(env)
    }
}

/// What the kernel holds each process of an agent to.
fn rlimits(limits: &config::OsLimits) -> Vec<(u32, u64)> {
    // The numbers by which Linux knows them on every machine that we run on.
    const CPU: u32 = 0;
    const PROCESSES: u32 = 6;
    const FILES: u32 = 7;
    let bounds = [
        (CPU, limits.cpu.map(|span| span.as_secs().max(1))),
        (PROCESSES, limits.processes),
        (FILES, limits.files),
    ];
    bounds.into_iter().filter_map(|(resource, bound)| Some((resource, bound?))).collect()
}

/// Whether a channel needs a variable of the caller's.
fn is_of_channel(notify: &Notify, name: &str) -> bool {
    let shows = notify.target == NotifyTarget::Desktop && DESKTOP.contains(&name);
    shows || notify.variables().any(|own| own == name)
}

/// The caller's variables that a config's agents get, and those that its channels and the daemon's
/// figures need.
pub fn environment_for(
    config: &Config,
    caller: impl Iterator<Item = (String, String)>,
) -> BTreeMap<String, String> {
    let passed = |name: &str| config.agents.iter().any(|agent| is_named(&agent.env_pass, name));
    let told = |name: &str| config.notify.iter().any(|notify| is_of_channel(notify, name));
    let sent = |name: &str| {
        let optional = Some(Otlp::HEADERS).filter(|_| config.metrics.otlp == Some(Otlp::Env));
        config.metrics.variables().chain(optional).any(|own| own == name)
    };
    let wanted = |name: &str| is_base(name) || passed(name) || told(name) || sent(name);
    caller.filter(|(name, _)| wanted(name)).collect()
}

/// The program and its arguments, for a run that takes up a session or begins anew.
fn command_line(agent: &config::Agent, session: Option<&str>) -> Vec<String> {
    match (&agent.resume, session) {
        (Some(resume), Some(session)) => {
            argv(resume).into_iter().map(|word| word.replace("{session}", session)).collect()
        }
        (None, _) | (_, None) => argv(&agent.command),
    }
}

/// The program and its arguments.
pub(crate) fn argv(command: &Command) -> Vec<String> {
    match command {
        Command::Words(words) => words.clone(),
        Command::Shell(line) => ["/bin/sh", "-c", line].map(str::to_owned).to_vec(),
    }
}

/// Whether every agent gets this of its caller's environment, beside what `env_pass` names.
fn is_base(name: &str) -> bool {
    let plain = ["PATH", "HOME", "USER", "SHELL", "LANG", "TERM", "TZ", "TMPDIR"];
    plain.contains(&name) || name.starts_with("LC_")
}

fn is_named(passed: &[Passed], name: &str) -> bool {
    passed.iter().any(|passed| passed.takes(name))
}

/// How many variables a text has, whatever is in it.
pub(crate) fn read_any(text: &str) -> usize {
    variables(text).filter(|(name, _)| fits(text, name)).count()
}

/// The variables of an env file: `NAME=value` lines, `#` comments, an optional `export`, quotes.
fn variables(text: &str) -> impl Iterator<Item = (String, String)> {
    text.lines().filter_map(|line| {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() || name.starts_with('#') {
            return None;
        }
        let bare = |quote| value.strip_prefix(quote).and_then(|value| value.strip_suffix(quote));
        let value = bare('"').or_else(|| bare('\'')).unwrap_or(value);
        Some((name.to_owned(), value.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_env_file_is_read_as_people_write_it() {
        let text =
            "# note\nA=1\nexport B = two words \nC=\"quoted = yes\"\nD='x'\n\nnonsense\n#E=5\n";
        let read: Vec<(String, String)> = variables(text).collect();
        let expected = [("A", "1"), ("B", "two words"), ("C", "quoted = yes"), ("D", "x")];
        assert_eq!(read, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
