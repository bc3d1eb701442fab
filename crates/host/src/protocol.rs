//! What daemon and keeper say to each other.
//!
//! Messages go over a stream socket, each as a frame: its length, the number of its descriptors, then
//! its bytes ([`crate::Channel`]). A message that carries file descriptors is sent with them attached
//! to its first byte. The version is the first
//! thing that the keeper says: a new daemon can talk to an old keeper, because variants are only
//! ever added at the end. Any bytes give a message or an error; none makes the reader panic.

use defib_core::{Name, RunId};
use serde::{Deserialize, Serialize};

/// The version of what is said here.
pub const VERSION: u32 = 7;

/// The version from which on a keeper runs commands on behalf of runs.
pub const COMMANDING_VERSION: u32 = 7;

/// The version from which on a keeper takes [`Request::SpawnIsolated`].
pub const ISOLATING_VERSION: u32 = 7;

/// The longest frame, in bytes: more than the kernel takes as arguments and environment, and more than a
/// project of ten thousand agents takes, which is kept in one piece.
pub const MAX_FRAME: usize = 64 << 20;

/// A run, as both sides know it: by name and number, never by process id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunKey {
    /// The agent.
    pub agent: Name,
    /// Its run.
    pub run: RunId,
}

/// What the daemon asks of the keeper. Requests are carried out in the order they come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Spawn a run. A run that is known already, alive or ended, is not spawned again.
    Spawn(Box<SpawnOrder>),
    /// Send a signal to the run's first process and its process group.
    Signal {
        /// Which run.
        key: RunKey,
        /// The signal's number.
        signal: i32,
    },
    /// Kill the run and everything that descends from it.
    Kill(RunKey),
    /// Say what is known of a run: its report again, or that it is not known.
    Inquire(RunKey),
    /// The exit report of this run has been taken care of; forget it.
    Acknowledge(RunKey),
    /// Keep these bytes under this key, for the next daemon. No bytes means: forget the key.
    Keep {
        /// Under what.
        key: String,
        /// What.
        bytes: Vec<u8>,
    },
    /// When this daemon ends, start the next from this program.
    Replace {
        /// An absolute path.
        program: String,
    },
    /// When this daemon ends, end too: every agent is down.
    Close,
    /// Keep all of these, or none: as [`Request::Keep`], for what belongs together.
    KeepAll(Vec<(String, Vec<u8>)>),
    /// Hold a notify socket for the agent, at this path, until it is to be closed. Since version 2.
    Listen {
        /// Whose.
        agent: Name,
        /// Where.
        path: String,
    },
    /// Close the agent's notify socket. Since version 2.
    Unlisten(Name),
    /// Spawn a run in a sandbox. Since version 3: an older keeper must not be asked, because it would
    /// not understand, and nothing runs without the sandbox that it is to have.
    SpawnConfined(Box<SpawnOrder>, #[serde(with = "without_isolation")] Box<Profile>),
    /// Much has changed and that is over: give back the memory it took. Since version 4.
    Tidy,
    /// The agent is gone: forget it and the numbers of its runs, once none lives and no report waits to
    /// be acknowledged. What is kept by [`Request::Keep`] stays. Since version 5.
    Forget(Name),
    /// Run a command on behalf of a live run, with the run's user, sandbox, limits, umask and folder. The
    /// answer is [`News::CommandEnded`]. Since version 7: an older keeper cannot do this.
    RunCommand(Box<CommandOrder>),
    /// Kill the command with this number, if it is still running. Since version 7.
    CancelCommand {
        /// The run that the command belongs to.
        key: RunKey,
        /// The command's number.
        number: u64,
    },
    /// Hold a notify socket as [`Request::Listen`] does, and give it to this user. The folder of the path
    /// must be one that only the keeper's user can write. Since version 7.
    ListenFor {
        /// The agent that the socket is for.
        agent: Name,
        /// The path that the socket is bound to.
        path: String,
        /// The number of the user that may send to it.
        user: u32,
    },
    /// Spawn a run in a sandbox, as [`Request::SpawnConfined`], with the isolation of the profile. Since version 7.
    SpawnIsolated(Box<SpawnOrder>, Box<Profile>),
    // Left room for: a deadline. "End these runs at T unless I renew", for a fleet in which a machine
    // that is cut off must be known to have stopped. T is on the time since boot.
}

/// What the keeper tells the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum News {
    /// The first news on every connection.
    Welcome {
        /// The keeper's [`VERSION`].
        version: u32,
        /// The keeper's process id.
        keeper_pid: u32,
        /// How many daemons there were before this one.
        daemons_before: u64,
    },
    /// On a new connection: a run that lives, and the descriptors of its output
    /// ([`crate::output::RunOutput::descriptors`]: one for a pipe; since version 7 three for a terminal).
    Held {
        /// Which run.
        key: RunKey,
        /// Its first process.
        pid: u32,
        /// Whether its output is a terminal's.
        terminal: bool,
    },
    /// On a new connection: what an earlier daemon wanted kept.
    Kept {
        /// Under what.
        key: String,
        /// What.
        bytes: Vec<u8>,
    },
    /// On a new connection: all that is held has been told. Exit reports that were not acknowledged
    /// come before this, as [`News::Exited`].
    AllTold,
    /// The run lives; the descriptors of its output come along, as with [`News::Held`].
    Spawned {
        /// Which run.
        key: RunKey,
        /// Its first process.
        pid: u32,
        /// Whether its output is a terminal's.
        terminal: bool,
    },
    /// The run could not be spawned.
    NotSpawned {
        /// Which run.
        key: RunKey,
        /// The system's error number.
        errno: i32,
        /// What was being done.
        stage: Stage,
    },
    /// The run has ended, and nothing that descends from it is left (unless it is to be kept).
    /// Told again on every connection until it is acknowledged; then, and in answer to an inquiry,
    /// the descriptors of its output come along, since its last bytes may not have been read.
    Exited {
        /// Which run.
        key: RunKey,
        /// How.
        end: RunEnd,
    },
    /// The answer to an inquiry about a run that the keeper has never heard of, or has forgotten.
    Unknown(RunKey),
    /// The run still lives, though it was killed: it is stuck in the kernel. Told once, and to each new
    /// daemon after [`News::AllTold`].
    StillAlive(RunKey),
    /// Somebody wants the whole of it to end in order: TERM or INT to the keeper.
    CloseAsked,
    /// The notify socket that is held for an agent comes along: after it was asked for, and on every
    /// new connection before [`News::AllTold`].
    Listening {
        /// Whose.
        agent: Name,
        /// Where it is bound.
        path: String,
    },
    /// The agent has no notify socket, for this reason of the system's.
    NotListening {
        /// Whose.
        agent: Name,
        /// The system's error number.
        errno: i32,
    },
    /// A process that was left to the keeper, and that nothing attributes to any run. It is left alone,
    /// and told of once. Since version 6.
    Stray {
        /// Which.
        pid: u32,
        /// What its program calls itself.
        program: String,
    },
    /// The command has ended, and the processes that it started are gone. Since version 7.
    CommandEnded {
        /// The run that the command belongs to.
        key: RunKey,
        /// The number that the daemon gave it.
        number: u64,
        /// How it ended.
        end: CommandEnd,
    },
    /// The file of the socket that clients connect to was gone. The new listener comes along. Since version 7.
    Rebound,
}

/// A command to be run on behalf of a live run. The keeper takes everything else from the order by which it
/// spawned the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandOrder {
    /// The run that the command belongs to.
    pub key: RunKey,
    /// A number that this daemon uses once.
    pub number: u64,
    /// The program and its arguments; the program is looked up in the `PATH` of `env`.
    pub argv: Vec<String>,
    /// The whole environment, without the keeper's marks.
    pub env: Vec<(String, String)>,
    /// The deadline, in milliseconds after the spawn. Then every process of the command is killed.
    pub timeout_ms: u64,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandEnd {
    /// Its first process ended by itself, or with its run.
    Ended(How),
    /// Its deadline passed, and it was killed.
    TimedOut,
    /// It was not spawned. `EBUSY`: the run's last command is still there. `ESRCH`: the run does not live.
    NotSpawned {
        /// The system's error number.
        errno: i32,
        /// The step that failed.
        stage: Stage,
    },
}

/// Everything about how a run is spawned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnOrder {
    /// Which run.
    pub key: RunKey,
    /// The program and its arguments; the program is looked up in the `PATH` of `env`.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// The folder it starts in.
    pub cwd: String,
    /// A terminal of its own, new for this run; else one pipe for output and /dev/null as input.
    pub terminal: Option<TerminalSize>,
    /// Its file mode creation mask.
    pub umask: Option<u32>,
    /// Whom it runs as; only root can choose.
    pub user: Option<String>,
    /// What to do with what the run leaves running when it has ended.
    pub leftovers: Leftovers,
    /// Bounds that the kernel holds it to: resource, soft and hard.
    pub rlimits: Vec<(u32, u64)>,
    /// The most memory that the whole run may have, in bytes.
    pub memory: Option<u64>,
}

/// What a run may do that is confined. All that is not in here it may not, as far as the kernel can
/// hold it to that.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Profile {
    /// What may be done at and below which paths. One that does not exist is passed over.
    pub paths: Vec<(String, Access)>,
    /// The TCP ports that may be connected to.
    pub connect: Ports,
    /// The TCP ports that may be listened on.
    pub listen: Ports,
    /// Whether it may use UDP.
    pub udp: bool,
    /// Whether it may make processes.
    pub subprocess: bool,
    /// How it is kept apart. Since version 7; [`Request::SpawnConfined`] is sent without it.
    pub isolation: Isolation,
}

/// A profile as keepers and daemons before version 7 write it.
mod without_isolation {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Access, Isolation, Ports, Profile};

    #[derive(Serialize, Deserialize)]
    struct Plain {
        paths: Vec<(String, Access)>,
        connect: Ports,
        listen: Ports,
        udp: bool,
        subprocess: bool,
    }

    pub(super) fn serialize<S: Serializer>(profile: &Profile, to: S) -> Result<S::Ok, S::Error> {
        let Profile { paths, connect, listen, udp, subprocess, isolation: _ } = profile.clone();
        Plain { paths, connect, listen, udp, subprocess }.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Box<Profile>, D::Error> {
        let Plain { paths, connect, listen, udp, subprocess } = Plain::deserialize(from)?;
        let isolation = Isolation::default();
        Ok(Box::new(Profile { paths, connect, listen, udp, subprocess, isolation }))
    }
}

/// What keeps a confined run apart from the rest of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Isolation {
    /// Which sandbox.
    pub kind: IsolationKind,
    /// Whether a token permits it to write anywhere. Without one it may not change modes, owners, times or
    /// extended attributes of files.
    pub writes: bool,
    /// Whether a token gives it any part of the network.
    pub network: bool,
    /// Whether it gets mounts of its own, on which only the places that it may write are writable.
    pub mounts: bool,
    /// Folders that stay read-only for it whatever its tokens say, except places in them that the profile names.
    pub protected: Vec<String>,
    /// Places with libraries, for namespaces: programs may load code from there.
    pub libraries: Vec<String>,
    /// Unix sockets that it may use, for namespaces.
    pub sockets: Vec<String>,
}

impl Isolation {
    pub(crate) fn is_namespaces(&self) -> bool {
        self.kind == IsolationKind::Namespaces
    }
}

impl Default for Isolation {
    /// As daemons before version 7 meant it.
    fn default() -> Isolation {
        Isolation {
            kind: IsolationKind::Landlock,
            writes: true,
            network: true,
            mounts: false,
            protected: Vec::new(),
            libraries: Vec::new(),
            sockets: Vec::new(),
        }
    }
}

/// The sandboxes that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IsolationKind {
    /// Landlock and a filter of system calls.
    Landlock,
    /// Those, in user, mount, pid, ipc and net namespaces of the run's own.
    Namespaces,
}

/// What may be done at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Access {
    /// Read files and folders.
    pub read: bool,
    /// Write, make, rename and remove.
    pub write: bool,
    /// Run programs, and read them for that.
    pub exec: bool,
}

/// Ports of TCP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ports {
    /// These.
    Only(Vec<u16>),
    /// Every one.
    All,
}

impl Default for Ports {
    /// None.
    fn default() -> Ports {
        Ports::Only(Vec::new())
    }
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters a line.
    pub columns: u16,
}

/// What becomes of what a dead run left running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Leftovers {
    /// It is killed before the end of the run is told.
    Kill,
    /// It is left alone.
    Keep,
}

/// What was being done when a spawn failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Getting a pipe, a terminal or another descriptor.
    Descriptors,
    /// Making the process.
    Process,
    /// Changing to its folder.
    Folder,
    /// Becoming its user.
    User,
    /// Running its program.
    Program,
    /// Confining it. Since version 3.
    Sandbox,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// Its first process's exit code, or the signal that ended it.
    pub how: How,
    /// CPU time in user mode, of its first process and the children that it waited for.
    pub user_ms: u64,
    /// CPU time in the kernel, likewise.
    pub system_ms: u64,
    /// The largest memory of its first process, or of a child that it waited for, in bytes. The system
    /// counts what the process had before it ran its program, and that was the keeper's: what is not
    /// above the keeper's own largest says nothing.
    pub peak_bytes: u64,
    /// Whether the kernel killed in it for want of memory.
    pub oom: bool,
    /// How many processes it left running that were killed.
    pub leftovers_killed: u32,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// It exited with a code.
    Exited(i32),
    /// A signal ended it.
    Signaled(i32),
}
