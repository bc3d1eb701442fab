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
use crate::foreign::{self, Format, Options};
use crate::report::Report;
use crate::shape::file::FILE;
use crate::source::Span;
use crate::{check, lower};

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
    /// The files it is made of, where it is a folder.
    pub parts: Vec<Loaded>,
}

impl Loaded {
    /// The files that were read: this one, or those of the folder.
    pub fn files(&self) -> &[Loaded] {
        if self.parts.is_empty() { std::slice::from_ref(self) } else { &self.parts }
    }

    /// What is wrong with the files, for people: see [`Report::render`].
    pub fn render(&self, color: bool) -> String {
        let report = |file: &Loaded| {
            let origin = file.path.display().to_string();
            Report::new(&origin, &file.text, &file.outcome.diagnostics).render(color)
        };
        self.files().iter().map(report).collect()
    }

    /// Whether there is anything to be said of it.
    pub fn has_diagnostics(&self) -> bool {
        self.files().iter().any(|file| !file.outcome.diagnostics.is_empty())
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
    /// A folder has no Aidefile in it or below it.
    NoAidefile(PathBuf),
}

impl LoadError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            LoadError::NoAidefile(_) => "name a file, or a folder with Aidefiles below it",
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
            LoadError::NoAidefile(folder) => {
                write!(f, "there is no Aidefile in {} or below it", folder.display())
            }
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LoadError::Unreadable { source, .. } => Some(source),
            LoadError::NoAidefile(_) => None,
        }
    }
}

/// Reads and parses a file, whose format is told from its name.
pub fn load(path: &Path) -> Result<Loaded, LoadError> {
    load_with(path, &Options::default())
}

/// Reads and parses a file, or every Aidefile below a folder, as the options say.
pub fn load_with(path: &Path, options: &Options) -> Result<Loaded, LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: path.to_owned(), source };
    if path.is_dir() {
        let files = foreign::aidefiles_below(path).map_err(unreadable)?;
        return folder(path, &files, options);
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    Ok(read_bytes(path, &bytes, options))
}

/// Many Aidefiles as one project, which is called by its folder.
fn folder(path: &Path, files: &[PathBuf], options: &Options) -> Result<Loaded, LoadError> {
    if files.is_empty() {
        return Err(LoadError::NoAidefile(path.to_owned()));
    }
    let options = Options { format: Some(Format::Aide), ..options.clone() };
    let mut parts = Vec::new();
    for file in files {
        parts.push(load_with(file, &options)?);
    }
    let config = merged(path, &mut parts);
    let outcome = Outcome { config, diagnostics: Vec::new() };
    Ok(Loaded { path: path.to_owned(), text: String::new(), outcome, parts })
}

/// One config of many. Each agent stays in the folder of its own file; a name that two of them have
/// is an error of the second.
fn merged(path: &Path, parts: &mut [Loaded]) -> Option<Config> {
    let folder = folder_of(&path.join("Aidefile"));
    let mut whole: Option<Config> = None;
    let mut owners: Vec<(String, PathBuf)> = Vec::new();
    let mut fine = true;
    for part in parts {
        let Some(config) = part.outcome.config.clone() else {
            fine = false;
            continue;
        };
        for agent in &config.agents {
            let name = agent.name.to_string();
            if let Some((_, owner)) = owners.iter().find(|(known, _)| *known == name) {
                let at = part.text.find(&name).unwrap_or(0);
                let mut findings = Findings::default();
                findings
                    .error(
                        Span { start: at, end: at + name.len() },
                        format!("`{name}` is declared by {} already", owner.display()),
                    )
                    .help("give one of them another `name` in `[persona]`");
                part.outcome.diagnostics.extend(findings.into_diagnostics(&part.text));
                part.outcome.config = None;
                fine = false;
            } else {
                owners.push((name, part.path.clone()));
            }
        }
        let agents = config.agents.iter().cloned().map(|mut agent| {
            let cwd = agent.cwd.as_ref().map_or_else(PathBuf::new, Clone::clone);
            agent.cwd = Some(config.folder.join(cwd));
            agent.env_file = agent.env_file.map(|file| config.folder.join(file));
            agent
        });
        match &mut whole {
            Some(whole) => {
                whole.agents.extend(agents);
                whole.notify.extend(config.notify.clone());
            }
            None => whole = Some(Config { agents: agents.collect(), ..config.clone() }),
        }
    }
    let mut whole = whole.filter(|_| fine)?;
    let name = folder.file_name().and_then(|name| lower::name_of_folder(&name.to_string_lossy()));
    whole.project = name.unwrap_or(whole.project);
    whole.folder = folder;
    Some(whole)
}

/// Parses the bytes of the file at `path`, which is not read again.
///
/// Bytes that are no UTF-8 are an error with a place; the text then shows `�` for them.
pub fn parse_bytes(path: &Path, bytes: &[u8]) -> Loaded {
    read_bytes(path, bytes, &Options::default())
}

fn read_bytes(path: &Path, bytes: &[u8], options: &Options) -> Loaded {
    let (text, outcome) = match str::from_utf8(bytes) {
        Ok(text) => {
            let format = options.format.unwrap_or_else(|| Format::detect(path, text));
            (text.to_owned(), parse_as(format, &folder_of(path), text, options))
        }
        Err(bad) => {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let outcome = not_utf8(bytes, bad.valid_up_to(), &text);
            (text, outcome)
        }
    };
    Loaded { path: path.to_owned(), text, outcome, parts: Vec::new() }
}

/// Parses a text that came from the file called `origin`.
///
/// The folder, which paths in the file start from and the project is called by, is that of
/// `origin`, seen from the current folder.
pub fn parse(origin: &str, text: &str) -> Outcome {
    parse_in(&folder_of(Path::new(origin)), text)
}

/// Parses a `defib.toml` as if it lay in `folder`.
pub fn parse_in(folder: &Path, text: &str) -> Outcome {
    parse_as(Format::Defib, folder, text, &Options::default())
}

/// Parses a text of any format as if it lay in `folder`.
pub(crate) fn parse_as(format: Format, folder: &Path, text: &str, options: &Options) -> Outcome {
    let mut findings = Findings::default();
    let config = foreign::read(format, text, folder, options, &mut findings)
        .and_then(|entries| lowered(format, entries, folder, options, &mut findings));
    let config = if findings.has_errors() { None } else { config };
    Outcome { config, diagnostics: findings.into_diagnostics(text) }
}

/// From the tree of a `defib.toml` to what it means.
pub(crate) fn lowered(
    format: Format,
    entries: Vec<crate::tree::Entry>,
    folder: &Path,
    options: &Options,
    findings: &mut Findings,
) -> Option<Config> {
    let fields: Option<Fields> = check::table(entries, Span::START, &FILE, findings);
    let config = lower::file(&fields?, folder, options.watchdog, findings)?;
    if config.agents.is_empty() {
        findings.warning(Span::START, "no agent is declared").help(format.how_to_declare());
    }
    Some(config)
}

/// The folder a file lies in, from the root on where that can be told.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
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
