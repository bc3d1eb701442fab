//! From a path, bytes or a text to an outcome.
//!
//! An outcome holds a config exactly when it holds no error. A syntax error ends the reading before
//! anything is judged, and bytes that are no text end it before that: what follows from a guess
//! would be noise. A path that a file names is never looked at.

use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf, absolute};

use crate::config::Config;
use crate::diagnostic::{Diagnostic, Findings};
use crate::fields::Fields;
use crate::report::Report;
use crate::shape::file::FILE;
use crate::source::Span;
use crate::{check, lower, tree};

/// What became of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// What it says; there exactly when there is no error among the diagnostics.
    pub config: Option<Config>,
    /// What is wrong with it, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
}

/// A file that has been read.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// Its path, as it was given.
    pub path: PathBuf,
    /// Its text, which the diagnostics' spans point into.
    pub text: String,
    /// What became of it.
    pub outcome: Outcome,
}

impl Loaded {
    /// What is wrong with the file, for people: see [`Report::render`].
    pub fn render(&self, color: bool) -> String {
        let origin = self.path.display().to_string();
        Report::new(&origin, &self.text, &self.outcome.diagnostics).render(color)
    }
}

/// Why there is nothing to parse.
#[derive(Debug)]
pub enum LoadError {
    /// The file cannot be read.
    Unreadable {
        /// Its path, as it was given.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
}

impl LoadError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            LoadError::Unreadable { source, .. } => {
                let kind = source.kind();
                let hints = [
                    (
                        io::ErrorKind::NotFound,
                        "name another file with `-f FILE`, or create this one",
                    ),
                    (io::ErrorKind::PermissionDenied, "make the file readable for you"),
                    (io::ErrorKind::IsADirectory, "name the file itself, not its folder"),
                ];
                let hint = hints.into_iter().find(|(known, _)| *known == kind);
                hint.map_or("see that the path is right and the disk is well", |(_, hint)| hint)
            }
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Unreadable { path, source } => {
                write!(f, "cannot read {}: {source}", path.display())
            }
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LoadError::Unreadable { source, .. } => Some(source),
        }
    }
}

/// Reads and parses a file.
pub fn load(path: &Path) -> Result<Loaded, LoadError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(parse_bytes(path, &bytes)),
        Err(source) => Err(LoadError::Unreadable { path: path.to_owned(), source }),
    }
}

/// Parses the bytes of the file at `path`, which is not read again.
///
/// Bytes that are no UTF-8 are an error with a place; the text then shows `�` for them.
pub fn parse_bytes(path: &Path, bytes: &[u8]) -> Loaded {
    let (text, outcome) = match str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), parse_in(&folder_of(path), text)),
        Err(bad) => {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let outcome = not_utf8(bytes, bad.valid_up_to(), &text);
            (text, outcome)
        }
    };
    Loaded { path: path.to_owned(), text, outcome }
}

/// Parses a text that came from the file called `origin`.
///
/// The folder, which paths in the file start from and the project is called by, is that of
/// `origin`, seen from the current folder.
pub fn parse(origin: &str, text: &str) -> Outcome {
    parse_in(&folder_of(Path::new(origin)), text)
}

/// Parses a text as if it lay in `folder`.
pub fn parse_in(folder: &Path, text: &str) -> Outcome {
    let mut findings = Findings::default();
    let config = read(folder, text, &mut findings);
    let config = if findings.has_errors() { None } else { config };
    Outcome { config, diagnostics: findings.into_diagnostics(text) }
}

fn read(folder: &Path, text: &str, findings: &mut Findings) -> Option<Config> {
    let entries = tree::read(text, findings)?;
    let fields: Option<Fields> = check::table(entries, Span::START, &FILE, findings);
    lower::file(&fields?, folder, findings)
}

/// The folder a file lies in, from the root on where that can be told.
fn folder_of(path: &Path) -> PathBuf {
    let path = absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().unwrap_or(&path);
    // What `..` means only the file system knows, and without knowing, the folder has no name.
    if folder.components().any(|part| part == Component::ParentDir) {
        return folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    }
    folder.to_owned()
}

/// Tells of bytes that are no text; the rest cannot be judged.
fn not_utf8(bytes: &[u8], at: usize, lossy: &str) -> Outcome {
    let mut findings = Findings::default();
    // Up to the first bad byte both texts are the same, and there the lossy one has its `�`.
    let span = Span { start: at, end: at + char::REPLACEMENT_CHARACTER.len_utf8() };
    let wide = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    findings
        .error(span, "the file is not UTF-8")
        .label(format!("the byte here is 0x{:02x}", bytes.get(at).copied().unwrap_or(0)))
        .help(if wide { "it looks like UTF-16; save it as UTF-8" } else { "save it as UTF-8" });
    Outcome { config: None, diagnostics: findings.into_diagnostics(lossy) }
}
