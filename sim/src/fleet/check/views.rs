//! Invariant 6: the view that the records add up to is what the supervisor sees.

use std::time::Duration;

use defib_core::{Mono, Name, Sight, View};

use super::{Checked, Invariant};

/// Records state spans in whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(1);

/// Compares what the records say of an agent with what the supervisor does.
pub(crate) fn agrees(view: &View, name: &Name, sight: Sight) -> Checked {
    let folded = view.agent(name).map_or(Sight::NEW, |agent| agent.sight);
    let same_moment = match (folded.next_at, sight.next_at) {
        (None, None) => true,
        (Some(folded), Some(seen)) => apart(folded, seen) <= ROUNDING,
        (None, Some(_)) | (Some(_), None) => false,
    };
    let same = same_moment && folded == Sight { next_at: folded.next_at, ..sight };
    Invariant::View.check(same, || {
        format!("{name}: the records add up to {folded:?}, the supervisor sees {sight:?}")
    })
}

fn apart(one: Mono, other: Mono) -> Duration {
    one.since(other).max(other.since(one))
}
