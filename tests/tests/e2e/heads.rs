//! The heads of requests and answers: how large one may be, and what every answer says to a browser.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use defib_e2e::{Answer, Bench, DEADLINE, Web};

use crate::bench;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; \
                      form-action 'self'; frame-ancestors 'none'";

/// Both doors of a daemon.
enum Door<'b> {
    Tcp(&'b Web),
    Unix(&'b Bench),
}

impl Door<'_> {
    /// Sends bytes, and reads the answer's head and what follows while the connection is open.
    fn ask(&self, text: &str) -> Answer {
        let mut stream: Box<dyn Stream> = match self {
            Door::Tcp(web) => Box::new(web.connect()),
            Door::Unix(bench) => {
                let stream = UnixStream::connect(bench.home().join("defib.sock")).unwrap();
                stream.set_read_timeout(Some(DEADLINE)).unwrap();
                Box::new(stream)
            }
        };
        // A daemon that refuses need not read everything.
        let _ = stream.write_all(text.as_bytes());
        Answer::from(&mut BufReader::new(stream))
    }

    fn host(&self) -> String {
        match self {
            Door::Tcp(web) => web.address.to_string(),
            Door::Unix(_) => "defib".to_owned(),
        }
    }
}

trait Stream: Read + Write {}
impl Stream for TcpStream {}
impl Stream for UnixStream {}

fn up() -> (Bench, Web) {
    let bench = bench();
    bench.up(&[bench.agent("a", "forever", "")]);
    let web = Web::of(&bench);
    (bench, web)
}

/// A request with a head of exactly so many bytes.
fn sized(door: &Door<'_>, size: usize, headers: usize) -> String {
    let mut text =
        format!("GET /healthz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", door.host());
    for number in 3..headers {
        text.push_str(&format!("X{number}: 1\r\n"));
    }
    let rest = size.saturating_sub(text.len() + "X-Pad: \r\n\r\n".len());
    text.push_str(&format!("X-Pad: {}\r\n\r\n", "x".repeat(rest)));
    text
}

#[test]
fn a_head_has_at_most_32_kilobytes_and_100_headers() {
    let (bench, web) = up();
    for door in [Door::Tcp(&web), Door::Unix(&bench)] {
        for (size, headers, code) in [
            (1000, 3, 200),
            (32 * 1024 - 100, 3, 200),
            (32 * 1024 + 100, 3, 431),
            (33 * 1024, 3, 431),
            (48 * 1024, 3, 431),
            (64 * 1024, 3, 431),
            (100 * 1024, 3, 431),
            (1 << 20, 3, 431),
            (2000, 100, 200),
            (2000, 101, 431),
            (10_000, 1000, 431),
        ] {
            let answer = door.ask(&sized(&door, size, headers));
            assert_eq!(answer.code, code, "{size} bytes, {headers} headers: {answer:?}");
            assert_eq!(answer.header("content-security-policy"), Some(POLICY), "{answer:?}");
        }
        // A long address is a long head.
        let text = format!("GET /healthz?{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(40_000));
        assert_eq!(door.ask(&text).code, 431);
    }
    bench.defib(&["status"]).good();
}

/// Goal: there is one content security policy, and no answer without it. Method: every kind of answer,
/// through both doors, errors that the HTTP library makes by itself included.
#[test]
fn every_answer_has_the_one_strict_content_security_policy() {
    let (bench, web) = up();
    let token = bench.defib(&["token", "new", "--role", "admin"]).good().out;
    let bearer = format!("Authorization: Bearer {}", token.trim());
    let link = bench.defib(&["dashboard"]).good().out;
    let login = link.trim().split_once(&web.address.to_string()).unwrap().1.to_owned();
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13";
    for door in [Door::Tcp(&web), Door::Unix(&bench)] {
        let tcp = matches!(door, Door::Tcp(_));
        let host = format!("Host: {}", door.host());
        let mut seen = Vec::new();
        for (line, headers, on_tcp) in [
            ("GET /api/v1/agents", vec![&*bearer], 200),
            ("GET /", vec![&*bearer, "Accept: text/html"], 200),
            ("GET /any/page", vec![&*bearer, "Accept: text/html"], 200),
            ("GET /healthz", vec![], 200),
            ("GET /metrics", vec![&*bearer], 200),
            (&*format!("GET {login}"), vec![], 303),
            ("GET /api/v1/nothing", vec![&*bearer], 404),
            ("GET /assets/nothing.js", vec![&*bearer], 404),
            ("GET /api/v1/agents/nobody", vec![&*bearer], 404),
            ("DELETE /api/v1/agents", vec![&*bearer], 405),
            ("GET /api/v1/agents", vec!["Authorization: Bearer x"], 401),
            ("GET /", vec!["Accept: text/html", "Authorization: Bearer x"], 401),
            (
                "POST /api/v1/agents/a/stop",
                vec![&*bearer, "Content-Type: text/plain", "Content-Length: 2"],
                415,
            ),
            ("POST /api/v1/agents/a/stop", vec![&*bearer, "Content-Length: 99999999"], 415),
            ("GET /api/v1/agents/a/terminal", vec![&*bearer, upgrade], 0),
            ("GET /api/v1/events", vec![&*bearer, "Accept: text/event-stream"], 200),
            ("GET /api/v1/agents/%zz", vec![&*bearer], 0),
            ("BAD\x01METHOD /", vec![], 400),
            ("GET / HTTP/9.9\r\nX: ", vec![], 400),
        ] {
            let head: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
            let mut text = format!("{line} HTTP/1.1\r\n{host}\r\n{head}");
            if line.contains("/events") {
                // The head of a stream is enough: it is asked for with HEAD.
                text = text.replacen("GET", "HEAD", 1);
            }
            let close =
                if headers.contains(&upgrade) { "\r\n" } else { "Connection: close\r\n\r\n" };
            let answer = door.ask(&format!("{text}{close}{{}}"));
            assert_ne!(answer.code, 0, "{line} was not answered");
            if tcp && on_tcp != 0 && !line.contains("/events") {
                assert_eq!(answer.code, on_tcp, "{line}: {answer:?}");
            }
            let policies: Vec<&str> = answer
                .headers
                .iter()
                .filter(|(name, _)| name == "content-security-policy")
                .map(|(_, value)| value.as_str())
                .collect();
            assert_eq!(policies, [POLICY], "{line}: {answer:?}");
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{line}");
            seen.push(answer.code);
        }
        println!("answers: {seen:?}");
    }
    // Another host, another origin, too many connections.
    for header in ["Host: evil.example", "Origin: http://evil.example"] {
        let answer = web.ask("GET /api/v1/agents", &[header, &bearer], "");
        assert!(matches!(answer.code, 403 | 421), "{answer:?}");
        assert_eq!(answer.header("content-security-policy"), Some(POLICY), "{answer:?}");
    }
    let mut held: Vec<TcpStream> = (0..512).map(|_| web.connect()).collect();
    let full = defib_e2e::await_some("a refused connection", || {
        let mut stream = web.connect();
        stream.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
        let answer = Answer::from(&mut stream);
        held.push(stream);
        (answer.code == 503).then_some(answer)
    });
    assert_eq!(full.header("content-security-policy"), Some(POLICY), "{full:?}");
}
