//! Agents with a user of their own, and agents that put symlinks in the place of their files.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use defib_e2e::Bench;
use serde_json::Value;
use tempfile::TempDir;

use crate::FAKE_AGENT;

const USER: u32 = 65534;
const OTHER: u32 = 65533;

/// A bench, and beside it a folder that other users can reach: with the scripted child, the state root
/// and a working folder of [`USER`].
struct Ground {
    bench: Bench,
    open: TempDir,
}

impl Ground {
    /// `None`, with a word why, without root: nobody else can give an agent another user.
    fn new() -> Option<Ground> {
        if !rustix::process::geteuid().is_root() {
            println!("not root: no agent can have another user");
            return None;
        }
        let open = tempfile::Builder::new().prefix("du").tempdir_in("/tmp").unwrap();
        fs::set_permissions(open.path(), Permissions::from_mode(0o711)).unwrap();
        let agent = open.path().join("agent");
        fs::copy(FAKE_AGENT, &agent).unwrap();
        fs::set_permissions(&agent, Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(open.path().join("room")).unwrap();
        let work = open.path().join("work");
        fs::create_dir(&work).unwrap();
        std::os::unix::fs::chown(&work, Some(USER), Some(USER)).unwrap();
        let mut bench = defib_e2e::bench(agent.to_str().unwrap());
        bench.set("DEFIB_STATE_ROOT", open.path().join("s").to_str().unwrap());
        Some(Ground { bench, open })
    }

    fn work(&self) -> PathBuf {
        self.open.path().join("work")
    }

    /// A folder of root with a file that is not an agent's business.
    fn victim(&self) -> Victim {
        let folder = self.open.path().join("victim");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("file"), "untouched").unwrap();
        Victim { before: Victim::facts(&folder), folder }
    }

    /// The part of a config that declares an agent with a shell line and a user.
    fn shell(&self, name: &str, line: &str, user: Option<u32>, settings: &str) -> String {
        let user = user.map(|user| format!("user = \"{user}:{user}\"\n")).unwrap_or_default();
        // Root without its privileges can write its own folder, not another user's.
        let cwd = if user.is_empty() { self.open.path().join("room") } else { self.work() };
        format!(
            "[agent.{name}]\ncommand = [\"/bin/sh\", \"-c\", {}]\ncwd = {:?}\n{user}{settings}\n",
            Value::from(line),
            cwd.display().to_string()
        )
    }
}

/// All that shows whether somebody has changed a folder or the file in it.
struct Victim {
    folder: PathBuf,
    before: Vec<String>,
}

impl Victim {
    fn facts(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        let facts = |path: &Path| {
            let it = fs::symlink_metadata(path).unwrap();
            let times = (it.mtime(), it.mtime_nsec(), it.ctime(), it.ctime_nsec());
            format!("{} {}:{} {:o} {times:?}", path.display(), it.uid(), it.gid(), it.mode())
        };
        let mut all: Vec<String> = names.iter().map(|name| facts(&folder.join(name))).collect();
        all.push(facts(folder));
        all.push(fs::read_to_string(folder.join("file")).unwrap());
        all
    }

    #[track_caller]
    fn check(&self, what: &str) {
        assert_eq!(Victim::facts(&self.folder), self.before, "{what}");
    }
}

#[test]
fn touches_of_the_heartbeat_file_and_readiness_count_for_another_user() {
    let Some(ground) = Ground::new() else { return };
    let bench = &ground.bench;
    let settings = format!(
        "user = \"{USER}:{USER}\"\ncwd = {:?}\nready = \"notify\"\nheartbeat = {{ ttl = \"60s\", grace = \"60s\" }}",
        ground.work()
    );
    let stop = ground.work().join("stop");
    // By a child that has ended by the time that its word is read, as `systemd-notify` has.
    let agent = ground.open.path().join("agent");
    let script =
        format!("run '{} notify READY=1' beat-until {} forever", agent.display(), stop.display());
    bench.up(&[bench.agent("a", &script, &settings)]);
    // It is not running before its READY=1 has come.
    bench.await_state("a", "running");
    bench.await_status("a", |status| status["heartbeat_age_s"].is_number());
    // The next daemon hears it too.
    bench.kill_daemon();
    bench.await_status("a", |status| {
        status["state"] == "running"
            && status["heartbeat_age_s"].as_f64().is_some_and(|age| age < 5.0)
    });
    assert_eq!(bench.history("a").len(), 1, "one run all the while");
}

#[test]
fn a_state_folder_is_its_user_s_alone_and_lasts() {
    let Some(ground) = Ground::new() else { return };
    let bench = &ground.bench;
    let told = ground.work().join("told");
    let keeps = format!(
        "echo secret >> $DEFIB_STATE_DIR/note && echo kept; echo $DEFIB_STATE_DIR > {told}.new && mv {told}.new {told}; \
         if [ $DEFIB_RUN = 1 ]; then exit 1; fi; wc -l < $DEFIB_STATE_DIR/note; echo end; exec sleep 3600",
        told = told.display()
    );
    let pries = format!(
        "until [ -e {told} ]; do sleep 0.05; done; cat $(cat {told})/note; touch $(cat {told})/mine; ls $(cat {told}); echo tried; exec sleep 3600",
        told = told.display()
    );
    bench.up(&[
        ground.shell("keeps", &keeps, Some(USER), ""),
        ground.shell("pries", &pries, Some(OTHER), ""),
    ]);
    let log = bench.await_log("keeps", |log| log.contains("end\n"));
    assert_eq!(log, "kept\nkept\n2\nend\n", "the second run finds what the first has left");
    let log = bench.await_log("pries", |log| log.contains("tried"));
    assert_eq!(log.matches("Permission denied").count(), 3, "{log}");
    assert!(!log.contains("secret"), "{log}");
    let state = fs::read_to_string(&told).unwrap();
    let made = fs::metadata(state.trim()).unwrap();
    assert_eq!((made.uid(), made.gid(), made.mode() & 0o7777), (USER, USER, 0o700));
    assert!(Path::new(state.trim()).starts_with(ground.open.path().join("s")), "{state}");
}

#[test]
fn symlinks_in_the_place_of_a_heartbeat_file_lead_root_nowhere() {
    let Some(ground) = Ground::new() else { return };
    let (bench, victim) = (&ground.bench, ground.victim());
    let folder = victim.folder.display();
    // Each is done by a run that dies, so that the next spawn meets what it has left.
    let plants = [
        (
            "state",
            format!("rm -rf $DEFIB_HEARTBEAT_FILE; ln -s {folder}/file $DEFIB_HEARTBEAT_FILE"),
            "",
        ),
        (
            "dangling",
            format!("rm -rf $DEFIB_HEARTBEAT_FILE; ln -s {folder}/new $DEFIB_HEARTBEAT_FILE"),
            "",
        ),
        ("fifo", "rm -rf $DEFIB_HEARTBEAT_FILE; mkfifo $DEFIB_HEARTBEAT_FILE".to_owned(), ""),
        (
            "file",
            format!("mkdir -p own; rm -rf own/beat; ln -s {folder}/file own/beat"),
            "own/beat",
        ),
        ("folder", format!("rm -rf way; ln -s {folder} way"), "way/beat"),
        ("deep", format!("rm -rf far; ln -s {folder} far"), "far/away/beat"),
        ("outside", format!("rm -rf out; ln -s {folder} out"), "OUT/out/deep/beat"),
    ];
    let mut agents = Vec::new();
    for (name, plant, file) in &plants {
        let file = file.replace("OUT", &ground.work().display().to_string());
        let file = if file.is_empty() { String::new() } else { format!(", file = {file:?}") };
        let settings = format!("heartbeat = {{ ttl = \"60s\", grace = \"60s\"{file} }}\n");
        let line = format!(
            "{plant}; if [ $DEFIB_RUN -lt 3 ]; then exit 1; fi; echo planted; exec sleep 3600"
        );
        agents.push(ground.shell(name, &line, Some(USER), &settings));
    }
    bench.up(&agents);
    for (name, _, _) in &plants {
        bench.await_log(name, |log| log.contains("planted"));
        victim.check(name);
    }
    // The next daemon watches them anew.
    bench.kill_daemon();
    for (name, _, _) in &plants {
        bench.await_state(name, "running");
        victim.check(name);
    }
}

#[test]
fn a_confined_agent_is_not_let_at_what_it_has_linked_to_its_heartbeat_file() {
    let Some(ground) = Ground::new() else { return };
    let (bench, victim) = (&ground.bench, ground.victim());
    let folder = victim.folder.display();
    let confined = "capabilities = [\"read:/\", \"write:.\", \"exec:/usr/bin\", \"exec:/bin\", \"subprocess\"]\n";
    // The agent has the daemon's own user: only the sandbox is between it and the file.
    let cases = [
        ("state", "$DEFIB_HEARTBEAT_FILE", String::new(), format!("{folder}/file")),
        ("file", "beat", ", file = \"beat\"".to_owned(), format!("{folder}/file")),
        ("folder", "way", ", file = \"way/file\"".to_owned(), format!("{folder}")),
        ("new", "new", ", file = \"new/made\"".to_owned(), format!("{folder}")),
    ];
    let agents = cases.iter().map(|(name, place, file, target)| {
        let settings = format!("{confined}heartbeat = {{ ttl = \"60s\", grace = \"60s\"{file} }}\n");
        let line = format!(
            "if [ $DEFIB_RUN = 1 ]; then rm -rf {place}; ln -s {target} {place}; echo linked; exit 1; fi; \
             echo evil > $DEFIB_HEARTBEAT_FILE; echo tried; exec sleep 3600"
        );
        ground.shell(name, &line, None, &settings)
    });
    bench.up(&agents.collect::<Vec<_>>());
    for (name, ..) in &cases {
        let log = bench.await_log(name, |log| log.contains("tried"));
        assert!(log.contains("linked"), "{log}");
        victim.check(name);
    }
}
