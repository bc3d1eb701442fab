//! The live view: the overview, drawn again in its place on a terminal, and as status lines elsewhere.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use defib_core::State;
use defib_daemon::wire::AgentStatus;

use super::status::{overview, status_line};
use crate::failure::Failure;
use crate::output;

/// How often a status line is printed where nobody draws.
const LINES_EVERY: Duration = Duration::from_secs(5);

/// The agents on so many lines: where they do not all fit, those that need a look come first.
fn fitted(statuses: &[AgentStatus], room: usize) -> String {
    let now = jiff::Timestamp::now();
    if statuses.len() <= room {
        return overview(statuses, now);
    }
    let mut sorted = statuses.to_vec();
    sorted.sort_by_key(|status| (urgency(status.state), !status.flapping));
    let rest = sorted.split_off(room.saturating_sub(1));
    let mut counts: BTreeMap<(u8, &str), usize> = BTreeMap::new();
    for status in &rest {
        *counts.entry((urgency(status.state), status.state.word())).or_default() += 1;
    }
    let counts: Vec<String> =
        counts.into_iter().map(|((_, word), count)| format!("{count} {word}")).collect();
    format!("{}… and {} more: {}\n", overview(&sorted, now), rest.len(), counts.join(", "))
}

/// What needs a person's look first comes first.
const fn urgency(state: State) -> u8 {
    match state {
        State::CrashedOut | State::Halted => 0,
        State::Backoff => 1,
        State::Waiting => 2,
        State::Starting | State::Stopping => 3,
        State::Running => 4,
        State::Idle | State::Stopped | State::Done => 5,
    }
}

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

    /// Says something; what is drawn goes on below it.
    pub(crate) fn say(&mut self, line: &str) -> Result<(), Failure> {
        let up = self.back_to_begin();
        self.drawn = 0;
        output::draw(&up, &format!("{line}\n"), "")
    }

    /// What brings the cursor back to where the view was begun, and clears it.
    fn back_to_begin(&self) -> String {
        if self.drawn > 0 { format!("\x1b[{}A\x1b[J", self.drawn) } else { String::new() }
    }

    /// Shows the agents. Where nobody draws, only what has changed is printed, or what is the last.
    pub(crate) fn show(
        &mut self,
        project: &str,
        statuses: &[AgentStatus],
        is_last: bool,
    ) -> Result<(), Failure> {
        if self.draws {
            let room = crate::tty::size().map_or(24, |(rows, _)| usize::from(rows)).max(6) - 3;
            let text = fitted(statuses, room);
            let up = self.back_to_begin();
            self.drawn = text.lines().count();
            // A line that is too long is cut, not continued on the next: the view stays in its place.
            return output::draw(&format!("{up}\x1b[?7l"), &text, "\x1b[?7h");
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
