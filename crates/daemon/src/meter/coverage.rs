//! Which units of a budget nothing measures, and what to do about that.
//!
//! Decided before a run, by the agent's kind, the options of its command and its environment: a CLI
//! prints what it uses only in some modes, and claude and gemini can send it. A command that is not
//! the CLI itself, such as a script with `kind = "codex"`, is taken to print its kind's records.

use std::collections::BTreeSet;

use defib_autopsy::Kind;
use defib_config::config::{Agent, Budget, Command, Unmetered};
use defib_core::RunId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::otlp::telemetry;
use crate::coroner::kind_of;
use crate::recipe::argv;

/// The units that meters know.
const UNITS: [&str; 2] = ["tokens", "usd"];

/// A unit of a budget that nothing measures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnmeteredUnit {
    /// The unit.
    pub unit: String,
    /// Why it is not metered, and what to do.
    pub fix: String,
}

/// The metered units that a budget bounds.
pub(crate) fn bounded(budget: &Budget) -> BTreeSet<&'static str> {
    let Budget { balance, per_run, per_day, .. } = budget;
    let has = |unit: &&str| [balance, per_run, per_day].iter().any(|of| of.contains_key(*unit));
    UNITS.into_iter().filter(has).collect()
}

/// The units of an agent's budget that nothing measures. `variable` says what its environment has.
pub fn unmetered(agent: &Agent, variable: impl Fn(&str) -> Option<String>) -> Vec<UnmeteredUnit> {
    let bounded = bounded(&agent.budget);
    if bounded.is_empty() {
        return Vec::new();
    }
    let kind = kind_of(agent);
    let commands = std::iter::once(&agent.command).chain(agent.resume.as_deref());
    // A session that is taken up again by a command without the option is not metered any more.
    let prints = commands.clone().all(|command| prints_usage(kind, command));
    let sends = telemetry(kind, &variable).is_some();
    let is_metered = |unit: &str| match kind {
        Kind::Claude => prints || sends,
        Kind::Gemini => prints || (sends && unit == "tokens"),
        Kind::Codex | Kind::Opencode | Kind::Aider => prints,
        Kind::Goose | Kind::Python | Kind::Node | Kind::Generic => false,
    };
    let unit = |unit: &'static str| UnmeteredUnit { unit: unit.to_owned(), fix: fix(kind) };
    bounded.into_iter().filter(|unit| !is_metered(unit)).map(unit).collect()
}

/// The units of an agent's budget, of which a run that ended well reported nothing.
pub(crate) fn silent(agent: &Agent, run: RunId) -> Vec<UnmeteredUnit> {
    let why = format!("run {run} ended well and reported nothing that it used. ");
    let unit = |unit: &'static str| {
        let fix = format!("{why}{}", fix(kind_of(agent)));
        UnmeteredUnit { unit: unit.to_owned(), fix }
    };
    bounded(&agent.budget).into_iter().map(unit).collect()
}

/// The units of an agent's budget that are counted by estimated prices.
pub(crate) fn estimated(agent: &Agent) -> bool {
    matches!(kind_of(agent), Kind::Codex | Kind::Gemini)
}

/// Why an agent must not be started: its budget has units that nothing measures.
pub(crate) fn refusal(agent: &Agent, unmetered: &[UnmeteredUnit]) -> Option<String> {
    let first = unmetered.first().filter(|_| agent.budget.unmetered == Unmetered::Refuse)?;
    Some(format!("its budget is not metered in {}: {}", units(unmetered), first.fix))
}

/// The units, in words.
pub fn units(unmetered: &[UnmeteredUnit]) -> String {
    let all: Vec<&str> = unmetered.iter().map(|unmetered| unmetered.unit.as_str()).collect();
    all.join(" and ")
}

fn fix(kind: Kind) -> String {
    let how = match kind {
        Kind::Claude => {
            "claude prints its cost in one mode only, and telemetry settings of its own win; add \
             `--output-format stream-json --verbose` to the command and to `resume`"
        }
        Kind::Codex => {
            "codex prints its tokens with `codex exec --json`; add `--json` to the command and to `resume`"
        }
        Kind::Gemini => {
            "gemini prints its tokens in one mode only; add `--output-format stream-json` to the command and to `resume`"
        }
        Kind::Opencode => {
            "opencode prints its cost in one mode only; add `--format json` to the command and to `resume`"
        }
        Kind::Aider | Kind::Goose | Kind::Python | Kind::Node | Kind::Generic => {
            "nothing is known of what this program uses; set `kind` if it is a known CLI"
        }
    };
    format!(
        "{how}, or set `unmetered = \"allow\"` in its budget. An agent that reports by `defib self spend` \
         needs \"allow\"."
    )
}

/// Whether a command prints what it uses, as far as its words tell.
fn prints_usage(kind: Kind, command: &Command) -> bool {
    let words = words(command);
    if Kind::guess(&argv(command)) != kind {
        return true;
    }
    let format = |option: &str| value_of(&words, &[option]);
    match kind {
        Kind::Claude => matches!(format("--output-format"), Some("stream-json" | "json")),
        Kind::Codex => words.iter().any(|word| word == "--json" || word == "--experimental-json"),
        Kind::Gemini => {
            matches!(value_of(&words, &["--output-format", "-o"]), Some("stream-json"))
        }
        Kind::Opencode => format("--format") == Some("json"),
        Kind::Aider => true,
        Kind::Goose | Kind::Python | Kind::Node | Kind::Generic => false,
    }
}

/// The model that a command names.
pub(crate) fn model_of(command: &Command) -> Option<String> {
    let words = words(command);
    let configured = words.iter().find_map(|word| word.strip_prefix("model="));
    let named = value_of(&words, &["--model", "-m"]).or(configured)?;
    Some(named.trim_matches(['"', '\'']).to_owned())
}

/// The value of an option, as the next word or behind `=`.
fn value_of<'w>(words: &'w [String], options: &[&str]) -> Option<&'w str> {
    words.iter().enumerate().find_map(|(at, word)| {
        let option = options.iter().find(|option| word.starts_with(**option))?;
        match &word[option.len()..] {
            "" => words.get(at + 1).map(String::as_str),
            rest => rest.strip_prefix('='),
        }
    })
}

/// The words of a command; those of a line that a shell reads one by one.
fn words(command: &Command) -> Vec<String> {
    let argv = argv(command);
    let program = argv.first().map(|word| word.rsplit('/').next().unwrap_or(word));
    if !matches!(program, Some("sh" | "bash" | "dash" | "zsh" | "fish")) {
        return argv;
    }
    let split = |word: &String| {
        let words = word.split_whitespace().map(|word| word.trim_matches(['"', '\'']).to_owned());
        words.collect::<Vec<_>>()
    };
    argv.iter().flat_map(split).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(settings: &str) -> Agent {
        let text = format!("[agent.a]\n{settings}\n");
        let outcome = defib_config::parse("defib.toml", &text);
        outcome.config.unwrap_or_else(|| panic!("{:?}", outcome.diagnostics)).agents.remove(0)
    }

    fn missing(settings: &str, variables: &[(&str, &str)]) -> Vec<String> {
        let agent =
            agent(&format!("{settings}\nbudget = {{ per_day = {{ usd = 1, tokens = 1 }} }}"));
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        unmetered(&agent, variable).into_iter().map(|unmetered| unmetered.unit).collect()
    }

    #[test]
    fn a_budget_is_metered_by_what_the_command_prints_or_sends() {
        let both = ["tokens", "usd"];
        for (settings, units) in [
            (r#"command = ["claude", "-p", "x"]"#, &[][..]),
            (r#"command = ["codex", "exec", "x"]"#, &both),
            (r#"command = ["codex", "exec", "--json", "x"]"#, &[]),
            (r#"command = ["codex", "exec", "use --json"]"#, &both),
            (r#"command = "npx @openai/codex exec --json x""#, &[]),
            ("command = \"codex exec x | tee log\"\nshell = true", &both),
            ("command = \"codex exec --json x | tee log\"\nshell = true", &[]),
            (r#"command = ["gemini", "-p", "x"]"#, &["usd"]),
            (r#"command = ["gemini", "-p", "x", "--output-format=stream-json"]"#, &[]),
            (r#"command = ["opencode", "run", "x"]"#, &both),
            (r#"command = ["opencode", "run", "--format", "json", "x"]"#, &[]),
            (r#"command = ["aider", "--message", "x"]"#, &[]),
            (r#"command = ["goose", "run"]"#, &both),
            (r#"command = ["python3", "loop.py"]"#, &both),
            ("command = [\"./run.sh\"]\nkind = \"codex\"", &[]),
            (
                "command = [\"codex\", \"exec\", \"--json\", \"x\"]\nresume = [\"codex\", \"exec\", \"resume\", \"{session}\"]",
                &both,
            ),
        ] {
            assert_eq!(missing(settings, &[]), units, "{settings}");
        }
    }

    #[test]
    fn settings_of_the_user_win_over_telemetry_of_ours() {
        let text = r#"command = ["claude", "-p", "x"]"#;
        let json = r#"command = ["claude", "-p", "x", "--output-format", "stream-json"]"#;
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://own"),
            ("OTEL_METRICS_EXPORTER", "console"),
            ("CLAUDE_CODE_ENABLE_TELEMETRY", "0"),
        ] {
            assert_eq!(missing(text, &[(name, value)]), ["tokens", "usd"], "{name}");
            assert_eq!(missing(json, &[(name, value)]), [""; 0], "{name}");
        }
        assert_eq!(missing(text, &[("CLAUDE_CODE_ENABLE_TELEMETRY", "1")]), [""; 0]);
    }

    #[test]
    fn only_units_that_a_meter_knows_are_missed_and_only_the_default_rule_set_refuses() {
        let own = agent("command = \"x\"\nbudget = { balance = { scrip = 5 } }");
        assert_eq!(unmetered(&own, |_| None), []);
        let usd = "command = \"x\"\nbudget = { per_run = { usd = 5 } }";
        let missing = |agent: &Agent| unmetered(agent, |_| None);
        let strict = agent(usd);
        let why = refusal(&strict, &missing(&strict)).unwrap_or_default();
        assert!(why.contains("not metered in usd") && why.contains("\"allow\""), "{why}");
        let lenient = agent(&format!("{usd}\npreset = \"aide\""));
        assert_eq!((missing(&lenient).len(), refusal(&lenient, &missing(&lenient))), (1, None));
    }

    #[test]
    fn the_model_is_the_one_that_the_command_names() {
        for (command, model) in [
            (r#"["codex", "exec", "-m", "gpt-5-mini", "x"]"#, Some("gpt-5-mini")),
            (r#"["codex", "exec", "-c", "model=\"o3\"", "x"]"#, Some("o3")),
            (r#"["gemini", "--model=gemini-2.5-pro"]"#, Some("gemini-2.5-pro")),
            (r#"["codex", "exec", "x"]"#, None),
        ] {
            let agent = agent(&format!("command = {command}"));
            assert_eq!(model_of(&agent.command).as_deref(), model, "{command}");
        }
    }
}
