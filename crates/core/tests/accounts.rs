//! Agents on one credential share waits for a quota; a run at a prompt waits for a person.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test says what it expects, and ends where it is wrong"
)]

mod bench;

use bench::{Bench, agent, ms, plain, secs};
use defib_core::policy::Heartbeat;
use defib_core::record::WaitReason;
use defib_core::{
    AgentSpec, Class, Continuity, Input, Policy, Preset, Reason, Scope, State, Topology,
};

fn default() -> Policy {
    plain(Preset::Default)
}

fn on_account(text: &str) -> AgentSpec {
    AgentSpec { account: Some("main".into()), ..agent(text, &default()) }
}

/// Three on one account and one on none, all up.
fn fleet() -> Bench {
    let agents = vec![on_account("a"), on_account("b"), on_account("c"), agent("d", &default())];
    Bench::fleet(agents, Vec::new())
}

fn reason(bench: &Bench, who: &str) -> Option<Reason> {
    bench.state(who);
    bench.supervisor.sight(bench.id(who)).reason
}

fn states(bench: &Bench) -> [State; 3] {
    ["a", "b", "c"].map(|who| bench.state(who))
}

fn speak(bench: &mut Bench, who: &str) {
    let (agent, run) = (bench.id(who), bench.run(who));
    bench.tell(Input::ActivitySeen { agent, run }).unwrap();
}

const QUOTA: Option<Reason> = Some(Reason::Wait(WaitReason::Cause(Class::Quota)));
const TURN: Option<Reason> = Some(Reason::Wait(WaitReason::Account));

/// All three have met their limit, which is reset in an hour or a little later.
fn parked() -> Bench {
    let mut bench = fleet();
    bench.end_as("a", Class::Quota, Some(secs(3600)));
    bench.end_as("b", Class::Quota, Some(secs(3650)));
    bench.end_as("c", Class::Quota, Some(secs(3620)));
    bench
}

#[test]
fn one_is_tried_first_and_the_rest_follow_one_after_another() {
    let mut bench = parked();
    bench.pass(secs(3649));
    assert_eq!(states(&bench), [State::Waiting; 3], "nobody before the last of the resets");
    assert_eq!(reason(&bench, "a"), QUOTA);
    bench.pass(secs(1));
    assert_eq!(states(&bench), [State::Running, State::Waiting, State::Waiting]);
    assert_eq!((reason(&bench, "b"), reason(&bench, "c")), (TURN, TURN));
    bench.pass(secs(20));
    assert_eq!(states(&bench), [State::Running, State::Waiting, State::Waiting], "not proven yet");
    speak(&mut bench, "a");
    bench.pass(ms(9_999));
    assert_eq!(bench.state("b"), State::Waiting);
    bench.pass(ms(1));
    assert_eq!(states(&bench), [State::Running, State::Running, State::Waiting]);
    bench.pass(secs(10));
    assert_eq!(states(&bench), [State::Running; 3]);
    for who in ["a", "b", "c"] {
        assert_eq!(bench.supervisor.sight(bench.id(who)).restarts, 0, "{who} was not restarted");
    }
}

#[test]
fn a_second_limit_parks_all_again() {
    let mut bench = parked();
    bench.pass(secs(3650));
    speak(&mut bench, "a");
    // It said that it has met its limit, and died.
    bench.pass(secs(2));
    bench.end_as("a", Class::Quota, Some(secs(7200)));
    bench.pass(secs(600));
    assert_eq!(states(&bench), [State::Waiting; 3]);
    assert_eq!(bench.run("b").0, 1, "it was not even tried");
    bench.pass(secs(6600));
    assert_eq!(states(&bench), [State::Running, State::Waiting, State::Waiting]);
}

#[test]
fn one_that_dies_of_something_else_makes_way_for_the_next() {
    let mut bench = parked();
    bench.pass(secs(3650));
    bench.exit("a", 1);
    assert_eq!(bench.state("b"), State::Running, "the next is tried at once");
    assert_eq!(reason(&bench, "c"), TURN);
    let id = bench.id("b");
    bench.tell(Input::StopAsked { scope: Scope::Agent(id), kill: false }).unwrap();
    assert_eq!(bench.state("c"), State::Running, "one that was stopped has shown nothing");
}

#[test]
fn one_that_says_nothing_does_not_hold_the_others_for_ever() {
    let mut bench = parked();
    bench.pass(secs(3650 + 60));
    assert_eq!(states(&bench), [State::Running, State::Running, State::Waiting]);
    bench.pass(secs(10));
    assert_eq!(states(&bench), [State::Running; 3]);
}

#[test]
fn a_crash_or_a_start_by_itself_waits_for_the_account_and_a_person_does_not() {
    let mut bench = fleet();
    bench.end_as("a", Class::Quota, Some(secs(3600)));
    assert_eq!(bench.state("b"), State::Running, "what runs runs on");
    bench.exit("b", 1);
    bench.pass(ms(100));
    assert_eq!(reason(&bench, "b"), QUOTA, "its restart would only meet the limit");
    bench.exit("d", 1);
    bench.pass(ms(100));
    assert_eq!(bench.state("d"), State::Running, "another account is another matter");
    let scope = bench.scope("b");
    bench.tell(Input::StartAsked(scope)).unwrap();
    assert_eq!(bench.state("b"), State::Running);
}

#[test]
fn a_successor_knows_who_is_on_trial() {
    let mut bench = parked();
    bench.pass(secs(3650));
    let agents = vec![on_account("a"), on_account("b"), on_account("c"), agent("d", &default())];
    let topology = Topology { agents, ..Topology::default() };
    bench.succeed(topology, Continuity::Unbroken);
    let (id, run) = (bench.id("a"), bench.run("a"));
    bench.tell(Input::Found { agent: id, run: Some(run) }).unwrap();
    assert_eq!(reason(&bench, "b"), TURN);
    speak(&mut bench, "a");
    bench.pass(secs(10));
    assert_eq!(bench.state("b"), State::Running);
}

#[test]
fn a_run_at_a_prompt_waits_for_a_person_and_for_no_clock() {
    let heartbeat = Some(Heartbeat { ttl: secs(30), grace: secs(0) });
    let policy = Policy { heartbeat, silent_for: Some(secs(60)), ..default() };
    let mut bench = Bench::solo(&policy);
    let (agent, run) = (bench.id("a"), bench.run("a"));
    bench.tell(Input::PromptSeen { agent, run, waiting: true }).unwrap();
    assert_eq!(bench.state("a"), State::Waiting);
    assert_eq!(reason(&bench, "a"), Some(Reason::Wait(WaitReason::Prompt)));
    bench.pass(secs(86_400));
    assert_eq!((bench.state("a"), bench.run("a")), (State::Waiting, run), "it was left alone");
    bench.tell(Input::PromptSeen { agent, run, waiting: false }).unwrap();
    assert_eq!(bench.state("a"), State::Running);
    bench.pass(secs(31));
    assert_ne!(bench.run("a"), run, "from then on its silence counts again");

    let (agent, run) = (bench.id("a"), bench.run("a"));
    bench.tell(Input::PromptSeen { agent, run, waiting: true }).unwrap();
    bench.exit("a", 1);
    assert_eq!(bench.state("a"), State::Backoff, "a death is a death");
}
