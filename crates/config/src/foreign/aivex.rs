//! AIVEX: what its variables override, and a folder of its modules as a `defib.toml`.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use defib_core::backoff::Backoff;
use defib_core::limit::{Limit, Measure, Span};
use defib_core::policy::{Heartbeat, Policy};
use serde::{Deserialize, Serialize};

use super::write::bare;

/// What the variables `WATCHDOG_*` say; each overrides the `aivex` rule set where it is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Watchdog {
    /// `WATCHDOG_MAX_RESTARTS`: the most restarts of a module.
    pub max_restarts: Option<u32>,
    /// `WATCHDOG_BACKOFF`: the base of the delays, in seconds.
    pub backoff: Option<Duration>,
    /// `WATCHDOG_HEARTBEAT_TTL`: the longest silence, in seconds.
    pub heartbeat_ttl: Option<Duration>,
}

impl Watchdog {
    /// The variables that it reads.
    pub const VARIABLES: [&str; 3] =
        ["WATCHDOG_MAX_RESTARTS", "WATCHDOG_BACKOFF", "WATCHDOG_HEARTBEAT_TTL"];

    /// Reads the variables; the error names the one that makes no sense.
    pub fn from_variables(value: impl Fn(&str) -> Option<String>) -> Result<Watchdog, String> {
        let said = |name| value(name).filter(|value| !value.trim().is_empty());
        let wrong = |name: &str, value: &str, what: &str| format!("{name} is {value:?}, no {what}");
        let seconds = |name| {
            said(name).map_or(Ok(None), |value| {
                let seconds = value.trim().parse::<f64>().ok();
                let span = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                span.map(Some).ok_or_else(|| wrong(name, &value, "number of seconds"))
            })
        };
        let name = "WATCHDOG_MAX_RESTARTS";
        let max_restarts = said(name).map_or(Ok(None), |value| {
            let count = value.trim().parse::<u32>().ok();
            count.map(Some).ok_or_else(|| wrong(name, &value, "whole number"))
        })?;
        let heartbeat_ttl = seconds("WATCHDOG_HEARTBEAT_TTL")?;
        if heartbeat_ttl == Some(Duration::ZERO) {
            return Err("WATCHDOG_HEARTBEAT_TTL is 0: every heartbeat would be stale".to_owned());
        }
        Ok(Watchdog { max_restarts, backoff: seconds("WATCHDOG_BACKOFF")?, heartbeat_ttl })
    }

    /// Puts what is set over a policy of the rule set.
    pub(crate) fn apply(self, policy: &mut Policy) {
        if let Some(max) = self.max_restarts {
            for limit in &mut policy.limits {
                if (limit.measure, limit.span) == (Measure::Restarts, Span::Lifetime) {
                    *limit = Limit { max, ..*limit };
                }
            }
        }
        if let Some(base) = self.backoff {
            // The cap stays: no delay is longer than it, whatever it begins with.
            policy.backoff = Backoff { base, ..policy.backoff };
        }
        if let Some(ttl) = self.heartbeat_ttl {
            let grace = policy.heartbeat.map_or(Duration::ZERO, |usual| usual.grace);
            policy.heartbeat = Some(Heartbeat { ttl, grace });
        }
    }
}

/// Where a project of this kind has its runner script, the likeliest first.
const RUNNERS: [&str; 6] = [
    "watchdog/module_runner.py",
    "module_runner.py",
    "watchdog/runner.py",
    "runner.py",
    "watchdog/run_module.py",
    "run_module.py",
];

/// A folder of modules, as a `defib.toml` for it.
///
/// The modules are those of the runner's registry; without one, the packages of the folder.
pub fn import(folder: &Path) -> io::Result<String> {
    let runner = RUNNERS.iter().map(Path::new).find(|path| folder.join(path).is_file());
    let text = runner.map(|path| std::fs::read_to_string(folder.join(path))).transpose()?;
    let mut names = text.as_deref().and_then(registry).unwrap_or_default();
    if names.is_empty() {
        names = packages(folder)?;
    }
    let shown = |path: &Path| serde_json::Value::from(path.to_string_lossy()).to_string();
    let mut out = String::new();
    let name = folder
        .canonicalize()
        .ok()
        .and_then(|path| crate::lower::name_of_folder(&path.file_name()?.to_string_lossy()));
    if let Some(name) = name {
        // A String takes whatever is written to it.
        let _ = writeln!(out, "[project]\nname = {}", shown(Path::new(name.as_str())));
    }
    if names.is_empty() {
        out.push_str("\n# No module was found: neither a MODULE_REGISTRY nor a package.\n");
    }
    if runner.is_none() {
        out.push_str("\n# No runner script was found; `runner` is a guess.\n");
    }
    let runner = runner.map_or_else(|| PathBuf::from(RUNNERS[0]), Path::to_owned);
    for name in names {
        if let Err(why) = defib_core::Name::parse(&name) {
            let name = shown(Path::new(&name));
            let _ = writeln!(out, "\n# The module {name} is left out: it cannot be a name. {why}");
            continue;
        }
        let _ = writeln!(out, "\n[module.{}]", bare(&name));
        let _ = writeln!(out, "runner = {}", shown(&runner));
        let _ = writeln!(out, "package = {}", shown(Path::new(&name)));
    }
    Ok(out)
}

/// The names in a script's `MODULE_REGISTRY`: the keys of a mapping, or the items of a list. Nothing
/// where the script has no such thing.
pub fn registry(script: &str) -> Option<Vec<String>> {
    let at = script.split_inclusive('\n').scan(0, |at, line| {
        let start = *at;
        *at += line.len();
        Some((start, line))
    });
    let defined = |line: &str| {
        let rest = line.strip_prefix("MODULE_REGISTRY");
        rest.is_some_and(|rest| rest.contains('='))
    };
    let (start, _) = at.into_iter().find(|(_, line)| defined(line))?;
    let (_, body) = script.get(start..)?.split_once('=')?;
    let open = body.find(['{', '[', '('])?;
    Some(first_strings(&body[open..]))
}

/// The string that each item of a bracket begins with, at its own level.
fn first_strings(body: &str) -> Vec<String> {
    let (mut depth, mut begins, mut names) = (0usize, false, Vec::new());
    let mut rest = body;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '{' | '[' | '(' => {
                depth += 1;
                begins = depth == 1;
            }
            '}' | ']' | ')' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return names;
                }
            }
            ',' => begins = depth == 1,
            '#' => rest = rest.split_once('\n').map_or("", |(_, after)| after),
            '"' | '\'' => {
                let Some((text, after)) = rest.split_once(c) else { return names };
                if begins {
                    names.push(text.to_owned());
                }
                begins = false;
                rest = after;
            }
            _ if c.is_whitespace() => {}
            _ => begins = false,
        }
    }
    names
}

/// The folders that are packages, but for the watchdog itself.
fn packages(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let usable = defib_core::Name::parse(&name).is_ok() && name != "watchdog";
        if usable && entry.path().join("__init__.py").is_file() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_is_read_whatever_its_values_are() {
        let script = "import x\n# MODULE_REGISTRY is below\nMODULE_REGISTRY: dict[str, str] = {\n    \
                      'news': 'pkg.news:main',  # the 'first'\n    \"chart\": (\"a\", ['b']),\n    \
                      **more,\n    'eye': run('x'),\n}\nother = {'not': 1}\n";
        assert_eq!(registry(script).unwrap_or_default(), ["news", "chart", "eye"]);
        assert_eq!(registry("MODULE_REGISTRY = ['a', \"b\"]").unwrap_or_default(), ["a", "b"]);
        let windows = script.replace('\n', "\r\n");
        assert_eq!(registry(&windows).unwrap_or_default(), ["news", "chart", "eye"]);
        // The further down, the further off a count of lines would be.
        let below = "x = {'not': 1}\r\n".repeat(40) + "MODULE_REGISTRY = ['a']\r\n";
        assert_eq!(registry(&below).unwrap_or_default(), ["a"]);
        assert_eq!(registry("x = 1\n"), None);
        assert_eq!(registry("MODULE_REGISTRY = {"), Some(Vec::new()));
    }

    #[test]
    fn variables_that_make_no_sense_are_named() {
        let said = |name: &'static str, value: &'static str| {
            Watchdog::from_variables(move |asked| (asked == name).then(|| value.to_owned()))
        };
        assert_eq!(said("X", "1"), Ok(Watchdog::default()));
        assert_eq!(said("WATCHDOG_MAX_RESTARTS", "3").map(|w| w.max_restarts), Ok(Some(3)));
        for (name, value) in [
            ("WATCHDOG_MAX_RESTARTS", "3.5"),
            ("WATCHDOG_BACKOFF", "soon"),
            ("WATCHDOG_HEARTBEAT_TTL", "-1"),
            ("WATCHDOG_HEARTBEAT_TTL", "0"),
        ] {
            let told = said(name, value).err().unwrap_or_default();
            assert!(told.contains(name), "{told}");
        }
        assert_eq!(said("WATCHDOG_BACKOFF", " ").map(|w| w.backoff), Ok(None));
    }
}
