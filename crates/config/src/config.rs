//! What a file says, as types that cannot be wrong.
//!
//! A [`Config`] exists only for a file without errors: every name is known, every command has a
//! first word, every policy is complete. Paths stay as they were written, relative to
//! [`Config::folder`]. Nothing here reads a file, an environment or a clock.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use defib_core::capability::Capability;
use defib_core::class::Class;
use defib_core::limit::Limit;
use defib_core::name::Name;
use defib_core::policy::Policy;
use defib_core::preset::Preset;
use defib_core::signal::Signal;
use defib_core::topology::Strategy;
use serde::{Deserialize, Serialize};

use crate::passed::Passed;

pub use crate::words::{
    AgentKind, Burn, Event, Isolation, Leftovers, ReadyBy, SmtpTls, Unmetered, Views,
};

/// So many that differ are looked for; where every agent has its own, there is nothing to share.
const MOST_SHARED: usize = 16;

/// Everything a `defib.toml` says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// The folder that relative paths start from.
    pub folder: PathBuf,
    /// The project's name.
    pub project: Name,
    /// The agents, in the order of the file.
    pub agents: Vec<Agent>,
    /// The groups, in the order of the file.
    pub groups: Vec<Group>,
    /// The user's own autopsy rules, in the order they are tried.
    pub rules: Vec<Rule>,
    /// Who is told of what.
    pub notify: Vec<Notify>,
    /// The daemon's web server.
    pub server: Server,
    /// The daemon's history.
    pub history: History,
    /// The daemon's own bounds.
    pub supervisor: Supervisor,
    /// Where the daemon sends its figures.
    #[serde(default)]
    pub metrics: Metrics,
    /// What a million tokens of a model cost, by the start of the model's name.
    #[serde(default)]
    pub prices: BTreeMap<String, Price>,
}

impl Config {
    /// The agents that a name stands for, in the order they start: the agent itself, or the
    /// members of a group and of the groups in it.
    pub fn agents_of<'c>(&'c self, name: &'c Name) -> Vec<&'c Name> {
        let mut agents = Vec::new();
        let mut open = vec![name];
        // No group is in itself, so this ends.
        while let Some(name) = open.pop() {
            match self.groups.iter().find(|group| group.name == *name) {
                Some(group) => open.extend(group.members.iter().rev()),
                None => agents.push(name),
            }
        }
        agents
    }

    /// Takes no more memory than it needs: a thousand agents seldom have more than a few policies
    /// and bounds, and those that are equal are shared.
    pub fn compact(&mut self) {
        self.agents.shrink_to_fit();
        let (mut policies, mut limits, mut budgets) = (Vec::new(), Vec::new(), Vec::new());
        for agent in &mut self.agents {
            if let Command::Words(words) = &mut agent.command {
                words.shrink_to_fit();
            }
            share(&mut agent.policy, &mut policies);
            share(&mut agent.limits_os, &mut limits);
            share(&mut agent.budget, &mut budgets);
        }
    }
}

/// One that is known already takes the place of its equal.
fn share<T: PartialEq>(own: &mut Arc<T>, known: &mut Vec<Arc<T>>) {
    match known.iter().find(|known| *known == own) {
        Some(known) => *own = known.clone(),
        None if known.len() < MOST_SHARED => known.push(own.clone()),
        None => {}
    }
}

/// One agent, with its defaults and its rule set already applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    /// Its name.
    pub name: Name,
    /// The rule set its policy started from.
    pub preset: Preset,
    /// What decides about its deaths; agents that are treated alike share it.
    pub policy: Arc<Policy>,
    /// What is run.
    pub command: Command,
    /// Where it is run, if not in the file's folder.
    pub cwd: Option<PathBuf>,
    /// Variables added to the clean environment.
    pub env: BTreeMap<String, String>,
    /// Variables taken from the caller of `up`.
    pub env_pass: Vec<Passed>,
    /// A file of further variables.
    pub env_file: Option<PathBuf>,
    /// What sort of program it is.
    pub kind: AgentKind,
    /// Whether it gets a terminal of its own.
    pub pty: bool,
    /// Whether it is started at all.
    pub enabled: bool,
    /// The user it runs as, when we are root.
    pub user: Option<String>,
    /// What its group restarts when it dies, where that is its own affair and not the group's.
    pub strategy: Option<Strategy>,
    /// What it is checked for at the start, where it is a module.
    pub module: Option<Box<Module>>,
    /// Its file mode creation mask.
    pub umask: Option<u32>,
    /// The command for a respawn whose session is known.
    pub resume: Option<Box<Command>>,
    /// The file whose touch is a beat, where the agent has a path of its own.
    pub heartbeat_file: Option<PathBuf>,
    /// How long a run may go on after its final record.
    #[serde(default)]
    pub linger: Linger,
    /// How its health is asked for from outside.
    pub probe: Option<Box<Probe>>,
    /// Who says that it is ready.
    pub ready: ReadyBy,
    /// The agents and groups that must be ready before it starts; see [`Config::agents_of`].
    pub after: Vec<Name>,
    /// The expression of a `cron:` trigger.
    pub cron: Option<String>,
    /// The signal that asks it to stop.
    pub stop_signal: Signal,
    /// What becomes of what a dead run left behind.
    pub leftovers: Leftovers,
    /// The credential it shares quota waits for.
    pub account: Option<String>,
    /// What it may do; nothing means no sandbox.
    pub capabilities: Option<Vec<Capability>>,
    /// Which sandbox holds it to its capabilities. Nothing: Landlock.
    #[serde(default)]
    pub isolation: Option<Isolation>,
    /// What it may look at through the daemon's socket, beside itself.
    pub views: Views,
    /// What the operating system holds it to; shared like the policy.
    pub limits_os: Arc<OsLimits>,
    /// How much of its output is kept.
    pub log: Log,
    /// What it may spend; shared like the policy.
    pub budget: Arc<Budget>,
}

/// How long a run may go on after the record that ends its work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Linger {
    /// As long as is usual for its kind.
    #[default]
    Usual,
    /// As long as it wants.
    Off,
    /// This long.
    For(Duration),
}

impl Linger {
    /// The usual time.
    pub const USUAL: Duration = Duration::from_secs(30);

    /// The time, if there is a limit.
    pub const fn limit(self) -> Option<Duration> {
        match self {
            Linger::Usual => Some(Linger::USUAL),
            Linger::Off => None,
            Linger::For(time) => Some(time),
        }
    }
}

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Command {
    /// A program and its arguments; there is always a first word.
    Words(Vec<String>),
    /// A line for `/bin/sh -c`.
    Shell(String),
}

/// A module: a package that a runner script runs. Paths are relative to the file's folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Module {
    /// The script.
    pub runner: PathBuf,
    /// The folder of its package.
    pub package: PathBuf,
    /// The file that lists all modules, as `MODULE_REGISTRY`; else the script itself.
    pub registry: Option<PathBuf>,
}

/// How an agent's health is asked for from outside.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Probe {
    /// What is asked.
    pub target: ProbeTarget,
    /// How often.
    pub every: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// How many failures in a row are a death.
    pub failures: u32,
}

/// What a probe asks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeTarget {
    /// A URL, for an answer in the 200s.
    Http(String),
    /// A `host:port`, for a connection.
    Tcp(String),
    /// A command, for exit code 0.
    Exec(Command),
}

/// What the operating system holds an agent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct OsLimits {
    /// The most memory, in bytes.
    pub memory: Option<u64>,
    /// The most processes.
    pub processes: Option<u64>,
    /// The most open files.
    pub files: Option<u64>,
    /// The most processor time.
    pub cpu: Option<Duration>,
}

/// How much of an agent's output is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Log {
    /// The size at which a file is set aside, in bytes.
    pub max_size: u64,
    /// How many files set aside are kept.
    pub keep: u32,
}

impl Default for Log {
    /// 50 MiB, and five files set aside.
    fn default() -> Log {
        Log { max_size: 50 * 1024 * 1024, keep: 5 }
    }
}

/// What a million tokens of a model cost, in usd.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Tokens that the model reads.
    pub input: f64,
    /// Tokens that the model writes.
    pub output: f64,
    /// Tokens that the model reads from its cache; as `input` unless set.
    #[serde(default)]
    pub cached: Option<f64>,
}

/// What an agent may spend, by unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// The opening balance of its ledger.
    pub balance: BTreeMap<String, f64>,
    /// The most in one run.
    pub per_run: BTreeMap<String, f64>,
    /// The most in one day.
    pub per_day: BTreeMap<String, f64>,
    /// What is done when it spends far above its own baseline.
    pub burn: Burn,
    /// What is done if `usd` or `tokens` are bounded and nothing measures them.
    #[serde(default = "allow")]
    pub unmetered: Unmetered,
}

/// A project that an earlier version stored is not stopped by a rule that it did not know.
const fn allow() -> Unmetered {
    Unmetered::Allow
}

impl Default for Budget {
    /// No bounds; somebody is told of a burn.
    fn default() -> Budget {
        Budget {
            balance: BTreeMap::new(),
            per_run: BTreeMap::new(),
            per_day: BTreeMap::new(),
            burn: Burn::Notify,
            unmetered: Unmetered::Refuse,
        }
    }
}

/// Agents and groups that are restarted together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its name.
    pub name: Name,
    /// Who is restarted when a member dies.
    pub strategy: Strategy,
    /// Its agents and groups, in the order they start; at least one.
    pub members: Vec<Name>,
    /// How many restarts it may make; nothing is no bound.
    pub budget: Option<Limit>,
}

/// An autopsy rule of the user's own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rule {
    /// The sort of program it is for; nothing means all.
    pub kind: Option<AgentKind>,
    /// An anchored regular expression, for one line of the agent's own.
    #[serde(rename = "match")]
    pub pattern: String,
    /// What a match makes of the death.
    pub class: Class,
}

/// Who is told of what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notify {
    /// Its name.
    pub name: Name,
    /// What it is told of.
    pub on: Vec<Event>,
    /// How it is told.
    pub target: NotifyTarget,
    /// Where the secret is that a webhook is signed with; nothing is no signature.
    #[serde(default)]
    pub secret: Option<Secret>,
    /// How long the same is not told again.
    pub cooldown: Duration,
}

/// Where a secret is that does not stand in a file like this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Secret {
    /// In a variable of the caller of `up`.
    Env(String),
    /// In a file, without the line's end.
    File(PathBuf),
}

impl Notify {
    /// The variables of the caller that it needs.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        let secret = match &self.secret {
            Some(Secret::Env(name)) => Some(name.as_str()),
            Some(Secret::File(_)) | None => None,
        };
        let password = match &self.target {
            NotifyTarget::Email(smtp) => smtp.password_env.as_deref(),
            NotifyTarget::Webhook(_)
            | NotifyTarget::Slack(_)
            | NotifyTarget::Command(_)
            | NotifyTarget::Desktop => None,
        };
        secret.into_iter().chain(password)
    }
}

/// How somebody is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NotifyTarget {
    /// JSON is posted to a URL.
    Webhook(String),
    /// A message is posted to Slack's URL.
    Slack(String),
    /// A command is run.
    Command(Command),
    /// A mail is sent.
    Email(Smtp),
    /// The desktop shows it.
    Desktop,
}

/// How mail is sent, and to whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Smtp {
    /// The mail server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Who logs in there.
    pub user: Option<String>,
    /// The variable that holds the password.
    pub password_env: Option<String>,
    /// How the way there is encrypted.
    pub tls: SmtpTls,
    /// The sender.
    pub from: String,
    /// The receivers; at least one.
    pub to: Vec<String>,
}

/// What the file says of the daemon's web server. What it does not say is the daemon's choice.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Server {
    /// Where it listens; nothing means the first free port from 7433 on loopback.
    pub listen: Option<Listen>,
    /// Whether it may listen beyond loopback.
    pub allow_remote: bool,
    /// The certificate it shows.
    pub tls: Option<Tls>,
}

/// Where the web server listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Listen {
    /// Nowhere.
    Off,
    /// There.
    At(SocketAddr),
}

/// A certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tls {
    /// The file of the certificate.
    pub cert: PathBuf,
    /// The file of its key.
    pub key: PathBuf,
}

/// What the file says of the daemon's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct History {
    /// How long it is kept, if the file says so.
    pub keep: Option<Duration>,
}

impl History {
    /// How long history is kept where no file says so.
    pub const DEFAULT_KEEP: Duration = Duration::from_secs(30 * 24 * 60 * 60);
}

/// What the file says of the daemon's own bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Supervisor {
    /// After so many automatic restarts of all agents together, each that dies is crashed out.
    pub max_total_restarts: Option<u32>,
}

/// What the file says of where the daemon sends its figures.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Metrics {
    /// The receiver of OpenTelemetry that they are sent to; nothing means nobody.
    pub otlp: Option<Otlp>,
    /// The variable that holds headers for it.
    pub headers_env: Option<String>,
    /// How often they are sent, if the file says so.
    pub interval: Option<Duration>,
}

impl Metrics {
    /// How often figures are sent where no file says so.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);

    /// The variables of the caller that it needs.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        let endpoint = (self.otlp == Some(Otlp::Env)).then_some(Otlp::ENDPOINT);
        endpoint.into_iter().chain(self.headers_env.as_deref())
    }
}

/// A receiver of OpenTelemetry, over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Otlp {
    /// The one that [`Otlp::ENDPOINT`] names.
    Env,
    /// The one at this URL, to which `/v1/metrics` is added.
    At(String),
}

impl Otlp {
    /// The variable that OpenTelemetry has for the address of a receiver.
    pub const ENDPOINT: &'static str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    /// The one that it has for headers.
    pub const HEADERS: &'static str = "OTEL_EXPORTER_OTLP_HEADERS";
}
