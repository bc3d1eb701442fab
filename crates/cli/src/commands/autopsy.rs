//! `defib autopsy`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use defib_autopsy::{Case, EVIDENCE_CHARS, Kind, TAIL_BYTES, UserRule};
use defib_config::config::Rule;
use defib_core::run::Status;
use defib_core::{Class, Signal, Wall};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::ConfigFile;
use crate::failure::{Code, Failure};
use crate::output;

/// Say what the rules make of a captured output
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints JSON: `class`, `evidence` (the line or field that decided) and `resets_at` (the moment that \
was stated). Evidence null means that nothing but the exit code or the signal decided; class null, \
that what is there does not speak of a death.

The rules of your own are those of the defib.toml here, or of the file that -f names. Only the end \
of a long output is read. Whatever is in it, text or not, is no error.

Examples:
  defib autopsy --kind claude --exit 1 claude.log
  defib autopsy --kind python --signal KILL agent.log
  defib logs reviewer | defib autopsy --kind codex --exit 1 -
  defib autopsy --kind generic --exit 3 -f night/defib.toml agent.log")]
pub(crate) struct Autopsy {
    /// What sort of program wrote it
    #[arg(long, value_name = "KIND", value_parser = kind_words())]
    kind: String,
    /// The exit code
    #[arg(long, value_name = "N", conflicts_with = "signal")]
    exit: Option<i32>,
    /// The signal that ended it: KILL, SIGTERM, 9
    #[arg(long, value_name = "SIGNAL", value_parser = signal)]
    signal: Option<Signal>,
    /// The config file whose rules come first; else the defib.toml here, if there is one
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The captured output; `-` is standard input
    #[arg(value_name = "FILE")]
    output: PathBuf,
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    class: Option<Class>,
    evidence: Option<&'a str>,
    resets_at: Option<String>,
}

impl Autopsy {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let kind = Kind::from_word(&self.kind)
            .ok_or_else(|| Failure::new(Code::Usage, format!("no kind {:?}", self.kind)))?;
        let autopsy = defib_autopsy::Autopsy::new(&self.user_rules()?)
            .map_err(|error| Failure::new(Code::Config, error))?;
        let tail = self.tail().map_err(|error| {
            Failure::new(Code::Failed, format!("cannot read {}: {error}", self.output.display()))
                .hint("name a file that holds what the agent wrote, or - for standard input")
        })?;
        let status = match (self.exit, self.signal) {
            (Some(code), _) => Status::Exited(code),
            (None, Some(signal)) => Status::Signaled(signal),
            (None, None) => Status::Unseen,
        };
        let finding = autopsy
            .examine(&Case {
                kind,
                status,
                oom: false,
                tail: &tail,
                now: Wall::from_millis(Timestamp::now().as_millisecond()),
                zone: &TimeZone::system(),
                exit_codes: &BTreeMap::new(),
            })
            .finding;
        let finding = finding.as_ref();
        output::json(&Answer {
            class: finding.map(|finding| finding.class),
            evidence: finding.and_then(|finding| finding.evidence.as_deref()).map(beginning),
            resets_at: finding.and_then(|finding| finding.resets_at).and_then(rfc3339),
        })
    }

    /// The rules of the file that is named, or of the one that is here.
    fn user_rules(&self) -> Result<Vec<UserRule>, Failure> {
        let here = Path::new("defib.toml");
        let path = self.config.clone().or_else(|| here.is_file().then(|| here.to_owned()));
        let Some(file) = path else {
            return Ok(Vec::new());
        };
        let rules = ConfigFile::at(file).config()?.rules;
        Ok(rules.into_iter().filter_map(user_rule).collect())
    }

    fn tail(&self) -> io::Result<Vec<u8>> {
        if self.output.as_os_str() == "-" {
            return last_bytes(io::stdin().lock());
        }
        let mut file = File::open(&self.output)?;
        let metadata = file.metadata()?;
        if metadata.is_file() {
            file.seek(SeekFrom::Start(metadata.len().saturating_sub(TAIL_BYTES as u64)))?;
        }
        last_bytes(file)
    }
}

fn kind_words() -> Vec<&'static str> {
    Kind::ALL.iter().map(|kind| kind.word()).collect()
}

fn signal(text: &str) -> Result<Signal, String> {
    Signal::parse(text).ok_or_else(|| "no such signal; try TERM, SIGKILL or 9".to_owned())
}

/// A rule of a config file, as an autopsy takes it. Both crates know the same kinds by name.
fn user_rule(rule: Rule) -> Option<UserRule> {
    let kind = match rule.kind {
        Some(kind) => Some(Kind::from_word(kind.word())?),
        None => None,
    };
    Some(UserRule { kind, pattern: rule.pattern, class: rule.class })
}

/// The last bytes of a stream, however long it is.
fn last_bytes(mut from: impl Read) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    let mut piece = vec![0; 64 * 1024];
    loop {
        let count = match from.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        kept.extend_from_slice(&piece[..count]);
        if kept.len() > 2 * TAIL_BYTES {
            kept.drain(..kept.len() - TAIL_BYTES);
        }
    }
    kept.drain(..kept.len().saturating_sub(TAIL_BYTES));
    Ok(kept)
}

fn rfc3339(at: Wall) -> Option<String> {
    Timestamp::from_millisecond(at.as_millis()).ok().map(|at| at.to_string())
}

/// As much of evidence as is shown.
fn beginning(evidence: &str) -> &str {
    let end = evidence.char_indices().nth(EVIDENCE_CHARS).map_or(evidence.len(), |(at, _)| at);
    &evidence[..end]
}
