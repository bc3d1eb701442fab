//! `WeftOS`: what one member's death does to the others, by its own strategy.

use defib_core::{State, What};

use crate::FAKE_AGENT;
use crate::bench::{Bench, ms, name, secs};
use crate::stage::{clean, config, supervise};

/// Four agents, each with its strategy.
fn fleet(strategies: [&str; 4]) -> Bench {
    let mut text = String::new();
    for (who, strategy) in ["a", "b", "c", "d"].into_iter().zip(strategies) {
        text +=
            &format!("[[agent]]\nname = \"{who}\"\ncommand = \"x\"\nstrategy = \"{strategy}\"\n");
    }
    supervise(&config("weave.toml", &text))
}

fn runs(bench: &Bench) -> [usize; 4] {
    ["a", "b", "c", "d"].map(|who| bench.runs(who))
}

#[test]
fn c004_21_one_for_one_restarts_only_the_failed_child() {
    let mut bench = fleet(["OneForOne"; 4]);
    bench.exit("b", 1);
    bench.pass(ms(100));
    assert_eq!(runs(&bench), [1, 2, 1, 1]);
}

#[test]
fn c004_22_one_for_all_restarts_all_children() {
    let mut bench = fleet(["OneForAll"; 4]);
    let from = bench.log.len();
    bench.exit("b", 1);
    let died = bench.order(from, |what| matches!(what, What::RunDied { .. }));
    assert_eq!(died, ["b", "d", "c", "a"], "stopped in reverse");
    bench.pass(ms(100));
    assert_eq!(runs(&bench), [2; 4]);
    let started = bench.order(from, |what| matches!(what, What::RunStarted { .. }));
    assert_eq!(started, ["a", "b", "c", "d"]);
}

#[test]
fn c004_23_rest_for_one_restarts_the_failed_child_and_those_after_it() {
    let mut bench = fleet(["RestForOne"; 4]);
    let from = bench.log.len();
    bench.exit("b", 1);
    bench.pass(ms(100));
    assert_eq!(runs(&bench), [1, 2, 2, 2], "upstream is left alone");
    let started = bench.order(from, |what| matches!(what, What::RunStarted { .. }));
    assert_eq!(started, ["b", "c", "d"]);
}

#[test]
fn c004_24_the_strategy_is_the_dead_members_own() {
    let mut bench = fleet(["OneForAll", "OneForOne", "RestForOne", "OneForOne"]);
    bench.exit("b", 1);
    bench.pass(ms(100));
    assert_eq!(runs(&bench), [1, 2, 1, 1]);
    bench.exit("c", 1);
    bench.pass(ms(100));
    assert_eq!(runs(&bench), [1, 2, 2, 2]);
    bench.exit("a", 1);
    bench.pass(ms(100));
    assert_eq!(runs(&bench), [2, 3, 3, 3]);
}

#[test]
fn c004_25_members_that_are_restarted_along_are_charged_nothing() {
    let mut bench = fleet(["OneForAll", "OneForOne", "OneForOne", "OneForOne"]);
    for _ in 0..3 {
        bench.exit("a", 1);
        bench.pass(secs(1));
    }
    for who in ["b", "c", "d"] {
        assert_eq!(bench.supervisor.sight(bench.id(who)).restarts, 0, "{who}");
    }
    assert_eq!(bench.crash_loop("b", 100).len(), 5, "its budget is whole");
}

#[test]
fn c004_26_every_agent_has_a_budget_of_its_own() {
    let mut bench = fleet(["OneForOne"; 4]);
    for who in ["a", "b", "c", "d"] {
        assert_eq!(bench.crash_loop(who, 4).len(), 5, "{who}");
        assert_eq!(bench.state(who), State::Running);
    }
}

#[test]
fn c004_27_escalation_stops_the_supervisor_itself() {
    let mut bench = fleet(["OneForOne"; 4]);
    bench.crash_loop("b", 100);
    for who in ["a", "b", "c", "d"] {
        assert_eq!(bench.state(who), State::CrashedOut, "{who}");
    }
    let escalated = bench.told("b").any(|what| {
        matches!(what, What::Escalated { group, to: None } if *group == Some(name("supervisor")))
    });
    assert!(escalated, "its parent hears of it: the root");
}

#[test]
fn c004_28_escalation_reaches_nobody_outside() {
    let mut config = clean("weave.toml", "[[agent]]\nname = \"a\"\ncommand = \"x\"\n");
    let other = clean("defib.toml", "[agent.outside]\ncommand = \"x\"\n");
    config.agents.extend(other.agents);
    let mut bench = supervise(&config);
    bench.crash_loop("a", 100);
    assert_eq!((bench.state("a"), bench.state("outside")), (State::CrashedOut, State::Running));
}

#[test]
fn c004_29_a_transient_member_that_is_done_is_not_restarted_along() {
    let mut bench = fleet(["OneForAll", "Transient", "OneForOne", "Permanent"]);
    bench.exit("b", 0);
    bench.exit("d", 1);
    bench.exit("a", 1);
    bench.pass(ms(100));
    assert_eq!(runs(&bench), [2, 1, 2, 1]);
}

#[test]
fn c004_30_the_guides_pipeline_runs_as_real_processes() {
    let bench = defib_e2e::bench(FAKE_AGENT);
    let go = bench.file("go");
    let enrich = serde_json::json!([
        FAKE_AGENT,
        "await",
        go,
        "fail-until",
        "2",
        bench.file("tries"),
        "forever"
    ]);
    let stay = serde_json::json!([FAKE_AGENT, "forever"]);
    let text = format!(
        "[supervisor]\ndefault_strategy = \"RestForOne\"\n[[agent]]\nname = \"ingest\"\ncommand = {stay}\n\
         [[agent]]\nname = \"enrich\"\ncommand = {enrich}\n[[agent]]\nname = \"publish\"\ncommand = {stay}\n"
    );
    std::fs::write(bench.project().join("weave.toml"), text).unwrap();
    bench.defib(&["up", "-f", "weave.toml", "--detach"]).good();
    let (ingest, publish) = (bench.pid("ingest"), bench.pid("publish"));
    std::fs::write(&go, "").unwrap();
    for who in ["enrich", "publish"] {
        bench.await_status(who, |status| status["run"] == 2 && status["state"] == "running");
    }
    assert_eq!(bench.pid("ingest"), ingest, "upstream is left alone");
    assert_ne!(bench.pid("publish"), publish);
    assert_eq!(bench.status("publish")["last_death"]["class"], "group");
}

#[test]
fn c004_31_an_exhausted_budget_takes_real_processes_down_and_says_so() {
    let bench = defib_e2e::bench(FAKE_AGENT);
    let (fail, stay) =
        (serde_json::json!([FAKE_AGENT, "exit", "1"]), serde_json::json!([FAKE_AGENT, "forever"]));
    let text = format!(
        "[supervisor]\nmax_restarts = 2\n[[agent]]\nname = \"bad\"\ncommand = {fail}\n[[agent]]\nname = \"good\"\ncommand = {stay}\n"
    );
    std::fs::write(bench.project().join("weave.toml"), text).unwrap();
    bench.defib(&["up", "-f", "weave.toml", "--detach"]).good();
    let events = bench.events();
    assert_eq!(events.of("bad", "escalated")["group"], "supervisor");
    let good = bench.await_state("good", "crashed-out");
    assert!(good["pid"].is_null(), "{good}");
    assert_eq!(bench.await_state("bad", "crashed-out")["restarts"], 2);
}

#[test]
fn c004_39_the_documents_file_passes_the_check_as_written() {
    let bench = defib_e2e::bench(FAKE_AGENT);
    std::fs::write(bench.project().join("weave.toml"), include_str!("data/weave.toml")).unwrap();
    let checked = bench.defib(&["check", "-f", "weave.toml"]).good();
    assert!(checked.err.contains("no agent is declared"), "{}", checked.err);
    assert_eq!(checked.err.matches("warning:").count(), 1, "and nothing else: {}", checked.err);
}

#[test]
fn c004_40_every_strategy_restarts_the_real_processes_that_it_says() {
    for (strategy, code, runs) in [
        ("OneForOne", "0", [1, 2, 1]),
        ("OneForAll", "1", [2, 2, 2]),
        ("RestForOne", "1", [1, 2, 2]),
        ("Permanent", "1", [1, 1, 1]),
        ("Transient", "0", [1, 1, 1]),
        ("Transient", "1", [1, 2, 1]),
    ] {
        let bench = defib_e2e::bench(FAKE_AGENT);
        let ends = bench.file("ends");
        // It ends once: what it is told to end by is gone then.
        let line = format!("while ! rm {ends} 2>/dev/null; do sleep 0.05; done; exit {code}");
        let stay = serde_json::json!([FAKE_AGENT, "forever"]);
        let text = format!(
            "[[agent]]\nname = \"a\"\ncommand = {stay}\n[[agent]]\nname = \"b\"\nstrategy = \"{strategy}\"\n\
             shell = true\ncommand = {}\n[[agent]]\nname = \"c\"\ncommand = {stay}\n",
            serde_json::json!(line)
        );
        std::fs::write(bench.project().join("weave.toml"), text).unwrap();
        bench.defib(&["up", "-f", "weave.toml", "--detach"]).good();
        let events = bench.events();
        std::fs::write(&ends, "").unwrap();
        events.of_run("b", 1, "run-died");
        for (who, runs) in ["a", "b", "c"].into_iter().zip(runs) {
            let is_over = who == "b" && runs == 1;
            bench.await_status(who, |status| {
                status["run"] == runs && (status["state"] == "running") != is_over
            });
        }
    }
}
