//! What a sandbox costs at a spawn: from the order to the report of the end of a program that does
//! nothing, with one and without, by turns, so that the machine's moods fall on both.

#![allow(clippy::unwrap_used, reason = "a bench that cannot go on has failed")]
#![allow(dead_code, reason = "the tests' harness does more than this needs")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test waits for one of many news")]
#![allow(clippy::needless_pass_by_value, reason = "requests are made where they are asked")]

#[path = "../tests/keeper/harness.rs"]
mod harness;

use std::time::{Duration, Instant};

use defib_host::protocol::Request;
use harness::{Keeper, key, order, profile};

const ROUNDS: u64 = 500;

fn main() {
    let keeper = Keeper::start(&[]);
    let mut daemon = keeper.welcomed();
    let (mut plain, mut confined) = (Vec::new(), Vec::new());
    for run in 1..=ROUNDS {
        for (agent, times) in [("plain", &mut plain), ("confined", &mut confined)] {
            let mut order = order(agent, run, &[]);
            order.argv = vec!["/usr/bin/true".to_owned()];
            let begin = Instant::now();
            if agent == "plain" {
                daemon.spawn(order);
            } else {
                daemon.spawn_confined(order, profile());
            }
            daemon.exit_of(&key(agent, run));
            times.push(begin.elapsed());
            daemon.ask(Request::Acknowledge(key(agent, run)));
        }
    }
    for (what, part) in [("the fastest tenth", 10), ("the middle", 2)] {
        let (plain, confined) = (at(&mut plain, part), at(&mut confined, part));
        let more = micros(confined) - micros(plain);
        let (plain, confined) = (micros(plain), micros(confined));
        println!("{what}: plain {plain:.0} µs, confined {confined:.0} µs, {more:.0} µs more");
    }
}

/// The time that this part of all is below. What else a machine does only ever adds to times, so on a
/// busy one the fastest say most.
fn at(times: &mut [Duration], part: usize) -> Duration {
    times.sort();
    times[times.len() / part]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
