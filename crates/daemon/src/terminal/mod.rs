//! The terminals of runs that have one: what is on them, who looks, who types.
//!
//! The scribe reads a terminal's master and hands every block over here. A viewer gets the screen as
//! it is and from then on every block, with nothing between and nothing twice. Viewers come and go
//! without the run noticing; a viewer that cannot keep up is let go of, never waited for.

mod modes;
mod screen;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use defib_core::{Name, RunId};
use defib_host::output::set_window_size;
use defib_host::protocol::TerminalSize;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::{broadcast, watch};

use screen::Screen;

/// How many blocks a viewer may be behind.
const BEHIND: usize = 256;
/// How long a terminal whose program does not read may hold up who types.
const TYPING: Duration = Duration::from_secs(2);

/// Every terminal there is, by its agent.
#[derive(Debug, Clone)]
pub(crate) struct Terminals {
    all: Arc<Mutex<BTreeMap<Name, Arc<Terminal>>>>,
    changed: watch::Sender<()>,
}

impl Default for Terminals {
    fn default() -> Terminals {
        Terminals { all: Arc::default(), changed: watch::Sender::new(()) }
    }
}

impl Terminals {
    /// A run has a terminal. What it has written before is known where another daemon saw it.
    pub(crate) fn open(&self, agent: Name, run: RunId, master: OwnedFd, past: &[u8]) {
        let terminal = Arc::new(Terminal::new(run, master, past));
        if let Some(old) = lock(&self.all).insert(agent, terminal) {
            old.end();
        }
        self.changed.send_replace(());
    }

    /// A block was written on an agent's terminal by this run.
    pub(crate) fn wrote(&self, agent: &Name, run: RunId, bytes: &[u8]) {
        if let Some(terminal) = self.of(agent).filter(|terminal| terminal.run == run) {
            terminal.wrote(bytes);
        }
    }

    /// The lines on the screen of an agent's run.
    pub(crate) fn lines(&self, agent: &Name, run: RunId) -> Option<Vec<String>> {
        let terminal = self.of(agent).filter(|terminal| terminal.run == run)?;
        Some(lock(&terminal.stage).screen.lines())
    }

    /// A run is over, and its terminal with it.
    pub(crate) fn close(&self, agent: &Name, run: RunId) {
        let mut all = lock(&self.all);
        if all.get(agent).is_some_and(|terminal| terminal.run == run)
            && let Some(terminal) = all.remove(agent)
        {
            drop(all);
            terminal.end();
            self.changed.send_replace(());
        }
    }

    /// The terminal of an agent's present run.
    pub(crate) fn of(&self, agent: &Name) -> Option<Arc<Terminal>> {
        lock(&self.all).get(agent).cloned()
    }

    /// Tells whenever terminals come or go.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

/// One run's terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    pub(crate) run: RunId,
    master: OwnedFd,
    stage: Mutex<Stage>,
}

/// What is shown, and to whom: under one lock, so that what a viewer gets has no gap.
#[derive(Debug)]
struct Stage {
    screen: Screen,
    /// None once the run is over.
    viewers: Option<broadcast::Sender<Bytes>>,
}

impl Terminal {
    fn new(run: RunId, master: OwnedFd, past: &[u8]) -> Terminal {
        let size = rustix::termios::tcgetwinsize(&master).ok();
        let size = size.map(|size| TerminalSize { rows: size.ws_row, columns: size.ws_col });
        let mut screen = Screen::new(size.unwrap_or(TerminalSize { rows: 40, columns: 120 }));
        screen.feed(past);
        let viewers = Some(broadcast::Sender::new(BEHIND));
        Terminal { run, master, stage: Mutex::new(Stage { screen, viewers }) }
    }

    fn wrote(&self, bytes: &[u8]) {
        let mut stage = lock(&self.stage);
        stage.screen.feed(bytes);
        if let Some(viewers) = &stage.viewers {
            // Nobody may be looking.
            let _ = viewers.send(Bytes::copy_from_slice(bytes));
        }
    }

    fn end(&self) {
        lock(&self.stage).viewers = None;
    }

    /// The bytes that draw the terminal as it is, and everything that is written from then on. None
    /// once the run is over.
    pub(crate) fn watch(&self) -> Option<(Vec<u8>, broadcast::Receiver<Bytes>)> {
        let stage = lock(&self.stage);
        let blocks = stage.viewers.as_ref()?.subscribe();
        Some((stage.screen.drawn().into_bytes(), blocks))
    }

    /// Gives it another size; its programs are told by the kernel.
    pub(crate) fn resize(&self, size: TerminalSize) {
        if size.rows == 0 || size.columns == 0 {
            return;
        }
        let mut stage = lock(&self.stage);
        // A terminal whose last program has just gone has no size to set.
        if set_window_size(&self.master, size).is_ok() {
            stage.screen.resize(size);
        }
    }

    /// Types. Waits a little where its program does not read; what it does not take then is lost.
    pub(crate) fn type_in(&self, mut bytes: &[u8]) {
        let patience = Timespec { tv_sec: TYPING.as_secs().cast_signed(), tv_nsec: 0 };
        while !bytes.is_empty() {
            match rustix::io::write(&self.master, bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    let mut set = [PollFd::new(&self.master, PollFlags::OUT)];
                    if !matches!(poll(&mut set, Some(&patience)), Ok(1)) {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }
}

/// Nothing that is done under these locks can leave half a state behind.
/// Number of lines on a small screen after these bytes, for the fuzzer. The screen is also resized and drawn.
pub(crate) fn read_any(bytes: &[u8]) -> usize {
    let mut screen = Screen::new(TerminalSize { rows: 5, columns: 20 });
    let (first, second) = bytes.split_at(bytes.len() / 2);
    screen.feed(first);
    screen.resize(TerminalSize { rows: 3, columns: 7 });
    screen.feed(second);
    screen.drawn().len() + screen.lines().len()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
