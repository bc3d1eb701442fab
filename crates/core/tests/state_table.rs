//! The full grid of phases and inputs, generated and kept current.
//!
//! `DEFIB_UPDATE=1 cargo test -p defib-core --test state_table` writes it anew; a change of it is
//! reviewed like any other.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test says what it expects, and ends where it is wrong"
)]

mod bench;

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use bench::{Bench, agent, name, plain, secs};
use defib_core::policy::{Mode, Ready, Trigger};
use defib_core::run::{ExitReport, Finding, Status};
use defib_core::{
    AgentId, Class, Effect, Input, Now, Outbox, Policy, Preset, RunId, Scope, Supervisor, Topology,
};

fn default() -> Policy {
    plain(Preset::Default)
}

/// An agent in a phase, named as the table names it.
fn phases() -> Vec<(&'static str, Bench)> {
    let up = || Bench::solo(&default());
    let manual = Bench::solo(&Policy { trigger: Trigger::Manual, ..default() });
    let mut quota = up();
    quota.end_as("a", Class::Quota, Some(secs(3600)));
    let mut blocked = agent("a", &default());
    blocked.after = vec![name("b")];
    let never = Policy { trigger: Trigger::Manual, ..default() };
    let dependency = Bench::fleet(vec![blocked, agent("b", &never)], Vec::new());
    let mut backoff = up();
    backoff.exit("a", 1);
    let starting = Bench::solo(&Policy { ready: Ready::WhenTold, ..default() });
    let stopping = || {
        let mut bench = up();
        bench.deaf.insert("a");
        let scope = bench.scope("a");
        bench.tell(Input::StopAsked { scope, kill: false }).unwrap();
        bench
    };
    let mut restarting = up();
    restarting.deaf.insert("a");
    let scope = restarting.scope("a");
    restarting.tell(Input::RestartAsked { scope, fresh: false }).unwrap();
    let mut stopped = stopping();
    stopped.pass(secs(10));
    let mut failed = Bench::solo(&Policy { mode: Mode::Never, ..default() });
    failed.exit("a", 1);
    let mut done = up();
    done.exit("a", 0);
    let mut halted = up();
    halted.end_as("a", Class::Auth, None);
    let mut broke = up();
    let id = broke.id("a");
    broke.tell(Input::BalanceSeen { agent: id, empty: true }).unwrap();
    broke.exit("a", 1);
    let mut spent_up = up();
    let id = spent_up.id("a");
    let spent_until = Some(spent_up.clock().wall + secs(3600));
    spent_up.tell(Input::AllowanceSeen { agent: id, spent_until }).unwrap();
    let mut crashed_out = up();
    crashed_out.crash_loop("a", 100);
    let mut prompted = up();
    let (id, run) = (prompted.id("a"), prompted.run("a"));
    prompted.tell(Input::PromptSeen { agent: id, run, waiting: true }).unwrap();
    let mut finished = up();
    let (id, run) = (finished.id("a"), finished.run("a"));
    finished.tell(Input::FinishSeen { agent: id, run, finished: true }).unwrap();
    vec![
        ("idle", manual),
        ("waiting for a quota", quota),
        ("waiting for a person at a prompt", prompted),
        ("waiting for its allowance", spent_up),
        ("waiting for another agent", dependency),
        ("backoff", backoff),
        ("starting", starting),
        ("running", up()),
        ("running, its work finished", finished),
        ("stopping, by an operator", stopping()),
        ("stopping, to be restarted", restarting),
        ("stopped, by an operator", stopped),
        ("stopped, failed", failed),
        ("done", done),
        ("halted", halted),
        ("halted, broke", broke),
        ("crashed-out", crashed_out),
    ]
}

/// The inputs, named as the table names them.
fn inputs(agent: AgentId, run: RunId, now: Now) -> Vec<(&'static str, Input)> {
    let scope = Scope::Agent(agent);
    let died = |status, class: Option<Class>| {
        let resets_at = Some(now.wall + secs(3600));
        let finding = class.map(|class| Finding { class, evidence: None, resets_at });
        Input::Exited { agent, run, report: ExitReport { status, finding, spoke: true } }
    };
    let apply = |generation| {
        let mut spec = bench::agent("a", &default());
        spec.generation = generation;
        Input::Apply(Box::new(Topology { agents: vec![spec], ..Topology::default() }))
    };
    vec![
        ("up", Input::UpAsked(Scope::All)),
        ("down", Input::DownAsked(Scope::All)),
        ("start", Input::StartAsked(scope.clone())),
        ("stop", Input::StopAsked { scope: scope.clone(), kill: false }),
        ("stop --kill", Input::StopAsked { scope: scope.clone(), kill: true }),
        ("restart", Input::RestartAsked { scope: scope.clone(), fresh: false }),
        ("revive", Input::ReviveAsked(scope)),
        ("close", Input::CloseAsked),
        ("boot", Input::Booted),
        ("apply, command changed", apply(1)),
        ("apply, agent removed", Input::Apply(Box::default())),
        ("spawned", Input::Spawned { agent, run }),
        ("readied", Input::Readied { agent, run }),
        ("ended", Input::Ended { agent, run }),
        ("exited 0", died(Status::Exited(0), None)),
        ("exited 1", died(Status::Exited(1), None)),
        ("exited, quota", died(Status::Exited(1), Some(Class::Quota))),
        ("exited, auth", died(Status::Exited(1), Some(Class::Auth))),
        ("not spawned", died(Status::NotSpawned { usable: false }, None)),
        (
            "exited, of an earlier run",
            Input::Exited {
                agent,
                run: RunId(run.0.wrapping_sub(1)),
                report: Status::Exited(1).into(),
            },
        ),
        ("beat seen", Input::BeatSeen { agent, run }),
        ("activity seen", Input::ActivitySeen { agent, run }),
        ("prompt seen", Input::PromptSeen { agent, run, waiting: true }),
        ("prompt gone", Input::PromptSeen { agent, run, waiting: false }),
        ("finish seen", Input::FinishSeen { agent, run, finished: true }),
        ("work seen", Input::FinishSeen { agent, run, finished: false }),
        ("lingered", Input::Lingered { agent, run }),
        ("extended", Input::Extended { agent, run, by: Duration::from_secs(60) }),
        ("probe failed", Input::ProbeFailed { agent, run }),
        ("overspent", Input::Overspent { agent, run }),
        ("shutdown wished", Input::ShutdownWished { agent, run }),
        ("wait over", Input::WaitOver(agent)),
        ("triggered", Input::Triggered(agent)),
        ("balance empty", Input::BalanceSeen { agent, empty: true }),
        ("balance funded", Input::BalanceSeen { agent, empty: false }),
        (
            "allowance spent",
            Input::AllowanceSeen { agent, spent_until: Some(now.wall + secs(3600)) },
        ),
        ("allowance back", Input::AllowanceSeen { agent, spent_until: None }),
        ("found alive", Input::Found { agent, run: Some(run) }),
        ("found nothing", Input::Found { agent, run: None }),
        ("machine slept", Input::Slept(Duration::from_secs(60))),
    ]
}

fn word(effect: &Effect) -> String {
    match effect {
        Effect::StoreGoal { goal, .. } => format!("store goal {goal:?}").to_lowercase(),
        Effect::Spawn { run, .. } => format!("spawn run {run}"),
        Effect::Signal { ask, .. } => format!("signal {ask:?}").to_lowercase(),
        Effect::Inquire { .. } => "inquire".to_owned(),
        Effect::Forget { .. } => "forget".to_owned(),
    }
}

/// What an input does to the agent: its state then, what was told, what was ordered.
fn outcome(mut supervisor: Supervisor, id: AgentId, now: Now, input: Input) -> [String; 3] {
    let before = supervisor.sight(id);
    let mut out = Outbox::default();
    let answer = supervisor.handle(now, input, &mut out);
    let after = supervisor.sight(id);
    let state = match answer {
        Err(refusal) => format!("refused: {refusal}"),
        Ok(()) if out.stale > 0 => "stale".to_owned(),
        Ok(()) if before == after && out.records.is_empty() && out.effects.is_empty() => {
            "–".to_owned()
        }
        Ok(()) => format!("**{}**", after.state),
    };
    let told = |record: &defib_core::Record| {
        let json = serde_json::to_value(record).unwrap();
        json["type"].as_str().unwrap().to_owned()
    };
    let ours = |record: &&defib_core::Record| record.agent.as_str() == "a";
    let told: Vec<String> = out.records.iter().filter(ours).map(told).collect();
    let ordered: Vec<String> = out.effects.iter().map(word).collect();
    [state, told.join(", "), ordered.join(", ")]
}

fn table() -> String {
    let mut text = String::from(
        "# The state table\n\n\
         Generated by `DEFIB_UPDATE=1 cargo test -p defib-core --test state_table`; do not edit.\n\n\
         Every phase an agent can be in, every input there is, and what comes of the two under the \
         `default` rule set: the state after it, what is recorded, what is ordered. `–` is nothing, \
         `stale` is an input about a run that is over. The last row of each table is the passing \
         of time.\n",
    );
    for (phase, bench) in phases() {
        let id = bench.id("a");
        let run = bench.supervisor.sight(id).run.unwrap_or(RunId(1));
        let now = bench.clock();
        let _ = write!(
            text,
            "\n## {phase}\n\n| input | state | recorded | ordered |\n| --- | --- | --- | --- |\n"
        );
        for (input_name, input) in inputs(id, run, now) {
            let [state, told, ordered] = outcome(bench.supervisor.clone(), id, now, input);
            let _ = writeln!(text, "| {input_name} | {state} | {told} | {ordered} |");
        }
        let row = match bench.supervisor.next_deadline() {
            None => ["never".to_owned(), "–".to_owned(), String::new(), String::new()],
            Some(due) => {
                let span = due.since(now.mono);
                let then = Now { mono: due, wall: now.wall + span };
                let [state, told, ordered] =
                    outcome(bench.supervisor.clone(), id, then, Input::Tick);
                [format!("after {}", defib_core::span::Shown(span)), state, told, ordered]
            }
        };
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

#[test]
fn the_state_table_in_the_docs_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/generated/state-table.md");
    let table = table();
    if std::env::var_os("DEFIB_UPDATE").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == table,
        "docs/generated/state-table.md is not current: look at what changed, then run \
         `DEFIB_UPDATE=1 cargo test -p defib-core --test state_table`"
    );
}
