//! Files of supervisord, and what becomes of each.

use super::{Row, hold};

const ROWS: &[Row<'_>] = &[
    (
        "01-minimal.conf",
        &[
            ("agent.cat", r#"command = ["/bin/cat"]"#),
            ("agent.cat", r#"restart = "on-failure""#),
            ("agent.cat", r#"stable_after = "1s""#),
            ("agent.cat", "limits = [{ restarts = 3, consecutive = true }]"),
            (
                "agent.cat",
                r#"backoff = { kind = "linear", base = "1s", cap = "3s", jitter = 0.0 }"#,
            ),
            ("agent.cat", r#"stop_timeout = "10s""#),
        ],
        &[],
    ),
    (
        "02-full.conf",
        &[
            ("defaults", r#"env = { STAGE = "prod", REGION = "eu" }"#),
            ("defaults", r#"umask = "027""#),
            (
                "agent.web",
                r#"command = ["/usr/bin/gunicorn", "shop.wsgi:app", "--name", "the shop"]"#,
            ),
            ("agent.web", r#"cwd = "/srv/shop""#),
            ("agent.web", r#"env = { PYTHONUNBUFFERED = "1", LABEL = "a,b" }"#),
            ("agent.web", r#"restart = "always""#),
            ("agent.web", r#"stable_after = "5s""#),
            ("agent.web", "limits = [{ restarts = 7, consecutive = true }]"),
            (
                "agent.web",
                r#"backoff = { kind = "linear", base = "1s", cap = "7s", jitter = 0.0 }"#,
            ),
            ("agent.web", r#"stop_signal = "INT""#),
            ("agent.web", r#"stop_timeout = "30s""#),
            ("agent.web", r#"user = "www-data""#),
            ("agent.web", r#"log = { max_size = "10M", keep = 4 }"#),
        ],
        &[
            (3, "`logfile` has no equal: the daemon logs to its home"),
            (4, "`nodaemon` has no equal: `defib up` stays in front, `defib up --detach` does not"),
            (
                19,
                "`stdout_logfile` has no equal: `defib logs` shows what was written to `/var/log/web.log`",
            ),
        ],
    ),
    (
        "03-numprocs.conf",
        &[
            (
                "agent.worker_01",
                r#"command = ["/srv/worker", "--slot", "1", "--log", "/tmp/worker-01.log"]"#,
            ),
            ("agent.worker_01", r#"restart = "on-failure""#),
            (
                "agent.worker_02",
                r#"command = ["/srv/worker", "--slot", "2", "--log", "/tmp/worker-02.log"]"#,
            ),
            ("agent.worker_02", r#"restart = "on-failure""#),
            (
                "agent.worker_03",
                r#"command = ["/srv/worker", "--slot", "3", "--log", "/tmp/worker-03.log"]"#,
            ),
            ("agent.worker_03", r#"restart = "on-failure""#),
            ("group.worker", r#"members = ["worker_01", "worker_02", "worker_03"]"#),
            ("group.worker", r#"budget = "unlimited""#),
        ],
        &[],
    ),
    (
        "04-environment.conf",
        &[
            (
                "agent.bot",
                r#"command = "exec env PATH=\"${HOME}/bin:${PATH}\" HOST=\"$(uname -n)\" \"${HOME}/bin/bot\" --token \"${BOT_TOKEN}\" --rate '50%'""#,
            ),
            ("agent.bot", r#"env = { MODE = "night", NOTE = "it's" }"#),
            ("agent.bot", r#"env_pass = ["BOT_TOKEN"]"#),
            ("agent.bot", r#"restart = "on-failure""#),
        ],
        &[],
    ),
    (
        "05-groups.conf",
        &[
            ("agent.shop-0", r#"command = ["/bin/web"]"#),
            ("agent.shop-0", r#"restart = "on-failure""#),
            ("agent.shop-1", r#"command = ["/bin/web"]"#),
            ("agent.shop-1", r#"restart = "on-failure""#),
            ("agent.queue", r#"command = ["/bin/queue"]"#),
            ("agent.queue", r#"restart = "on-failure""#),
            ("agent.late", r#"command = ["/bin/late"]"#),
            ("agent.late", r#"restart = "on-failure""#),
            ("group.shop", r#"members = ["shop-0", "shop-1", "queue"]"#),
            ("group.shop", r#"budget = "unlimited""#),
        ],
        &[(19, "there is no program `nobody`")],
    ),
    (
        "06-exit-codes.conf",
        &[
            ("agent.unexpected", r#"command = ["/bin/a"]"#),
            ("agent.unexpected", r#"restart = "on-failure""#),
            ("agent.unexpected", r#"exit_codes = { 2 = "done", 75 = "done" }"#),
            ("agent.never", r#"command = ["/bin/b"]"#),
            ("agent.never", r#"restart = "never""#),
            ("agent.nozero", r#"command = ["/bin/c"]"#),
            ("agent.nozero", r#"restart = "on-failure""#),
            ("agent.nozero", r#"exit_codes = { 3 = "done", 0 = "error" }"#),
            ("agent.nozero", r#"stable_after = "0s""#),
            ("agent.nozero", "limits = [{ restarts = 0, consecutive = true }]"),
            (
                "agent.nozero",
                r#"backoff = { kind = "linear", base = "1s", cap = "1s", jitter = 0.0 }"#,
            ),
        ],
        &[],
    ),
    (
        "07-whole-server.conf",
        &[("agent.app", r#"command = ["/bin/app"]"#), ("agent.app", r#"restart = "on-failure""#)],
        &[
            (
                1,
                "`[unix_http_server]` has no equal: the daemon has a socket of its own in its home",
            ),
            (3, "`[inet_http_server]` has no equal: `[server] listen` says where defib listens"),
            (5, "`[supervisorctl]` has no equal: `defib status` and the like need no settings"),
            (7, "`[rpcinterface:supervisor]` has no equal: the API is at /api/v1"),
            (9, "`[include]` has no equal: import the files that it names one by one"),
            (
                11,
                "`[eventlistener:mail]` has no equal: `[notify.NAME]` and `defib events -f --json` tell of events",
            ),
            (13, "`[fcgi-program:php]` has no equal: no socket is shared between agents"),
        ],
    ),
    (
        "08-unknown-keys.conf",
        &[
            ("agent.app", r#"command = ["/bin/app", "--twice"]"#),
            ("agent.app", r#"restart = "on-failure""#),
        ],
        &[
            (1, "`stray=1` stands before the first section"),
            (4, "`autorestrat` is not understood in a program"),
            (5, "`stopwaitsecs` is `soon`, which is no whole number"),
            (
                6,
                "`stdout_events_enabled` has no equal: `defib events` tells of decisions, `defib logs -f` of output",
            ),
            (
                8,
                "`stopasgroup` has no equal: the stop signal goes to the program itself; what it leaves behind is killed",
            ),
            (9, "`just words` is no key with a value"),
            (10, "`command` is set a second time; this one counts"),
            (11, "`[programm:typo]` is not understood"),
        ],
    ),
    (
        "09-comments.conf",
        &[
            ("agent.a", r#"command = ["/bin/a;b"]"#),
            ("agent.a", r#"env = { A = "1", B = "two words" }"#),
            ("agent.a", r#"restart = "on-failure""#),
            ("agent.a", r#"stop_signal = "USR1""#),
            ("agent.b-c-d", r#"command = ["sh", "-c", "echo 'a; b' | cat"]"#),
            ("agent.b-c-d", r#"trigger = "manual""#),
            ("agent.b-c-d", r#"restart = "on-failure""#),
            ("agent.b-c-d", r#"umask = "022""#),
        ],
        &[(9, "`b c/d` is called `b-c-d` here")],
    ),
    (
        "10-tails.conf",
        &[
            ("defaults", r#"cwd = "/srv""#),
            ("agent.tail", r#"command = ["/usr/bin/tail", "-n", "5", "-f", "/var/log/syslog"]"#),
            ("agent.tail", r#"restart = "on-failure""#),
        ],
        &[
            (
                3,
                "`identifier` has no equal: the project is called by its folder, or by `[project] name`",
            ),
            (4, "`user` has no equal: defib runs as whoever starts it; an agent may have a `user`"),
            (5, "`colour` is not understood in [supervisord]"),
            (
                12,
                "`stderr_logfile` has no equal: both outputs are kept together, in order: `defib logs NAME`",
            ),
            (
                13,
                "`stderr_logfile_maxbytes` has no equal: both outputs are kept together: `log = { max_size = … }`",
            ),
            (14, "a log without a bound is not supported"),
            (15, "`serverurl` has no equal: an agent finds its daemon by DEFIB_SOCKET"),
        ],
    ),
    (
        "11-crlf.conf",
        &[
            ("agent.win", r#"command = ["python", "-c", "print(1)"]"#),
            ("agent.win", r#"restart = "on-failure""#),
        ],
        &[
            (3, "`autorestart` is `maybe`, which it cannot be"),
            (4, "`startsecs` is `%(oops)s`, which is no whole number"),
        ],
    ),
    (
        "12-odd-values.conf",
        &[("agent.web-999", r#"command = ["web"]"#), ("agent.bot", r#"command = ["bot"]"#)],
        &[
            (3, "`priority` is no whole number"),
            (4, "`numprocs` is 2000; here it is 1000"),
            (10, "`startretries` is `often`, which is no whole number"),
            (14, "`priority` is no whole number"),
        ],
    ),
];

#[test]
fn every_sample_comes_out_as_meant_and_nothing_is_passed_over_in_silence() {
    hold("supervisord", ROWS);
}
