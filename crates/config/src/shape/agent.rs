//! The shape of `[agent.NAME]`, which is also that of `[defaults]`.
//!
//! `command` is not required here, because the defaults may give it; that an agent ends up with
//! one is checked when both are put together.

use crate::words::{
    AgentKind, Burn, CLASSES, GROWTHS, Isolation, Leftovers, MODES, ORDERS, PRESETS, ReadyBy,
    STRATEGIES, THENS, Unmetered, Views, WINDOWS, words_of,
};

use super::format::{
    ANY, CAPABILITY, DURATION, EXIT_CODE, HOST_PORT, LENGTH, LENGTH_OR_OFF, NAME, PATH, SIGNAL,
    SIZE, TEXT, TRIGGER, UMASK, UNIT, URL, VARIABLE, VARIABLES,
};
use super::{Field, Keys, List, Map, Shape, Table, Words};

const MANY: i64 = u32::MAX as i64;

/// A whole number of things, from `min` on.
pub(super) const fn count(min: i64, why: &'static str) -> Shape {
    Shape::Integer { min, max: MANY, why }
}

/// A choice of words, none of them refused.
macro_rules! choice {
    ($what:literal, $words:expr) => {
        Shape::Word(&const { Words { what: $what, all: $words, refused: &[] } })
    };
}
pub(super) use choice;

/// A list of strings in a format.
macro_rules! strings {
    ($format:expr) => {
        strings!($format, None)
    };
    ($format:expr, $empty:expr) => {
        Shape::List(&const { List { items: Shape::Text(&$format), empty: $empty } })
    };
}
pub(super) use strings;

/// A program and its arguments, or a line that is split into them.
pub(super) const COMMAND: Shape = Shape::Either(
    &strings!(ANY, Some("a command needs at least the program's name")),
    &Shape::Text(&TEXT),
);

const NEVER_OVERRIDDEN: &str = "its verdict is never overridden: we ended that run ourselves";

/// The classes that `on` may give another verdict.
const OVERRIDABLE: Words = Words {
    what: "a class of death",
    all: &words_of(&CLASSES),
    refused: &[
        ("stopped", NEVER_OVERRIDDEN),
        ("group", NEVER_OVERRIDDEN),
        (
            "broke",
            "its verdict is never overridden: an empty ledger vetoes every restart until it is funded",
        ),
    ],
};

const ONLY_WE_KNOW: &str =
    "only defib itself can know that; nothing the agent leaves behind says it";

/// The classes that an exit code or a line of output can stand for.
pub(super) const TELLABLE: Words = Words {
    what: "a class of death",
    all: &words_of(&CLASSES),
    refused: &[
        ("voluntary", ONLY_WE_KNOW),
        ("stopped", ONLY_WE_KNOW),
        ("group", ONLY_WE_KNOW),
        ("timeout", ONLY_WE_KNOW),
        ("lost", ONLY_WE_KNOW),
        ("broke", ONLY_WE_KNOW),
    ],
};

/// Units and how much of each.
const AMOUNTS: Shape = Shape::Map(&Map {
    keys: Keys::Text(&UNIT),
    values: Shape::Number { min: 0.0, max: f64::MAX, why: "an amount cannot be negative" },
});

/// What a module has beside all that an agent has.
const OF_MODULES: [Field; 3] = [
    Field::new(
        "runner",
        Shape::Text(&PATH),
        "The script that runs it, with the module's name as its argument, unless `command` says otherwise.",
        r#""watchdog/module_runner.py""#,
    )
    .required(),
    Field::new(
        "package",
        Shape::Text(&PATH),
        "The folder of its package. That of its own name unless set.",
        r#""news""#,
    ),
    Field::new(
        "registry",
        Shape::Text(&PATH),
        "The file in which `MODULE_REGISTRY` lists all modules. The runner unless set.",
        r#""watchdog/registry.py""#,
    ),
];

const MODULE_FIELDS: [Field; OF_MODULES.len() + AGENT.fields.len()] = {
    let mut fields = [OF_MODULES[0]; OF_MODULES.len() + AGENT.fields.len()];
    let mut at = 0;
    while at < fields.len() {
        fields[at] = match at.checked_sub(OF_MODULES.len()) {
            None => OF_MODULES[at],
            Some(at) => AGENT.fields[at],
        };
        at += 1;
    }
    fields
};

/// A module: an agent that a runner script runs, under the `aivex` rule set unless it says otherwise.
pub(crate) const MODULE: Table = Table {
    name: "module",
    doc: "A module that a runner script runs.",
    exactly_one: &[],
    fields: &MODULE_FIELDS,
};

/// An agent, or what all agents of a file have in common.
pub(crate) const AGENT: Table = Table {
    name: "agent",
    doc: "An agent to keep alive.",
    exactly_one: &[],
    fields: &[
        Field::new(
            "command",
            COMMAND,
            "What to run: a list of words, or a string that is split like a shell splits words.",
            r#"["claude", "-p", "review the open PRs"]"#,
        ),
        Field::new(
            "shell",
            Shape::Bool,
            "Whether the command is a string for `/bin/sh -c`.",
            "true",
        )
        .or("false"),
        Field::new(
            "cwd",
            Shape::Text(&PATH),
            "Where it runs, relative to this file. The file's folder unless set.",
            r#""work/reviewer""#,
        ),
        Field::new(
            "env",
            Shape::Map(&Map { keys: Keys::Text(&VARIABLE), values: Shape::Text(&ANY) }),
            "Variables added to a clean environment.",
            r#"{ FOO = "bar" }"#,
        ),
        Field::new(
            "env_pass",
            strings!(VARIABLES),
            "Variables taken from the caller of `up`: a name must be there, `NAME?` need not, `*` stands for anything.",
            r#"["ANTHROPIC_API_KEY", "GITHUB_TOKEN?", "XDG_*"]"#,
        ),
        Field::new("env_file", Shape::Text(&PATH), "A file of further variables.", r#"".env""#),
        Field::new(
            "kind",
            choice!("a kind of agent", AgentKind::LIST),
            "What sort of program it is: whose output is read, and whose sessions are known.",
            r#""claude""#,
        )
        .or(r#""auto""#),
        Field::new(
            "pty",
            Shape::Bool,
            "Whether it gets a terminal of its own, new for every run.",
            "true",
        )
        .or("false"),
        Field::new("enabled", Shape::Bool, "Whether it is started.", "false").or("true"),
        Field::new(
            "user",
            Shape::Text(&TEXT),
            "The user it runs as, when defib is root.",
            r#""agent""#,
        ),
        Field::new(
            "umask",
            Shape::Text(&UMASK),
            "Its file mode creation mask, in octal.",
            r#""022""#,
        ),
        Field::new(
            "preset",
            choice!("a preset", &words_of(&PRESETS)),
            "The rule set its policy starts from.",
            r#""aide""#,
        )
        .or(r#""default""#),
        Field::new(
            "strategy",
            choice!("a strategy", &words_of(&STRATEGIES)),
            "What its group restarts when it dies. The group's own strategy unless set.",
            r#""one-for-all""#,
        ),
        Field::new(
            "restart",
            choice!("a restart mode", &words_of(&MODES)),
            "After which ends it is started again. The preset decides unless set.",
            r#""on-failure""#,
        ),
        Field::new(
            "backoff",
            Shape::Table(&BACKOFF),
            "The delays between restarts. What it leaves out is the preset's.",
            r#"{ base = "1s", cap = "5m" }"#,
        ),
        Field::new(
            "limits",
            Shape::List(&List { items: Shape::Table(&LIMIT), empty: None }),
            "Bounds on deaths and restarts; each may trip. They replace the preset's.",
            r#"[{ deaths = 5, within = "60s" }]"#,
        ),
        Field::new(
            "stable_after",
            Shape::Text(&DURATION),
            "A life this long resets the backoff.",
            r#""60s""#,
        ),
        Field::new(
            "revive_on_boot",
            Shape::Bool,
            "Whether a start of the machine brings it back when it is crashed out.",
            "true",
        )
        .or("false"),
        Field::new(
            "exit_codes",
            Shape::Map(&Map { keys: Keys::Text(&EXIT_CODE), values: Shape::Word(&TELLABLE) }),
            "What a death is, by its exit code.",
            r#"{ 2 = "config", 75 = "quota" }"#,
        ),
        Field::new(
            "on",
            Shape::Map(&Map {
                keys: Keys::Word(&OVERRIDABLE),
                values: choice!("a verdict", &words_of(&ORDERS)),
            }),
            "What follows a death, by its class.",
            r#"{ quota = "wait", config = "halt" }"#,
        ),
        Field::new(
            "resume",
            COMMAND,
            "The command for a respawn, where the session is known; it stands for `{session}`.",
            r#"["claude", "-p", "continue", "--resume", "{session}"]"#,
        ),
        Field::new(
            "trigger",
            Shape::Text(&TRIGGER),
            "What starts it: `boot`, `manual`, or `cron:` and an expression of five or six fields.",
            r#""cron:*/5 * * * *""#,
        )
        .or(r#""boot""#),
        Field::new("max_runtime", Shape::Text(&LENGTH), "The longest life of a run.", r#""6h""#),
        Field::new(
            "heartbeat",
            Shape::Table(&HEARTBEAT),
            "How often it has to show that it lives.",
            r#"{ ttl = "120s", grace = "60s" }"#,
        ),
        Field::new(
            "hang",
            Shape::Table(&HANG),
            "When a silent run counts as hung.",
            r#"{ silent_for = "15m" }"#,
        ),
        Field::new(
            "linger",
            Shape::Text(&LENGTH_OR_OFF),
            "How long a run may go on after the record that ends its work, or `off`. 30s unless set, for the kinds that print such a record.",
            r#""30s""#,
        ),
        Field::new(
            "probe",
            Shape::Table(&PROBE),
            "How its health is asked for from outside.",
            r#"{ http = "http://127.0.0.1:8080/health", every = "10s" }"#,
        ),
        Field::new(
            "ready",
            choice!("a way of being ready", ReadyBy::LIST),
            "Who says that a run is ready.",
            r#""notify""#,
        )
        .or(r#""spawn""#),
        Field::new(
            "after",
            strings!(NAME),
            "The agents that must be ready before it starts; a group stands for its members.",
            r#"["database"]"#,
        ),
        Field::new(
            "stop_signal",
            Shape::Text(&SIGNAL),
            "The signal that asks it to stop.",
            r#""INT""#,
        )
        .or(r#""TERM""#),
        Field::new(
            "stop_timeout",
            Shape::Text(&DURATION),
            "How long it may take to stop before it is killed.",
            r#""30s""#,
        )
        .or(r#""10s""#),
        Field::new(
            "leftovers",
            choice!("an end for leftovers", Leftovers::LIST),
            "What becomes of the processes that a dead run left behind.",
            r#""keep""#,
        )
        .or(r#""kill""#),
        Field::new(
            "account",
            Shape::Text(&TEXT),
            "The credential it uses; agents on one account share quota waits.",
            r#""anthropic-main""#,
        ),
        Field::new(
            "capabilities",
            strings!(CAPABILITY),
            "What it may do. Absent means no sandbox.",
            r#"["read:/", "write:.", "net:443", "exec:/usr/bin"]"#,
        ),
        Field::new(
            "isolation",
            choice!("a sandbox", Isolation::LIST),
            "The sandbox that holds it to its capabilities. Without capabilities it gets an empty list of them.",
            r#""namespaces""#,
        )
        .or(r#""landlock""#),
        Field::new(
            "views",
            choice!("a view", Views::LIST),
            "What it may look at through the daemon's socket, beside what it does for itself.",
            r#""project""#,
        )
        .or(r#""own""#),
        Field::new(
            "limits_os",
            Shape::Table(&LIMITS_OS),
            "What the operating system holds it to.",
            r#"{ memory = "2G", files = 4096 }"#,
        ),
        Field::new(
            "log",
            Shape::Table(&LOG),
            "How much of its output is kept.",
            r#"{ max_size = "50M", keep = 5 }"#,
        ),
        Field::new(
            "budget",
            Shape::Table(&BUDGET),
            "What it may spend.",
            "{ per_day = { usd = 5.0 } }",
        ),
    ],
};

const BACKOFF: Table = Table {
    name: "backoff",
    doc: "The delays between restarts: `base × factor^(n − 1 + first_exponent)`, at most `cap`.",
    exactly_one: &[],
    fields: &[
        Field::new(
            "kind",
            choice!("a kind of backoff", &words_of(&GROWTHS)),
            "How the delays grow.",
            r#""exponential""#,
        ),
        Field::new("base", Shape::Text(&DURATION), "The first delay.", r#""100ms""#),
        Field::new(
            "factor",
            Shape::Number { min: 1.0, max: f64::MAX, why: "under 1 the delays would shrink" },
            "What each delay is multiplied by to give the next.",
            "2.0",
        ),
        Field::new("cap", Shape::Text(&DURATION), "The longest delay.", r#""30s""#),
        Field::new(
            "jitter",
            Shape::Number {
                min: 0.0,
                max: 1.0,
                why: "it is a part of the delay: 0.1 is ten percent either way",
            },
            "The part of a delay by which it varies, either way.",
            "0.1",
        ),
        Field::new(
            "first_exponent",
            count(0, "an exponent counts from 0"),
            "The exponent of the first delay.",
            "1",
        ),
    ],
};

const LIMIT: Table = Table {
    name: "limit",
    doc: "A bound on deaths or restarts; reaching it ends automatic restarts.",
    exactly_one: &["deaths", "restarts"],
    fields: &[
        Field::new(
            "deaths",
            count(1, "with 0 deaths allowed nothing could run"),
            "It trips at this death inside `within`.",
            "5",
        ),
        Field::new(
            "restarts",
            count(0, "a number of restarts cannot be negative; 0 allows none"),
            "So many restarts are allowed; the next one trips it.",
            "10",
        ),
        Field::new(
            "within",
            Shape::Text(&LENGTH),
            "The length of the window that is counted in.",
            r#""60s""#,
        ),
        Field::new(
            "window",
            choice!("a sort of window", &words_of(&WINDOWS)),
            "How the window moves: `rolling` ends now, `tumbling` starts again once it is over.",
            r#""tumbling""#,
        )
        .or(r#""rolling""#),
        Field::new(
            "consecutive",
            Shape::Bool,
            "Whether it counts since the last success, instead of in a window.",
            "true",
        )
        .or("false"),
        Field::new(
            "then",
            choice!("something that can follow", &words_of(&THENS)),
            "What follows when it trips: the agent is crashed out, or its group has failed.",
            r#""escalate""#,
        )
        .or(r#""crash-out""#),
    ],
};

const HEARTBEAT: Table = Table {
    name: "heartbeat",
    doc: "How often an agent has to show that it lives.",
    exactly_one: &[],
    fields: &[
        Field::new(
            "ttl",
            Shape::Text(&LENGTH),
            "The longest silence between two beats.",
            r#""120s""#,
        ),
        Field::new(
            "grace",
            Shape::Text(&DURATION),
            "What is added to it until the first beat of a run.",
            r#""60s""#,
        )
        .or(r#""0s""#),
        Field::new(
            "file",
            Shape::Text(&PATH),
            "The file whose touch is a beat, for an agent with a path of its own.",
            r#""run/alive""#,
        ),
    ],
};

const HANG: Table = Table {
    name: "hang",
    doc: "When a silent run counts as hung.",
    exactly_one: &[],
    fields: &[Field::new(
        "silent_for",
        Shape::Text(&LENGTH),
        "The longest time without output, processor time and activity of children.",
        r#""15m""#,
    )
    .required()],
};

const PROBE: Table = Table {
    name: "probe",
    doc: "How an agent's health is asked for from outside.",
    exactly_one: &["http", "tcp", "exec"],
    fields: &[
        Field::new(
            "http",
            Shape::Text(&URL),
            "A URL that answers while the agent is well.",
            r#""http://127.0.0.1:8080/health""#,
        ),
        Field::new(
            "tcp",
            Shape::Text(&HOST_PORT),
            "An address that takes connections while the agent is well.",
            r#""127.0.0.1:8080""#,
        ),
        Field::new(
            "exec",
            COMMAND,
            "A command that exits with 0 while the agent is well.",
            r#"["curl", "-fsS", "http://127.0.0.1:8080/health"]"#,
        ),
        Field::new("every", Shape::Text(&LENGTH), "How often it is asked.", r#""30s""#)
            .or(r#""10s""#),
        Field::new("timeout", Shape::Text(&LENGTH), "How long an answer may take.", r#""5s""#)
            .or(r#""2s""#),
        Field::new(
            "failures",
            count(1, "with 0 failures allowed nothing could run"),
            "How many failures in a row are a death.",
            "5",
        )
        .or("3"),
    ],
};

const LIMITS_OS: Table = Table {
    name: "limits_os",
    doc: "What the operating system holds an agent to.",
    exactly_one: &[],
    fields: &[
        Field::new("memory", Shape::Text(&SIZE), "The most memory.", r#""2G""#),
        Field::new(
            "processes",
            count(1, "an agent is one process at least"),
            "The most processes.",
            "256",
        ),
        Field::new(
            "files",
            count(3, "a program needs its three standard streams"),
            "The most open files.",
            "4096",
        ),
        Field::new("cpu", Shape::Text(&LENGTH), "The most processor time of a run.", r#""2h""#),
    ],
};

const LOG: Table = Table {
    name: "log",
    doc: "How much of an agent's output is kept.",
    exactly_one: &[],
    fields: &[
        Field::new(
            "max_size",
            Shape::Text(&SIZE),
            "The size at which a file is set aside.",
            r#""100M""#,
        )
        .or(r#""50M""#),
        Field::new(
            "keep",
            count(0, "a number of files cannot be negative"),
            "How many files set aside are kept.",
            "10",
        )
        .or("5"),
    ],
};

const BUDGET: Table = Table {
    name: "budget",
    doc: "What an agent may spend, by unit.",
    exactly_one: &[],
    fields: &[
        Field::new(
            "balance",
            AMOUNTS,
            "The opening balance of its ledger; top it up with `defib fund`.",
            "{ scrip = 100 }",
        ),
        Field::new("per_run", AMOUNTS, "The most it may spend in one run.", "{ tokens = 200_000 }"),
        Field::new("per_day", AMOUNTS, "The most it may spend in one day.", "{ usd = 5.0 }"),
        Field::new(
            "burn",
            choice!("an answer to a burn", Burn::LIST),
            "What is done when it spends far above its own baseline.",
            r#""stop""#,
        )
        .or(r#""notify""#),
        Field::new(
            "unmetered",
            choice!("an answer to a budget that nothing measures", Unmetered::LIST),
            "Whether the agent is started if nothing measures its `usd` or `tokens`. `refuse` unless set under the rule set `default`, `allow` under the others.",
            r#""allow""#,
        ),
    ],
};
