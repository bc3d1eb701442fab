//! What was lost of agents' output, added up until it is told.
//!
//! All that is lost is told, the first of it at once. The rest is told once a second at most, and when
//! the run ends: whoever floods a full disk must not flood the history as well. A second in which
//! nothing was lost is the end of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use defib_core::Name;

use super::ScribeEvent;

/// No agent is told of more often than this.
const PAUSE: Duration = Duration::from_secs(1);

/// Who has lost something in the last second, or has lost something that is not told.
#[derive(Debug, Default)]
pub(super) struct Losses(BTreeMap<Name, Loss>);

#[derive(Debug)]
struct Loss {
    untold: u64,
    error: String,
    /// When there may be told of it again.
    tell_at: Instant,
}

impl Losses {
    /// Something was lost. Gives what is to be told now.
    pub(super) fn add(
        &mut self,
        now: Instant,
        agent: &Name,
        bytes: u64,
        error: String,
    ) -> Option<ScribeEvent> {
        let first = Loss { untold: 0, error: String::new(), tell_at: now };
        let loss = self.0.entry(agent.clone()).or_insert(first);
        loss.untold = loss.untold.saturating_add(bytes);
        loss.error = error;
        (loss.tell_at <= now).then(|| loss.tell(now, agent)).flatten()
    }

    /// When there is something to tell next. Nothing means that all is told.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.values().filter(|loss| loss.untold > 0).map(|loss| loss.tell_at).min()
    }

    /// What is to be told by now. Whoever has lost nothing for a while is left alone.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<ScribeEvent> {
        self.0.retain(|_, loss| loss.untold > 0 || loss.tell_at > now);
        let due = self.0.iter_mut().filter(|(_, loss)| loss.tell_at <= now);
        due.filter_map(|(agent, loss)| loss.tell(now, agent)).collect()
    }

    /// What is not told of an agent yet: its run is over, or it is gone.
    pub(super) fn settle(&mut self, now: Instant, agent: &Name) -> Option<ScribeEvent> {
        self.0.get_mut(agent)?.tell(now, agent)
    }

    /// What is not told of anybody yet: nobody will be there to tell it.
    pub(super) fn settle_all(&mut self, now: Instant) -> Vec<ScribeEvent> {
        self.0.iter_mut().filter_map(|(agent, loss)| loss.tell(now, agent)).collect()
    }
}

impl Loss {
    fn tell(&mut self, now: Instant, agent: &Name) -> Option<ScribeEvent> {
        let bytes = std::mem::take(&mut self.untold);
        self.tell_at = now + PAUSE;
        let (agent, error) = (agent.clone(), self.error.clone());
        (bytes > 0).then_some(ScribeEvent::Lost { agent, bytes, error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    fn bytes(event: &ScribeEvent) -> u64 {
        match event {
            ScribeEvent::Lost { bytes, .. } => *bytes,
            ScribeEvent::Spoke { .. } | ScribeEvent::Prompted { .. } => 0,
        }
    }

    proptest! {
        #[test]
        fn all_that_is_lost_is_told_and_no_agent_twice_within_a_second(
            steps in proptest::collection::vec((0u64..1500, 0usize..3, 1u64..1000), 1..80),
        ) {
            let names = ["a", "b", "c"].map(|name| Name::known(name).unwrap());
            let (mut losses, mut now) = (Losses::default(), Instant::now());
            let (mut lost, mut told) = ([0; 3], [0; 3]);
            let mut times: [Option<Instant>; 3] = [None; 3];
            let mut hear = |now: Instant, event: &ScribeEvent| {
                let ScribeEvent::Lost { agent, .. } = event else { return true };
                let at = names.iter().position(|name| name == agent).unwrap();
                told[at] += bytes(event);
                let before = times[at].replace(now);
                before.is_none_or(|before| now - before >= PAUSE)
            };
            for (wait_ms, who, bytes) in steps {
                let then = now + Duration::from_millis(wait_ms);
                // Who waits is awake when something is due, and at no other time.
                while let Some(due) = losses.due().filter(|due| *due <= then) {
                    let events = losses.take_due(due);
                    prop_assert!(!events.is_empty(), "awake for nothing");
                    prop_assert!(events.iter().all(|event| hear(due, event)));
                }
                now = then;
                lost[who] += bytes;
                let event = losses.add(now, &names[who], bytes, "full".to_owned());
                prop_assert!(event.iter().all(|event| hear(now, event)));
            }
            while let Some(due) = losses.due() {
                prop_assert!(losses.take_due(due).iter().all(|event| hear(due, event)));
                now = due;
            }
            prop_assert_eq!(lost, told);
            losses.take_due(now + PAUSE);
            prop_assert!(losses.0.is_empty(), "nobody is remembered for ever");
        }
    }

    #[test]
    fn the_first_loss_is_told_at_once_and_the_rest_when_it_is_over() {
        let (name, now) = (Name::known("a").unwrap(), Instant::now());
        let mut losses = Losses::default();
        let full = || "no space".to_owned();
        let first = losses.add(now, &name, 5, full());
        assert_eq!(first.as_ref().map(bytes), Some(5));
        assert!(losses.due().is_none(), "nobody wakes for what is told");
        assert!(losses.add(now, &name, 7, full()).is_none());
        assert_eq!(losses.settle(now, &name).as_ref().map(bytes), Some(7));
        assert!(losses.settle(now, &name).is_none() && losses.due().is_none());
    }
}
