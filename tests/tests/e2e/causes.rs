//! What an agent died of, told from what it wrote, and what is made of that.

use defib_e2e::Bench;
use serde_json::Value;

use crate::bench;

/// An agent of a kind that is a line for the shell. Its runs are numbered from 1 in `$DEFIB_RUN`.
fn agent(name: &str, kind: &str, line: &str, settings: &str) -> String {
    format!("[agent.{name}]\ncommand = '''{line}'''\nshell = true\nkind = \"{kind}\"\n{settings}\n")
}

fn death(bench: &Bench, name: &str) -> Value {
    bench.status(name)["last_death"].clone()
}

#[test]
fn what_an_agent_says_decides_what_becomes_of_it() {
    let bench = bench();
    let result = |error: &str| {
        format!(
            r#"echo '{{"type":"result","subtype":"success","is_error":true,"result":"{error}"}}'"#
        )
    };
    let agents = [
        // Claude calls a failed turn a success.
        ("login", "claude", result("Invalid API key · Please run /login"), "halted", "auth"),
        ("credit", "claude", result("Credit balance is too low"), "halted", "billing"),
        // Codex says it in plain words.
        (
            "limit",
            "codex",
            r#"echo '{"type":"turn.failed","error":{"message":"You have hit your usage limit. Try again in 3 hours."}}'; exit 1"#.to_owned(),
            "waiting",
            "quota",
        ),
        // A status that went through an exit code: 429 modulo 256.
        ("status", "gemini", "exit 41".to_owned(), "halted", "auth"),
        // Exit code 0, and yet it has failed.
        (
            "quiet",
            "aider",
            "echo 'litellm.AuthenticationError: AuthenticationError: invalid x-api-key'".to_owned(),
            "halted",
            "auth",
        ),
        ("full", "generic", "echo 'write failed: No space left on device' >&2; exit 1".to_owned(), "", "disk"),
    ];
    let parts: Vec<String> =
        agents.iter().map(|(name, kind, line, ..)| agent(name, kind, line, "")).collect();
    let events = bench.up(&parts);
    for (name, _, _, state, class) in &agents {
        let died = events.of(name, "run-died");
        assert_eq!(died["class"], *class, "{died}");
        assert!(died["evidence"].is_string(), "{died}");
        if !state.is_empty() {
            let status = bench.await_state(name, state);
            assert_eq!(status["restarts"], 0, "{status}");
            let why = bench.defib(&["why", name]).good().out;
            assert!(why.contains(died["evidence"].as_str().unwrap()), "{why}");
        }
    }
    // There is space: what waited for it goes on at once.
    events.of("full", "wait-ended");
}

#[test]
fn a_rule_of_one_s_own_comes_first_and_an_exit_code_may_say_it_all() {
    let bench = bench();
    let rule = "[[rule]]\nmatch = \"^FATAL: licence\"\nclass = \"config\"\n";
    let events = bench.up(&[
        agent("a", "generic", "echo 'FATAL: licence expired'; exit 1", ""),
        agent("b", "generic", "exit 75", "exit_codes = { 75 = \"auth\" }"),
        rule.to_owned(),
    ]);
    assert_eq!(events.of("a", "halted")["reason"], "config");
    assert_eq!(death(&bench, "a")["evidence"], "FATAL: licence expired");
    assert_eq!(events.of("b", "halted")["reason"], "auth");
}

#[test]
fn a_session_is_taken_up_again_and_a_lost_one_begins_anew() {
    let bench = bench();
    let line = r#"echo "run $DEFIB_RUN begins anew"; echo '{"type":"system","subtype":"init","session_id":"5f2c-77"}'; exit 1"#;
    let resume = "resume = '''echo run $DEFIB_RUN takes up {session}; if [ $DEFIB_RUN = 2 ]; then \
                  exit 1; fi; echo \"No conversation found with session ID: {session}\"; exit 1'''";
    let limits = "limits = [{ deaths = 4, within = \"60s\" }]";
    let settings = format!("{resume}\n{limits}");
    let events = bench.up(&[agent("a", "claude", line, &settings)]);
    events.of("a", "crashed-out");
    let of_run = |run: &str| bench.defib(&["logs", "--run", run, "a"]).good().out;
    assert!(of_run("1").starts_with("run 1 begins anew"), "{}", of_run("1"));
    assert!(of_run("2").starts_with("run 2 takes up 5f2c-77"), "{}", of_run("2"));
    assert!(of_run("3").starts_with("run 3 takes up 5f2c-77"), "{}", of_run("3"));
    assert!(of_run("4").starts_with("run 4 begins anew"), "{}", of_run("4"));
}

#[test]
fn a_tick_starts_an_agent_and_the_next_is_shown() {
    let bench = bench();
    let events = bench.up(&[
        agent("often", "generic", "echo tick", "trigger = \"cron:* * * * * *\""),
        agent("yearly", "generic", "echo never", "trigger = \"cron:0 0 1 1 *\""),
        agent("by-hand", "generic", "sleep 1000", "trigger = \"manual\""),
    ]);
    events.of_run("often", 2, "run-died");
    let status = bench.await_status("often", |status| status["state"] == "idle");
    assert!(status["next_at"].is_string(), "{status}");
    let status = bench.status("yearly");
    assert_eq!((&status["state"], &status["run"]), (&"idle".into(), &Value::Null));
    assert!(status["next_at"].as_str().unwrap().contains("-01-0"), "{status}");
    let status = bench.status("by-hand");
    assert_eq!((&status["state"], &status["next_at"]), (&"idle".into(), &Value::Null));
    bench.defib(&["start", "by-hand"]).good();
    bench.await_state("by-hand", "running");
    // A tick does not start what a person has stopped: there is none to come.
    bench.defib(&["stop", "yearly"]).good();
    let status = bench.status("yearly");
    assert_eq!((&status["state"], &status["next_at"]), (&"stopped".into(), &Value::Null));
    bench.defib(&["start", "yearly"]).good();
    let done = |status: &Value| status["state"] == "idle" && !status["last_death"].is_null();
    let status = bench.await_status("yearly", done);
    assert!(status["next_at"].is_string(), "{status}");
}

#[test]
fn however_many_die_at_once_each_has_its_cause() {
    let bench = bench();
    let record = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"hello"}]}}"#;
    let line = format!(
        "yes '{record}' | head -n 15000; while [ ! -e go ]; do sleep 0.1; done; \
         echo 'You have hit your session limit · resets 5am (UTC)'; exit 1"
    );
    let names: Vec<String> = (1..=20).map(|number| format!("a{number}")).collect();
    let parts: Vec<String> = names.iter().map(|name| agent(name, "claude", &line, "")).collect();
    let events = bench.up(&parts);
    std::fs::write(bench.project().join("go"), "").unwrap();
    for name in &names {
        let died = events.of_run(name, 1, "run-died");
        assert_eq!(died["class"], "quota", "{died}");
    }
}
