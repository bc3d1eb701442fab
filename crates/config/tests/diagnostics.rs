//! Every mistake is told in its words and at its place, and none brings a second one along.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use defib_config::{Report, Severity, parse_in};

/// A source, and what is told of it: `line:column message`, warnings with `warning: ` before them.
type Case<'c> = (&'c str, &'c [&'c str]);

fn told(text: &str) -> Vec<String> {
    let outcome = parse_in(Path::new("/srv/night"), text);
    let errors = outcome.diagnostics.iter().any(|d| d.severity == Severity::Error);
    assert_eq!(outcome.config.is_some(), !errors, "a config is there exactly without errors");
    let report = Report::new("defib.toml", text, &outcome.diagnostics);
    let line = |told: &defib_config::Told<'_>| {
        let warning = if told.severity == Severity::Warning { "warning: " } else { "" };
        format!("{warning}{}:{} {}", told.line, told.column, told.message)
    };
    report.told().iter().map(line).collect()
}

fn check(cases: &[Case<'_>]) {
    for (text, expected) in cases {
        assert_eq!(told(text), *expected, "\n{text}");
    }
}

/// Puts lines into an agent that is otherwise fine; they start at line 3.
fn check_agent(cases: &[Case<'_>]) {
    for (lines, expected) in cases {
        let text = format!("[agent.a]\ncommand = \"x\"\n{lines}\n");
        assert_eq!(told(&text), *expected, "\n{text}");
    }
}

fn help(text: &str) -> String {
    let outcome = parse_in(Path::new("/srv/night"), text);
    outcome.diagnostics[0].help.clone().unwrap()
}

#[test]
fn unknown_keys() {
    check(&[
        ("agnet = 1", &["1:1 unknown key `agnet`"]),
        ("[agent.a]\ncomand = \"x\"", &["2:1 unknown key `comand`"]),
        ("[group.g]\nmembres = []", &["2:1 unknown key `membres`"]),
        ("[project]\nnaem = \"x\"", &["2:1 unknown key `naem`"]),
        // The agent is there, under another roof: whoever waits for it is not wrong.
        (
            "[agnet.a]\ncommand = \"x\"\n[agent.b]\ncommand = \"x\"\nafter = [\"a\"]",
            &["1:2 unknown key `agnet`"],
        ),
    ]);
    check_agent(&[
        ("probe = { htpp = \"http://x\" }", &["3:11 unknown key `htpp`"]),
        ("limits = [{ death = 5, within = \"1m\" }]", &["3:13 unknown key `death`"]),
        ("heartbeat = { tl = \"1m\" }", &["3:15 unknown key `tl`"]),
        ("\"\\u001b[31m\" = 1", &["3:1 unknown key `\\u{1b}[31m`"]),
    ]);
    assert_eq!(help("[agent.a]\ncomand = 1"), "did you mean `command`?");
    assert_eq!(help("[history]\nzzz = 1"), "the keys here are `keep`");
}

#[test]
fn wrong_types() {
    check(&[
        ("agent = 3", &["1:9 `agent` must be a table, not an integer"]),
        ("[agent]\na = 3", &["2:5 `a` must be a table, not an integer"]),
        ("[rule]\nmatch = \"^x\"", &["1:1 `rule` must be a list of tables, not a table"]),
        (
            "[agent.a]\ncommand = 5",
            &["2:11 `command` must be a list of strings or a string, not an integer"],
        ),
        (
            "[agent.a]\ncommand = [\"a\", 3]",
            &["2:17 an item of `command` must be a string, not an integer"],
        ),
    ]);
    check_agent(&[
        ("pty = \"yes\"", &["3:7 `pty` must be `true` or `false`, not a string"]),
        ("stop_timeout = 10", &["3:16 `stop_timeout` must be a duration, not an integer"]),
        ("max_runtime = 2020-01-01", &["3:15 `max_runtime` must be a duration, not a date"]),
        ("env = { A = 1 }", &["3:13 `A` must be a string, not an integer"]),
        (
            "limits_os = { files = 1.5 }",
            &["3:23 `files` must be a whole number, not a number with a fraction"],
        ),
        ("backoff = { factor = \"2\" }", &["3:22 `factor` must be a number, not a string"]),
        ("after = \"b\"", &["3:9 `after` must be a list of strings, not a string"]),
        ("umask = 0o22", &["3:9 `umask` must be an octal mask in quotes, not an integer"]),
    ]);
}

#[test]
fn impossible_values() {
    check_agent(&[
        ("max_runtime = \"0s\"", &["3:15 `max_runtime` cannot be zero"]),
        ("stop_timeout = \"10\"", &["3:16 `stop_timeout` is `10`, which is not a duration"]),
        ("kind = \"claud\"", &["3:8 `kind` is `claud`, which is not a kind of agent"]),
        ("preset = \"aid\"", &["3:10 `preset` is `aid`, which is not a preset"]),
        ("umask = \"9\"", &["3:9 `umask` is `9`, which is not an octal mask"]),
        ("stop_signal = \"TREM\"", &["3:15 `stop_signal` is `TREM`, which is not a signal"]),
        (
            "env = { \"A=B\" = \"c\" }",
            &["3:9 `A=B` is not the name of a variable: it cannot hold '='"],
        ),
        (
            "env = { \"A\\u0000\" = \"c\" }",
            &["3:9 `A\\u{0}` is not the name of a variable: it cannot hold '\\0'"],
        ),
        (
            "env_pass = [\"A=B\"]",
            &["3:13 an item of `env_pass` is not the name of a variable: it cannot hold '='"],
        ),
        ("env_pass = [\"A?B\"]", &["3:13 an item of `env_pass` has a `?` where none can be"]),
        ("cwd = \"\"", &["3:7 `cwd` cannot be empty"]),
        (
            "capabilities = [\"net\", \"net:http\"]",
            &["3:24 an item of `capabilities` is `net:http`, which is not a capability"],
        ),
        ("limits_os = { memory = \"2GB\" }", &["3:24 `memory` is `2GB`, which is not a size"]),
        (
            "limits_os = { processes = 99999999999999999999999 }",
            &["3:27 `processes` must be at most 4294967295"],
        ),
        ("budget = { balance = { usd = -1 } }", &["3:30 `usd` must be at least 0"]),
        ("budget = { per_run = { usd = -0.5 } }", &["3:30 `usd` must be at least 0"]),
        ("budget = { per_day = { usd = nan } }", &["3:30 `usd` must be a finite number"]),
        ("budget = { per_day = { \"2x\" = 1 } }", &["3:24 `2x` is not a unit"]),
    ]);
}

#[test]
fn commands() {
    check(&[
        ("[agent.a]\n", &["1:1 agent `a` has no `command`"]),
        ("[agent.a]\ncommand = []", &["2:11 `command` cannot be empty"]),
        ("[agent.a]\ncommand = [\"\"]", &["2:11 `command` names no program"]),
        ("[agent.a]\ncommand = \" \"", &["2:11 `command` cannot be empty"]),
        ("[agent.a]\ncommand = \"''\"", &["2:11 `command` names no program"]),
        ("[agent.a]\ncommand = \"# x\"", &["2:11 `command` names no program"]),
        ("[agent.a]\ncommand = \"x 'y\"", &["2:11 `command` cannot be split into words"]),
        (
            "[agent.a]\ncommand = [\"x\"]\nshell = true",
            &["2:11 `command` is a list, but `shell = true` takes a string"],
        ),
        (
            "[agent.a]\ncommand = \"a | b\"",
            &["warning: 2:11 `|` is handed to the program as a plain word"],
        ),
        ("[agent.a]\ncommand = \"a | b\"\nshell = true", &[]),
        (
            "[agent.a]\ncommand = \"a '|' b\"",
            &["warning: 2:11 `|` is handed to the program as a plain word"],
        ),
        ("[agent.a]\ncommand = [\"a\", \"|\", \"b\"]", &[]),
    ]);
    // What is told to do can be done where it is told.
    let asked = help("[agent.a]\ncommand = \"a | b\"");
    assert_eq!(asked, "set `shell = true` if a shell shall run it");
    let notify =
        |command: &str| format!("[agent.a]\ncommand = \"x\"\n[notify.a]\ncommand = {command}\n");
    assert_eq!(
        help(&notify("\"a | b\"")),
        "name the shell if one shall run it: `command = [\"sh\", \"-c\", \"…\"]`"
    );
    assert!(told(&notify("[\"sh\", \"-c\", \"a | b\"]")).is_empty());
}

#[test]
fn backoffs() {
    check_agent(&[
        ("backoff = { jitter = 1.5 }", &["3:22 `jitter` must be at most 1"]),
        ("backoff = { jitter = -0.1 }", &["3:22 `jitter` must be at least 0"]),
        ("backoff = { factor = 0.5 }", &["3:22 `factor` must be at least 1"]),
        ("backoff = { factor = inf }", &["3:22 `factor` must be a finite number"]),
        (
            "backoff = { base = \"1m\", cap = \"30s\" }",
            &["3:32 `cap` is 30s, which is less than the first delay of 1m"],
        ),
        (
            "backoff = { base = \"60s\" }",
            &["3:20 `cap` is 30s, which is less than the first delay of 1m"],
        ),
        (
            "backoff = { cap = \"50ms\" }",
            &["3:19 `cap` is 50ms, which is less than the first delay of 100ms"],
        ),
        ("backoff = { kind = \"none\", base = \"60s\" }", &[]),
        ("preset = \"aide\"\nbackoff = { base = \"60s\" }", &[]),
        // What the misspelt preset would have allowed is not held against the rest.
        (
            "preset = \"aied\"\nbackoff = { base = \"60s\" }\nheartbeat = { grace = \"1s\" }",
            &["3:10 `preset` is `aied`, which is not a preset"],
        ),
        (
            "backoff = { base = \"60s\", cap = 5 }",
            &["3:33 `cap` must be a duration, not an integer"],
        ),
        (
            "preset = \"celistra\"\nbackoff = { kind = \"linear\" }",
            &["warning: 4:20 this backoff starts from a delay of zero, so it never waits"],
        ),
    ]);
}

#[test]
fn limits() {
    check_agent(&[
        ("limits = [{ deaths = 0, within = \"1s\" }]", &["3:22 `deaths` must be at least 1"]),
        ("limits = [{ restarts = 0 }]", &[]),
        ("limits = [{ restarts = -1 }]", &["3:24 `restarts` must be at least 0"]),
        ("limits = [{ within = \"60s\" }]", &["3:11 `limit` has none of `deaths` and `restarts`"]),
        (
            "limits = [{ deaths = 1, restarts = 1, within = \"60s\" }]",
            &["3:25 `deaths` and `restarts` exclude each other"],
        ),
        (
            "limits = [{ deaths = 5 }]",
            &["3:13 `deaths` are counted in a rolling window, or since the last success"],
        ),
        ("limits = [{ deaths = 5, within = \"0s\" }]", &["3:34 `within` cannot be zero"]),
        (
            "limits = [{ deaths = 5, within = \"5s\", window = \"tumbling\" }]",
            &["3:13 `deaths` are counted in a rolling window, or since the last success"],
        ),
        ("limits = [{ deaths = 5, consecutive = true }]", &[]),
        (
            "limits = [{ restarts = 1, within = \"1s\", consecutive = true }]",
            &["3:42 `consecutive` and `within` exclude each other"],
        ),
        ("limits = [{ restarts = 1, within = \"1s\", consecutive = false }]", &[]),
        (
            "limits = [{ restarts = 1, window = \"tumbling\" }]",
            &["3:36 a tumbling window needs `within`"],
        ),
        (
            "limits = [{ deaths = 5, within = \"5s\", then = \"escalat\" }]",
            &["3:47 `then` is `escalat`, which is not something that can follow"],
        ),
        (
            "preset = \"celistra\"\nlimits = []",
            &[
                "warning: 4:10 without limits and without backoff a failing agent loops as fast as it can",
            ],
        ),
        ("limits = []", &[]),
    ]);
}

#[test]
fn classes_and_verdicts() {
    check_agent(&[
        ("exit_codes = { 256 = \"config\" }", &["3:16 `256` is not an exit code"]),
        ("exit_codes = { -1 = \"config\" }", &["3:16 `-1` is not an exit code"]),
        (
            "exit_codes = { 4 = \"cofnig\" }",
            &["3:20 `4` is `cofnig`, which is not a class of death"],
        ),
        ("on = { erorr = \"restart\" }", &["3:8 `erorr` is not a class of death"]),
        ("on = { error = \"restat\" }", &["3:16 `error` is `restat`, which is not a verdict"]),
    ]);
    for refused in ["voluntary", "stopped", "group", "timeout", "lost", "broke"] {
        check_agent(&[(
            &format!("exit_codes = {{ 3 = \"{refused}\" }}"),
            &[&format!(
                "3:20 `3` is `{refused}`, which is not a class of death that can be given here"
            )],
        )]);
    }
    for refused in ["stopped", "group", "broke"] {
        check_agent(&[(
            &format!("on = {{ {refused} = \"rest\" }}"),
            &[&format!("3:8 `{refused}` is not a class of death that can be given here")],
        )]);
    }
    for fine in ["voluntary", "timeout", "lost", "done"] {
        check_agent(&[(&format!("on = {{ {fine} = \"rest\" }}"), &[])]);
    }
    let broke = help("[agent.a]\ncommand = \"x\"\non = { broke = \"restart\" }");
    assert!(broke.contains("never overridden") && broke.contains("funded"), "{broke}");
}

#[test]
fn triggers_beats_and_probes() {
    check_agent(&[
        ("trigger = \"bot\"", &["3:11 `trigger` cannot be `bot`"]),
        ("trigger = \"cron:* * * *\"", &["3:11 `trigger` has 4 cron fields instead of five"]),
        (
            "trigger = \"cron:99 * * * *\"",
            &["3:11 `trigger` is not a cron expression: number out of bounds"],
        ),
        ("trigger = \"cron:0 0 31 2 *\"", &["3:11 `trigger` never fires: no day is `0 0 31 2 *`"]),
        ("heartbeat = { grace = \"1s\" }", &["3:13 `heartbeat` has no `ttl`"]),
        ("preset = \"aivex\"\nheartbeat = { grace = \"1s\" }", &[]),
        ("heartbeat = { ttl = \"10ms\" }", &["warning: 3:21 a beat is asked for every 10ms"]),
        ("hang = {}", &["3:8 `silent_for` is missing"]),
        ("probe = {}", &["3:9 `probe` has none of `http`, `tcp` and `exec`"]),
        (
            "probe = { http = \"http://x\", tcp = \"x:1\" }",
            &["3:30 `http` and `tcp` exclude each other"],
        ),
        ("probe = { http = \"localhost\" }", &["3:18 `http` is `localhost`, which is not a URL"]),
        (
            "probe = { tcp = \"localhost\" }",
            &["3:17 `tcp` is `localhost`, which is not a host and a port"],
        ),
        ("probe = { exec = [] }", &["3:18 `exec` cannot be empty"]),
        ("probe = { tcp = \"x:1\", failures = 0 }", &["3:35 `failures` must be at least 1"]),
        ("ready = \"probe\"", &["3:9 `ready = \"probe\"` needs a `probe`"]),
        ("ready = \"probe\"\nprobe = 1", &["4:9 `probe` must be a table, not an integer"]),
    ]);
}

#[test]
fn names() {
    check(&[
        ("[project]\nname = \"a b\"", &["2:8 `name` is `a b`, which is not a name"]),
        ("[agent.\"a b\"]\ncommand = \"x\"", &["1:8 `a b` is not a name"]),
        (
            "[agent.a]\ncommand = \"x\"\n[agent.b]\ncommand = \"x\"\n[group.a]\nmembers = [\"b\"]",
            &["5:8 `a` is both an agent and a group"],
        ),
        ("[agent.a]\ncommand = \"x\"\nafter = [\"b\"]", &["3:10 no agent or group is called `b`"]),
        (
            "[agent.a]\ncommand = \"x\"\n[group.g]\nmembers = [\"a\", \"bb\"]",
            &["4:17 no agent or group is called `bb`"],
        ),
        // A name whose table is wrong is declared all the same.
        (
            "[agent]\na = 3\n[group.g]\nmembers = [\"a\"]",
            &["2:5 `a` must be a table, not an integer"],
        ),
    ]);
    assert_eq!(
        help("[agent.database]\ncommand = \"x\"\n[group.g]\nmembers = [\"databse\"]"),
        "did you mean `database`?"
    );
}

const AB: &str = "[agent.a]\ncommand = \"x\"\n[agent.b]\ncommand = \"x\"\n";

#[test]
fn groups() {
    for (groups, expected) in [
        ("[group.g]\nmembers = []", vec!["6:11 `members` cannot be empty"]),
        ("[group.g]\n", vec!["5:1 `members` is missing"]),
        ("[group.g]\nmembers = [\"a\", \"a\"]", vec!["6:17 `a` is a member twice"]),
        (
            "[group.g]\nmembers = [\"a\"]\n[group.h]\nmembers = [\"b\", \"a\"]",
            vec!["8:17 `a` is a member of two groups"],
        ),
        (
            "[group.g]\nmembers = [\"a\"]\n[group.h]\nmembers = [\"g\"]\n[group.i]\nmembers = [\"g\"]",
            vec!["10:12 `g` is a member of two groups"],
        ),
        ("[group.g]\nmembers = [\"g\"]", vec!["6:12 group `g` is a member of itself"]),
        (
            "[group.g]\nmembers = [\"h\"]\n[group.h]\nmembers = [\"g\"]",
            vec!["6:12 group `h` is inside itself"],
        ),
        (
            "[group.g]\nmembers = [\"a\"]\nstrategy = \"one-for-none\"",
            vec!["7:12 `strategy` is `one-for-none`, which is not a strategy"],
        ),
        ("[group.g]\nmembers = [\"a\", \"h\"]\n[group.h]\nmembers = [\"b\"]", vec![]),
    ] {
        assert_eq!(told(&format!("{AB}{groups}")), expected, "{groups}");
    }
}

#[test]
fn waits() {
    let agents = |waits: &[(&str, &str)], rest: &str| {
        let agent = |(name, after): &(&str, &str)| {
            let after: Vec<_> = after.split_whitespace().map(|a| format!("\"{a}\"")).collect();
            format!("[agent.{name}]\ncommand = \"x\"\nafter = [{}]\n", after.join(", "))
        };
        waits.iter().map(agent).collect::<String>() + rest
    };
    for (text, expected) in [
        (agents(&[("a", "a")], ""), vec!["3:10 `a` waits for itself"]),
        (
            agents(&[("a", "b"), ("b", "a")], ""),
            vec!["3:10 `a` waits for `b`, which waits for `a`"],
        ),
        // Who only leads to a cycle is not part of it.
        (
            agents(&[("c", "a"), ("a", "b"), ("b", "a")], ""),
            vec!["6:10 `a` waits for `b`, which waits for `a`"],
        ),
        (
            agents(&[("a", "g")], "[group.g]\nmembers = [\"a\"]"),
            vec!["3:10 `a` waits for `g`, which waits for `a`"],
        ),
        (
            agents(&[("a", "b"), ("b", "")], "[group.g]\nmembers = [\"a\", \"b\"]"),
            vec!["3:10 `a` waits for `b`, which its group starts later"],
        ),
        (
            agents(
                &[("a", "h"), ("b", "")],
                "[group.g]\nmembers = [\"a\", \"h\"]\n[group.h]\nmembers = [\"b\"]",
            ),
            vec!["3:10 `a` waits for `h`, which its group starts later"],
        ),
        (agents(&[("a", ""), ("b", "a")], "[group.g]\nmembers = [\"a\", \"b\"]"), vec![]),
        // Two groups that wait for each other only through the order of their members.
        (
            agents(
                &[("a", "d"), ("b", ""), ("c", "b"), ("d", "")],
                "[group.g]\nmembers = [\"a\", \"b\"]\n[group.h]\nmembers = [\"c\", \"d\"]",
            ),
            vec![
                "3:10 `a` waits for `d`, which waits for `c`, which waits for `b`, which waits for `a`",
            ],
        ),
        (
            agents(&[("a", "b")], "[agent.b]\ncommand = \"x\"\nenabled = false"),
            vec!["warning: 3:10 `b` is waited for, but it is not enabled"],
        ),
    ] {
        assert_eq!(told(&text), expected, "{text}");
    }
}

#[test]
fn notifications() {
    check(&[
        (
            "[notify.a]",
            &["1:1 `notify` has none of `webhook`, `slack`, `command`, `email` and `desktop`"],
        ),
        (
            "[notify.a]\nwebhook = \"https://x\"\nslack = \"https://x\"",
            &["3:1 `webhook` and `slack` exclude each other"],
        ),
        ("[notify.a]\nwebhook = \"x\"", &["2:11 `webhook` is `x`, which is not a URL"]),
        ("[notify.a]\ndesktop = false", &["2:11 `desktop = false` tells nobody"]),
        (
            "[notify.a]\ndesktop = true\non = [\"crashed_out\"]",
            &["3:7 an item of `on` is `crashed_out`, which is not an event"],
        ),
        (
            "[notify.a]\nemail = { smtp = { host = \"h\", from = \"f\" } }",
            &["2:18 `to` is missing"],
        ),
        (
            "[notify.a.email.smtp]\nhost = \"h\"\nfrom = \"f\"\nto = \"t\"\nport = 0",
            &["5:8 `port` must be at least 1"],
        ),
        (
            "[notify.a]\nslack = \"https://x\"\nsecret_env = \"S\"",
            &["3:1 `secret_env` is for a `webhook`"],
        ),
        (
            "[notify.a]\nwebhook = \"https://x\"\nsecret_env = \"S\"\nsecret_file = \"s\"",
            &["4:1 `secret_env` and `secret_file` exclude each other"],
        ),
        (
            "[notify.a.email.smtp]\nhost = \"h\"\nfrom = \"f\"\nto = \"t\"\ntls = \"off\"\npassword_env = \"P\"",
            &["5:7 with `tls = \"off\"` the password could be read on its way"],
        ),
    ]);
}

#[test]
fn the_daemons_own_tables() {
    check(&[
        (
            "[server]\nlisten = \"localhost:80\"",
            &["2:10 `listen` is `localhost:80`, which is not an address"],
        ),
        ("[server]\nlisten = \"0.0.0.0:80\"", &["2:10 `listen` is not a loopback address"]),
        (
            "[server]\nlisten = \"0.0.0.0:80\"\nallow_remote = false",
            &["2:10 `listen` is not a loopback address"],
        ),
        ("[server]\nallow_remote = true", &["2:16 `allow_remote` needs `tls`"]),
        ("[server]\ntls = { cert = \"a\" }", &["2:7 `key` is missing"]),
        (
            "[supervisor]\nmax_total_restarts = -1",
            &["2:22 `max_total_restarts` must be at least 0"],
        ),
        ("[history]\nkeep = \"0s\"", &["2:8 `keep` cannot be zero"]),
        (
            "[metrics]\notlp = \"localhost:4318\"",
            &["2:8 `otlp` is `localhost:4318`, which is not a URL"],
        ),
        ("[metrics]\ninterval = \"5s\"", &["2:1 `interval` is for `otlp`"]),
        (
            "[metrics]\notlp = \"env\"\ninterval = \"20ms\"",
            &["3:12 `interval` is shorter than a second"],
        ),
    ]);
}

#[test]
fn rules() {
    check(&[
        (
            "[[rule]]\nmatch = \"FATAL\"\nclass = \"config\"",
            &["2:9 `match` is not anchored: it could match inside other text"],
        ),
        (
            "[[rule]]\nmatch = \"^(\"\nclass = \"config\"",
            &["2:9 `match` is not a regular expression: found open group without closing ')'"],
        ),
        (
            "[[rule]]\nmatch = \"^x\"\nclass = \"conifg\"",
            &["3:9 `class` is `conifg`, which is not a class of death"],
        ),
        ("[[rule]]\nclass = \"config\"", &["1:1 `match` is missing"]),
        ("[[rule]]\nmatch = \"^x\"", &["1:1 `class` is missing"]),
        (
            "[[rule]]\nkind = \"auto\"\nmatch = \"^x\"\nclass = \"config\"",
            &["2:8 `kind` is `auto`, which is not a kind of agent that can be given here"],
        ),
    ]);
}

#[test]
fn after_a_syntax_error_nothing_else_is_judged() {
    check(&[
        ("a = 1\na = 2", &["2:1 duplicate key `a`"]),
        ("[agent.a]\ncomand = 1\nx = \n", &["3:5 string values must be quoted"]),
        ("[agent.a]\nx = tru\ny = 1.2.3\n", &["2:5 invalid boolean", "3:8 invalid float"]),
    ]);
}

#[test]
fn a_mistake_in_the_defaults_is_told_once() {
    check(&[(
        &format!("[defaults]\nbackoff = {{ base = \"2m\" }}\n{AB}"),
        &["2:20 `cap` is 30s, which is less than the first delay of 2m"],
    )]);
}

#[test]
fn columns_are_where_an_editor_puts_them() {
    check(&[
        ("\u{feff}agnet = 1", &["1:1 unknown key `agnet`"]),
        (
            "[agent.a]\r\ncommand = \"x\"\r\npty = 1\r\n",
            &["3:7 `pty` must be `true` or `false`, not an integer"],
        ),
        (
            "[agent.a]\n\tcommand = 1",
            &["2:12 `command` must be a list of strings or a string, not an integer"],
        ),
        (
            "[agent.\"ä\"]\nenv = { \"é\" = \"ü\", B = 1 }\ncommand = \"x\"",
            &["2:24 `B` must be a string, not an integer"],
        ),
    ]);
}

#[test]
fn an_empty_file_is_valid_but_hardly_meant() {
    check(&[
        ("", &["warning: 1:1 no agent is declared"]),
        ("\u{feff}", &["warning: 1:1 no agent is declared"]),
        ("# nothing\n", &["warning: 1:1 no agent is declared"]),
    ]);
}

#[test]
fn variable_longer_than_the_kernel_allows_is_an_error() {
    let most = (128 << 10) - "BIG=\0".len();
    let file = |length| format!("env = {{ BIG = \"{}\" }}", "a".repeat(length));
    let message = "3:15 `BIG` is longer than the 128 KiB that the kernel allows";
    check_agent(&[(&file(most), &[]), (&file(most + 1), &[message])]);
}
