//! Changes are acknowledged only when they are stored, and stored facts outlive damaged files.

use std::path::Path;

use defib_e2e::{Bench, Disk, await_that};

use crate::{FAKE_AGENT, bench};

/// A home on a small disk, with agents that write nothing. Prints why if there is no such disk.
fn small_disk() -> Option<Disk> {
    let disk = Disk::mount("16m");
    if disk.is_none() {
        eprintln!("skipped: only root can mount a small disk (tmpfs)");
    }
    disk
}

/// Goal: every change that cannot be stored fails with exit 1 and HTTP 507, and a stop still stops.
/// Method: a home on a full tmpfs; then the space comes back and both processes are killed.
#[test]
fn change_on_a_full_disk_is_not_acknowledged() {
    let Some(disk) = small_disk() else { return };
    let bench = Bench::below(disk.path(), FAKE_AGENT);
    let confined = "capabilities = [\"read:/\", \"exec:/\"]";
    let events = bench.up(&[
        bench.agent("a", "forever", confined),
        bench.agent("b", "forever", ""),
        bench.agent("c", "forever", ""),
    ]);
    for name in ["a", "b", "c"] {
        events.of(name, "run-ready");
    }
    drop(events);
    bench.defib(&["token", "new", "--name", "tok-old", "--role", "admin"]).good();
    bench.defib(&["stop", "c"]).good();
    disk.fill();
    let unstored = |words: &[&str]| {
        let said = bench.defib(words).bad(1).err;
        assert!(said.contains("stored") && said.contains("space in the home folder"), "{said}");
    };
    unstored(&["stop", "b"]);
    assert_eq!(bench.status("b")["state"], "stopped");
    unstored(&["start", "c"]);
    unstored(&["grant", "a", "net:443"]);
    unstored(&["revoke", "a", "exec:/"]);
    unstored(&["fund", "a", "10", "scrip"]);
    unstored(&["token", "new", "--name", "tok-new", "--role", "admin"]);
    unstored(&["token", "revoke", "tok-old"]);
    unstored(&["up", "--detach"]);
    unstored(&["reload"]);
    let answer =
        bench.ask("POST", "/api/v1/agents/b/stop", &["Content-Type: application/json"], "{}");
    assert_eq!((answer.code, answer.trouble().as_str()), (507, "not-stored"));
    unstored(&["down"]);
    await_that("all agents are down", || {
        bench.statuses().iter().all(|agent| agent["state"] == "stopped")
    });
    // The daemon stores the changes by itself when there is space again.
    std::fs::remove_file(disk.ballast()).unwrap();
    bench.defib(&["up", "--detach"]).good();
    bench.await_state("a", "running");
    bench.defib(&["stop", "b"]).good();
    bench.kill_both();
    bench.defib(&["up", "--detach"]).good();
    bench.await_state("a", "running");
    assert_eq!(bench.status("b")["state"], "stopped");
    let tokens = bench.defib(&["token", "list"]).good().out;
    assert!(!tokens.contains("tok-"), "{tokens}");
    drop(bench);
}

/// The files that hold what was wanted and what happened.
const FILES: [&str; 10] = [
    "journal",
    "history.db",
    "history.db-wal",
    "history.db-shm",
    "intent.db",
    "intent.db-wal",
    "intent.db-shm",
    "witness.db",
    "witness.db-wal",
    "witness.db-shm",
];

/// Copies the files of a home to or from another folder; a file that is not there is removed there.
fn copy_files(from: &Path, to: &Path, files: &[&str]) {
    for file in files {
        let _ = std::fs::remove_file(to.join(file));
        if from.join(file).exists() {
            std::fs::copy(from.join(file), to.join(file)).unwrap();
        }
    }
}

fn is_in_intents(bench: &Bench, word: &str) -> bool {
    ["intent.db", "intent.db-wal"].iter().any(|file| {
        let bytes = std::fs::read(bench.home().join(file)).unwrap_or_default();
        bytes.windows(word.len()).any(|found| found == word.as_bytes())
    })
}

/// Goal: a journal that was cut short starts no agent that had crashed out, halted or been stopped.
/// Method: both processes are killed; then each start finds the same files and another cut.
#[test]
fn journal_cut_short_starts_no_agent_at_rest() {
    let bench = bench();
    let events = bench.up(&[
        bench.agent("crashed", "exit 1", "limits = [{ deaths = 3, within = \"1h\" }]\nbackoff = { kind = \"fixed\", base = \"1ms\" }"),
        bench.agent("halted", "exit 3", "exit_codes = { 3 = \"config\" }\non = { config = \"halt\" }"),
        bench.agent("stopped", "forever", ""),
        bench.agent("running", "forever", ""),
    ]);
    events.of("crashed", "crashed-out");
    events.of("halted", "halted");
    events.of("running", "run-ready");
    events.of("stopped", "run-ready");
    bench.defib(&["stop", "stopped"]).good();
    drop(events);
    await_that("rests on disk", || {
        is_in_intents(&bench, "CrashedOut") && is_in_intents(&bench, "Halted")
    });
    bench.kill_both();
    let copy = tempfile::tempdir().unwrap();
    copy_files(&bench.home(), copy.path(), &FILES);
    let journal = std::fs::read(copy.path().join("journal")).unwrap();
    let lines: Vec<usize> = (1..=journal.len()).filter(|at| journal[at - 1] == b'\n').collect();
    assert!(lines.len() > 8, "{}", lines.len());
    // Ends of lines, and the middle of a line.
    let middle = lines[lines.len() / 2] + 20;
    let step = lines.len().div_ceil(6);
    let cuts = lines.iter().copied().step_by(step).chain([0, middle]);
    for cut in cuts {
        copy_files(copy.path(), &bench.home(), &FILES);
        std::fs::write(bench.home().join("journal"), &journal[..cut]).unwrap();
        bench.defib(&["up", "--detach"]).good();
        bench.await_state("running", "running");
        let state = |name: &str| bench.status(name)["state"].clone();
        let states = [state("crashed"), state("halted"), state("stopped")];
        assert_eq!(states, ["crashed-out", "halted", "stopped"], "cut at {cut}");
        bench.kill_both();
    }
}

/// Goal: an agent that halted is not started again because the history does not know that its run ended.
/// Method: the history is an old copy, from before the halt, and the journal is empty.
#[test]
fn stored_rest_wins_over_a_history_that_ends_before_it() {
    let bench = bench();
    let go = bench.home().join("go");
    let script = format!("await {} exit 3", go.display());
    let options = "exit_codes = { 3 = \"config\" }\non = { config = \"halt\" }";
    let events =
        bench.up(&[bench.agent("halted", &script, options), bench.agent("running", "forever", "")]);
    events.of("halted", "run-ready");
    let old = tempfile::tempdir().unwrap();
    let history = ["history.db", "history.db-wal"];
    await_that("the run in the history", || {
        copy_files(&bench.home(), old.path(), &history);
        let bytes = |file| std::fs::read(old.path().join(file)).unwrap_or_default();
        history.iter().any(|file| bytes(file).windows(9).any(|word| word == b"run-ready"))
    });
    std::fs::write(&go, "").unwrap();
    events.of("halted", "halted");
    drop(events);
    await_that("the halt on disk", || is_in_intents(&bench, "Halted"));
    bench.kill_both();
    let _ = std::fs::remove_file(bench.home().join("history.db-shm"));
    copy_files(old.path(), &bench.home(), &history);
    std::fs::write(bench.home().join("journal"), "").unwrap();
    bench.defib(&["up", "--detach"]).good();
    bench.await_state("running", "running");
    let status = bench.status("halted");
    assert_eq!((&status["state"], &status["run"]), (&"halted".into(), &1.into()), "{status}");
}

/// What an accident does to a file; the second path is an old copy of it.
type Accident = (&'static str, fn(&Path, &Path));

const ACCIDENTS: [Accident; 5] = [
    ("removed", |file, _| std::fs::remove_file(file).unwrap()),
    ("emptied", |file, _| std::fs::write(file, b"").unwrap()),
    ("garbage", |file, _| std::fs::write(file, vec![0xA5; 20_000]).unwrap()),
    ("cut", |file, _| {
        let bytes = std::fs::read(file).unwrap();
        std::fs::write(file, &bytes[..bytes.len() / 3]).unwrap();
    }),
    ("old copy", |file, old| {
        std::fs::copy(old, file).unwrap();
    }),
];

/// Does an accident to a database of the home.
fn damage(bench: &Bench, copy: &Path, file: &str, accident: fn(&Path, &Path)) {
    for suffix in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(bench.home().join(format!("{file}{suffix}")));
    }
    accident(&bench.home().join(file), &copy.join(file));
}

/// A home whose processes are gone, with `b` stopped, a token revoked, `a` funded and restricted since
/// the copy of its files was made.
fn changed_home() -> (Bench, tempfile::TempDir) {
    let bench = bench();
    let confined = "capabilities = [\"read:/\", \"exec:/\"]";
    let events =
        bench.up(&[bench.agent("a", "forever", confined), bench.agent("b", "forever", "")]);
    events.of("a", "run-ready");
    events.of("b", "run-ready");
    drop(events);
    bench.defib(&["token", "new", "--name", "tok-gone", "--role", "view"]).good();
    bench.defib(&["down", "--all"]).good();
    let copy = tempfile::tempdir().unwrap();
    copy_files(&bench.home(), copy.path(), &FILES);
    bench.defib(&["up", "--detach"]).good();
    bench.await_state("b", "running");
    bench.defib(&["stop", "b"]).good();
    bench.defib(&["token", "revoke", "tok-gone"]).good();
    bench.defib(&["fund", "a", "10", "scrip"]).good();
    bench.defib(&["revoke", "a", "exec:/"]).good();
    bench.defib(&["down", "--all"]).good();
    bench.defib(&["up", "--detach"]).good();
    bench.defib(&["stop", "b"]).good();
    bench.kill_both();
    (bench, copy)
}

#[test]
fn damaged_intent_db_rolls_nothing_back() {
    for (what, accident) in ACCIDENTS {
        let (bench, copy) = changed_home();
        damage(&bench, copy.path(), "intent.db", accident);
        let said = bench.defib(&["up", "--detach"]).good().err;
        assert!(said.contains("warning: intent.db was damaged"), "{what}: {said}");
        assert!(said.contains("restored from witness.db"), "{what}: {said}");
        let said = bench.defib(&["status"]).good().err;
        assert!(said.contains("restored from witness.db"), "{what}: {said}");
        assert_eq!(bench.status("b")["state"], "stopped", "{what}");
        let a = bench.status("a");
        assert_eq!(a["balance"]["scrip"], 10.0, "{what}: {a}");
        assert_eq!(a["capabilities"], serde_json::json!(["read:/"]), "{what}: {a}");
        let tokens = bench.defib(&["token", "list"]).good().out;
        assert!(!tokens.contains("tok-"), "{what}: {tokens}");
        let event = bench.events().find("history-damaged", |events| {
            events.iter().find(|event| event["type"] == "history-damaged").cloned()
        });
        assert_eq!(
            (&event["file"], &event["restored_from"]),
            (&"intent.db".into(), &"witness.db".into())
        );
    }
}

#[test]
fn damaged_witness_db_is_made_again() {
    let (bench, copy) = changed_home();
    for (what, accident) in ACCIDENTS {
        damage(&bench, copy.path(), "witness.db", accident);
        let said = bench.defib(&["up", "--detach"]).good().err;
        // A copy that is only behind is brought up to date without a message.
        if !["cut", "old copy"].contains(&what) {
            assert!(said.contains("witness.db was damaged"), "{what}: {said}");
        }
        assert_eq!(bench.status("b")["state"], "stopped", "{what}");
        bench.kill_both();
    }
    damage(&bench, copy.path(), "intent.db", ACCIDENTS[0].1);
    let said = bench.defib(&["up", "--detach"]).good().err;
    assert!(said.contains("restored from witness.db"), "{said}");
    assert_eq!(bench.status("b")["state"], "stopped");
}

#[test]
fn loss_of_both_copies_is_reported_and_the_history_keeps_agents_stopped() {
    let (bench, copy) = changed_home();
    bench.defib(&["up", "--detach"]).good();
    bench.defib(&["token", "new", "--name", "tok-valid", "--role", "view"]).good();
    bench.kill_both();
    for file in ["intent.db", "witness.db"] {
        damage(&bench, copy.path(), file, ACCIDENTS[0].1);
    }
    let said = bench.defib(&["up", "--detach"]).good().err;
    assert!(said.contains("warning: intent.db was lost") && said.contains("tokens"), "{said}");
    bench.await_state("a", "running");
    assert_eq!(bench.status("b")["state"], "stopped");
    let tokens = bench.defib(&["token", "list"]).good().out;
    assert!(!tokens.contains("tok-"), "{tokens}");
}
