//! The live view: the overview, drawn again in its place on a terminal, and as status lines elsewhere.

use std::time::{Duration, Instant};

use defib_daemon::wire::AgentStatus;

use super::status::{overview, status_line};
use crate::failure::Failure;
use crate::output;

/// How often a status line is printed where nobody draws.
const LINES_EVERY: Duration = Duration::from_secs(5);

/// A view of agents that is shown again and again.
pub(crate) struct LiveView {
    draws: bool,
    /// How many lines were drawn and are to be drawn over.
    drawn: usize,
    last_line: Option<(Instant, String)>,
}

impl LiveView {
    pub(crate) fn new(draws: bool) -> LiveView {
        LiveView { draws, drawn: 0, last_line: None }
    }

    /// Something else was printed: the next view begins below it.
    pub(crate) fn begin_anew(&mut self) {
        self.drawn = 0;
    }

    /// Shows the agents. Where nobody draws, only what has changed is printed, or what is the last.
    pub(crate) fn show(
        &mut self,
        project: &str,
        statuses: &[AgentStatus],
        is_last: bool,
    ) -> Result<(), Failure> {
        if self.draws {
            let text = overview(statuses, jiff::Timestamp::now());
            let up =
                if self.drawn > 0 { format!("\x1b[{}A\x1b[J", self.drawn) } else { String::new() };
            self.drawn = text.lines().count();
            return output::print(&format!("{up}{text}"));
        }
        let line = status_line(project, statuses);
        let due = match &self.last_line {
            Some((at, said)) => *said != line && at.elapsed() >= LINES_EVERY,
            None => true,
        };
        if due || is_last {
            output::print(&format!("{line}\n"))?;
            self.last_line = Some((Instant::now(), line));
        }
        Ok(())
    }
}
