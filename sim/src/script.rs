//! Scripts: what the runs of a rehearsed agent do, in one line of text.
//!
//! Steps are separated by `;`, each `[run DURATION] (exit N | signal NAME | hang | spawn-error |
//! class CLASS [reset DURATION])`. The last step repeats, unless the script is the history of a real
//! agent, of which nobody knows how it goes on. Any text gives a script or one error with
//! its place; none makes the parser panic.

use std::fmt;
use std::time::Duration;

use defib_core::run::Status;
use defib_core::{Class, Signal, span};

/// What the runs of an agent do, in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    steps: Vec<Step>,
    is_endless: bool,
}

/// What one run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// How long it does well.
    pub run: Duration,
    /// What it does then.
    pub end: End,
}

/// How a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It exits with a code.
    Exit(i32),
    /// A signal ends it.
    Signal(Signal),
    /// It goes silent and does not end by itself.
    Hang,
    /// Its command is not there.
    SpawnError,
    /// It ends with a cause that an autopsy would find.
    Class {
        /// The cause.
        class: Class,
        /// When it goes away, from the end of the run on, where that is known.
        reset: Option<Duration>,
    },
    /// It ends as a real run did.
    Recorded {
        /// How that ended.
        status: Status,
        /// What it died of, where that does not follow from how it ended.
        class: Option<Class>,
    },
}

impl End {
    /// Whether the run never comes to life.
    pub fn is_stillborn(self) -> bool {
        match self {
            End::SpawnError | End::Recorded { status: Status::NotSpawned { .. }, .. } => true,
            End::Exit(_)
            | End::Signal(_)
            | End::Hang
            | End::Class { .. }
            | End::Recorded {
                status: Status::Exited(_) | Status::Signaled(_) | Status::Unseen,
                ..
            } => false,
        }
    }
}

/// What is wrong with a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadScript {
    /// What is wrong, and what would be right.
    pub message: String,
    /// The place: bytes from the start of the text, on a character's boundary.
    pub at: usize,
}

const ENDS: &str = "`exit N`, `signal NAME`, `hang`, `spawn-error` or `class CLASS`";

impl Script {
    /// Reads a script.
    pub fn parse(text: &str) -> Result<Script, BadScript> {
        let mut steps = Vec::new();
        let mut at = 0;
        for part in text.split(';') {
            // A `;` after the last step is how people end lists.
            let is_trailing = at + part.len() == text.len() && !steps.is_empty();
            if !(is_trailing && part.trim().is_empty()) {
                steps.push(Words::new(part, at).step()?);
            }
            at += part.len() + 1;
        }
        Ok(Script { steps, is_endless: true })
    }

    /// A script of these steps and no more; nothing without a step.
    pub fn of(steps: Vec<Step>) -> Option<Script> {
        (!steps.is_empty()).then_some(Script { steps, is_endless: false })
    }

    /// Whether it says what the run with this number does.
    pub fn covers(&self, run: u64) -> bool {
        self.is_endless || usize::try_from(run).is_ok_and(|run| run <= self.steps.len())
    }

    /// What the run with this number does, counted from 1. The last step repeats.
    pub fn step(&self, run: u64) -> Step {
        let last = self.steps.len() - 1;
        let at = usize::try_from(run.saturating_sub(1)).unwrap_or(last);
        self.steps[at.min(last)]
    }
}

/// The words of one step, with their places.
struct Words<'a> {
    words: std::iter::Peekable<std::vec::IntoIter<(usize, &'a str)>>,
    end: usize,
}

impl<'a> Words<'a> {
    fn new(part: &'a str, start: usize) -> Words<'a> {
        let place = |word: &'a str| start + (word.as_ptr() as usize - part.as_ptr() as usize);
        let words: Vec<(usize, &str)> =
            part.split_whitespace().map(|word| (place(word), word)).collect();
        Words { words: words.into_iter().peekable(), end: start + part.trim_end().len() }
    }

    fn step(mut self) -> Result<Step, BadScript> {
        let run = self.span_after("run")?;
        let (at, word) = self.word(&format!("a step needs {ENDS}"))?;
        let end = match word {
            "exit" => {
                let (at, code) = self.word("`exit` needs a code, such as `exit 1`")?;
                let code = code.parse::<u8>();
                End::Exit(
                    code.map_err(|_| bad(at, "an exit code is a number from 0 to 255"))?.into(),
                )
            }
            "signal" => {
                let (at, name) = self.word("`signal` needs a name, such as `signal KILL`")?;
                End::Signal(
                    Signal::parse(name)
                        .ok_or_else(|| bad(at, format!("no signal is called {name:?}")))?,
                )
            }
            "hang" => End::Hang,
            "spawn-error" if run.is_some() => {
                return Err(bad(at, "what cannot be spawned does not run before"));
            }
            "spawn-error" => End::SpawnError,
            "class" => self.class()?,
            other => return Err(bad(at, format!("{other:?} is no end of a run: {ENDS} is"))),
        };
        match self.words.next() {
            Some((at, extra)) => {
                Err(bad(at, format!("{extra:?} is one word too many: steps are separated by `;`")))
            }
            None => Ok(Step { run: run.unwrap_or_default(), end }),
        }
    }

    fn class(&mut self) -> Result<End, BadScript> {
        let (at, word) = self.word("`class` needs a class, such as `class quota`")?;
        let class = match Class::from_word(word) {
            Some(Class::Stopped | Class::Group) => {
                return Err(bad(at, format!("only defib itself ends a run as {word:?}")));
            }
            Some(class) => class,
            None => {
                let words: Vec<&str> = Class::ALL.iter().map(|class| class.word()).collect();
                return Err(bad(
                    at,
                    format!("no class is called {word:?}: there are {}", words.join(", ")),
                ));
            }
        };
        Ok(End::Class { class, reset: self.span_after("reset")? })
    }

    /// The duration after a word, where that word comes next.
    fn span_after(&mut self, word: &str) -> Result<Option<Duration>, BadScript> {
        if self.words.next_if(|(_, next)| *next == word).is_none() {
            return Ok(None);
        }
        let (at, text) = self.word(&format!("`{word}` needs a duration, such as `{word} 2h`"))?;
        let span = span::parse(text).map_err(|error| bad(at, format!("{text:?}: {error}")))?;
        Ok(Some(span))
    }

    fn word(&mut self, or_else: &str) -> Result<(usize, &'a str), BadScript> {
        self.words.next().ok_or_else(|| bad(self.end, or_else))
    }
}

fn bad(at: usize, message: impl Into<String>) -> BadScript {
    BadScript { message: message.into(), at }
}

impl fmt::Display for BadScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BadScript {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, proptest};

    fn end(end: End) -> Step {
        Step { run: Duration::ZERO, end }
    }

    #[test]
    fn every_form_of_a_step_is_read() {
        let text = "exit 1; run 2h exit 0;signal KILL ; hang; run 5m hang; spawn-error; \
                    class auth; run 1h30m class quota reset 3h;";
        let steps = [
            end(End::Exit(1)),
            Step { run: Duration::from_secs(7200), end: End::Exit(0) },
            end(End::Signal(Signal::KILL)),
            end(End::Hang),
            Step { run: Duration::from_secs(300), end: End::Hang },
            end(End::SpawnError),
            end(End::Class { class: Class::Auth, reset: None }),
            Step {
                run: Duration::from_secs(5400),
                end: End::Class { class: Class::Quota, reset: Some(Duration::from_secs(10_800)) },
            },
        ];
        assert_eq!(Script::parse(text).unwrap().steps, steps);
    }

    #[test]
    fn the_last_step_repeats() {
        let script = Script::parse("exit 1; exit 0").unwrap();
        let code = |run| script.step(run).end;
        assert_eq!([code(1), code(2), code(3), code(u64::MAX)], [1, 0, 0, 0].map(End::Exit));
    }

    #[test]
    fn an_error_says_what_is_wrong_and_where() {
        for (text, at, part) in [
            ("", 0, "a step needs"),
            ("exit 1;; exit 1", 7, "a step needs"),
            ("exit", 4, "needs a code"),
            ("exit 256", 5, "0 to 255"),
            ("exit -1", 5, "0 to 255"),
            ("exit 1 2", 7, "one word too many"),
            ("exit 1 exit 1", 7, "separated by `;`"),
            ("boom", 0, "is no end of a run"),
            ("run exit 1", 4, "duration"),
            ("run 5 exit 1", 4, "needs a unit"),
            ("run 5s", 6, "a step needs"),
            ("run 5s spawn-error", 7, "does not run before"),
            ("signal NOPE", 7, "no signal"),
            ("class nope", 6, "no class"),
            ("class stopped", 6, "only defib"),
            ("class quota reset", 17, "needs a duration"),
            ("ü; exit", 0, "is no end"),
        ] {
            let error = Script::parse(text).unwrap_err();
            assert_eq!(error.at, at, "{text:?}: {error}");
            assert!(error.message.contains(part), "{text:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_gives_a_script_or_an_error_with_its_place(text in "\\PC*") {
            check(&text)?;
        }

        #[test]
        fn any_words_of_the_grammar_give_a_script_or_an_error_with_its_place(
            words in proptest::collection::vec(
                proptest::sample::select(vec![
                    "run", "exit", "signal", "hang", "spawn-error", "class", "reset", ";", "1",
                    "256", "KILL", "quota", "5s", "1h30m", "", "é", "99999999999999999999d",
                ]),
                0..12,
            )
        ) {
            check(&words.join(" "))?;
        }
    }

    fn check(text: &str) -> Result<(), proptest::test_runner::TestCaseError> {
        match Script::parse(text) {
            Ok(script) => prop_assert!(!script.steps.is_empty()),
            Err(error) => prop_assert!(text.is_char_boundary(error.at)),
        }
        Ok(())
    }
}
