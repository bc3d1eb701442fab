//! Money: who has none left is not started again, who spends too much is ended, and nothing of what
//! was given or spent is lost or counted twice, whoever dies.

#![allow(clippy::float_cmp, reason = "amounts are exact to the millionth")]

use defib_e2e::{Bench, await_that, field, is};
use serde_json::{Value, json};

use crate::bench;

/// A line that ends a turn of claude: of this session, with this cost and so many tokens.
fn result(session: &str, usd: f64, tokens: u64) -> String {
    let usage = json!({ "input_tokens": tokens, "output_tokens": 0 });
    json!({ "type": "result", "session_id": session, "total_cost_usd": usd, "usage": usage })
        .to_string()
}

fn print(line: &str) -> String {
    format!("print '{line}'")
}

fn budget(name: &str, settings: &str) -> String {
    format!("[agent.{name}.budget]\n{settings}\n")
}

fn balance(bench: &Bench, name: &str, unit: &str) -> f64 {
    bench.status(name)["balance"][unit].as_f64().unwrap_or(f64::NAN)
}

fn lines(bench: &Bench, name: &str) -> Vec<Value> {
    let told = bench.insist(&["ledger", name, "--json"]).good().json();
    told.as_array().expect("an array").clone()
}

/// Goal: a job that finished is not paid for again when its budget is raised. Method: the job bills a
/// counter file and prints a final record that exceeds the budget.
#[test]
fn finished_job_rests_as_done_although_its_budget_is_spent() {
    for bound in ["per_day", "per_run"] {
        let bench = bench();
        let bill = bench.file("bill");
        let record = json!({ "type": "result", "subtype": "success", "is_error": false,
            "session_id": "s", "total_cost_usd": 9.0, "usage": { "input_tokens": 10 } });
        let script = format!("count {bill} {} exit 0", print(&record.to_string()));
        let agent = bench.agent("job", &script, "kind = \"claude\"");
        let events = bench.up(&[agent.clone(), budget("job", &format!("{bound} = {{ usd = 8 }}"))]);
        assert_eq!(events.of("job", "run-died")["class"], "done", "{bound}");
        bench.await_state("job", "done");
        bench.declare(&[agent, budget("job", &format!("{bound} = {{ usd = 100 }}"))]);
        bench.defib(&["reload"]).good();
        bench.await_status("job", |status| status["spent"]["usd"] == 9.0);
        assert_eq!(bench.status("job")["state"], "done", "{bound}");
        let billed = std::fs::read_to_string(&bill).unwrap();
        assert_eq!(billed.lines().count(), 1, "{bound}: {billed}");
    }
}

/// The run of each line that says that tokens were spent.
fn runs_that_spent_tokens(bench: &Bench, name: &str) -> Vec<u64> {
    let all = lines(bench, name);
    let tokens = all.iter().filter(|line| line["unit"] == "tokens");
    tokens.map(|line| field(line, "run")).collect()
}

#[test]
fn who_is_broke_stays_down_under_always_until_it_is_funded() {
    let bench = bench();
    let go = bench.file("go");
    let script = format!("{} await {go} exit 0", print(&result("s", 0.75, 10)));
    let agent = bench.agent("a", &script, "kind = \"claude\"\nrestart = \"always\"");
    let events = bench.up(&[agent, budget("a", "balance = { usd = 0.5 }")]);
    bench.await_status("a", |status| status["balance"]["usd"] == -0.25);
    let status = bench.status("a");
    assert_eq!(status["state"], "running", "an empty purse ends no run");
    assert_eq!(status["spent"], json!({ "tokens": 10.0, "usd": 0.75 }));
    std::fs::write(&go, "").unwrap();
    assert_eq!(events.of("a", "run-died")["class"], "broke");
    bench.await_state("a", "halted");
    let why = bench.defib(&["why", "a"]).good().out;
    assert!(why.contains("-0.25 usd") && why.contains("defib fund a 10 usd"), "{why}");
    bench.defib(&["start", "a"]).bad(6);
    bench.defib(&["revive", "a"]).bad(6);
    for bad in ["0", "-1", "NaN", "inf", "1e-9"] {
        assert_ne!(bench.defib(&["fund", "a", bad, "usd"]).code, 0, "{bad}");
    }
    bench.defib(&["fund", "a", "0.25", "usd"]).good();
    assert_eq!(bench.status("a")["state"], "halted", "nothing is not above nothing");
    std::fs::remove_file(&go).unwrap();
    bench.defib(&["fund", "a", "5", "usd"]).good();
    bench.await_status("a", |status| status["state"] == "running" && status["run"] == 2);
    assert_eq!(events.of_run("a", 2, "run-started")["cause"], "fund");
}

#[test]
fn who_spends_its_last_with_its_last_word_is_not_started_again() {
    let bench = bench();
    let script = format!("{} exit 1", print(&result("s", 2.0, 10)));
    let agent = bench.agent("a", &script, "kind = \"claude\"\nlimits = []");
    let events = bench.up(&[agent, budget("a", "balance = { usd = 2 }")]);
    events.of("a", "halted");
    assert_eq!(bench.status("a")["reason"], "broke");
    assert_eq!(bench.history("a").len(), 1);
}

#[test]
fn a_run_that_spends_more_than_it_may_ends_as_budget() {
    let bench = bench();
    let steps: Vec<String> = (1..=50)
        .map(|step| {
            let usage = json!({ "input_tokens": 900, "output_tokens": 100 });
            let message = json!({ "id": format!("m{step}"), "usage": usage });
            print(&json!({ "type": "assistant", "message": message }).to_string())
        })
        .collect();
    let script = format!("{} forever", steps.join(" sleep 5 "));
    let agent = bench.agent("a", &script, "kind = \"claude\"\nrestart = \"always\"");
    let events = bench.up(&[agent, budget("a", "per_run = { tokens = 20_000 }")]);
    let death = events.of("a", "run-died");
    assert_eq!((&death["class"], &death["verdict"]), (&json!("budget"), &json!("halt")));
    let evidence = death["evidence"].as_str().unwrap_or_default();
    assert!(evidence.contains("of the 20000 tokens that a run may"), "{evidence}");
    let status = bench.await_state("a", "halted");
    assert_eq!(status["reason"], "budget");
    assert_eq!(bench.history("a").len(), 1);
}

#[test]
fn who_has_spent_its_day_waits_for_midnight_whoever_starts_it() {
    let bench = bench();
    let script = format!("{} forever", print(&result("s", 1.5, 10)));
    let agent = bench.agent("a", &script, "kind = \"claude\"");
    let parts = |most: u32| [agent.clone(), budget("a", &format!("per_day = {{ usd = {most} }}"))];
    let events = bench.up(&parts(1));
    let death = events.of("a", "run-died");
    assert_eq!((&death["class"], &death["verdict"]), (&json!("budget"), &json!("wait")));
    let status = bench.await_state("a", "waiting");
    assert_eq!(status["reason"], "budget");
    assert!(status["next_at"].is_string(), "{status}");
    bench.kill_daemon();
    bench.insist(&["start", "a"]).good();
    let status = bench.status("a");
    assert_eq!((&status["state"], &status["run"]), (&json!("waiting"), &json!(1)));
    bench.declare(&parts(9));
    bench.insist(&["reload"]).good();
    bench.await_status("a", |status| status["state"] == "running" && status["run"] == 2);
}

#[test]
fn balances_survive_every_death_and_the_opening_is_given_once() {
    let bench = bench();
    let agent = bench.agent("a", "forever", "");
    bench.up(&[agent, budget("a", "balance = { scrip = 100 }")]);
    await_that("the opening balance", || balance(&bench, "a", "scrip") == 100.0);
    bench.defib(&["fund", "a", "10.5", "scrip"]).good();
    bench.kill_daemon();
    assert_eq!(balance(&bench, "a", "scrip"), 110.5);
    bench.insist(&["fund", "a", "1", "usd"]).good();
    bench.kill_both();
    bench.defib(&["up", "--detach"]).good();
    assert_eq!(balance(&bench, "a", "scrip"), 110.5);
    assert_eq!(balance(&bench, "a", "usd"), 1.0);
    let lines = lines(&bench, "a");
    let told: Vec<(&str, f64, f64)> = lines
        .iter()
        .map(|line| {
            let number = |field: &str| line[field].as_f64().unwrap_or(f64::NAN);
            (line["what"].as_str().unwrap_or_default(), number("amount"), number("balance"))
        })
        .collect();
    let expected = [("opening", 100.0, 100.0), ("funded", 10.5, 110.5), ("funded", 1.0, 1.0)];
    assert_eq!(told, expected);
}

#[test]
fn spending_is_neither_lost_nor_counted_twice_when_the_daemon_dies() {
    let bench = bench();
    let files: Vec<String> = (0..4).map(|round| bench.file(&format!("go{round}"))).collect();
    let rounds: Vec<String> = files
        .iter()
        .zip(1..)
        .map(|(file, round)| {
            format!("await {file} {}", print(&result(&format!("s{round}"), 1.0, 100)))
        })
        .collect();
    let script = format!("{} forever", rounds.join(" "));
    let agent = bench.agent("a", &script, "kind = \"claude\"");
    bench.up(&[agent, budget("a", "balance = { usd = 50, tokens = 1000 }")]);
    for (file, round) in files.iter().zip(1..) {
        let (_, daemon) = bench.who();
        if round == 3 {
            // This is written while nobody looks.
            defib_e2e::proc::kill(daemon, "STOP");
        }
        std::fs::write(file, "").unwrap();
        if round != 3 {
            let spent = f64::from(round);
            bench.await_status("a", |status| status["spent"]["usd"] == spent);
        }
        defib_e2e::proc::kill(daemon, "KILL");
        bench.successor_of(daemon);
        let spent = f64::from(round);
        bench.await_status("a", |status| status["spent"]["usd"] == spent);
        assert_eq!(balance(&bench, "a", "usd"), 50.0 - spent, "round {round}");
        assert_eq!(balance(&bench, "a", "tokens"), 1000.0 - 100.0 * spent, "round {round}");
    }
    assert_eq!(bench.status("a")["run"], 1);
    let spent = lines(&bench, "a");
    let usd: f64 = spent
        .iter()
        .filter(|line| line["what"] == "spent" && line["unit"] == "usd")
        .filter_map(|line| line["amount"].as_f64())
        .sum();
    assert_eq!(usd, -4.0, "{spent:#?}");
}

#[test]
fn every_kind_is_read_and_restarts_are_told_apart() {
    let bench = bench();
    let lives = bench.file("lives");
    let codex =
        json!({ "type": "turn.completed", "usage": { "input_tokens": 30, "output_tokens": 4 } });
    let gemini = json!({ "type": "result", "stats": { "total_tokens": 55 } });
    let aider = "Tokens: 1.2k sent, 300 received. Cost: $0.02 message, $0.05 session.";
    let twice = |line: &str| format!("{} fail-until 2 {lives} forever", print(line));
    bench.up(&[
        bench.agent("codex", &twice(&codex.to_string()), "kind = \"codex\"\nrestart = \"always\""),
        bench.agent(
            "gemini",
            &format!("{} forever", print(&gemini.to_string())),
            "kind = \"gemini\"",
        ),
        bench.agent("aider", &format!("{} forever", print(aider)), "kind = \"aider\""),
        bench.agent("plain", &format!("{} forever", print(aider)), "kind = \"generic\""),
    ]);
    bench.await_status("codex", |status| status["spent"]["tokens"] == 68.0);
    bench.await_status("gemini", |status| status["spent"]["tokens"] == 55.0);
    let status = bench.await_status("aider", |status| status["spent"]["usd"] == 0.05);
    assert_eq!(status["spent"]["tokens"], 1500.0);
    bench.await_log("plain", |log| log.contains("Tokens"));
    assert_eq!(bench.status("plain")["spent"], Value::Null);
    assert_eq!(runs_that_spent_tokens(&bench, "codex"), [1, 2]);
}

#[test]
fn a_session_that_is_taken_up_again_is_paid_for_once() {
    let bench = bench();
    // A thread of codex goes on counting; what claude tells of a session begins with each process.
    let codex = r#"echo '{"type":"thread.started","thread_id":"t-1"}'; echo '{"type":"turn.completed","usage":{"input_tokens":'$((DEFIB_RUN * 100))',"output_tokens":0}}'"#;
    let claude = r#"echo '{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"s-1","total_cost_usd":0.5,"usage":{"input_tokens":100}}'"#;
    let agent = |name: &str, line: &str| {
        format!(
            "[agent.{name}]\nkind = \"{name}\"\nshell = true\n\
             command = '''{line}; exit 1'''\nresume = '''{line}; sleep 1000 # {{session}}'''\n"
        )
    };
    let events = bench.up(&[agent("codex", codex), agent("claude", claude)]);
    // Exit 1 after a turn that went well is not well.
    let died = events.of_run("codex", 1, "run-died");
    assert_eq!((&died["class"], &died["exit_code"]), (&json!("error"), &json!(1)), "{died}");
    bench.await_status("codex", |status| status["spent"]["tokens"] == 200.0);
    bench
        .await_status("claude", |status| status["spent"] == json!({ "tokens": 200.0, "usd": 1.0 }));
    // The next daemon reads the second run from its first line on.
    bench.kill_daemon();
    bench.defib(&["stop", "codex"]).good();
    assert_eq!(bench.status("codex")["spent"]["tokens"], 200.0);
    assert_eq!(runs_that_spent_tokens(&bench, "codex"), [1, 2]);
}

#[test]
fn what_comes_over_telemetry_counts_for_the_run_that_sent_it_and_spent_is_told_once_a_second() {
    let bench = bench();
    let script = "env OTEL_EXPORTER_OTLP_ENDPOINT env OTEL_EXPORTER_OTLP_HEADERS forever";
    let events = bench.up(&[
        bench.agent("a", script, ""),
        budget("a", "per_run = { tokens = 1000 }\nunmetered = \"allow\""),
        bench.agent("b", script, "env = { OTEL_EXPORTER_OTLP_ENDPOINT = \"http://own\" }"),
        budget("b", "per_run = { tokens = 1000 }\nunmetered = \"allow\""),
    ]);
    let log = bench.await_log("b", |log| log.contains("HEADERS"));
    assert_eq!(log, "OTEL_EXPORTER_OTLP_ENDPOINT=http://own\nOTEL_EXPORTER_OTLP_HEADERS unset\n");
    let log = bench.await_log("a", |log| log.contains("HEADERS"));
    let value = |name: &str| {
        let line = log.lines().find_map(|line| line.strip_prefix(&format!("{name}="))).unwrap();
        line.to_owned()
    };
    let address = value("OTEL_EXPORTER_OTLP_ENDPOINT").replace("http://", "");
    let header = value("OTEL_EXPORTER_OTLP_HEADERS").replacen('=', ": ", 1).replace("%20", " ");
    let send = |at: u64, header: &str| {
        let point = json!({ "asInt": "10", "timeUnixNano": at.to_string() });
        let sum = json!({ "aggregationTemporality": 1, "dataPoints": [point] });
        let metric = json!({ "name": "claude_code.token.usage", "sum": sum });
        let scope = json!({ "metrics": [metric] });
        let body = json!({ "resourceMetrics": [{ "scopeMetrics": [scope] }] }).to_string();
        post(&address, header, &body)
    };
    assert!(send(1, "authorization: Bearer 00").contains(" 401 "));
    for at in 1..=40 {
        assert!(send(at, &header).contains(" 200 "));
    }
    let told = |most: f64| {
        events.find("what was spent", |events| {
            let spent: Vec<&Value> =
                events.iter().filter(|event| is(event, "a", "spent")).collect();
            let sum: f64 = spent.iter().filter_map(|e| e["amounts"]["tokens"].as_f64()).sum();
            assert!(sum <= most, "{spent:?}");
            (sum == most).then_some(spent.len())
        })
    };
    let times = told(400.0);
    assert!(times < 40, "told {times} times");
    bench.kill_daemon();
    assert!(send(41, &header).contains(" 200 "), "the next daemon listens where agents know it");
    bench.await_status("a", |status| status["spent"]["tokens"] == 410.0);
    told(410.0);
}

/// Posts JSON and gives the answer's first line.
pub(crate) fn post(address: &str, header: &str, body: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST /v1/metrics HTTP/1.1\r\nhost: {address}\r\n{header}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn an_agent_spends_by_itself_and_is_vetoed_when_it_is_broke() {
    let bench = bench();
    let defib = defib_e2e::defib_path().display().to_string();
    let line = format!("{defib} self spend 4 scrip && sleep 0.2; exit 1");
    let agent = format!(
        "[agent.a]\ncommand = '''{line}'''\nshell = true\nlimits = []\nrestart = \"always\"\n\
         backoff = {{ kind = \"none\" }}\n[agent.a.budget]\nbalance = {{ scrip = 10 }}\n"
    );
    let events = bench.up(&[agent]);
    let halted = events.of("a", "halted");
    assert_eq!(halted["reason"], "broke");
    let status = bench.status("a");
    assert_eq!(field(&status, "run"), 3, "10 scrip are three runs of 4: {status}");
    assert_eq!(status["balance"]["scrip"], -2.0);
    bench.defib(&["fund", "a", "3", "scrip"]).good();
    events.of_run("a", 4, "run-ready");
}
