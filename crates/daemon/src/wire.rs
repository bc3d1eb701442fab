//! What goes over the socket: the types that the API answers with and the commands read.
//!
//! Names and forms here are those that scripts depend on. Times are RFC 3339 in UTC; what is absent
//! is null, but in the lines of an overview, where it is left out.

use std::collections::BTreeMap;
use std::path::PathBuf;

use defib_config::{Config, Options};
use defib_core::time::Seconds;
use defib_core::{Class, CrashReason, Goal, Kind, Name, RunId, Signal, State, Wall};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use crate::doors::Role;
use crate::logs::Place;
use crate::meter::coverage::UnmeteredUnit;

mod caps;
mod line;
mod look;
mod why;
pub(crate) mod words;

pub use caps::{CapabilityChange, CapabilityRequest, Caps, Refused, TokenLine};
pub use line::{AgentLine, DeathLine};
pub use look::{
    Bar, GroupBudget, GroupMember, GroupStatus, Lifeline, Lifelines, Pause, RunUsage, TotalsStatus,
};
pub use why::{Decision, Money, Next, Why};

use words::{ClassWord, CrashReasonWord, GoalWord, KindWord, MomentWord, NameWord, StateWord};

/// What a daemon wants that does not say it.
const fn up() -> Goal {
    Goal::Up
}

/// One agent, as `status --json` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentStatus {
    /// Its name.
    #[schema(value_type = NameWord)]
    pub name: Name,
    /// The project it belongs to.
    #[schema(value_type = NameWord)]
    pub project: Name,
    /// The group it is in.
    #[schema(value_type = Option<NameWord>)]
    pub group: Option<Name>,
    /// Its state.
    #[schema(value_type = StateWord)]
    pub state: State,
    /// What is wanted of it.
    #[serde(default = "up")]
    #[schema(value_type = GoalWord)]
    pub goal: Goal,
    /// Why it is in that state, where that is not plain.
    pub reason: Option<String>,
    /// What it asks of a person, where it stands at a prompt.
    pub question: Option<String>,
    /// The first process of its run.
    pub pid: Option<u32>,
    /// Its latest run.
    #[schema(value_type = Option<u64>)]
    pub run: Option<RunId>,
    /// Its own automatic restarts since `up` or `revive`.
    pub restarts: u32,
    /// Failures in a row.
    pub consecutive_failures: u64,
    /// When its run began.
    #[schema(value_type = Option<MomentWord>)]
    pub started_at: Option<String>,
    /// How long its run has lived.
    #[schema(value_type = Option<f64>)]
    pub uptime_s: Option<Seconds>,
    /// When something will happen to it by itself.
    #[schema(value_type = Option<MomentWord>)]
    pub next_at: Option<String>,
    /// When it last wrote something.
    #[schema(value_type = Option<MomentWord>)]
    pub last_activity_at: Option<String>,
    /// Its last death.
    pub last_death: Option<DeathStatus>,
    /// What it says that it is doing.
    pub status_text: Option<String>,
    /// How long ago it last showed that it lives, where that is asked of it.
    #[schema(value_type = Option<f64>)]
    pub heartbeat_age_s: Option<Seconds>,
    /// What it has left to spend, by unit.
    pub balance: Option<BTreeMap<String, f64>>,
    /// What it has spent.
    pub spent: Option<BTreeMap<String, f64>>,
    /// The units of its budget that nothing measures, and what to do about each.
    #[serde(default)]
    pub unmetered: Vec<UnmeteredUnit>,
    /// The units of what it has spent that are estimated from a table of prices.
    #[serde(default)]
    pub estimated: Vec<String>,
    /// What it may do.
    pub capabilities: Option<Vec<String>>,
    /// What it may do from its next spawn on.
    pub capabilities_pending: Option<Vec<String>>,
    /// What sort of program it is.
    pub kind: String,
    /// What is run.
    pub command: Vec<String>,
    /// Whether it has a terminal of its own.
    pub pty: bool,
    /// Whether it died three or more counted deaths in the last ten minutes.
    pub flapping: bool,
    /// Whether its restarts were ended by a limit over a stretch of time.
    pub loop_detected: bool,
    /// The channels of its project whose last message has not arrived.
    #[serde(default)]
    pub channels_failing: Vec<ChannelFailure>,
}

/// The supervisor as a whole.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct SupervisorStatus {
    /// Automatic restarts of each agent in the last hour.
    #[schema(value_type = BTreeMap<String, u32>)]
    pub agent_restart_counts: BTreeMap<Name, u32>,
    /// When each was last restarted automatically.
    #[schema(value_type = BTreeMap<String, MomentWord>)]
    pub agent_last_restart: BTreeMap<Name, String>,
    /// The delay that each waits for, or would wait for next, in seconds and without jitter.
    #[schema(value_type = BTreeMap<String, f64>)]
    pub agent_current_backoff: BTreeMap<Name, f64>,
    /// What each died of last.
    #[schema(value_type = BTreeMap<String, CrashReasonWord>)]
    pub agent_crash_reason: BTreeMap<Name, CrashReason>,
    /// What the restarts were for.
    #[schema(value_type = BTreeMap<String, u64>)]
    pub restart_reasons: BTreeMap<CrashReason, u64>,
    /// Automatic restarts of all agents.
    pub total_restarts: u32,
    /// Deaths that nothing followed by itself: limits that tripped, halts, and failures of agents that
    /// are never restarted.
    pub total_permanent_deaths: u64,
}

/// A line of an agent's ledger, as JSON shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LedgerLine {
    /// Whose.
    #[schema(value_type = NameWord)]
    pub agent: Name,
    /// When it was last added to.
    #[schema(value_type = MomentWord)]
    pub at: String,
    /// What it was: `opening`, `funded`, `spent`.
    pub what: String,
    /// Of what.
    pub unit: String,
    /// What the balance changed by.
    pub amount: f64,
    /// What was left after it; nothing where the agent has no balance of the unit.
    pub balance: Option<f64>,
    /// The run that spent it.
    #[schema(value_type = Option<u64>)]
    pub run: Option<RunId>,
    /// Who said so: `config`, `operator`, `agent`, `output`, `otlp`.
    pub by: String,
}

/// A death, as JSON shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeathStatus {
    /// When.
    #[schema(value_type = MomentWord)]
    pub at: String,
    /// Of what.
    #[schema(value_type = ClassWord)]
    pub class: Class,
    /// What sort of death that is.
    #[schema(value_type = Option<KindWord>)]
    pub kind: Option<Kind>,
    /// The exit code, where there was one.
    pub exit_code: Option<i32>,
    /// The signal, where one ended it.
    #[schema(value_type = Option<String>)]
    pub signal: Option<Signal>,
    /// How long the run lived.
    #[schema(value_type = f64)]
    pub ran_s: Seconds,
    /// The line or field that decided the class.
    pub evidence: Option<String>,
    /// The stack trace that was found in its last output.
    pub trace: Option<String>,
    /// CPU time of the run in user mode, of its first process and the children that it waited for;
    /// null where nobody saw its end.
    pub cpu_user_ms: Option<u64>,
    /// CPU time of the run in the kernel, likewise.
    pub cpu_system_ms: Option<u64>,
    /// The most memory that one of those processes had at once; null also where that is too little to
    /// be told from the keeper's, about 7 MiB.
    pub memory_peak_bytes: Option<u64>,
}

/// How a project is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Indefinitely.
    #[default]
    Continuous,
    /// Each agent once, without restarts.
    Once,
    /// Indefinitely, without start delays.
    Dev,
}

impl Mode {
    /// The word by which people call it.
    pub const fn word(self) -> &'static str {
        match self {
            Mode::Continuous => "continuous",
            Mode::Once => "once",
            Mode::Dev => "dev",
        }
    }
}

/// A project to be brought up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UpRequest {
    /// The file it was read from.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// What the file says.
    #[schema(value_type = Object)]
    pub config: Config,
    /// How it is run.
    pub mode: Mode,
    /// The caller's variables that the agents get: the clean base and what `env_pass` names.
    pub environment: BTreeMap<String, String>,
    /// How the file was read, for whoever reads it again after a boot.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub options: Options,
    /// Whether it is up already and only its file may have changed.
    #[serde(default)]
    pub reload: bool,
}

/// What became of a reload, or would.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// Agents that are new.
    #[schema(value_type = Vec<NameWord>)]
    pub added: Vec<Name>,
    /// Agents that run and whose command or environment changed: they are restarted.
    #[schema(value_type = Vec<NameWord>)]
    pub restarted: Vec<Name>,
    /// Agents that should be up, have no process, and whose command or environment changed: they are
    /// started.
    #[serde(default)]
    #[schema(value_type = Vec<NameWord>)]
    pub started: Vec<Name>,
    /// Agents whose command or environment changed and that nothing starts now: their next run has it.
    #[serde(default)]
    #[schema(value_type = Vec<NameWord>)]
    pub pending: Vec<Name>,
    /// Agents whose policy changed: they run on.
    #[schema(value_type = Vec<NameWord>)]
    pub changed: Vec<Name>,
    /// Agents that are gone: they are stopped.
    #[schema(value_type = Vec<NameWord>)]
    pub removed: Vec<Name>,
    /// Agents that stay as they are.
    #[schema(value_type = Vec<NameWord>)]
    pub unchanged: Vec<Name>,
}

/// What is asked of agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Start.
    Start,
    /// Stop.
    Stop,
    /// Restart.
    Restart,
    /// Revive.
    Revive,
}

impl Action {
    /// The word by which people call it.
    pub const fn word(self) -> &'static str {
        match self {
            Action::Start => "start",
            Action::Stop => "stop",
            Action::Restart => "restart",
            Action::Revive => "revive",
        }
    }
}

/// How an action is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActionOptions {
    /// Without asking first.
    #[serde(default)]
    pub kill: bool,
    /// As a fresh session.
    #[serde(default)]
    pub fresh: bool,
    /// Do not wait until it is so.
    #[serde(default)]
    pub no_wait: bool,
}

/// Which logs are wanted, and from where on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogRequest {
    /// Whose, and after which place; without one, the last lines.
    #[schema(value_type = Vec<(NameWord, Option<Place>)>)]
    pub agents: Vec<(Name, Option<Place>)>,
    /// The last so many lines of each.
    pub lines: usize,
    /// Of this run only.
    #[schema(value_type = Option<u64>)]
    pub run: Option<RunId>,
    /// And on, as they are written.
    pub follow: bool,
}

/// What `version --json` says of the daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DaemonInfo {
    /// Its process id.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// The file that it runs from.
    #[serde(default)]
    pub program: String,
    /// When it began.
    #[schema(value_type = MomentWord)]
    pub started_at: String,
    /// The keeper's process id.
    pub keeper_pid: u32,
    /// The version of the protocol that the keeper speaks. An older daemon does not send it.
    #[serde(default)]
    pub keeper_protocol: Option<u32>,
    /// Where browsers and tools reach it, unless that is off.
    pub address: Option<String>,
    /// What is wrong with its own files, a line each; agents are kept alive all the same.
    #[serde(default)]
    pub troubles: Vec<String>,
}

/// What is said on a terminal's connection, beside what is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum TerminalNews {
    /// This run's terminal is shown from here on.
    Shown {
        /// Which.
        #[schema(value_type = u64)]
        run: RunId,
    },
    /// The run is over.
    Ended {
        /// Which.
        #[schema(value_type = u64)]
        run: RunId,
    },
    /// There is no run now.
    Without {
        /// What the agent is doing instead.
        #[schema(value_type = StateWord)]
        state: State,
        /// When that will change by itself.
        #[schema(value_type = Option<MomentWord>)]
        next_at: Option<String>,
    },
}

/// What a viewer of a terminal may ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum TerminalRequest {
    /// The viewer's size.
    Resize {
        /// Lines.
        rows: u16,
        /// Characters on a line.
        columns: u16,
    },
    /// What is typed, for a client that would rather send text.
    Input {
        /// The characters.
        data: String,
    },
}

/// A link that logs a browser in, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoginLink {
    /// What to open.
    pub url: String,
}

/// A token that was made; it is shown this once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewToken {
    /// What it is called.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The token.
    pub token: String,
}

/// A token, without what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenStatus {
    /// What it is called.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// When it was made.
    pub created_at: String,
    /// By whom.
    pub created_by: String,
}

/// Whether everything is to end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Closing {
    /// Whether every agent is to end, and the daemon with them.
    pub closing: bool,
    /// For whoever waits for that: why it will not come about.
    pub turned_back: Option<ErrorDetail>,
}

/// What went wrong, as the API says it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// A word for programs.
    pub code: ErrorCode,
    /// What went wrong.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// A word for what went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// It did not work.
    Failed,
    /// The change cannot be stored: the disk is full or fails.
    NotStored,
    /// The request makes no sense.
    BadRequest,
    /// The config cannot be applied.
    Config,
    /// There is no such agent.
    NoSuchAgent,
    /// The agent is not in a state for that.
    NotInState,
    /// Whoever asks is not known.
    Unauthorized,
    /// Whoever asks may not.
    Forbidden,
    /// There is nothing at this address.
    NotFound,
    /// The request took too long to arrive.
    TooSlow,
    /// The request is too large.
    TooLarge,
    /// The request is of the wrong type.
    WrongType,
    /// The request means another host.
    WrongHost,
    /// There are too many already.
    TooMany,
    /// Nothing like that can be done at this address.
    NotAllowed,
    /// The body is JSON, and does not say what it should.
    Invalid,
    /// The daemon is ending.
    Ending,
}

/// What came of a test message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChannelTest {
    /// The project that the channel is of.
    #[schema(value_type = NameWord)]
    pub project: Name,
    /// The channel.
    #[schema(value_type = NameWord)]
    pub channel: Name,
    /// How it tells: `webhook`, `slack`, `command`, `email` or `desktop`.
    pub way: String,
    /// Whether the message has arrived.
    pub delivered: bool,
    /// Why not.
    pub why: Option<String>,
    /// How long it took.
    pub took_ms: u64,
}

/// How a channel is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChannelStatus {
    /// The project that the channel is of.
    #[schema(value_type = NameWord)]
    pub project: Name,
    /// The channel.
    #[schema(value_type = NameWord)]
    pub channel: Name,
    /// How it tells: `webhook`, `slack`, `command`, `email` or `desktop`.
    pub way: String,
    /// How many messages wait to be delivered.
    pub waiting: u64,
    /// What went wrong with the last message, if it has not arrived.
    pub failure: Option<ChannelFailure>,
}

/// A message that has not arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChannelFailure {
    /// The channel.
    #[schema(value_type = NameWord)]
    pub channel: Name,
    /// When it was last tried.
    #[schema(value_type = MomentWord)]
    pub at: String,
    /// Why it has not arrived.
    pub why: String,
    /// How often it was tried.
    pub attempts: u32,
    /// Whether it is not tried again.
    pub given_up: bool,
}

/// A moment as JSON shows it.
pub fn stamp(at: Wall) -> String {
    jiff::Timestamp::from_millisecond(at.as_millis())
        .map(|at| format!("{at:.3}"))
        .unwrap_or_default()
}
