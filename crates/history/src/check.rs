//! Reading a large file through while it is in use.
//!
//! The check has a connection and a thread of its own, so that neither the start of the daemon nor a
//! commit waits for it. Dropping it ends it.

use std::path::Path;
use std::thread::JoinHandle;

use rusqlite::InterruptHandle;

use crate::file::{self, Layout};
use crate::trouble::HistoryError;

pub(crate) struct Check {
    interrupt: InterruptHandle,
    thread: Option<JoinHandle<()>>,
}

impl Check {
    /// Starts to read the file through, and says what is wrong with it if something is. Nothing
    /// where it cannot be read at the moment: then whoever writes will find out.
    pub(crate) fn start(
        path: &Path,
        layout: &Layout,
        condemn: impl FnOnce(String) + Send + 'static,
    ) -> Option<Check> {
        let connection = file::open_to_read(path, layout).ok()?;
        let interrupt = connection.get_interrupt_handle();
        let read = move || {
            // An interrupted check or a failing disk says nothing about the file.
            if let Err(HistoryError::Damaged(why)) = file::check(&connection) {
                condemn(why);
            }
        };
        let thread = std::thread::Builder::new().name("history-check".into()).spawn(read).ok()?;
        Some(Check { interrupt, thread: Some(thread) })
    }
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Check")
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        // Only a query under way is interrupted, so it is said until the thread has ended.
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            self.interrupt.interrupt();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        if let Some(thread) = self.thread.take() {
            // A check that panicked found nothing.
            let _ = thread.join();
        }
    }
}
