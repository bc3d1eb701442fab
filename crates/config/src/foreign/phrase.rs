//! Text with holes, as other systems fill them from the environment when they start.
//!
//! A `defib.toml` has no holes: what it says is what runs. A shell has them, so a command with holes
//! becomes a line for one, and the variables in it are passed on by name. Text without holes stays
//! the plain words it is.

use std::collections::HashSet;

use crate::source::Span;
use crate::tree::Value;

use super::section::{Table, last_of_each};

/// What every agent has of its caller's environment without being told.
const BASE: [&str; 8] = ["PATH", "HOME", "USER", "SHELL", "LANG", "TERM", "TZ", "TMPDIR"];

/// Characters that stand for holes while a text is split into words; no text of people's has them.
const FIRST_MARK: u32 = 0xE000;
const MARKS: u32 = 0x1900;

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// As it stands.
    Plain(String),
    /// Filled in by a shell.
    Hole {
        /// As a shell has it: `${PORT:-80}`.
        shell: String,
        /// What is put there where nobody can fill it in.
        default: Option<String>,
    },
}

/// A text with holes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Phrase(pub(super) Vec<Piece>);

impl Phrase {
    pub(super) fn plain(text: impl Into<String>) -> Phrase {
        Phrase(vec![Piece::Plain(text.into())])
    }

    /// Adds text that stands as it is.
    pub(super) fn push(&mut self, more: &str) {
        if let Some(Piece::Plain(text)) = self.0.last_mut() {
            text.push_str(more);
        } else {
            self.0.push(Piece::Plain(more.to_owned()));
        }
    }

    pub(super) fn push_hole(&mut self, shell: impl Into<String>, default: Option<String>) {
        self.0.push(Piece::Hole { shell: shell.into(), default });
    }

    /// Whether there is nothing to fill in.
    pub(super) fn is_plain(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Plain(_)))
    }

    /// The text with defaults for its holes, or nothing for those without one.
    pub(super) fn filled(&self) -> String {
        let text = |piece: &Piece| match piece {
            Piece::Plain(text) => text.clone(),
            Piece::Hole { default, .. } => default.clone().unwrap_or_default(),
        };
        self.0.iter().map(text).collect()
    }

    /// As one word of a shell's.
    fn quoted(&self) -> String {
        if self.is_plain() {
            let text = self.filled();
            return shlex::try_quote(&text).map_or_else(|_| String::new(), Into::into);
        }
        let piece = |piece: &Piece| match piece {
            Piece::Plain(text) => {
                let special = |c: char| matches!(c, '\\' | '"' | '$' | '`');
                text.chars()
                    .flat_map(|c| special(c).then_some('\\').into_iter().chain([c]))
                    .collect()
            }
            Piece::Hole { shell, .. } => shell.clone(),
        };
        format!("\"{}\"", self.0.iter().map(piece).collect::<String>())
    }

    /// Split as a shell splits words; nothing where a quote is not closed.
    pub(super) fn split(&self) -> Option<Vec<Phrase>> {
        let mut holes = Vec::new();
        let mut line = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Plain(text) => line.push_str(text),
                Piece::Hole { .. } => {
                    let at = u32::try_from(holes.len()).ok().filter(|at| *at < MARKS)?;
                    line.push(char::from_u32(FIRST_MARK + at)?);
                    holes.push(piece);
                }
            }
        }
        let words = shlex::split(&line)?;
        let phrase = |word: &String| {
            let mut phrase = Phrase::default();
            for c in word.chars() {
                let hole = u32::from(c).checked_sub(FIRST_MARK).filter(|at| *at < MARKS);
                match hole.and_then(|at| holes.get(at as usize)) {
                    Some(piece) => phrase.0.push((*piece).clone()),
                    None => phrase.push(c.encode_utf8(&mut [0; 4])),
                }
            }
            phrase
        };
        Some(words.iter().map(phrase).collect())
    }
}

/// What is run, with what, and where.
#[derive(Debug, Clone, Default)]
pub(super) struct Launch {
    pub(super) words: Vec<Phrase>,
    pub(super) env: Vec<(String, Span, Phrase)>,
    pub(super) cwd: Option<(Span, Phrase)>,
    /// Variables that must be there.
    pub(super) needed: Vec<String>,
    /// Variables that are passed on where they are there.
    pub(super) wanted: Vec<String>,
    /// All that was passed, and whether it is needed.
    pub(super) known: HashSet<(bool, String)>,
}

impl Launch {
    /// Passes a variable of the caller's on. One that is needed and not there keeps the agent down.
    pub(super) fn pass(&mut self, variable: &str, is_needed: bool) {
        if BASE.contains(&variable) || variable.starts_with("LC_") {
            return;
        }
        if self.known.insert((is_needed, variable.to_owned())) {
            let list = if is_needed { &mut self.needed } else { &mut self.wanted };
            list.push(variable.to_owned());
        }
    }

    /// The variables that are passed on.
    pub(super) fn passed(&self) -> Vec<&str> {
        self.needed.iter().chain(&self.wanted).map(String::as_str).collect()
    }

    /// Writes it down: as words where it has no holes, else as a line for a shell.
    pub(super) fn write(self, span: Span, own: &mut Table) {
        let mut settings = Vec::new();
        let mut env = Table::default();
        let passed: HashSet<&str> = self.passed().into_iter().collect();
        for (name, span, value) in &self.env {
            // Holes are filled from the caller's environment: what the agent sets itself comes after.
            if value.is_plain() && !passed.contains(name.as_str()) {
                env.text(name, *span, value.filled());
            } else {
                settings.push(format!("{}={} ", Phrase::plain(name).quoted(), value.quoted()));
            }
        }
        let env = Table::of(last_of_each(env.entries));
        let folder = self.cwd.as_ref().filter(|(_, folder)| !folder.is_plain());
        let plain = settings.is_empty() && folder.is_none();
        if plain && self.words.iter().all(Phrase::is_plain) {
            own.texts("command", span, self.words.iter().map(Phrase::filled));
        } else {
            let folder = folder.map_or_else(String::new, |(_, f)| format!("cd {} && ", f.quoted()));
            let env = if settings.is_empty() { "" } else { "env " };
            let words: Vec<String> = self.words.iter().map(Phrase::quoted).collect();
            let line = format!("{folder}exec {env}{}{}", settings.concat(), words.join(" "));
            own.text("command", span, line);
            own.put("shell", span, Value::Bool(true));
        }
        if let Some((span, folder)) = self.cwd.as_ref().filter(|(_, folder)| folder.is_plain()) {
            own.text("cwd", *span, folder.filled());
        }
        if !env.is_empty() {
            own.table("env", span, env);
        }
        write_passed(&self.needed, &self.wanted, span, own);
    }
}

/// Writes down what is passed on: each by its name, so that nothing else comes along.
pub(super) fn write_passed(needed: &[String], wanted: &[String], span: Span, own: &mut Table) {
    let known: HashSet<&String> = needed.iter().collect();
    let optional = wanted.iter().filter(|name| !known.contains(name));
    let mut passed: Vec<String> = needed.to_vec();
    passed.extend(optional.map(|name| format!("{name}?")));
    if !passed.is_empty() {
        own.texts("env_pass", span, passed);
    }
}

/// The variables that a line for a shell mentions, each once, with its place in the line.
pub(super) fn variables(line: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut known = HashSet::new();
    let mut quoted = false;
    let mut chars = line.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' => quoted = !quoted,
            '\\' if !quoted => drop(chars.next()),
            '$' if !quoted => {
                let rest = line[at + 1..].strip_prefix('{').unwrap_or(&line[at + 1..]);
                let name = identifier(rest);
                if !name.is_empty() && known.insert(name) {
                    found.push((at, name.to_owned()));
                }
            }
            _ => {}
        }
    }
    found
}

/// The name of a variable that a text begins with.
pub(super) fn identifier(text: &str) -> &str {
    let fits = |(at, c): (usize, char)| {
        c == '_' || c.is_ascii_alphabetic() || at > 0 && c.is_ascii_digit()
    };
    let end = text.char_indices().find(|found| !fits(*found)).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(phrase: &Phrase) -> Vec<(String, Value)> {
        let launch = Launch { words: phrase.split().unwrap_or_default(), ..Launch::default() };
        let mut own = Table::default();
        launch.write(Span::START, &mut own);
        own.entries.into_iter().map(|entry| (entry.key, entry.node.value)).collect()
    }

    #[test]
    fn words_stay_words_and_holes_make_a_line_for_a_shell() {
        let plain = written(&Phrase::plain("a 'b c' d\\ e"));
        assert!(
            matches!(&plain[..], [(key, Value::List(words))] if key == "command" && words.len() == 3)
        );
        let mut holes = Phrase::plain("run --say \"it's $5 ");
        holes.push_hole("${X:-y}", None);
        holes.push("\" 'plain words'");
        let line = written(&holes);
        let told = line[0].1.as_text();
        assert_eq!(told, Some(r#"exec run --say "it's \$5 ${X:-y}" 'plain words'"#));
        assert_eq!(line[1].0, "shell");
    }

    #[test]
    fn variables_of_a_line_are_those_a_shell_would_fill_in() {
        let names = |line| variables(line).into_iter().map(|(_, name)| name).collect::<Vec<_>>();
        assert_eq!(names("a -p $PORT ${B:-1} $PORT '$C' \\$D $1 $$ ${E}x"), ["PORT", "B", "E"]);
    }
}
