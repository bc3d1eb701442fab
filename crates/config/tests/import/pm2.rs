//! Ecosystems of PM2, and what becomes of each.

use super::{Row, hold};

const ROWS: &[Row<'_>] = &[
    (
        "01-one.json",
        &[
            ("agent.web", r#"command = ["node", "app.js"]"#),
            ("agent.web", r#"restart = "always""#),
            ("agent.web", r#"stable_after = "1s""#),
            ("agent.web", "limits = [{ restarts = 16, consecutive = true }]"),
            ("agent.web", r#"backoff = { kind = "none" }"#),
            ("agent.web", r#"stop_timeout = "1s600ms""#),
            ("agent.web", r#"stop_signal = "INT""#),
        ],
        &[],
    ),
    (
        "02-object.json",
        &[
            (
                "agent.bot",
                r#"command = ["/usr/bin/python3.11", "./bot.py", "--mode", "night shift", "-v"]"#,
            ),
            ("agent.bot", r#"cwd = "/srv/bot""#),
            ("agent.bot", r#"restart = "always""#),
        ],
        &[],
    ),
    (
        "03-comments.json",
        &[
            (
                "agent.api",
                r#"command = ["node", "--max-old-space-size=512", "dist/main.js", "--port", "8080", "// no comment"]"#,
            ),
            ("agent.api", r#"restart = "always""#),
        ],
        &[],
    ),
    (
        "04-policy.json",
        &[
            ("agent.fixed", r#"command = ["node", "a.js"]"#),
            ("agent.fixed", r#"restart = "always""#),
            ("agent.fixed", r#"stable_after = "10s""#),
            ("agent.fixed", "limits = [{ restarts = 4, consecutive = true }]"),
            (
                "agent.fixed",
                r#"backoff = { kind = "fixed", base = "4s", cap = "4s", jitter = 0.0 }"#,
            ),
            ("agent.fixed", r#"stop_timeout = "3s""#),
            ("agent.grows", r#"command = ["node", "b.js"]"#),
            ("agent.grows", r#"restart = "always""#),
            ("agent.grows", "limits = [{ restarts = 50, consecutive = true }]"),
            (
                "agent.grows",
                r#"backoff = { kind = "exponential", base = "100ms", factor = 1.5, cap = "15s", jitter = 0.0 }"#,
            ),
            ("agent.once", r#"command = ["bash", "c.sh"]"#),
            ("agent.once", r#"restart = "never""#),
            ("agent.nightly", r#"command = ["python3", "d.py"]"#),
            ("agent.nightly", r#"restart = "never""#),
            ("agent.nightly", r#"trigger = "cron:0 3 * * *""#),
            ("agent.recycled", r#"command = ["node", "e.js"]"#),
            ("agent.recycled", r#"restart = "always""#),
        ],
        &[(7, "`cron_restart` has no equal: a running agent is not restarted by the clock")],
    ),
    (
        "05-instances.json",
        &[
            ("agent.web-0", r#"command = ["node", "server.js"]"#),
            (
                "agent.web-0",
                r#"env = { PORT = "3000", RATIO = "1.10", DEBUG = "true", NODE_APP_INSTANCE = "0" }"#,
            ),
            ("agent.web-0", r#"restart = "always""#),
            ("agent.web-1", r#"command = ["node", "server.js"]"#),
            (
                "agent.web-1",
                r#"env = { PORT = "3000", RATIO = "1.10", DEBUG = "true", NODE_APP_INSTANCE = "1" }"#,
            ),
            ("agent.web-1", r#"restart = "always""#),
            ("agent.web-2", r#"command = ["node", "server.js"]"#),
            (
                "agent.web-2",
                r#"env = { PORT = "3000", RATIO = "1.10", DEBUG = "true", NODE_APP_INSTANCE = "2" }"#,
            ),
            ("agent.web-2", r#"restart = "always""#),
            ("agent.max", r#"command = ["node", "w.js"]"#),
            ("agent.max", r#"restart = "always""#),
            ("agent.two-0", r#"command = ["node", "x.js"]"#),
            ("agent.two-0", r#"env = { NODE_APP_INSTANCE = "0" }"#),
            ("agent.two-0", r#"restart = "always""#),
        ],
        &[
            (3, "`exec_mode` has no equal: instances are processes of their own and share no port"),
            (4, "`instances` is `max`; here it is 1"),
        ],
    ),
    (
        "06-environments.json",
        &[
            ("agent.shop", r#"command = ["node", "shop.js"]"#),
            ("agent.shop", r#"env = { NODE_ENV = "development", QUOTE = "a \"b\" $c" }"#),
            ("agent.shop", r#"restart = "always""#),
            ("agent.shop", r#"limits_os = { memory = "300M" }"#),
        ],
        &[
            (6, "`env_production` counts with `--env production` only, and is left out"),
            (7, "`env_staging` counts with `--env staging` only, and is left out"),
            (
                8,
                "`max_memory_restart` becomes a bound of the system's: a run that passes it is killed, not asked",
            ),
            (9, "`watch` has no equal: agents are not restarted when files change"),
            (10, "`ignore_watch` has no equal: agents are not restarted when files change"),
            (11, "`out_file` has no equal: output is kept in the daemon's home: `defib logs NAME`"),
            (12, "`error_file` has no equal: both outputs are kept together, in order"),
            (14, "`deploy` has no equal: nothing is deployed"),
        ],
    ),
    (
        "07-exit-codes.json",
        &[
            ("agent.alone", r#"command = ["node", "a.js"]"#),
            ("agent.alone", r#"restart = "always""#),
            ("agent.alone", r#"exit_codes = { 3 = "config", 143 = "config" }"#),
            ("agent.alone", r#"on = { config = "rest" }"#),
            ("agent.clean", r#"command = ["node", "b.js"]"#),
            ("agent.clean", r#"restart = "on-failure""#),
            ("agent.clean", r#"exit_codes = { 7 = "done" }"#),
            ("agent.single", r#"command = ["node", "c.js"]"#),
            ("agent.single", r#"restart = "always""#),
            ("agent.single", r#"exit_codes = { 5 = "config" }"#),
            ("agent.single", r#"on = { config = "rest" }"#),
            ("agent.never", r#"command = ["node", "d.js"]"#),
            ("agent.never", r#"restart = "never""#),
            ("agent.never", r#"exit_codes = { 9 = "done" }"#),
        ],
        &[],
    ),
    (
        "08-unknown.json",
        &[
            ("agent.a-b-c", r#"command = ["npm", "run", "start", "--", "--color", "light blue"]"#),
            ("agent.a-b-c", r#"restart = "always""#),
            ("agent.a-b-c", r#"user = "www-data""#),
        ],
        &[
            (4, "`a b/c` is called `a-b-c` here"),
            (7, "`max_restart` is not understood in an app"),
            (8, "`colour` is not understood in an app"),
            (9, "`kill_timeout` is no number of milliseconds"),
            (10, "`instances` is `0`; here it is 1"),
            (
                11,
                r#"`wait_ready` has no equal: a program says READY=1 on NOTIFY_SOCKET: `ready = "notify"`"#,
            ),
            (13, "`gid` has no equal: an agent has its user's groups"),
            (16, "`appz` is not understood in an ecosystem"),
        ],
    ),
    (
        "09-bare-app.json",
        &[
            ("agent.worker", r#"command = ["bash", "./worker.sh"]"#),
            ("agent.worker", r#"restart = "always""#),
            ("agent.worker", r#"trigger = "manual""#),
        ],
        &[],
    ),
    (
        "10-process.yml",
        &[
            ("agent.web", r#"command = ["node", "--enable-source-maps", "./server.mjs"]"#),
            ("agent.web", r#"env = { VERSION = "1.10", FLAG = "yes" }"#),
            ("agent.web", r#"restart = "always""#),
            ("agent.daemon", r#"command = ["bin/daemon", "-p", "8080"]"#),
            ("agent.daemon", r#"restart = "always""#),
        ],
        &[],
    ),
    (
        "11-twice.json",
        &[
            ("agent.x", r#"command = ["node", "a.js"]"#),
            ("agent.x", r#"restart = "always""#),
            ("agent.x-2", r#"command = ["ruby", "b.rb"]"#),
            ("agent.x-2", r#"restart = "always""#),
            ("agent.site", r#"command = ["php", "php/site.php"]"#),
            ("agent.site", r#"restart = "always""#),
        ],
        &[(1, "`x` is called `x-2` here")],
    ),
    (
        "12-odd-values.json",
        &[
            ("agent.open", r#"command = ["serve", "'night", "shift", "--port", "80"]"#),
            ("agent.bare", r#"command = ["./agent", "--say", "\"hi"]"#),
            ("agent.many", r#"command = ["node", "a.js"]"#),
        ],
        &[
            (3, "`script` has a quote that is not closed"),
            (7, "`interpreter_args` is for an interpreter, and this script has none"),
            (8, "`args` has a quote that is not closed"),
            (10, "`instances` is `some`; here it is 1"),
            (10, "`min_uptime` is no number of milliseconds"),
        ],
    ),
];

#[test]
fn every_sample_comes_out_as_meant_and_nothing_is_passed_over_in_silence() {
    hold("pm2", ROWS);
}
