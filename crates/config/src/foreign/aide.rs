//! An `Aidefile`: one agent, with a persona and perhaps a `[daemon]` block.
//!
//! Without that block the agent runs once. What it runs is what the caller says, else what `[run]`
//! says, else Claude with the persona's style as its prompt. The sections that are the runner's
//! affair are known and left to it: what they say is in the environment of the run.

use std::path::Path;
use std::time::Duration;

use crate::diagnostic::Findings;
use crate::lower::name_of_folder;
use crate::source::Span;
use crate::suggest::{nearest, quoted};
use crate::tree::{Entry, Node, Value};

use super::section::{Section, Table, Taken, unsupported};

/// Sections and keys that are the runner's affair.
const RUNNERS: [(&str, &str, &[&str]); 4] = [
    ("memory", "[memory]", &["compact_after"]),
    ("hooks", "[hooks]", &["on_spawn", "on_complete"]),
    ("skills", "[skills]", &["include"]),
    ("output", "[output]", &["max_summary_tokens"]),
];

/// What `[run]` may say, with the same meaning as in a `defib.toml`.
const RUN_KEYS: [&str; 9] =
    ["command", "shell", "cwd", "env", "env_pass", "env_file", "kind", "pty", "stop_timeout"];

pub(super) fn translate(
    entries: Vec<Entry>,
    folder: &Path,
    runner: Option<&str>,
    findings: &mut Findings,
) -> Option<Vec<Entry>> {
    let mut file = Section::new("an Aidefile", entries);
    let mut out = Table::default();
    file.hand_over(&["project", "notify", "server", "history"], &mut out);
    let (name, style) = persona(&mut file, folder, findings)?;
    let mut own = Table::default();
    let mut env = Table::default();
    own.text("preset", name.span, "aide");
    env.text("AIDE_PERSONA", name.span, name.value.1.clone());
    if let Some(style) = &style {
        env.text("AIDE_STYLE", style.span, style.value.clone());
    }
    trigger(&mut file, &mut own, findings);
    daemon(&mut file, &mut own, name.span, findings);
    let counted = budget(&mut file, &mut own, &mut env, findings);
    run(&mut file, &mut own, &mut env, runner, findings);
    if !own.has("command") {
        claude(&mut own, &name, style.as_ref(), counted);
    }
    vault(&mut file, &mut own, name.span, findings);
    for (key, shown, keys) in RUNNERS {
        if let Some(mut section) = file.section(key, shown, findings) {
            for key in keys {
                drop(section.take(key));
            }
            section.finish(findings);
        }
    }
    file.finish(findings);
    own.table("env", name.span, env);
    let mut agents = Table::default();
    agents.table(&name.value.0, name.span, own);
    out.table("agent", name.span, agents);
    Some(out.entries)
}

/// The agent's name and the persona's, which may be any text; and its style.
type Persona = (Taken<(String, String)>, Option<Taken<String>>);

fn persona(file: &mut Section, folder: &Path, findings: &mut Findings) -> Option<Persona> {
    let mut name = None;
    let mut style = None;
    if let Some(mut persona) = file.section("persona", "[persona]", findings) {
        name = persona.text("name", findings);
        style = persona.text("style", findings);
        persona.finish(findings);
    }
    let Taken { value: shown, span } = name.unwrap_or_else(|| {
        let folder = folder.file_name().unwrap_or_default().to_string_lossy();
        Taken { value: folder.into_owned(), span: Span::START }
    });
    let plain: String = shown
        .chars()
        .map(|c| if c.is_alphanumeric() || "._".contains(c) { c } else { '-' })
        .collect();
    let Some(name) = name_of_folder(plain.trim_matches('-')) else {
        findings
            .error(span, format!("{} cannot be an agent's name", quoted(&shown)))
            .help("set `[persona]` with `name = \"…\"`");
        return None;
    };
    Some((Taken { value: (name.to_string(), shown), span }, style))
}

fn trigger(file: &mut Section, own: &mut Table, findings: &mut Findings) {
    let Some(mut section) = file.section("trigger", "[trigger]", findings) else { return };
    if let Some(Taken { value, span }) = section.text("on", findings) {
        match value.as_str() {
            "manual" | "boot" => own.text("trigger", span, value),
            cron if cron.starts_with("cron:") => own.text("trigger", span, value),
            event if event == "issue" || event.starts_with("webhook") => {
                let instead = "start it with `defib start`, or over the API";
                unsupported(span, &format!("a trigger by {}", quoted(event)), instead, findings);
                own.text("trigger", span, "manual");
            }
            // The check of a trigger says what is wrong with it.
            _ => own.text("trigger", span, value),
        }
    }
    section.finish(findings);
}

fn daemon(file: &mut Section, own: &mut Table, span: Span, findings: &mut Findings) {
    let has_block = file.has("daemon");
    let Some(mut section) = file.section("daemon", "[daemon]", findings) else {
        if !has_block {
            own.text("restart", span, "never");
        }
        return;
    };
    if let Some(restart) = section.text("restart", findings) {
        own.text("restart", restart.span, restart.value);
    }
    if let Some(max) = section.count("max_restarts", findings) {
        let mut limit = Table::default();
        limit.count("restarts", max.span, max.value);
        limit.put("consecutive", max.span, Value::Bool(true));
        own.limit(max.span, limit);
    }
    if let Some(Taken { value, span }) = section.text("backoff", findings) {
        let kinds = ["exponential", "linear", "fixed"];
        if kinds.contains(&value.as_str()) {
            let mut backoff = Table::default();
            backoff.text("kind", span, value);
            own.table("backoff", span, backoff);
        } else {
            let diagnostic = findings.error(span, format!("{} is no backoff", quoted(&value)));
            diagnostic.help(match nearest(&value, kinds) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "there are `exponential`, `linear` and `fixed`".to_owned(),
            });
        }
    }
    section.finish(findings);
}

/// Gives whether tokens are counted.
fn budget(file: &mut Section, own: &mut Table, env: &mut Table, findings: &mut Findings) -> bool {
    let Some(mut section) = file.section("budget", "[budget]", findings) else { return false };
    let mut counted = false;
    if let Some(Node { span, value }) = section.take("tokens") {
        let whole = value.as_integer().and_then(|tokens| u64::try_from(tokens).ok());
        let amount = whole.or_else(|| tokens(value.as_text()?));
        if let Some(amount) = amount {
            counted = true;
            let mut per_run = Table::default();
            let limit = i64::try_from(amount).unwrap_or(i64::MAX);
            per_run.put("tokens", span, Value::Integer(limit));
            let mut bounds = Table::default();
            bounds.table("per_run", span, per_run);
            own.table("budget", span, bounds);
            env.text("AIDE_TOKENS", span, amount.to_string());
        } else {
            findings
                .error(span, "`tokens` is no number of tokens")
                .help("for example: `tokens = \"200k\"`, \"1m\" or 500000");
        }
    }
    if let Some(retries) = section.count("max_retries", findings) {
        env.text("AIDE_MAX_RETRIES", retries.span, retries.value.to_string());
    }
    if let Some(Node { span, value }) = section.take("timeout") {
        match value.as_integer().filter(|seconds| *seconds > 0) {
            Some(seconds) => {
                own.duration("max_runtime", span, Duration::from_secs(seconds.unsigned_abs()));
            }
            // The check of a duration says what is wrong with it.
            None => own.put("max_runtime", span, value),
        }
    }
    section.finish(findings);
    counted
}

/// A number of tokens as an Aidefile writes it: `200k`, `1.5m`, `500000`.
fn tokens(text: &str) -> Option<u64> {
    let text = text.trim().to_lowercase().replace('_', "");
    let (digits, scale) = match text.strip_suffix(['k', 'm']) {
        Some(digits) => (digits, if text.ends_with('k') { 1e3 } else { 1e6 }),
        None => (text.as_str(), 1.0),
    };
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let amount = digits.parse::<f64>().ok().filter(|_| plain)? * scale;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "digits are not negative, and a cast of a float that is too large saturates"
    )]
    let amount = amount.round() as u64;
    Some(amount)
}

/// What is run, where the caller or `[run]` says so.
fn run(
    file: &mut Section,
    own: &mut Table,
    env: &mut Table,
    runner: Option<&str>,
    findings: &mut Findings,
) {
    let mut said = Table::default();
    if let Some(mut section) = file.section("run", "[run]", findings) {
        section.hand_over(&RUN_KEYS, &mut said);
        section.finish(findings);
    }
    if let Some(runner) = runner {
        own.text("command", Span::START, runner);
    }
    for Entry { key, node, .. } in said.entries {
        let replaced = runner.is_some() && matches!(key.as_str(), "command" | "shell");
        match (key.as_str(), node.value) {
            _ if replaced => {}
            ("env", Value::Table(entries)) => env.entries.extend(entries),
            (key, value) => own.put(key, node.span, value),
        }
    }
}

/// Claude, with the persona's style as its prompt.
fn claude(
    own: &mut Table,
    name: &Taken<(String, String)>,
    style: Option<&Taken<String>>,
    counted: bool,
) {
    let (span, prompt) = match style {
        Some(style) => (style.span, style.value.clone()),
        None => (name.span, format!("You are {}.", name.value.1)),
    };
    let mut words = vec!["claude".to_owned(), "-p".to_owned(), prompt];
    if counted {
        // Only in this form does it say what it spends.
        words.extend(["--output-format", "stream-json", "--verbose"].map(str::to_owned));
    }
    own.texts("command", span, words);
    pass(own, span, ["ANTHROPIC_*", "CLAUDE_CONFIG_*", "*_PROXY"].map(str::to_owned));
}

/// The secrets that it wants, from the caller's environment.
fn vault(file: &mut Section, own: &mut Table, span: Span, findings: &mut Findings) {
    let Some(mut vault) = file.section("vault", "[vault]", findings) else { return };
    if let Some(Node { span: place, value }) = vault.take("keys") {
        let mut names = Vec::new();
        let keys = if let Value::List(keys) = value {
            keys
        } else {
            let message = format!("`keys` must be a list of strings, not {}", value.sort());
            findings.error(place, message).help("for example: `keys = [\"GITHUB_TOKEN\"]`");
            Vec::new()
        };
        for key in &keys {
            if let Some(name) = key.value.as_text() {
                names.push(name);
            } else {
                let message = format!("a key must be a string, not {}", key.value.sort());
                findings.error(key.span, message);
            }
        }
        // A secret that is not there does not keep the agent down: whether it can do without is the
        // runner's affair.
        pass(own, span, names.into_iter().map(|name| format!("{name}?")));
    }
    vault.finish(findings);
}

/// Adds to what is taken from the caller's environment.
fn pass(own: &mut Table, span: Span, names: impl IntoIterator<Item = String>) {
    let item = |text| Node { span, value: Value::Text(text) };
    let known = own.entries.iter_mut().find(|entry| entry.key == "env_pass");
    match known.map(|entry| &mut entry.node.value) {
        Some(Value::List(items)) => items.extend(names.into_iter().map(item)),
        _ => own.texts("env_pass", span, names),
    }
}

#[cfg(test)]
mod tests {
    use super::tokens;

    #[test]
    fn tokens_are_read_as_people_write_them() {
        for (text, amount) in [
            ("200k", Some(200_000)),
            ("1m", Some(1_000_000)),
            ("1.5M", Some(1_500_000)),
            ("500000", Some(500_000)),
            ("500_000", Some(500_000)),
            ("0k", Some(0)),
            ("", None),
            ("k", None),
            ("many", None),
            ("-5k", None),
        ] {
            assert_eq!(tokens(text), amount, "{text}");
        }
    }
}
