//! What an agent does for itself, by its own token and by the real command.

use defib_e2e::{Bench, Ran, await_some, await_that, defib_path, field, is, proc};

use crate::bench;

/// A script's word that runs `defib self` from inside of the run.
fn own(words: &str) -> String {
    format!("run '{} self {words}'", defib_path().display())
}

/// `defib self`, from outside but with a token that was seen inside.
fn with_token(bench: &Bench, token: &str, words: &[&str]) -> Ran {
    let mut command = bench.command(&[&["self"], words].concat());
    command.env("DEFIB_SOCKET", bench.home().join("defib.sock")).env("DEFIB_TOKEN", token);
    Ran::to_end(command)
}

/// The token that a run printed.
fn token_in_log(bench: &Bench, agent: &str, run: usize) -> String {
    await_some("a token", || {
        let log = bench.log(agent);
        let mut tokens = log.lines().filter_map(|line| line.strip_prefix("DEFIB_TOKEN="));
        tokens.nth(run - 1).map(str::to_owned)
    })
}

/// Starts a daemon as a boot does: nobody asks for the project's agents to be up.
fn start_without_up(bench: &Bench) {
    let file = bench.file("other.toml");
    std::fs::write(&file, "[project]\nname = \"other\"\n").unwrap();
    bench.defib(&["up", "--detach", "-f", &file]).good();
    await_that("the project of before", || {
        bench.statuses().iter().any(|status| status["project"] == "p")
    });
}

#[test]
fn an_agent_says_that_it_lives_is_ready_and_what_it_does() {
    let bench = bench();
    let script =
        [own("status reviewing"), own("beat"), own("ready"), "print said forever".into()].join(" ");
    let events = bench.up(&[
        bench.agent("a", &script, "ready = \"notify\"\nheartbeat = { ttl = \"10m\" }"),
        bench.agent("b", "forever", "after = [\"a\"]"),
    ]);
    let ready = field(&events.of("a", "run-ready"), "seq");
    assert!(field(&events.of("b", "run-started"), "seq") > ready);
    let log = bench.await_log("a", |log| log.contains("said"));
    assert_eq!(log, "ran 0\nran 0\nran 0\nsaid\n");
    let status = bench.status("a");
    assert_eq!(status["status_text"], "reviewing");
    assert!(status["heartbeat_age_s"].is_number(), "{status}");
    assert!(bench.status("b")["heartbeat_age_s"].is_null());
    assert!(bench.defib(&["status"]).good().out.contains("reviewing"));
    assert!(bench.defib(&["why", "a"]).good().out.contains("It says: reviewing"));
    bench.kill_daemon();
    assert_eq!(bench.status("a")["status_text"], "reviewing", "the next daemon knows it too");
}

#[test]
fn a_token_is_good_for_its_own_living_run_and_for_nothing_else() {
    let bench = bench();
    let script = "env DEFIB_TOKEN forever";
    let events = bench.up(&[bench.agent("a", script, ""), bench.agent("b", script, "")]);
    let first = token_in_log(&bench, "a", 1);
    assert_ne!(first, token_in_log(&bench, "b", 1));
    assert_eq!(first.len(), 64);
    with_token(&bench, &first, &["status", "one"]).good();
    bench.kill_daemon();
    with_token(&bench, &first, &["status", "two"]).good();
    assert_eq!(bench.status("a")["status_text"], "two");
    assert!(bench.status("b")["status_text"].is_null());
    proc::kill(bench.pid("a"), "KILL");
    events.of_run("a", 2, "run-ready");
    let refused = with_token(&bench, &first, &["shutdown"]).bad(1);
    assert!(refused.err.contains("no living run"), "{refused:?}");
    with_token(&bench, "", &["beat"]).bad(2);
    with_token(&bench, "guessed", &["beat"]).bad(1);
    assert_eq!(bench.status("a")["state"], "running");
    assert!(bench.status("a")["status_text"].is_null(), "what the last run said is over");
    let second = token_in_log(&bench, "a", 2);
    with_token(&bench, &second, &["beat"]).good();
}

#[test]
fn outside_of_an_agent_it_says_what_it_is_for() {
    let bench = bench();
    let refused = bench.defib(&["self", "beat"]).bad(2);
    assert!(refused.err.contains("for an agent"), "{refused:?}");
    let help = bench.defib(&["self", "--help"]).good();
    assert!(help.out.contains("defib self shutdown --reason"), "{help:?}");
}

#[test]
fn who_asks_for_its_own_shutdown_stays_down_even_under_always() {
    let bench = bench();
    let script = format!("{} exit 1", own("shutdown --reason finished"));
    let events = bench.up(&[bench.agent("a", &script, "restart = \"always\"")]);
    let died = events.of("a", "run-died");
    assert_eq!(died["class"], "voluntary", "{died}");
    assert!(died["evidence"].as_str().unwrap().contains("finished"), "{died}");
    events.of("a", "rested");
    bench.kill_daemon();
    assert_eq!(bench.status("a")["state"], "done");
    bench.kill_both();
    start_without_up(&bench);
    assert_eq!(bench.status("a")["state"], "done");
    assert_eq!(bench.history("a").len(), 1, "{}", bench.account());
}

#[test]
fn a_wish_to_end_outlives_the_daemon_and_the_machine() {
    let bench = bench();
    let go = bench.file("go");
    let script = format!("{} print wished await {go} exit 1", own("shutdown"));
    let slow = "restart = \"always\"\nstop_timeout = \"10m\"";
    let parts = [bench.agent("a", &script, slow), bench.agent("b", &script, slow)];
    let events = bench.up(&parts);
    for name in ["a", "b"] {
        bench.await_log(name, |log| log.contains("wished"));
    }
    let before = bench.pid("a");
    // As after a reboot: both are gone, and their agents with them.
    bench.kill_both();
    proc::await_gone(before);
    start_without_up(&bench);
    for name in ["a", "b"] {
        assert_eq!(bench.status(name)["state"], "done", "{}", bench.account());
        assert_eq!(bench.history(name)[0]["death"]["class"], "voluntary");
    }
    drop(events);
    // And a daemon's death between the wish and the end.
    bench.defib(&["start", "a"]).good();
    bench.await_log("a", |log| log.matches("wished").count() == 2);
    bench.kill_daemon();
    std::fs::write(&go, "").unwrap();
    bench.await_state("a", "done");
    let runs = bench.history("a");
    assert_eq!((runs.len(), &runs[1]["death"]["class"]), (2, &"voluntary".into()));
}

#[test]
fn a_wish_that_is_not_acted_on_is_carried_out_for_the_agent() {
    let bench = bench();
    let script = format!("{} forever", own("shutdown"));
    let events = bench.up(&[bench.agent("a", &script, "restart = \"always\"")]);
    assert_eq!(events.of("a", "run-died")["class"], "voluntary");
    assert_eq!(events.of("a", "stop-requested")["by"], "agent");
    assert_eq!(bench.await_state("a", "done")["run"], 1);
}

#[test]
fn a_dumb_death_keeps_what_the_agent_remembers_and_a_beat_forgives_its_errors() {
    let bench = bench();
    let command = "echo $DEFIB_RUN >> $DEFIB_STATE_DIR/memory; \
                   test $DEFIB_RUN = 3 && touch $DEFIB_HEARTBEAT_FILE; \
                   test $DEFIB_RUN = 4 && exec sleep 3600; exit 1";
    bench.config(&format!(
        "[agent.a]\npreset = \"ecology\"\nshell = true\ncommand = \"{command}\"\n\
         backoff = {{ kind = \"none\" }}\nstop_timeout = \"1s\"\n"
    ));
    bench.defib(&["up", "--detach"]).good();
    let events = bench.events();
    events.of_run("a", 4, "run-ready");
    let failures: Vec<u64> = (1..=3)
        .map(|run| field(&events.of_run("a", run, "run-died"), "consecutive_failures"))
        .collect();
    assert_eq!(failures, [1, 2, 1], "the beat of the third run made its death the first again");
    let memory = bench.home().join("state/a/memory");
    await_some("four runs", || {
        let text = std::fs::read_to_string(&memory).ok()?;
        (text == "1\n2\n3\n4\n").then_some(())
    });
    events.find("no more", |events| {
        let deaths = events.iter().filter(|event| is(event, "a", "run-died")).count();
        (deaths == 3).then_some(())
    });
}
