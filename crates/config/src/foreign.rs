//! Files of other systems, read as if they were a `defib.toml`.
//!
//! Each format has a module that turns its own tree into the tree of a `defib.toml`, every value at
//! the place in the foreign file that it comes from. From there on nothing is special: the same
//! checks, the same lowering, the same diagnostics with the foreign file's lines. The same tree,
//! written down, is what `import` prints. A format is added by a variant of [`Format`], a way to
//! recognise it, and a module.
//!
//! A key that a format does not have is a warning with its line, never silence; an error is only
//! what would be wrong to run.

mod aide;
pub mod aivex;
mod celistra;
mod compose;
mod container;
mod ecology;
mod folder;
mod healthcheck;
mod ini;
mod interpolate;
mod json;
mod phrase;
mod pm2;
mod procfile;
mod program;
mod restarts;
mod section;
mod supervisord;
mod weave;
mod write;
mod yaml;

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::diagnostic::Findings;
use crate::lower::name_of_folder;
use crate::source::Span;
use crate::suggest::quoted;
use crate::tree::{self, Entry};

use section::{Section, Taken};

pub use aivex::Watchdog;
pub(crate) use folder::aidefiles_below;
pub(crate) use write::toml as write_toml;

/// A format that configs are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Our own.
    Defib,
    /// An `Aidefile`.
    Aide,
    /// A JSON request to spawn an agent.
    Celistra,
    /// YAML with `supervisor:` and `agents:`.
    Ecology,
    /// A `weave.toml`.
    Weave,
    /// A `Procfile`.
    Procfile,
    /// A `supervisord.conf`.
    Supervisord,
    /// A PM2 ecosystem, as JSON or YAML.
    Pm2,
    /// A compose file.
    Compose,
}

impl Format {
    /// How a file of it declares what is to be run.
    pub(crate) const fn how_to_declare(self) -> &'static str {
        match self {
            Format::Defib => "an agent is a table `[agent.NAME]` with a `command`",
            Format::Aide => "an Aidefile is an agent; `[persona] name` is what it is called",
            Format::Celistra => "a request is an agent, with `name` and `command`",
            Format::Ecology => "agents are under `agents:` by their names, each with a `command`",
            Format::Weave => "an agent is a table `[[agent]]` with a `name` and a `command`",
            Format::Procfile => "each line is `NAME: COMMAND`",
            Format::Supervisord => "an agent is a section `[program:NAME]` with a `command`",
            Format::Pm2 => "agents are in `apps`, each with a `script`",
            Format::Compose => "agents are under `services:` by their names",
        }
    }

    /// Every format.
    pub const ALL: [Format; 9] = [
        Format::Defib,
        Format::Aide,
        Format::Celistra,
        Format::Ecology,
        Format::Weave,
        Format::Procfile,
        Format::Supervisord,
        Format::Pm2,
        Format::Compose,
    ];

    /// The word by which people call it.
    pub const fn word(self) -> &'static str {
        match self {
            Format::Defib => "defib",
            Format::Aide => "aide",
            Format::Celistra => "celistra",
            Format::Ecology => "ecology",
            Format::Weave => "weave",
            Format::Procfile => "procfile",
            Format::Supervisord => "supervisord",
            Format::Pm2 => "pm2",
            Format::Compose => "compose",
        }
    }

    /// The format that a word names.
    pub fn from_word(word: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.word() == word)
    }

    /// What a file looks like: by its name, and where that leaves a doubt, by what is in it.
    pub fn detect(path: &Path, text: &str) -> Format {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        match (name.as_ref(), extension.as_ref()) {
            ("defib.toml", _) => Format::Defib,
            ("weave.toml", _) => Format::Weave,
            _ if is_aidefile(&name) => Format::Aide,
            _ if name == "Procfile" || name.starts_with("Procfile.") => Format::Procfile,
            (_, "Procfile") => Format::Procfile,
            (_, "conf" | "ini") => Format::Supervisord,
            (_, "js" | "cjs" | "mjs" | "ts") => Format::Pm2,
            (_, "yaml" | "yml") => Format::of_yaml(&name, text),
            (_, "json") if name.starts_with("ecosystem") || has(&["\"apps\"", "\"script\""]) => {
                Format::Pm2
            }
            (_, "json") if text.trim_start().starts_with('[') => Format::Pm2,
            (_, "json") => Format::Celistra,
            _ => Format::by_headers(text),
        }
    }

    /// What a YAML file is, by its name and by keys that only one format has.
    fn of_yaml(name: &str, text: &str) -> Format {
        let has = |key: &str| text.lines().any(|line| line.starts_with(key));
        if name.starts_with("compose.") || name.starts_with("docker-compose") || has("services:") {
            Format::Compose
        } else if has("apps:") {
            Format::Pm2
        } else {
            Format::Ecology
        }
    }

    /// What a TOML file of any name is, by tables that only one format has.
    fn by_headers(text: &str) -> Format {
        let has = |header: &str| text.lines().any(|line| line.trim().starts_with(header));
        if has("[persona]") {
            Format::Aide
        } else if has("[[agent]]") || has("default_strategy") {
            Format::Weave
        } else if has("[program:") || has("[supervisord]") {
            Format::Supervisord
        } else {
            Format::Defib
        }
    }
}

/// Whether a file of this name is an Aidefile.
fn is_aidefile(name: &str) -> bool {
    name == "Aidefile" || name.starts_with("Aidefile.")
}

/// What an agent of any format may say in the words of a `defib.toml`. What decides about restarts
/// is not among them: for that each format has words of its own.
const AGENT_KEYS: [&str; 29] = [
    "command",
    "shell",
    "cwd",
    "env",
    "env_pass",
    "env_file",
    "kind",
    "pty",
    "enabled",
    "user",
    "umask",
    "limits_os",
    "stable_after",
    "exit_codes",
    "resume",
    "trigger",
    "max_runtime",
    "heartbeat",
    "hang",
    "probe",
    "ready",
    "after",
    "stop_signal",
    "stop_timeout",
    "leftovers",
    "account",
    "capabilities",
    "log",
    "budget",
];

/// The name that a table says for itself.
fn named(
    section: &mut Section,
    span: Span,
    place: &str,
    findings: &mut Findings,
) -> Option<Taken<String>> {
    if !section.has("name") {
        findings
            .error(span, format!("an agent in {place} has no `name`"))
            .help("for example: `name = \"reviewer\"`");
        return None;
    }
    section.text("name", findings)
}

/// How a file is read, beyond what is in it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// Its format, where that is not to be guessed.
    pub format: Option<Format>,
    /// What Aidefiles run.
    pub runner: Option<String>,
    /// What the `aivex` rule set is overridden by.
    pub watchdog: Watchdog,
}

/// Reads a text of a format as the tree of a `defib.toml`; gives nothing where it cannot be read.
pub(crate) fn read(
    format: Format,
    text: &str,
    folder: &Path,
    options: &Options,
    findings: &mut Findings,
) -> Option<Vec<Entry>> {
    match format {
        Format::Defib => tree::read(text, findings),
        Format::Aide => aide::translate(
            tree::read(text, findings)?,
            folder,
            options.runner.as_deref(),
            findings,
        ),
        Format::Celistra => celistra::translate(json::read(text, findings)?, findings),
        Format::Ecology => Some(ecology::translate(yaml::read(text, findings)?, findings)),
        Format::Weave => Some(weave::translate(tree::read(text, findings)?, findings)),
        Format::Procfile => Some(procfile::translate(text, findings)),
        Format::Supervisord => Some(supervisord::translate(text, folder, findings)),
        Format::Pm2 => pm2::translate(text, findings),
        Format::Compose => compose::translate(text, findings),
    }
}

/// A name of ours for a foreign one: of the characters that ours have, and unlike those that were given
/// in the same table.
fn named_alike(
    theirs: &str,
    span: Span,
    taken: &section::Table,
    findings: &mut Findings,
) -> String {
    let fitting =
        name_of_folder(theirs).map_or_else(|| "agent".to_owned(), |name| name.to_string());
    let name = taken.take_name(&fitting);
    if name != theirs {
        let message = format!("{} is called `{name}` here", quoted(theirs));
        findings
            .warning(span, message)
            .help("names have letters, digits, `-`, `_` and `.`, once each");
    }
    name
}

/// A span as it is written in a `defib.toml`, exactly.
pub(crate) fn duration_text(span: Duration) -> String {
    let (seconds, millis) = (span.as_secs(), span.subsec_millis());
    match (seconds, millis) {
        (0, 0) => "0s".to_owned(),
        (seconds, 0) if seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        (seconds, 0) => format!("{seconds}s"),
        (0, millis) => format!("{millis}ms"),
        (seconds, millis) => format!("{seconds}s{millis}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_agents_is_told_how_its_own_format_declares_them() {
        for (format, text, word) in [
            (Format::Defib, "", "[agent.NAME]"),
            (Format::Weave, "[supervisor]\nmax_restarts = 5\n", "[[agent]]"),
            (Format::Ecology, "supervisor:\n  enabled: true\n", "agents:"),
        ] {
            let folder = Path::new("/a");
            let outcome = crate::load::parse_as(format, folder, text, &Options::default());
            let help = outcome.diagnostics.iter().find_map(|found| found.help.as_deref());
            assert!(help.is_some_and(|help| help.contains(word)), "{format:?}: {outcome:?}");
        }
    }

    #[test]
    fn a_format_is_known_by_the_files_name_and_else_by_its_tables() {
        for (path, text, format) in [
            ("defib.toml", "[persona]", Format::Defib),
            ("a/Aidefile", "", Format::Aide),
            ("a/Aidefile.toml", "", Format::Aide),
            ("weave.toml", "", Format::Weave),
            ("config.yaml", "", Format::Ecology),
            ("config.yml", "", Format::Ecology),
            ("spawn.json", "", Format::Celistra),
            ("other.toml", "[persona]\nname = 'x'", Format::Aide),
            ("other.toml", "[supervisor]\ndefault_strategy = 'OneForAll'", Format::Weave),
            ("other.toml", "  [[agent]]", Format::Weave),
            ("other.toml", "[agent.a]", Format::Defib),
            ("Aidefilex", "", Format::Defib),
            ("Procfile", "", Format::Procfile),
            ("a/Procfile.dev", "", Format::Procfile),
            ("supervisord.conf", "", Format::Supervisord),
            ("x", "[program:web]\ncommand=a", Format::Supervisord),
            ("ecosystem.json", "", Format::Pm2),
            ("ecosystem.config.js", "", Format::Pm2),
            ("process.json", "{ \"apps\": [] }", Format::Pm2),
            ("process.json", "[{}]", Format::Pm2),
            ("process.yml", "apps:\n  - script: a.js", Format::Pm2),
            ("docker-compose.prod.yml", "", Format::Compose),
            ("compose.yaml", "", Format::Compose),
            ("stack.yml", "x-a: 1\nservices:\n", Format::Compose),
        ] {
            assert_eq!(Format::detect(Path::new(path), text), format, "{path} {text}");
        }
        for format in Format::ALL {
            assert_eq!(Format::from_word(format.word()), Some(format));
        }
    }
}
