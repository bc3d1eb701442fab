//! Obstacles in place of the files of a home: no start hangs or fails, and the daemon says what it did.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use defib_e2e::{Bench, PlainUser, Ran, proc};

use crate::{bench, is_long};

/// What can stand in place of a file.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Obstacle {
    Fifo,
    Device,
    Folder,
    Dangling,
    Loop,
    ToZero,
    ToFifo,
}

const OBSTACLES: [Obstacle; 7] = [
    Obstacle::Fifo,
    Obstacle::Device,
    Obstacle::Folder,
    Obstacle::Dangling,
    Obstacle::Loop,
    Obstacle::ToZero,
    Obstacle::ToFifo,
];

impl Obstacle {
    /// Puts it in place of what is at a path. Says whether it could: only root makes devices.
    fn put(self, path: &Path) -> bool {
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path).unwrap();
        } else {
            let _ = fs::remove_file(path);
        }
        let make = |program: &str, arguments: &[&str]| {
            Command::new(program).args(arguments).status().unwrap().success()
        };
        let shown = path.to_str().unwrap();
        match self {
            Obstacle::Fifo => make("mkfifo", &[shown]),
            Obstacle::Device => make("mknod", &[shown, "c", "1", "5"]),
            Obstacle::Folder => {
                fs::create_dir(path).unwrap();
                fs::write(path.join("something"), "x").unwrap();
                true
            }
            Obstacle::Dangling => symlink("/nowhere/at/all", path).is_ok(),
            Obstacle::Loop => symlink(path, path).is_ok(),
            Obstacle::ToZero => symlink("/dev/zero", path).is_ok(),
            Obstacle::ToFifo => {
                let fifo = path.with_extension("pipe-elsewhere");
                let _ = fs::remove_file(&fifo);
                make("mkfifo", &[fifo.to_str().unwrap()]) && symlink(fifo, path).is_ok()
            }
        }
    }
}

/// Every file and folder of a home, without what belongs to agents alone.
fn everything(home: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut folders = vec![home.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            let name = entry.file_name().into_string().unwrap();
            if name.contains(".set-aside")
                || name.contains(".damaged")
                || name.ends_with("elsewhere")
            {
                continue;
            }
            if path.is_dir() && !path.ends_with("state") {
                folders.push(path.clone());
            }
            all.push(path.strip_prefix(home).unwrap().to_owned());
        }
    }
    // Files that are there at times only.
    for name in
        ["journal.old", "journal.new", "cgroups.new", "logs/a/runs.new", "logs/a/00000002.log"]
    {
        all.push(PathBuf::from(name));
    }
    for database in ["history.db", "intent.db", "witness.db"] {
        all.extend(
            ["-wal", "-shm", "-journal"].map(|suffix| PathBuf::from(format!("{database}{suffix}"))),
        );
    }
    all.sort();
    all.dedup();
    all
}

/// Brings the project up and checks that it works.
fn start(bench: &Bench, what: &str) {
    let up = Ran::within(bench.command(&["up", "--detach"]), Duration::from_secs(60));
    let up = up.unwrap_or_else(|| panic!("{what}: `up` hangs\n{}", bench.account()));
    assert_eq!(up.code, 0, "{what}: {}{}", up.out, up.err);
    bench.pid("a");
    let logs = Ran::within(bench.command(&["logs", "a"]), Duration::from_secs(60));
    assert_eq!(logs.unwrap_or_else(|| panic!("{what}: `logs` hangs")).code, 0, "{what}");
}

/// Goal: no obstacle in place of any file stops or delays a start. Method: a real home is taken down; each of
/// its files is replaced by an obstacle in turn, and the project is brought up again. The short form takes
/// the obstacles by turns, so that each file meets one and each obstacle several files.
#[test]
fn an_obstacle_in_place_of_any_file_neither_hangs_nor_stops_a_start() {
    let bench = bench();
    let part = bench.agent("a", "print hello forever", "");
    bench.up(std::slice::from_ref(&part));
    bench.defib(&["token", "new", "--role", "view"]).good();
    bench.defib(&["run", "--name", "b", "--", "sleep", "1000"]).good();
    bench.pid("b");
    let files = everything(&bench.home());
    println!("{} files: {files:?}", files.len());
    for name in
        ["witness.db", "intent.db", "history.db", "lock", "keeper.log", "journal", "audit.log"]
    {
        assert!(files.contains(&PathBuf::from(name)), "{name}");
    }
    bench.defib(&["down", "--all"]).good();
    let mut tried = 0;
    for (at, file) in files.iter().enumerate() {
        for (turn, obstacle) in OBSTACLES.into_iter().enumerate() {
            if !is_long() && turn != at % OBSTACLES.len() {
                continue;
            }
            let path = bench.home().join(file);
            let _ = fs::create_dir_all(path.parent().unwrap());
            if !obstacle.put(&path) {
                println!("NOT TRIED, for root only: {obstacle:?}");
                continue;
            }
            let what = format!("{obstacle:?} as {}", file.display());
            start(&bench, &what);
            tried += 1;
            bench.defib(&["down", "--all"]).good();
        }
    }
    println!("{tried} starts");
}

#[test]
fn the_daemon_says_what_it_renamed_and_nothing_is_lost() {
    let bench = bench();
    let part = bench.agent("a", "print hello forever", "");
    bench.up(std::slice::from_ref(&part));
    bench.pid("a");
    bench.defib(&["down", "--all"]).good();
    let home = bench.home();
    for name in ["audit.log", "keeper.log", "logs/a/runs.idx", "witness.db-wal"] {
        fs::rename(home.join(name), home.join(format!("{name}.elsewhere"))).unwrap();
        assert!(Obstacle::Fifo.put(&home.join(name)));
    }
    let up = bench.defib(&["up", "--detach"]).good();
    assert!(up.err.contains("keeper.log is a FIFO"), "{}", up.err);
    let said = bench.defib(&["status"]).good().err;
    for name in ["audit.log", "logs/a/runs.idx", "witness.db-wal"] {
        assert!(
            said.contains(&format!("{name} is a FIFO, not a file: renamed to")),
            "{name}: {said}"
        );
        assert!(home.join(format!("{name}.set-aside-1")).exists(), "{name}");
        assert!(fs::read_to_string(home.join("keeper.log")).unwrap().contains(name), "{name}");
    }
}

#[test]
fn obstacles_that_appear_while_the_daemon_runs_do_not_stop_the_next_daemon() {
    let bench = bench();
    let script = "print hello forever";
    bench.up(&[bench.agent("a", script, "")]);
    let pid = bench.pid("a");
    for name in
        ["journal", "audit.log", "history.db", "intent.db", "logs/a/00000001.log", "keeper.log"]
    {
        assert!(Obstacle::Fifo.put(&bench.home().join(name)), "{name}");
    }
    bench.kill_daemon();
    assert_eq!(bench.pid("a"), pid, "the agent lives on");
    proc::kill(pid, "KILL");
    bench.await_status("a", |status| status["pid"].is_u64() && status["pid"] != pid);
}

/// A folder of a plain user, with the program in it.
struct PlainFolder {
    user: PlainUser,
    folder: tempfile::TempDir,
}

impl PlainFolder {
    /// `None`, with the reason on standard error, if no user can be made here.
    fn new() -> Option<PlainFolder> {
        let user = PlainUser::new("odd")?;
        let folder = tempfile::Builder::new().prefix("du").tempdir_in("/tmp").unwrap();
        let user = PlainFolder { user, folder };
        fs::copy(defib_e2e::defib_path(), user.path("defib")).unwrap();
        fs::create_dir(user.path("p")).unwrap();
        let config = "[agent.a]\ncommand = \"echo hello; sleep 1000\"\nshell = true\nstop_timeout = \"1s\"\n";
        fs::write(user.path("p/defib.toml"), config).unwrap();
        user.own(user.folder.path());
        Some(user)
    }

    /// Gives everything below a path to that user.
    fn own(&self, path: &Path) {
        let owner = format!("{}:{}", self.user.uid, self.user.gid);
        let owned = Command::new("chown").args(["-R", "-h", &owner]).arg(path).status();
        assert!(owned.unwrap().success());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the program as that user.
    fn defib(&self, what: &str, arguments: &[&str]) -> Ran {
        let mut command = Command::new(self.path("defib"));
        command.args(arguments).current_dir(self.path("p"));
        self.user.becomes(&mut command);
        command.env("DEFIB_HOME", self.path("h")).env("HOME", self.folder.path());
        let ran = Ran::within(command, Duration::from_secs(60));
        let ran = ran.unwrap_or_else(|| panic!("{what}: {arguments:?} hangs"));
        assert_eq!(ran.code, 0, "{what}: {}{}", ran.out, ran.err);
        ran
    }
}

impl Drop for PlainFolder {
    fn drop(&mut self) {
        let mut down = Command::new(self.path("defib"));
        down.args(["down", "--all"]).env("DEFIB_HOME", self.path("h"));
        let _ = Ran::within(down, Duration::from_secs(30));
    }
}

#[test]
fn a_plain_user_s_daemon_starts_whatever_stands_in_place_of_its_files() {
    let Some(user) = PlainFolder::new() else { return };
    user.defib("first", &["up", "--detach"]);
    user.defib("first", &["down", "--all"]);
    for (at, file) in everything(&user.path("h")).iter().enumerate() {
        let obstacle = OBSTACLES[at % OBSTACLES.len()];
        let what = format!("{obstacle:?} as {}", file.display());
        let path = user.path("h").join(file);
        // An earlier turn may have taken its folder away.
        if fs::create_dir_all(path.parent().unwrap()).is_ok() {
            user.own(&user.path("h/logs"));
        }
        assert!(obstacle.put(&path), "{what}");
        user.defib(&what, &["up", "--detach"]);
        let status = user.defib(&what, &["status", "--json"]).json();
        assert_eq!(status[0]["state"], "running", "{what}: {status:#}");
        user.defib(&what, &["down", "--all"]);
    }
}
