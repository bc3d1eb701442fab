//! The doors: where requests come in, who is asking, and what is let through.
//!
//! There are two: the daemon's own socket, for people at this machine, and TCP, for browsers and for
//! whoever has a token. Both lead to the same routes, through the same [`guard`]. Nothing behind it
//! asks again who is asking, but for an agent's own routes.

mod address;
mod caller;
mod guard;
mod heads;
mod kin;
mod record;
mod roster;
mod serve;
mod tls;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use defib_history::Intents;
use defib_host::Front;
use defib_host::clock::now;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

pub(crate) use address::{Listening, Open, Site};
pub(crate) use caller::Caller;
pub use caller::Role;
pub(crate) use guard::{cookie, guard};
pub(crate) use kin::{Onlooker, Sees};
pub(crate) use record::Recorder;
pub(crate) use roster::{NotMade, Roster, SESSION};
pub(crate) use serve::{serve, serve_bounded};

/// Whether a door on loopback takes these for its own names, and what it makes of cookies.
pub(crate) fn read_any(text: &str) -> bool {
    let open = Open::new(std::net::SocketAddr::from(([127, 0, 0, 1], 7433)), None);
    let mut headers = axum::http::HeaderMap::new();
    if let Ok(value) = axum::http::HeaderValue::from_str(text) {
        headers.insert(axum::http::header::COOKIE, value);
    }
    let _ = caller::need(&axum::http::Method::POST, text);
    let _ = cookie(&headers, &open.cookie());
    open.is_called(text) || open.is_origin(text)
}

/// How long whoever wants to know the address waits for it, where the daemon has just begun.
const SETTLE: Duration = Duration::from_secs(5);

/// The doors of a daemon.
#[derive(Debug, Clone)]
pub(crate) struct Doors(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    roster: Roster,
    listening: watch::Sender<Listening>,
    /// The port that was ours before, which pages in browsers still try.
    last_port: Option<u16>,
    /// The user that may use the daemon's own socket, beside root.
    uid: u32,
    /// The keeper, whose child this daemon is until it is killed.
    keeper: u32,
    /// A client that descends from the keeper and is no agent's.
    front: Option<Front>,
    /// How many more each caller may follow at once.
    follows: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Doors {
    /// The doors as they were left.
    pub(crate) fn stored(intents: &Intents, front: Option<Front>) -> Doors {
        Doors(Arc::new(Inner {
            roster: Roster::stored(intents, now().wall),
            listening: watch::Sender::new(Listening::NotYet),
            last_port: intents.kept.get(address::PORT_KEY).and_then(|port| port.parse().ok()),
            uid: rustix::process::geteuid().as_raw(),
            keeper: std::os::unix::process::parent_id(),
            front,
            follows: Mutex::default(),
        }))
    }

    /// Who may come in.
    pub(crate) fn roster(&self) -> &Roster {
        &self.0.roster
    }

    /// Where TCP is listened on now.
    pub(crate) fn listening(&self) -> Listening {
        self.0.listening.borrow().clone()
    }

    /// Where TCP is listened on, once that is settled.
    pub(crate) async fn settled(&self) -> Listening {
        let mut listening = self.0.listening.subscribe();
        let settled = listening.wait_for(|now| !matches!(now, Listening::NotYet));
        match tokio::time::timeout(SETTLE, settled).await {
            Ok(Ok(now)) => now.clone(),
            Ok(Err(_)) | Err(_) => self.listening(),
        }
    }

    /// Lets one more follow, if it does not follow too much already.
    fn follow(&self, caller: &Caller, most: usize) -> Option<OwnedSemaphorePermit> {
        let mut follows = self.0.follows.lock().unwrap_or_else(PoisonError::into_inner);
        let left =
            follows.entry(caller.to_string()).or_insert_with(|| Arc::new(Semaphore::new(most)));
        left.clone().try_acquire_owned().ok()
    }
}
