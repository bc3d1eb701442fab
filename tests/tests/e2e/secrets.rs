//! What an agent is given in secret is nowhere but in that agent.

use std::fmt::Write as _;

use defib_e2e::{Bench, Web, await_some, defib_path, proc};

use crate::bench;
use crate::doors::files;

const PASSED: &str = "planted-in-the-environment-5c1d";
const FILED: &str = "planted-in-a-file-77ab";
const RULE: &str =
    "[[rule]]\nkind = \"generic\"\nmatch = \"^FATAL: license\"\nclass = \"config\"\n";

#[test]
fn planted_secrets_are_found_nowhere() {
    let mut bench = bench();
    bench.set("PLANTED", PASSED);
    std::fs::write(bench.project().join(".env"), format!("FILED={FILED}\n")).unwrap();
    let settings = "env_pass = [\"PLANTED\"]\nenv_file = \".env\"\n";
    // It writes and says them, in ways that end up in evidence, tails and what is shown of it.
    let says = format!("{} self status 'with '$PLANTED", defib_path().display());
    let shell = |name: &str, line: &str| {
        format!("[agent.{name}]\ncommand = [\"/bin/sh\", \"-c\", \"{line}\"]\n{settings}")
    };
    let events = bench.up(&[
        shell("dies", &format!("{says}; echo FATAL: license $FILED is not $PLANTED; exit 1")),
        shell("lives", &format!("{says}; exec sleep 1000")),
        RULE.to_owned(),
    ]);
    events.of("dies", "halted");
    bench.await_status("lives", |status| status["status_text"].is_string());
    bench.kill_daemon();
    let token = bench.defib(&["token", "new", "--role", "admin"]).good().out;
    let web = Web::of(&bench);
    let who = format!("Authorization: Bearer {}", token.trim());
    let mut told = String::new();
    for path in [
        "agents",
        "agents/dies",
        "events",
        "history",
        "daemon",
        "audit",
        "tokens",
        "agents/dies/runs/1/tail",
        "agents/dies/ledger",
    ] {
        let answer = web.ask(&format!("GET /api/v1/{path}"), &[&who], "");
        assert_eq!(answer.code, 200, "{path}: {answer:?}");
        writeln!(told, "{path}: {}", answer.body).unwrap();
    }
    for words in [&["why", "dies"][..], &["status"], &["history"], &["events"], &["audit"]] {
        writeln!(told, "{words:?}: {}", bench.defib(words).good().out).unwrap();
    }
    for line in ["with [redacted]", "FATAL: license [redacted] is not [redacted]"] {
        assert!(told.contains(line), "there was something to find: {told}");
    }
    let (keeper, daemon) = bench.who();
    // What agents wrote is theirs, and so is what they were started with.
    let of_agents = |path: &std::path::Path| path.starts_with(bench.home().join("logs"));
    await_some("all of it on disk", || {
        let history = bench.history("dies");
        history.iter().all(|run| run["death"].is_object()).then_some(())
    });
    for secret in [PASSED, FILED] {
        for line in told.lines() {
            assert!(!line.contains(secret), "{line}");
        }
        for (path, bytes) in files(&bench.home()) {
            if !of_agents(&path) {
                assert!(!proc::holds(&bytes, secret), "{} has {secret}", path.display());
            }
        }
        for pid in [keeper, daemon] {
            for file in ["environ", "cmdline"] {
                // Who is not root may not even look.
                let is_root = rustix::process::geteuid().is_root();
                let Some(bytes) = proc::read(pid, file) else {
                    assert!(!is_root, "{file} of {pid} cannot be read");
                    continue;
                };
                assert!(!proc::holds(&bytes, secret), "{file} of {pid} has {secret}");
            }
        }
    }
}

#[test]
fn a_run_s_secrets_are_those_that_it_was_given_whatever_its_file_says_by_then() {
    let bench = bench();
    let (file, go) = (bench.project().join(".env"), bench.file("go"));
    std::fs::write(&file, format!("FILED={FILED}\n")).unwrap();
    let line =
        format!("while ! [ -e {go} ]; do sleep 0.05; done; echo FATAL: license $FILED; exit 1");
    let events = bench.up(&[
        format!(
            "[agent.a]\ncommand = [\"/bin/sh\", \"-c\", \"{line}\"]\nenv_file = \".env\"\n\
             restart = \"never\"\n"
        ),
        RULE.to_owned(),
    ]);
    events.of("a", "run-ready");
    std::fs::write(&file, "FILED=another-value\n").unwrap();
    std::fs::write(&go, "").unwrap();
    let death = events.of("a", "run-died");
    assert_eq!(death["evidence"], "FATAL: license [redacted]", "{death}");
    let why = bench.defib(&["why", "a"]).good().out;
    assert!(why.contains("[redacted]") && !why.contains(FILED), "{why}");
}

/// Fails where anything on disk has a text in it, other than what agents wrote.
fn assert_nowhere(bench: &Bench, text: &str) {
    for (path, bytes) in files(&bench.home()) {
        if !path.starts_with(bench.home().join("logs")) {
            assert!(!proc::holds(&bytes, text), "{} has {text}", path.display());
        }
    }
}

/// What the first run of an agent left, once it is on disk.
fn tail(bench: &Bench, agent: &str) -> String {
    let token = bench.defib(&["token", "new", "--role", "admin"]).good().out;
    let (web, who) = (Web::of(bench), format!("Authorization: Bearer {}", token.trim()));
    await_some("the tail", || {
        let answer = web.ask(&format!("GET /api/v1/agents/{agent}/runs/1/tail"), &[&who], "");
        (answer.code == 200 && !answer.body.is_empty()).then_some(answer.body)
    })
}

/// An agent whose script says what it died of.
fn shell(name: &str, settings: &str, line: &str) -> String {
    format!(
        "[agent.{name}]\nrestart = \"never\"\n{settings}\ncommand = [\"/bin/sh\", \"-c\", '''{line}''']\n"
    )
}

#[test]
fn the_token_of_a_run_is_stored_nowhere_also_by_a_daemon_that_took_it_over() {
    let bench = bench();
    let go = bench.file("go");
    let agent = |name: &str, first: &str| {
        let (token, draft) = (bench.file(&format!("token-{name}")), bench.file(name));
        let line = format!(
            "echo $DEFIB_TOKEN > {draft}; mv {draft} {token}; {first} env; \
             echo FATAL: license $DEFIB_TOKEN; exit 1"
        );
        shell(name, "", &line)
    };
    let events = bench.up(&[
        agent("early", ""),
        agent("late", &format!("while ! [ -e {go} ]; do sleep 0.05; done;")),
        RULE.to_owned(),
    ]);
    let token = |name: &str| {
        let file = bench.file(&format!("token-{name}"));
        await_some("the token", || std::fs::read_to_string(&file).ok()).trim().to_owned()
    };
    let tokens = [token("early"), token("late")];
    let shown = "DEFIB_TOKEN=[redacted]";
    assert_eq!(events.of("early", "run-died")["evidence"], "FATAL: license [redacted]");
    assert!(tail(&bench, "early").contains(shown));
    bench.kill_daemon();
    std::fs::write(&go, "").unwrap();
    assert_eq!(events.of("late", "run-died")["evidence"], "FATAL: license [redacted]");
    assert!(tail(&bench, "late").contains(shown));
    for token in tokens {
        assert_eq!(token.len(), 64, "{token}");
        assert_nowhere(&bench, &token);
    }
}

#[test]
fn no_part_of_a_secret_is_left_where_a_line_is_cut() {
    let mut bench = bench();
    bench.set("PLANTED", PASSED);
    let settings = "env_pass = [\"PLANTED\"]\nenv = { TABBED = \"planted\\twith a tab\" }";
    let wish = format!("{} self shutdown --reason \"for $TABBED\"; exit 1", defib_path().display());
    let events = bench.up(&[
        shell("long", settings, "echo FATAL: license $(printf %0375d 0)$PLANTED; exit 1"),
        shell("wish", settings, &wish),
        RULE.to_owned(),
    ]);
    let evidence = events.of("long", "run-died")["evidence"].to_string();
    assert!(evidence.contains("000[redacted]"), "{evidence}");
    let evidence = events.of("wish", "run-died")["evidence"].to_string();
    assert!(evidence.contains("for [redacted]"), "{evidence}");
    assert!(tail(&bench, "long").contains("000[redacted]"));
    assert_nowhere(&bench, &PASSED[..8]);
    assert_nowhere(&bench, "with a tab");
}

#[test]
fn no_line_of_a_private_key_is_stored_also_of_a_terminal() {
    let bench = bench();
    let lines = ["-----BEGIN PRIVATE KEY-----", "MIIEplantedFirst", "MIIEplantedSecond"];
    let settings = format!("pty = true\nenv = {{ KEY = \"{}\\n\" }}", lines.join("\\n"));
    let line = "printenv KEY; echo only $(printenv KEY | sed -n 3p); exit 1";
    let events = bench.up(&[shell("a", &settings, line)]);
    events.of("a", "run-died");
    let tail = tail(&bench, "a");
    assert!(tail.contains("only [redacted]"), "{tail}");
    for line in lines {
        assert_nowhere(&bench, line);
    }
}

#[test]
fn nobody_but_root_reads_the_memory_of_daemon_and_keeper_and_no_core_is_left_of_it() {
    use std::os::unix::fs::MetadataExt;
    let bench = bench();
    bench.up(&[bench.agent("a", "forever", "")]);
    let (keeper, daemon) = bench.who();
    let core = |pid: u32| {
        let limits = proc::read(pid, "limits").expect("limits");
        let text = String::from_utf8_lossy(&limits).into_owned();
        let line = text.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        line.split_whitespace().nth(4).unwrap().to_owned()
    };
    for pid in [keeper, daemon] {
        let owner = std::fs::metadata(format!("/proc/{pid}/environ")).unwrap().uid();
        assert_eq!(owner, 0, "what cannot be dumped is root's");
        assert_eq!(core(pid), "0", "{pid}");
    }
    assert_eq!(core(bench.pid("a")), core(std::process::id()), "agents get the limit back");
}
