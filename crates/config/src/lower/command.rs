//! Commands: lists of words, strings that are split into words, lines for a shell.
//!
//! A command that comes out of here names a program. Whether that program exists is not asked: it
//! may be installed later, and on the machine that runs it.

use crate::config::Command;
use crate::diagnostic::Findings;
use crate::fields::{Datum, Item};
use crate::source::Span;
use crate::suggest::quoted;

/// Words that mean something to a shell and nothing to anybody else.
const SHELL_WORDS: [&str; 10] = ["|", "||", "&&", "&", ";", ">", ">>", "<", "2>", "2>&1"];

/// How a command can be run by a shell, where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shell {
    /// By `shell = true` beside it.
    Asked,
    /// By naming the shell in it: nothing beside it asks for one.
    Named,
}

/// Lowers a command without a shell.
pub(super) fn command(
    key: &str,
    item: &Item,
    shell: Shell,
    findings: &mut Findings,
) -> Option<Command> {
    let words = match &item.datum {
        Datum::Text(line) => split(key, line, item.span, shell, findings)?,
        Datum::List(items) => {
            let words = items.iter().map(|item| item.datum.as_text().map(str::to_owned));
            // A word that was wrong has been told of.
            words.collect::<Option<Vec<_>>>()?
        }
        Datum::Bool(_)
        | Datum::Integer(_)
        | Datum::Number(_)
        | Datum::Duration(_)
        | Datum::Name(_)
        | Datum::Table(_)
        | Datum::Broken => return None,
    };
    if words.first().is_none_or(|program| program.trim().is_empty()) {
        findings
            .error(item.span, format!("`{key}` names no program"))
            .label("the first word is empty")
            .help("the first word is the program to run");
        return None;
    }
    Some(Command::Words(words))
}

/// Lowers a command that is a line for a shell, if it is a string.
pub(super) fn shell_command(item: &Item) -> Option<Command> {
    item.datum.as_text().map(|line| Command::Shell(line.to_owned()))
}

fn split(
    key: &str,
    line: &str,
    span: Span,
    shell: Shell,
    findings: &mut Findings,
) -> Option<Vec<String>> {
    let Some(words) = shlex::split(line) else {
        findings
            .error(span, format!("`{key}` cannot be split into words"))
            .label("a quote is not closed, or nothing follows the last `\\`")
            .help("close the quote, or write the words as a list");
        return None;
    };
    if let Some(word) = words.iter().find(|word| SHELL_WORDS.contains(&word.as_str())) {
        let help = match shell {
            Shell::Asked => "set `shell = true` if a shell shall run it".to_owned(),
            Shell::Named => {
                format!("name the shell if one shall run it: `{key} = [\"sh\", \"-c\", \"…\"]`")
            }
        };
        findings
            .warning(span, format!("{} is handed to the program as a plain word", quoted(word)))
            .label("no shell reads this")
            .help(help);
    }
    Some(words)
}
