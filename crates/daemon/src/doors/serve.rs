//! Both doors, kept open: connections are taken in, bounded in number and in patience.
//!
//! What a connection may hold up is its own place only. On TCP there are few of those, so that
//! descriptors are always left for agents, logs and the daemon's own socket.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use defib_history::Intent;
use defib_host::Kinship;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tower::ServiceExt;

use super::address::{self, Listening, Open, Site};
use super::heads::{Dressed, LIMITS, dress, last_answer, refuse_large};
use super::kin::{Answer, Family};
use super::tls::Certificate;
use crate::api::{self, Desk, Trouble};
use crate::bugs::contained;
use crate::wire::ErrorCode;

/// How many may be connected by TCP.
const CONNECTIONS: usize = 512;
/// How many may be connected to the daemon's own socket.
const LOCAL_CONNECTIONS: usize = 4096;
/// The same for processes of agents. They do not take the places of operators.
const AGENT_CONNECTIONS: usize = 2048;
/// How long a client may take to say what it wants.
const HEADERS_WITHIN: Duration = Duration::from_secs(10);
/// Number of ancestors that are looked at in the thread that serves everybody. An operator has fewer.
const FEW_ANCESTORS: usize = 64;
/// How long nobody is let in after the system had no descriptor for one more.
const PAUSE: Duration = Duration::from_millis(50);

/// The other end of a connection.
#[derive(Debug)]
pub(super) enum Peer {
    /// Somebody at this machine, on the daemon's own socket.
    Local {
        /// The user.
        uid: u32,
        /// In which agent's tree it lives, if in one.
        kin: Kinship,
    },
    /// Somebody on TCP.
    Remote {
        /// The door they came in by.
        open: Arc<Open>,
        /// Where they come from.
        from: IpAddr,
    },
}

/// A connection, for the requests that come by it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) peer: Peer,
    /// That it follows something, until it ends.
    pub(super) follows: OnceLock<OwnedSemaphorePermit>,
    _place: OwnedSemaphorePermit,
}

/// Keeps both doors open, for as long as the daemon lives.
pub(crate) async fn serve(
    listener: OwnedFd,
    mut replacements: mpsc::UnboundedReceiver<OwnedFd>,
    desk: Desk,
    site: watch::Receiver<Option<Site>>,
) -> io::Result<()> {
    let mut listener = local(listener)?;
    let router = api::routes(desk.clone());
    let family = Family { keeper: desk.doors.0.keeper, front: desk.doors.0.front };
    // An agent that forks deep delays only peers that are as deep.
    let deep = Arc::new(Semaphore::new(1));
    tokio::spawn(keep_open(desk, router.clone(), site));
    let places = Places {
        operators: Arc::new(Semaphore::new(LOCAL_CONNECTIONS)),
        agents: Arc::new(Semaphore::new(AGENT_CONNECTIONS)),
    };
    loop {
        let accepted = tokio::select! {
            // Connections that wait at the last listener come first.
            biased;
            accepted = listener.accept() => accepted,
            Some(next) = replacements.recv() => {
                listener = local(next)?;
                continue;
            }
        };
        match accepted {
            Ok((stream, _)) => take_in_local(stream, &places, &router, family, &deep),
            // It is gone already, or there is no descriptor for it: then for the next one soon.
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn local(listener: OwnedFd) -> io::Result<UnixListener> {
    let listener = std::os::unix::net::UnixListener::from(listener);
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// How many more may be connected by the Unix socket.
struct Places {
    operators: Arc<Semaphore>,
    agents: Arc<Semaphore>,
}

impl Places {
    /// A place for a client, if one is free.
    fn take(&self, client: &Answer) -> Option<OwnedSemaphorePermit> {
        let is_operator = matches!(client, Answer::Is(Kinship::Stranger));
        let places = if is_operator { &self.operators } else { &self.agents };
        places.clone().try_acquire_owned().ok()
    }
}

fn take_in_local(
    stream: UnixStream,
    places: &Places,
    router: &Router,
    family: Family,
    deep: &Arc<Semaphore>,
) {
    let process = defib_host::Peer::of(&stream);
    // A client whose user the kernel does not name is not served.
    let Ok(credentials) = stream.peer_cred() else { return };
    let (uid, router, deep) = (credentials.uid(), router.clone(), deep.clone());
    let near = family.kinship(&process, FEW_ANCESTORS);
    // The connection is closed at once, so that the next one does not wait behind it.
    let Some(place) = places.take(&near) else { return };
    tokio::spawn(contained(async move {
        let answer = match near {
            Answer::TooDeep => {
                let Ok(_turn) = deep.acquire().await else { return };
                let whole = move || family.kinship(&process, usize::MAX);
                let Ok(answer) = tokio::task::spawn_blocking(whole).await else { return };
                answer
            }
            Answer::Is(_) | Answer::KeeperGone => near,
        };
        // Without a keeper no answer is possible: the client asks the next daemon.
        let Answer::Is(kin) = answer else { return };
        let peer = Peer::Local { uid, kin };
        let connection = Connection { peer, follows: OnceLock::new(), _place: place };
        converse(stream, Arc::new(connection), router).await;
    }));
}

/// Listens on TCP where the projects say, and elsewhere when they say something else.
async fn keep_open(desk: Desk, router: Router, mut site: watch::Receiver<Option<Site>>) {
    let mut current: Option<(Site, Option<tokio::task::JoinHandle<()>>)> = None;
    loop {
        let wanted = site.borrow_and_update().clone();
        if let Some(wanted) = wanted
            && current.as_ref().is_none_or(|(site, _)| *site != wanted)
        {
            // The old one first: it may be the same port, said differently.
            if let Some((_, Some(old))) = current.take() {
                old.abort();
                let _ = old.await;
            }
            let open = open(&desk, &router, &wanted).await;
            current = Some((wanted, open));
        }
        if site.changed().await.is_err() {
            return;
        }
    }
}

async fn open(desk: &Desk, router: &Router, site: &Site) -> Option<tokio::task::JoinHandle<()>> {
    let listening = &desk.doors.0.listening;
    match bind(desk, site).await {
        Ok(Some((listener, open))) => {
            let address = open.address;
            listening.send_replace(Listening::At(open.clone()));
            let (key, value) = (address::PORT_KEY.to_owned(), address.port().to_string());
            desk.engine.store_later(Intent::Keep { key, value });
            Some(tokio::spawn(take_in(listener, open, router.clone())))
        }
        Ok(None) => {
            listening.send_replace(Listening::Off);
            None
        }
        Err(error) => {
            say!("no web server: {error}");
            listening.send_replace(Listening::Failed(error.to_string()));
            None
        }
    }
}

async fn bind(desk: &Desk, site: &Site) -> io::Result<Option<(TcpListener, Arc<Open>)>> {
    let Site { server, folder } = site;
    let certificate = server.tls.as_ref().map(|tls| Certificate::load(tls, folder)).transpose()?;
    let Some(listener) = address::bind(server, desk.doors.0.last_port).await? else {
        return Ok(None);
    };
    let open = Arc::new(Open::new(listener.local_addr()?, certificate));
    Ok(Some((listener, open)))
}

/// Takes in whoever comes by TCP.
async fn take_in(listener: TcpListener, open: Arc<Open>, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        match listener.accept().await {
            Ok((stream, from)) => match places.clone().try_acquire_owned() {
                Ok(place) => {
                    let peer = Peer::Remote { open: open.clone(), from: from.ip() };
                    let connection = Connection { peer, follows: OnceLock::new(), _place: place };
                    let (connection, router) = (Arc::new(connection), router.clone());
                    tokio::spawn(contained(greet(stream, open.clone(), connection, router)));
                }
                Err(_) => turn_away(&stream),
            },
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn greet(stream: TcpStream, open: Arc<Open>, connection: Arc<Connection>, router: Router) {
    // Answers are small; to wait for more of them would only delay.
    let _ = stream.set_nodelay(true);
    let Some(certificate) = &open.certificate else {
        return converse(stream, connection, router).await;
    };
    let greeted = tokio::time::timeout(HEADERS_WITHIN, certificate.acceptor().accept(stream));
    if let Ok(Ok(stream)) = greeted.await {
        converse(stream, connection, router).await;
    }
}

/// Answers that there are too many connections, and does not wait for the client.
fn turn_away(stream: &TcpStream) {
    let _ = stream.try_write(&full());
}

fn full() -> Vec<u8> {
    let full =
        Trouble::new(ErrorCode::TooMany, "too many connections").hint("try again in a moment");
    last_answer(StatusCode::SERVICE_UNAVAILABLE, &full, "retry-after: 1\r\n")
}

/// Serves routes that look themselves who is asking, as bounded and as impatient as the doors are.
pub(crate) async fn serve_bounded(listener: TcpListener, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match places.clone().try_acquire_owned() {
                Ok(place) => {
                    let router = router.clone();
                    tokio::spawn(contained(async move {
                        speak(stream, router, |_| ()).await;
                        drop(place);
                    }));
                }
                Err(_) => turn_away(&stream),
            },
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Serves one connection until it ends.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    connection: Arc<Connection>,
    router: Router,
) {
    let mark = move |request: &mut Request| {
        request.extensions_mut().insert(connection.clone());
    };
    speak(stream, router, mark).await;
}

/// Speaks HTTP with one client; each request is marked before it goes on.
async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    mark: impl Fn(&mut Request),
) {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request: Request = request.map(Body::new);
        mark(&mut request);
        let router = router.clone();
        async move {
            let mut response = match refuse_large(&request) {
                Some(refusal) => refusal,
                None => router.oneshot(request).await.unwrap_or_else(|e| match e {}),
            };
            dress(response.headers_mut());
            Ok::<_, Infallible>(response)
        }
    });
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(HEADERS_WITHIN);
    protocol.max_buf_size(LIMITS.0).max_headers(LIMITS.1);
    let stream = Dressed::new(stream);
    // A client that goes away, or does not speak HTTP, is no trouble of ours.
    let _ = protocol.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
}

#[cfg(test)]
mod tests {
    use super::full;

    #[test]
    fn who_is_turned_away_is_told_in_whole() {
        let text = String::from_utf8(full()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{text}");
        assert!(serde_json::from_str::<crate::wire::ErrorBody>(body).is_ok());
    }
}
