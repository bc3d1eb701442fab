//! A real agent's deaths again, under another policy.
//!
//! What is replayed is how long each run lived and how it ended; when the next one starts is the
//! policy's business, here as there. Runs that people or a group ended are no deaths of the agent:
//! they are left out, and their time is added to the run after them, so that the deaths stay as far
//! apart as they were.

use defib_core::run::Status;
use defib_core::{Class, Name, Wall};
use defib_history::{Run, RunDeath};
use defib_sim::rehearsal::{Account, Outcome};
use defib_sim::script::{End, Script, Step};
use serde_json::{Value, json};

/// The runs of a real agent, and the deaths among them that can be replayed.
#[derive(Debug, Clone)]
pub struct Replay {
    /// Oldest first.
    pub runs: Vec<Run>,
    /// Which of the runs each step of the script was.
    pub replayed: Vec<usize>,
    steps: Vec<Step>,
}

impl Replay {
    /// What can be replayed of these runs, oldest first.
    pub fn from_runs(runs: Vec<Run>) -> Replay {
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

    /// The script of the replay; nothing where no run died by itself.
    pub fn script(&self) -> Option<Script> {
        Script::of(self.steps.clone())
    }

    /// How many deaths are replayed.
    pub fn deaths(&self) -> usize {
        self.steps.len()
    }

    /// What did happen and what would, for programs.
    pub fn json(&self, agent: &Name, account: &Account) -> Value {
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
