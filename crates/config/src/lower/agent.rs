//! One agent: its own keys over the file's defaults.
//!
//! Tables merge key by key; lists and plain values replace. The exception is `probe`, whose keys
//! are alternatives: an agent's probe replaces the default one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use defib_core::capability::Capability;
use defib_core::policy::{Ready, Trigger};
use defib_core::preset::Preset;
use defib_core::signal::Signal;

use crate::config::{
    Agent, AgentKind, Budget, Burn, Command, Isolation, Leftovers, Linger, Log, OsLimits, Probe,
    ProbeTarget, ReadyBy, Unmetered, Views,
};
use crate::diagnostic::Findings;
use crate::fields::{Datum, Layers};
use crate::foreign::Watchdog;
use crate::passed::Passed;
use crate::source::Span;
use crate::words::{PRESETS, STRATEGIES};

use super::command::{Shell, command, shell_command};
use super::{Spelled, policy};

/// Where an agent comes from.
pub(super) struct Origin<'o> {
    pub(super) name: &'o Spelled,
    /// Where its table is written.
    pub(super) span: Span,
    /// The rule set of its sort, unless it names one itself.
    pub(super) usual: Option<Preset>,
    /// What overrides the rule set of modules.
    pub(super) watchdog: Watchdog,
}

/// Lowers an agent.
pub(super) fn agent(
    origin: &Origin<'_>,
    own: Layers<'_>,
    findings: &mut Findings,
) -> Option<Agent> {
    let Origin { name, span, usual, watchdog } = *origin;
    let preset = match usual {
        // What the agents of a file have in common is no module's rule set.
        Some(usual) => own.over.alone().word("preset", &PRESETS).unwrap_or(usual),
        None => own.word("preset", &PRESETS).unwrap_or(Preset::Default),
    };
    let mut policy = policy::policy(preset, watchdog, own, findings);
    let (trigger, cron) = trigger(own);
    policy.trigger = trigger;
    let ready = ready(own, findings);
    policy.ready = match ready {
        ReadyBy::Spawn => Ready::AtSpawn,
        ReadyBy::Notify | ReadyBy::Probe => Ready::WhenTold,
    };
    let probe = probe(own, findings);
    let resume = run("resume", own, findings);
    let command = run("command", own, findings).or_else(|| by_runner(name, own));
    if !own.has("command") && !own.has("runner") {
        findings
            .error(span, format!("agent `{}` has no `command`", name.name))
            .label("what shall it run?")
            .help("for example: `command = [\"claude\", \"-p\", \"review the open PRs\"]`");
    }
    Some(Agent {
        name: name.name.clone(),
        preset,
        policy: Arc::new(policy),
        command: command?,
        cwd: path(own, "cwd"),
        env: env(own, findings),
        env_pass: own.texts("env_pass").into_iter().flatten().map(Passed::new).collect(),
        env_file: path(own, "env_file"),
        kind: own.word("kind", AgentKind::MEANINGS).unwrap_or(AgentKind::Auto),
        pty: own.bool("pty").unwrap_or(false),
        enabled: own.bool("enabled").unwrap_or(true),
        user: own.text("user").map(str::to_owned),
        strategy: own.word("strategy", &STRATEGIES),
        // The caller's, who knows which table it is.
        module: None,
        umask: own.count("umask"),
        resume: resume.map(Box::new),
        heartbeat_file: path(own.merged("heartbeat"), "file"),
        linger: linger(own),
        probe: probe.map(Box::new),
        ready,
        // The caller's, who knows where they are written.
        after: Vec::new(),
        cron,
        stop_signal: own.text("stop_signal").and_then(Signal::parse).unwrap_or(Signal::TERM),
        leftovers: own.word("leftovers", Leftovers::MEANINGS).unwrap_or(Leftovers::Kill),
        account: own.text("account").map(str::to_owned),
        capabilities: capabilities(own),
        isolation: own.word("isolation", Isolation::MEANINGS),
        views: own.word("views", Views::MEANINGS).unwrap_or(Views::Own),
        limits_os: Arc::new(limits_os(own.merged("limits_os"))),
        log: log(own.merged("log")),
        budget: Arc::new(budget(preset, own.merged("budget"))),
    })
}

fn linger(own: Layers<'_>) -> Linger {
    match own.duration("linger") {
        Some(time) => Linger::For(time),
        None if own.text("linger").is_some() => Linger::Off,
        None => Linger::Usual,
    }
}

fn path(own: Layers<'_>, key: &str) -> Option<PathBuf> {
    own.text(key).map(PathBuf::from)
}

/// What is malformed has been said, and leaves no config.
fn capabilities(own: Layers<'_>) -> Option<Vec<Capability>> {
    let Some(tokens) = own.texts("capabilities") else {
        // An agent that asks for a sandbox gets one, in which nothing is permitted.
        return own.has("isolation").then(Vec::new);
    };
    Some(tokens.iter().filter_map(|token| Capability::parse(token).ok()).collect())
}

/// The longest `NAME=value` that the kernel passes to a program, in bytes, with its end.
const LONGEST_VARIABLE: usize = 128 << 10;

fn env(own: Layers<'_>, findings: &mut Findings) -> BTreeMap<String, String> {
    let variable = |entry: &crate::fields::Entry| {
        let value = entry.item.datum.as_text()?;
        if entry.key.len() + value.len() + "=\0".len() > LONGEST_VARIABLE {
            let message =
                format!("`{}` is longer than the 128 KiB that the kernel allows", entry.key);
            findings
                .error(entry.item.span, message)
                .label(format!("{} bytes", value.len()))
                .help("write the value to a file and pass the path of that file");
        }
        Some((entry.key.clone(), value.to_owned()))
    };
    own.merged("env").entries().filter_map(variable).collect()
}

/// A command of the agent's own, by a shell if it asks for one.
fn run(key: &str, own: Layers<'_>, findings: &mut Findings) -> Option<Command> {
    let item = own.item(key)?;
    if !own.bool("shell").unwrap_or(false) {
        return command(key, item, Shell::Asked, findings);
    }
    if let (Datum::List(_), Some(shell)) = (&item.datum, own.key_span("shell")) {
        findings
            .error(item.span, format!("`{key}` is a list, but `shell = true` takes a string"))
            .label("a shell reads a line")
            .related(shell, "asked for here")
            .help("write the command as one string, or leave `shell` out");
    }
    shell_command(item)
}

/// What a module runs that says no more than its runner: the script, with the module's name.
fn by_runner(name: &Spelled, own: Layers<'_>) -> Option<Command> {
    if own.has("command") {
        return None;
    }
    let runner = own.text("runner")?;
    let extension = Path::new(runner).extension().and_then(|extension| extension.to_str());
    let program = match extension {
        Some("py") => vec!["python3".to_owned(), runner.to_owned()],
        Some("sh") => vec!["/bin/sh".to_owned(), runner.to_owned()],
        Some(_) | None if runner.contains('/') => vec![runner.to_owned()],
        Some(_) | None => vec![format!("./{runner}")],
    };
    Some(Command::Words(program.into_iter().chain([name.name.to_string()]).collect()))
}

fn trigger(own: Layers<'_>) -> (Trigger, Option<String>) {
    match own.text("trigger") {
        None | Some("boot") => (Trigger::Boot, None),
        Some("manual") => (Trigger::Manual, None),
        Some(cron) => {
            let expression = cron.strip_prefix("cron:").unwrap_or(cron).trim();
            (Trigger::Cron, Some(expression.to_owned()))
        }
    }
}

fn ready(own: Layers<'_>, findings: &mut Findings) -> ReadyBy {
    let ready = own.word("ready", ReadyBy::MEANINGS).unwrap_or(ReadyBy::Spawn);
    if let (ReadyBy::Probe, false, Some(item)) = (ready, own.has("probe"), own.item("ready")) {
        findings
            .error(item.span, "`ready = \"probe\"` needs a `probe`")
            .label("nothing would ever say so")
            .help("for example: `probe = { tcp = \"127.0.0.1:8080\" }`");
    }
    ready
}

fn probe(own: Layers<'_>, findings: &mut Findings) -> Option<Probe> {
    let own = own.replaced("probe")?;
    let target = if let Some(url) = own.text("http") {
        refuse_tls(url, own, findings);
        ProbeTarget::Http(url.to_owned())
    } else if let Some(address) = own.text("tcp") {
        ProbeTarget::Tcp(address.to_owned())
    } else {
        ProbeTarget::Exec(command("exec", own.item("exec")?, Shell::Named, findings)?)
    };
    Some(Probe {
        target,
        every: own.duration("every").unwrap_or(Duration::from_secs(10)),
        timeout: own.duration("timeout").unwrap_or(Duration::from_secs(2)),
        failures: own.count("failures").unwrap_or(3),
    })
}

/// What is probed is on this machine or next to it, so a probe speaks plain HTTP.
fn refuse_tls(url: &str, own: Layers<'_>, findings: &mut Findings) {
    if let (true, Some(item)) = (url.starts_with("https://"), own.item("http")) {
        findings
            .error(item.span, "a probe by `https` is not supported")
            .label("a probe speaks plain HTTP")
            .help("probe a plain port, or use `exec = [\"curl\", \"-fsS\", \"https://…\"]`");
    }
}

fn limits_os(own: Layers<'_>) -> OsLimits {
    OsLimits {
        memory: own.size("memory"),
        processes: own.size("processes"),
        files: own.size("files"),
        cpu: own.duration("cpu"),
    }
}

fn log(own: Layers<'_>) -> Log {
    let usual = Log::default();
    Log {
        max_size: own.size("max_size").unwrap_or(usual.max_size),
        keep: own.count("keep").unwrap_or(usual.keep),
    }
}

fn budget(preset: Preset, own: Layers<'_>) -> Budget {
    let usual = if preset == Preset::Default { Unmetered::Refuse } else { Unmetered::Allow };
    let amounts = |key| {
        let amount = |entry: &crate::fields::Entry| match entry.item.datum {
            Datum::Number(amount) => Some((entry.key.clone(), amount)),
            Datum::Bool(_)
            | Datum::Integer(_)
            | Datum::Text(_)
            | Datum::Duration(_)
            | Datum::Name(_)
            | Datum::List(_)
            | Datum::Table(_)
            | Datum::Broken => None,
        };
        own.merged(key).entries().filter_map(amount).collect()
    };
    Budget {
        balance: amounts("balance"),
        per_run: amounts("per_run"),
        per_day: amounts("per_day"),
        burn: own.word("burn", Burn::MEANINGS).unwrap_or(Burn::Notify),
        unmetered: own.word("unmetered", Unmetered::MEANINGS).unwrap_or(usual),
    }
}
