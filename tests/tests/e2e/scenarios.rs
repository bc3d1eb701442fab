//! Ten things that befall agents which run for long, each told as whoever looks after them lives
//! through it: what happens, what `status --json` and `why` say, and how it goes on.

use std::path::Path;
use std::time::{Duration, Instant};

use defib_e2e::{
    Bench, Disk, MovedClock, Sitting, await_some, await_that, field, free_port, is, proc,
};
use serde_json::{Value, json};

use crate::{FAKE_AGENT, bench};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;

/// An agent of a kind that is a line for the shell. Its runs are numbered from 1 in `$DEFIB_RUN`.
fn agent(name: &str, kind: &str, line: &str, settings: &str) -> String {
    format!("[agent.{name}]\ncommand = '''{line}'''\nshell = true\nkind = \"{kind}\"\n{settings}\n")
}

fn why(bench: &Bench, name: &str) -> String {
    bench.insist(&["why", name]).good().out
}

/// Checks that a text says all of this.
#[track_caller]
fn check_says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "it does not say {word:?}:\n{text}");
    }
}

fn right_now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

/// It is given a task in the evening. It crashes once, takes its session up again, the daemon dies
/// too, and in the morning the task is done.
#[test]
fn overnight_run() {
    let bench = bench();
    let clock = MovedClock::start(&bench);
    let line =
        r#"echo '{"type":"system","subtype":"init","session_id":"night-1"}'; echo working; exit 1"#;
    let resume = r#"resume = '''echo "goes on with {session}"; while [ ! -e morning ]; do sleep 0.1; done; echo '{"type":"result","subtype":"success","is_error":false,"total_cost_usd":1.5,"usage":{"input_tokens":9}}' '''"#;
    let events = bench.up(&[agent("worker", "claude", line, resume)]);
    events.of_run("worker", 2, "run-ready");
    bench.await_log("worker", |log| log.contains("goes on with night-1"));
    let pid = bench.pid("worker");
    // Midnight, and something happens to the daemon.
    clock.set(4 * HOUR);
    bench.kill_daemon();
    clock.set(9 * HOUR);
    let status = bench.await_state("worker", "running");
    assert_eq!((defib_e2e::pid_in(&status), field(&status, "restarts")), (pid, 1), "{status}");
    assert_eq!(
        (&status["flapping"], &status["last_death"]["class"]),
        (&false.into(), &"error".into())
    );
    check_says(&why(&bench, "worker"), &["worker is running", "Run 1 exited with code 1", "error"]);
    // In the morning it has done what it was to do.
    std::fs::write(bench.project().join("morning"), "").unwrap();
    let status = bench.await_state("worker", "done");
    assert_eq!(status["last_death"]["class"], "done", "{status}");
    assert_eq!(status["spent"]["usd"], 1.5, "{status}");
    check_says(
        &why(&bench, "worker"),
        &["worker is done", "Run 2 exited with code 0", "it finished"],
    );
    let classes: Vec<Value> =
        bench.history("worker").iter().map(|run| run["death"]["class"].clone()).collect();
    assert_eq!(classes, ["error", "done"]);
}

/// At 02:00 three agents on one account hit its limit, each in the words of its own. Nobody burns a
/// restart; after 05:00 one is tried, and when that works the others follow.
#[test]
fn quota() {
    let bench = bench();
    let clock = MovedClock::start(&bench);
    let two_at_night = (2 * HOUR - right_now()).rem_euclid(24 * HOUR);
    clock.set(two_at_night);
    let reset = right_now() + two_at_night + 3 * HOUR;
    let words = [
        ("a", "claude", format!("echo 'Claude AI usage limit reached|{reset}'")),
        ("b", "claude", r#"echo '{"type":"result","subtype":"success","is_error":true,"result":"You have hit your session limit · resets 5am (UTC)"}'"#.to_owned()),
        ("c", "codex", r#"echo '{"type":"turn.failed","error":{"message":"You have hit your usage limit. Try again in 3 hours."}}'"#.to_owned()),
    ];
    let names = ["a", "b", "c"];
    let works = "while [ ! -e talk ]; do sleep 0.1; done; echo working; exec sleep 1000";
    let events = bench.up(&words.map(|(name, kind, limit)| {
        let line = format!("if [ $DEFIB_RUN = 1 ]; then {limit}; exit 1; fi; {works}");
        agent(name, kind, &line, "account = \"main\"")
    }));
    let free_of_charge = |status: &Value| {
        (field(status, "restarts"), field(status, "consecutive_failures")) == (0, 0)
    };
    for name in names {
        let died = events.of_run(name, 1, "run-died");
        assert_eq!((&died["class"], &died["counted"]), (&"quota".into(), &false.into()), "{died}");
        let status = bench.await_state(name, "waiting");
        assert_eq!(status["reason"], "quota", "{status}");
        let next = status["next_at"].as_str().unwrap();
        assert!(next.contains("T05:0"), "the reset and a little more: {status}");
        assert!(free_of_charge(&status), "{status}");
        let words = ["is waiting (quota)", "limit", "that is no crash", "no restart spent"];
        check_says(&why(&bench, name), &words);
    }
    // Two hours later nothing has happened, and nobody was tried.
    clock.set(two_at_night + 2 * HOUR);
    for name in names {
        let status = bench.status(name);
        assert_eq!((&status["state"], field(&status, "run")), (&"waiting".into(), 1));
    }
    // Past the reset and its pause, one is tried, and the others wait for what becomes of it.
    clock.set(two_at_night + 3 * HOUR + 10 * MINUTE);
    bench.status("a");
    let second = |event: &&Value| event["type"] == "run-ready" && event["run"] == 2;
    events.find("one that is tried", |all| all.iter().find(second).cloned());
    let states = names.map(|name| bench.status(name)["state"].as_str().unwrap().to_owned());
    assert_eq!(states.iter().filter(|state| *state == "waiting").count(), 2, "{states:?}");
    std::fs::write(bench.project().join("talk"), "").unwrap();
    for name in names {
        events.of_run(name, 2, "run-ready");
        let status = bench.status(name);
        assert!(free_of_charge(&status), "{status}");
        assert_eq!(bench.history(name).len(), 2, "no run but these two");
    }
}

/// The network goes away and comes back. That is nobody's crash.
#[test]
fn network_drop() {
    let bench = bench();
    let line = "[ -e online ] || { echo 'API Error: Connection error.'; exit 1; }; echo working; exec sleep 1000";
    let limits = "limits = [{ deaths = 1, within = \"1h\" }]";
    let events = bench.up(&[agent("far", "claude", line, limits)]);
    let died = events.of_run("far", 1, "run-died");
    assert_eq!((&died["class"], &died["counted"]), (&"network".into(), &false.into()), "{died}");
    let delay = field(&events.of_run("far", 1, "restart-scheduled"), "delay_ms");
    assert!((4500..=5500).contains(&delay), "the world's own backoff: {delay}");
    std::fs::write(bench.project().join("online"), "").unwrap();
    check_says(&why(&bench, "far"), &["there was no way to the network", "API Error: Connection"]);
    events.of_run("far", 2, "run-ready");
    let status = bench.await_state("far", "running");
    assert_eq!(field(&status, "consecutive_failures"), 0, "{status}");
    assert_eq!(
        (&status["flapping"], &status["last_death"]["class"]),
        (&false.into(), &"network".into())
    );
}

/// It takes more memory than it may. The kernel kills it, and everybody can see why.
#[test]
fn oom_kill() {
    let bench = bench();
    // It takes a little more each time, until it may not.
    let line = "python3 -c 'x = []\nwhile True: x.append(bytearray(1 << 20))'";
    let settings = "limits_os = { memory = \"64M\" }\nlimits = [{ deaths = 2, within = \"60s\" }]";
    let events = bench.up(&[agent("hungry", "generic", line, settings)]);
    let died = events.of_run("hungry", 1, "run-died");
    if died["class"] != "oom" && !Path::new("/sys/fs/cgroup/memory").exists() {
        eprintln!("skipped: no tree of control groups here has the memory controller");
        return;
    }
    assert_eq!((&died["class"], &died["counted"]), (&"oom".into(), &true.into()), "{died}");
    let status = bench.await_state("hungry", "crashed-out");
    assert_eq!(status["last_death"]["class"], "oom", "{status}");
    let words = [
        "it was out of memory",
        "a limit tripped: 2 of 2 deaths",
        "more memory",
        "defib revive hungry",
    ];
    check_says(&why(&bench, "hungry"), &words);
}

/// It asks for permission on its terminal. It is left alone until somebody answers.
#[test]
fn permission_prompt() {
    let bench = bench();
    let line = "printf 'Bash(rm -rf build)\\n\\nDo you want to proceed?\\n> 1. Yes\\n  2. No\\n'; \
                read -r answer; echo \\\"answered $answer\\\"; exec sleep 1000";
    let agent = format!(
        "[agent.asker]\ncommand = [\"/bin/sh\", \"-c\", \"{line}\"]\npty = true\nhang = {{ silent_for = \"5s\" }}\n"
    );
    let events = bench.up(&[agent]);
    assert_eq!(events.of("asker", "wait-started")["reason"], "prompt");
    assert_eq!(events.of("asker", "notified")["what"], "waiting");
    let status = bench.status("asker");
    assert_eq!((&status["state"], &status["reason"]), (&"waiting".into(), &"prompt".into()));
    assert_eq!(status["question"], "Do you want to proceed?");
    check_says(&why(&bench, "asker"), &["It asks: Do you want to proceed?", "defib attach asker"]);
    let mut person = Sitting::new(&bench.command(&["attach", "asker"]));
    person.await_text("2. No");
    person.type_in("1\r");
    person.await_text("answered 1");
    events.of("asker", "wait-ended");
    let status = bench.await_state("asker", "running");
    assert_eq!(field(&status, "run"), 1, "it was not restarted");
}

/// It starts a server that goes its own way and outlives it. The next run finds the port free.
#[test]
fn dev_servers_that_outlive_the_agent() {
    let bench = bench();
    let (port, holders) = (free_port(), bench.file("holders"));
    // A grandchild that does not get the port says so and does not count.
    let script = format!(
        "double-fork 'ignore TERM ignore HUP port {port} count {holders} forever' await-text {holders} print ready forever"
    );
    let events = bench.up(&[bench.agent("dev", &script, "")]);
    let holder = |number: usize| {
        await_some("a holder of the port", || {
            let text = std::fs::read_to_string(&holders).ok()?;
            text.lines().nth(number)?.split(' ').nth(1)?.parse::<u32>().ok()
        })
    };
    let mut last = holder(0);
    assert!(std::net::TcpListener::bind(("127.0.0.1", port)).is_err(), "it holds the port");
    for run in 1..=3 {
        assert!(proc::lives(last));
        proc::kill(bench.pid("dev"), "KILL");
        let ended = events.of_run("dev", run, "leftovers-ended");
        assert!(field(&ended, "processes") >= 1, "{ended}");
        events.of_run("dev", run + 1, "run-ready");
        assert!(!proc::lives(last), "gone before the respawn");
        last = holder(usize::try_from(run).unwrap());
    }
    assert!(!bench.log("dev").contains("somebody has the port"));
    check_says(&why(&bench, "dev"), &["was ended by SIGKILL", "that it left running"]);
    bench.defib(&["stop", "dev"]).good();
    assert!(!proc::lives(last));
    std::net::TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
}

/// Its disk is full. It is not started in vain, and goes on by itself when there is space again.
#[test]
fn disk_full() {
    let Some(disk) = Disk::mount("16m") else {
        eprintln!("skipped: only root can mount a small disk");
        return;
    };
    let bench = Bench::below("/tmp", FAKE_AGENT);
    disk.fill();
    let place = format!(
        "cwd = \"{}\"\nlimits = [{{ deaths = 1, within = \"1h\" }}]",
        disk.path().display()
    );
    let line = "head -c 100000 /dev/zero > result || exit 1; echo saved; exec sleep 1000";
    let events = bench.up(&[agent("saver", "generic", line, &place)]);
    let died = events.of_run("saver", 1, "run-died");
    assert_eq!((&died["class"], &died["counted"]), (&"disk".into(), &false.into()), "{died}");
    let status = bench.await_state("saver", "waiting");
    assert_eq!((&status["reason"], field(&status, "run")), (&"disk".into(), 1), "{status}");
    check_says(
        &why(&bench, "saver"),
        &["the disk was full", "No space left on device", "free some"],
    );
    std::fs::remove_file(disk.ballast()).unwrap();
    events.of_run("saver", 2, "run-ready");
    bench.await_log("saver", |log| log.contains("saved"));
    let status = bench.await_state("saver", "running");
    assert_eq!((field(&status, "restarts"), field(&status, "consecutive_failures")), (0, 0));
    drop((events, bench));
}

/// The lid is closed and opened hours later: everything stood still, and the clock has jumped. Who
/// beat before goes on, and what came due meanwhile is done once. (That sleep itself is no silence is
/// held by the core's tests: a test cannot put the machine to sleep.)
#[test]
fn suspend_or_clock_jump() {
    const DELAY: Duration = Duration::from_secs(2);
    let bench = bench();
    let clock = MovedClock::start(&bench);
    let (lives, enough) = (bench.file("lives"), bench.file("enough"));
    let slow = "limits = []\nbackoff = { kind = \"fixed\", base = \"2s\", jitter = 0.0 }";
    let events = bench.up(&[
        bench.agent("resting", &format!("count {lives} forever"), slow),
        bench.agent(
            "beating",
            &format!("beat-until {enough} forever"),
            "heartbeat = { ttl = \"15s\" }",
        ),
    ]);
    let (resting, beating) = (bench.pid("resting"), bench.pid("beating"));
    proc::kill(resting, "KILL");
    events.of("resting", "restart-scheduled");
    let (begin, asleep) = (Instant::now(), bench.processes());
    for pid in &asleep {
        proc::kill(*pid, "STOP");
    }
    clock.set(8 * HOUR);
    while begin.elapsed() < 2 * DELAY {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(std::fs::read_to_string(&lives).unwrap().lines().count(), 1);
    for pid in &asleep {
        proc::kill(*pid, "CONT");
    }
    events.of_run("resting", 2, "run-ready");
    await_that("its second life", || std::fs::read_to_string(&lives).unwrap().lines().count() == 2);
    let status = bench.status("resting");
    assert_eq!((field(&status, "run"), field(&status, "restarts")), (2, 1), "{status}");
    // The clock jumps back as well, and far; no life and no silence is measured by it.
    clock.set(-20 * HOUR);
    let status = bench
        .await_status("beating", |status| status["uptime_s"].as_f64().is_some_and(|age| age > 6.0));
    assert_eq!(defib_e2e::pid_in(&status), beating, "{status}");
    assert!(status["uptime_s"].as_f64().unwrap() < 1800.0, "{status}");
    check_says(&why(&bench, "beating"), &["beating is running", "None of its runs has ended yet"]);
    events.find("no miss", |all| {
        let missed = all.iter().any(|event| is(event, "beating", "heartbeat-missed"));
        (!missed).then_some(())
    });
}

/// A word is wrong: in the agent's options, which only a person can mend, and then in the file itself,
/// which changes nothing.
#[test]
fn config_typo() {
    let bench = bench();
    let option = |word: &str| {
        let line = format!(
            "[ {word} = model ] || {{ echo \"error: unknown option '--{word}'\"; exit 1; }}; exec sleep 1000"
        );
        agent("typist", "claude", &line, "restart = \"always\"")
    };
    let events = bench.up(&[option("modell"), bench.agent("other", "forever", "")]);
    assert_eq!(events.of("typist", "halted")["reason"], "config");
    let status = bench.await_state("typist", "halted");
    assert_eq!((field(&status, "restarts"), field(&status, "run")), (0, 1), "{status}");
    let words = ["typist is halted (config)", "unknown option '--modell'", "defib revive typist"];
    check_says(&why(&bench, "typist"), &words);
    let other = bench.pid("other");
    // The option is right now, and a key is not: nothing is started or stopped on such a file.
    bench.declare(&[
        option("model").replace("restart =", "restrat ="),
        bench.agent("other", "exit 1", ""),
    ]);
    let refused = bench.defib(&["reload"]).bad(3);
    check_says(&refused.err, &["restrat", "restart", "defib.toml"]);
    assert_eq!((bench.pid("other"), &bench.status("typist")["state"]), (other, &"halted".into()));
    bench.declare(&[option("model"), bench.agent("other", "forever", "")]);
    bench.defib(&["reload"]).good();
    // Another command is another agent: nobody has to revive it.
    bench.await_state("typist", "running");
    assert_eq!(bench.pid("other"), other, "who was not concerned has not noticed");
}

/// For ten minutes it spends as it always does; then it runs in circles, and is stopped for that.
#[test]
fn token_burn_loop() {
    let bench = bench();
    let clock = MovedClock::start(&bench);
    // It says what it used whenever it is told to.
    let line =
        "n=1; while :; do if [ -e step$n ]; then cat step$n; n=$((n+1)); else sleep 0.05; fi; done";
    let budget = "restart = \"always\"\n[agent.spender.budget]\nburn = \"stop\"";
    let events = bench.up(&[agent("spender", "claude", line, budget)]);
    let spend = |step: i64, messages: u64| {
        let usage = json!({ "input_tokens": 900, "output_tokens": 100 });
        let lines: Vec<String> = (0..messages)
            .map(|at| json!({ "type": "assistant", "message": { "id": format!("m{step}-{at}"), "usage": usage } }))
            .map(|record| format!("{record}\n"))
            .collect();
        // In one step, or half a file is read.
        let file = bench.file(&format!("step{step}"));
        std::fs::write(format!("{file}.new"), lines.concat()).unwrap();
        std::fs::rename(format!("{file}.new"), file).unwrap();
    };
    for minute in 1..=11 {
        clock.set(minute * MINUTE);
        spend(minute, 2);
        let spent = 2000.0 * f64::from(i32::try_from(minute).unwrap());
        bench.await_status("spender", |status| status["spent"]["tokens"] == spent);
    }
    let status = bench.status("spender");
    assert_eq!((&status["state"], field(&status, "run")), (&"running".into(), 1), "{status}");
    clock.set(12 * MINUTE);
    spend(12, 60);
    let alarm = events.of("spender", "burn-alarm");
    assert_eq!((&alarm["unit"], &alarm["stopped"]), (&"tokens".into(), &true.into()), "{alarm}");
    assert_eq!(alarm["baseline"], 2000.0, "{alarm}");
    assert!(alarm["per_minute"].as_f64().unwrap() > 20_000.0, "{alarm}");
    let died = events.of("spender", "run-died");
    assert_eq!((&died["class"], &died["verdict"]), (&"budget".into(), &"halt".into()), "{died}");
    let status = bench.await_state("spender", "halted");
    assert_eq!((&status["reason"], field(&status, "run")), (&"budget".into(), 1), "{status}");
    let words =
        ["it spent more than it may", "in a minute, where 2000 are usual", "defib revive spender"];
    check_says(&why(&bench, "spender"), &words);
}
