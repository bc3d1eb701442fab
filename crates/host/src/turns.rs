//! Whose turn it is to be spawned, where many wait for it.
//!
//! One is spawned at a time, and each takes as long as the kernel needs to run a program. Whoever was
//! spawned longest ago comes first: then agents that crash at once, over and over, stand in line behind
//! one that has lived and now died. Nobody waits for ever, because whoever has had a turn goes behind
//! all who wait.

use std::collections::BTreeMap;

use defib_core::Name;

use crate::protocol::SpawnOrder;

/// Orders that were given and not yet carried out.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// By when their agents were last spawned.
    waiting: BTreeMap<Turn, SpawnOrder>,
    turn_of: BTreeMap<Name, Turn>,
    /// Counts turns: what is asked is what came before what, not when.
    count: u64,
    last: BTreeMap<Name, u64>,
}

/// When an agent last had its turn; among those that have not, when they asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    last: u64,
    asked: u64,
}

impl Turns {
    /// Takes an order. An agent has one at a time: gives back an earlier one, to be dealt with first.
    pub(crate) fn ask(&mut self, order: SpawnOrder) -> Option<SpawnOrder> {
        let agent = order.key.agent.clone();
        let earlier = self.take(&agent);
        self.count += 1;
        let last = self.last.get(&agent).copied().unwrap_or(self.count);
        let turn = Turn { last, asked: self.count };
        self.turn_of.insert(agent, turn);
        self.waiting.insert(turn, order);
        earlier
    }

    /// The order whose turn it is.
    pub(crate) fn next(&mut self) -> Option<SpawnOrder> {
        let agent = self.waiting.first_key_value()?.1.key.agent.clone();
        self.take(&agent)
    }

    /// This agent's order, out of turn: there is something to be done that comes after it.
    pub(crate) fn take(&mut self, agent: &Name) -> Option<SpawnOrder> {
        let order = self.waiting.remove(&self.turn_of.remove(agent)?)?;
        self.count += 1;
        self.last.insert(agent.clone(), self.count);
        Some(order)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use defib_core::RunId;

    use super::*;
    use crate::protocol::{Leftovers, RunKey};

    fn order(agent: &str, run: u64) -> SpawnOrder {
        let key = RunKey { agent: Name::parse(agent).unwrap(), run: RunId(run) };
        SpawnOrder {
            key,
            argv: vec!["true".to_owned()],
            cwd: "/".to_owned(),
            env: Vec::new(),
            terminal: None,
            user: None,
            umask: None,
            rlimits: Vec::new(),
            memory: None,
            leftovers: Leftovers::Kill,
        }
    }

    fn next(turns: &mut Turns) -> String {
        turns.next().map(|order| order.key.agent.to_string()).unwrap_or_default()
    }

    #[test]
    fn whoever_was_spawned_longest_ago_comes_first() {
        let mut turns = Turns::default();
        for agent in ["well", "loop-a", "loop-b"] {
            assert!(turns.ask(order(agent, 1)).is_none());
        }
        assert_eq!([(); 3].map(|()| next(&mut turns)), ["well", "loop-a", "loop-b"]);
        for run in 2..10 {
            turns.ask(order("loop-a", run));
            turns.ask(order("loop-b", run));
            assert_eq!([(); 2].map(|()| next(&mut turns)), ["loop-a", "loop-b"]);
        }
        turns.ask(order("loop-a", 10));
        turns.ask(order("loop-b", 10));
        turns.ask(order("well", 2));
        assert_eq!([(); 4].map(|()| next(&mut turns)), ["well", "loop-a", "loop-b", ""]);
    }

    #[test]
    fn one_that_was_never_spawned_waits_for_each_of_the_others_once_at_most() {
        let mut turns = Turns::default();
        for agent in ["loop-a", "loop-b"] {
            turns.ask(order(agent, 1));
            next(&mut turns);
        }
        turns.ask(order("loop-a", 2));
        turns.ask(order("new", 1));
        turns.ask(order("loop-b", 2));
        assert_eq!(next(&mut turns), "loop-a");
        turns.ask(order("loop-a", 3));
        assert_eq!(next(&mut turns), "loop-b");
        turns.ask(order("loop-b", 3));
        assert_eq!(next(&mut turns), "new");
    }

    #[test]
    fn an_agents_order_can_be_taken_out_of_turn_and_is_there_once() {
        let mut turns = Turns::default();
        turns.ask(order("a", 1));
        turns.ask(order("b", 1));
        assert_eq!(turns.ask(order("a", 2)).map(|earlier| earlier.key.run), Some(RunId(1)));
        assert_eq!(turns.take(&Name::parse("a").unwrap()).map(|it| it.key.run), Some(RunId(2)));
        assert!(turns.take(&Name::parse("a").unwrap()).is_none());
        assert_eq!(next(&mut turns), "b");
        assert!(turns.is_empty());
    }
}
