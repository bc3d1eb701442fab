//! The words of the model as `OpenAPI` says them: what a name, a state, a class may be.
//!
//! The types themselves live in crates that know nothing of HTTP. Each stand-in here takes its words
//! from the type it stands for, so that neither can drift from the other.

use std::borrow::Cow;

use defib_core::name::MAX_NAME_LEN;
use defib_core::{Class, CrashReason, Goal, Kind, State, Strategy, Verdict};
use serde::Serialize;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{KnownFormat, RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

const STATES: [State; 10] = [
    State::Idle,
    State::Starting,
    State::Running,
    State::Backoff,
    State::Waiting,
    State::Stopping,
    State::Stopped,
    State::Done,
    State::Halted,
    State::CrashedOut,
];
const GOALS: [Goal; 3] = [Goal::Up, Goal::Stopped, Goal::Down];
const KINDS: [Kind; 6] =
    [Kind::Clean, Kind::Voluntary, Kind::Dumb, Kind::Environment, Kind::Smart, Kind::FixNeeded];
const VERDICTS: [Verdict; 6] = [
    Verdict::Restart,
    Verdict::Wait,
    Verdict::Rest,
    Verdict::Halt,
    Verdict::CrashOut,
    Verdict::Escalate,
];

/// A schema of one of these words.
fn one_of<T: Serialize>(words: &[T], description: &str) -> RefOr<Schema> {
    let words: Vec<serde_json::Value> =
        words.iter().filter_map(|word| serde_json::to_value(word).ok()).collect();
    let string = ObjectBuilder::new().schema_type(Type::String);
    string.enum_values(Some(words)).description(Some(description)).into()
}

macro_rules! stand_in {
    ($(#[doc = $doc:literal])* $name:ident, $schema:expr) => {
        $(#[doc = $doc])*
        pub(crate) struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                $schema
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed(stringify!($name).trim_end_matches("Word"))
            }
        }
    };
}

stand_in!(
    /// The name of an agent, a group or a project.
    NameWord,
    ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(2 * MAX_NAME_LEN + 1))
        .description(Some(
            "Letters, digits, `-`, `_` and `.`; `project/name` where agents of several projects have it.",
        ))
        .into()
);
stand_in!(
    /// The state of an agent.
    StateWord,
    one_of(&STATES, "What an agent is doing.")
);
stand_in!(
    /// What is wanted of an agent.
    GoalWord,
    one_of(&GOALS, "What is wanted of an agent: `stopped` by its name, or `down` with its project.")
);
stand_in!(
    /// What an agent died of.
    ClassWord,
    one_of(Class::ALL, "What a run died of.")
);
stand_in!(
    /// What sort of death a class is.
    KindWord,
    one_of(&KINDS, "What sort of death a class is.")
);
stand_in!(
    /// What made an agent crash.
    CrashReasonWord,
    one_of(&CrashReason::ALL, "What made an agent crash, in three words.")
);
stand_in!(
    /// What policy makes of a death.
    VerdictWord,
    one_of(&VERDICTS, "What policy makes of a death.")
);
stand_in!(
    /// What a group does when a member has to be restarted.
    StrategyWord,
    one_of(&Strategy::ALL, "What a group restarts when a member has to be.")
);
stand_in!(
    /// A moment.
    MomentWord,
    ObjectBuilder::new()
        .schema_type(Type::String)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
        .description(Some("RFC 3339, UTC."))
        .into()
);

/// One thing that was decided or has happened. Each type brings numbers of its own beside these.
#[derive(ToSchema)]
#[schema(as = Event)]
#[expect(dead_code, reason = "it is what is written down, not what is used")]
pub(crate) struct EventWord {
    /// Its number; no number is used twice.
    seq: u64,
    /// When.
    #[schema(value_type = MomentWord)]
    at: String,
    /// Whom it is about, where it is about one agent.
    #[schema(value_type = Option<NameWord>)]
    agent: Option<String>,
    /// Its latest run, where it had one.
    run: Option<u64>,
    /// What happened, in the past tense: `run-died`.
    r#type: String,
}

/// One life of an agent.
#[derive(ToSchema)]
#[schema(as = Run)]
#[expect(dead_code, reason = "it is what is written down, not what is used")]
pub(crate) struct RunWord {
    /// Whose.
    #[schema(value_type = NameWord)]
    agent: String,
    /// Which.
    run: u64,
    /// When it began.
    #[schema(value_type = MomentWord)]
    started_at: String,
    /// When it ended; null while it lives.
    #[schema(value_type = Option<MomentWord>)]
    ended_at: Option<String>,
    /// How long it lived; null while it lives.
    ran_s: Option<f64>,
    /// Its death; null while it lives.
    death: Option<super::DeathStatus>,
    /// What policy made of its death.
    #[schema(value_type = Option<VerdictWord>)]
    verdict: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An enum that grows does not compile here; then its list has to grow as well.
    #[test]
    fn no_word_of_the_model_is_missing() {
        let exhaustive = |state: State| match state {
            State::Idle
            | State::Starting
            | State::Running
            | State::Backoff
            | State::Waiting
            | State::Stopping
            | State::Stopped
            | State::Done
            | State::Halted
            | State::CrashedOut => state.word(),
        };
        for (at, state) in STATES.into_iter().enumerate() {
            assert_eq!((state as usize, exhaustive(state)), (at, state.word()));
        }
        assert_eq!(KINDS.map(|kind| kind as usize), std::array::from_fn(|at| at));
        assert_eq!(VERDICTS.map(|verdict| verdict as usize), std::array::from_fn(|at| at));
    }
}
