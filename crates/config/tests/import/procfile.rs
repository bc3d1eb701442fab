//! Procfiles, and what becomes of each.

use super::{Row, hold};

const ROWS: &[Row<'_>] = &[
    (
        "01-one.Procfile",
        &[
            ("agent.web", r#"command = "python3 app.py""#),
            ("agent.web", "shell = true"),
            ("agent.web", r#"restart = "always""#),
        ],
        &[],
    ),
    (
        "02-django.Procfile",
        &[
            (
                "agent.web",
                r#"command = "gunicorn shop.wsgi --bind 0.0.0.0:$PORT --workers ${WEB_CONCURRENCY:-2}""#,
            ),
            ("agent.web", r#"restart = "always""#),
            ("agent.web", r#"env = { PORT = "5000" }"#),
            ("agent.web", r#"env_pass = ["WEB_CONCURRENCY?"]"#),
            ("agent.worker", r#"command = "celery -A shop worker --loglevel=info""#),
            ("agent.worker", r#"restart = "always""#),
            ("agent.beat", r#"command = "celery -A shop beat""#),
            ("agent.beat", r#"restart = "always""#),
        ],
        &[
            (2, "`PORT` is given by the runner elsewhere; here it is 5000"),
            (2, "`WEB_CONCURRENCY` is taken from the caller of `up`, and from no .env"),
        ],
    ),
    (
        "03-release-crlf.Procfile",
        &[
            ("agent.release", r#"command = "./manage.py migrate""#),
            ("agent.release", r#"trigger = "manual""#),
            ("agent.release", r#"restart = "never""#),
            ("agent.web", r#"command = "./serve --port $PORT""#),
            ("agent.web", r#"restart = "always""#),
            ("agent.web", r#"env = { PORT = "5100" }"#),
        ],
        &[
            (1, "`release` runs at each release elsewhere, and when it is told to here"),
            (2, "`PORT` is given by the runner elsewhere; here it is 5100"),
        ],
    ),
    (
        "04-shell.Procfile",
        &[
            ("agent.api", r#"command = "cd api && npm start 2>&1 | tee -a api.log""#),
            ("agent.api", r#"restart = "always""#),
            ("agent.jobs", r#"command = "while true; do ./sweep; sleep 60; done""#),
            ("agent.jobs", r#"restart = "always""#),
        ],
        &[],
    ),
    (
        "05-quotes.Procfile",
        &[
            ("agent.web", r#"command = "ruby -e 'puts \"$PORT is not filled in here: #{1}\"'""#),
            ("agent.web", r#"restart = "always""#),
            ("agent.quoted", r#"command = "echo \"a: b\" \\$HOME""#),
            ("agent.quoted", r#"restart = "always""#),
        ],
        &[],
    ),
    (
        "06-broken-lines.Procfile",
        &[
            ("agent.web", r#"command = "./a""#),
            ("agent.web", r#"restart = "always""#),
            ("agent.last", r#"command = "./c""#),
            ("agent.last", r#"restart = "always""#),
        ],
        &[
            (2, "`this line is none` is no line of a Procfile"),
            (3, "`web two: ./b` is no line of a Procfile"),
            (4, "`empty` has no command"),
            (5, "`: ./nameless` is no line of a Procfile"),
        ],
    ),
    (
        "07-bom-no-newline.Procfile",
        &[("agent.web", r#"command = "./serve""#), ("agent.web", r#"restart = "always""#)],
        &[],
    ),
    (
        "08-twice.Procfile",
        &[
            ("agent.web", r#"command = "./first""#),
            ("agent.web", r#"restart = "always""#),
            ("agent.web-2", r#"command = "./second""#),
            ("agent.web-2", r#"restart = "always""#),
        ],
        &[(2, "`web` is called `web-2` here")],
    ),
    (
        "09-variables.Procfile",
        &[
            (
                "agent.bot",
                r#"command = "DEBUG=1 TOKEN=$BOT_TOKEN node bot.js # a comment of the shell""#,
            ),
            ("agent.bot", r#"restart = "always""#),
            ("agent.bot", r#"env_pass = ["BOT_TOKEN?"]"#),
            ("agent.mail", r#"command = "exec ./mail --host=$SMTP_HOST --as \"$USER\"""#),
            ("agent.mail", r#"restart = "always""#),
            ("agent.mail", r#"env_pass = ["SMTP_HOST?"]"#),
        ],
        &[
            (1, "`BOT_TOKEN` is taken from the caller of `up`, and from no .env"),
            (2, "`SMTP_HOST` is taken from the caller of `up`, and from no .env"),
        ],
    ),
    (
        "10-agents.Procfile",
        &[
            ("agent.agent-1", r#"command = "claude -p \"review: $(cat task.md)\"""#),
            ("agent.agent-1", r#"restart = "always""#),
            ("agent.agent_2", r#"command = "codex exec 'fix the build'""#),
            ("agent.agent_2", r#"restart = "always""#),
        ],
        &[],
    ),
    (
        "11-ports.Procfile",
        &[
            ("agent.one", r#"command = "./one -p $PORT""#),
            ("agent.one", r#"restart = "always""#),
            ("agent.one", r#"env = { PORT = "5000" }"#),
            ("agent.two", r#"command = "./two -p ${PORT}""#),
            ("agent.two", r#"restart = "always""#),
            ("agent.two", r#"env = { PORT = "5100" }"#),
            ("agent.three", r#"command = "./three""#),
            ("agent.three", r#"restart = "always""#),
            ("agent.four", r#"command = "./four -p $PORT""#),
            ("agent.four", r#"restart = "always""#),
            ("agent.four", r#"env = { PORT = "5300" }"#),
        ],
        &[
            (1, "`PORT` is given by the runner elsewhere; here it is 5000"),
            (2, "`PORT` is given by the runner elsewhere; here it is 5100"),
            (4, "`PORT` is given by the runner elsewhere; here it is 5300"),
        ],
    ),
];

#[test]
fn every_sample_comes_out_as_meant_and_nothing_is_passed_over_in_silence() {
    hold("procfile", ROWS);
}
