//! Probes: an agent's health, asked for from outside.
//!
//! One task a run, on the API's runtime, which ends with the run. Nothing here waits on the engine's
//! thread.

use std::path::PathBuf;
use std::time::Duration;

use defib_config::config::{Probe, ProbeTarget};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::errand::Errand;
use crate::recipe::argv;

/// Until an agent is ready by its probe, it is asked this often at least.
const STARTING: Duration = Duration::from_secs(1);

/// What came of a run's probes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Probed {
    /// The first good answer.
    Good,
    /// As many bad ones in a row as it may give, the last for this reason.
    Bad(String),
}

/// Where a command that is a probe is run.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: PathBuf,
}

/// Probes until it has to be said that the run does not answer.
///
/// With `makes_ready` a run is starting until the first good answer: bad ones before that do not
/// count, and come sooner.
pub(crate) async fn watch(
    probe: Probe,
    makes_ready: bool,
    surroundings: Surroundings,
    tell: impl Fn(Probed) + Send,
) {
    let (mut starting, mut failures) = (makes_ready, 0_u32);
    if starting {
        tokio::time::sleep(probe.every.min(STARTING / 10)).await;
    } else {
        tokio::time::sleep(probe.every).await;
    }
    loop {
        let asked = tokio::time::timeout(probe.timeout, ask(&probe, &surroundings));
        let answer = asked.await.unwrap_or_else(|_| {
            Err(format!("no answer within {}", defib_core::span::Shown(probe.timeout)))
        });
        match answer {
            Ok(()) => {
                failures = 0;
                if starting {
                    starting = false;
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

async fn ask(probe: &Probe, surroundings: &Surroundings) -> Result<(), String> {
    match &probe.target {
        ProbeTarget::Http(url) => http(url).await,
        ProbeTarget::Tcp(address) => connect(address).await.map(drop),
        ProbeTarget::Exec(command) => {
            let (words, surroundings, timeout) =
                (argv(command), surroundings.clone(), probe.timeout);
            let run = move || {
                let Surroundings { env, cwd } = &surroundings;
                Errand { words: &words, env, cwd, input: &[], timeout }.run()
            };
            tokio::task::spawn_blocking(run).await.unwrap_or_else(|error| Err(error.to_string()))
        }
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
