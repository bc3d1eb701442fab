//! A rehearsal as a timeline that people can read: a row a death, with what was decided, a bar for
//! the delay, and the numbers behind it.

use std::fmt::{self, Display, Write as _};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use defib_core::backoff::Growth;
use defib_core::limit::{Gauge, Measure, Span};
use defib_core::policy::Mode;
use defib_core::record::{Rest, Trip};
use defib_core::rng::Jitter;
use defib_core::span::Shown;
use defib_core::{Class, Policy, Preset, State, What};
use defib_daemon::words::meaning;
use defib_sim::rehearsal::{Account, Outcome};

/// The width of the longest bar.
const BAR: usize = 16;
/// So many rows that say the same are shown before they are folded.
const ALIKE: usize = 3;

/// A rule set and what an agent made of it, in a line.
pub(crate) fn policy_line(preset: Preset, policy: &Policy) -> String {
    let mode = match policy.mode {
        Mode::Always => "always",
        Mode::OnFailure => "on-failure",
        Mode::Never => "never",
    };
    let mut line = format!("{preset} · {mode}");
    let backoff = &policy.backoff;
    let mut plain = Jitter::OFF;
    let base = Shown(backoff.delay(1, &mut plain));
    // A String takes whatever is written to it.
    let _ = match backoff.growth {
        Growth::None => write!(line, " · no delay"),
        Growth::Fixed => write!(line, " · {base} each"),
        Growth::Linear => write!(line, " · {base} more each, up to {}", Shown(backoff.cap)),
        Growth::Exponential => {
            write!(line, " · {base} ×{} up to {}", backoff.factor, Shown(backoff.cap))
        }
    };
    if backoff.jitter > 0.0 {
        let _ = write!(line, " ±{}%", backoff.jitter * 100.0);
    }
    if policy.limits.is_empty() {
        line.push_str(" · no limit");
    }
    for limit in &policy.limits {
        let (what, max) = (measure(limit.measure, limit.max), limit.max);
        let rule = match limit.measure {
            Measure::Deaths => "out at",
            Measure::Restarts => "at most",
        };
        let _ = write!(line, " · {rule} {max} {what}{}", stretch(limit.span));
    }
    if let Some(heartbeat) = policy.heartbeat {
        let _ = write!(line, " · beats within {}", Shown(heartbeat.ttl));
    }
    line
}

fn measure(measure: Measure, count: u32) -> &'static str {
    match (measure, count) {
        (Measure::Deaths, 1) => "death",
        (Measure::Deaths, _) => "deaths",
        (Measure::Restarts, 1) => "restart",
        (Measure::Restarts, _) => "restarts",
    }
}

fn stretch(span: Span) -> String {
    match span {
        Span::Rolling(within) => format!(" in {}", Shown(within)),
        Span::Tumbling(within) => format!(" per {}", Shown(within)),
        Span::Consecutive => " in a row".to_owned(),
        Span::Lifetime => String::new(),
    }
}

/// A row: a death and what became of it.
#[derive(Debug, Default)]
struct Row {
    at: Duration,
    run: String,
    happened: String,
    decided: String,
    delay: Option<Duration>,
    numbers: String,
    tone: Style,
}

impl Row {
    /// Whether it says the same as another, apart from when.
    fn is_like(&self, other: &Row) -> bool {
        (&self.happened, &self.decided, &self.numbers)
            == (&other.happened, &other.decided, &other.numbers)
    }
}

/// A rehearsal for people.
pub(crate) struct Timeline {
    rows: Vec<Row>,
    closing: String,
}

impl Timeline {
    pub(crate) fn of(account: &Account, preset: Preset) -> Timeline {
        let mut rows: Vec<Row> = Vec::new();
        let mut missed = false;
        for event in &account.events {
            let at = event.at_s.0;
            match &event.record.what {
                What::RunDied { class, exit_code, signal, ran_s, .. } => {
                    let run = event.record.run.map(|run| run.to_string()).unwrap_or_default();
                    let how = match (exit_code, signal) {
                        _ if missed => "no heartbeat".to_owned(),
                        _ if *class == Class::Timeout => "timed out".to_owned(),
                        (Some(code), _) => format!("exited {code}"),
                        (None, Some(signal)) => format!("ended by {signal}"),
                        (None, None) => "could not be spawned".to_owned(),
                    };
                    let after = match ran_s.0 {
                        Duration::ZERO => String::new(),
                        ran => format!(" after {}", Shown(ran)),
                    };
                    let happened = format!("{how}{after}: {class}");
                    rows.push(Row { at, run, happened, ..Row::default() });
                    missed = false;
                }
                What::HeartbeatMissed { .. } => missed = true,
                What::RunStarted { .. }
                | What::RunReady
                | What::RestartScheduled { .. }
                | What::WaitStarted { .. }
                | What::WaitEnded { .. }
                | What::LimitTripped { .. }
                | What::CrashedOut { .. }
                | What::Halted { .. }
                | What::Revived
                | What::StopRequested { .. }
                | What::Stopped { .. }
                | What::Rested { .. }
                | What::Escalated { .. }
                | What::GroupRestarted { .. } => {
                    if let Some(row) = rows.last_mut() {
                        row.decide(&event.record.what, preset);
                    }
                }
            }
        }
        Timeline { rows, closing: closing(account) }
    }

    /// What was decided about each death and by which numbers, when, and how it looks.
    pub(crate) fn decisions(&self) -> impl Iterator<Item = (Duration, String, Style)> {
        self.rows.iter().map(|row| {
            let numbers = match row.numbers.as_str() {
                "" => String::new(),
                numbers => format!(" ({numbers})"),
            };
            (row.at, format!("{}{numbers}", row.decided), row.tone)
        })
    }

    /// How it ended, in a sentence.
    pub(crate) fn closing(&self) -> &str {
        &self.closing
    }
}

impl Row {
    /// Adds what was decided about the death.
    fn decide(&mut self, what: &What, preset: Preset) {
        let tone = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
        match what {
            What::RestartScheduled { delay_ms, gauge, .. } => {
                let delay = Duration::from_millis(*delay_ms);
                self.decided = if delay.is_zero() {
                    "restart at once".to_owned()
                } else {
                    format!("restart in {}", Shown(delay))
                };
                self.delay = Some(delay);
                self.numbers = gauge.as_ref().map(numbers).unwrap_or_default();
                self.tone = tone(AnsiColor::Yellow);
            }
            What::WaitStarted { reason, wait_ms } => {
                let wait = wait_ms.map(Duration::from_millis);
                self.decided = match wait {
                    Some(wait) => format!("wait {} ({reason})", Shown(wait)),
                    None => format!("wait until told ({reason})"),
                };
                self.delay = wait;
                self.tone = tone(AnsiColor::Cyan);
            }
            What::LimitTripped { gauge, .. } => self.numbers = numbers(gauge),
            What::Escalated { .. } => self.decided = "escalate".to_owned(),
            What::CrashedOut { by } => {
                let word = match preset {
                    Preset::Aivex if *by == Trip::Window => "LOOP_DETECTED",
                    Preset::Aivex => "CRASHED",
                    Preset::Default
                    | Preset::Aide
                    | Preset::Celistra
                    | Preset::Ecology
                    | Preset::Weft => preset.terminal_word(),
                };
                self.decided = word.to_owned();
                self.tone = tone(AnsiColor::Red).bold();
            }
            What::Halted { reason } => {
                self.decided = format!("halt: {}", meaning(*reason));
                self.tone = tone(AnsiColor::Red).bold();
            }
            What::Rested { rest } => {
                let word = match rest {
                    Rest::Done => "rest: done",
                    Rest::Failed => "rest: not to be restarted",
                    Rest::Idle => "rest until the next trigger",
                };
                self.decided = word.to_owned();
                self.tone = tone(AnsiColor::Green);
            }
            What::RunStarted { .. }
            | What::RunReady
            | What::RunDied { .. }
            | What::WaitEnded { .. }
            | What::Revived
            | What::StopRequested { .. }
            | What::Stopped { .. }
            | What::GroupRestarted { .. }
            | What::HeartbeatMissed { .. } => {}
        }
    }
}

fn numbers(gauge: &Gauge) -> String {
    let Gauge { limit, count } = gauge;
    let (max, what) = (limit.max, measure(limit.measure, limit.max));
    format!("{count} of {max} {what}{}", stretch(limit.span))
}

fn closing(account: &Account) -> String {
    let runs =
        account.events.iter().filter(|e| matches!(e.record.what, What::RunStarted { .. })).count();
    let restarts = account
        .events
        .iter()
        .filter(|event| matches!(event.record.what, What::RestartScheduled { .. }))
        .count();
    let count = |number: usize, word: &str| {
        format!("{number} {word}{}", if number == 1 { "" } else { "s" })
    };
    let tally = format!("{}, {}", count(runs, "run"), count(restarts, "restart"));
    let ended = Shown(account.ended);
    match account.outcome {
        Outcome::AtRest(state) => {
            let next = match state {
                State::CrashedOut => " `defib revive` would put it back.",
                State::Halted => " Once that is put right, `defib revive` would put it back.",
                State::Idle
                | State::Starting
                | State::Running
                | State::Backoff
                | State::Waiting
                | State::Stopping
                | State::Stopped
                | State::Done => "",
            };
            format!("After {ended} the agent is {state}: {tally}.{next}")
        }
        Outcome::TimeUp(state) => {
            format!("After {ended} the time is over and the agent is {state}: {tally}.")
        }
        Outcome::ScriptOver(state) => {
            format!("After {ended} the history is over and the agent is {state}: {tally}.")
        }
        Outcome::CutOff => format!("Cut off after {tally}: nothing in this policy ends it."),
    }
}

impl Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wide = |column: fn(&Row) -> &str, title: &str| {
            let cells = self.rows.iter().map(|row| column(row).chars().count());
            cells.chain([title.len()]).max().unwrap_or(0)
        };
        let happened = wide(|row| &row.happened, "WHAT HAPPENED");
        let decided = wide(|row| &row.decided, "DECISION");
        let longest = self.rows.iter().filter_map(|row| row.delay).max().unwrap_or_default();
        let head = Style::new().bold();
        writeln!(
            f,
            "{head}{:>10}  {:>4}  {:happened$}  {:decided$}  DELAY{head:#}",
            "TIME", "RUN", "WHAT HAPPENED", "DECISION"
        )?;
        let mut at = 0;
        while let Some(row) = self.rows.get(at) {
            let alike = self.rows[at..].iter().take_while(|other| other.is_like(row)).count();
            // Folding one row would save nothing.
            let shown = if alike > ALIKE + 1 { ALIKE } else { alike };
            for row in &self.rows[at..at + shown] {
                let (time, tone) = (Shown(row.at).to_string(), row.tone);
                let bar = bar(row.delay.unwrap_or_default(), longest);
                let tail = format!("  {bar:BAR$}  {}", row.numbers);
                let tail = tail.trim_end();
                let width = if tail.is_empty() { 0 } else { decided };
                writeln!(
                    f,
                    "{time:>10}  {:>4}  {:happened$}  {tone}{:width$}{tone:#}{tail}",
                    row.run, row.happened, row.decided
                )?;
            }
            if alike > shown {
                let last = Shown(self.rows[at + alike - 1].at);
                writeln!(
                    f,
                    "{:>10}  {:>4}  {} more like this, until {last}",
                    "⋮",
                    "",
                    alike - shown
                )?;
            }
            at += alike;
        }
        writeln!(f, "\n{}", self.closing)
    }
}

/// A bar whose length is to the longest as the delay is to the longest delay.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a fraction of a few characters"
)]
fn bar(delay: Duration, longest: Duration) -> String {
    const PARTS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    if delay.is_zero() {
        return String::new();
    }
    let eighths = (delay.as_secs_f64() / longest.as_secs_f64() * (BAR * 8) as f64).ceil() as usize;
    let mut bar = "█".repeat(eighths / 8);
    bar.extend(PARTS.get((eighths % 8).wrapping_sub(1)));
    bar
}
