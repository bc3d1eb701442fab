//! An agent whose start hangs delays no other agent: its start is given up after a deadline, counted,
//! reported and tried again.
//!
//! The tests mount a file system that does not answer, or give agents a user. Both need root; without root
//! they print that and return.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use defib_e2e::{Bench, Events, Hung, PlainUser, await_that, proc};
use serde_json::Value;

use crate::bench;

const USER: u32 = 61_240;

/// Restarts soon and for ever.
const EAGER: &str = "restart = \"always\"\nlimits = []\n\
                     backoff = { kind = \"fixed\", base = \"100ms\" }\n";

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("not run: only root can mount a file system or give an agent another user");
    }
    root
}

/// A bench whose starts are given up after half a second, and a folder to be hung.
fn ground() -> (Bench, PathBuf) {
    prepared(bench())
}

fn prepared(mut bench: Bench) -> (Bench, PathBuf) {
    bench.set("DEFIB_TEST_SPAWN_DEADLINE_MS", "500");
    let folder = bench.project().join("remote");
    fs::create_dir(&folder).unwrap();
    (bench, folder)
}

fn sleeper(name: &str, settings: &str) -> String {
    format!("[agent.{name}]\ncommand = [\"/bin/sleep\", \"100000\"]\n{EAGER}{settings}\n")
}

/// Others restart, and a stop of another agent is answered.
fn others_are_served(bench: &Bench, events: &Events) {
    for _ in 0..3 {
        let (before, pid) = (events.last(), bench.pid("other"));
        proc::kill(pid, "KILL");
        events.after(before, "other", "run-started");
        await_that("the other agent runs again", || {
            let status = bench.status("other");
            status["state"] == "running" && status["pid"] != pid
        });
    }
    bench.insist(&["stop", "third"]);
    assert_eq!(bench.status("third")["state"], "stopped");
    bench.insist(&["start", "third"]);
    bench.await_state("third", "running");
}

/// The last death of the agent is a start that took too long, and says so.
fn await_report(bench: &Bench, what: &str) {
    await_that("the report of a start that hangs", || {
        let why = bench.defib(&["why", "stuck"]);
        why.out.contains("the start did not finish within 500ms") && why.out.contains(what)
    });
}

/// The processes of this keeper that have not executed a program: spawners and children that hang.
fn unfinished(bench: &Bench) -> Vec<u32> {
    let (keeper, _) = bench.who();
    let name = |pid| proc::read(pid, "comm").unwrap_or_default();
    proc::all()
        .filter(|pid| {
            proc::parent(*pid) == Some(keeper) && name(*pid).starts_with(b"defib-spawner")
        })
        .collect()
}

#[test]
fn hung_working_folder_delays_no_other_agent_and_the_agent_comes_back() {
    if is_root() {
        assert_hung_folder_delays_nobody(bench());
    }
}

#[test]
fn hung_working_folder_delays_no_other_agent_of_a_plain_user() {
    if is_root()
        && let Some(user) = PlainUser::new("hung")
    {
        assert_hung_folder_delays_nobody(user.bench(crate::FAKE_AGENT));
    }
}

/// Goal: a working folder on a file system that hangs. Method: the agent starts in the folder; then the folder
/// hangs and the agent dies.
fn assert_hung_folder_delays_nobody(bench: Bench) {
    let (bench, folder) = prepared(bench);
    let cwd = format!("cwd = {:?}", folder.display().to_string());
    let parts = [sleeper("stuck", &cwd), sleeper("other", ""), sleeper("third", "")];
    let events = bench.up(&parts);
    for name in ["stuck", "other", "third"] {
        bench.await_state(name, "running");
    }
    let Some(mut hung) = Hung::over(&folder) else { return };
    proc::kill(bench.pid("stuck"), "KILL");
    others_are_served(&bench, &events);
    await_report(&bench, "its folder");
    let status = bench.status("stuck");
    assert_ne!(status["state"], "running", "{status}");
    others_are_served(&bench, &events);
    // The next daemon is served as well.
    bench.kill_daemon();
    others_are_served(&bench, &bench.events());
    hung.release();
    bench.await_state("stuck", "running");
    await_that("what hung has been reaped", || unfinished(&bench).len() <= 1);
    // It can be stopped and started as ever.
    bench.insist(&["stop", "stuck"]);
    bench.insist(&["start", "stuck"]);
    bench.await_state("stuck", "running");
}

#[test]
fn agent_whose_start_hangs_can_be_stopped() {
    if !is_root() {
        return;
    }
    let (bench, folder) = ground();
    let cwd = format!("cwd = {:?}", folder.display().to_string());
    bench.up(&[sleeper("stuck", &cwd)]);
    bench.await_state("stuck", "running");
    let Some(hung) = Hung::over(&folder) else { return };
    proc::kill(bench.pid("stuck"), "KILL");
    await_report(&bench, "its folder");
    bench.insist(&["stop", "stuck"]);
    assert_eq!(bench.status("stuck")["state"], "stopped");
    bench.insist(&["down"]);
    drop(hung);
}

/// Goal: paths of an agent that the daemon itself looks at. Method: for each sort of path, the agent starts;
/// then the folder of that path hangs and the agent dies.
#[test]
fn hung_paths_that_the_daemon_looks_at_delay_no_other_agent() {
    if !is_root() {
        return;
    }
    let shown = |file: &Path| format!("{:?}", file.display().to_string());
    let sorts = [("env_file", "env"), ("heartbeat_file", "beat"), ("capabilities", "data")];
    for (sort, name) in sorts {
        let (bench, folder) = ground();
        let path = folder.join(name);
        fs::write(&path, "A=1\n").unwrap();
        let setting = match sort {
            "capabilities" => {
                let token = Value::from(format!("read:{}", path.display()));
                format!("capabilities = [{token}]")
            }
            "heartbeat_file" => format!("heartbeat = {{ file = {}, ttl = \"1h\" }}", shown(&path)),
            _ => format!("{sort} = {}", shown(&path)),
        };
        let parts = [sleeper("stuck", &setting), sleeper("other", ""), sleeper("third", "")];
        let events = bench.up(&parts);
        for name in ["stuck", "other", "third"] {
            bench.await_state(name, "running");
        }
        let Some(mut hung) = Hung::over(&folder) else { return };
        proc::kill(bench.pid("stuck"), "KILL");
        others_are_served(&bench, &events);
        await_report(&bench, &format!("its {sort}"));
        // An operator who asks for the agent is answered, and so is the one who comes after.
        bench.defib(&["caps", "stuck"]);
        others_are_served(&bench, &events);
        bench.kill_daemon();
        others_are_served(&bench, &bench.events());
        hung.release();
        bench.await_state("stuck", "running");
    }
}

/// Goal: an agent that stops a sibling of its user between `setuid` and `exec` delays only that sibling.
/// Method: the attacker looks for new processes of its user that still have the keeper's program, and stops
/// them. It is asked to, until it has caught one start.
#[test]
fn sibling_that_is_stopped_before_its_program_delays_nobody_and_is_tried_again() {
    if !is_root() {
        return;
    }
    let mut bench = bench();
    bench.set("DEFIB_TEST_SPAWN_DEADLINE_MS", "500");
    let project = bench.project();
    for (folder, mode) in [(project.parent().unwrap(), 0o755), (&project, 0o777)] {
        fs::set_permissions(folder, PermissionsExt::from_mode(mode)).unwrap();
    }
    let attack = project.join("attack");
    fs::copy(crate::FAKE_AGENT, &attack).unwrap();
    fs::set_permissions(&attack, PermissionsExt::from_mode(0o755)).unwrap();
    let user = format!("user = \"{USER}:{USER}\"\ncwd = \"/\"\n");
    let command = format!("[{:?}, \"stop-siblings\"]", attack.display().to_string());
    let attacker = format!("[agent.attacker]\ncommand = {command}\n{user}");
    // The program is looked for in many folders, which gives the attacker time.
    let path = "/nowhere:".repeat(12_000) + "/bin";
    let quick =
        format!("[agent.stuck]\ncommand = [\"true\"]\n{EAGER}{user}env = {{ PATH = {path:?} }}\n");
    let events = bench.up(&[attacker, sleeper("other", ""), sleeper("third", ""), quick]);
    bench.await_state("attacker", "running");
    // It is one death among many.
    events.find("a start that was stopped and given up", |all| {
        let late = |event: &Value| event.to_string().contains("did not finish within 500ms");
        all.iter().any(late).then_some(())
    });
    others_are_served(&bench, &events);
    bench.insist(&["stop", "attacker"]);
    let before = events.last();
    events.after(before, "stuck", "run-started");
    await_that("what was stopped has been reaped", || unfinished(&bench).len() <= 1);
}
