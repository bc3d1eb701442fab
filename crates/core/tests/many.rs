//! Ten thousand agents on the virtual clock: one that dies concerns nobody else.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test says what it expects, and ends where it is wrong"
)]

mod bench;

use bench::{Bench, agent, plain, secs};
use defib_core::{Effect, Input, Preset, Scope, State};

const MANY: usize = 10_000;

fn label(number: usize) -> String {
    format!("a{number:05}")
}

#[test]
fn ten_thousand_idle_agents_come_up_one_is_replaced_and_all_go_down() {
    let policy = plain(Preset::Default);
    let agents = (0..MANY).map(|number| agent(&label(number), &policy)).collect();
    let mut bench = Bench::fleet(agents, Vec::new());
    let spawns = |bench: &Bench| {
        bench.effects.iter().filter(|effect| matches!(effect, Effect::Spawn { .. })).count()
    };
    assert_eq!(spawns(&bench), MANY);
    // Idle: nothing comes due, however long it takes.
    assert_eq!(bench.supervisor.next_deadline(), None);
    bench.pass(secs(24 * 3600));
    bench.tell(Input::Tick).unwrap();
    let told = bench.log.len();
    assert_eq!(told, 2 * MANY, "each was started and got ready");

    let one = label(MANY / 2);
    bench.exit(&one, 1);
    assert_eq!(bench.state(&one), State::Backoff);
    bench.pass(secs(1));
    assert_eq!(bench.state(&one), State::Running);
    assert_eq!(spawns(&bench), MANY + 1);
    let others = bench.log[told..].iter().filter(|(_, record)| record.agent.as_str() != one);
    assert_eq!(others.count(), 0, "nobody else is concerned");

    bench.tell(Input::DownAsked(Scope::All)).unwrap();
    for number in 0..MANY {
        assert_eq!(bench.state(&label(number)), State::Stopped);
    }
    assert_eq!(bench.supervisor.next_deadline(), None);
}
