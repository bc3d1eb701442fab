//! `defib mcp`: what the commands show, for a model that asks.
//!
//! Everything goes through the daemon's API, with the rights of whoever started this: a person, or an
//! agent by its own token. Nothing is changed unless that was allowed on the command line.

use std::path::PathBuf;

use defib_core::{Name, span};
use defib_daemon::wire::{AgentStatus, Why};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::{Map, Value, json};

use super::why::post_mortem;
use super::{Context, segment};
use crate::client::Client;
use crate::failure::{Code, Failure};

/// No more of a log is handed over at once.
const LONGEST_LOG: usize = 256 << 10;
/// No more lines of a log can be asked for.
const MOST_LINES: u64 = 2_000;
/// No more runs can be asked for.
const MOST_RUNS: u64 = 500;

/// Serve the Model Context Protocol on standard input and output, for agents that ask about agents
///
/// Offers `list_agents`, `status`, `why`, `logs` and `history`. With --allow-actions also `start`,
/// `stop`, `restart` and `revive`. Inside of an agent that defib runs it uses that agent's own rights.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  claude mcp add defib -- defib mcp
  codex mcp add defib -- defib mcp
  claude mcp add defib -- defib mcp --allow-actions")]
pub(crate) struct Mcp {
    /// Also offer to start, stop, restart and revive agents
    #[arg(long)]
    allow_actions: bool,
}

impl Mcp {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let variable = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
        let own = variable("DEFIB_SOCKET").map(PathBuf::from).zip(variable("DEFIB_TOKEN"));
        let server = Server { home: context.home.clone(), own, allow_actions: self.allow_actions };
        let failed = |error: &dyn std::fmt::Display| Failure::new(Code::Failed, error);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed(&error))?;
        runtime.block_on(async {
            let served = server.serve(rmcp::transport::stdio()).await;
            // Whoever closes the pipe before it has said a word wants nothing.
            let Ok(running) = served else { return Ok(()) };
            running.waiting().await.map(drop).map_err(|error| failed(&error))
        })
    }
}

/// What a tool is asked with.
type Arguments = Map<String, Value>;

#[derive(Clone)]
struct Server {
    home: Option<PathBuf>,
    /// The socket and the token of the agent that this runs in.
    own: Option<(PathBuf, String)>,
    allow_actions: bool,
}

/// What a tool says: for people, and for programs.
struct Said {
    text: String,
    data: Value,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new("defib", env!("CARGO_PKG_VERSION"));
        info.with_instructions(
            "defib keeps long-running agents alive. `list_agents` shows them, `why` says what one died \
             of, what was decided and what to do about it.",
        )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult { tools: tools(self.allow_actions), ..ListToolsResult::default() })
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools(self.allow_actions).into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let server = self.clone();
        let name = request.name.to_string();
        if !tools(true).iter().any(|tool| tool.name == name) {
            return Err(ErrorData::invalid_params(format!("there is no tool {name:?}"), None));
        }
        let arguments = request.arguments.unwrap_or_default();
        // The daemon is asked where waiting harms nobody.
        let said = tokio::task::spawn_blocking(move || server.call(&name, &arguments)).await;
        Ok(match said {
            Ok(Ok(said)) => {
                let mut result = CallToolResult::success(vec![ContentBlock::text(said.text)]);
                result.structured_content = Some(said.data);
                result.into()
            }
            Ok(Err(failure)) => {
                CallToolResult::error(vec![ContentBlock::text(failure.to_string())]).into()
            }
            Err(error) => {
                return Err(ErrorData::internal_error(error.to_string(), None));
            }
        })
    }
}

impl Server {
    fn client(&self) -> Result<Client, Failure> {
        match &self.own {
            Some((socket, token)) => Client::for_agent(socket, token.clone()),
            None => Context { home: self.home.clone() }.client(),
        }
    }

    fn call(&self, tool: &str, arguments: &Arguments) -> Result<Said, Failure> {
        match tool {
            "list_agents" => self.list(),
            "status" => self.status(arguments),
            "why" => self.why(arguments),
            "logs" => self.logs(arguments),
            "history" => self.history(arguments),
            action if self.allow_actions => self.act(action, arguments),
            action => Err(Failure::new(Code::Failed, format!("{action} is not allowed here"))
                .hint("whoever started `defib mcp` may allow it with --allow-actions")),
        }
    }

    fn list(&self) -> Result<Said, Failure> {
        let agents: Vec<AgentStatus> = self.client()?.get("/api/v1/agents")?;
        let text: String = agents.iter().map(line).collect();
        let text = if text.is_empty() { "there are no agents\n".to_owned() } else { text };
        let short: Vec<Value> = agents.iter().map(short).collect();
        Ok(Said { text, data: json!({ "agents": short }) })
    }

    fn status(&self, arguments: &Arguments) -> Result<Said, Failure> {
        let path = format!("/api/v1/agents/{}", name_in(arguments)?);
        let agents: Vec<AgentStatus> = self.client()?.get(&path)?;
        let text = agents.iter().map(line).collect();
        Ok(Said { text, data: json!({ "agents": agents }) })
    }

    fn why(&self, arguments: &Arguments) -> Result<Said, Failure> {
        let mut path = format!("/api/v1/agents/{}/why", name_in(arguments)?);
        if let Some(run) = number_in(arguments, "run", u64::MAX)? {
            path.push_str(&format!("?run={run}"));
        }
        let why: Why = self.client()?.get(&path)?;
        let data = serde_json::to_value(&why).map_err(|error| Failure::new(Code::Failed, error))?;
        Ok(Said { text: post_mortem(&why, jiff::Timestamp::now()), data })
    }

    fn logs(&self, arguments: &Arguments) -> Result<Said, Failure> {
        let name = name_in(arguments)?;
        let lines = number_in(arguments, "lines", MOST_LINES)?.unwrap_or(100);
        let mut path = format!("/api/v1/agents/{name}/logs?lines={lines}");
        if let Some(run) = number_in(arguments, "run", u64::MAX)? {
            path.push_str(&format!("&run={run}"));
        }
        let mut bytes = Vec::new();
        self.client()?.stream(&path, |piece| {
            bytes.extend_from_slice(piece);
            Ok(true)
        })?;
        let is_cut = bytes.len() > LONGEST_LOG;
        let last = &bytes[bytes.len().saturating_sub(LONGEST_LOG)..];
        let text = String::from_utf8_lossy(last);
        let text = anstream::adapter::strip_str(&text).to_string();
        let data = json!({ "agent": name, "text": text, "cut": is_cut });
        Ok(Said { text, data })
    }

    fn history(&self, arguments: &Arguments) -> Result<Said, Failure> {
        let limit = number_in(arguments, "limit", MOST_RUNS)?.unwrap_or(50);
        let since = text_in(arguments, "since")?.unwrap_or("24h");
        span::parse(since).map_err(|error| wrong(format!("since: {error}")))?;
        let mut path = format!("/api/v1/history?since={since}&limit={limit}");
        if let Some(name) = text_in(arguments, "name")? {
            path.push_str(&format!("&agent={}", segment(name)?));
        }
        let runs: Vec<Value> = self.client()?.get(&path)?;
        let text: String = runs.iter().map(run_line).collect();
        let text = if text.is_empty() { format!("no runs in the last {since}\n") } else { text };
        Ok(Said { text, data: json!({ "runs": runs }) })
    }

    fn act(&self, action: &str, arguments: &Arguments) -> Result<Said, Failure> {
        let path = format!("/api/v1/agents/{}/{action}", name_in(arguments)?);
        let agents: Vec<AgentStatus> = self.client()?.post(&path, &json!({}))?;
        Ok(Said { text: agents.iter().map(line).collect(), data: json!({ "agents": agents }) })
    }
}

/// The tools on offer.
fn tools(with_actions: bool) -> Vec<Tool> {
    let agent = || json!({ "type": "string", "description": "The agent's name." });
    let run = || json!({ "type": "integer", "minimum": 1, "description": "The number of a run." });
    let looks = [
        ("list_agents", "Every agent: its state, restarts and last death.", json!({}), vec![]),
        (
            "status",
            "Everything known of one agent, or of the members of a group.",
            json!({ "name": agent() }),
            vec!["name"],
        ),
        (
            "why",
            "Why an agent is as it is: what it died of and how that is known, what was decided and by \
             which numbers, what happens next, what to do.",
            json!({ "name": agent(), "run": run() }),
            vec!["name"],
        ),
        (
            "logs",
            "The last lines that an agent wrote.",
            json!({
                "name": agent(),
                "lines": {
                    "type": "integer", "minimum": 1, "maximum": MOST_LINES, "default": 100,
                    "description": "How many."
                },
                "run": run(),
            }),
            vec!["name"],
        ),
        (
            "history",
            "Runs and how they ended, newest first, of one agent or of all.",
            json!({
                "name": agent(),
                "since": {
                    "type": "string", "default": "24h", "description": "How far back: 30m, 24h, 7d."
                },
                "limit": {
                    "type": "integer", "minimum": 1, "maximum": MOST_RUNS, "default": 50,
                    "description": "At most so many."
                },
            }),
            vec![],
        ),
    ];
    let actions = [
        ("start", "Start an agent, or the members of a group."),
        ("stop", "Stop an agent, or the members of a group. It stays stopped."),
        ("restart", "End an agent's run and begin another."),
        ("revive", "Put an agent back that has crashed out or was halted."),
    ];
    let looks = looks.into_iter().map(|(name, description, properties, required)| {
        let only_looks = ToolAnnotations::new().read_only(true);
        Tool::new(name, description, schema(properties, &required)).with_annotations(only_looks)
    });
    let actions = actions.into_iter().filter(|_| with_actions).map(|(name, description)| {
        let changes = ToolAnnotations::new().read_only(false).destructive(name != "start");
        let schema = schema(json!({ "name": agent() }), &["name"]);
        Tool::new(name, description, schema).with_annotations(changes)
    });
    looks.chain(actions).collect()
}

fn schema(properties: Value, required: &[&str]) -> Map<String, Value> {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), properties);
    schema.insert("required".to_owned(), json!(required));
    schema
}

/// One line for one agent.
fn line(agent: &AgentStatus) -> String {
    let reason = agent.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let run = agent.run.map(|run| format!(", run {run}")).unwrap_or_default();
    let died = match &agent.last_death {
        Some(death) => format!(", last died of {} at {}", death.class, death.at),
        None => String::new(),
    };
    let next = agent.next_at.as_ref().map(|at| format!(", next at {at}")).unwrap_or_default();
    let flaps = if agent.flapping { ", flapping" } else { "" };
    let (name, state, restarts) = (&agent.name, agent.state, agent.restarts);
    format!("{name}: {state}{reason}{run}, {restarts} restarts{flaps}{died}{next}\n")
}

/// An agent without what only matters to one who looks at it alone.
fn short(agent: &AgentStatus) -> Value {
    json!({
        "name": agent.name, "project": agent.project, "group": agent.group, "state": agent.state,
        "reason": agent.reason, "run": agent.run, "restarts": agent.restarts,
        "uptime_s": agent.uptime_s, "next_at": agent.next_at, "flapping": agent.flapping,
        "status_text": agent.status_text,
        "last_death": agent.last_death.as_ref().map(|death| json!({
            "at": death.at, "class": death.class, "exit_code": death.exit_code,
            "signal": death.signal, "evidence": death.evidence,
        })),
    })
}

fn run_line(run: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (agent, number, from) = (word(&run["agent"]), &run["run"], word(&run["started_at"]));
    let death = &run["death"];
    if death.is_null() {
        return format!("{agent} run {number}: since {from}\n");
    }
    let how = match (death["exit_code"].as_i64(), death["signal"].as_str()) {
        (Some(code), _) => format!(" (exit {code})"),
        (None, Some(signal)) => format!(" ({signal})"),
        (None, None) => String::new(),
    };
    let (class, ran, verdict) = (word(&death["class"]), &run["ran_s"], word(&run["verdict"]));
    format!("{agent} run {number}: from {from}, {ran} s, died of {class}{how}, {verdict}\n")
}

fn wrong(message: String) -> Failure {
    Failure::new(Code::Usage, message)
}

fn text_in<'a>(arguments: &'a Arguments, key: &str) -> Result<Option<&'a str>, Failure> {
    match arguments.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong(format!("{key} is {other}, and has to be a text"))),
    }
}

fn number_in(arguments: &Arguments, key: &str, most: u64) -> Result<Option<u64>, Failure> {
    match arguments.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().filter(|number| (1..=most).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                Err(wrong(format!("{key} is {value}, and has to be a number from 1 to {most}")))
            }
        },
    }
}

/// The name, as a part of an address.
fn name_in(arguments: &Arguments) -> Result<String, Failure> {
    let name = text_in(arguments, "name")?.ok_or_else(|| wrong("name is missing".to_owned()))?;
    Name::known(name).map_err(|error| wrong(format!("{name:?} is no name: {error}")))?;
    segment(name)
}
