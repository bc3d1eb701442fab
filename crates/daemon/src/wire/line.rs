//! What a table of all agents shows of each. A thousand of them are looked at in a moment: what does not
//! apply is left out.

use defib_core::time::Seconds;
use defib_core::{Class, Goal, Name, RunId, Signal, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::words::{ClassWord, GoalWord, MomentWord, NameWord, StateWord};
use super::{AgentStatus, ChannelFailure, DeathStatus};

/// One agent in a few words; [`AgentStatus`] is all of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentLine {
    /// Its name.
    #[schema(value_type = NameWord)]
    pub name: Name,
    /// The project it belongs to.
    #[schema(value_type = NameWord)]
    pub project: Name,
    /// Its state.
    #[schema(value_type = StateWord)]
    pub state: State,
    /// What is wanted of it.
    #[schema(value_type = GoalWord)]
    pub goal: Goal,
    /// Why it is in that state, where that is not plain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<String>,
    /// The first process of its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub pid: Option<u32>,
    /// Its latest run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, nullable = false)]
    pub run: Option<RunId>,
    /// Its own automatic restarts since `up` or `revive`.
    pub restarts: u32,
    /// How long its run has lived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, nullable = false)]
    pub uptime_s: Option<Seconds>,
    /// When something will happen to it by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<MomentWord>, nullable = false)]
    pub next_at: Option<String>,
    /// When it last wrote something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<MomentWord>, nullable = false)]
    pub last_activity_at: Option<String>,
    /// Its last death.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub last_death: Option<DeathLine>,
    /// What it says that it is doing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub status_text: Option<String>,
    /// The units of its budget that nothing measures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmetered: Vec<String>,
    /// Whether it died three or more counted deaths in the last ten minutes.
    #[serde(default, skip_serializing_if = "is_not")]
    pub flapping: bool,
    /// Whether its restarts were ended by a limit over a stretch of time.
    #[serde(default, skip_serializing_if = "is_not")]
    pub loop_detected: bool,
    /// The channels of its project whose last message has not arrived.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels_failing: Vec<ChannelFailure>,
}

/// A death in a few words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeathLine {
    /// When.
    #[schema(value_type = MomentWord)]
    pub at: String,
    /// Of what.
    #[schema(value_type = ClassWord)]
    pub class: Class,
    /// The exit code, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub exit_code: Option<i32>,
    /// The signal, where one ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    pub signal: Option<Signal>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
const fn is_not(is: &bool) -> bool {
    !*is
}

impl From<AgentStatus> for AgentLine {
    fn from(status: AgentStatus) -> AgentLine {
        AgentLine {
            name: status.name,
            project: status.project,
            state: status.state,
            goal: status.goal,
            reason: status.reason,
            pid: status.pid,
            run: status.run,
            restarts: status.restarts,
            uptime_s: status.uptime_s,
            next_at: status.next_at,
            last_activity_at: status.last_activity_at,
            last_death: status.last_death.map(DeathLine::from),
            status_text: status.status_text,
            unmetered: status.unmetered.into_iter().map(|unmetered| unmetered.unit).collect(),
            flapping: status.flapping,
            loop_detected: status.loop_detected,
            channels_failing: status.channels_failing,
        }
    }
}

impl From<DeathStatus> for DeathLine {
    fn from(death: DeathStatus) -> DeathLine {
        let DeathStatus { at, class, exit_code, signal, .. } = death;
        DeathLine { at, class, exit_code, signal }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn line_of(status: Value) -> Value {
        let status: AgentStatus = serde_json::from_value(status).unwrap();
        serde_json::to_value(AgentLine::from(status)).unwrap()
    }

    #[test]
    fn a_line_has_what_applies_and_nothing_else() {
        let (death, failure) = (
            json!({ "at": "2026-03-01T03:00:00Z", "class": "error", "exit_code": 3 }),
            json!({ "channel": "c", "at": "2026-03-01T03:00:01Z", "why": "w", "attempts": 2, "given_up": true }),
        );
        let mut status = json!({
            "name": "a", "project": "p", "state": "backoff", "goal": "up", "restarts": 2,
            "consecutive_failures": 3, "kind": "generic", "command": ["x"], "pty": true,
            "flapping": false, "loop_detected": false,
        });
        let least =
            json!({ "name": "a", "project": "p", "state": "backoff", "goal": "up", "restarts": 2 });
        assert_eq!(line_of(status.clone()), least);
        let mut most = least;
        for (key, value) in [
            ("reason", json!("r")),
            ("pid", json!(7)),
            ("run", json!(4)),
            ("uptime_s", json!(1.5)),
            ("next_at", json!("2026-03-01T03:00:02Z")),
            ("last_activity_at", json!("2026-03-01T03:00:03Z")),
            ("last_death", death.clone()),
            ("status_text", json!("s")),
            ("flapping", json!(true)),
            ("loop_detected", json!(true)),
            ("channels_failing", json!([failure])),
        ] {
            status[key] = value.clone();
            most[key] = value;
        }
        for (key, value) in [("ran_s", json!(2.0)), ("trace", json!("t")), ("signal", Value::Null)]
        {
            status["last_death"][key] = value;
        }
        assert_eq!(line_of(status), most);
    }
}
