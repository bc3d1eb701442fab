//! `defib simulate --history`: a real agent's deaths again, under another policy.
//!
//! What is replayed is how long each run lived and how it ended; when the next one starts is the
//! policy's business, here as there. Runs that people or a group ended are no deaths of the agent:
//! they are left out, and their time is added to the run after them, so that the deaths stay as far
//! apart as they were.

use std::fmt::Write as _;
use std::time::Duration;

use defib_core::run::Status;
use defib_core::span::Shown;
use defib_core::{Class, Name, Verdict, Wall, What};
use defib_history::{HistoryError, Reader, Run, RunDeath, RunFilter};
use defib_sim::rehearsal::{Account, Outcome};
use defib_sim::script::{End, Script, Step};
use serde_json::{Value, json};

use super::timeline::Timeline;
use super::{Context, segment};
use crate::failure::{Code, Failure};
use crate::table::{Cell, table};

/// The runs of a real agent, and the deaths among them that can be replayed.
pub(super) struct Replay {
    /// Oldest first.
    runs: Vec<Run>,
    /// Which of the runs each step of the script was.
    replayed: Vec<usize>,
    steps: Vec<Step>,
}

impl Replay {
    /// What the daemon knows of an agent; where none runs, what its history has.
    pub(super) fn of(context: &Context, name: &str) -> Result<Replay, Failure> {
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
        if replay.steps.is_empty() {
            let message =
                format!("no run of {name} has died by itself: there is nothing to replay");
            return Err(Failure::new(Code::NotInState, message)
                .hint("--script says what runs do without a history"));
        }
        Ok(replay)
    }

    fn from_runs(runs: Vec<Run>) -> Replay {
        let (mut replayed, mut steps) = (Vec::new(), Vec::new());
        // Since when the runs that were ended on request have lived, and the pauses between them.
        let mut since: Option<Wall> = None;
        for (at, run) in runs.iter().enumerate() {
            let Some(death) = &run.death else { continue };
            if matches!(death.class, Class::Stopped | Class::Group) {
                since = since.or(Some(run.started_at));
                continue;
            }
            let lived = since.take().map_or(death.ran_s.0, |since| death.at.since(since));
            replayed.push(at);
            steps.push(Step { run: lived, end: end_of(death) });
        }
        Replay { runs, replayed, steps }
    }

    /// The script of the replay.
    pub(super) fn script(&self) -> Result<Script, Failure> {
        Script::of(self.steps.clone())
            .ok_or_else(|| Failure::new(Code::Failed, "there is nothing to replay"))
    }

    /// One line that says what is replayed.
    pub(super) fn summary(&self) -> String {
        let count = |number: usize, word: &str| {
            format!("{number} {word}{}", if number == 1 { "" } else { "s" })
        };
        let mut text = count(self.steps.len(), "death");
        let ended = self.runs.iter().filter(|run| run.death.is_some()).count();
        if ended > self.steps.len() {
            let left_out = count(ended - self.steps.len(), "run");
            // A String takes whatever is written to it.
            let _ = write!(text, "; {left_out} that ended on request left out");
        }
        text
    }

    /// What did happen beside what would.
    pub(super) fn compare(&self, account: &Account, timeline: &Timeline) -> String {
        let first = self.runs.first().map_or(Wall::default(), |run| run.started_at);
        let mut would = timeline.decisions();
        let mut classes = account.events.iter().filter_map(|event| {
            let What::RunDied { class, .. } = &event.record.what else { return None };
            Some(*class)
        });
        let rows: Vec<Vec<Cell>> = self
            .replayed
            .iter()
            .filter_map(|at| {
                let (run, next) = (&self.runs[*at], self.runs.get(at + 1));
                let death = run.death.as_ref()?;
                let mut cells = vec![
                    Cell::new(run.run.to_string()),
                    Cell::new(Shown(death.ran_s.0).to_string()),
                    Cell::new(how(death)),
                    Cell::new(Shown(death.at.since(first)).to_string()),
                    Cell::new(what_did(
                        run.verdict,
                        next.map(|next| next.started_at.since(death.at)),
                    )),
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

    /// The same for programs.
    pub(super) fn json(&self, agent: &Name, account: &Account) -> Value {
        let (end, state) = match account.outcome {
            Outcome::AtRest(state) => ("at-rest", Some(state)),
            Outcome::TimeUp(state) => ("time-up", Some(state)),
            Outcome::ScriptOver(state) => ("history-over", Some(state)),
            Outcome::CutOff => ("cut-off", None),
        };
        let replayed: Vec<_> = self.replayed.iter().map(|at| self.runs[*at].run).collect();
        json!({
            "agent": agent,
            "did": self.runs,
            "replayed": replayed,
            "would": account.events,
            "outcome": { "end": end, "state": state, "at_s": account.ended.as_secs_f64() },
        })
    }
}

/// What the history of a home has, without a daemon.
fn stored(context: &Context, name: &str, no_daemon: Failure) -> Result<Vec<Run>, Failure> {
    let path = context.home()?.path().join("history.db");
    let bare = name.rsplit('/').next().unwrap_or(name);
    let agent = Name::parse(bare).map_err(|error| Failure::new(Code::NoAgent, error))?;
    let filter = RunFilter { agent: Some(agent), ..RunFilter::default() };
    match Reader::open(&path).and_then(|reader| reader.runs(&filter)) {
        Err(HistoryError::Absent(_)) => Err(no_daemon),
        Err(error) => {
            Err(Failure::new(Code::Failed, format!("cannot read {}: {error}", path.display()))
                .hint("a daemon sets a damaged history aside: `defib up` starts one"))
        }
        Ok(runs) => Ok(runs),
    }
}

/// How a run ended, as a policy is told it. Where the class follows from the exit code or the signal,
/// it is left to the policy, which may see it otherwise; what had to be found out stays found.
fn end_of(death: &RunDeath) -> End {
    let status = match (death.exit_code, death.signal) {
        (Some(code), _) => Status::Exited(code),
        (None, Some(signal)) => Status::Signaled(signal),
        (None, None) if death.class == Class::Lost => Status::Unseen,
        (None, None) => Status::NotSpawned { usable: death.class != Class::Config },
    };
    let is_found = match death.class {
        Class::Voluntary
        | Class::Timeout
        | Class::Oom
        | Class::Interrupted
        | Class::Context
        | Class::Lost
        | Class::Budget
        | Class::Broke => true,
        Class::Done
        | Class::Stopped
        | Class::Group
        | Class::Error
        | Class::Network
        | Class::Overload
        | Class::Throttle
        | Class::Quota
        | Class::Disk
        | Class::Config
        | Class::Auth
        | Class::Billing => {
            death.evidence.is_some() && !matches!(status, Status::NotSpawned { .. })
        }
    };
    End::Recorded { status, class: is_found.then_some(death.class) }
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
