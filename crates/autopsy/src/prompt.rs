//! Whether a screen stands at a prompt that only a person can answer.

use std::sync::OnceLock;

use regex::Regex;
use serde::Deserialize;

use crate::rules::compile_own;

/// How many of the last lines that have something on them may be part of a prompt.
const LAST: usize = 12;
/// A longer line is no question.
const LONGEST: usize = 400;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// For whoever reads the file: it is raised when what it says changes.
    #[expect(dead_code, reason = "it is there to be read by people")]
    version: u32,
    prompt: Vec<Prompt>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(test), expect(dead_code, reason = "examples are there to be tested"))]
struct Prompt {
    name: String,
    #[serde(rename = "match")]
    pattern: String,
    yes: Vec<String>,
    no: Vec<String>,
}

fn file() -> File {
    let text = include_str!("../rules/prompts.toml");
    // The file is part of the program, and a test reads it.
    toml::from_str(text).unwrap_or_else(|error| panic!("rules/prompts.toml: {error}"))
}

fn prompts() -> &'static [Regex] {
    static PROMPTS: OnceLock<Vec<Regex>> = OnceLock::new();
    PROMPTS.get_or_init(|| {
        let built = |prompt: Prompt| {
            compile_own(&prompt.pattern).unwrap_or_else(|error| panic!("{}: {error}", prompt.name))
        };
        file().prompt.into_iter().map(built).collect()
    })
}

/// The line of a screen by which it stands at a prompt that only a person can answer, if it does.
pub fn prompt_on<S: AsRef<str>>(screen: &[S]) -> Option<String> {
    let written = screen.iter().map(|line| bare(line.as_ref())).filter(|line| !line.is_empty());
    let last: Vec<&str> = written.rev().take(LAST).collect();
    let asks = |line: &&&str| line.len() <= LONGEST && prompts().iter().any(|p| p.is_match(line));
    // The question stands above its answers.
    last.iter().rev().find(asks).map(|line| (*line).to_owned())
}

/// A line without the frame around it and the mark before a choice.
fn bare(line: &str) -> &str {
    let is_frame = |c: char| {
        c.is_whitespace() || ('\u{2500}'..='\u{25ff}').contains(&c) || "❯›>●○│┃|▌•?*".contains(c)
    };
    let line = line.trim_start_matches(is_frame);
    line.trim_end_matches(|c: char| {
        c.is_whitespace() || ('\u{2500}'..='\u{25ff}').contains(&c) || c == '|'
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prompt_knows_its_examples() {
        for Prompt { name, pattern, yes, no } in file().prompt {
            let regex = compile_own(&pattern).unwrap();
            assert!(!yes.is_empty() && !no.is_empty(), "{name} has no examples");
            for line in yes {
                assert!(regex.is_match(bare(&line)), "{name}: {line:?} is one");
                assert!(prompt_on(&[line.as_str()]).is_some(), "{name}: {line:?}");
            }
            for line in no {
                assert!(!regex.is_match(bare(&line)), "{name}: {line:?} is none");
            }
        }
    }

    #[test]
    fn a_question_is_found_in_its_frame_above_its_answers() {
        let screen = [
            "● Bash(rm -rf build)",
            "╭──────────────────────────────╮",
            "│ Bash command                 │",
            "│   rm -rf build               │",
            "│ Do you want to proceed?      │",
            "│ ❯ 1. Yes                     │",
            "│   2. No, tell me more (esc)  │",
            "╰──────────────────────────────╯",
            "",
        ];
        assert_eq!(prompt_on(&screen).as_deref(), Some("Do you want to proceed?"));
    }

    #[test]
    fn work_is_no_prompt() {
        for screen in [
            ["Thinking…", "12% of it is done"],
            ["$ cargo test", "test result: ok. 12 passed"],
            ["Do you want to proceed?", "is what it prints when it asks."],
        ] {
            let asked = prompt_on(&screen);
            let expected = screen[0].ends_with("proceed?");
            assert_eq!(asked.is_some(), expected, "{screen:?}: {asked:?}");
        }
        assert_eq!(prompt_on::<&str>(&[]), None);
        assert_eq!(prompt_on(&["?".repeat(100_000)]), None);
    }
}
