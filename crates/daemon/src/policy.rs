//! A policy as a file says it: the keys of an agent's table that decide about its deaths.
//!
//! What is written here and read again is the same policy; a test holds that for every rule set.

use std::fmt::Write as _;
use std::path::Path;

use defib_config::config::Agent;
use defib_config::{Config, Report};
use defib_core::backoff::Growth;
use defib_core::limit::{Measure, Span, Then};
use defib_core::policy::{Mode, Order, Policy};
use defib_core::span::Shown;
use defib_core::{Name, Preset};
use serde_json::{Map, Value};

use crate::wire::{ErrorCode, ErrorDetail};

/// The lines that give a policy over a rule set.
pub(crate) fn written(preset: Preset, policy: &Policy) -> String {
    let usual = preset.policy();
    let mode = match policy.mode {
        Mode::Always => "always",
        Mode::OnFailure => "on-failure",
        Mode::Never => "never",
    };
    // A String takes whatever is written to it.
    let mut text = format!("preset = \"{preset}\"\nrestart = \"{mode}\"\n");
    let backoff = &policy.backoff;
    let kind = match backoff.growth {
        Growth::Exponential => "exponential",
        Growth::Linear => "linear",
        Growth::Fixed => "fixed",
        Growth::None => "none",
    };
    let _ = writeln!(
        text,
        "backoff = {{ kind = \"{kind}\", base = \"{}\", factor = {:?}, cap = \"{}\", jitter = {:?}, \
         first_exponent = {} }}",
        Shown(backoff.base),
        backoff.factor,
        Shown(backoff.cap),
        backoff.jitter,
        backoff.first_exponent
    );
    let limits: Vec<String> = policy
        .limits
        .iter()
        .map(|limit| {
            let what = match limit.measure {
                Measure::Deaths => "deaths",
                Measure::Restarts => "restarts",
            };
            let span = match limit.span {
                Span::Rolling(within) => format!(", within = \"{}\"", Shown(within)),
                Span::Tumbling(within) => {
                    format!(", within = \"{}\", window = \"tumbling\"", Shown(within))
                }
                Span::Consecutive => ", consecutive = true".to_owned(),
                Span::Lifetime => String::new(),
            };
            let then = match limit.then {
                Then::CrashOut => "",
                Then::Escalate => ", then = \"escalate\"",
            };
            format!("{{ {what} = {}{span}{then} }}", limit.max)
        })
        .collect();
    let _ = writeln!(text, "limits = [{}]", limits.join(", "));
    if policy.stable_after != usual.stable_after || policy.reset != usual.reset {
        let _ = writeln!(text, "stable_after = \"{}\"", Shown(policy.stable_after));
    }
    if let Some(heartbeat) = policy.heartbeat {
        let (ttl, grace) = (Shown(heartbeat.ttl), Shown(heartbeat.grace));
        let _ = writeln!(text, "heartbeat = {{ ttl = \"{ttl}\", grace = \"{grace}\" }}");
    }
    if let Some(silent_for) = policy.silent_for {
        let _ = writeln!(text, "hang = {{ silent_for = \"{}\" }}", Shown(silent_for));
    }
    if let Some(max_runtime) = policy.max_runtime {
        let _ = writeln!(text, "max_runtime = \"{}\"", Shown(max_runtime));
    }
    let codes: Vec<String> = policy
        .exit_codes
        .iter()
        .map(|(code, class)| format!("{code} = \"{}\"", class.word()))
        .collect();
    if !codes.is_empty() {
        let _ = writeln!(text, "exit_codes = {{ {} }}", codes.join(", "));
    }
    let on: Vec<String> = policy
        .on
        .iter()
        .map(|(class, order)| {
            let order = match order {
                Order::Restart => "restart",
                Order::Wait => "wait",
                Order::Rest => "rest",
                Order::Halt => "halt",
            };
            format!("{class} = \"{order}\"")
        })
        .collect();
    if !on.is_empty() {
        let _ = writeln!(text, "on = {{ {} }}", on.join(", "));
    }
    text
}

/// How an agent is declared in a request: lines of a file, or the same as JSON.
pub(crate) enum Declared<'a> {
    /// The lines under `[agent.NAME]`.
    Toml(&'a str),
    /// The keys of that table.
    Json(&'a Map<String, Value>),
}

/// The file that declares one agent in a project of its name, and what it says.
pub(crate) fn declare(
    folder: &Path,
    name: &Name,
    declared: &Declared<'_>,
) -> Result<(String, Config), ErrorDetail> {
    let quoted = Value::from(name.as_str()).to_string();
    let head = format!("[project]\nname = {quoted}\n\n[agent.{quoted}]\n");
    let lines = match declared {
        Declared::Toml(lines) => (*lines).to_owned(),
        Declared::Json(keys) => {
            let lines = keys.iter().filter(|(_, value)| !value.is_null());
            lines.map(|(key, value)| format!("{} = {}\n", key_of(key), toml(value))).collect()
        }
    };
    let text = format!("{head}{lines}");
    let outcome = defib_config::parse_in(folder, &text);
    if let Some(config) = outcome.config {
        return Ok((text, config));
    }
    let above = head.lines().count();
    let report = Report::new("request", &text, &outcome.diagnostics);
    let told = report.told();
    let errors: Vec<String> = told
        .iter()
        .map(|one| format!("line {}: {}", one.line.saturating_sub(above).max(1), one.message))
        .collect();
    let hint = told.iter().find_map(|one| one.help).map(str::to_owned);
    Err(ErrorDetail { code: ErrorCode::Config, message: errors.join("; "), hint })
}

/// The one agent that a config declares.
pub(crate) fn only(config: Config) -> Option<Agent> {
    config.agents.into_iter().next()
}

/// A key as TOML writes it. Every JSON string is a TOML string.
fn key_of(key: &str) -> String {
    Value::from(key).to_string()
}

/// A JSON value as TOML writes it. A null has no form there, and is left out by whoever holds it.
fn toml(value: &Value) -> String {
    match value {
        Value::Null => "\"\"".to_owned(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(toml).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(keys) => {
            let keys = keys.iter().filter(|(_, value)| !value.is_null());
            let pairs: Vec<String> =
                keys.map(|(key, value)| format!("{} = {}", key_of(key), toml(value))).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use defib_core::Class;
    use defib_core::limit::Limit;
    use std::time::Duration;

    fn read(lines: &str) -> Agent {
        let name = Name::parse("a").unwrap();
        let lines = format!("command = [\"true\"]\n{lines}");
        let declared = declare(Path::new("/"), &name, &Declared::Toml(&lines));
        only(declared.map_err(|error| error.message).unwrap().1).unwrap()
    }

    #[test]
    fn a_policy_that_is_written_and_read_is_the_same() {
        for preset in Preset::ALL {
            let mut policy = preset.policy();
            assert_eq!(*read(&written(preset, &policy)).policy, policy, "{preset}");
            policy.mode = Mode::Always;
            policy.backoff.base = Duration::from_millis(250);
            policy.limits =
                vec![Limit::restarts(7, Span::Consecutive), Limit::restarts(9, Span::Lifetime)];
            policy.on.insert(Class::Quota, Order::Halt);
            policy.exit_codes.insert(75, Class::Quota);
            policy.max_runtime = Some(Duration::from_secs(5400));
            policy.silent_for = Some(Duration::from_secs(900));
            let agent = read(&written(preset, &policy));
            assert_eq!((agent.preset, &*agent.policy), (preset, &policy), "{preset}");
        }
    }

    #[test]
    fn json_says_the_same_as_a_file() {
        let keys = serde_json::json!({
            "command": ["sh", "-c", "echo \"é\"\n"],
            "backoff": { "kind": "fixed", "base": "2s" },
            "limits": [{ "deaths": 3, "within": "1m" }],
            "env": { "A.B": "c" },
            "user": null,
        });
        let name = Name::parse("a").unwrap();
        let declared = declare(Path::new("/"), &name, &Declared::Json(keys.as_object().unwrap()));
        let agent = only(declared.unwrap().1).unwrap();
        assert_eq!(agent.policy.backoff.base, Duration::from_secs(2));
        assert_eq!(agent.env["A.B"], "c");
        assert_eq!(crate::recipe::argv(&agent.command)[2], "echo \"é\"\n");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let name = Name::parse("a").unwrap();
        let lines = "command = [\"true\"]\nrestart = \"sometimes\"\n";
        let error = declare(Path::new("/"), &name, &Declared::Toml(lines)).unwrap_err();
        assert!(error.message.starts_with("line 2: "), "{}", error.message);
    }
}
