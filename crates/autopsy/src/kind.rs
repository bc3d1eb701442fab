//! What sort of program an agent is, and how that is told from its command.
//!
//! A guess only ever chooses which rules are tried first: what nobody recognises is `generic`.

use serde::{Deserialize, Serialize};

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $variant:ident = $word:literal),* $(,)?) => {
        /// What sort of program an agent is: whose records and whose messages are read.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(rename_all = "lowercase")]
        pub enum Kind {
            $($(#[doc = $doc])* $variant),*
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &[Kind] = &[$(Kind::$variant),*];

            /// The word by which config, JSON and people call it.
            pub const fn word(self) -> &'static str {
                match self { $(Kind::$variant => $word),* }
            }
        }
    };
}

kinds! {
    /// Claude Code.
    Claude = "claude",
    /// Codex.
    Codex = "codex",
    /// Gemini CLI.
    Gemini = "gemini",
    /// opencode.
    Opencode = "opencode",
    /// goose.
    Goose = "goose",
    /// aider.
    Aider = "aider",
    /// A Python program.
    Python = "python",
    /// A Node program.
    Node = "node",
    /// Any other program.
    Generic = "generic",
}

/// The names that a program of a kind goes by: as a command, as a package, as a folder of one.
const NAMES: &[(Kind, &[&str])] = &[
    (Kind::Claude, &["claude", "claude-code", "@anthropic-ai/claude-code"]),
    (Kind::Codex, &["codex", "codex-cli", "@openai/codex"]),
    (Kind::Gemini, &["gemini", "gemini-cli", "@google/gemini-cli"]),
    (Kind::Opencode, &["opencode", "opencode-ai"]),
    (Kind::Goose, &["goose", "goose-cli"]),
    (Kind::Aider, &["aider", "aider-chat"]),
    (Kind::Python, &["openhands", "openhands-ai"]),
];

/// Programs that run the program which a later word names.
const WRAPPERS: &[&str] = &[
    "env",
    "nice",
    "ionice",
    "timeout",
    "nohup",
    "stdbuf",
    "sudo",
    "doas",
    "setsid",
    "exec",
    "time",
    "unbuffer",
    "chronic",
    "xvfb-run",
    "dotenv",
    "direnv",
    "mise",
    "systemd-run",
];

/// Programs that fetch or find a package and run it, with the language the package is in.
const RUNNERS: &[(&str, Kind)] = &[
    ("npx", Kind::Node),
    ("npm", Kind::Node),
    ("pnpm", Kind::Node),
    ("pnpx", Kind::Node),
    ("yarn", Kind::Node),
    ("bunx", Kind::Node),
    ("uv", Kind::Python),
    ("uvx", Kind::Python),
    ("pipx", Kind::Python),
    ("poetry", Kind::Python),
    ("pdm", Kind::Python),
    ("rye", Kind::Python),
    ("hatch", Kind::Python),
    ("conda", Kind::Python),
];

impl Kind {
    /// The kind that a word names.
    pub fn from_word(word: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|kind| kind.word() == word)
    }

    /// The kind of program that a command runs, as far as its words tell.
    pub fn guess<S: AsRef<str>>(command: &[S]) -> Kind {
        let words: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
        guess(&words, 0).unwrap_or(Kind::Generic)
    }
}

fn guess(words: &[&str], depth: u8) -> Option<Kind> {
    let at = words.iter().position(|word| !is_assignment(word))?;
    let (program, rest) = (words[at], &words[at + 1..]);
    if let Some(kind) = named(program) {
        return Some(kind);
    }
    let name = basename(program);
    // A command within a command within a command is as far as anybody looks.
    if depth < 4 {
        if matches!(name, "sh" | "bash" | "zsh" | "dash" | "fish") {
            let line = rest.iter().find(|word| !word.starts_with('-'))?;
            let inner: Vec<&str> = line.split_whitespace().map(unquoted).collect();
            return guess(&inner, depth + 1);
        }
        if WRAPPERS.contains(&name) {
            let rests = (0..rest.len()).map(|from| &rest[from..]);
            return rests.filter_map(|rest| guess(rest, depth + 1)).find(|k| *k != Kind::Generic);
        }
        if let Some((_, language)) = RUNNERS.iter().find(|(runner, _)| *runner == name) {
            return Some(package(rest, depth).unwrap_or(*language));
        }
    }
    if is_interpreter(name, "python") || is_interpreter(name, "pypy") {
        let module = rest.iter().skip_while(|word| **word != "-m").nth(1);
        let script = module.or_else(|| rest.iter().find(|word| !word.starts_with('-')));
        return Some(script.and_then(|script| named(script)).unwrap_or(Kind::Python));
    }
    if matches!(name, "node" | "nodejs" | "bun" | "deno" | "tsx" | "ts-node") {
        let script = rest.iter().find(|word| !matches!(**word, "run" | "x") && is_plain(word));
        return Some(script.and_then(|script| named(script)).unwrap_or(Kind::Node));
    }
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("py") => Some(Kind::Python),
        Some("js" | "mjs" | "cjs" | "ts") => Some(Kind::Node),
        Some(_) | None => None,
    }
}

/// The kind of the package that a runner is to run.
fn package(rest: &[&str], depth: u8) -> Option<Kind> {
    let verbs = ["exec", "dlx", "run", "tool", "x", "--"];
    let at = rest.iter().position(|word| is_plain(word) && !verbs.contains(word))?;
    guess(&rest[at..], depth + 1)
}

/// The kind whose program, package or module a word names, be it by its path.
fn named(word: &str) -> Option<Kind> {
    let known =
        |part: &str| NAMES.iter().find(|(_, names)| names.contains(&part)).map(|(kind, _)| *kind);
    // The folder of a package says whose `cli.js` it is; a folder of a user's says nothing.
    for packages in ["node_modules/", "site-packages/"] {
        if let Some((_, path)) = word.rsplit_once(packages) {
            let parts: Vec<&str> = path.splitn(3, '/').collect();
            let scoped = parts.get(..2).map(|two| two.join("/"));
            return scoped.and_then(|name| known(&name)).or_else(|| known(parts[0]));
        }
    }
    // A package may carry its version: `@openai/codex@latest`, `aider-chat==0.80`.
    let scope = usize::from(word.starts_with('@'));
    let end = word[scope..].find(['@', '=', '[']).map_or(word.len(), |at| scope + at);
    let package = &word[..end];
    known(package).or_else(|| if scope == 0 { known(basename(package)) } else { None })
}

fn basename(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

fn unquoted(word: &str) -> &str {
    word.trim_matches(['"', '\''])
}

fn is_plain(word: &str) -> bool {
    !word.starts_with('-') && !is_assignment(word)
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
    })
}

fn is_interpreter(name: &str, language: &str) -> bool {
    let version = name.strip_prefix(language);
    version.is_some_and(|version| version.bytes().all(|b| b == b'.' || b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_again_by_its_word() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_word(kind.word()), Some(*kind));
        }
        assert_eq!(Kind::from_word("auto"), None);
    }

    #[test]
    fn a_kind_is_told_from_the_words_of_a_command() {
        let table = [
            ("claude -p review", Kind::Claude),
            ("/home/me/.local/bin/claude --resume x", Kind::Claude),
            ("npx -y @anthropic-ai/claude-code -p x", Kind::Claude),
            ("node /usr/lib/node_modules/@anthropic-ai/claude-code/cli.js -p x", Kind::Claude),
            ("sh -c 'claude -p x'", Kind::Claude),
            ("codex exec --json x", Kind::Codex),
            ("npx @openai/codex exec x", Kind::Codex),
            ("npx @openai/codex@latest exec x", Kind::Codex),
            ("pnpm dlx @openai/codex exec x", Kind::Codex),
            ("env FOO=bar RUST_LOG=info codex exec", Kind::Codex),
            ("timeout -s TERM 1h codex exec", Kind::Codex),
            ("nice -n 5 gemini -p x", Kind::Gemini),
            ("bunx @google/gemini-cli -p x", Kind::Gemini),
            ("opencode run x", Kind::Opencode),
            ("goose run -t x", Kind::Goose),
            ("aider --message x", Kind::Aider),
            ("python -m aider --message x", Kind::Aider),
            ("python3.12 -u -m aider", Kind::Aider),
            ("uvx aider-chat --message x", Kind::Aider),
            ("uv tool run aider-chat==0.80", Kind::Aider),
            ("uv run agent.py", Kind::Python),
            ("uvx some-agent", Kind::Python),
            ("python3 loop.py", Kind::Python),
            ("openhands -t x", Kind::Python),
            ("./agent.py", Kind::Python),
            ("node agent.js", Kind::Node),
            ("deno run agent.ts", Kind::Node),
            ("npm run agent", Kind::Node),
            ("FOO=1 claude -p x", Kind::Claude),
            ("./claude-review.sh", Kind::Generic),
            ("/srv/claude/run-agent", Kind::Generic),
            ("cargo run", Kind::Generic),
            ("echo claude", Kind::Generic),
            ("", Kind::Generic),
        ];
        for (line, kind) in table {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(Kind::guess(&words), kind, "{line}");
        }
        assert_eq!(Kind::guess(&["bash", "-lc", "exec claude -p 'x y'"]), Kind::Claude);
        assert_eq!(Kind::guess(&["sudo", "-u", "agent", "--", "codex", "exec"]), Kind::Codex);
        assert_eq!(Kind::guess(&["/bin/sh", "-c", "FOO=1 npx @openai/codex"]), Kind::Codex);
    }
}
