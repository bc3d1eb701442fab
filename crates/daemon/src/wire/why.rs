//! A post-mortem as data: what `why` shows, and the page, and whoever asks by MCP.

use std::collections::BTreeMap;

use defib_history::{Event, Run};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::words::{EventWord, MomentWord, RunWord};
use super::{AgentStatus, Refused};

/// Why an agent is as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// The agent as it is now.
    pub agent: AgentStatus,
    /// The run in question: the one that was asked for, else the last that ended. Its death has the
    /// class, the evidence and the stack trace. Null also where the history does not have the last
    /// death: of that, the agent's `last_death` is all that is known.
    #[schema(value_type = Option<RunWord>)]
    pub run: Option<Run>,
    /// What the class of its death means, in plain words.
    pub meaning: Option<String>,
    /// What was decided about it, in plain words, each with its numbers.
    pub decided: Vec<Decision>,
    /// What it used, in plain words; null where nobody saw its end. Its death has the figures.
    pub used: Option<String>,
    /// The last lines that it wrote, without colours; the end of what is kept with its death.
    pub last_words: Vec<String>,
    /// What its sandbox seems to have refused it near its end, where it has one.
    pub denied: Option<Refused>,
    /// What it has and what it spent, where it has or spent anything.
    pub money: Option<Money>,
    /// What happens next, and what a person can do.
    pub next: Next,
    /// What a person has to put right before it can go on; null where nobody has to.
    pub remedy: Option<String>,
    /// Every event of the run in question but its start.
    #[schema(value_type = Vec<EventWord>)]
    pub events: Vec<Event>,
}

/// Something that was decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Decision {
    /// The number of its event, which has the figures one by one.
    pub seq: u64,
    /// The type of the event.
    pub r#type: String,
    /// What it says, with its numbers.
    pub text: String,
}

/// What an agent has and what it spent, by unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Money {
    /// What it has left.
    pub balance: Option<BTreeMap<String, f64>>,
    /// What it ever spent.
    pub spent: Option<BTreeMap<String, f64>>,
    /// What it spent in the run in question.
    pub spent_in_run: BTreeMap<String, f64>,
}

/// What happens next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Next {
    /// When something happens by itself.
    #[schema(value_type = Option<MomentWord>)]
    pub at: Option<String>,
    /// What happens, and what a person can do, in plain words.
    pub text: String,
}
