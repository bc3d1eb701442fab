//! The rule files: what is known of each kind of agent, read once.
//!
//! A file says which exit codes, code words and lines mean which class. Everything in it is data
//! with a version, so that a wording that drifted is a new line there and not new code here.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::OnceLock;

use defib_core::Class;
use regex::{Regex, RegexBuilder};
use serde::Deserialize;

use crate::kind::Kind;

/// The most memory that one compiled expression may take.
const EXPRESSION_BYTES: usize = 1 << 20;

/// What a rule makes of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sense {
    /// It says what the run died of.
    Class(Class),
    /// It is written by an agent that goes on: it says nothing of a death.
    Alive,
}

/// A rule of a user's own, from a `defib.toml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRule {
    /// The kind it is for; nothing means all.
    pub kind: Option<Kind>,
    /// An anchored regular expression, for one line of the agent's own.
    pub pattern: String,
    /// What a match makes of the death.
    pub class: Class,
}

/// One rule, ready to be tried.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) sense: Sense,
    pub(crate) regex: Regex,
    /// Whether it holds although the exit code is 0.
    pub(crate) after_zero: bool,
}

/// What one rule file says.
#[derive(Debug)]
pub(crate) struct Book {
    /// Rules in the order they are tried.
    pub(crate) rules: Vec<Rule>,
    exit_codes: BTreeMap<i32, Class>,
    /// What a code word stands for: an error's type, name or code. Lower case.
    words: BTreeMap<String, Class>,
    statuses: BTreeMap<u16, Class>,
    lines_after_zero: usize,
    also: Vec<Kind>,
}

/// Everything known of a kind: its own book first, then those of the kinds it is built on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shelf(&'static Book);

impl Shelf {
    pub(crate) fn of(kind: Kind) -> Shelf {
        Shelf(Book::of(kind))
    }

    fn books(self) -> impl Iterator<Item = &'static Book> {
        std::iter::once(self.0).chain(self.0.also.iter().map(|kind| Book::of(*kind)))
    }

    /// Every rule, in the order they are tried.
    pub(crate) fn rules(self) -> impl Iterator<Item = &'static Rule> {
        self.books().flat_map(|book| &book.rules)
    }

    /// The class of an exit code, where that says more than that it failed.
    pub(crate) fn exit_code(self, code: i32) -> Option<Class> {
        self.books().find_map(|book| book.exit_codes.get(&code)).copied()
    }

    /// The class that a code word stands for.
    pub(crate) fn word(self, word: &str) -> Option<Class> {
        let word = word.to_ascii_lowercase();
        self.books().find_map(|book| book.words.get(&word)).copied()
    }

    /// The class of an HTTP status.
    pub(crate) fn status(self, status: u16) -> Option<Class> {
        self.books().find_map(|book| book.statuses.get(&status)).copied()
    }

    /// How many of the last lines may contradict exit code 0: some kinds exit with it after a
    /// failure too.
    pub(crate) fn lines_after_zero(self) -> usize {
        self.0.lines_after_zero
    }
}

impl Book {
    /// The book of a kind, read when it is first asked for.
    fn of(kind: Kind) -> &'static Book {
        static BOOKS: [OnceLock<Book>; Kind::ALL.len()] =
            [const { OnceLock::new() }; Kind::ALL.len()];
        BOOKS[kind as usize].get_or_init(|| {
            let book = file_of(kind).and_then(Book::read);
            // The files are part of the program, and a test reads each of them.
            book.unwrap_or_else(|error| panic!("{error}"))
        })
    }

    fn read(file: RuleFile) -> Result<Book, RuleError> {
        let name = file.kind.word();
        let wrong = |what: String| RuleError(format!("rules/{name}.toml: {what}"));
        let rule = |rule: RuleText| {
            let sense = match rule.class.as_str() {
                "alive" => Sense::Alive,
                word => Sense::Class(
                    Class::from_word(word).ok_or_else(|| wrong(format!("no class {word:?}")))?,
                ),
            };
            Ok(Rule { sense, regex: compile_own(&rule.pattern)?, after_zero: rule.after_zero })
        };
        Ok(Book {
            rules: file.rule.into_iter().map(rule).collect::<Result<_, _>>()?,
            exit_codes: by_number(file.exit_codes).map_err(wrong)?,
            words: file.words.into_iter().map(|(w, c)| (w.to_ascii_lowercase(), c)).collect(),
            statuses: by_number(file.statuses).map_err(wrong)?,
            lines_after_zero: file.lines_after_zero,
            also: file.also,
        })
    }
}

/// A table of TOML, whose keys are texts, by the numbers that they are.
fn by_number<N: FromStr + Ord>(
    table: BTreeMap<String, Class>,
) -> Result<BTreeMap<N, Class>, String> {
    let entry = |(key, class): (String, Class)| match key.parse() {
        Ok(number) => Ok((number, class)),
        Err(_) => Err(format!("{key:?} is not a number")),
    };
    table.into_iter().map(entry).collect()
}

/// A rule file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleFile {
    /// Counts up with every change of the file.
    #[cfg_attr(not(test), expect(dead_code, reason = "for people and for checks"))]
    pub(crate) version: u32,
    pub(crate) kind: Kind,
    /// The kinds whose rules follow this one's own.
    #[serde(default)]
    also: Vec<Kind>,
    #[serde(default)]
    lines_after_zero: usize,
    #[serde(default)]
    exit_codes: BTreeMap<String, Class>,
    #[serde(default)]
    words: BTreeMap<String, Class>,
    #[serde(default)]
    statuses: BTreeMap<String, Class>,
    #[serde(default)]
    pub(crate) rule: Vec<RuleText>,
}

/// A rule as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleText {
    #[cfg_attr(not(test), expect(dead_code, reason = "for people and for checks"))]
    pub(crate) name: String,
    /// A class, or `alive`.
    pub(crate) class: String,
    #[serde(rename = "match")]
    pub(crate) pattern: String,
    #[serde(default)]
    after_zero: bool,
    /// Lines that it must match.
    #[cfg_attr(not(test), expect(dead_code, reason = "for checks"))]
    #[serde(default)]
    pub(crate) yes: Vec<String>,
    /// Lines that it must not match.
    #[cfg_attr(not(test), expect(dead_code, reason = "for checks"))]
    #[serde(default)]
    pub(crate) no: Vec<String>,
}

const fn text_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Claude => include_str!("../rules/claude.toml"),
        Kind::Codex => include_str!("../rules/codex.toml"),
        Kind::Gemini => include_str!("../rules/gemini.toml"),
        Kind::Opencode => include_str!("../rules/opencode.toml"),
        Kind::Goose => include_str!("../rules/goose.toml"),
        Kind::Aider => include_str!("../rules/aider.toml"),
        Kind::Python => include_str!("../rules/python.toml"),
        Kind::Node => include_str!("../rules/node.toml"),
        Kind::Generic => include_str!("../rules/generic.toml"),
    }
}

/// What is wrong with a rule.
#[derive(Debug)]
pub struct RuleError(String);

impl std::fmt::Display for RuleError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RuleError {}

/// The rule file of a kind.
pub(crate) fn file_of(kind: Kind) -> Result<RuleFile, RuleError> {
    let name = kind.word();
    let file: RuleFile = toml::from_str(text_of(kind))
        .map_err(|error| RuleError(format!("rules/{name}.toml: {error}")))?;
    if file.kind != kind {
        return Err(RuleError(format!("rules/{name}.toml is for {}", file.kind.word())));
    }
    Ok(file)
}

/// An expression of the user's own, as it is written, but of bounded size.
pub(crate) fn compile(pattern: &str) -> Result<Regex, RuleError> {
    built(pattern, RegexBuilder::new(pattern).case_insensitive(false))
}

/// An expression of ours. It does not mind the case, and its classes are those of ASCII: what rules
/// look for is, and the expressions are a tenth in size and time.
pub(crate) fn compile_own(pattern: &str) -> Result<Regex, RuleError> {
    let ascii = [
        (r"\w", "[0-9A-Za-z_]"),
        (r"\d", "[0-9]"),
        (r"\s", r"[\t\n\r ]"),
        (r"\S", r"[^\t\n\r ]"),
        (r"\b", r"(?-u:\b)"),
    ];
    let plain =
        ascii.iter().fold(pattern.to_owned(), |text, (class, own)| text.replace(class, own));
    built(pattern, RegexBuilder::new(&plain).case_insensitive(true))
}

fn built(pattern: &str, builder: &mut RegexBuilder) -> Result<Regex, RuleError> {
    let builder = builder.size_limit(EXPRESSION_BYTES).dfa_size_limit(EXPRESSION_BYTES);
    builder.build().map_err(|error| RuleError(format!("{pattern:?}: {error}")))
}
