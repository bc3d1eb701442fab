//! The live view: the overview, drawn again in its place on a terminal, and as status lines elsewhere.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use defib_core::State;
use defib_daemon::wire::AgentLine;

use super::status::{overview_within, status_line};
use crate::failure::Failure;
use crate::output;
use crate::table::cut;

/// How often a status line is printed where nobody draws.
const LINES_EVERY: Duration = Duration::from_secs(5);

/// The agents on so many lines: where they do not all fit, those that need a look come first.
fn fitted(lines: &[AgentLine], room: usize, columns: usize) -> String {
    let now = jiff::Timestamp::now();
    if lines.len() <= room {
        return overview_within(lines, now, columns);
    }
    let mut sorted = lines.to_vec();
    sorted.sort_by_key(|line| (urgency(line.state), !line.flapping));
    let rest = sorted.split_off(room.saturating_sub(1));
    let mut counts: BTreeMap<(u8, &str), usize> = BTreeMap::new();
    for line in &rest {
        *counts.entry((urgency(line.state), line.state.word())).or_default() += 1;
    }
    let counts: Vec<String> =
        counts.into_iter().map(|((_, word), count)| format!("{count} {word}")).collect();
    let more = format!("… and {} more: {}", rest.len(), counts.join(", "));
    format!("{}{}\n", overview_within(&sorted, now, columns), cut(&more, columns))
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
        lines: &[AgentLine],
        is_last: bool,
    ) -> Result<(), Failure> {
        if self.draws {
            // A line that is too long is cut, not continued on the next: the view stays in its place.
            let (rows, columns) = crate::tty::size().unwrap_or((24, 80));
            let room = usize::from(rows).max(6) - 3;
            let text = fitted(lines, room, usize::from(columns));
            let up = self.back_to_begin();
            self.drawn = text.lines().count();
            return output::draw(&up, &text, "");
        }
        let line = status_line(project, lines);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::table::width;

    #[test]
    fn on_a_narrow_terminal_the_last_activity_goes_first_and_no_line_is_too_long() {
        let agent = |name: &str| -> AgentLine {
            serde_json::from_value(json!({
                "name": name, "project": "p", "state": "running", "goal": "up", "restarts": 0,
                "uptime_s": 7380.0, "run": 1, "pid": 4711,
                "last_activity_at": "2026-03-01T03:00:00Z",
            }))
            .unwrap()
        };
        let agents: Vec<AgentLine> = ["ingest", "a-rather-long-name", "publish"].map(agent).into();
        let wide = fitted(&agents, 10, 200);
        assert!(wide.contains("LAST ACTIVITY"), "{wide}");
        for columns in [10, 20, 40, 60, 80] {
            let text = fitted(&agents, 2, columns);
            assert!(width(&text) <= columns, "{columns}: {text}");
            assert_eq!(text.lines().count(), 3, "{text}");
        }
        let narrow = fitted(&agents, 10, 60);
        assert!(!narrow.contains("LAST ACTIVITY") && narrow.contains("UPTIME"), "{narrow}");
    }
}
