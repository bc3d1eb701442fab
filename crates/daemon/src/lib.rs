//! The brain: it decides, remembers, captures and answers. It may die or be replaced at any time.
//!
//! [`run`] is the daemon's main function. It takes over from the keeper, puts the engine to work on
//! a thread of its own, and serves the API on another.

#![forbid(unsafe_code)]
// It panics where standard error cannot be written, and that is a file on a disk that may be full.
#![deny(clippy::print_stderr)]

/// One line in the keeper's log, where there is room for it.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let line = format!("defib: {}\n", format_args!($($text)*));
        let _ = std::io::stderr().write_all(line.as_bytes());
    }};
}

pub mod adhoc;
mod api;
pub mod audit;
mod bugs;
mod coroner;
mod denied;
mod doors;
mod engine;
mod errand;
mod home_mode;
mod intents;
mod journal;
mod ledger;
mod liveness;
pub mod logs;
mod meter;
mod metrics;
mod names;
mod notices;
mod notify;
mod old_keeper;
#[doc(hidden)]
pub mod outside;
mod places;
mod plain;
mod policy;
mod post;
mod recipe;
pub mod replay;
mod sandbox;
mod tally;
mod terminal;
mod why;
mod will;
pub mod wire;
pub mod words;
mod workers;

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use defib_history::{History, Options, Trouble};
use defib_host::protocol::{News, Request};
use defib_host::wake::Waker;
use defib_host::{Channel, Front};
use tokio::sync::{mpsc, watch};

use crate::doors::{Doors, Recorder};
use crate::engine::{Beginning, Engine, Setup};
use crate::metrics::{Exporter, Metrics};
use crate::notify::{Herald, Roll};
use crate::terminal::Terminals;

pub use meter::coverage::{UnmeteredUnit, units, unmetered};
pub use old_keeper::{NO_NAMESPACES, held_warning};
pub use plain::read_plain;
pub use recipe::environment_for;
pub use sandbox::gaps::{GAPS, Gap};
pub use will::Will;

/// What the keeper hands to a daemon.
#[derive(Debug)]
pub struct DaemonOptions {
    /// The folder of everything.
    pub home: PathBuf,
    /// The way to the keeper.
    pub keeper: Channel<Request, News>,
    /// The socket that clients connect to.
    pub listener: OwnedFd,
    /// Whether it was started because a project is about to be brought up.
    pub awaits_up: bool,
    /// A client that descends from the keeper and is no agent's.
    pub front: Option<Front>,
}

/// Is the daemon, until it is told to end. Returns only when its keeper was killed, with what the next
/// keeper is to hold: the process becomes that, and whatever else still goes on in it ends by that.
///
/// # Errors
/// If it cannot begin.
pub fn run(options: DaemonOptions) -> io::Result<Will> {
    let DaemonOptions { home, keeper, listener, awaits_up, front } = options;
    bugs::end_the_process();
    defib_host::settle_allocator();
    // Each agent holds a descriptor here; the keeper has given us the limit that agents get.
    defib_host::raise_descriptor_limit();
    // What agents are given passes through our memory.
    defib_host::hide_memory();
    let obstacles = defib_host::odd_files::clear_home(&home);
    for line in &obstacles {
        say!("{line}");
    }
    // Without it, a sandbox on a machine without mount namespaces is weaker; `defib caps` says that.
    let _ = home_mode::hold(&home);
    let path = home.join("history.db");
    let wake = Arc::new(Waker::new()?);
    let (tell, troubles) = std::sync::mpsc::channel();
    let (teller, waker) = (tell.clone(), wake.clone());
    let on_trouble = move |trouble: &Trouble| {
        // The engine ends only with the process.
        let _ = teller.send(trouble.clone());
        waker.wake();
    };
    // How long things are kept is said by projects, which are not known yet.
    let on_trouble = Box::new(on_trouble);
    let options = Options { keep: None, on_trouble, ..Options::default() };
    let opened = defib_host::in_background(|| History::open(&path, options));
    let (history, opened) = opened.map_err(io::Error::other)?;
    opened.troubles().into_iter().for_each(|trouble| drop(tell.send(trouble)));
    let history = Arc::new(history);
    let terminals = Terminals::default();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().thread_name(bugs::ASIDE).build()?;
    let doors = Doors::stored(&opened.intents, front);
    let auditor = audit::Auditor::open(&home, &opened.intents);
    let (site, sites) = watch::channel(None);
    let (rebound, listeners) = mpsc::unbounded_channel();
    let (roll, rolls) = watch::channel(Roll::default());
    let (export, exports) = watch::channel(None);
    let kept = opened.intents.kept.iter().filter(|(key, _)| notify::is_ours(key));
    let accounts = kept.map(|(key, text)| (key.clone(), text.clone())).collect();
    let setup = Setup {
        home: home.clone(),
        keeper,
        history: history.clone(),
        intents: opened.intents,
        highest_seq: opened.highest_seq,
        stored_seq: opened.stored_seq,
        terminals: terminals.clone(),
        runtime: runtime.handle().clone(),
        troubles,
        obstacles,
        wake,
        awaits_up,
        site,
        rebound,
        roll,
        export,
    };
    let (engine, handle) = match Engine::begin(setup)? {
        Beginning::Working(engine, handle) => (engine, handle),
        Beginning::Orphaned(will) => return Ok(will),
    };
    let heralds = Herald::start(handle.clone(), path.clone(), rolls, accounts)?;
    let path = Arc::new(path);
    let metrics = Metrics::after(opened.highest_seq, handle.clone(), path.clone());
    let exporter = Exporter::new(metrics.clone(), exports, &home);
    let recorder = Recorder::new(auditor, handle.clone());
    let desk = api::Desk {
        engine: handle,
        home: Arc::new(home),
        history: path,
        terminals,
        doors,
        recorder,
        description: api::description(),
        metrics,
        heralds,
    };
    std::thread::Builder::new().name("api".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::spawn(exporter.work());
            doors::serve(listener, listeners, desk, sites).await
        })
    })?;
    Ok(engine.work())
}
