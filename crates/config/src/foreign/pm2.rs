//! A PM2 ecosystem: `apps`, as JSON or YAML.
//!
//! PM2 starts an app again whenever it ends, at once, and gives up after `max_restarts` lives shorter
//! than `min_uptime` in a row. JSON there may have comments and commas too many, because PM2 runs it
//! as a script; a real script is refused, with the way to make JSON of it.

use std::time::Duration;

use crate::diagnostic::Findings;
use crate::source::Span;
use crate::suggest::quoted;
use crate::tree::{Entry, Node, Value};

use super::phrase::{Launch, Phrase};
use super::section::{Section, Table, Taken, no_equal, scalar_text};
use super::{json, named_alike, yaml};

/// What PM2 has where nothing is said.
const MIN_UPTIME: Duration = Duration::from_secs(1);
const MAX_RESTARTS: u32 = 16;
const KILL_TIMEOUT: Duration = Duration::from_millis(1600);
const LONGEST_BACKOFF: Duration = Duration::from_secs(15);

/// More instances than anybody means are a slip of the pen.
const MOST_INSTANCES: i64 = 1000;

const WITHOUT_EQUAL: [(&str, &str); 37] = [
    ("watch", "agents are not restarted when files change"),
    ("ignore_watch", "agents are not restarted when files change"),
    ("watch_delay", "agents are not restarted when files change"),
    ("watch_options", "agents are not restarted when files change"),
    ("exec_mode", "instances are processes of their own and share no port"),
    ("wait_ready", "a program says READY=1 on NOTIFY_SOCKET: `ready = \"notify\"`"),
    ("listen_timeout", "`ready = \"notify\"` or a probe says when an agent is ready"),
    ("shutdown_with_message", "an agent is asked by `stop_signal`"),
    ("out_file", "output is kept in the daemon's home: `defib logs NAME`"),
    ("output", "output is kept in the daemon's home: `defib logs NAME`"),
    ("error_file", "both outputs are kept together, in order"),
    ("error", "both outputs are kept together, in order"),
    ("out", "output is kept in the daemon's home: `defib logs NAME`"),
    ("log", "output is kept in the daemon's home: `defib logs NAME`"),
    ("log_file", "output is kept in the daemon's home: `defib logs NAME`"),
    ("log_type", "output is kept as it was written"),
    ("log_date_format", "output is kept as it was written"),
    ("time", "output is kept as it was written"),
    ("merge_logs", "each agent has a log of its own"),
    ("combine_logs", "each agent has a log of its own"),
    ("disable_logs", "output is always kept, as far as `log` says"),
    ("pid_file", "`defib status --json` says the pid"),
    ("pid", "`defib status --json` says the pid"),
    ("gid", "an agent has its user's groups"),
    ("namespace", "the project is what agents have in common"),
    ("vizion", "no version control is asked"),
    ("post_update", "nothing is pulled"),
    ("source_map_support", "pass `--enable-source-maps` to node"),
    ("instance_var", "each instance has NODE_APP_INSTANCE"),
    ("increment_var", "set the variable for each instance"),
    ("filter_env", "an agent has a clean environment, and what it names"),
    ("append_env_to_name", "agents are called as they are named"),
    ("force", "a name stands for one agent"),
    ("treekill", "a run is always killed with all its descendants"),
    ("pmx", "`GET /metrics` has the figures"),
    ("automation", "`GET /metrics` has the figures"),
    ("disable_trace", "no trace is taken"),
];

/// Names that PM2 takes for others.
const ALIASES: [(&str, &str); 9] = [
    ("exec", "script"),
    ("node_args", "interpreter_args"),
    ("interpreterArgs", "interpreter_args"),
    ("nodeArgs", "interpreter_args"),
    ("exec_interpreter", "interpreter"),
    ("env_vars", "env"),
    ("cron", "cron_restart"),
    ("restartDelay", "restart_delay"),
    ("killTimeout", "kill_timeout"),
];

pub(super) fn translate(text: &str, findings: &mut Findings) -> Option<Vec<Entry>> {
    let mut file = Section::new("an ecosystem", read(text, findings)?);
    let apps = file.take("apps");
    no_equal(&mut file, &[("deploy", "nothing is deployed")], findings);
    let apps = match apps {
        Some(Node { value: Value::List(apps), .. }) => apps,
        Some(node @ Node { value: Value::Table(_), .. }) => vec![node],
        // A file may be one app.
        None if file.has("script") => {
            let entries = file.into_entries();
            return finished(
                vec![Node { span: Span::START, value: Value::Table(entries) }],
                text,
                findings,
            );
        }
        Some(Node { span, value }) => {
            findings.error(span, format!("`apps` must be a list, not {}", value.sort()));
            return None;
        }
        None => {
            findings
                .error(Span::START, "this file has no `apps`")
                .help("an ecosystem is `{ \"apps\": [{ \"name\": …, \"script\": … }] }`");
            return None;
        }
    };
    file.finish(findings);
    finished(apps, text, findings)
}

fn finished(apps: Vec<Node>, text: &str, findings: &mut Findings) -> Option<Vec<Entry>> {
    let mut agents = Table::default();
    for Node { span, value } in apps {
        let Value::Table(entries) = value else {
            findings.error(span, format!("an app must be a table, not {}", value.sort()));
            continue;
        };
        app(entries, span, text, &mut agents, findings);
    }
    if agents.is_empty() {
        findings.error(Span::START, "this file declares no app");
        return None;
    }
    let mut out = Table::default();
    out.table("agent", Span::START, agents);
    Some(out.entries)
}

fn read(text: &str, findings: &mut Findings) -> Option<Vec<Entry>> {
    let plain = without_comments(text);
    let body = plain.trim_start_matches('\u{feff}').trim_start();
    if body.starts_with('[') {
        let span = Span { start: plain.len() - body.len(), end: plain.len() };
        let Node { value, .. } = json::read_any(&plain, findings)?;
        let node = Node { span, value };
        return Some(vec![Entry { key: "apps".to_owned(), key_span: span, node }]);
    }
    if body.starts_with('{') {
        return json::read(&plain, findings);
    }
    if ["module.exports", "export default", "require(", "const "]
        .iter()
        .any(|word| text.contains(word))
    {
        findings
            .error(Span::START, "this is a script, and scripts are not run here")
            .help(
                "make JSON of it first: node -p 'JSON.stringify(require(\"./ecosystem.config.js\"))' > ecosystem.json",
            );
        return None;
    }
    yaml::read(text, findings)
}

/// The text with spaces for comments and for commas before a closing bracket, so that places stay.
fn without_comments(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let mut at = 0;
    let mut comma = None;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                comma = None;
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                while at < bytes.len() && bytes[at] != b'\n' {
                    bytes[at] = b' ';
                    at += 1;
                }
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                let end = text.as_bytes()[at..].windows(2).skip(2).position(|pair| pair == b"*/");
                let end = end.map_or(bytes.len(), |end| at + end + 4);
                for byte in &mut bytes[at..end] {
                    if *byte != b'\n' {
                        *byte = b' ';
                    }
                }
                at = end;
                continue;
            }
            b',' => comma = Some(at),
            b']' | b'}' => {
                if let Some(comma) = comma.take() {
                    bytes[comma] = b' ';
                }
            }
            byte if byte.is_ascii_whitespace() => {}
            _ => comma = None,
        }
        at += 1;
    }
    // Whole comments are blanked, from their first byte to their last, so this stays UTF-8.
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

fn app(entries: Vec<Entry>, span: Span, text: &str, agents: &mut Table, findings: &mut Findings) {
    let mut app = Section::new("an app", entries);
    for (alias, name) in ALIASES {
        if let Some(entry) = app.entry(alias) {
            app.give_back(Entry { key: name.to_owned(), ..entry });
        }
    }
    let script = app.text("script", findings);
    let name = app.text("name", findings);
    let Some(words) = words(&mut app, script.as_ref(), span, findings) else { return };
    let name = name.unwrap_or_else(|| {
        let program = script.map_or_else(String::new, |script| script.value);
        let file = program.rsplit('/').next().unwrap_or(&program);
        let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
        Taken { value: stem.to_owned(), span }
    });
    let mut launch = Launch { words, ..Launch::default() };
    if let Some(cwd) = app.text("cwd", findings) {
        launch.cwd = Some((cwd.span, Phrase::plain(cwd.value)));
    }
    for Entry { key, key_span, node } in
        app.section("env", "`env`", findings).map_or_else(Vec::new, Section::into_entries)
    {
        launch.env.push((key, key_span, Phrase::plain(scalar_text(&node, text))));
    }
    let instances = instances(&mut app, findings);
    let mut common = Table::default();
    policy(&mut app, span, &mut common, findings);
    ending(&mut app, span, &mut common, findings);
    other_environments(&mut app, findings);
    drop_usual(&mut app);
    no_equal(&mut app, &WITHOUT_EQUAL, findings);
    app.finish(findings);
    for index in 0..instances {
        let mut own = Table::default();
        let mut one = launch.clone();
        let wanted = if instances > 1 {
            one.env.push(("NODE_APP_INSTANCE".to_owned(), span, Phrase::plain(index.to_string())));
            format!("{}-{index}", name.value)
        } else {
            name.value.clone()
        };
        one.write(span, &mut own);
        own.entries.extend(common.copied());
        let wanted = named_alike(&wanted, name.span, agents, findings);
        agents.table(&wanted, name.span, own);
    }
}

/// The interpreter, its arguments, the script and its arguments.
fn words(
    app: &mut Section,
    script: Option<&Taken<String>>,
    span: Span,
    findings: &mut Findings,
) -> Option<Vec<Phrase>> {
    let interpreter = app.text("interpreter", findings);
    let before_at = app.place("interpreter_args");
    let before = arguments(app, "interpreter_args", findings);
    let after = arguments(app, "args", findings);
    let Some(script) = script else {
        findings
            .error(span, "this app has no `script`")
            .help("for example: `\"script\": \"app.js\"`");
        return None;
    };
    let extension = script.value.rsplit('/').next().and_then(|file| file.rsplit_once('.'));
    let usual = match extension.map(|(_, extension)| extension) {
        Some("js" | "cjs" | "mjs") => Some("node"),
        Some("ts" | "tsx") => Some("bun"),
        Some("py") => Some("python3"),
        Some("sh") => Some("bash"),
        Some("rb") => Some("ruby"),
        Some("php") => Some("php"),
        Some("pl") => Some("perl"),
        Some(_) | None => None,
    };
    let interpreter = interpreter.map(|interpreter| interpreter.value);
    let interpreter = match interpreter.as_deref() {
        Some("none" | "") => None,
        Some(interpreter) => Some(interpreter.to_owned()),
        None => usual.map(str::to_owned),
    };
    if let Some(place) = before_at.filter(|_| interpreter.is_none()) {
        let message = "`interpreter_args` is for an interpreter, and this script has none";
        findings.warning(place, message).label("passed over");
    }
    let mut words = Vec::new();
    if let Some(interpreter) = interpreter {
        words.push(interpreter);
        words.extend(before);
        words.push(script.value.clone());
    } else if script.value.contains(' ') && extension.is_none() {
        words.extend(split("script", &script.value, script.span, findings));
    } else {
        words.push(script.value.clone());
    }
    words.extend(after);
    Some(words.into_iter().map(Phrase::plain).collect())
}

/// A list of words, or a text of them.
fn arguments(app: &mut Section, key: &'static str, findings: &mut Findings) -> Vec<String> {
    let Some(Node { span, value }) = app.take(key) else { return Vec::new() };
    if let Value::List(items) = value {
        return items.iter().map(|item| scalar_text(item, "")).collect();
    }
    let Some(line) = value.as_text() else {
        let message = format!("`{key}` must be a list or a string, not {}", value.sort());
        findings.warning(span, message).label("passed over");
        return Vec::new();
    };
    split(key, line, span, findings)
}

/// The words of a line; one whose quotes do not match has those between its spaces.
fn split(key: &str, line: &str, span: Span, findings: &mut Findings) -> Vec<String> {
    shlex::split(line).unwrap_or_else(|| {
        findings.warning(span, format!("`{key}` has a quote that is not closed"));
        line.split_whitespace().map(str::to_owned).collect()
    })
}

fn instances(app: &mut Section, findings: &mut Findings) -> i64 {
    let Some(Node { span, value }) = app.take("instances") else { return 1 };
    let number = value.as_integer().or_else(|| value.as_text()?.trim().parse().ok());
    match number {
        Some(number) if (1..=MOST_INSTANCES).contains(&number) => number,
        Some(_) | None => {
            let shown = number
                .map_or_else(|| value.as_text().unwrap_or("this").to_owned(), |n| n.to_string());
            let message = format!("`instances` is {}; here it is 1", quoted(&shown));
            findings.warning(span, message).help("declare as many agents as there shall be");
            1
        }
    }
}

/// Milliseconds, or a text such as `10s`.
fn span_of(node: &Node) -> Option<Duration> {
    if let Some(number) = node.value.as_number() {
        return Duration::try_from_secs_f64(number / 1000.0).ok();
    }
    let text = node.value.as_text()?.trim();
    match text.parse::<u64>() {
        Ok(millis) => Some(Duration::from_millis(millis)),
        Err(_) => defib_core::span::parse(text).ok(),
    }
}

fn millis(
    app: &mut Section,
    key: &'static str,
    findings: &mut Findings,
) -> Option<Taken<Duration>> {
    let node = app.take(key)?;
    let Some(value) = span_of(&node) else {
        let message = format!("`{key}` is no number of milliseconds");
        findings.warning(node.span, message).label("passed over");
        return None;
    };
    Some(Taken { value, span: node.span })
}

fn policy(app: &mut Section, place: Span, own: &mut Table, findings: &mut Findings) {
    let again = app.bool("autorestart", findings);
    let mode = again.map_or("always", |again| if again.value { "always" } else { "never" });
    let cron = app.text("cron_restart", findings).filter(|cron| cron.value != "0");
    let codes = app.take("stop_exit_codes");
    own.text("restart", again.map_or(place, |again| again.span), mode);
    if let Some(codes) = codes {
        stop_exit_codes(codes, own, findings);
    }
    match cron {
        Some(cron) if mode == "never" => {
            own.text("trigger", cron.span, format!("cron:{}", cron.value));
        }
        Some(cron) => {
            findings
                .warning(
                    cron.span,
                    "`cron_restart` has no equal: a running agent is not restarted by the clock",
                )
                .help("`max_runtime` bounds a run; `trigger = \"cron:…\"` starts one");
        }
        None => {}
    }
    if app.has("autostart")
        && app.bool("autostart", findings).is_some_and(|auto| !auto.value)
        && !own.has("trigger")
    {
        own.text("trigger", place, "manual");
    }
    let stays = millis(app, "min_uptime", findings);
    own.duration(
        "stable_after",
        stays.map_or(place, |s| s.span),
        stays.map_or(MIN_UPTIME, |s| s.value),
    );
    let max = app.count("max_restarts", findings);
    let (max, at) = max.map_or((MAX_RESTARTS, place), |max| (max.value, max.span));
    let mut limit = Table::default();
    limit.count("restarts", at, max);
    limit.put("consecutive", at, Value::Bool(true));
    own.limit(at, limit);
    backoff(app, place, own, findings);
    if let Some(Node { span, value }) = app.take("max_memory_restart") {
        let text = value.as_text().and_then(super::supervisord::size);
        let size = text.or_else(|| value.as_integer().filter(|n| *n > 0).map(|n| n.to_string()));
        match size {
            Some(size) => {
                findings.warning(
                    span,
                    "`max_memory_restart` becomes a bound of the system's: a run that passes it is killed, not asked",
                );
                let mut bounds = Table::default();
                bounds.text("memory", span, size);
                own.table("limits_os", span, bounds);
            }
            None => {
                findings.warning(span, "`max_memory_restart` is no size").label("passed over");
            }
        }
    }
}

/// PM2 leaves an app alone after these. Where a plain end is among them, only failures restart it.
fn stop_exit_codes(node: Node, own: &mut Table, findings: &mut Findings) {
    let span = node.span;
    let nodes = if let Value::List(nodes) = node.value { nodes } else { vec![node] };
    let mut codes = Vec::new();
    for node in nodes {
        match node.value.as_integer().and_then(|code| u8::try_from(code).ok()) {
            Some(code) => codes.push(code),
            None => {
                findings.warning(node.span, "this is no exit code").label("passed over");
            }
        }
    }
    let always =
        own.entries.iter().any(|e| e.key == "restart" && e.node.value.as_text() == Some("always"));
    let class = if codes.contains(&0) || !always { "done" } else { "config" };
    if codes.contains(&0) && always {
        own.entries.retain(|entry| entry.key != "restart");
        own.text("restart", span, "on-failure");
    }
    let mut table = Table::default();
    for code in codes.iter().filter(|code| **code != 0) {
        table.text(&code.to_string(), span, class);
    }
    if table.is_empty() {
        return;
    }
    own.table("exit_codes", span, table);
    if class == "config" {
        let mut on = Table::default();
        on.text("config", span, "rest");
        own.table("on", span, on);
    }
}

fn backoff(app: &mut Section, place: Span, own: &mut Table, findings: &mut Findings) {
    let fixed = millis(app, "restart_delay", findings).filter(|delay| !delay.value.is_zero());
    let grows =
        millis(app, "exp_backoff_restart_delay", findings).filter(|delay| !delay.value.is_zero());
    let mut backoff = Table::default();
    let span = match (grows, fixed) {
        (Some(Taken { value, span }), _) => {
            backoff.text("kind", span, "exponential");
            backoff.duration("base", span, value);
            backoff.put("factor", span, Value::Float(1.5));
            backoff.duration("cap", span, value.max(LONGEST_BACKOFF));
            span
        }
        (None, Some(Taken { value, span })) => {
            backoff.text("kind", span, "fixed");
            backoff.duration("base", span, value);
            backoff.duration("cap", span, value);
            span
        }
        (None, None) => {
            backoff.text("kind", place, "none");
            place
        }
    };
    if grows.is_some() || fixed.is_some() {
        backoff.put("jitter", span, Value::Float(0.0));
    }
    own.table("backoff", span, backoff);
}

fn ending(app: &mut Section, place: Span, own: &mut Table, findings: &mut Findings) {
    let wait = millis(app, "kill_timeout", findings);
    own.duration(
        "stop_timeout",
        wait.map_or(place, |w| w.span),
        wait.map_or(KILL_TIMEOUT, |w| w.value),
    );
    // PM2 asks by SIGINT.
    own.text("stop_signal", place, "INT");
    for key in ["uid", "user"] {
        if let Some(node) = app.take(key) {
            own.text("user", node.span, scalar_text(&node, ""));
        }
    }
}

/// `env_production` and the like count only where PM2 is told so.
fn other_environments(app: &mut Section, findings: &mut Findings) {
    for entry in app.take_all(|key| key.starts_with("env_")) {
        let word = entry.key.trim_start_matches("env_").to_owned();
        let message = format!("`{}` counts with `--env {word}` only, and is left out", entry.key);
        findings.warning(entry.key_span, message).help("move what you need of it to `env`");
    }
}

/// What says what is so anyway needs no comment.
fn drop_usual(app: &mut Section) {
    for key in [
        "watch",
        "vizion",
        "merge_logs",
        "combine_logs",
        "time",
        "wait_ready",
        "treekill",
        "exec_mode",
    ] {
        if let Some(entry) = app.entry(key) {
            let forks = matches!(entry.node.value.as_text(), Some("fork" | "fork_mode"));
            let usual = key == "treekill";
            let usual = forks || matches!(entry.node.value, Value::Bool(flag) if flag == usual);
            if !usual {
                app.give_back(entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_commas_are_blanked_and_places_stay() {
        let text = "{ // é\n \"a\": \"// no\", /* x\n y */ \"b\": [1, 2,], }";
        let plain = without_comments(text);
        assert_eq!(plain.len(), text.len());
        assert_eq!(plain.find("\"b\""), text.find("\"b\""));
        assert!(serde_json::from_str::<serde_json::Value>(&plain).is_ok(), "{plain}");
        for odd in ["/*", "/*/", "//", "\"\\", ",]", "/", "[,/**/]"] {
            assert_eq!(without_comments(odd).len(), odd.len());
        }
    }
}
