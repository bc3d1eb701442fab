//! One POST over HTTP or HTTPS: a message for people, or figures.
//!
//! No redirect is followed and no connection is kept: both are rare, and go where the config says. What
//! went wrong is said without addresses: the address of a webhook may be all that protects it.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::RETRY_AFTER;
use hyper::{Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, CertificateError, ClientConfig, RootCertStore};

/// How long an attempt over the network may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// So much of what a receiver says against a message is looked at.
const LONGEST_ANSWER: usize = 16 << 10;

/// What a body is.
pub(crate) const JSON: &str = "application/json";
/// What a body is.
pub(crate) const PROTOBUF: &str = "application/x-protobuf";

/// Why something has not arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) why: String,
    /// How long the receiver wants to be left alone.
    pub(crate) after: Option<Duration>,
}

impl From<String> for Refused {
    fn from(why: String) -> Refused {
        Refused { why, after: None }
    }
}

/// Gives an attempt over the network as long as any may take.
pub(crate) async fn within(sent: impl Future<Output = Result<(), Refused>>) -> Result<(), Refused> {
    let shown = defib_core::span::Shown(PATIENCE);
    let sent = tokio::time::timeout(PATIENCE, sent).await;
    sent.unwrap_or_else(|_| Err(format!("no answer within {shown}").into()))
}

/// Posts a body of some sort. Whatever is not a success is a refusal.
pub(crate) async fn post<N: AsRef<str>>(
    url: &str,
    kind: &str,
    headers: &[(N, String)],
    body: Vec<u8>,
) -> Result<(), Refused> {
    let url: Uri = url.parse().map_err(|_| "its address makes no sense".to_owned())?;
    let authority = url.authority().ok_or_else(|| "its address has no host".to_owned())?;
    let is_tls = url.scheme_str() == Some("https");
    let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let mut request = hyper::Request::post(path)
        .header("host", host_header(authority.host(), authority.port_u16()))
        .header("user-agent", concat!("defib/", env!("CARGO_PKG_VERSION")))
        .header("content-type", kind)
        .header("connection", "close");
    for (name, value) in headers {
        request = request.header(name.as_ref(), value);
    }
    let request = request.body(Full::new(Bytes::from(body))).map_err(|error| error.to_string())?;
    let stream = TcpStream::connect((host.as_str(), port))
        .await
        .map_err(|error| format!("{host}: {error}"))?;
    if is_tls {
        let name = ServerName::try_from(host.clone())
            .map_err(|_| format!("{host} is no name that a certificate can have"))?;
        let config = tokio::task::spawn_blocking(trusting).await.map_err(|e| e.to_string())??;
        let stream = TlsConnector::from(config).connect(name, stream).await;
        let failed = |error| match distrust(&error) {
            Some(why) => format!("{host}: {why}"),
            None => format!("{host}: {error}"),
        };
        exchange(stream.map_err(failed)?, request, &host).await
    } else {
        exchange(stream, request, &host).await
    }
}

fn host_header(host: &str, port: Option<u16>) -> String {
    match port {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// What is wrong with the certificate that somebody showed, where that is what went wrong.
pub(crate) fn distrust(error: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        let tls = error.downcast_ref::<rustls::Error>();
        if let Some(rustls::Error::InvalidCertificate(why)) = tls {
            return Some(if *why == CertificateError::UnknownIssuer {
                "nobody whom this machine trusts has signed its certificate; to trust others, start \
                 the daemon where SSL_CERT_FILE names a file of theirs"
                    .to_owned()
            } else {
                format!("its certificate is not good: {why}")
            });
        }
        // What an error of the system carries is not its source, but it itself.
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

/// Trusts whom this machine trusts. The certificates are read each time: they change while we live.
fn trusting() -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
        return Err(format!(
            "there are no certificates to trust (install ca-certificates, or see to SSL_CERT_FILE){why}"
        ));
    }
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

async fn exchange<S>(
    stream: S,
    request: hyper::Request<Full<Bytes>>,
    host: &str,
) -> Result<(), Refused>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let failed = |error: hyper::Error| format!("{host}: {error}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    // The connection is driven here and goes with this call, whatever the other side does.
    let mut connection = std::pin::pin!(connection);
    let mut answer = std::pin::pin!(async {
        let response = sender.send_request(request).await?;
        Ok(judge(response, host).await)
    });
    let judged = tokio::select! {
        judged = &mut answer => judged,
        _ = &mut connection => answer.await,
    };
    judged.map_err(failed)?
}

/// How long a receiver asks to be left alone: in seconds, or until a moment.
fn wait_asked(after: &str) -> Option<Duration> {
    if let Ok(seconds) = after.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = jiff::fmt::rfc2822::parse(after).ok()?.timestamp();
    Duration::try_from(until.duration_since(jiff::Timestamp::now())).ok()
}

/// What an answer means.
async fn judge(response: Response<hyper::body::Incoming>, host: &str) -> Result<(), Refused> {
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let after = response.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok());
    let after = after.and_then(|after| wait_asked(after.trim()));
    let said = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await;
    let said = said.map(|said| String::from_utf8_lossy(&said.to_bytes()).into_owned());
    let said = said.unwrap_or_default();
    let first = said.lines().next().unwrap_or_default().trim();
    let first: String = first.chars().filter(|c| !c.is_control()).take(100).collect();
    let why = if first.is_empty() {
        format!("{host} answered {status}")
    } else {
        format!("{host} answered {status}: {first}")
    };
    Err(Refused { why, after })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_says_in_seconds_or_by_a_date_how_long_it_wants_to_be_left_alone() {
        assert_eq!(wait_asked("120"), Some(Duration::from_secs(120)));
        assert_eq!(wait_asked("soon"), None);
        assert_eq!(wait_asked("Wed, 21 Oct 2015 07:28:00 GMT"), None);
        let far = wait_asked("Fri, 31 Dec 2100 23:59:59 GMT").unwrap();
        assert!(far > Duration::from_secs(365 * 86_400), "{far:?}");
    }
}
