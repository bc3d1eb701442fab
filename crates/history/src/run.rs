//! A run as history tells it: when it lived, what it died of, what was made of that.
//!
//! In JSON it is an element of `history --json`. What a file says that is no word of the model (a
//! newer one may) is shown as absent, never refused.

use std::time::Duration;

use defib_core::time::Seconds;
use defib_core::{Class, Kind, Name, RunId, Signal, Verdict, Wall};
use serde::{Deserialize, Serialize};

use crate::stamp;
use crate::usage::Usage;

/// One life of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Whose.
    pub agent: Name,
    /// Which.
    pub run: RunId,
    /// When it began.
    #[serde(with = "stamp")]
    pub started_at: Wall,
    /// When it ended; nothing while it lives.
    #[serde(with = "stamp::maybe")]
    pub ended_at: Option<Wall>,
    /// How long it lived; nothing while it lives.
    pub ran_s: Option<Seconds>,
    /// Its death; nothing while it lives.
    pub death: Option<RunDeath>,
    /// What policy made of its death.
    pub verdict: Option<Verdict>,
    /// The number of the event that it began with, by which runs of all agents are in order.
    #[serde(skip)]
    pub id: i64,
    /// The project of the agent, where it was of one.
    #[serde(skip)]
    pub project: Option<Name>,
    /// Whether it is not over. A run whose death was lost is over without one.
    #[serde(skip)]
    pub alive: bool,
}

/// The death of a run, as JSON has it in `history` and in `status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunDeath {
    /// When.
    #[serde(with = "stamp")]
    pub at: Wall,
    /// Of what.
    pub class: Class,
    /// What sort of death that is.
    pub kind: Option<Kind>,
    /// The exit code, where there was one.
    pub exit_code: Option<i32>,
    /// The signal, where one ended it.
    pub signal: Option<Signal>,
    /// How long the run lived.
    pub ran_s: Seconds,
    /// The line or field that decided the class.
    pub evidence: Option<String>,
    /// The stack trace found in its last output.
    pub trace: Option<String>,
    /// What the run used.
    #[serde(flatten)]
    pub used: Usage,
}

/// The columns that [`Run::of_row`] reads, in its order.
pub(crate) const COLUMNS: &str = "agent, run, project, id, started_ms, ended_ms, ran_ms, class, \
     exit_code, signal, evidence, verdict, trace, alive, cpu_user_ms, cpu_system_ms, \
     memory_peak_bytes";

impl Run {
    /// Reads a row of [`COLUMNS`]; nothing where its agent is no name.
    pub(crate) fn of_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<Run>> {
        let Ok(agent) = Name::known(&row.get::<_, String>(0)?) else { return Ok(None) };
        let word = |at: usize| row.get::<_, Option<String>>(at);
        let count = |at: usize| row.get::<_, Option<i64>>(at).map(|n| n.map(i64::cast_unsigned));
        let ended_at = row.get::<_, Option<i64>>(5)?.map(Wall::from_millis);
        let ran_s = count(6)?.map(|ms| Seconds(Duration::from_millis(ms)));
        let class = word(7)?.and_then(|word| Class::from_word(&word));
        let death = match (ended_at, ran_s, class) {
            (Some(at), Some(ran_s), Some(class)) => Some(RunDeath {
                at,
                class,
                kind: class.kind(),
                exit_code: row.get(8)?,
                signal: row.get::<_, Option<i32>>(9)?.map(Signal),
                ran_s,
                evidence: word(10)?,
                trace: word(12)?,
                used: Usage {
                    cpu_user_ms: count(14)?,
                    cpu_system_ms: count(15)?,
                    memory_peak_bytes: count(16)?,
                },
            }),
            (_, _, _) => None,
        };
        Ok(Some(Run {
            agent,
            run: RunId(row.get::<_, i64>(1)?.cast_unsigned()),
            started_at: Wall::from_millis(row.get(4)?),
            ended_at,
            ran_s,
            death,
            verdict: word(11)?.and_then(|word| serde_json::from_value(word.into()).ok()),
            id: row.get(3)?,
            project: word(2)?.and_then(|word| Name::known(&word).ok()),
            alive: row.get(13)?,
        }))
    }
}
