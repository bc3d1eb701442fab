//! What defib starts of itself: the keeper and the daemon. Nobody types these.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;

use clap::Subcommand;
use defib_daemon::DaemonOptions;
use defib_host::{Front, KeeperOptions};

use super::Context;
use crate::failure::{Code, Failure};
use crate::home::Home;

/// For defib itself
#[derive(Debug, clap::Args)]
pub(crate) struct Internal {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// The parent of every agent
    Keeper(Occasion),
    /// The brain
    Daemon(Occasion),
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
        let home = context.home()?;
        match self.role {
            Role::Keeper(occasion) => keeper(&home, occasion),
            Role::Daemon(occasion) => daemon(&home, occasion),
        }
    }
}

fn keeper(home: &Home, occasion: Occasion) -> Result<(), Failure> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| Failure::new(Code::Failed, format!("{what}: {error}"))
    };
    // Whatever the caller had open is not ours to keep.
    defib_host::close_inherited();
    home.create()?;
    // A terminal that closes must not take the agents with it. Who leads a session already stays, and so
    // does the first process of a container: Ctrl-C there is for whoever heeds signals, and that is us.
    if !super::first::is_first() {
        let _ = rustix::process::setsid();
    }
    let lock = defib_host::home::HomeLock::take(&home.path().join("lock"))
        .map_err(|error| failed("the lock of the home")(error.into()))?;
    let Some(lock) = lock else {
        return Err(Failure::new(
            Code::Failed,
            format!("a daemon runs in {} already", home.path().display()),
        )
        .hint("`defib status` shows its agents; --home picks another folder"));
    };
    let metadata = std::fs::metadata(home.path()).map_err(failed("the home"))?;
    let home_key = format!("{}-{}", metadata.dev(), metadata.ino());
    defib_host::sweep(&home_key);
    let socket = home.socket();
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).map_err(failed("the socket"))?;
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&socket, mode).map_err(failed("the socket"))?;
    let daemon_program = std::env::current_exe().map_err(failed("this program"))?;
    let mut daemon_args: Vec<OsString> = ["internal", "daemon"].map(OsString::from).to_vec();
    if occasion.for_up {
        daemon_args.push("--for-up".into());
    }
    daemon_args.extend(occasion.front.map(|front| format!("--front={front}").into()));
    daemon_args.extend(["--home".into(), home.path().into()]);
    let options = KeeperOptions {
        daemon_program,
        daemon_args,
        listener: OwnedFd::from(listener),
        log: None,
        home_key,
        cgroups: true,
    };
    // The lock is held as long as this process lives, whatever number its descriptor has by then.
    std::mem::forget(lock);
    let code = defib_host::run(options).map_err(failed("the keeper"))?;
    let _ = std::fs::remove_file(&socket);
    std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS))
}

fn daemon(home: &Home, occasion: Occasion) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(Code::Failed, error);
    let (keeper, listener) = defib_host::inherited().map_err(failed)?;
    let Occasion { for_up: awaits_up, front } = occasion;
    let home = home.path().to_owned();
    let options = DaemonOptions { home, keeper, listener, awaits_up, front };
    defib_daemon::run(options).map_err(failed)
}
