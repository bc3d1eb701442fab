//! Sandboxes: what agents with capabilities can do and what they cannot, on the kernel at hand.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use defib_e2e::plain::PlainDaemon;
use defib_e2e::{Bench, defib_path, field, proc};
use serde_json::Value;

use crate::bench;

/// Things outside of a sandbox that can be tried from inside.
struct World {
    secret: String,
    listener: TcpListener,
    free_port: u16,
    abstract_name: String,
    _abstract_listener: UnixListener,
}

impl World {
    fn new(bench: &Bench) -> World {
        let secret = bench.file("secret");
        std::fs::write(&secret, "x").unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let abstract_name = format!("defib-test-{}", bench.project().display());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        World {
            secret,
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            free_port: free.local_addr().unwrap().port(),
            _abstract_listener: UnixListener::bind_addr(&address).unwrap(),
            abstract_name,
        }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    /// Everything that is tried, and the last word of it that replaces the program.
    fn attempts(&self, room: &str) -> Vec<(&'static str, String)> {
        vec![
            ("read", self.secret.clone()),
            ("list", room.to_owned()),
            ("write", format!("{room}/new")),
            ("rename", room.to_owned()),
            ("connect", self.port().to_string()),
            ("bind", self.free_port.to_string()),
            ("udp", "-".to_owned()),
            ("mptcp", "-".to_owned()),
            ("packet", "-".to_owned()),
            ("spawn", "-".to_owned()),
            ("thread", "-".to_owned()),
            ("signal", std::process::id().to_string()),
            ("environ", std::process::id().to_string()),
            ("abstract", self.abstract_name.clone()),
            ("exec", "/usr/bin/echo".to_owned()),
        ]
    }
}

/// A room of an agent's own, with a file in it.
fn room(bench: &Bench, name: &str) -> String {
    let room = bench.file(name);
    std::fs::create_dir(&room).unwrap();
    std::fs::write(format!("{room}/from"), "x").unwrap();
    room
}

fn tokens(list: &[String]) -> String {
    format!("capabilities = {}\nrestart = \"never\"", Value::from(list))
}

/// What of the attempts was permitted, by the lines that they left.
fn permitted(log: &str, attempts: &[(&'static str, String)]) -> BTreeSet<&'static str> {
    let was = |(what, on): &&(&str, String)| {
        if *what == "exec" && log.contains("the program ran") {
            return true;
        }
        let line = format!("{what} {on}: ");
        let said = log.lines().find_map(|found| found.strip_prefix(&line));
        match said {
            Some("permitted") => true,
            Some("denied") => false,
            other => panic!("{what} {on}: {other:?}\n{log}"),
        }
    };
    attempts.iter().filter(was).map(|(what, _)| *what).collect()
}

fn script(attempts: &[(&'static str, String)]) -> String {
    attempts.iter().map(|(what, on)| format!("try {what} {on}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_capability_permits_what_it_names_and_nothing_else() {
    let bench = bench();
    let world = World::new(&bench);
    let (port, free) = (world.port(), world.free_port);
    let cases: &[(&str, Vec<String>, &[&str])] = &[
        ("bare", vec![], &[]),
        ("reads", vec!["read:secret".into()], &["read"]),
        ("lists", vec!["read:lists".into()], &["list"]),
        ("writes", vec!["write:writes".into()], &["write", "rename"]),
        ("runs", vec!["exec:/usr/bin/echo".into()], &["exec"]),
        ("folder", vec!["exec:/usr/bin".into()], &["exec"]),
        ("net", vec!["net".into()], &["connect", "bind", "udp", "mptcp"]),
        ("port", vec![format!("net:{port}")], &["connect", "udp"]),
        ("other", vec!["net:1".into()], &["udp"]),
        ("listens", vec![format!("listen:{free}")], &["bind"]),
        ("workspace", vec!["workspace_rw".into()], &["read", "list", "write", "rename"]),
        ("anywhere", vec!["read_anywhere".into()], &["read", "list"]),
        ("forks", vec!["subprocess".into()], &["spawn"]),
        (
            "everything",
            vec!["privileged".into(), "read:/nowhere".into()],
            &[
                "read", "list", "write", "rename", "connect", "bind", "udp", "mptcp", "packet",
                "spawn", "signal", "environ", "abstract", "exec",
            ],
        ),
    ];
    let rooms: Vec<String> = cases.iter().map(|(name, ..)| room(&bench, name)).collect();
    let agents: Vec<String> = cases
        .iter()
        .zip(&rooms)
        .map(|((name, list, _), room)| {
            bench.agent(name, &script(&world.attempts(room)), &tokens(list))
        })
        .collect();
    let events = bench.up(&agents);
    for ((name, list, expected), room) in cases.iter().zip(&rooms) {
        events.of(name, "run-died");
        let log = bench.await_log(name, |log| {
            log.contains("exec /usr/bin/echo") || log.contains("the program ran")
        });
        let mut expected: BTreeSet<&str> = expected.iter().copied().collect();
        // Whatever else is shut, an agent has its threads.
        expected.insert("thread");
        assert_eq!(permitted(&log, &world.attempts(room)), expected, "{list:?}\n{log}");
    }
}

#[test]
fn what_is_never_permitted_is_denied_whatever_the_tokens() {
    let bench = bench();
    let all = ["read:/", "write:/", "exec:/", "net", "subprocess"].map(str::to_owned);
    let attempts: Vec<(&'static str, String)> =
        ["mount", "user-namespace", "packet", "kill-own"].map(|what| (what, "-".into())).into();
    let script = format!("{} print tried", script(&attempts));
    bench.up(&[bench.agent("a", &script, &tokens(&all))]);
    let log = bench.await_log("a", |log| log.contains("tried"));
    // It may signal what it made itself.
    assert_eq!(permitted(&log, &attempts), BTreeSet::from(["kill-own"]), "{log}");
}

#[test]
fn it_holds_for_what_was_forked_twice_and_after_a_respawn() {
    let bench = bench();
    let world = World::new(&bench);
    let room = room(&bench, "room");
    let attempts: Vec<(&'static str, String)> = world
        .attempts(&room)
        .into_iter()
        .filter(|(what, _)| !["exec", "rename", "thread", "spawn"].contains(what))
        .collect();
    let words = script(&attempts);
    let marked =
        format!("double-fork '{words} touch room/done forever' await room/done print tried");
    let list = ["subprocess", "read:room", "write:room"].map(str::to_owned);
    let settings = format!("capabilities = {}", Value::from(&list[..]));
    let script = format!("{words} {marked} forever");
    let events = bench.up(&[bench.agent("a", &script, &settings)]);
    for run in 1..=3 {
        let times = usize::try_from(run).unwrap();
        let log = bench.await_log("a", |log| log.matches("tried").count() == times);
        for (what, on) in &attempts {
            let line = |end: &str| log.matches(&format!("{what} {on}: {end}\n")).count();
            let (good, bad) = if ["list", "write"].contains(what) { (2, 0) } else { (0, 2) };
            let counts = (line("permitted"), line("denied"));
            assert_eq!(counts, (good * times, bad * times), "{what} in run {run}\n{log}");
        }
        std::fs::remove_file(format!("{room}/done")).unwrap();
        // The keeper is outside, and ends what was forked twice.
        proc::kill(bench.pid("a"), "KILL");
        let left = events.of_run("a", run, "leftovers-ended");
        assert_eq!(field(&left, "processes"), 1, "{left}");
    }
}

#[test]
fn a_grant_counts_from_the_next_run_on_and_outlives_the_daemon() {
    let bench = bench();
    let secret = World::new(&bench).secret;
    let (go, read) = (bench.file("go"), format!("try read {secret}"));
    let script = format!("{read} print first await {go} {read} print second forever");
    let events = bench.up(&[bench.agent("a", &script, "capabilities = [\"write:.\"]")]);
    let said = |outcome: &str| format!("read {secret}: {outcome}\n");
    let log = bench.await_log("a", |log| log.contains("first"));
    assert_eq!(log, said("denied") + "first\n");
    let granted = bench.defib(&["grant", "a", "read:secret"]).good();
    assert!(granted.out.contains("defib restart a"), "{granted:?}");
    assert_eq!(events.of("a", "capability-granted")["capability"], "read:secret");
    let both = serde_json::json!(["write:.", "read:secret"]);
    let status = bench.status("a");
    assert_eq!(status["capabilities"], serde_json::json!(["write:."]));
    assert_eq!(status["capabilities_pending"], both);
    std::fs::write(&go, "").unwrap();
    let log = bench.await_log("a", |log| log.contains("second"));
    assert_eq!(log, said("denied") + "first\n" + &said("denied") + "second\n", "the run is old");
    bench.kill_daemon();
    assert_eq!(bench.status("a")["capabilities_pending"], both, "the next daemon knows");
    bench.defib(&["restart", "a"]).good();
    let log = bench.await_log("a", |log| log.matches("second").count() == 2);
    assert!(log.ends_with(&(said("permitted") + "second\n")), "{log}");
    let status = bench.status("a");
    assert_eq!((&status["capabilities"], &status["capabilities_pending"]), (&both, &Value::Null));
    // It outlives the whole, too, and so does its end.
    bench.defib(&["down", "--all"]).good();
    bench.defib(&["up", "--detach"]).good();
    assert_eq!(bench.status("a")["capabilities"], both);
    bench.defib(&["revoke", "a", "read:secret", "write:."]).good();
    events.of("a", "capability-revoked");
    bench.defib(&["restart", "a"]).good();
    assert_eq!(bench.status("a")["capabilities"], serde_json::json!([]));
    let caps = bench.defib(&["caps", "a", "--json"]).good().json();
    assert_eq!(caps["revoked"], serde_json::json!(["write:."]), "{caps}");
    let log = bench.await_log("a", |log| log.matches("second").count() >= 4);
    assert!(log.ends_with(&(said("denied") + "second\n")), "{log}");
}

#[test]
fn a_reload_with_other_capabilities_leaves_the_run_and_is_pending() {
    let bench = bench();
    let events = bench.up(&[bench.agent("a", "forever", "capabilities = [\"net\"]")]);
    let pid = bench.pid("a");
    bench.declare(&[bench.agent("a", "forever", "capabilities = [\"subprocess\"]")]);
    let plan = bench.defib(&["plan"]).good();
    assert!(plan.out.contains('a'), "{plan:?}");
    bench.defib(&["reload"]).good();
    let status = bench.status("a");
    assert_eq!(status["pid"], pid);
    assert_eq!(status["capabilities"], serde_json::json!(["net"]));
    assert_eq!(status["capabilities_pending"], serde_json::json!(["subprocess"]));
    proc::kill(pid, "KILL");
    events.of_run("a", 2, "run-ready");
    assert_eq!(bench.status("a")["capabilities"], serde_json::json!(["subprocess"]));
}

#[test]
fn what_is_malformed_is_named_and_changes_nothing() {
    let bench = bench();
    bench.up(&[
        bench.agent("a", "forever", "capabilities = [\"read:nowhere\"]"),
        bench.agent("free", "forever", ""),
    ]);
    for token in ["net:http", "fly", "read:"] {
        let refused = bench.defib(&["grant", "a", "read:/", token]).bad(2);
        assert!(refused.err.contains(&format!("{token:?}")), "{refused:?}");
    }
    assert_eq!(bench.status("a")["capabilities"], serde_json::json!(["read:nowhere"]));
    assert!(bench.status("a")["capabilities_pending"].is_null());
    bench.defib(&["revoke", "a", "net"]).bad(6);
    bench.defib(&["grant", "free", "net"]).bad(6);
    bench.defib(&["grant", "nobody", "net"]).bad(5);
    let caps = bench.defib(&["caps", "a"]).good();
    assert!(caps.out.contains("there is no ") && caps.out.contains("nowhere"), "{caps:?}");
    assert!(bench.defib(&["caps", "free"]).good().out.contains("free has no sandbox"));
    bench.declare(&[bench.agent("a", "forever", "capabilities = [\"fly\"]")]);
    let refused = bench.defib(&["check"]).bad(3);
    assert!(refused.err.contains("`fly`"), "{refused:?}");
}

#[test]
fn a_path_that_does_not_exist_is_said_once_and_is_no_reason_not_to_start() {
    let bench = bench();
    let events = bench.up(&[bench.agent("a", "forever", "capabilities = [\"write:nowhere\"]")]);
    let said = events.of("a", "capability-unusable");
    assert_eq!(said["capability"], "write:nowhere");
    bench.defib(&["restart", "a"]).good();
    let log = bench.defib(&["events", "--json"]).good().out;
    assert_eq!(log.matches("capability-unusable").count(), 1, "{log}");
}

#[test]
fn a_confined_agent_beats_is_ready_and_speaks_for_itself() {
    let bench = bench();
    let defib = defib_path().display().to_string();
    let beat = bench.file("beats/own");
    let script = format!("beat notify READY=1 run '{defib} self status fine' print said forever");
    let list = ["subprocess".to_owned(), format!("exec:{defib}")];
    let settings = format!(
        "ready = \"notify\"\nheartbeat = {{ ttl = \"10m\", file = {} }}\ncapabilities = {}",
        Value::from(beat.as_str()),
        Value::from(&list[..])
    );
    let events = bench.up(&[bench.agent("a", &script, &settings)]);
    events.of("a", "run-ready");
    bench.await_log("a", |log| log.contains("ran 0\nsaid"));
    assert_eq!(bench.status("a")["status_text"], "fine");
}

#[test]
fn a_confined_agent_has_its_terminal() {
    let bench = bench();
    let settings = "pty = true\ncapabilities = []\nrestart = \"never\"";
    bench.up(&[bench.agent("a", "tty try write /dev/tty print tried", settings)]);
    let log = bench.await_log("a", |log| log.contains("tried"));
    assert!(log.contains("terminal /dev/pts/") && log.contains("/dev/tty: permitted"), "{log}");
}

#[test]
fn files_and_processes_are_bounded_by_limits_os() {
    let bench = bench();
    let settings = "capabilities = [\"read:/\"]\nlimits_os = { files = 77, cpu = \"1h\" }";
    bench.up(&[bench.agent("a", "forever", settings)]);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", bench.pid("a"))).unwrap();
    let of = |name: &str| limits.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(of("Max open files").contains(" 77 "), "{limits}");
    assert!(of("Max cpu time").contains(" 3600 "), "{limits}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", bench.pid("a"))).unwrap();
    for line in ["NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000"] {
        let whole = line.starts_with("CapBnd") && !rustix::process::geteuid().is_root();
        assert!(whole || status.contains(line), "{line}\n{status}");
    }
    assert!(status.contains("Seccomp:\t2"), "{status}");
}

#[test]
fn from_inside_of_an_agent_the_socket_is_for_itself_alone() {
    let bench = bench();
    let defib = defib_path().display().to_string();
    let home = bench.home().display().to_string();
    let ask = |words: &str| match words.strip_prefix("self ") {
        Some(_) => format!("run '{defib} {words}'"),
        None => format!("run '{defib} --home {home} {words}'"),
    };
    let own = [
        ask("self beat"),
        ask("status"),
        ask("grant inside read:/"),
        ask("stop other"),
        ask("down --all"),
        "print tried forever".to_owned(),
    ]
    .join(" ");
    let looks = [ask("status"), ask("logs other"), ask("stop other"), "print tried forever".into()];
    bench.up(&[
        // Whether it has a sandbox makes no difference.
        bench.agent("inside", &own, ""),
        bench.agent("looks", &looks.join(" "), "views = \"project\""),
        bench.agent("other", "print hello forever", ""),
    ]);
    let log = bench.await_log("inside", |log| log.contains("tried"));
    let codes: Vec<&str> = log.lines().filter_map(|line| line.strip_prefix("ran ")).collect();
    assert_eq!(codes, ["0", "1", "1", "1", "1"], "{log}");
    assert!(log.contains("speak for itself alone"), "{log}");
    let log = bench.await_log("looks", |log| log.contains("tried"));
    let codes: Vec<&str> = log.lines().filter_map(|line| line.strip_prefix("ran ")).collect();
    assert_eq!(codes, ["0", "1", "1"], "{log}");
    assert!(log.contains("other") && log.contains("running"), "{log}");
    assert_eq!(bench.status("other")["state"], "running");
}

#[test]
fn an_agent_that_may_look_sees_its_own_project_alone() {
    let bench = bench();
    let (defib, go) = (defib_path().display().to_string(), bench.file("go"));
    let home = bench.home().display().to_string();
    let looks = format!(
        "await {go} run '{defib} --home {home} status' run '{defib} --home {home} status --json' \
         print tried forever"
    );
    bench.up(&[
        bench.agent("looks", &looks, "views = \"project\""),
        bench.agent("sibling", "forever", ""),
    ]);
    // Somebody else's, in the same home.
    let folder = bench.project().join("else");
    std::fs::create_dir(&folder).unwrap();
    let text = format!("[project]\nname = \"else\"\n{}", bench.agent("foreign", "forever", ""));
    std::fs::write(folder.join("defib.toml"), text).unwrap();
    let file = folder.join("defib.toml").display().to_string();
    bench.defib(&["up", "--detach", "-f", &file]).good();
    std::fs::write(&go, "").unwrap();
    let log = bench.await_log("looks", |log| log.lines().any(|line| line == "tried"));
    assert_eq!(log.lines().filter(|line| *line == "ran 0").count(), 2, "{log}");
    assert!(log.contains("sibling") && !log.contains("foreign"), "{log}");
}

#[test]
fn an_agent_that_may_look_can_ask_why_its_sibling_died() {
    let bench = bench();
    let ask = |name: &str| {
        let file = bench.file(name);
        let defib = defib_path().display().to_string();
        let says = [
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"why","arguments":{"name":"other"}}}"#,
            r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"history","arguments":{"name":"other"}}}"#,
            r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"history","arguments":{}}}"#,
            r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"history","arguments":{"name":"foreign"}}}"#,
        ];
        let says: String = says.map(|line| format!("echo '{line}'\n")).concat();
        std::fs::write(&file, format!("({says}exec sleep 1000) | {defib} mcp\n")).unwrap();
        format!("[agent.{name}]\ncommand = [\"sh\", \"{file}\"]\n")
    };
    let events =
        bench.up(&[bench.agent("other", "eprint 'wings fell off' exit 3", "restart = \"never\"")]);
    events.of("other", "run-died");
    // Somebody else's, in the same home.
    let folder = bench.project().join("else");
    std::fs::create_dir(&folder).unwrap();
    let foreign = bench.agent("foreign", "exit 9", "restart = \"never\"");
    let text = format!("[project]\nname = \"else\"\n{foreign}");
    std::fs::write(folder.join("defib.toml"), text).unwrap();
    let file = folder.join("defib.toml").display().to_string();
    bench.defib(&["up", "--detach", "-f", &file]).good();
    events.of("foreign", "run-died");
    let other = bench.agent("other", "eprint 'wings fell off' exit 3", "restart = \"never\"");
    let looks = format!("{}views = \"project\"\n", ask("looks"));
    bench.up(&[other, looks, ask("own")]);
    // Answers come as they are ready, each on a line of its own.
    let answer = |name: &str, id: u32| -> serde_json::Value {
        let is_it = |answer: &serde_json::Value| answer["id"] == id;
        let find = |log: &str| log.lines().filter_map(|l| serde_json::from_str(l).ok()).find(is_it);
        let log = bench.await_log(name, |log| find(log).is_some());
        find(&log).expect("it was found")["result"].clone()
    };
    let why = answer("looks", 2);
    assert!(why["content"][0]["text"].as_str().unwrap().contains("wings fell off"), "{why}");
    let agents = |id| -> Vec<String> {
        let answer = answer("looks", id);
        let runs = answer["structuredContent"]["runs"].as_array().expect("runs").clone();
        let mut names: Vec<String> =
            runs.iter().map(|run| run["agent"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names.dedup();
        names
    };
    assert_eq!(agents(3), ["other"]);
    assert_eq!(agents(4), ["looks", "other", "own"]);
    assert_eq!(agents(5), [""; 0], "another project's are not shown");
    for id in 2..=5 {
        let refused = answer("own", id);
        assert_eq!(refused["isError"], true, "{refused}");
        let text = refused["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("speak for itself alone"), "{text}");
    }
}

#[test]
fn a_process_that_was_forked_twice_is_still_inside() {
    let bench = bench();
    let (go, defib) = (bench.file("go"), defib_path().display().to_string());
    // A word of a script in a script has no spaces in it, so a shell's file says what is run.
    let file = bench.file("ask");
    let home = bench.home().display().to_string();
    std::fs::write(&file, format!("#!/bin/sh\n{defib} --home {home} stop other\n")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&file, mode).unwrap();
    let script = format!("double-fork 'await {go} run {file} print tried forever' forever");
    bench.up(&[bench.agent("inside", &script, ""), bench.agent("other", "forever", "")]);
    std::fs::write(&go, "").unwrap();
    let log = bench.await_log("inside", |log| log.contains("tried"));
    assert!(log.contains("ran 1") && log.contains("speak for itself alone"), "{log}");
    assert_eq!(bench.status("other")["state"], "running");
}

#[test]
fn why_says_which_token_would_permit_what_was_refused() {
    let bench = bench();
    let secret = World::new(&bench).secret;
    let script = format!("eprint 'cat: {secret}: Permission denied' exit 1");
    let settings = "restart = \"never\"\ncapabilities = [\"net\"]";
    let events = bench.up(&[
        bench.agent("a", &script, settings),
        bench.agent("free", &script, "restart = \"never\""),
    ]);
    events.of("a", "run-died");
    events.of("free", "run-died");
    let token = format!("read:{secret}");
    let why = bench.defib(&["why", "a"]).good().out;
    assert!(why.contains(&format!("defib grant a {token}")), "{why}");
    let json = bench.defib(&["why", "a", "--json"]).good().json();
    assert_eq!(json["denied"]["capability"], token.as_str(), "{json}");
    assert!(!bench.defib(&["why", "free"]).good().out.contains("grant"));
    bench.defib(&["grant", "a", &token]).good();
    let why = bench.defib(&["why", "a"]).good().out;
    assert!(why.contains("by now"), "{why}");
}

/// Lines of a shell that try to change other processes and defib's home, with `$TARGETS` and `$PLACE`.
const ATTACK: &str = "for pid in $TARGETS; do prlimit --pid $pid --nofile=12 && echo limited; taskset -p 1 $pid && \
                      echo bound; renice -n 19 -p $pid && echo reniced; ionice -c 3 -p $pid && echo idled; done; \
                      for place in $PLACE $PLACE/intent.db; do chmod 000 $place && echo locked; touch $place && echo \
                      touched; chown $(id -u) $place && echo owned; done; cp /bin/true w/program; chmod 4755 w/program \
                      && echo setuid; chmod 2755 w && echo setgid; chmod 700 w/program && echo own; echo tried; sleep 1000";

/// Tokens of an agent that runs [`ATTACK`], the second of them without one to write.
fn attackers() -> [String; 2] {
    let tokens = |rest: &str| {
        format!("[\"exec:/bin\", \"exec:/usr/bin\", \"read_anywhere\", \"subprocess\"{rest}]")
    };
    [tokens(", \"write:w\", \"write:/\""), tokens("")]
}

fn assert_held(log: &str, writes: bool) {
    for word in
        ["limited", "bound", "reniced", "idled", "locked", "touched", "owned", "setuid", "setgid"]
    {
        assert!(!log.lines().any(|line| line == word), "{word}\n{log}");
    }
    assert_eq!(log.lines().any(|line| line == "own"), writes, "{log}");
}

#[test]
fn a_confined_agent_cannot_change_the_keeper_the_daemon_a_sibling_or_the_home() {
    let bench = bench();
    std::fs::create_dir(bench.file("w")).unwrap();
    bench.up(&[bench.agent("sibling", "forever", "")]);
    let (keeper, daemon) = bench.who();
    let limits = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let pids = [keeper, daemon, bench.pid("sibling")];
    let before = pids.map(limits);
    let home = bench.home().display().to_string();
    let part = |name: &str, tokens: &str| {
        format!(
            "[agent.{name}]\ncommand = {}\ncapabilities = {tokens}\nenv = {{ TARGETS = \"{}\", PLACE = \"{home}\" }}\n",
            Value::from(&["/bin/sh", "-c", ATTACK][..]),
            pids.map(|pid| pid.to_string()).join(" ")
        )
    };
    let [writes, reads] = attackers();
    bench.up(&[
        bench.agent("sibling", "forever", ""),
        part("writes", &writes),
        part("reads", &reads),
    ]);
    for (name, writes) in [("writes", true), ("reads", false)] {
        assert_held(&bench.await_log(name, |log| log.contains("tried")), writes);
    }
    assert_eq!(pids.map(limits), before);
    bench.defib(&["restart", "sibling"]).good();
}

#[test]
fn a_confined_agent_of_a_plain_user_cannot_lock_the_operator_out() {
    let Some(user) = PlainDaemon::new() else { return };
    let [writes, _] = attackers();
    let home = user.at("h").display().to_string();
    user.config(&format!(
        "[agent.a]\ncommand = {}\ncapabilities = {writes}\nenv = {{ TARGETS = \"\", PLACE = \"{home}\" }}\n",
        Value::from(&["/bin/sh", "-c", ATTACK][..])
    ));
    user.defib(&["up", "--detach"]).good();
    assert_held(&user.await_log("a", |log| log.contains("tried")), true);
    assert!(user.defib(&["status"]).good().out.contains("running"));
}

/// Goal: a confined agent gets nothing more by what it writes into a folder that it may also run programs from.
/// Method: the first run writes a script whose interpreter is the root folder and a link to a secret; the second
/// run tries to read the secret.
#[test]
fn scripts_that_an_agent_writes_give_its_next_run_no_further_files() {
    let bench = bench();
    // Not in /tmp, which the token `workspace_rw` names.
    let elsewhere = tempfile::tempdir_in("/var/tmp").unwrap();
    let secret = elsewhere.path().join("secret");
    std::fs::write(&secret, "the secret word\n").unwrap();
    let secret = secret.display().to_string();
    let line = format!(
        "test $DEFIB_RUN = 1 && {{ mkdir -p bin; printf '#!/\\n' > bin/x; chmod 755 bin/x; ln -s {secret} bin/y; exit 1; }}; \
         cat {secret}; cat bin/y; ls bin; echo tried; sleep 1000"
    );
    std::fs::create_dir(bench.project().join("bin")).unwrap();
    let command = serde_json::json!(["/bin/sh", "-c", line]);
    let tokens = serde_json::json!([
        "workspace_rw",
        "exec:./bin",
        "exec:/bin",
        "exec:/usr/bin",
        "subprocess"
    ]);
    bench.up(&[format!("[agent.a]\ncommand = {command}\ncapabilities = {tokens}\n")]);
    let log = bench.await_log("a", |log| log.contains("tried"));
    assert!(log.contains("x\ny\ntried") && log.contains("Permission denied"), "{log}");
    assert!(!log.contains("the secret word"), "{log}");
}
