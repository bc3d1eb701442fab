//! `defib simulate --history`: a real agent's deaths again, under another policy, for people.

use std::fmt::Write as _;
use std::time::Duration;

use defib_core::span::Shown;
use defib_core::{Name, Verdict, Wall, What};
use defib_daemon::replay::Replay;
use defib_history::{HistoryError, Reader, Run, RunDeath, RunFilter};
use defib_sim::rehearsal::Account;
use defib_sim::script::Script;

use super::timeline::Timeline;
use super::{Context, segment};
use crate::failure::{Code, Failure};
use crate::table::{Cell, table};

/// What the daemon knows of an agent; where none runs, what its history has.
pub(super) fn replay_of(context: &Context, name: &str) -> Result<Replay, Failure> {
    let path = format!("/api/v1/history?agent={}", segment(name)?);
    let mut runs: Vec<Run> = match context.client()?.get(&path) {
        Err(failure) if failure.is(Code::NoDaemon) => stored(context, name, failure)?,
        answer => answer?,
    };
    if runs.is_empty() {
        let message = format!("the history has no run of an agent called {name:?}");
        return Err(Failure::new(Code::NoAgent, message)
            .hint("`defib history` lists the runs that there were"));
    }
    runs.reverse();
    let replay = Replay::from_runs(runs);
    if replay.deaths() == 0 {
        let message = format!("no run of {name} has died by itself: there is nothing to replay");
        return Err(Failure::new(Code::NotInState, message)
            .hint("--script says what runs do without a history"));
    }
    Ok(replay)
}

/// The script of a replay.
pub(super) fn script_of(replay: &Replay) -> Result<Script, Failure> {
    replay.script().ok_or_else(|| Failure::new(Code::Failed, "there is nothing to replay"))
}

/// One line that says what is replayed.
pub(super) fn summary(replay: &Replay) -> String {
    let count = |number: usize, word: &str| {
        format!("{number} {word}{}", if number == 1 { "" } else { "s" })
    };
    let mut text = count(replay.deaths(), "death");
    let ended = replay.runs.iter().filter(|run| run.death.is_some()).count();
    if ended > replay.deaths() {
        let left_out = count(ended - replay.deaths(), "run");
        // A String takes whatever is written to it.
        let _ = write!(text, "; {left_out} that ended on request left out");
    }
    text
}

/// What did happen beside what would.
pub(super) fn compare(replay: &Replay, account: &Account, timeline: &Timeline) -> String {
    let first = replay.runs.first().map_or(Wall::default(), |run| run.started_at);
    let mut would = timeline.decisions();
    let mut classes = account.events.iter().filter_map(|event| {
        let What::RunDied { class, .. } = &event.record.what else { return None };
        Some(*class)
    });
    let rows: Vec<Vec<Cell>> = replay
        .replayed
        .iter()
        .filter_map(|at| {
            let (run, next) = (&replay.runs[*at], replay.runs.get(at + 1));
            let death = run.death.as_ref()?;
            let mut cells = vec![
                Cell::new(run.run.to_string()),
                Cell::new(Shown(death.ran_s.0).to_string()),
                Cell::new(how(death)),
                Cell::new(Shown(death.at.since(first)).to_string()),
                Cell::new(what_did(run.verdict, next.map(|next| next.started_at.since(death.at)))),
            ];
            match would.next() {
                Some((at, decided, tone)) => {
                    let class = classes.next().filter(|class| *class != death.class);
                    let class = class.map(|class| format!("{class}: ")).unwrap_or_default();
                    cells.push(Cell::new(Shown(at).to_string()));
                    cells.push(Cell::styled(format!("{class}{decided}"), tone));
                }
                None => cells.extend([Cell::default(), Cell::new("not reached")]),
            }
            Some(cells)
        })
        .collect();
    let head = ["RUN", "RAN", "DEATH", "AT", "WHAT DID HAPPEN", "AT", "WHAT WOULD HAPPEN"];
    format!("{}\n{}\n", table(&head, &rows), timeline.closing())
}

/// What the history of a home has, without a daemon.
fn stored(context: &Context, name: &str, no_daemon: Failure) -> Result<Vec<Run>, Failure> {
    let path = context.home()?.path().join("history.db");
    let agent = Name::known(name).map_err(|error| Failure::new(Code::NoAgent, error))?;
    match Reader::open(&path).and_then(|reader| runs_of(&reader, &agent)) {
        Err(HistoryError::Absent(_)) => Err(no_daemon),
        Err(error) => {
            Err(Failure::new(Code::Failed, format!("cannot read {}: {error}", path.display()))
                .hint("a daemon sets a damaged history aside: `defib up` starts one"))
        }
        Ok(runs) => Ok(runs),
    }
}

/// Which of its keys an agent has is not said by the history: with its project, or without.
fn runs_of(reader: &Reader, agent: &Name) -> Result<Vec<Run>, HistoryError> {
    for key in [agent.key(), agent.plain()] {
        let runs = reader.runs(&RunFilter { agent: Some(key), ..RunFilter::default() })?;
        if !runs.is_empty() {
            return Ok(runs);
        }
    }
    Ok(Vec::new())
}

fn how(death: &RunDeath) -> String {
    let class = death.class;
    match (death.exit_code, death.signal) {
        (Some(code), _) => format!("{class} exit {code}"),
        (None, Some(signal)) => format!("{class} {signal}"),
        (None, None) => class.to_string(),
    }
}

/// What was made of a death, and how long after it the next run began.
fn what_did(verdict: Option<Verdict>, pause: Option<Duration>) -> String {
    let pause = pause.map(|pause| Shown(pause).to_string());
    let later = |word: &str| match &pause {
        Some(pause) => format!("{word}; started again after {pause}"),
        None => word.to_owned(),
    };
    match (verdict, &pause) {
        (Some(Verdict::Restart), Some(pause)) => format!("restart after {pause}"),
        (Some(Verdict::Restart), None) => "restart".to_owned(),
        (Some(Verdict::Wait), Some(pause)) => format!("wait {pause}"),
        (Some(Verdict::Wait), None) => "wait".to_owned(),
        (Some(Verdict::Rest), _) => later("rest"),
        (Some(Verdict::Halt), _) => later("halt"),
        (Some(Verdict::CrashOut), _) => later("crashed-out"),
        (Some(Verdict::Escalate), _) => later("escalate"),
        (None, _) => later("nothing is known"),
    }
}
