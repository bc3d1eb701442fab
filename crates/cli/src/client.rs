//! Talking to the daemon: HTTP over its socket.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use defib_core::Name;
use defib_daemon::wire::{Closing, ErrorBody, ErrorCode, ErrorDetail, UpRequest};
use defib_host::claim::{Holder, holder_of};
use defib_host::home::HomeLock;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

use crate::failure::{Code, Failure};
use crate::home::Home;

/// How long a daemon may take to answer for the first time.
const START: Duration = Duration::from_secs(15);
/// How long it may take to say that it is there. The keeper holds the socket, so connecting says nothing.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);
/// How long it may take until everything has ended.
const END: Duration = Duration::from_secs(600);
/// How long a keeper may take to bind its socket again.
const REBIND: Duration = Duration::from_secs(1);
/// How long there may be no keeper until its daemon has become the next one, where it was killed.
const BETWEEN_KEEPERS: Duration = Duration::from_millis(500);

/// A way to the daemon of a home.
pub(crate) struct Client {
    home: Home,
    runtime: Runtime,
    /// What an agent proves itself with.
    token: Option<String>,
}

impl Client {
    pub(crate) fn new(home: Home) -> Result<Client, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::new(Code::Failed, error))?;
        Ok(Client { home, runtime, token: None })
    }

    /// The way of an agent to its own daemon.
    pub(crate) fn for_agent(socket: &Path, token: String) -> Result<Client, Failure> {
        let folder = socket.parent().map(Path::to_owned);
        Ok(Client { token: Some(token), ..Client::new(Home::find(folder)?)? })
    }

    /// Asks for something that may be asked for twice: a daemon that is lost is waited for.
    pub(crate) fn insist<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        match self.post(path, body) {
            Err(failure) if failure.is_lost() && self.comes_back() => self.post(path, body),
            answer => answer,
        }
    }

    /// Looks at something. A daemon that is just being replaced is waited for.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        match self.call(Method::GET, path, Bytes::new()) {
            Err(failure) if failure.is_lost() && self.comes_back() => {
                self.call(Method::GET, path, Bytes::new())
            }
            answer => answer,
        }
    }

    /// Waits for the next daemon, after one was lost. Says whether there is one.
    pub(crate) fn comes_back(&self) -> bool {
        self.await_successor(Some(Instant::now() + START))
    }

    /// Waits for the next daemon for as long as there is a keeper that will start one: for those who
    /// follow. Says whether there is one.
    pub(crate) fn has_successor(&self) -> bool {
        self.await_successor(None)
    }

    /// Whether a daemon that does not answer any more has ended as it was told to. A keeper that is
    /// killed leaves its socket behind.
    pub(crate) fn has_closed(&self) -> bool {
        !self.comes_back() && !self.home.socket().exists()
    }

    fn await_successor(&self, deadline: Option<Instant>) -> bool {
        let mut last_held = Instant::now();
        while !self.is_up() {
            let now = Instant::now();
            if self.is_locked() {
                last_held = now;
            }
            if now.duration_since(last_held) > BETWEEN_KEEPERS
                || deadline.is_some_and(|end| now > end)
            {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    /// Says to one who follows that there is nobody left to follow.
    pub(crate) fn say_ended(&self) {
        anstream::eprintln!("the daemon in {} has ended", self.home.path().display());
    }

    pub(crate) fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.call(Method::DELETE, path, Bytes::new())
    }

    pub(crate) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::new(Code::Failed, error))?;
        self.call(Method::POST, path, body.into())
    }

    /// Asks for something after which the daemon goes: it may be gone before it has answered.
    pub(crate) fn post_last(&self, path: &str, body: &impl Serialize) -> Result<(), Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::new(Code::Failed, error))?;
        self.runtime.block_on(async {
            match self.send(Method::POST, path, body.into()).await {
                Err(Trouble::Other(_)) => Ok(()),
                answer => self.good(answer).await.map(drop),
            }
        })
    }

    /// Runs something that waits.
    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Whether a daemon answers.
    pub(crate) fn is_up(&self) -> bool {
        self.runtime.block_on(self.shows_life())
    }

    /// Whether there is a daemon, for those who would do nothing without one. One that is just being
    /// replaced is waited for: its agents run all the while. One that is there and answers nobody is a
    /// failure.
    pub(crate) fn is_there(&self) -> Result<bool, Failure> {
        if self.is_up() || self.lock().exists() && self.comes_back() {
            return Ok(true);
        }
        self.check_folder()?;
        if self.is_locked() {
            return Err(self.not_answering());
        }
        Ok(false)
    }

    /// Hands over what comes, piece by piece, until it ends or `take` has had enough.
    pub(crate) fn stream(
        &self,
        path: &str,
        take: impl FnMut(&[u8]) -> Result<bool, Failure>,
    ) -> Result<Ended, Failure> {
        self.pieces(Method::GET, path, Bytes::new(), std::future::pending(), take)
    }

    /// Asks for something that comes piece by piece.
    pub(crate) fn post_stream(
        &self,
        path: &str,
        body: &impl Serialize,
        take: impl FnMut(&[u8]) -> Result<bool, Failure>,
    ) -> Result<Ended, Failure> {
        self.post_stream_until(path, body, std::future::pending(), take)
    }

    /// Asks for something that comes piece by piece, until something else has come about.
    pub(crate) fn post_stream_until(
        &self,
        path: &str,
        body: &impl Serialize,
        stop: impl Future<Output = ()>,
        take: impl FnMut(&[u8]) -> Result<bool, Failure>,
    ) -> Result<Ended, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::new(Code::Failed, error))?;
        self.pieces(Method::POST, path, body.into(), stop, take)
    }

    fn pieces(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        stop: impl Future<Output = ()>,
        mut take: impl FnMut(&[u8]) -> Result<bool, Failure>,
    ) -> Result<Ended, Failure> {
        self.runtime.block_on(async {
            let mut stop = std::pin::pin!(stop);
            let mut response = self.good(self.send(method, path, body).await).await?;
            loop {
                let frame = tokio::select! {
                    frame = response.frame() => frame,
                    () = &mut stop => return Ok(Ended::Enough),
                };
                let Some(frame) = frame else { return Ok(Ended::Complete) };
                let Ok(frame) = frame else { return Ok(Ended::Lost) };
                if let Some(bytes) = frame.data_ref()
                    && !take(bytes)?
                {
                    return Ok(Ended::Enough);
                }
            }
        })
    }

    fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, Failure> {
        self.runtime.block_on(async {
            let answer = async {
                let response = self.good(self.send(method, path, body).await).await?;
                Ok(response.into_body().collect().await.map_err(lost)?.to_bytes())
            };
            let bytes = self.while_alive(answer).await?;
            serde_json::from_slice(&bytes).map_err(|error| {
                Failure::new(Code::Failed, format!("the daemon's answer makes no sense: {error}"))
                    .hint("`defib version` shows whether it is of another version")
            })
        })
    }

    /// Waits for an answer for as long as the daemon shows that it lives: a stop may take long, and so
    /// may a look at a long history, but one that is frozen answers nobody.
    async fn while_alive<T>(
        &self,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let mut answer = std::pin::pin!(answer);
        loop {
            tokio::select! {
                answer = &mut answer => return answer,
                () = tokio::time::sleep(SIGN_OF_LIFE) => {}
            }
            if !self.shows_life().await {
                return Err(self.not_answering());
            }
        }
    }

    async fn shows_life(&self) -> bool {
        let answer = self.send(Method::GET, "/healthz", Bytes::new());
        matches!(tokio::time::timeout(SIGN_OF_LIFE, answer).await, Ok(Ok(_)))
    }

    fn not_answering(&self) -> Failure {
        Failure::new(Code::Failed, "the daemon does not answer").hint(format!(
            "it may be frozen; `kill -9` of it is safe: its keeper starts the next one, and the \
             agents run on. {} has all it said",
            self.log().display()
        ))
    }

    /// An answer that is not an error.
    async fn good(
        &self,
        answer: Result<Response<Incoming>, Trouble>,
    ) -> Result<Response<Incoming>, Failure> {
        let response = match answer {
            Ok(response) => response,
            Err(Trouble::Lost(holder)) => return Err(self.home.lost_by(holder)),
            Err(Trouble::NoDaemon) => {
                let message = format!("no daemon is running in {}", self.home.path().display());
                return Err(Failure::new(Code::NoDaemon, message)
                    .hint("`defib up` starts one; --home or DEFIB_HOME picks another folder"));
            }
            Err(Trouble::Forbidden(message)) => {
                return Err(Failure::new(Code::Failed, message)
                    .hint("it is another user's daemon; --home or DEFIB_HOME picks your own"));
            }
            Err(Trouble::Other(message)) => return Err(Failure::lost(message)),
        };
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let status = response.status();
        let bytes = response.into_body().collect().await.map_err(lost)?.to_bytes();
        let Ok(ErrorBody { error }) = serde_json::from_slice(&bytes) else {
            let text = String::from_utf8_lossy(&bytes);
            return Err(Failure::new(Code::Failed, format!("the daemon says {status}: {text}")));
        };
        Err(told(error))
    }

    /// Brings a project up, starting a daemon where none runs. One that is just ending is waited for.
    pub(crate) fn bring_up(&self, request: &UpRequest) -> Result<Vec<Name>, Failure> {
        self.ensure_daemon()?;
        match self.post("/api/v1/up", request) {
            Err(failure) if failure.is_lost() || failure.is_ending() => {
                if failure.is_ending() {
                    self.await_end()?;
                }
                self.ensure_daemon()?;
                self.post("/api/v1/up", request)
            }
            answer => answer,
        }
    }

    /// Waits for the end of a daemon that was told to end.
    fn await_end(&self) -> Result<(), Failure> {
        anstream::eprintln!("the daemon is ending; another is started when it has ended");
        let deadline = Instant::now() + END;
        loop {
            match self.closing() {
                // There is another already: somebody else was faster.
                Ok(Closing { closing: false, .. }) => return Ok(()),
                Err(_) if !self.is_locked() => return Ok(()),
                Ok(_) | Err(_) => {}
            }
            if Instant::now() > deadline {
                return Err(not_ended());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends every agent and the daemon, and returns when they are gone, or when somebody wants some of
    /// them up again.
    pub(crate) fn close(&self) -> Result<Closed, Failure> {
        // The agents end even if the daemon cannot store that: the failure is reported after that.
        let unstored = match self.post_last("/api/v1/close", &serde_json::json!({})) {
            Err(failure) if failure.is_unstored() => Some(failure),
            answer => answer.map(|()| None)?,
        };
        let deadline = Instant::now() + END;
        while self.is_up() || self.is_locked() {
            // Nothing else that is answered matters: it is about to go.
            if let Ok(Closing { closing: false, turned_back: Some(why) }) = self.closing() {
                return Ok(Closed::TurnedBack(told(why)));
            }
            if Instant::now() > deadline {
                return Err(not_ended());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        unstored.map_or(Ok(Closed::Gone), Err)
    }

    /// Whether everything is to end.
    fn closing(&self) -> Result<Closing, Failure> {
        self.call(Method::GET, "/api/v1/close", Bytes::new())
    }

    /// Whether a keeper holds the home.
    fn is_locked(&self) -> bool {
        self.is_flocked() || holder_of(&self.home.claims()).is_some()
    }

    /// Whether a keeper has the lock in the folder.
    fn is_flocked(&self) -> bool {
        let lock = self.lock();
        lock.exists() && matches!(HomeLock::take(&lock), Ok(None))
    }

    /// The file that a keeper holds.
    fn lock(&self) -> PathBuf {
        self.home.path().join("lock")
    }

    /// Waits for the daemon that another process has just started.
    pub(crate) fn await_daemon(&self) -> Result<(), Failure> {
        let deadline = Instant::now() + START;
        while !self.is_up() {
            if Instant::now() > deadline {
                let seconds = START.as_secs();
                let message = format!("the daemon did not start within {seconds}s");
                return Err(Failure::new(Code::Failed, message).hint("what it said is above"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Starts a daemon where none runs.
    pub(crate) fn ensure_daemon(&self) -> Result<(), Failure> {
        if self.is_up() {
            return Ok(());
        }
        // Before the folder is made: a folder that was moved away may come back.
        self.check_folder()?;
        self.home.create()?;
        let deadline = Instant::now() + START;
        let mut keeper = self.start_keeper()?;
        while !self.is_up() {
            let ended = keeper.try_wait().ok().flatten().is_some();
            if ended && self.is_locked() && Instant::now() < deadline {
                // Another keeper is starting, or just ending.
                std::thread::sleep(Duration::from_millis(20));
                if !self.is_up() && !self.is_locked() {
                    keeper = self.start_keeper()?;
                }
            } else if ended || Instant::now() > deadline {
                return Err(self.did_not_start());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn did_not_start(&self) -> Failure {
        let log = self.log();
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        let last = said.lines().last().unwrap_or("it says nothing");
        let what = if self.is_locked() { "does not answer" } else { "did not start" };
        Failure::new(Code::Failed, format!("the daemon {what}: {last}"))
            .hint(format!("{} has all it said", log.display()))
    }

    /// Connects to the socket. If its file is gone and the keeper lives, the keeper is given time to bind it
    /// again.
    async fn connect(&self) -> Result<UnixStream, Trouble> {
        let deadline = Instant::now() + REBIND;
        loop {
            let error = match UnixStream::connect(self.home.socket()).await {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            let message = format!("cannot reach {}: {error}", self.home.socket().display());
            if error.kind() == io::ErrorKind::PermissionDenied {
                return Err(Trouble::Forbidden(message));
            }
            let absent = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
            if !absent.contains(&error.kind()) {
                return Err(Trouble::Other(message));
            }
            // The keeper checks its socket when it is asked who it is.
            let Some(holder) = holder_of(&self.home.claims()) else {
                return Err(Trouble::NoDaemon);
            };
            if Instant::now() > deadline {
                // A keeper that starts or ends has the lock in the folder.
                let trouble =
                    if self.is_flocked() { Trouble::NoDaemon } else { Trouble::Lost(holder) };
                return Err(trouble);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The failure if the keeper lives without the folder of its home.
    fn check_folder(&self) -> Result<(), Failure> {
        match self.runtime.block_on(self.connect()) {
            Err(Trouble::Lost(holder)) => Err(self.home.lost_by(holder)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, Trouble> {
        let stream = self.connect().await?;
        let other = |error: hyper::Error| Trouble::Other(format!("lost the daemon: {error}"));
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(other)?;
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "defib")
            .header("content-type", "application/json")
            // Nothing is remembered here from one question to the next.
            .header("cache-control", "no-store");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request =
            request.body(Full::new(body)).map_err(|error| Trouble::Other(error.to_string()))?;
        sender.send_request(request).await.map_err(other)
    }

    fn log(&self) -> PathBuf {
        self.home.path().join("keeper.log")
    }

    fn start_keeper(&self) -> Result<Child, Failure> {
        let program = std::env::current_exe().map_err(|error| Failure::new(Code::Failed, error))?;
        for line in defib_host::odd_files::clear_for_keeper(self.home.path()) {
            anstream::eprintln!("warning: {line}");
        }
        let log = self.log();
        let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(&log);
        let file = opened.map_err(|error| {
            Failure::new(Code::Failed, format!("cannot write {}: {error}", log.display()))
                .hint("choose a folder that you may write to with --home or DEFIB_HOME")
        })?;
        Command::new(program)
            .args(["internal", "keeper", "--for-up", "--home"])
            .arg(self.home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .current_dir("/")
            // The caller's secrets have no business in our environment.
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| is_plain(name)))
            .spawn()
            .map_err(|error| {
                Failure::new(Code::Failed, format!("cannot start the daemon: {error}"))
            })
    }
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The daemon has said everything.
    Complete,
    /// The daemon went away in the middle.
    Lost,
    /// No more was wanted.
    Enough,
}

/// How it went with the end of everything.
pub(crate) enum Closed {
    /// Nothing is left.
    Gone,
    /// Somebody wants some of it up again, as is said here.
    TurnedBack(Failure),
}

/// What keeper and daemon get of the caller's environment.
pub(crate) fn is_plain(name: &std::ffi::OsStr) -> bool {
    let base = ["PATH", "HOME", "USER", "SHELL", "LANG", "TERM", "TZ", "TMPDIR", "RUST_BACKTRACE"];
    // Whom messages and figures are trusted to is no secret.
    let trust = ["SSL_CERT_FILE", "SSL_CERT_DIR"];
    // The folder for the state of agents with another user.
    let state = "DEFIB_STATE_ROOT";
    // A debug build lets a test choose the version that the keeper announces and the deadline of a start.
    let test = ["DEFIB_TEST_KEEPER_VERSION", "DEFIB_TEST_SPAWN_DEADLINE_MS"]
        .into_iter()
        .filter(|_| cfg!(debug_assertions));
    name.to_str().is_some_and(|name| {
        let is_known = base.contains(&name) || trust.contains(&name) || name == state;
        is_known || name.starts_with("LC_") || test.clone().any(|known| known == name)
    })
}

enum Trouble {
    NoDaemon,
    /// The keeper lives, and the folder of its home is gone.
    Lost(Holder),
    Forbidden(String),
    Other(String),
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn lost(error: hyper::Error) -> Failure {
    Failure::lost(format!("lost the daemon: {error}"))
}

fn not_ended() -> Failure {
    let minutes = END.as_secs() / 60;
    Failure::new(Code::Failed, format!("the daemon has not ended in {minutes} minutes"))
        .hint("`defib status` shows what still runs")
}

/// What the daemon says went wrong.
fn told(error: ErrorDetail) -> Failure {
    let code = match error.code {
        ErrorCode::Failed | ErrorCode::NotStored => Code::Failed,
        ErrorCode::BadRequest
        | ErrorCode::NotFound
        | ErrorCode::NotAllowed
        | ErrorCode::TooLarge
        | ErrorCode::WrongType
        | ErrorCode::Invalid => Code::Usage,
        ErrorCode::Config => Code::Config,
        ErrorCode::NoSuchAgent => Code::NoAgent,
        ErrorCode::NotInState => Code::NotInState,
        ErrorCode::Unauthorized
        | ErrorCode::Forbidden
        | ErrorCode::TooSlow
        | ErrorCode::WrongHost
        | ErrorCode::TooMany
        | ErrorCode::Ending => Code::Failed,
    };
    let failure = if error.code == ErrorCode::Ending {
        Failure::ending(error.message)
    } else if error.code == ErrorCode::NotStored {
        Failure::unstored(error.message)
    } else {
        Failure::new(code, error.message)
    };
    match error.hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
