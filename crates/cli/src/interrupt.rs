//! What a person at the terminal does while a command stays in front: signals and keys.

use std::io::Read;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// What a person, or the system, wants of a command in front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nudge {
    /// Ctrl-C.
    Interrupt,
    /// The command is to end: TERM.
    End,
    /// The terminal has gone.
    HangUp,
    /// A key was pressed; only where keys are listened to.
    Key(u8),
}

/// Something that notices when the command is to end.
pub(crate) struct Interrupted {
    sender: Sender<Nudge>,
    nudges: Receiver<Nudge>,
}

/// Watches for INT, TERM and HUP from now on.
pub(crate) fn watch() -> Interrupted {
    let (sender, nudges) = channel();
    let signals = sender.clone();
    let (ready, until_ready) = channel::<()>();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
            let mut heard: Vec<_> =
                kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
            let [int, term, hup] = &mut heard[..] else { return };
            let _ = ready.send(());
            loop {
                let nudge = tokio::select! {
                    _ = int.recv() => Nudge::Interrupt,
                    _ = term.recv() => Nudge::End,
                    _ = hup.recv() => Nudge::HangUp,
                };
                if signals.send(nudge).is_err() {
                    return;
                }
            }
        });
    });
    // A Ctrl-C that comes now must not end us as if nobody watched. Where nobody can, nobody does.
    let _ = until_ready.recv();
    Interrupted { sender, nudges }
}

impl Interrupted {
    /// Listens to keys as well, until the process ends.
    pub(crate) fn listen_to_keys(&self) {
        let sender = self.sender.clone();
        std::thread::spawn(move || {
            for key in std::io::stdin().lock().bytes().map_while(Result::ok) {
                if sender.send(Nudge::Key(key)).is_err() {
                    return;
                }
            }
        });
    }

    /// Waits so long for something to be done.
    pub(crate) fn next(&self, span: Duration) -> Option<Nudge> {
        self.nudges.recv_timeout(span).ok()
    }

    /// Waits so long, and says whether the command is to end.
    pub(crate) fn wait(&self, span: Duration) -> bool {
        self.next(span).is_some_and(|nudge| !matches!(nudge, Nudge::Key(_)))
    }
}
