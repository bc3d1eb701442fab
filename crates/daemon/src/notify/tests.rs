//! What is told and what is not, on a clock that the tests turn.

use std::time::Duration;

use defib_config::config::Event as Topic;
use defib_core::record::{Cause, Rest, Trip};
use defib_core::{Class, Goal, Kind, Mono, Name, Now, Record, RunId, Verdict, Wall, What};
use defib_history::{Event, Stamp};
use proptest::prelude::*;
use serde_json::{Map, json};

use super::account::{Account, Fate, Terms};
use super::message::{Message, Sender};
use crate::post::Refused;

const BEGINNING: i64 = 1_700_000_000_000;
const ALL: [Topic; 8] = [
    Topic::CrashedOut,
    Topic::Halted,
    Topic::Waiting,
    Topic::Revived,
    Topic::Recovered,
    Topic::Escalated,
    Topic::Down,
    Topic::BurnAlarm,
];

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

/// A receiver that is away, and may say for how long.
fn refused(after: Option<Duration>) -> Refused {
    Refused { why: "nobody there".to_owned(), after }
}

/// One channel, its clock, and what arrived.
struct Bench {
    account: Account,
    terms: Terms,
    now: Wall,
    seq: u64,
    heard: Vec<Event>,
    /// What was made, with when.
    sent: Vec<(Wall, Message)>,
}

impl Bench {
    fn new(on: &[Topic], cooldown_s: u64) -> Bench {
        let sender = Sender { channel: name("ops"), project: name("p"), host: "box".to_owned() };
        Bench {
            account: Account::beginning(0),
            terms: Terms { on: on.to_vec(), cooldown: Duration::from_secs(cooldown_s), sender },
            now: Wall::from_millis(BEGINNING),
            seq: 0,
            heard: Vec::new(),
            sent: Vec::new(),
        }
    }

    fn stamp(&mut self) -> Stamp {
        self.seq += 1;
        let now = Now { mono: Mono::ZERO, wall: self.now };
        Stamp { seq: self.seq, now, boot: "b".into(), project: Some(name("p")) }
    }

    fn hear(&mut self, event: Event) {
        self.account.hear(&event, &name("p"));
        self.heard.push(event);
    }

    fn record(&mut self, agent: &str, what: What) {
        let record = Record { agent: name(agent), run: Some(RunId(1)), what };
        let event = Event::of_record(self.stamp(), &record);
        self.hear(event);
    }

    fn notified(&mut self, agent: &str, what: &str) {
        let body: Map<_, _> = [("what".to_owned(), json!(what))].into_iter().collect();
        let stamp = self.stamp();
        self.hear(Event::new(stamp, "notified", Some(name(agent)), Some(RunId(1)), body));
    }

    fn dies(&mut self, agent: &str) {
        self.record(
            agent,
            What::RunDied {
                class: Class::Error,
                kind: Some(Kind::Dumb),
                exit_code: Some(7),
                signal: None,
                ran_s: defib_core::time::Seconds(Duration::from_secs(1)),
                verdict: Verdict::Restart,
                counted: true,
                consecutive_failures: 1,
                evidence: Some("boom".into()),
            },
        );
    }

    fn crashes_out(&mut self, agent: &str) {
        self.dies(agent);
        self.record(agent, What::CrashedOut { by: Trip::Window });
        self.notified(agent, "crashed-out");
    }

    fn revives(&mut self, agent: &str) {
        self.record(agent, What::Revived);
        let what = What::RunStarted { cause: Cause::Revive, fresh: false, restarts: 0 };
        self.record(agent, what);
        self.record(agent, What::RunReady);
    }

    /// Does what is due now; everything arrives at once.
    fn announce(&mut self) {
        self.account.announce(&self.terms, self.now);
        let made: Vec<Message> = self.account.waiting().cloned().collect();
        for message in made {
            self.account.delivered(&message.id);
            self.sent.push((self.now, message));
        }
    }

    /// Lets time pass, and does what becomes due meanwhile when it does.
    fn pass(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        self.announce();
        while let Some(next) = self.account.next_deadline(&self.terms, self.now) {
            if next > end {
                break;
            }
            assert!(next > self.now, "time stands still");
            self.now = next;
            self.announce();
        }
        self.now = end;
        self.announce();
    }

    fn events(&self) -> Vec<&str> {
        self.sent.iter().map(|(_, message)| message.event.as_str()).collect()
    }
}

#[test]
fn a_storm_of_a_thousand_is_a_few_messages_and_a_digest() {
    let mut bench = Bench::new(&ALL, 600);
    for agent in 0..1000 {
        bench.crashes_out(&format!("a{agent}"));
        bench.announce();
    }
    bench.pass(3600);
    assert_eq!(bench.events(), ["crashed-out", "crashed-out", "crashed-out", "digest"]);
    let (_, digest) = &bench.sent[3];
    assert_eq!(digest.counts.get("crashed-out"), Some(&997));
    assert_eq!(digest.agents.len(), 10);
    assert!(digest.text.starts_with("997 crashed-out: a"), "{}", digest.text);
    assert!(digest.text.ends_with("and 987 more"), "{}", digest.text);
    assert!(serde_json::to_vec(digest).unwrap().len() < 16 << 10);
}

#[test]
fn a_storm_that_goes_on_is_told_ever_less_often() {
    let mut bench = Bench::new(&ALL, 600);
    for minute in 0..120 {
        for agent in 0..20 {
            bench.crashes_out(&format!("a{minute}-{agent}"));
        }
        bench.pass(60);
    }
    // 2,400 agents in two hours: three, then digests after 1, 2, 4, 8 and then 10 minutes.
    assert!(bench.sent.len() <= 20, "{:?}", bench.events());
    let digested: u64 = bench.sent.iter().flat_map(|(_, m)| m.counts.values()).sum();
    bench.pass(3600);
    let all: u64 = bench.sent.iter().flat_map(|(_, m)| m.counts.values()).sum();
    assert!(digested <= all && all == 2400 - 3, "{all}");
}

#[test]
fn the_same_is_told_once_a_cooldown_and_what_still_holds_then_is_told() {
    let mut bench = Bench::new(&[Topic::CrashedOut], 600);
    for _ in 0..50 {
        bench.crashes_out("a");
        bench.pass(1);
        bench.revives("a");
        bench.pass(1);
    }
    bench.crashes_out("a");
    bench.pass(400);
    assert_eq!(bench.events(), ["crashed-out"]);
    bench.pass(200);
    assert_eq!(bench.events(), ["crashed-out", "crashed-out"]);
    bench.notified("a", "crashed-out");
    bench.pass(7200);
    assert_eq!(bench.sent.len(), 2, "nothing has changed");
}

#[test]
fn a_recovery_is_told_to_who_heard_of_the_trouble_once_the_agent_has_settled() {
    let mut bench = Bench::new(&[Topic::CrashedOut, Topic::Recovered], 600);
    bench.crashes_out("a");
    bench.pass(5);
    bench.revives("a");
    bench.pass(9);
    assert_eq!(bench.events(), ["crashed-out"], "it might still die");
    bench.pass(2);
    assert_eq!(bench.events(), ["crashed-out", "recovered"]);
    assert_eq!(bench.sent[1].1.text, "a is well again; it was crashed-out");
    // One whose trouble was not told does not recover.
    bench.notified("b", "halted");
    bench.pass(5);
    bench.revives("b");
    bench.pass(3600);
    assert_eq!(bench.sent.len(), 2);
    assert!(bench.account.standing(&name("a")).is_none(), "nothing is left to remember");
}

#[test]
fn one_that_dies_before_it_has_settled_has_not_recovered() {
    let mut bench = Bench::new(&ALL, 0);
    bench.crashes_out("a");
    bench.pass(1);
    bench.revives("a");
    bench.pass(8);
    bench.dies("a");
    bench.pass(3600);
    assert_eq!(bench.events(), ["crashed-out", "revived"]);
}

#[test]
fn what_a_person_stopped_is_neither_told_nor_recovered() {
    let mut bench = Bench::new(&ALL, 600);
    bench.crashes_out("a");
    bench.pass(1);
    bench.record("a", What::Stopped { goal: Goal::Down });
    bench.pass(3600);
    assert_eq!(bench.events(), ["crashed-out"]);
}

#[test]
fn one_that_stays_away_for_long_or_for_good_is_down() {
    let mut bench = Bench::new(&[Topic::Down, Topic::Recovered], 600);
    bench.dies("a");
    let scheduled = |delay_ms| What::RestartScheduled { delay_ms, attempt: 1, gauge: None };
    bench.record("a", scheduled(59_999));
    bench.dies("b");
    bench.record("b", scheduled(300_000));
    bench.dies("c");
    bench.record("c", What::Rested { rest: Rest::Failed });
    bench.pass(1);
    let texts: Vec<&str> = bench.sent.iter().map(|(_, message)| message.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "b is down for 5m more: error, exit code 7, \"boom\"",
            "c is down, and is not started again: error, exit code 7, \"boom\""
        ]
    );
    bench.record("b", What::RunReady);
    bench.record("c", What::Rested { rest: Rest::Done });
    bench.pass(11);
    assert_eq!(bench.events(), ["down", "down", "recovered", "digest"][..3]);
    bench.pass(60);
    assert_eq!(bench.sent.len(), 4, "{:?}", bench.events());
}

#[test]
fn a_message_is_tried_again_ever_later_and_given_up_after_a_day() {
    let mut bench = Bench::new(&ALL, 600);
    bench.crashes_out("a");
    bench.account.announce(&bench.terms, bench.now);
    let id = bench.account.next_letter().unwrap().message.id.clone();
    let mut delays = Vec::new();
    let given_up = loop {
        match bench.account.failed(&id, &refused(None), bench.now).unwrap() {
            Fate::Again(delay, failures) => {
                assert_eq!(bench.account.next_letter().unwrap().due, bench.now + delay);
                assert_eq!(failures as usize, delays.len() + 1);
                delays.push(delay);
                bench.now = bench.now + delay;
            }
            Fate::GivenUp(failures) => break failures as usize,
        }
    };
    for (at, delay) in delays.iter().enumerate() {
        let whole = (1_u64 << at.min(20)).min(300);
        let (least, most) = (whole * 900, whole * 1100);
        let millis = u64::try_from(delay.as_millis()).unwrap();
        assert!((least..=most).contains(&millis), "{at}: {delay:?}");
    }
    assert!((280..340).contains(&given_up), "{given_up}");
    assert!(bench.account.next_letter().is_none());
    assert_eq!(bench.account.failed(&id, &refused(None), bench.now), None);
}

#[test]
fn a_receiver_that_asks_for_time_gets_it_within_reason() {
    let mut bench = Bench::new(&ALL, 600);
    bench.crashes_out("a");
    bench.account.announce(&bench.terms, bench.now);
    let id = bench.account.next_letter().unwrap().message.id.clone();
    for (asked, given) in [(120, 120), (86_400, 3600)] {
        let asked = Some(Duration::from_secs(asked));
        let fate = bench.account.failed(&id, &refused(asked), bench.now).unwrap();
        assert!(matches!(fate, Fate::Again(delay, _) if delay == Duration::from_secs(given)));
    }
}

#[test]
fn while_nothing_can_be_delivered_no_heap_of_messages_grows() {
    let mut bench = Bench::new(&ALL, 60);
    for round in 0..2000 {
        bench.crashes_out(&format!("a{}", round % 100));
        bench.account.announce(&bench.terms, bench.now);
        bench.revives(&format!("a{}", round % 100));
        bench.now = bench.now + Duration::from_secs(30);
        bench.account.announce(&bench.terms, bench.now);
    }
    assert!(bench.account.waiting().count() <= 20);
    assert!(serde_json::to_vec(&bench.account).unwrap().len() < 256 << 10);
}

#[test]
fn what_other_projects_do_is_not_told() {
    let mut bench = Bench::new(&ALL, 600);
    let mut stamp = bench.stamp();
    stamp.project = Some(name("other"));
    let body: Map<_, _> = [("what".to_owned(), json!("halted"))].into_iter().collect();
    bench.hear(Event::new(stamp, "notified", Some(name("a")), None, body));
    bench.pass(60);
    assert!(bench.sent.is_empty());
    assert_eq!(bench.account.upto, 1);
}

#[test]
fn slack_gets_text_and_blocks_in_which_nothing_is_markup() {
    let mut bench = Bench::new(&ALL, 600);
    bench.dies("a");
    bench.record("a", What::Halted { reason: Class::Config });
    bench.notified("a", "halted");
    bench.pass(1);
    let slack = bench.sent[0].1.slack();
    assert_eq!(slack["text"], "a is halted and needs a fix: error, exit code 7, \"boom\"");
    assert_eq!(slack["blocks"][0]["type"], "section");
    let message = Message { text: "<!channel> & co".to_owned(), ..bench.sent[0].1.clone() };
    assert_eq!(message.slack()["text"], "&lt;!channel&gt; &amp; co");
}

/// Something that happens to one of a few agents, and how much later the next thing does.
fn step() -> impl Strategy<Value = (usize, u8, u64)> {
    let gap = prop_oneof![3 => Just(0_u64), 2 => 0_u64..5, 1 => 0_u64..900];
    (0_usize..6, 0_u8..9, gap)
}

fn happen(bench: &mut Bench, agent: usize, what: u8) {
    let agent = format!("a{agent}");
    match what {
        0 | 1 => bench.crashes_out(&agent),
        2 => {
            bench.dies(&agent);
            bench.notified(&agent, "halted");
        }
        3 => bench.notified(&agent, "waiting"),
        4 | 5 => bench.revives(&agent),
        6 => bench.record(&agent, What::RunReady),
        7 => bench.dies(&agent),
        _ => bench.record(&agent, What::Stopped { goal: Goal::Stopped }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn few_messages_each_topic_once_a_cooldown_and_the_truth_in_the_end(
        steps in proptest::collection::vec(step(), 0..80),
        cooldown_s in 0_u64..1200,
    ) {
        let mut bench = Bench::new(&ALL, cooldown_s);
        for (agent, what, gap) in steps {
            happen(&mut bench, agent, what);
            bench.pass(gap);
        }
        bench.pass(3 * 3600);
        let cooldown = bench.terms.cooldown;
        // Each topic of an agent at most once a cooldown.
        let mut told: Vec<(Wall, String, String)> = Vec::new();
        for (at, message) in &bench.sent {
            let single = message.agent.iter().map(|agent| (agent.to_string(), message.event.clone()));
            let many = message.agents.iter().map(|one| (one.agent.to_string(), one.event.clone()));
            for (agent, event) in single.chain(many) {
                for (before, other, same) in &told {
                    prop_assert!(
                        *other != agent || *same != event || at.since(*before) >= cooldown,
                        "{agent} {event} again after {:?}", at.since(*before)
                    );
                }
                told.push((*at, agent, event));
            }
        }
        // Never more than three single ones and a digest in a minute; a storm's end may meet them.
        for (at, _) in &bench.sent {
            let near = bench.sent.iter().filter(|(other, _)| {
                *other >= *at && other.since(*at) < Duration::from_secs(60)
            });
            prop_assert!(near.count() <= 5, "{:?}", bench.events());
        }
        // What people believe in the end is what is the case.
        for agent in 0..6 {
            let agent = name(&format!("a{agent}"));
            let Some(standing) = bench.account.standing(&agent) else { continue };
            if let Some(bad) = standing.is_bad() {
                prop_assert_eq!(standing.told, Some(bad));
            }
        }
    }

    #[test]
    fn a_daemon_that_dies_at_any_moment_changes_nothing_of_what_is_told(
        steps in proptest::collection::vec(step(), 0..60),
        deaths in proptest::collection::vec(any::<bool>(), 60),
    ) {
        let (mut whole, mut broken) = (Bench::new(&ALL, 300), Bench::new(&ALL, 300));
        let mut kept = serde_json::to_string(&broken.account).unwrap();
        for ((agent, what, gap), dies) in steps.into_iter().zip(deaths) {
            for bench in [&mut whole, &mut broken] {
                happen(bench, agent, what);
            }
            // Killed after it has heard, before anything was made of it: it hears it again.
            if dies {
                broken.account = serde_json::from_str(&kept).unwrap();
                for event in broken.heard.clone() {
                    broken.account.hear(&event, &name("p"));
                }
            }
            for bench in [&mut whole, &mut broken] {
                bench.pass(gap);
            }
            kept = serde_json::to_string(&broken.account).unwrap();
        }
        prop_assert_eq!(&whole.sent, &broken.sent);
    }
}

#[test]
fn a_burn_is_told_once_beside_whatever_else_is_the_matter() {
    let alarm = |bench: &mut Bench, per_minute: f64, stopped: bool| {
        let body = json!({
            "unit": "tokens", "per_minute": per_minute, "baseline": 4000.0, "factor": 5,
            "stopped": stopped
        });
        let Some(body) = body.as_object() else { unreachable!("it is one") };
        let stamp = bench.stamp();
        let agent = Some(name("a"));
        bench.hear(Event::new(stamp, "burn-alarm", agent, Some(RunId(1)), body.clone()));
        bench.notified("a", "burn-alarm");
    };
    let mut bench = Bench::new(&ALL, 600);
    alarm(&mut bench, 48_000.0, false);
    bench.pass(60);
    assert_eq!(bench.sent.len(), 1, "{:#?}", bench.sent);
    let (_, message) = &bench.sent[0];
    assert_eq!(message.event, "burn-alarm");
    assert_eq!(message.text, "a burns: 48000 tokens in a minute, where 4000 are usual");
    assert!(message.hint.as_ref().is_some_and(|hint| hint.contains("`defib stop a`")));
    assert!(message.is_trouble() && message.death.is_none());

    // That the same is not said again for now hides nothing else, and is not hidden by it.
    alarm(&mut bench, 90_000.0, true);
    bench.crashes_out("a");
    bench.pass(60);
    assert_eq!(bench.sent.len(), 2, "{:#?}", bench.sent);
    assert_eq!(bench.sent[1].1.event, "crashed-out");
    bench.pass(600);
    let (at, last) = &bench.sent[2];
    assert_eq!(
        last.text,
        "a burns: 90000 tokens in a minute, where 4000 are usual; it was stopped for that"
    );
    assert_eq!(*at, bench.sent[0].0 + Duration::from_secs(600), "when it may be said again");
    bench.pass(3600);
    assert_eq!(bench.sent.len(), 3, "a burn is no state that one recovers from");

    let mut bench = Bench::new(&[Topic::CrashedOut], 600);
    alarm(&mut bench, 48_000.0, false);
    bench.pass(60);
    assert!(bench.sent.is_empty(), "nobody asked for it");
}

#[test]
fn the_last_failure_is_known_until_something_arrives() {
    let mut bench = Bench::new(&ALL, 600);
    bench.crashes_out("a");
    bench.account.announce(&bench.terms, bench.now);
    let Some(id) = bench.account.next_letter().map(|letter| letter.message.id.clone()) else {
        panic!("a message")
    };
    assert_eq!(bench.account.setback(), None);
    bench.account.failed(&id, &refused(None), bench.now);
    let known = |bench: &Bench| bench.account.setback().map(|one| (one.attempts, one.given_up));
    assert_eq!(known(&bench), Some((1, false)));
    let text = serde_json::to_string(&bench.account).unwrap();
    bench.account = serde_json::from_str(&text).unwrap();
    assert_eq!(known(&bench), Some((1, false)), "also by the next daemon");
    bench.now = bench.now + Duration::from_secs(86_400);
    bench.account.failed(&id, &refused(None), bench.now);
    assert_eq!(known(&bench), Some((2, true)));
    bench.account.delivered("another");
    assert_eq!(known(&bench), None);
}
