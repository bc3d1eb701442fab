//! What an agent died of, told from what it wrote, and what is made of that.

use defib_e2e::{Bench, MovedClock, field};
use serde_json::Value;

use crate::bench;

const HOUR: i64 = 3600;

/// An agent of a kind that is a line for the shell. Its runs are numbered from 1 in `$DEFIB_RUN`.
fn agent(name: &str, kind: &str, line: &str, settings: &str) -> String {
    format!("[agent.{name}]\ncommand = '''{line}'''\nshell = true\nkind = \"{kind}\"\n{settings}\n")
}

fn right_now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
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
fn a_limit_at_night_is_waited_for_and_one_is_tried_first() {
    let bench = bench();
    let clock = MovedClock::start(&bench);
    let reset = right_now() + 3 * HOUR;
    let line = format!(
        "if [ $DEFIB_RUN = 1 ]; then echo \"Claude AI usage limit reached|{reset}\"; exit 1; fi; \
         [ -e talk ] && echo working; while [ ! -e talk ]; do sleep 0.1; done; echo working; exec sleep 1000"
    );
    let account = "account = \"main\"";
    let names = ["a", "b", "c"];
    let events = bench.up(&names.map(|name| agent(name, "claude", &line, account)));
    for name in names {
        let died = events.of_run(name, 1, "run-died");
        assert_eq!((&died["class"], &died["counted"]), (&"quota".into(), &false.into()), "{died}");
        let status = bench.await_state(name, "waiting");
        assert_eq!(status["reason"], "quota");
        assert_eq!((field(&status, "restarts"), field(&status, "consecutive_failures")), (0, 0));
    }
    // Two hours later nothing has happened, and nobody was tried.
    clock.set(2 * HOUR);
    for name in names {
        assert_eq!(bench.status(name)["state"], "waiting");
        assert_eq!(field(&bench.status(name), "run"), 1);
    }
    // Past the reset and its pause, one is tried, and the others wait for what becomes of it.
    clock.set(3 * HOUR + 180);
    bench.status("a");
    let states = || names.map(|name| bench.status(name)["state"].as_str().unwrap().to_owned());
    events.find("one that is tried", |all| {
        let second = |event: &&Value| event["type"] == "run-ready" && event["run"] == 2;
        all.iter().find(second).map(|event| event["agent"].clone())
    });
    assert_eq!(states().iter().filter(|state| *state == "waiting").count(), 2, "{:?}", states());
    std::fs::write(bench.project().join("talk"), "").unwrap();
    for name in names {
        events.of_run(name, 2, "run-ready");
        let status = bench.status(name);
        assert_eq!((field(&status, "restarts"), field(&status, "consecutive_failures")), (0, 0));
    }
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
}

#[test]
fn a_run_that_wants_too_much_memory_dies_of_that_and_is_restarted() {
    let bench = bench();
    // It takes a little more each time, until it may not.
    let line = "python3 -c 'x = []\nwhile True: x.append(bytearray(1 << 20))'";
    let settings = "limits_os = { memory = \"64M\" }\nlimits = [{ deaths = 2, within = \"60s\" }]";
    let events = bench.up(&[agent("a", "generic", line, settings)]);
    let died = events.of_run("a", 1, "run-died");
    if died["class"] != "oom" && !std::path::Path::new("/sys/fs/cgroup/memory").exists() {
        return; // No tree here has the controller.
    }
    assert_eq!((&died["class"], &died["counted"]), (&"oom".into(), &true.into()), "{died}");
    events.of("a", "crashed-out");
}

#[test]
fn no_network_is_no_crash_and_a_wrong_option_is_for_a_person() {
    let bench = bench();
    let events = bench.up(&[
        agent("far", "claude", "echo 'API Error: Connection error.'; exit 1", ""),
        agent("typo", "claude", "echo \"error: unknown option '--modell'\"; exit 1", ""),
        agent("absent", "generic", "exec /no/such/program", ""),
    ]);
    let died = events.of("far", "run-died");
    assert_eq!((&died["class"], &died["counted"]), (&"network".into(), &false.into()), "{died}");
    let delay = field(&events.of("far", "restart-scheduled"), "delay_ms");
    assert!((4500..=5500).contains(&delay), "the world's own backoff: {delay}");
    assert_eq!(events.of("typo", "halted")["reason"], "config");
    assert_eq!(events.of("absent", "run-died")["exit_code"], 127);
}
