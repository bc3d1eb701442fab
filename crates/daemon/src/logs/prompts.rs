//! Watching a terminal for a prompt: whoever has stopped in the middle of its screen may be asking
//! something that only a person can answer.

use std::time::{Duration, Instant};

use defib_autopsy::prompt_on;

/// How long a terminal has been quiet when it is looked at.
const QUIET: Duration = Duration::from_secs(2);

/// What is known of one terminal. One that nobody has written on, and who has no terminal, is never
/// looked at.
#[derive(Debug, Default)]
pub(super) struct PromptWatch {
    /// When it is looked at, if nothing is written until then.
    look_at: Option<Instant>,
    /// Whether it stood at a prompt when it was last looked at.
    asks: bool,
}

impl PromptWatch {
    /// One that has nothing to look at yet.
    pub(super) const fn new() -> PromptWatch {
        PromptWatch { look_at: None, asks: false }
    }

    /// Something was written, or may have been before we came. Says whether a prompt is answered by that.
    pub(super) fn wrote(&mut self, now: Instant) -> bool {
        self.look_at = Some(now + QUIET);
        std::mem::take(&mut self.asks)
    }

    /// When it is to be looked at.
    pub(super) fn due(&self) -> Option<Instant> {
        self.look_at
    }

    /// Looks at what is on the screen where it is time for that. Gives the question, if there is one.
    pub(super) fn look(
        &mut self,
        now: Instant,
        screen: impl FnOnce() -> Vec<String>,
    ) -> Option<String> {
        self.look_at.take_if(|at| *at <= now)?;
        let question = prompt_on(&screen());
        self.asks |= question.is_some();
        question
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_looked_at_once_when_it_has_been_quiet() {
        let screen = || vec!["Do you want to proceed?".to_owned(), "❯ 1. Yes".to_owned()];
        let (begin, mut watch) = (Instant::now(), PromptWatch::new());
        assert_eq!(watch.look(begin + 9 * QUIET, screen), None, "nobody has written");
        assert!(!watch.wrote(begin));
        assert_eq!(watch.due(), Some(begin + QUIET));
        let not_looked = || unreachable!("it is not quiet yet");
        assert_eq!(watch.look(begin + QUIET / 2, not_looked), None);
        assert!(watch.look(begin + QUIET, screen).is_some());
        assert_eq!((watch.due(), watch.look(begin + 2 * QUIET, not_looked)), (None, None));
        assert!(watch.wrote(begin + 3 * QUIET), "the prompt is answered");
        assert!(!watch.wrote(begin + 3 * QUIET), "once");
    }
}
