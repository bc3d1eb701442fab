//! Whose turn it is to be spawned, where many wait for it.
//!
//! One is spawned at a time, and each takes as long as the kernel needs to run a program. Whoever was
//! spawned longest ago comes first: then agents that crash at once, over and over, stand in line behind
//! one that has lived and now died. Nobody waits for ever, because whoever has had a turn goes behind
//! all who wait.
//!
//! Where a crowd waits, its orders are packed into one piece of memory, which goes back to the system
//! when the crowd has gone. As they are, a thousand orders would leave their strings' holes all over
//! the keeper's memory.

use std::collections::BTreeMap;
use std::ops::Range;

use defib_core::Name;
use serde::{Deserialize, Serialize};

use crate::channel::Tail;
use crate::footprint::pack;
use crate::protocol::{Profile, SpawnOrder};

/// A run to be spawned, and what it is confined to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) order: SpawnOrder,
    pub(crate) profile: Option<Box<Profile>>,
}

/// So many wait as they are.
const CROWD: usize = 32;

/// Orders that were given and not yet carried out.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// By when their agents were last spawned.
    waiting: BTreeMap<Turn, (Name, Waiting)>,
    /// Where orders are that are packed; those that were taken since leave gaps.
    packed: Vec<u8>,
    gaps: usize,
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

/// An order that waits.
#[derive(Debug)]
enum Waiting {
    Whole(Box<Wanted>),
    Packed(Range<usize>),
}

impl Turns {
    /// Takes an order. An agent has one at a time: gives back an earlier one, to be dealt with first.
    pub(crate) fn ask(&mut self, wanted: Wanted) -> Option<Wanted> {
        let agent = wanted.order.key.agent.clone();
        let earlier = self.take(&agent);
        self.count += 1;
        let last = self.last.get(&agent).copied().unwrap_or(self.count);
        let turn = Turn { last, asked: self.count };
        self.turn_of.insert(agent.clone(), turn);
        let waiting = if self.waiting.len() < CROWD {
            Waiting::Whole(Box::new(wanted))
        } else {
            self.pack(wanted)
        };
        self.waiting.insert(turn, (agent, waiting));
        earlier
    }

    /// Takes no more memory than it needs for who came last.
    pub(crate) fn pack_last(&mut self) {
        pack(&mut self.last);
    }

    fn pack(&mut self, wanted: Wanted) -> Waiting {
        if self.gaps > self.packed.len() / 2 {
            self.close_gaps();
        }
        let begin = self.packed.len();
        match postcard::to_extend(&wanted, Tail(&mut self.packed)) {
            Ok(_) => Waiting::Packed(begin..self.packed.len()),
            // Nothing that came as such a message fails to be one.
            Err(_) => Waiting::Whole(Box::new(wanted)),
        }
    }

    fn unpack(&mut self, waiting: Waiting) -> Option<Wanted> {
        let wanted = match waiting {
            Waiting::Whole(wanted) => Some(*wanted),
            Waiting::Packed(place) => {
                self.gaps += place.len();
                postcard::from_bytes(self.packed.get(place)?).ok()
            }
        };
        if self.waiting.is_empty() {
            (self.packed, self.gaps) = (Vec::new(), 0);
        }
        wanted
    }

    /// A crowd that never goes must not take more and more room.
    fn close_gaps(&mut self) {
        let mut closed = Vec::new();
        for (_, waiting) in self.waiting.values_mut() {
            if let Waiting::Packed(place) = waiting {
                let begin = closed.len();
                closed.extend_from_slice(self.packed.get(place.clone()).unwrap_or_default());
                *place = begin..closed.len();
            }
        }
        (self.packed, self.gaps) = (closed, 0);
    }

    /// The order whose turn it is.
    pub(crate) fn next(&mut self) -> Option<Wanted> {
        let agent = self.waiting.first_key_value()?.1.0.clone();
        self.take(&agent)
    }

    /// This agent's order, out of turn: there is something to be done that comes after it.
    pub(crate) fn take(&mut self, agent: &Name) -> Option<Wanted> {
        let (agent, waiting) = self.waiting.remove(&self.turn_of.remove(agent)?)?;
        self.count += 1;
        self.last.insert(agent, self.count);
        self.unpack(waiting)
    }

    /// Forgets when this agent last had its turn.
    pub(crate) fn forget(&mut self, agent: &Name) {
        self.last.remove(agent);
    }

    /// Whether this agent waits for its turn.
    pub(crate) fn has(&self, agent: &Name) -> bool {
        self.turn_of.contains_key(agent)
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

    fn order(agent: &str, run: u64) -> Wanted {
        let key = RunKey { agent: Name::parse(agent).unwrap(), run: RunId(run) };
        let order = SpawnOrder {
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
        };
        Wanted { order, profile: None }
    }

    fn next(turns: &mut Turns) -> String {
        turns.next().map(|wanted| wanted.order.key.agent.to_string()).unwrap_or_default()
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
        assert_eq!(turns.ask(order("a", 2)).map(|earlier| earlier.order.key.run), Some(RunId(1)));
        assert_eq!(
            turns.take(&Name::parse("a").unwrap()).map(|it| it.order.key.run),
            Some(RunId(2))
        );
        assert!(turns.take(&Name::parse("a").unwrap()).is_none());
        assert_eq!(next(&mut turns), "b");
        assert!(turns.is_empty());
    }

    #[test]
    fn a_crowd_s_orders_come_out_as_they_went_in_and_leave_nothing_behind() {
        let mut turns = Turns::default();
        let mut given = Vec::new();
        for number in 0..3 * CROWD as u64 {
            let mut wanted = order(&format!("agent-{number:03}"), number);
            wanted.order.env = vec![("N".to_owned(), number.to_string())];
            wanted.profile = (number % 2 == 0).then(Box::default);
            given.push(wanted.clone());
            turns.ask(wanted);
        }
        let out_of_turn = turns.take(&given[2 * CROWD].order.key.agent);
        assert_eq!(out_of_turn.as_ref(), Some(&given.remove(2 * CROWD)));
        let taken: Vec<Wanted> = std::iter::from_fn(|| turns.next()).collect();
        assert_eq!(taken, given);
        assert_eq!((turns.is_empty(), turns.packed.capacity()), (true, 0));
    }

    #[test]
    fn a_crowd_that_never_goes_takes_no_more_room_than_it_needs() {
        let mut turns = Turns::default();
        let names: Vec<String> = (0..4 * CROWD).map(|number| format!("loop-{number}")).collect();
        for name in &names {
            turns.ask(order(name, 1));
        }
        let needed = turns.packed.len();
        for run in 2..100 {
            for name in &names {
                let taken = turns.next().map(|wanted| wanted.order.key);
                let expected = RunKey { agent: Name::parse(name).unwrap(), run: RunId(run - 1) };
                assert_eq!(taken, Some(expected));
                turns.ask(order(name, run));
            }
        }
        assert!(turns.packed.len() <= 4 * needed, "{} for {needed}", turns.packed.len());
    }
}
