//! The doors, from outside: whoever is not known, may not, or is not who a browser thinks.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use defib_e2e::{Answer, Bench, DEADLINE, Web, await_some, proc};

use crate::bench;

const JSON: &str = "Content-Type: application/json";

/// A daemon with two agents that print their tokens, and the way to it.
fn up() -> (Bench, Web) {
    let bench = bench();
    let script = "env DEFIB_TOKEN forever";
    bench.up(&[bench.agent("a", script, ""), bench.agent("b", script, "")]);
    let web = Web::of(&bench);
    (bench, web)
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

fn new_token(bench: &Bench, role: &str) -> String {
    bench.defib(&["token", "new", "--role", role]).good().out.trim().to_owned()
}

/// The token that an agent's run printed.
fn own_token(bench: &Bench, agent: &str, run: usize) -> String {
    await_some("a token", || {
        let log = bench.log(agent);
        let mut tokens = log.lines().filter_map(|line| line.strip_prefix("DEFIB_TOKEN="));
        tokens.nth(run - 1).map(str::to_owned)
    })
}

/// Logs a browser in, and gives its cookie.
fn log_in(bench: &Bench, web: &Web) -> String {
    let link = bench.defib(&["dashboard"]).good().out;
    let path = link.trim().split_once(&web.address.to_string()).expect("our address").1.to_owned();
    let answer = web.ask(&format!("GET {path}"), &[], "");
    assert_eq!(answer.code, 303, "{answer:?}");
    assert_eq!(answer.header("location"), Some("/"));
    let cookie = answer.header("set-cookie").expect("a cookie").to_owned();
    for word in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(word), "{cookie}");
    }
    assert_eq!(web.code(&format!("GET {path}"), &[], ""), 401, "a link is good once");
    format!("Cookie: {}", cookie.split(';').next().unwrap())
}

/// It is up, and answers at both doors.
fn answers(bench: &Bench, web: &Web, token: &str) {
    assert_eq!(web.code("GET /api/v1/agents", &[&bearer(token)], ""), 200);
    assert_eq!(bench.statuses().len(), 2);
}

#[test]
fn whoever_is_not_known_is_told_so_and_what_to_do() {
    let (bench, web) = up();
    let token = new_token(&bench, "view");
    for headers in [
        vec![],
        vec![bearer("nonsense")],
        vec![bearer(&token[..token.len() - 1])],
        vec![format!("{} ", bearer(&token.to_uppercase()))],
        vec![format!("Authorization: Basic {token}")],
        vec![format!("Cookie: defib-{}={token}", web.address.port())],
    ] {
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        for line in ["GET /api/v1/agents", "GET /", "POST /api/v1/down", "GET /metrics"] {
            let answer = web.ask(line, &headers, "");
            assert_eq!((answer.code, answer.trouble().as_str()), (401, "unauthorized"), "{line}");
            assert!(answer.json()["error"]["hint"].as_str().unwrap().contains("defib token new"));
        }
    }
    let page = web.ask("GET /", &["Accept: text/html"], "");
    assert_eq!(page.code, 401);
    assert!(page.body.contains("defib dashboard"), "{page:?}");
    assert!(page.header("content-security-policy").unwrap().contains("script-src 'self'"));
    assert_eq!(web.code("GET /healthz", &[], ""), 200, "that is for anybody");
    answers(&bench, &web, &token);
}

#[test]
fn each_role_may_do_what_it_is_for() {
    let (bench, web) = up();
    let tokens = ["view", "operate", "admin"].map(|role| bearer(&new_token(&bench, role)));
    for (line, body, codes) in [
        ("GET /api/v1/agents", "", [200, 200, 200]),
        ("POST /api/v1/agents/a/restart", "{}", [403, 200, 200]),
        ("POST /api/v1/agents/b/signal", r#"{"signal":"CONT"}"#, [403, 200, 200]),
        ("DELETE /api/v1/agents/a", "", [403, 403, 409]),
        ("POST /api/v1/down", r#"{"project":"none"}"#, [403, 403, 404]),
        ("GET /api/v1/tokens", "", [403, 403, 200]),
        ("GET /api/v1/audit", "", [403, 403, 200]),
        ("GET /api/v1/nothing", "", [404, 404, 404]),
    ] {
        let asked = tokens.each_ref().map(|token| web.ask(line, &[token, JSON], body));
        assert_eq!(asked.each_ref().map(|answer| answer.code), codes, "{line}: {asked:?}");
    }
    let listed = bench.defib(&["token", "list", "--json"]).good().json();
    assert_eq!(listed.as_array().unwrap().len(), 3);
    assert_eq!(listed[2]["role"], "view");
}

#[test]
fn tokens_outlive_the_daemon_are_kept_as_hashes_and_end_when_they_are_revoked() {
    let (bench, web) = up();
    let token = new_token(&bench, "view");
    let cookie = log_in(&bench, &web);
    let secret = cookie.rsplit('=').next().unwrap();
    bench.kill_daemon();
    assert_eq!(Web::of(&bench).address, web.address, "pages find it where it was");
    assert_eq!(web.code("GET /api/v1/agents", &[&bearer(&token)], ""), 200);
    assert_eq!(web.code("GET /api/v1/agents", &[&cookie], ""), 200);
    for secret in [&token[6..], secret] {
        for (path, bytes) in files(&bench.home()) {
            assert!(!proc::holds(&bytes, secret), "{} has a secret", path.display());
        }
    }
    bench.defib(&["token", "revoke", "view-1"]).good();
    assert_eq!(web.code("GET /api/v1/agents", &[&bearer(&token)], ""), 401);
    assert_eq!(bench.defib(&["token", "revoke", "view-1"]).code, 5);
    let origin = format!("Origin: http://{}", web.address);
    assert_eq!(web.code("POST /api/v1/logout", &[&cookie, &origin], ""), 200);
    assert_eq!(web.code("GET /api/v1/agents", &[&cookie], ""), 401);
}

/// Every file below a folder.
pub(crate) fn files(folder: &std::path::Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(files(&path));
        } else if path.is_file() {
            // One may have gone meanwhile.
            all.extend(std::fs::read(&path).ok().map(|bytes| (path, bytes)));
        }
    }
    all
}

#[test]
fn an_agents_token_acts_for_that_agent_alone_and_dies_with_its_run() {
    let (bench, web) = up();
    let own = own_token(&bench, "a", 1);
    let header = bearer(&own);
    let headers = [header.as_str(), JSON];
    assert_eq!(web.code("POST /api/v1/self/beat", &headers, ""), 200);
    let other = ["POST /api/v1/agents/b/stop", "POST /api/v1/agents/a/stop", "GET /api/v1/agents"];
    for line in other {
        let answer = web.ask(line, &headers, "{}");
        assert_eq!((answer.code, answer.trouble().as_str()), (403, "forbidden"), "{line}");
    }
    let operator = new_token(&bench, "admin");
    assert_eq!(web.code("POST /api/v1/self/beat", &[&bearer(&operator), JSON], ""), 401);
    proc::kill(bench.pid("a"), "KILL");
    own_token(&bench, "a", 2);
    assert_eq!(web.code("POST /api/v1/self/beat", &headers, ""), 401);
    assert_eq!(bench.status("b")["state"], "running");
    answers(&bench, &web, &operator);
}

#[test]
fn a_browser_that_was_led_here_by_another_page_does_nothing() {
    let (bench, web) = up();
    let token = bearer(&new_token(&bench, "admin"));
    let cookie = log_in(&bench, &web);
    let stop = "POST /api/v1/agents/a/stop";
    let port = web.address.port();
    for host in ["evil.example", &format!("evil.example:{port}"), "127.0.0.1:1", ""] {
        for who in [&token, &cookie] {
            let answer = web.ask("GET /api/v1/agents", &[&format!("Host: {host}"), who], "");
            assert_eq!((answer.code, answer.trouble().as_str()), (421, "wrong-host"), "{host}");
        }
    }
    let ours = format!("Origin: http://localhost:{port}");
    for origin in ["http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1"] {
        let origin = format!("Origin: {origin}");
        for who in [&token, &cookie] {
            let answer = web.ask(stop, &[who, &origin, JSON], "{}");
            assert_eq!((answer.code, answer.trouble().as_str()), (403, "forbidden"), "{origin}");
            assert_eq!(web.code("GET /api/v1/agents", &[who, &origin], ""), 403, "{origin}");
        }
    }
    // A form of another page can be sent with these types only, and with no header of its own.
    for kind in ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data"] {
        let kind = format!("Content-Type: {kind}");
        assert_eq!(web.code(stop, &[&cookie, &kind], "{}"), 403, "no page says that it asks");
        assert_eq!(web.code(stop, &[&cookie, &kind, &ours], "{}"), 415);
        assert_eq!(web.code(stop, &[&token, &kind], "{}"), 415);
    }
    assert_eq!(web.code(stop, &[&cookie, JSON], "{}"), 403);
    let upgrade = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"];
    let terminal = [&[cookie.as_str()], &upgrade[..]].concat();
    assert_eq!(web.code("GET /api/v1/agents/a/terminal", &terminal, ""), 403);
    assert_eq!(bench.status("a")["state"], "running");
    assert_eq!(web.code(stop, &[&cookie, &ours, JSON], "{}"), 200, "our own page may");
    bench.await_state("a", "stopped");
}

#[test]
fn names_lead_nowhere_but_to_agents() {
    let (bench, web) = up();
    let token = new_token(&bench, "admin");
    let who = bearer(&token);
    for name in [
        "..%2F..%2Fetc%2Fpasswd",
        "%2e%2e",
        "..",
        "a%00",
        "a%0d%0aX: y",
        "%ff%fe",
        "a;rm -rf",
        &"x".repeat(5000),
    ] {
        let name = name.replace(' ', "%20");
        for rest in ["", "/logs", "/ledger", "/runs/1/tail", "/terminal"] {
            let answer = web.ask(&format!("GET /api/v1/agents/{name}{rest}"), &[&who], "");
            assert!([400, 404].contains(&answer.code), "{name}{rest}: {answer:?}");
            assert!(!answer.body.contains("root:"), "{answer:?}");
        }
        assert!([400, 404].contains(&web.code(
            &format!("DELETE /api/v1/agents/{name}"),
            &[&who],
            ""
        )));
    }
    let logs = r#"{"agents":[["../../../etc/passwd",null]],"lines":1,"run":null,"follow":false}"#;
    assert_eq!(web.code("POST /api/v1/logs", &[&who, JSON], logs), 422);
    for line in ["GET /../../etc/passwd", "GET //etc/passwd", "GET /%2e%2e/etc/passwd"] {
        assert_eq!(web.code(line, &[&who], ""), 404, "{line}");
    }
    answers(&bench, &web, &token);
}

#[test]
fn what_is_too_large_is_refused_before_it_is_read() {
    let (bench, web) = up();
    let token = new_token(&bench, "admin");
    let who = bearer(&token);
    let resident = || {
        let status = proc::read(bench.who().1, "status").unwrap();
        let text = String::from_utf8_lossy(&status).into_owned();
        let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let before = resident();
    let said = web.ask("POST /api/v1/down", &[&who, JSON, "Content-Length: 1000000000"], "");
    assert_eq!((said.code, said.trouble().as_str()), (413, "too-large"));
    // In pieces, without saying how many: a gigabyte is pushed for as long as anybody takes it.
    let mut stream = web.connect();
    let head = web.text("POST /api/v1/down", &[&who, JSON, "Transfer-Encoding: chunked"], "");
    stream.write_all(head.as_bytes()).unwrap();
    let piece = [b"10000\r\n".to_vec(), vec![b' '; 65536], b"\r\n".to_vec()].concat();
    let mut sent = 0_u64;
    while sent < 1 << 30 && stream.write_all(&piece).is_ok() {
        sent += 65536;
    }
    let answer = Answer::from(&mut stream);
    // The connection may be cut before the answer is read; then it was not taken either.
    assert!([0, 413].contains(&answer.code), "{answer:?}");
    assert!(sent < 64 << 20, "{sent} bytes were taken");
    assert!(resident() < before + (64 << 10), "memory: {before} kB, then {} kB", resident());
    let long = format!("X: {}", "x".repeat(100_000));
    assert_eq!(web.code("GET /healthz", &[&long], ""), 431);
    let many: Vec<String> = (0..1000).map(|number| format!("X{number}: y")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(web.code("GET /healthz", &many, ""), 431);
    assert_eq!(web.code("GET /healthz", &["Content-Length: x"], ""), 400);
    answers(&bench, &web, &token);
}

#[test]
fn who_takes_for_ever_to_ask_is_not_waited_for() {
    let (bench, web) = up();
    let token = new_token(&bench, "view");
    let begin = Instant::now();
    // One that says nothing, one that never ends its headers, one that never ends its body.
    let head = web.text("POST /api/v1/logs", &[&bearer(&token), JSON, "Content-Length: 10"], "");
    let silent = (web.connect(), String::new());
    let endless = (web.connect(), "GET /healthz HTTP/1.1\r\n".to_owned());
    let unfinished = (web.connect(), head);
    let mut slow = [silent, endless, unfinished];
    for (stream, text) in &mut slow {
        stream.write_all(text.as_bytes()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    }
    let mut ended = [false; 3];
    while ended.contains(&false) {
        assert!(begin.elapsed() < DEADLINE, "still waited for: {ended:?}");
        for (at, (stream, _)) in slow.iter_mut().enumerate() {
            // It goes on and on: a header a second, never the last.
            if at == 1 {
                let _ = stream.write_all(b"X: y\r\n");
            }
            let mut piece = [0; 512];
            match stream.read(&mut piece) {
                Ok(0) => ended[at] = true,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => ended[at] = true,
            }
        }
        answers(&bench, &web, &token);
    }
}

/// So many connections are more than there are places.
const ENOUGH: usize = 600;

#[test]
fn ten_thousand_connections_cost_others_nothing() {
    let (bench, web) = up();
    let token = new_token(&bench, "view");
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
    let mut held = Vec::new();
    let begin = Instant::now();
    while held.len() < 10_000 {
        match std::net::TcpStream::connect_timeout(&web.address, Duration::from_secs(5)) {
            Ok(stream) => held.push(stream),
            Err(error) => {
                println!("no more after {}: {error}", held.len());
                break;
            }
        }
    }
    println!("{} connections in {:?}", held.len(), begin.elapsed());
    assert!(held.len() > ENOUGH, "too few to show anything");
    // One that came while nobody's patience was over found no place, and was told so; who is at this
    // machine notices nothing.
    let late = &mut held[ENOUGH];
    late.set_read_timeout(Some(DEADLINE)).unwrap();
    assert_eq!(Answer::from(late).code, 503);
    assert_eq!(bench.statuses().len(), 2);
    bench.defib(&["restart", "a"]).good();
    drop(held);
    await_some("a place", || {
        (web.code("GET /api/v1/agents", &[&bearer(&token)], "") == 200).then_some(())
    });
    answers(&bench, &web, &token);
}

#[test]
fn a_caller_follows_so_much_and_no_more() {
    let (bench, web) = up();
    let token = new_token(&bench, "view");
    let text = web.text("GET /api/v1/events?follow=true", &[&bearer(&token)], "");
    let mut streams = Vec::new();
    let refused = loop {
        let mut stream = web.connect();
        stream.write_all(text.as_bytes()).unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        if first != *b"HTTP/1.1 200" {
            break String::from_utf8_lossy(&first).into_owned();
        }
        streams.push(stream);
        assert!(streams.len() < 1000, "there is no end to it");
    };
    assert_eq!((refused.as_str(), streams.len()), ("HTTP/1.1 429", 64));
    assert_eq!(web.code("GET /api/v1/agents", &[&bearer(&token)], ""), 200, "it may still look");
    let other = bearer(&new_token(&bench, "view"));
    let mut stream = web.connect();
    stream.write_all(web.text("GET /api/v1/events?follow=true", &[&other], "").as_bytes()).unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(first, *b"HTTP/1.1 200", "others may follow");
    drop(streams);
    await_some("a place", || {
        let mut stream = web.connect();
        stream.write_all(text.as_bytes()).unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).ok()?;
        (first == *b"HTTP/1.1 200").then_some(())
    });
}

#[test]
fn the_home_and_its_socket_are_the_users_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (bench, _) = up();
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&bench.home()), 0o700);
    assert_eq!(mode(&bench.home().join("defib.sock")), 0o600);
    let run = ["run", "--name", "x", "--env", "A_SECRET=told", "--", "sleep", "1000"];
    bench.defib(&run).good();
    for name in ["history.db", "intent.db", "audit.log", "keeper.log", "adhoc", "adhoc/x.toml"] {
        assert_eq!(mode(&bench.home().join(name)) & 0o077, 0, "{name}");
    }
}

#[test]
fn the_web_server_is_where_the_config_says_and_projects_agree_on_it() {
    let bench = bench();
    let port = defib_e2e::free_port();
    let agent = bench.agent("a", "forever", "");
    bench.config(&format!("{agent}\n[server]\nlisten = \"127.0.0.1:{port}\"\n"));
    bench.defib(&["up", "--detach"]).good();
    let web = Web::of(&bench);
    assert_eq!(web.address.port(), port);
    let other = bench.file("other.toml");
    std::fs::write(&other, "[project]\nname = \"o\"\n[server]\nlisten = \"off\"\n").unwrap();
    let refused = bench.defib(&["up", "--detach", "-f", &other]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.err.contains("[server]"), "{refused:?}");
    bench.config(&format!("{agent}\n[server]\nlisten = \"off\"\n"));
    bench.defib(&["reload"]).good();
    let off =
        await_some("an end", || Some(bench.defib(&["dashboard"])).filter(|ran| ran.code != 0));
    assert!(off.err.contains("off"), "{off:?}");
    assert!(std::net::TcpStream::connect(web.address).is_err());
}

#[test]
fn odd_requests_get_an_answer_or_none_and_the_daemon_lives() {
    let (bench, web) = up();
    let token = new_token(&bench, "view");
    let (who, daemon) = (bearer(&token), bench.who().1);
    let simulate = r#"{"script":"exit 1; run 2h exit 0"}"#;
    let logs = r#"{"agents":[["a",null]],"lines":9,"run":1,"follow":false}"#;
    let seeds = [
        web.text("GET /api/v1/agents/a", &[&who], ""),
        web.text("GET /api/v1/history?agent=a&limit=5", &[&who, "If-None-Match: x"], ""),
        web.text("GET /api/v1/events?last=3&after=1", &[&who, "Last-Event-ID: 7"], ""),
        web.text("POST /api/v1/logs", &[&who, JSON], logs),
        web.text("POST /api/v1/agents/a/simulate", &[&who, JSON], simulate),
        web.text("GET /login?key=00", &["Cookie: defib-7433=x"], ""),
        web.text("POST /api/v1/self/status", &[&who, JSON], r#"{"text":"x"}"#),
    ];
    let seeds = seeds.into_iter().map(String::into_bytes).collect();
    let mut mutator = defib_fuzz::Mutator::new(1, seeds);
    let (begin, long) =
        (Instant::now(), Duration::from_secs(if crate::is_long() { 120 } else { 5 }));
    let mut codes = std::collections::BTreeMap::<u16, u32>::new();
    while begin.elapsed() < long {
        let mut stream = web.connect();
        // One that is refused early may be cut off in the middle.
        let _ = stream.write_all(&mutator.input());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        *codes.entry(Answer::from(&mut stream).code).or_default() += 1;
    }
    println!("{codes:?}");
    assert!(codes.keys().all(|code| *code < 500), "{codes:?}");
    assert!(codes.contains_key(&200) && codes.contains_key(&400), "{codes:?}");
    assert_eq!(bench.who().1, daemon, "it is the same daemon");
    answers(&bench, &web, &token);
}

/// What the kernel knows the socket by that listens on a port of loopback.
fn listener_on(port: u16) -> Option<String> {
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let address = format!("0100007F:{port:04X}");
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row.get(1) == Some(&&*address) && row.get(3) == Some(&"0A"))?;
    row.get(9).map(|inode| (*inode).to_owned())
}

#[test]
fn a_project_that_says_nothing_of_the_door_leaves_it_open() {
    let bench = bench();
    bench.up(&[bench.agent("a", "forever", "")]);
    let web = Web::of(&bench);
    let before = listener_on(web.address.port());
    assert!(before.is_some());
    // Its name comes before that of the project.
    bench.defib(&["run", "--name", "0", "--", "sleep", "100000"]).good();
    bench.await_state("0", "running");
    assert_eq!(web.code("GET /healthz", &[], ""), 200);
    assert_eq!(listener_on(web.address.port()), before, "it was closed in between");
}
