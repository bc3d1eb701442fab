//! What people are to be told of: which decisions make a notice.
//!
//! One decision makes at most one notice an agent, however many records tell of it. A notice is noted
//! together with the decision, as a `notified` event, so that it is known whatever dies in between.
//! Its `channels` are those that want to hear of it; the herald tells them. This refuses to send.

use defib_core::record::WaitReason;
use defib_core::{Name, Record, RunId, What};
use serde_json::{Map, Value, json};

/// The type of the event.
pub(crate) const NOTIFIED: &str = "notified";
/// The type of the event that says that an agent burns. It is a notice too.
pub(crate) const BURN_ALARM: &str = "burn-alarm";

/// Something that people are to be told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) agent: Name,
    pub(crate) run: Option<RunId>,
    /// What happened, in the word of the event that says it.
    pub(crate) what: &'static str,
}

impl Notice {
    /// What the event says.
    pub(crate) fn body(&self, channels: &[String]) -> Map<String, Value> {
        let entries = [("what", json!(self.what)), ("channels", json!(channels))];
        entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// The notices of what was decided at once, in the order of it.
pub(crate) fn notices(records: &[Record]) -> Vec<Notice> {
    let mut notices: Vec<Notice> = Vec::new();
    for record in records {
        let Some(what) = worth_telling(&record.what) else { continue };
        let Record { agent, run, .. } = record.clone();
        match notices.iter_mut().find(|notice| notice.agent == agent) {
            // That it is down says more than that somebody else has heard of it.
            Some(notice) if notice.what == ESCALATED => notice.what = what,
            Some(_) => {}
            None => notices.push(Notice { agent, run, what }),
        }
    }
    notices
}

const ESCALATED: &str = "escalated";

fn worth_telling(what: &What) -> Option<&'static str> {
    match what {
        What::CrashedOut { .. } => Some("crashed-out"),
        What::Halted { .. } => Some("halted"),
        What::Escalated { .. } => Some(ESCALATED),
        What::WaitStarted { reason: WaitReason::Prompt | WaitReason::Cause(_), .. } => {
            Some("waiting")
        }
        What::RunStarted { .. }
        | What::RunReady
        | What::RunDied { .. }
        | What::RestartScheduled { .. }
        | What::WaitStarted { .. }
        | What::WaitEnded { .. }
        | What::LimitTripped { .. }
        | What::Revived
        | What::StopRequested { .. }
        | What::Stopped { .. }
        | What::Rested { .. }
        | What::GroupRestarted { .. }
        | What::HeartbeatMissed { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use defib_core::record::Trip;

    use super::*;

    #[test]
    fn one_decision_makes_one_notice_an_agent() {
        let record = |agent: &str, what| Record {
            agent: Name::parse(agent).unwrap(),
            run: Some(RunId(5)),
            what,
        };
        let escalated = || What::Escalated { group: None, to: None };
        let crashed_out = || What::CrashedOut { by: Trip::Window };
        let told = notices(&[
            record("a", What::RunReady),
            record("a", escalated()),
            record("b", crashed_out()),
            record("a", crashed_out()),
            record("b", escalated()),
            record("c", escalated()),
        ]);
        let told: Vec<(&str, &str)> =
            told.iter().map(|notice| (notice.agent.as_str(), notice.what)).collect();
        assert_eq!(told, [("a", "crashed-out"), ("b", "crashed-out"), ("c", "escalated")]);
    }
}
