//! The fuzz targets: each is a parser with valid inputs as seeds.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;

use defib_autopsy::{Autopsy, Case, Kind, prompt_on};
use defib_config::{Format, Options};
use defib_core::run::Status;
use defib_core::{Name, RunId, Signal, Wall};
use defib_daemon::outside;
use defib_host::Channel;
use defib_host::protocol::{News, Request, RunKey};
use jiff::tz::TimeZone;

/// A parser with its seeds.
pub struct Target {
    /// The name on the command line and of the corpus folder.
    pub name: &'static str,
    /// Valid inputs to mutate.
    pub seeds: Vec<Vec<u8>>,
    /// Parses one input.
    pub run: fn(&[u8]),
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Every target.
pub fn all() -> Vec<Target> {
    [by_people(), imports(), by_clients(), by_agents(), from_disk()].into_iter().flatten().collect()
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Files and arguments that people write.
fn by_people() -> Vec<Target> {
    vec![
        Target {
            name: "config",
            seeds: texts(&[
                include_str!("../../crates/config/tests/fixtures/every-key.toml"),
                include_str!("../../crates/config/tests/fixtures/ten-mistakes.toml"),
                "[agent.a]\ncommand = [\"x\"]\ncapabilities = [\"read:/\", \"net:443\", \"exec:/bin\"]\n",
                "[agent.a]\ncommand = \"x 'y z'\"\nbackoff = { base = \"1s\" }\nafter = [\"b\"]\n",
            ]),
            run: |bytes| {
                let loaded = defib_config::parse_bytes(Path::new("defib.toml"), bytes);
                let _ = loaded.render(true);
            },
        },
        Target {
            name: "script",
            seeds: texts(&[
                "exit 1; exit 1; run 2h exit 0",
                "run 5s signal KILL; spawn-fail",
                "exit 0",
            ]),
            run: |bytes| {
                let _ =
                    defib_sim::script::Script::parse(&text(bytes)).map_err(|bad| bad.to_string());
            },
        },
        Target {
            name: "names",
            seeds: texts(&["reviewer", "project/reviewer", "1h30m", "SIGTERM", "250ms", "..", "9"]),
            run: |bytes| {
                let text = text(bytes);
                let _ = (Name::parse(&text), Signal::parse(&text), defib_core::span::parse(&text));
                let _ = outside::amounts(text.parse().unwrap_or(f64::NAN), &text);
            },
        },
        Target {
            name: "env-file",
            seeds: texts(&["# note\nexport A=\"b\"\nC = 'd'\n", "LC_*=x\n"]),
            run: |bytes| ignore(outside::env_file(&text(bytes))),
        },
    ]
}

/// One target per import format.
///
/// An import that reports no error must give a file that loads.
fn imports() -> Vec<Target> {
    macro_rules! import {
        ($name:literal, $format:ident, [$($seed:expr),+ $(,)?]) => {
            Target { name: $name, seeds: texts(&[$($seed),+]), run: |bytes| import(Format::$format, bytes) }
        };
    }
    macro_rules! data {
        ($path:literal) => {
            include_str!(concat!("../../crates/config/tests/data/import/", $path))
        };
    }
    macro_rules! document {
        ($path:literal) => {
            include_str!(concat!("../../tests/tests/conformance/data/", $path))
        };
    }
    vec![
        import!(
            "import-aide",
            Aide,
            [document!("Aidefile.daemon"), document!("Aidefile.uptime-monitor")]
        ),
        import!(
            "import-celistra",
            Celistra,
            [
                r#"{"name":"a","command":"x y","cwd":"/p","env":{"A":"b"},"autoRestart":true,"maxDeaths":5,"windowSeconds":60}"#,
                r#"{"name":"b","command":["x","y"],"respawnOnZero":true,"args":["z"]}"#,
            ]
        ),
        import!("import-ecology", Ecology, [document!("config.yaml")]),
        import!("import-weave", Weave, [document!("weave.toml")]),
        import!(
            "import-procfile",
            Procfile,
            [data!("procfile/02-django.Procfile"), data!("procfile/05-quotes.Procfile"),]
        ),
        import!(
            "import-supervisord",
            Supervisord,
            [
                data!("supervisord/02-full.conf"),
                data!("supervisord/05-groups.conf"),
                data!("supervisord/12-odd-values.conf"),
            ]
        ),
        import!(
            "import-pm2",
            Pm2,
            [
                data!("pm2/04-policy.json"),
                data!("pm2/10-process.yml"),
                data!("pm2/12-odd-values.json"),
            ]
        ),
        import!(
            "import-compose",
            Compose,
            [
                data!("compose/04-interpolation.yml"),
                data!("compose/06-anchors.yml"),
                data!("compose/08-health.yml"),
            ]
        ),
    ]
}

fn import(format: Format, bytes: &[u8]) {
    let options = Options { format: Some(format), ..Options::default() };
    let path = Path::new("/p/file");
    let Some(written) = defib_config::import(path, &text(bytes), &options).toml else { return };
    let outcome = defib_config::parse_in(Path::new("/p"), &written);
    assert!(outcome.config.is_some(), "{written}\n{:?}", outcome.diagnostics);
}

/// Files of the home that a crash or a person may have damaged, and bytes for the terminal's screen.
fn from_disk() -> Vec<Target> {
    vec![
        Target {
            name: "audit",
            seeds: texts(&[
                "00 {\"number\":1,\"at\":\"\",\"who\":\"uid:me\",\"what\":\"POST /\",\"detail\":null,\"outcome\":\"ok\"}\n",
            ]),
            run: |bytes| ignore(outside::audit(&text(bytes))),
        },
        Target {
            name: "journal",
            seeds: texts(&[concat!(
                r#"{"seq":7,"at_ms":1791374400000,"mono_ns":5,"boot":"b","project":"p","agent":"a","run":2,"#,
                r#""kind":"run-died","body":{"class":"error","exit_code":1}}"#,
                "\n"
            )]),
            run: |bytes| ignore(outside::journal(bytes)),
        },
        Target {
            name: "terminal",
            seeds: texts(&[
                "\u{1b}[2J\u{1b}[1;1H\u{1b}[31;1mred\u{1b}[0m\r\nnext\u{1b}[?1049h\u{1b}[?25l",
                "\u{1b}]0;title\u{7}\u{1b}P1$r\u{1b}\\text\u{1b}[10;20r\u{1b}[3M\u{1b}7\u{1b}8",
            ]),
            run: |bytes| ignore(outside::terminal(bytes)),
        },
    ]
}

/// Bytes that arrive by sockets.
fn by_clients() -> Vec<Target> {
    vec![
        Target {
            name: "http-names",
            seeds: texts(&[
                "127.0.0.1:7433",
                "http://localhost:7433",
                "[::1]:7433",
                "defib-7433=0123456789abcdef; other=1",
                "/api/v1/agents/a/stop",
                "/api/v1/self/beat",
            ]),
            run: |bytes| ignore(outside::http_names(&text(bytes))),
        },
        Target {
            name: "http-bodies",
            seeds: texts(&[
                r#"{"agents":[["a",null]],"lines":100,"run":null,"follow":true}"#,
                r#"{"no_wait":true,"kill":false,"fresh":false}"#,
                r#"{"type":"resize","rows":40,"columns":120}"#,
                r#"{"path":"/p/defib.toml","config":{"project":"p"},"mode":"once","environment":{"A":"b"}}"#,
            ]),
            run: |bytes| ignore(outside::bodies(bytes)),
        },
        Target {
            name: "tokens",
            seeds: texts(&[
                "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
                "+f",
            ]),
            run: |bytes| ignore(outside::token_hash(&text(bytes))),
        },
        Target {
            name: "log-frames",
            seeds: texts(&["reviewer 1 2 5\nhello", "a 18446744073709551615 0 0\n"]),
            run: |bytes| ignore(outside::log_frames(bytes)),
        },
        Target {
            name: "notify",
            seeds: texts(&[
                "READY=1\nSTATUS=busy\nWATCHDOG=1",
                "EXTEND_TIMEOUT_USEC=5000000\nSTOPPING=1",
            ]),
            run: |bytes| ignore(outside::notify_datagram(bytes)),
        },
        Target { name: "keeper", seeds: frames(), run: keeper },
    ]
}

/// Output and telemetry of agents.
fn by_agents() -> Vec<Target> {
    vec![
        Target {
            name: "autopsy",
            seeds: texts(&[
                "You've hit your session limit · resets 3:45pm (Europe/Berlin)\n",
                "{\"type\":\"result\",\"subtype\":\"error\",\"is_error\":true,\"result\":\"API Error: 529\"}\n",
                "Traceback (most recent call last):\n  File \"x.py\", line 1\nMemoryError\n",
                "ERROR: rate limit reached, try again in 2h 30m\n",
                "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory\n",
                "\u{1b}[31merror\u{1b}[0m: ENOSPC: no space left on device\r\n",
            ]),
            run: autopsy,
        },
        Target {
            name: "prompt",
            seeds: texts(&["Do you want to proceed?\n❯ 1. Yes\n  2. No\n", "Continue? [y/N] "]),
            run: |bytes| {
                let text = text(bytes);
                let lines: Vec<&str> = text.lines().collect();
                let _ = prompt_on(&lines);
            },
        },
        Target {
            name: "meters",
            seeds: texts(&[
                "{\"type\":\"assistant\",\"message\":{\"id\":\"m\",\"usage\":{\"input_tokens\":5,\"output_tokens\":7}}}\n",
                "{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":100,\"output_tokens\":3}}\n",
                "Tokens: 4.2k sent, 210 received. Cost: $0.02 message, $0.10 session.\n",
            ]),
            run: |bytes| ignore(outside::meters(bytes)),
        },
        Target {
            name: "otlp",
            seeds: [
                texts(&[
                    r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"claude_code.token.usage","sum":{"aggregationTemporality":1,"dataPoints":[{"asInt":"5","timeUnixNano":"1"}]}}]}]}]}"#,
                ]),
                vec![b"\x0a\x20\x12\x1e\x12\x1c\x0a\x17claude_code.token.usage\x3a\x01\x08".to_vec()],
            ]
            .concat(),
            run: |bytes| ignore(outside::otlp(bytes)),
        },
    ]
}

/// Keeps the compiler from removing the call whose result is not used.
fn ignore<T>(read: T) {
    std::hint::black_box(read);
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn autopsy(bytes: &[u8]) {
    let (zone, exit_codes) = (TimeZone::UTC, BTreeMap::new());
    let now = Wall::from_millis(1_791_374_400_000);
    for kind in [Kind::Claude, Kind::Codex, Kind::Python, Kind::Generic] {
        let status = Status::Exited(1);
        let case = Case {
            kind,
            status,
            oom: false,
            tail: bytes,
            now,
            zone: &zone,
            exit_codes: &exit_codes,
        };
        let _ = AUTOPSY.with(|rules| rules.examine(&case));
    }
}

thread_local! {
    static AUTOPSY: Autopsy = Autopsy::default();
}

/// Frames that a keeper and a daemon send each other.
fn frames() -> Vec<Vec<u8>> {
    let key = || RunKey { agent: Name::parse("a").expect("a name"), run: RunId(1) };
    let frame = |body: Vec<u8>| {
        let length = u32::try_from(body.len()).unwrap_or(0).to_le_bytes();
        [&length[..], &[0], &body].concat()
    };
    let sent = [
        postcard::to_allocvec(&Request::Acknowledge(key())),
        postcard::to_allocvec(&Request::Keep { key: "own/a".into(), bytes: vec![1, 2, 3] }),
        postcard::to_allocvec(&Request::Signal { key: key(), signal: 15 }),
        postcard::to_allocvec(&News::Spawned { key: key(), pid: 7, terminal: false }),
        postcard::to_allocvec(&News::Kept { key: "whole".into(), bytes: vec![0; 9] }),
    ];
    sent.into_iter().flatten().map(frame).collect()
}

/// Both ends of the keeper's channel.
fn keeper(bytes: &[u8]) {
    if let Some(stream) = sent(bytes) {
        let mut channel = Channel::<News, Request>::new(stream.into());
        while let Ok(Some(_)) = channel.receive() {}
    }
    if let Some(stream) = sent(bytes) {
        let mut channel = Channel::<Request, News>::new(stream.into());
        while let Ok(Some(_)) = channel.receive() {}
    }
}

/// The end of a connection at which these bytes have come.
fn sent(bytes: &[u8]) -> Option<UnixStream> {
    let (mut ours, theirs) = UnixStream::pair().ok()?;
    ours.set_nonblocking(true).ok()?;
    // What does not fit is cut off, which is as good as anything.
    let _ = ours.write_all(bytes);
    Some(theirs)
}
