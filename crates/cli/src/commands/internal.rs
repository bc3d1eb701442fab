//! What defib starts of itself: the keeper and the daemon. Nobody types these.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Subcommand;
use defib_daemon::{DaemonOptions, Will};
use defib_host::claim::Claim;
use defib_host::home::HomeLock;
use defib_host::{Bounds, Entrance, Front, KeeperOptions};
use rustix::fs::MemfdFlags;

use super::Context;
use crate::failure::{Code, Failure};
use crate::home::Home;

/// How long a keeper that was killed may still have the lock: its channel ends before the process does.
const LAST_OF_KEEPER: Duration = Duration::from_secs(5);

/// For defib itself
#[derive(Debug, clap::Args)]
pub(crate) struct Internal {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// The parent of every agent
    Keeper {
        #[command(flatten)]
        occasion: Occasion,
        /// The keeper before it was killed: what its daemon knew comes by standard input
        #[arg(long)]
        heir: bool,
        /// The mark on the processes of that keeper
        #[arg(long)]
        earlier_key: Option<String>,
    },
    /// The brain
    Daemon {
        #[command(flatten)]
        occasion: Occasion,
        /// The mark on the processes of its keeper
        #[arg(long)]
        home_key: Option<String>,
    },
    /// The first process of a run in namespaces
    Confine,
}

#[derive(Debug, Clone, Copy, clap::Args)]
struct Occasion {
    /// A project is about to be brought up: agents are started with what its caller gives
    #[arg(long)]
    for_up: bool,
    /// The client that the keeper started beside the agents
    #[arg(long)]
    front: Option<Front>,
}

impl Internal {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        match &self.role {
            Role::Keeper { occasion, heir, earlier_key } => {
                keeper(&context.home()?, *occasion, *heir, earlier_key.clone())
            }
            Role::Daemon { occasion, home_key } => {
                daemon(&context.home()?, *occasion, home_key.as_deref())
            }
            Role::Confine => defib_host::run_confined(),
        }
    }
}

fn keeper(
    home: &Home,
    occasion: Occasion,
    heir: bool,
    earlier_key: Option<String>,
) -> Result<(), Failure> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| Failure::new(Code::Failed, format!("{what}: {error}"))
    };
    // Whatever the caller had open is not ours to keep.
    defib_host::close_inherited();
    let patience = if heir { LAST_OF_KEEPER } else { Duration::ZERO };
    // Before the folder is made: a folder that was moved away may come back.
    let claim = take_claim(home, patience)?;
    home.create()?;
    // A terminal that closes must not take the agents with it. Who leads a session already stays, and so
    // does the first process of a container: Ctrl-C there is for whoever heeds signals, and that is us.
    if !super::first::is_first() {
        let _ = rustix::process::setsid();
    }
    for line in defib_host::odd_files::clear_for_keeper(home.path()) {
        let _ = io::stderr().write_all(format!("defib: {line}\n").as_bytes());
    }
    let will = if heir { inherited_will() } else { Will::default() };
    let lock = take_lock(home, patience).map_err(failed("the lock of the home"))?;
    let Some(lock) = lock else { return Err(runs_already(home)) };
    let metadata = std::fs::metadata(home.path()).map_err(failed("the home"))?;
    let home_key = format!("{}-{}", metadata.dev(), metadata.ino());
    let places = home.path().join("cgroups");
    // The folder may have been removed, and made again, since the last keeper began.
    let earlier = earlier_key.filter(|earlier| *earlier != home_key);
    let keys = earlier.iter().chain([&home_key]);
    let (killed, left) = keys.fold((0, 0), |(killed, left), key| {
        let swept = defib_host::sweep(key, &places);
        (killed + swept.killed, left + swept.left)
    });
    if killed > 0 {
        // What an earlier keeper left behind; nobody reads this unless something is odd.
        let line = format!("defib: {killed} processes of a keeper that was killed were ended\n");
        let _ = io::stderr().write_all(line.as_bytes());
    }
    if left > 0 {
        let line = format!("defib: {left} of them have not gone; an agent may meet them\n");
        let _ = io::stderr().write_all(line.as_bytes());
    }
    let (entrance, listener) =
        Entrance::open(&home.socket(), claim).map_err(failed("the socket"))?;
    let daemon_program = std::env::current_exe().map_err(failed("this program"))?;
    let mut daemon_args: Vec<OsString> = ["internal", "daemon"].map(OsString::from).to_vec();
    if occasion.for_up {
        daemon_args.push("--for-up".into());
    }
    daemon_args.extend(occasion.front.map(|front| format!("--front={front}").into()));
    daemon_args.push(format!("--home-key={home_key}").into());
    daemon_args.extend(["--home".into(), home.path().into()]);
    let options = KeeperOptions {
        daemon_program,
        daemon_args,
        listener,
        entrance: Some(entrance),
        log: None,
        home_key,
        cgroups: true,
        places,
        kept: will.into_kept(),
    };
    // The lock is held as long as this process lives, whatever number its descriptor has by then.
    std::mem::forget(lock);
    let code = defib_host::run(options).map_err(failed("the keeper"))?;
    std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS))
}

fn daemon(home: &Home, occasion: Occasion, home_key: Option<&str>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(Code::Failed, error);
    let (keeper, listener) = defib_host::inherited().map_err(failed)?;
    // Before it is another: a program that is replaced on disk has no path any more.
    let program = std::env::current_exe().map_err(failed)?;
    let bounds = Bounds::now();
    let Occasion { for_up: awaits_up, front } = occasion;
    let path = home.path().to_owned();
    let options = DaemonOptions { home: path, keeper, listener, awaits_up, front };
    let will = defib_daemon::run(options).map_err(failed)?;
    bounds.restore();
    Err(failed(become_keeper(&program, home, home_key, &will)))
}

/// The keeper was killed. Whoever is left sweeps up what it left behind and keeps the agents from now on;
/// a new process would not be better at it. Returns only if it cannot.
fn become_keeper(program: &Path, home: &Home, home_key: Option<&str>, will: &Will) -> io::Error {
    // Standard error is a file on a disk that may be full.
    let _ = io::stderr().write_all(b"defib: the keeper was killed: its daemon takes its place\n");
    let written = will.written().and_then(|bytes| {
        // In memory only: callers' variables are in it.
        let mut file = File::from(rustix::fs::memfd_create("will", MemfdFlags::CLOEXEC)?);
        file.write_all(&bytes)?;
        file.rewind()?;
        Ok(file)
    });
    let will = written.map_or_else(|_| Stdio::null(), Stdio::from);
    Command::new(program)
        .args(["internal", "keeper", "--heir"])
        .args(home_key.map(|key| format!("--earlier-key={key}")))
        .arg("--home")
        .arg(home.path())
        .env_remove(defib_host::KEEPER_FD)
        .env_remove(defib_host::LISTENER_FD)
        .stdin(will)
        .exec()
}

fn inherited_will() -> Will {
    let mut bytes = Vec::new();
    // Without it, files say what there is to be said.
    let read = io::stdin().read_to_end(&mut bytes).and_then(|_| Will::read(&bytes));
    read.unwrap_or_default()
}

fn runs_already(home: &Home) -> Failure {
    let message = format!("a daemon runs in {} already", home.path().display());
    Failure::new(Code::Failed, message)
        .hint("`defib status` shows its agents; --home picks another folder")
}

/// Takes the lock that does not go with the folder, if the keeper that has it lets go of it in time.
fn take_claim(home: &Home, patience: Duration) -> Result<Claim, Failure> {
    let begin = Instant::now();
    loop {
        match Claim::take(&home.claims()) {
            Ok(claim) => return Ok(claim),
            Err(_) if begin.elapsed() < patience => std::thread::sleep(Duration::from_millis(5)),
            Err(holder) => {
                let lock = home.path().join("lock");
                let is_there = lock.exists() && matches!(HomeLock::take(&lock), Ok(None));
                return Err(if is_there { runs_already(home) } else { home.lost_by(holder) });
            }
        }
    }
}

/// Takes the lock of the home, if whoever has it lets go of it in time.
fn take_lock(home: &Home, patience: Duration) -> io::Result<Option<HomeLock>> {
    let (file, begin) = (home.path().join("lock"), Instant::now());
    loop {
        match HomeLock::take(&file)? {
            None if begin.elapsed() < patience => std::thread::sleep(Duration::from_millis(5)),
            taken => return Ok(taken),
        }
    }
}
