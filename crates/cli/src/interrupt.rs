//! Ctrl-C and TERM, noticed where they can be dealt with.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Something that notices when the command is to end.
pub(crate) struct Interrupted(Receiver<()>);

/// Watches for INT, TERM and HUP from now on.
pub(crate) fn watch() -> Interrupted {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
            let mut signals: Vec<_> =
                kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
            let [int, term, hup] = &mut signals[..] else { return };
            loop {
                tokio::select! {
                    _ = int.recv() => {}
                    _ = term.recv() => {}
                    _ = hup.recv() => {}
                }
                if sender.send(()).is_err() {
                    return;
                }
            }
        });
    });
    Interrupted(receiver)
}

impl Interrupted {
    /// Waits so long, and says whether the command is to end.
    pub(crate) fn wait(&self, span: Duration) -> bool {
        self.0.recv_timeout(span).is_ok()
    }
}
