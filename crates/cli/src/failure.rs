//! Failures as a caller sees them: a message, a next step, an exit code.

use std::fmt;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use defib_core::screen;

/// The exit codes that scripts depend on. 0 is fine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// It did not work.
    Failed = 1,
    /// Wrong use.
    Usage = 2,
    /// The config is invalid.
    Config = 3,
    /// No daemon is running.
    NoDaemon = 4,
    /// There is no such agent.
    NoAgent = 5,
    /// The agent is not in a state for that.
    NotInState = 6,
}

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    message: String,
    hint: Option<String>,
    /// The daemon went away before it had answered.
    lost: bool,
    /// The daemon says that it is ending.
    ending: bool,
    /// The change is in effect, but the daemon could not store it.
    unstored: bool,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl fmt::Display) -> Failure {
        let message = message.to_string();
        Failure { code, message, hint: None, lost: false, ending: false, unstored: false }
    }

    /// A failure of which everything has been said already.
    pub(crate) fn told(code: Code) -> Failure {
        Failure::new(code, "")
    }

    pub(crate) fn hint(self, hint: impl fmt::Display) -> Failure {
        Failure { hint: Some(hint.to_string()), ..self }
    }

    /// The daemon went away before it had answered.
    pub(crate) fn lost(message: impl fmt::Display) -> Failure {
        Failure { lost: true, ..Failure::new(Code::Failed, message) }
    }

    /// The daemon says that it is ending.
    pub(crate) fn ending(message: impl fmt::Display) -> Failure {
        Failure { ending: true, ..Failure::new(Code::Failed, message) }
    }

    /// The daemon could not store a change.
    pub(crate) fn unstored(message: impl fmt::Display) -> Failure {
        Failure { unstored: true, ..Failure::new(Code::Failed, message) }
    }

    /// Whether the daemon could not store a change.
    pub(crate) fn is_unstored(&self) -> bool {
        self.unstored
    }

    /// Whether the daemon went away before it had answered.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Whether the daemon is ending: to ask it again is of no use.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending
    }

    /// Whether it has this exit code.
    pub(crate) fn is(&self, code: Code) -> bool {
        self.code == code
    }

    /// Says it on standard error.
    pub(crate) fn report(self) -> ExitCode {
        let error = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
        let help = Style::new().bold().fg_color(Some(AnsiColor::Cyan.into()));
        if !self.message.is_empty() {
            // It may quote an agent's words.
            anstream::eprintln!("{error}error{error:#}: {}", screen::plain(&self.message));
        }
        if let Some(hint) = self.hint {
            anstream::eprintln!("{help}help{help:#}: {}", screen::plain(&hint));
        }
        ExitCode::from(self.code as u8)
    }
}

/// In one line, for those who have no standard error to say it on.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hint {
            Some(hint) => write!(f, "{} ({hint})", self.message),
            None => f.write_str(&self.message),
        }
    }
}
