//! An agent cannot pass for the operator, also if nothing but its ancestors shows that it is an agent.
//!
//! The agent is `tests/src/impostor/impostor.c`. In every way that it knows it asks the daemon to stop another
//! agent: as an orphan, as a thread, by a connection whose maker has ended, from a PID namespace of its
//! own, 1,000 forks deep, and 60 deep while its ancestors end. The keeper has no cgroups.

use std::path::Path;
use std::process::Command;

use defib_e2e::{Bench, PlainUser, Ran, proc};
use serde_json::Value;

use crate::{FAKE_AGENT, bench};

/// Name, depth and number of attempts with dying ancestors, of each impostor. To fork deep is slow: each
/// fork copies what the kernel knows of all ancestors' memory.
const IMPOSTORS: [(&str, usize, usize); 2] = [("open", 1000, 300), ("confined", 100, 100)];
/// The ways besides dying ancestors, in their order. `namespaced` may not be permitted.
const WAYS: [&str; 11] = [
    "plain",
    "orphan",
    "thread",
    "ended",
    "zombie",
    "passed",
    "executed",
    "namespaced",
    "namespaced",
    "deep",
    "deep",
];

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Brings the project up with a keeper that cannot make cgroups: root gets a mount namespace in which they
/// are covered. A plain user has none to write.
fn up_without_cgroups(bench: &Bench, hides: bool) {
    let plain = bench.command(&["up", "--detach"]);
    if !hides {
        return drop(Ran::to_end(plain).good());
    }
    let mut covered = Command::new("unshare");
    let line = "mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"";
    covered.args(["--mount", "sh", "-c", line, "sh"]).arg(plain.get_program());
    covered.args(plain.get_args()).current_dir(bench.project());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => covered.env(name, value),
            None => covered.env_remove(name),
        };
    }
    let ran = Ran::to_end(covered);
    if ran.code != 0 {
        eprintln!("cgroups are not covered, because that is not permitted here: {}", ran.err);
        Ran::to_end(plain).good();
    }
}

/// Sends a `stop` with curl, as an operator would, and gives the status.
fn curl(bench: &Bench, user: Option<&PlainUser>, agent: &str) -> Option<String> {
    let mut curl = Command::new("curl");
    curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", "POST", "--unix-socket"]);
    curl.arg(bench.home().join("defib.sock")).args(["-H", "content-type: application/json"]);
    curl.args(["-d", "{}"]).arg(format!("http://defib/api/v1/agents/{agent}/stop"));
    if let Some(user) = user {
        user.becomes(&mut curl);
    }
    let told = curl.output().ok()?;
    Some(String::from_utf8_lossy(&told.stdout).into_owned())
}

/// Goal: no attempt of an agent to act as the operator gets in, and the audit never blames the operator. Then
/// the operator's own tools still work. Method: an unconfined and a confined agent try all ways; each line of
/// their output has the HTTP status that an attempt got.
fn assert_no_impostor_gets_in(bench: &Bench, user: Option<&PlainUser>) {
    let program = bench.project().join("impostor");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/impostor/impostor.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-Wall", "-Werror", "-pthread", "-o"]).arg(&program).arg(source);
    assert!(compiler.status().expect("a C compiler, which SQLite needs too").success());
    let socket = bench.home().join("defib.sock");
    let impostor = |(name, depth, tries): (&str, usize, usize), settings: &str| {
        let words = [&program, &socket].map(|path: &_| Path::display(path).to_string());
        let command = Value::from_iter([
            words[0].as_str(),
            &words[1],
            "victim",
            &depth.to_string(),
            &tries.to_string(),
        ]);
        format!("[agent.{name}]\ncommand = {command}\n{settings}\n")
    };
    let tokens = "capabilities = [\"subprocess\", \"read:/\", \"exec:/\"]";
    bench.declare(&[
        bench.agent("victim", "forever", ""),
        bench.agent("second", "forever", ""),
        impostor(IMPOSTORS[0], ""),
        impostor(IMPOSTORS[1], tokens),
    ]);
    up_without_cgroups(bench, user.is_none() && is_root());
    let victim = bench.pid("victim");
    let cgroup = String::from_utf8(proc::read(victim, "cgroup").unwrap()).unwrap();
    eprintln!("{} a cgroup per agent", if cgroup.contains("victim@") { "with" } else { "without" });
    for (name, _, tries) in IMPOSTORS {
        // Each part has a deadline of its own.
        bench.await_log(name, |log| log.matches("deep ").count() == 2);
        bench.await_log(name, |log| log.matches("dying ").count() > tries / 2);
        let log = bench.await_log(name, |log| log.ends_with("done\n"));
        let answers: Vec<(&str, &str)> =
            log.lines().filter_map(|line| line.split_once(' ')).collect();
        if answers.contains(&("namespaced", "not-permitted")) {
            eprintln!("{name}: no attempt from a PID namespace, which is not permitted");
        }
        for way in WAYS.iter().chain(&["dying"]) {
            assert!(
                answers.iter().any(|(tried, _)| tried == way),
                "{name} did not try {way}\n{log}"
            );
        }
        assert_eq!(answers.iter().filter(|(way, _)| *way == "dying").count(), tries);
        let refused = |status: &str| ["403", "not-permitted"].contains(&status);
        let others: Vec<_> = answers.iter().filter(|(_, status)| !refused(status)).collect();
        assert!(others.is_empty(), "{name} got in, or was not answered: {others:?}");
    }
    assert_eq!(bench.pid("victim"), victim, "no attempt stopped it");

    let stops = || {
        let audit = bench.defib(&["audit", "--json"]).good().json();
        let is_stop = |entry: &&Value| entry["what"].as_str().unwrap().ends_with("/stop");
        audit.as_array().unwrap().iter().filter(is_stop).cloned().collect::<Vec<_>>()
    };
    for entry in stops() {
        let who = entry["who"].as_str().unwrap();
        let is_right = ["agent:open", "agent:confined", "an unverified process"].contains(&who);
        assert!(is_right && entry["outcome"] == "refused (403)", "{entry}");
    }
    match curl(bench, user, "victim") {
        Some(status) => assert_eq!(status, "200", "an operator's curl"),
        None => eprintln!("curl is not installed: not tried"),
    }
    bench.defib(&["stop", "second"]).good();
    let by_operator = stops().into_iter().filter(|entry| entry["outcome"] == "ok");
    let mut names = by_operator.map(|entry| entry["who"].as_str().unwrap().to_owned());
    assert!(names.all(|who| who.starts_with("uid:")));
    bench.await_state("second", "stopped");
}

#[test]
fn agent_of_the_test_s_own_user_never_passes_for_the_operator() {
    eprintln!("as {}", if is_root() { "root" } else { "the plain user that runs the tests" });
    assert_no_impostor_gets_in(&bench(), None);
}

#[test]
fn agent_of_a_plain_user_never_passes_for_the_operator() {
    let Some(user) = PlainUser::new("imp") else { return };
    eprintln!("as the user {}, who was created for this", user.uid);
    assert_no_impostor_gets_in(&user.bench(FAKE_AGENT), Some(&user));
}
