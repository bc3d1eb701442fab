//! Probes: an agent's health, asked for from outside.
//!
//! One task per run, on the API's runtime, which ends with the run. Nothing here waits on the engine's
//! thread. The keeper runs an exec probe, as the agent and in its sandbox; nothing is spawned here.

use std::time::Duration;

use defib_config::config::{Probe, ProbeTarget};
use defib_host::protocol::{CommandEnd, How};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::recipe::argv;
use crate::words::stage_word;

/// Until an agent is ready by its probe, it is asked this often at least.
const STARTING: Duration = Duration::from_secs(1);
/// The keeper holds an exec probe to its deadline. A keeper that does not answer this long after the deadline
/// is not waited for.
const GRACE: Duration = Duration::from_secs(30);
/// How soon a command is asked for again while the run's last command is still being killed.
const AGAIN: Duration = Duration::from_millis(100);

/// What came of a run's probes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Probed {
    /// The first good answer.
    Good,
    /// As many bad ones in a row as it may give, the last for this reason.
    Bad(String),
}

/// Probes until it has to be said that the run does not answer.
///
/// The first good answer is told too: it is a sign of life. With `makes_ready` a run is starting until
/// then: bad answers before that do not count, and come sooner.
pub(crate) async fn watch(
    probe: Probe,
    makes_ready: bool,
    run: impl Fn(Vec<String>, Duration) -> oneshot::Receiver<CommandEnd> + Send + Sync,
    tell: impl Fn(Probed) + Send,
) {
    let (mut starting, mut passed, mut failures) = (makes_ready, false, 0_u32);
    if starting {
        tokio::time::sleep(probe.every.min(STARTING / 10)).await;
    } else {
        tokio::time::sleep(probe.every).await;
    }
    loop {
        let answer = match &probe.target {
            ProbeTarget::Exec(command) => {
                let asked = execute(argv(command), probe.timeout, &run);
                tokio::time::timeout(probe.timeout.saturating_add(GRACE), asked).await
            }
            ProbeTarget::Http(url) => tokio::time::timeout(probe.timeout, http(url)).await,
            ProbeTarget::Tcp(address) => {
                let asked = async { connect(address).await.map(drop) };
                tokio::time::timeout(probe.timeout, asked).await
            }
        };
        let answer = answer.unwrap_or_else(|_| Err(no_answer(probe.timeout)));
        match answer {
            Ok(()) => {
                failures = 0;
                starting = false;
                if !std::mem::replace(&mut passed, true) {
                    tell(Probed::Good);
                }
            }
            Err(_) if starting => {}
            Err(why) => {
                failures = failures.saturating_add(1);
                if failures >= probe.failures {
                    let times = if failures == 1 { "once" } else { "in a row" };
                    tell(Probed::Bad(format!(
                        "probe {} failed {failures} {times}: {why}",
                        target_shown(&probe.target)
                    )));
                    return;
                }
            }
        }
        tokio::time::sleep(if starting { probe.every.min(STARTING) } else { probe.every }).await;
    }
}

fn target_shown(target: &ProbeTarget) -> String {
    match target {
        ProbeTarget::Http(url) => url.clone(),
        ProbeTarget::Tcp(address) => address.clone(),
        ProbeTarget::Exec(command) => argv(command).join(" "),
    }
}

fn no_answer(timeout: Duration) -> String {
    format!("no answer within {}", defib_core::span::Shown(timeout))
}

/// Has the keeper run a command, and says what is wrong with its end.
async fn execute(
    argv: Vec<String>,
    timeout: Duration,
    run: &(impl Fn(Vec<String>, Duration) -> oneshot::Receiver<CommandEnd> + Sync),
) -> Result<(), String> {
    loop {
        match run(argv.clone(), timeout).await {
            Ok(CommandEnd::Ended(How::Exited(0))) => return Ok(()),
            Ok(CommandEnd::Ended(How::Exited(code))) => {
                return Err(format!("it exited with {code}"));
            }
            Ok(CommandEnd::Ended(How::Signaled(signal))) => {
                return Err(format!("it was ended by signal {signal}"));
            }
            Ok(CommandEnd::TimedOut) => return Err(no_answer(timeout)),
            Ok(CommandEnd::NotSpawned { errno, .. }) if errno == Errno::BUSY.raw_os_error() => {}
            Ok(CommandEnd::NotSpawned { errno, stage }) => {
                let error = std::io::Error::from_raw_os_error(errno);
                return Err(format!("{}: {error}", stage_word(stage)));
            }
            // The run is ending, or another watcher of the same run has taken over.
            Err(_) => std::future::pending().await,
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn connect(address: &str) -> Result<TcpStream, String> {
    TcpStream::connect(address).await.map_err(|error| error.to_string())
}

async fn http(url: &str) -> Result<(), String> {
    let url: hyper::Uri = url.parse().map_err(|_| "no address".to_owned())?;
    let authority = url.authority().ok_or("no host")?;
    let port = authority.port_u16().unwrap_or(80);
    let stream = connect(&format!("{}:{port}", authority.host())).await?;
    let failed = |error: hyper::Error| error.to_string();
    let (mut sender, connection) =
        http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await.map_err(failed)?;
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let request = hyper::Request::get(path)
        .header("host", authority.as_str())
        .header("user-agent", "defib-probe")
        .header("connection", "close")
        .body(Empty::new())
        .map_err(|error| error.to_string())?;
    // The connection is driven here and goes with this call, whatever the other side does. It may
    // have ended by the time that its answer is taken.
    let mut answer = std::pin::pin!(sender.send_request(request));
    let response = tokio::select! {
        response = &mut answer => response,
        _ = connection => answer.await,
    };
    let response = response.map_err(failed)?;
    let status = response.status();
    if status.is_success() { Ok(()) } else { Err(format!("it answered {status}")) }
}
