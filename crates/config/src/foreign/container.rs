//! A service of a compose file: one agent, without its container.
//!
//! Docker starts a container again after 100 ms, then twice as long, up to a minute; one that ran for
//! ten seconds begins anew. A service that says nothing of `restart` runs once.

use std::time::Duration;

use crate::diagnostic::Findings;
use crate::source::Span;
use crate::suggest::quoted;
use crate::tree::{Entry, Node, Value};

use super::healthcheck::health;
use super::interpolate;
use super::phrase::{Launch, Phrase};
use super::restarts::deploy;
use super::section::{Section, Table, Taken, is_no, no_equal, scalar_text};

const WITHOUT_EQUAL: [(&str, &str); 42] = [
    ("image", "the program runs on this machine, as it is installed"),
    ("build", "the program runs on this machine, as it is installed"),
    ("ports", "agents use the machine's own ports"),
    ("expose", "agents use the machine's own ports"),
    ("volumes", "agents use the machine's own files"),
    ("volumes_from", "agents use the machine's own files"),
    ("tmpfs", "agents use the machine's own files"),
    ("networks", "agents use the machine's own network"),
    ("network_mode", "agents use the machine's own network"),
    ("links", "agents reach each other on the machine's own network"),
    ("external_links", "agents reach each other on the machine's own network"),
    ("extra_hosts", "names are the machine's own"),
    ("dns", "names are the machine's own"),
    ("dns_search", "names are the machine's own"),
    ("hostname", "names are the machine's own"),
    ("domainname", "names are the machine's own"),
    ("container_name", "the agent is called as the service is"),
    ("labels", "an agent has a name and a project"),
    ("annotations", "an agent has a name and a project"),
    ("secrets", "`env_pass` and `env_file` hand things over"),
    ("configs", "agents use the machine's own files"),
    ("devices", "agents use the machine's own devices"),
    ("gpus", "agents use the machine's own devices"),
    ("cap_add", "`capabilities` say what an agent may do"),
    ("cap_drop", "`capabilities` say what an agent may do"),
    ("privileged", "`capabilities` say what an agent may do"),
    ("read_only", "`capabilities` say what an agent may do"),
    ("security_opt", "`capabilities` say what an agent may do"),
    ("stdin_open", "an agent reads from nothing, or from its terminal: `pty = true`"),
    ("cpus", "`limits_os` bounds memory, processes, files and processor time"),
    ("cpu_shares", "`limits_os` bounds memory, processes, files and processor time"),
    ("cpuset", "`limits_os` bounds memory, processes, files and processor time"),
    ("shm_size", "agents use the machine's own memory"),
    ("memswap_limit", "`limits_os` bounds memory, not its swap"),
    ("platform", "the program runs on this machine"),
    ("pull_policy", "the program runs on this machine"),
    ("runtime", "the program runs on this machine"),
    ("ipc", "agents are processes of this machine"),
    ("pid", "agents are processes of this machine"),
    ("sysctls", "agents are processes of this machine"),
    ("extends", "write what it takes over into the service"),
    ("develop", "agents are not restarted when files change"),
];

/// A service that has been read.
pub(super) struct Service {
    pub(super) name: String,
    pub(super) span: Span,
    pub(super) own: Table,
    /// How often it runs.
    pub(super) count: i64,
    /// Whom it waits for, and until when.
    pub(super) after: Vec<(String, Span, String)>,
    /// Whether it is started here at all.
    pub(super) runs: bool,
}

pub(super) fn translate(
    name: &str,
    span: Span,
    entries: Vec<Entry>,
    file: &str,
    findings: &mut Findings,
) -> Service {
    let mut section = Section::new("a service", entries);
    let mut launch = Launch::default();
    let mut own = Table::default();
    let entrypoint = words(&mut section, "entrypoint", file, &mut launch, findings);
    let command = words(&mut section, "command", file, &mut launch, findings);
    environment(&mut section, file, &mut launch, findings);
    env_file(&mut section, &mut own, findings);
    if let Some(folder) = section.text("working_dir", findings) {
        findings.warning(
            folder.span,
            "`working_dir` is a folder of the container's; here it is one of this machine",
        );
        launch.cwd = Some((folder.span, interpolate::phrase(&folder.value, &mut launch)));
    }
    launch.words = entrypoint.into_iter().chain(command).collect();
    let runs = !launch.words.is_empty();
    if !runs {
        let image = section.entry("image");
        let said = image.as_ref().map(|image| scalar_text(&image.node, file));
        let said = said.map_or_else(|| "its image".to_owned(), |image| quoted(&image));
        let message = format!(
            "`{name}` has no `command`: what {said} would run is not known, so it is disabled"
        );
        findings.warning(span, message).help("set its `command`, and take `enabled = false` away");
        let told = format!("echo 'set the command of {name} in defib.toml' >&2; exit 2");
        launch.words = ["sh", "-c", &told].map(Phrase::plain).to_vec();
        own.put("enabled", span, Value::Bool(false));
    }
    tell_of_variables(&launch, span, findings);
    launch.write(span, &mut own);
    let count = deploy(&mut section, span, file, &mut own, findings);
    if runs && count == 0 {
        own.put("enabled", span, Value::Bool(false));
    }
    let (runs, count) = (runs && count > 0, count.max(1));
    ending(&mut section, file, &mut own, findings);
    health(&mut section, file, &mut own, findings);
    bounds(&mut section, file, &mut own, findings);
    others(&mut section, file, &mut own, findings);
    let after = depends_on(&mut section, findings);
    no_equal(&mut section, &WITHOUT_EQUAL, findings);
    drop(section.take_all(|key| key.starts_with("x-")));
    section.finish(findings);
    Service { name: name.to_owned(), span, own, count, after, runs }
}

/// A list of words, or a text of them.
fn words(
    section: &mut Section,
    key: &'static str,
    file: &str,
    launch: &mut Launch,
    findings: &mut Findings,
) -> Vec<Phrase> {
    let Some(node) = section.take(key) else { return Vec::new() };
    if let Value::List(items) = &node.value {
        return items
            .iter()
            .map(|item| interpolate::phrase(&scalar_text(item, file), launch))
            .collect();
    }
    let phrase = interpolate::phrase(&scalar_text(&node, file), launch);
    phrase.split().unwrap_or_else(|| {
        findings
            .warning(node.span, format!("`{key}` has a quote that is not closed"))
            .label("passed over");
        Vec::new()
    })
}

/// A value that cannot wait for a shell: its holes have their defaults from now on.
pub(super) fn settled(node: &Node, file: &str, findings: &mut Findings) -> String {
    let text = scalar_text(node, file);
    let phrase = interpolate::phrase(&text, &mut Launch::default());
    let filled = phrase.filled();
    if !phrase.is_plain() {
        let message = format!("{} is settled now: {}", quoted(&text), quoted(&filled));
        findings.warning(node.span, message);
    }
    filled
}

/// A map, or a list of `KEY=value`. What has no value is the caller's.
fn environment(section: &mut Section, file: &str, launch: &mut Launch, findings: &mut Findings) {
    let Some(entry) = section.entry("environment") else { return };
    let mut set = |key: &str, span: Span, value: Option<String>| match value {
        Some(value) => {
            let value = interpolate::phrase(&value, launch);
            launch.env.push((key.to_owned(), span, value));
        }
        None => launch.pass(key, false),
    };
    match entry.node.value {
        Value::Table(entries) => {
            for Entry { key, key_span, node } in entries {
                let value = (!matches!(node.value, Value::Null)).then(|| scalar_text(&node, file));
                set(&key, key_span, value);
            }
        }
        Value::List(items) => {
            for item in items {
                let text = scalar_text(&item, file);
                match text.split_once('=') {
                    Some((key, value)) => set(key, item.span, Some(value.to_owned())),
                    None => set(&text, item.span, None),
                }
            }
        }
        Value::Null => {}
        Value::Text(_)
        | Value::Bool(_)
        | Value::Integer(_)
        | Value::HugeInteger
        | Value::Float(_)
        | Value::Date => {
            findings
                .warning(entry.key_span, "`environment` is neither a table nor a list")
                .label("passed over");
        }
    }
}

/// One file is read; more than one has no equal.
fn env_file(section: &mut Section, own: &mut Table, findings: &mut Findings) {
    let Some(node) = section.take("env_file") else { return };
    let nodes = if let Value::List(nodes) = node.value { nodes } else { vec![node] };
    for (index, node) in nodes.into_iter().enumerate() {
        let span = node.span;
        let path = match node.value {
            Value::Table(entries) => {
                let mut section = Section::new("an `env_file`", entries);
                let path = section.text("path", findings).map(|path| path.value);
                if section.bool("required", findings).is_some_and(|required| !required.value) {
                    findings.warning(
                        span,
                        "an `env_file` that may be absent has no equal: it must be there",
                    );
                }
                section.finish(findings);
                path
            }
            Value::Text(path) => Some(path),
            Value::Bool(_)
            | Value::Integer(_)
            | Value::HugeInteger
            | Value::Float(_)
            | Value::Date
            | Value::Null
            | Value::List(_) => None,
        };
        match path {
            Some(path) if index == 0 => own.text("env_file", span, path),
            Some(path) => {
                findings
                    .warning(
                        span,
                        format!("a second `env_file` has no equal: {} is left out", quoted(&path)),
                    )
                    .help("put both into one file");
            }
            None => {
                findings.warning(span, "`env_file` is no path").label("passed over");
            }
        }
    }
}

/// Says where the values of holes come from, once a service.
fn tell_of_variables(launch: &Launch, span: Span, findings: &mut Findings) {
    let names = launch.passed();
    if !names.is_empty() {
        let listed = crate::suggest::listed(names.iter().copied());
        let verb = if names.len() == 1 { "is" } else { "are" };
        let message = format!("{listed} {verb} taken from the caller of `up`, and from no .env");
        findings.warning(span, message).help("set them where `defib up` is called");
    }
}

/// A duration as compose has it: `1m30s`, `1.5h`, `500us`.
pub(super) fn span_of(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Some(micros) = text.strip_suffix("us") {
        return micros.parse().ok().map(Duration::from_micros);
    }
    defib_core::span::parse(text).ok().or_else(|| text.parse().ok().map(Duration::from_secs))
}

fn ending(section: &mut Section, file: &str, own: &mut Table, findings: &mut Findings) {
    if let Some(node) = section.take("stop_signal") {
        let name = scalar_text(&node, file).to_uppercase();
        own.text("stop_signal", node.span, name.strip_prefix("SIG").unwrap_or(&name));
    }
    if let Some(node) = section.take("stop_grace_period") {
        match span_of(&scalar_text(&node, file)) {
            Some(span) => own.duration("stop_timeout", node.span, span),
            None => is_no(node.span, "stop_grace_period", "duration", findings),
        }
    }
}

/// Fewer files or processes than this let nothing run.
const LEAST: i64 = 3;

/// The bound that holds, of a number or of a table of two.
fn soft(node: Node, findings: &mut Findings) -> Option<Node> {
    let span = node.span;
    let Value::Table(entries) = node.value else { return Some(node) };
    let mut section = Section::new("a bound of `ulimits`", entries);
    let soft = section.take("soft");
    no_equal(
        &mut section,
        &[("hard", "the bound is that of `soft`, and nothing raises it")],
        findings,
    );
    section.finish(findings);
    if soft.is_none() {
        findings.warning(span, "this bound has no `soft`").label("passed over");
    }
    soft
}

/// What the system holds it to.
fn bounds(section: &mut Section, file: &str, own: &mut Table, findings: &mut Findings) {
    let mut limits = Table::default();
    if let Some(node) = section.take("mem_limit") {
        let text = settled(&node, file, findings);
        match super::supervisord::size(&text) {
            Some(size) => limits.text("memory", node.span, size),
            None => {
                findings
                    .warning(node.span, format!("{} is no size", quoted(&text)))
                    .label("passed over");
            }
        }
    }
    if let Some(node) = section.take("pids_limit") {
        match settled(&node, file, findings).trim().parse::<i64>() {
            Ok(count) if count > 0 => limits.put("processes", node.span, Value::Integer(count)),
            // As many as there are: an agent has no bound unless it is given one.
            Ok(0 | -1) => {}
            Ok(_) | Err(_) => is_no(node.span, "pids_limit", "number of processes", findings),
        }
    }
    if let Some(mut ulimits) = section.section("ulimits", "`ulimits`", findings) {
        for (theirs, ours) in [("nofile", "files"), ("nproc", "processes")] {
            let Some(node) = ulimits.take(theirs) else { continue };
            let Some(Node { span, value }) = soft(node, findings) else { continue };
            match value.as_integer() {
                Some(count) if count >= LEAST => limits.put(ours, span, Value::Integer(count)),
                Some(-1) => {}
                Some(_) | None => is_no(span, theirs, &format!("number of {ours}"), findings),
            }
        }
        ulimits.finish(findings);
    }
    if let Some(place) = limits.entries.first().map(|entry| entry.key_span) {
        own.table("limits_os", place, limits);
    }
}

fn others(section: &mut Section, file: &str, own: &mut Table, findings: &mut Findings) {
    if let Some(node) = section.take("user") {
        let user = settled(&node, file, findings);
        let name = user.split(':').next().unwrap_or_default();
        if user.contains(':') {
            findings.warning(
                node.span,
                "the group of `user` has no equal: an agent has its user's groups",
            );
        }
        if !name.is_empty() {
            own.text("user", node.span, name);
        }
    }
    if section.bool("tty", findings).is_some_and(|tty| tty.value) {
        own.put("pty", Span::START, Value::Bool(true));
    }
    // Everything that ends here is reaped.
    drop(section.take("init"));
    if let Some(entry) = section.entry("profiles") {
        findings
            .warning(entry.key_span, "`profiles` have no equal: it is started when it is told to")
            .help("`defib start NAME` starts it");
        own.text("trigger", entry.key_span, "manual");
    }
    if let Some(mut logging) = section.section("logging", "`logging`", findings) {
        no_equal(
            &mut logging,
            &[("driver", "output is kept in the daemon's home: `defib logs NAME`")],
            findings,
        );
        if let Some(mut options) = logging.section("options", "`options`", findings) {
            let mut log = Table::default();
            if let Some(node) = options.take("max-size") {
                match super::supervisord::size(&settled(&node, file, findings)) {
                    Some(size) => log.text("max_size", node.span, size),
                    None => is_no(node.span, "max-size", "size", findings),
                }
            }
            if let Some(node) = options.take("max-file") {
                match settled(&node, file, findings).parse::<u32>() {
                    Ok(keep) => log.count("keep", node.span, keep),
                    Err(_) => is_no(node.span, "max-file", "number of files", findings),
                }
            }
            options.finish(findings);
            if let Some(place) = log.entries.first().map(|entry| entry.key_span) {
                own.table("log", place, log);
            }
        }
        logging.finish(findings);
    }
}

/// A list of names, or a table of conditions.
fn depends_on(section: &mut Section, findings: &mut Findings) -> Vec<(String, Span, String)> {
    let Some(node) = section.take("depends_on") else { return Vec::new() };
    let mut after = Vec::new();
    let started = || "service_started".to_owned();
    if let Value::List(items) = node.value {
        for Node { span, value } in items {
            match value.as_text() {
                Some(name) => after.push((name.to_owned(), span, started())),
                None => {
                    findings
                        .warning(span, "an item of `depends_on` is no name")
                        .label("passed over");
                }
            }
        }
    } else if let Value::Table(entries) = node.value {
        for Entry { key, key_span, node } in entries {
            let entries = match node.value {
                Value::Table(entries) => entries,
                Value::Null => Vec::new(),
                Value::Text(_)
                | Value::Bool(_)
                | Value::Integer(_)
                | Value::HugeInteger
                | Value::Float(_)
                | Value::Date
                | Value::List(_) => {
                    is_no(node.span, &key, "table with a `condition`", findings);
                    Vec::new()
                }
            };
            let mut section = Section::new("a dependency", entries);
            let condition = section.text("condition", findings);
            let condition = condition.unwrap_or_else(|| Taken { value: started(), span: key_span });
            no_equal(
                &mut section,
                &[("restart", "`[group.NAME] strategy` restarts agents together")],
                findings,
            );
            if let Some(optional) = section.bool("required", findings).filter(|is| !is.value) {
                let message =
                    "`required: false` has no equal: it waits, whatever becomes of the other";
                findings.warning(optional.span, message).label("passed over");
            }
            section.finish(findings);
            after.push((key, condition.span, condition.value));
        }
    } else {
        is_no(node.span, "depends_on", "list of names and no table of them", findings);
    }
    after
}
