//! Folders for a run, which are gone when it is over.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

use crate::job::STARTING;
use crate::processes;

/// Where everything of this run is: on disk for what supervisors write, in memory for what children
/// tell, so that telling costs the same whatever the disk does.
pub(crate) struct Ground {
    disk: TempDir,
    memory: TempDir,
    next: AtomicUsize,
}

/// For who has to leave in a hurry.
static FOLDERS: OnceLock<[PathBuf; 2]> = OnceLock::new();

impl Ground {
    pub(crate) fn new() -> io::Result<Ground> {
        let shared = Path::new("/dev/shm");
        let fast = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
        // Short names: sockets are put below them.
        let folder =
            |parent: &Path| tempfile::Builder::new().prefix("db").rand_bytes(5).tempdir_in(parent);
        let (disk, memory) = (folder(&std::env::temp_dir())?, folder(&fast)?);
        let _ = FOLDERS.set([disk.path().to_owned(), memory.path().to_owned()]);
        Ok(Ground { disk, memory, next: AtomicUsize::new(0) })
    }

    /// A folder on disk that nobody has used.
    pub(crate) fn folder(&self) -> io::Result<PathBuf> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let folder = self.disk.path().join(number.to_string());
        std::fs::create_dir(&folder)?;
        Ok(folder)
    }

    /// A path in memory that nobody has used.
    pub(crate) fn report(&self) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.memory.path().join(number.to_string())
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // Before their folders go.
        processes::end_all();
    }
}

/// Leaves nothing behind when the run is interrupted.
pub(crate) fn leave_on_interrupt() {
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
            let mut signals: Vec<_> =
                kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
            let [int, term, hup] = &mut signals[..] else { return };
            tokio::select! {
                _ = int.recv() => {}
                _ = term.recv() => {}
                _ = hup.recv() => {}
            }
        });
        eprintln!("interrupted: ending what was started");
        // Nothing more is started behind our back.
        let _held = STARTING.lock();
        processes::end_all();
        for folder in FOLDERS.get().into_iter().flatten() {
            let _ = std::fs::remove_dir_all(folder);
        }
        std::process::exit(130);
    });
}
