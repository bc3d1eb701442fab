//! The shape of a whole `defib.toml`.
//!
//! Every table has a name of its own, which the schema knows it by.

use crate::words::{AgentKind, Event, STRATEGIES, SmtpTls, words_of};

use super::agent::{AGENT, COMMAND, MODULE, TELLABLE, choice, count, strings};
use super::format::{ANCHORED, LENGTH, LISTEN, NAME, OTLP, PATH, TEXT, URL, VARIABLE};
use super::{Field, Keys, List, Map, Shape, Table, Words};

/// Usd for a million tokens.
const USD: Shape = Shape::Number { min: 0.0, max: f64::MAX, why: "a price cannot be negative" };

/// A `defib.toml`.
pub(crate) const FILE: Table = Table {
    name: "file",
    doc: "What defib keeps alive, and how.",
    exactly_one: &[],
    fields: &[
        Field::new(
            "project",
            Shape::Table(&PROJECT),
            "What this file is about.",
            r#"{ name = "nightshift" }"#,
        ),
        Field::new(
            "defaults",
            Shape::Table(&AGENT),
            "What holds for every agent of this file that does not say otherwise.",
            r#"{ preset = "default" }"#,
        ),
        Field::new(
            "agent",
            Shape::Map(&Map { keys: Keys::Text(&NAME), values: Shape::Table(&AGENT) }),
            "The agents, by name.",
            r#"{ reviewer = { command = "claude -p review" } }"#,
        ),
        Field::new(
            "module",
            Shape::Map(&Map { keys: Keys::Text(&NAME), values: Shape::Table(&MODULE) }),
            "Modules that a runner script runs, by name: agents under the `aivex` rule set.",
            r#"{ news = { runner = "watchdog/module_runner.py" } }"#,
        ),
        Field::new(
            "group",
            Shape::Map(&Map { keys: Keys::Text(&NAME), values: Shape::Table(&GROUP) }),
            "Agents and groups that are restarted together, by name.",
            r#"{ pipeline = { members = ["ingest", "publish"] } }"#,
        ),
        Field::new(
            "rule",
            Shape::List(&List { items: Shape::Table(&RULE), empty: None }),
            "Autopsy rules of your own, tried before the built-in ones.",
            r#"[{ match = "^FATAL: license", class = "config" }]"#,
        ),
        Field::new(
            "notify",
            Shape::Map(&Map { keys: Keys::Text(&NAME), values: Shape::Table(&NOTIFY) }),
            "Who is told of what, by name.",
            r#"{ ops = { webhook = "https://example.org/hook" } }"#,
        ),
        Field::new(
            "server",
            Shape::Table(&SERVER),
            "The daemon's web server.",
            r#"{ listen = "127.0.0.1:7433" }"#,
        ),
        Field::new(
            "history",
            Shape::Table(&HISTORY),
            "The daemon's history.",
            r#"{ keep = "30d" }"#,
        ),
        Field::new(
            "supervisor",
            Shape::Table(&SUPERVISOR),
            "The daemon's own bounds.",
            "{ max_total_restarts = 1000 }",
        ),
        Field::new(
            "metrics",
            Shape::Table(&METRICS),
            "Where the daemon sends its figures. `/metrics` has them in any case.",
            r#"{ otlp = "http://127.0.0.1:4318" }"#,
        ),
        Field::new(
            "prices",
            Shape::Map(&Map { keys: Keys::Text(&TEXT), values: Shape::Table(&PRICE) }),
            "What models cost, by the start of their names. They go before the built-in prices, for agents that print tokens and no cost.",
            r#"{ "gpt-5" = { input = 1.25, output = 10.0, cached = 0.125 } }"#,
        ),
    ],
};

const PROJECT: Table = Table {
    name: "project",
    doc: "What a file is about.",
    exactly_one: &[],
    fields: &[Field::new(
        "name",
        Shape::Text(&NAME),
        "The project's name. The folder's unless set.",
        r#""nightshift""#,
    )],
};

const GROUP: Table = Table {
    name: "group",
    doc: "Agents and groups that are restarted together.",
    exactly_one: &[],
    fields: &[
        Field::new(
            "strategy",
            choice!("a strategy", &words_of(&STRATEGIES)),
            "Who is restarted when a member dies.",
            r#""rest-for-one""#,
        )
        .or(r#""one-for-one""#),
        Field::new(
            "members",
            strings!(NAME, Some("a group needs at least one member")),
            "Its agents and groups, in the order they start.",
            r#"["ingest", "enrich", "publish"]"#,
        )
        .required(),
        Field::new(
            "budget",
            Shape::Either(&Shape::Table(&GROUP_BUDGET), &choice!("`unlimited`", &["unlimited"])),
            "How many restarts it may make before it has failed itself, or `unlimited`.",
            r#"{ restarts = 5, within = "60s" }"#,
        ),
    ],
};

const GROUP_BUDGET: Table = Table {
    name: "group_budget",
    doc: "How many restarts a group may make.",
    exactly_one: &[],
    fields: &[
        Field::new(
            "restarts",
            count(0, "a number of restarts cannot be negative; 0 allows none"),
            "So many restarts are allowed; the next one fails the group.",
            "10",
        )
        .or("5"),
        Field::new(
            "within",
            Shape::Text(&LENGTH),
            "The length of the rolling window that is counted in.",
            r#""5m""#,
        )
        .or(r#""60s""#),
    ],
};

const RULE: Table = Table {
    name: "rule",
    doc: "What a line of an agent's own output says about its death.",
    exactly_one: &[],
    fields: &[
        Field::new(
            "kind",
            Shape::Word(&Words {
                what: "a kind of agent",
                all: AgentKind::LIST,
                refused: &[("auto", "a rule without `kind` is for all agents")],
            }),
            "The sort of program it is for. All of them unless set.",
            r#""generic""#,
        ),
        Field::new(
            "match",
            Shape::Text(&ANCHORED),
            "A regular expression that starts with `^`, for one line.",
            r#""^FATAL: license""#,
        )
        .required(),
        Field::new(
            "class",
            Shape::Word(&TELLABLE),
            "What a match makes of the death.",
            r#""config""#,
        )
        .required(),
    ],
};

const NOTIFY: Table = Table {
    name: "notify",
    doc: "Somebody who is told.",
    exactly_one: &["webhook", "slack", "command", "email", "desktop"],
    fields: &[
        Field::new(
            "on",
            Shape::List(&List {
                items: choice!("an event", Event::LIST),
                empty: Some("leave `on` out for the events that need a person"),
            }),
            "What it is told of.",
            r#"["crashed-out", "halted"]"#,
        )
        .or(r#"["crashed-out", "halted", "escalated", "down", "burn-alarm", "recovered"]"#),
        Field::new(
            "webhook",
            Shape::Text(&URL),
            "A URL that JSON is posted to.",
            r#""https://example.org/hook""#,
        ),
        Field::new(
            "secret_env",
            Shape::Text(&VARIABLE),
            "The variable that holds the secret that a webhook is signed with.",
            r#""DEFIB_WEBHOOK_SECRET""#,
        ),
        Field::new(
            "secret_file",
            Shape::Text(&PATH),
            "The file that holds the secret that a webhook is signed with.",
            r#""webhook.secret""#,
        ),
        Field::new(
            "slack",
            Shape::Text(&URL),
            "The URL of a Slack webhook.",
            r#""https://hooks.slack.com/services/T0/B0/x""#,
        ),
        Field::new(
            "command",
            COMMAND,
            "A command that is run, with the event as JSON on its standard input.",
            r#"["logger", "-t", "defib"]"#,
        ),
        Field::new(
            "email",
            Shape::Table(&EMAIL),
            "Mail that is sent.",
            r#"{ smtp = { host = "mail.example.org", from = "defib@example.org", to = ["ops@example.org"] } }"#,
        ),
        Field::new(
            "desktop",
            Shape::Bool,
            "Whether the desktop shows it; only `true` makes sense.",
            "true",
        ),
        Field::new(
            "cooldown",
            Shape::Text(&super::format::DURATION),
            "How long the same is not told again.",
            r#""1h""#,
        )
        .or(r#""10m""#),
    ],
};

const EMAIL: Table = Table {
    name: "email",
    doc: "Mail that is sent.",
    exactly_one: &[],
    fields: &[Field::new(
        "smtp",
        Shape::Table(&SMTP),
        "How it is sent, and to whom.",
        r#"{ host = "mail.example.org", from = "defib@example.org", to = ["ops@example.org"] }"#,
    )
    .required()],
};

const SMTP: Table = Table {
    name: "smtp",
    doc: "How mail is sent, and to whom.",
    exactly_one: &[],
    fields: &[
        Field::new("host", Shape::Text(&TEXT), "The mail server.", r#""mail.example.org""#)
            .required(),
        Field::new(
            "port",
            Shape::Integer { min: 1, max: 65_535, why: "ports are 1 to 65535" },
            "Its port.",
            "465",
        )
        .or("587"),
        Field::new("user", Shape::Text(&TEXT), "Who logs in there.", r#""defib""#),
        Field::new(
            "password_env",
            Shape::Text(&VARIABLE),
            "The variable that holds the password; a password never stands in this file.",
            r#""SMTP_PASSWORD""#,
        ),
        Field::new(
            "tls",
            choice!("a way to encrypt", SmtpTls::LIST),
            "How the way there is encrypted: `implicit` on port 465 unless set, else `starttls`.",
            r#""starttls""#,
        ),
        Field::new("from", Shape::Text(&TEXT), "The sender.", r#""defib@example.org""#).required(),
        Field::new(
            "to",
            Shape::Either(
                &strings!(TEXT, Some("mail needs somebody to go to")),
                &Shape::Text(&TEXT),
            ),
            "The receivers.",
            r#"["ops@example.org"]"#,
        )
        .required(),
    ],
};

const SERVER: Table = Table {
    name: "server",
    doc: "The daemon's web server.",
    exactly_one: &[],
    fields: &[
        Field::new(
            "listen",
            Shape::Text(&LISTEN),
            "Where it listens, or `off`. The first free port from 7433 on loopback unless set.",
            r#""127.0.0.1:7433""#,
        ),
        Field::new(
            "allow_remote",
            Shape::Bool,
            "Whether it may listen beyond loopback; that needs `tls`.",
            "true",
        )
        .or("false"),
        Field::new(
            "tls",
            Shape::Table(&TLS),
            "The certificate it shows.",
            r#"{ cert = "cert.pem", key = "key.pem" }"#,
        ),
    ],
};

const TLS: Table = Table {
    name: "tls",
    doc: "A certificate and its key.",
    exactly_one: &[],
    fields: &[
        Field::new("cert", Shape::Text(&PATH), "The file of the certificate.", r#""cert.pem""#)
            .required(),
        Field::new("key", Shape::Text(&PATH), "The file of its key.", r#""key.pem""#).required(),
    ],
};

const HISTORY: Table = Table {
    name: "history",
    doc: "The daemon's history.",
    exactly_one: &[],
    fields: &[
        Field::new("keep", Shape::Text(&LENGTH), "How long it is kept.", r#""90d""#).or(r#""30d""#)
    ],
};

const SUPERVISOR: Table = Table {
    name: "supervisor",
    doc: "The daemon's own bounds.",
    exactly_one: &[],
    fields: &[Field::new(
        "max_total_restarts",
        Shape::Integer {
            min: 0,
            max: u32::MAX as i64,
            why: "a number of restarts cannot be negative; 0 allows none",
        },
        "After so many automatic restarts of all agents together, each that dies is crashed out.",
        "1000",
    )],
};

const PRICE: Table = Table {
    name: "price",
    doc: "What a million tokens of a model cost, in usd.",
    exactly_one: &[],
    fields: &[
        Field::new("input", USD, "A million tokens that the model reads.", "1.25").required(),
        Field::new("output", USD, "A million tokens that the model writes.", "10.0").required(),
        Field::new(
            "cached",
            USD,
            "A million tokens that the model reads from its cache. As `input` unless set.",
            "0.125",
        ),
    ],
};

const METRICS: Table = Table {
    name: "metrics",
    doc: "Where the daemon sends its figures.",
    exactly_one: &[],
    fields: &[
        Field::new(
            "otlp",
            Shape::Text(&OTLP),
            "The URL of a receiver of OpenTelemetry over HTTP, without `/v1/metrics`; or `env` for the \
             one that `OTEL_EXPORTER_OTLP_ENDPOINT` names.",
            r#""http://127.0.0.1:4318""#,
        ),
        Field::new(
            "headers_env",
            Shape::Text(&VARIABLE),
            "The variable that holds headers for it, as `key=value,key=value`. With `otlp = \"env\"`, \
             `OTEL_EXPORTER_OTLP_HEADERS` unless set.",
            r#""OTLP_HEADERS""#,
        ),
        Field::new(
            "interval",
            Shape::Text(&LENGTH),
            "How often they are sent: a second or longer.",
            r#""15s""#,
        )
        .or(r#""60s""#),
    ],
};
