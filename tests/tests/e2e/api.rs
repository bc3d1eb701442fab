//! The HTTP API: what it describes, refuses, pages through and streams.

use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use defib_e2e::{Bench, DEADLINE, await_some, field, proc};
use serde_json::{Value, json};

use crate::bench;

const JSON: &str = "content-type: application/json";

fn post(bench: &Bench, path: &str, body: &Value) -> defib_e2e::Answer {
    bench.ask("POST", path, &[JSON], &body.to_string())
}

#[test]
fn what_makes_no_sense_is_refused_in_json() {
    let bench = bench();
    let pair = "[group.pair]\nmembers = [\"a\", \"b\"]\n".to_owned();
    bench.up(&[bench.agent("a", "forever", ""), bench.agent("b", "forever", ""), pair]);
    for (method, path, body, status, code) in [
        ("GET", "/api/v1/nothing", "", 404, "not-found"),
        ("PUT", "/api/v1/agents", "", 405, "not-allowed"),
        ("GET", "/api/v1/agents/nobody", "", 404, "no-such-agent"),
        ("GET", "/api/v1/agents/%ff", "", 400, "bad-request"),
        ("GET", "/api/v1/agents/a%00b/why", "", 404, "no-such-agent"),
        ("GET", "/api/v1/agents?limit=0", "", 400, "bad-request"),
        ("GET", "/api/v1/history?limit=4294967295", "", 400, "bad-request"),
        ("GET", "/api/v1/history?limit=-1", "", 400, "bad-request"),
        ("GET", "/api/v1/history?since_ms=-5", "", 400, "bad-request"),
        ("GET", "/api/v1/history?agent=%2e%2e", "", 400, "bad-request"),
        ("GET", "/api/v1/lifelines?since=-1h", "", 400, "bad-request"),
        ("GET", "/api/v1/lifelines?since=1m&until=1h", "", 400, "bad-request"),
        ("GET", "/api/v1/agents/a/runs/x/tail", "", 400, "bad-request"),
        ("GET", "/api/v1/agents/a/terminal", "", 409, "not-in-state"),
        // One of its members' would be taken for that of all.
        ("GET", "/api/v1/agents/pair/terminal", "", 400, "bad-request"),
        ("GET", "/api/v1/agents/pair/logs", "", 400, "bad-request"),
        ("GET", "/api/v1/agents/a/ledger?limit=0", "", 400, "bad-request"),
        ("POST", "/api/v1/agents/a/signal", "{}", 422, "invalid"),
        ("POST", "/api/v1/agents/a/signal", "{", 400, "bad-request"),
        ("POST", "/api/v1/agents/a/fund", r#"{"amount":-1,"unit":"x"}"#, 400, "bad-request"),
        ("POST", "/api/v1/agents", r#"{"name":"../x","command":["true"]}"#, 422, "invalid"),
        ("POST", "/api/v1/agents", r#"{"name":"x/y","command":["true"]}"#, 400, "bad-request"),
        ("POST", "/api/v1/agents", r#"{"name":"x+y","command":["true"]}"#, 400, "bad-request"),
        ("POST", "/api/v1/agents", r#"{"name":"x","command":[]}"#, 422, "config"),
        ("POST", "/api/v1/self/beat", "", 401, "unauthorized"),
    ] {
        let answer = bench.ask(method, path, &[JSON], body);
        assert_eq!(answer.code, status, "{method} {path}: {answer:?}");
        let error = &answer.json()["error"];
        assert_eq!(error["code"], code, "{method} {path}: {error}");
        assert!(error["message"].as_str().is_some_and(|said| !said.is_empty()), "{error}");
    }
    let without_type = bench.ask("POST", "/api/v1/agents/a/signal", &[], "{}");
    assert_eq!(without_type.code, 415, "{without_type:?}");
}

#[test]
fn the_description_names_what_is_there() {
    let bench = bench();
    bench.up(&[bench.agent("a", "forever", "")]);
    let described = bench.look("/api/v1/openapi.json").json();
    assert!(described["openapi"].as_str().is_some_and(|version| version.starts_with("3.")));
    let paths = described["paths"].as_object().unwrap();
    // Whatever can be looked at without more being said is there.
    for (path, item) in paths {
        let wants_more = path.ends_with("/terminal") || path.contains("{run}") || path == "/login";
        if item.get("get").is_none() || wants_more {
            continue;
        }
        let answer = bench.look(&path.replace("{name}", "a"));
        assert_eq!(answer.code, 200, "{path}: {answer:?}");
        let statuses = &item["get"]["responses"];
        assert!(statuses.get("200").is_some(), "{path}: {statuses}");
    }
}

#[test]
fn lists_come_in_pages_and_are_not_sent_twice() {
    let bench = bench();
    let names = ["a", "b", "c", "d", "e"];
    let parts: Vec<String> = names.map(|name| bench.agent(name, "exit 0", "")).to_vec();
    let events = bench.up(&parts);
    for name in names {
        events.of(name, "rested");
    }
    for list in ["agents", "history", "events"] {
        let whole = bench.look(&format!("/api/v1/{list}")).json();
        let (mut path, mut pages) = (format!("/api/v1/{list}?limit=2"), Vec::new());
        loop {
            let page = bench.look(&path);
            pages.extend(page.json().as_array().unwrap().clone());
            let Some(link) = page.header("link") else { break };
            path = link.trim_start_matches('<').split('>').next().unwrap().to_owned();
        }
        assert_eq!(Value::from(pages), whole, "{list}");
    }
    for amount in 1..=5 {
        bench.defib(&["fund", "a", &amount.to_string(), "scrip"]).good();
    }
    // Of a ledger the newest come first by page, and within one as they were written.
    let whole = bench.look("/api/v1/agents/a/ledger").json();
    let (mut path, mut lines) = ("/api/v1/agents/a/ledger?limit=2".to_owned(), Vec::new());
    loop {
        let page = bench.look(&path);
        let older = page.json().as_array().unwrap().clone();
        assert!((1..=2).contains(&older.len()), "{older:?}");
        lines.splice(0..0, older);
        let Some(link) = page.header("link") else { break };
        path = link.trim_start_matches('<').split('>').next().unwrap().to_owned();
    }
    assert_eq!(whole.as_array().unwrap().len(), 5, "{whole}");
    assert_eq!(Value::from(lines), whole);
    for list in ["agents", "groups", "history", "lifelines", "agents/a/runs", "agents/a/ledger"] {
        let path = format!("/api/v1/{list}");
        let first = bench.look(&path);
        let known = format!("if-none-match: {}", first.header("etag").unwrap());
        let again = bench.ask("GET", &path, &[&known], "");
        assert_eq!((again.code, again.body.len()), (304, 0), "{list}");
    }
    let tag = bench.look("/api/v1/history").header("etag").unwrap().to_owned();
    bench.defib(&["start", "a"]).good();
    await_some("another run", || (bench.history("a").len() == 2).then_some(()));
    let known = format!("if-none-match: {tag}");
    assert_eq!(bench.ask("GET", "/api/v1/history", &[&known], "").code, 200);
}

#[test]
fn events_resume_without_gap_or_double_while_the_daemon_is_killed() {
    let bench = bench();
    let settings =
        "restart = \"always\"\nlimits = []\nbackoff = { kind = \"fixed\", base = \"20ms\" }";
    bench
        .up(&[bench.agent("a", "sleep 10 exit 1", settings), bench.agent("b", "exit 1", settings)]);
    let (mut told, mut kills) = (Vec::<u64>::new(), 0);
    while told.len() < 400 || kills < 4 {
        let last = told.last().copied().unwrap_or(0);
        let mut stream = await_some("a stream", || bench.sse(last));
        loop {
            let mut line = String::new();
            if !matches!(stream.read_line(&mut line), Ok(length) if length > 0) {
                break;
            }
            if let Some(id) = line.strip_prefix("id: ") {
                told.push(id.trim().parse().unwrap());
                if told.len() >= 80 * (kills + 1) && kills < 4 {
                    kills += 1;
                    proc::kill(bench.who().1, "KILL");
                }
                if told.len() >= 400 && kills == 4 {
                    break;
                }
            }
        }
    }
    let wanted: Vec<u64> = (1..).take(told.len()).collect();
    assert_eq!(told, wanted);
}

#[test]
fn a_past_that_cannot_be_read_ends_the_stream_and_leaves_no_gap() {
    let bench = bench();
    let events = bench.up(&[bench.agent("a", "forever", ""), bench.agent("b", "forever", "")]);
    events.of("b", "run-ready");
    let first = field(&events.of("a", "run-started"), "seq");
    // For a moment nobody can open the history, and there is something in it that was not told.
    let (home, aside) = (bench.home(), bench.home().with_extension("aside"));
    std::fs::rename(&home, &aside).unwrap();
    let mut stream = UnixStream::connect(aside.join("defib.sock")).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let ask = "GET /api/v1/events?follow=true HTTP/1.1\r\nhost: defib\r\nconnection: close\r\n";
    write!(stream, "{ask}last-event-id: {first}\r\n\r\n").unwrap();
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "HTTP/1.1 200 OK");
    let told = ids(&mut stream);
    std::fs::rename(&aside, &home).unwrap();
    assert_eq!(told, Some(Vec::new()), "it goes on, or something was passed over");
    // Who comes back is told of all of it, in its order.
    let mut stream = await_some("a stream", || bench.sse(first));
    line.clear();
    while !line.starts_with("id: ") {
        line.clear();
        stream.read_line(&mut line).unwrap();
    }
    assert_eq!(line.trim(), format!("id: {}", first + 1));
}

/// The numbers of a stream's events until it ends; none where it does not.
fn ids(stream: &mut impl BufRead) -> Option<Vec<u64>> {
    let (mut told, mut line, begin) = (Vec::new(), String::new(), Instant::now());
    while stream.read_line(&mut line).expect("its end") > 0 {
        told.extend(line.strip_prefix("id: ").map(|id| id.trim().parse::<u64>().unwrap()));
        line.clear();
        // One that lives says something now and then.
        if begin.elapsed() > DEADLINE {
            return None;
        }
    }
    Some(told)
}

#[test]
fn why_lifelines_and_totals_tell_of_the_same_deaths() {
    let bench = bench();
    let limits = "limits = [{ deaths = 3, within = \"60s\" }]\n\
                  backoff = { kind = \"fixed\", base = \"50ms\" }";
    let group = "[group.g]\nstrategy = \"one-for-one\"\nmembers = [\"a\"]\n".to_owned();
    let events = bench.up(&[bench.agent("a", "print last-words exit 3", limits), group]);
    events.of("a", "crashed-out");
    let why = await_some("last words", || {
        let why = bench.look("/api/v1/agents/a/why").json();
        (why["last_words"] == json!(["last-words"])).then_some(why)
    });
    assert_eq!(why["run"]["run"], 3, "{why:#}");
    assert_eq!(why["run"]["death"]["class"], "error");
    assert_eq!(why["run"]["verdict"], "crash-out");
    assert!(why["meaning"].is_string() && why["remedy"].is_string(), "{why:#}");
    let decided = why["decided"].as_array().unwrap();
    let texts: Vec<&str> = decided.iter().map(|one| one["text"].as_str().unwrap()).collect();
    assert_eq!(texts[0], "a limit tripped: 3 of 3 deaths within 1m");
    let first = bench.look("/api/v1/agents/a/why?run=1").json();
    assert_eq!((&first["run"]["run"], &first["run"]["verdict"]), (&json!(1), &json!("restart")));
    assert_eq!(bench.look("/api/v1/agents/a/why?run=9").code, 404);

    let drawn = bench.look("/api/v1/lifelines?agent=a").json()["agents"][0].clone();
    let bars = drawn["runs"].as_array().unwrap();
    assert_eq!(bars.iter().map(|bar| field(bar, "run")).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(bars.iter().all(|bar| bar["class"] == "error" && bar["exit_code"] == 3), "{drawn:#}");
    // Between its runs it waited, each time until the next began.
    let waits = drawn["waits"].as_array().unwrap();
    assert_eq!(waits.len(), 2, "{drawn:#}");
    for (at, wait) in waits.iter().enumerate() {
        assert_eq!(wait["reason"], "backoff", "{drawn:#}");
        assert_eq!(wait["until"], bars[at + 1]["started_at"], "{drawn:#}");
        let (died, from) = (bars[at]["ended_at"].as_str(), wait["from"].as_str());
        assert!(died.is_some() && died <= from, "{drawn:#}");
    }
    let one = bench.look("/api/v1/lifelines?agent=a&bars=1").json()["agents"][0].clone();
    assert_eq!((&one["runs"][0]["run"], &one["more"]), (&json!(3), &json!(true)), "{one:#}");
    assert_eq!(
        bench.look("/api/v1/lifelines?agent=a&until=1h&since=2h").json()["agents"][0]["runs"],
        json!([])
    );

    let totals = bench.look("/api/v1/totals").json();
    assert_eq!(totals["deaths"], 3, "{totals}");
    assert_eq!((&totals["restarts"], &totals["permanent_deaths"]), (&json!(2), &json!(1)));
    assert_eq!(totals["recoveries"], 2);
    assert!(totals["median_recovery_s"].is_number());

    let groups = bench.look("/api/v1/groups").json();
    assert_eq!(groups[0]["state"], "crashed-out", "{groups}");
    assert_eq!(
        groups[0]["members"][0],
        json!({ "name": "a", "state": "crashed-out", "group": null })
    );
}

#[test]
fn a_policy_is_tried_on_the_deaths_that_were() {
    let bench = bench();
    let events =
        bench.up(&[bench.agent("a", "exit 3", "limits = [{ deaths = 3, within = \"60s\" }]")]);
    events.of("a", "crashed-out");
    let path = "/api/v1/agents/a/simulate";
    let deaths = |answer: &Value| {
        let would = answer["would"].as_array().unwrap();
        would.iter().filter(|event| event["type"] == "run-died").count()
    };
    let own = post(&bench, path, &json!({})).json();
    assert_eq!((deaths(&own), &own["outcome"]["state"]), (3, &json!("crashed-out")), "{own:#}");
    let strict =
        post(&bench, path, &json!({ "toml": "limits = [{ deaths = 2, within = \"1h\" }]" })).json();
    assert_eq!((deaths(&strict), &strict["outcome"]["state"]), (2, &json!("crashed-out")));
    let never = post(&bench, path, &json!({ "policy": { "restart": "never" } })).json();
    assert_eq!((deaths(&never), &never["outcome"]["state"]), (1, &json!("stopped")));
    assert_eq!(post(&bench, path, &json!({ "toml": "restart = 5" })).code, 422);
    let written = bench.look("/api/v1/agents/a/policy").json();
    let again = post(&bench, path, &json!({ "toml": written["toml"] })).json();
    assert_eq!(again["outcome"], own["outcome"]);
}

#[test]
fn the_overview_says_in_a_few_words_what_the_list_says() {
    let bench = bench();
    let events = bench.up(&[
        bench.agent("runs", "print hello forever", ""),
        bench.agent("dies", "exit 3", "restart = \"never\""),
        bench.agent(
            "waits",
            "exit 4",
            "backoff = { kind = \"fixed\", base = \"10m\", cap = \"10m\" }",
        ),
    ]);
    bench.await_log("runs", |log| log == "hello\n");
    events.of("dies", "run-died");
    events.of("waits", "run-died");
    let (list, overview) = await_some("the third waits", || {
        let list = bench.look("/api/v1/agents").json();
        let overview = bench.look("/api/v1/overview").json();
        (list[2]["state"] == "backoff").then_some((list, overview))
    });
    let said = |value: &Value| !value.is_null() && *value != false && *value != json!([]);
    let shown = ["name", "project", "state", "goal", "reason", "pid", "run", "restarts"];
    let shown = shown.into_iter().chain(["last_activity_at", "status_text", "flapping"]);
    let lines = overview.as_array().unwrap();
    assert_eq!(lines.len(), 3, "{overview}");
    for (line, whole) in lines.iter().zip(list.as_array().unwrap()) {
        for key in shown.clone() {
            assert_eq!(
                line.get(key),
                Some(&whole[key]).filter(|value| said(value)),
                "{key}: {line}"
            );
        }
        for key in ["at", "class", "exit_code"] {
            assert_eq!(line["last_death"][key], whole["last_death"][key], "{key}: {line}");
        }
        // How far off something is may be another thing a moment later.
        for key in ["uptime_s", "next_at"] {
            assert_eq!(line.get(key).is_some(), said(&whole[key]), "{key}: {line}");
        }
        assert!(line.as_object().unwrap().values().all(said), "{line}");
    }
    assert_eq!(lines[1]["last_death"]["exit_code"], 3, "{overview}");
}

#[test]
fn an_agent_is_added_used_and_taken_away() {
    let bench = bench();
    bench.up(&[bench.agent("a", "forever", "")]);
    let added = post(
        &bench,
        "/api/v1/agents",
        &json!({ "name": "new", "command": ["sh", "-c", "echo $A; exec sleep 1000"], "env": { "A": "b" } }),
    );
    assert_eq!(added.code, 201, "{added:?}");
    bench.await_log("new", |log| log == "b\n");
    let usage = await_some("a process", || {
        let usage = bench.look("/api/v1/agents/new/usage").json();
        usage["processes"].is_u64().then_some(usage)
    });
    assert!(field(&usage, "memory_bytes") > 0 && field(&usage, "processes") >= 1, "{usage}");
    let metrics = bench.look("/metrics").body;
    assert!(metrics.contains("defib_runs_total{agent=\"new\",project=\"new\"} 1"), "{metrics}");
    assert!(
        metrics.contains("defib_agent_state{agent=\"new\",project=\"new\",state=\"running\"} 1")
    );
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    let taken = post(&bench, "/api/v1/agents", &json!({ "name": "a", "command": ["true"] }));
    assert_eq!(taken.json()["error"]["code"], "config", "{taken:?}");
    assert_eq!(bench.ask("DELETE", "/api/v1/agents/new", &[], "").code, 200);
    let metrics = bench.look("/metrics").body;
    assert!(!metrics.contains("agent=\"new\""), "{metrics}");
    let idle = post(&bench, "/api/v1/agents/a/stop", &json!({}));
    assert_eq!(idle.json()[0]["state"], "stopped");
    assert!(bench.look("/api/v1/agents/a/usage").json()["run"].is_null());
}
