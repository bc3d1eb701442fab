//! Where TCP is listened on, and by what names a request may call it.
//!
//! Loopback only, unless the config permits more, and then with TLS: the config has seen to that, and
//! so does [`bind`], because a config can come from a daemon of another version.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use defib_config::config::{Listen, Server};
use tokio::net::TcpListener;

use super::tls::Certificate;

/// The first port that is tried.
const FIRST_PORT: u16 = 7433;
/// So many are tried.
const PORTS: u16 = 1000;
/// Under what the port is kept.
pub(super) const PORT_KEY: &str = "door/port";

/// What the projects say of the web server, and the folder that its paths are relative to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) server: Server,
    pub(crate) folder: PathBuf,
}

/// Where TCP is listened on.
#[derive(Debug, Clone)]
pub(crate) enum Listening {
    /// It is not settled yet.
    NotYet,
    /// Nowhere: the config says so.
    Off,
    /// There.
    At(Arc<Open>),
    /// Nowhere, because this went wrong.
    Failed(String),
}

/// A door that is open.
#[derive(Debug)]
pub(crate) struct Open {
    /// Where.
    pub(crate) address: SocketAddr,
    /// What a request may call it.
    hosts: Vec<String>,
    /// What it shows for itself, and whose names are its own as well.
    pub(super) certificate: Option<Certificate>,
}

impl Open {
    /// A door at an address.
    pub(super) fn new(address: SocketAddr, certificate: Option<Certificate>) -> Open {
        let mut hosts = ["127.0.0.1", "localhost", "[::1]"].map(str::to_owned).to_vec();
        match address.ip() {
            IpAddr::V4(ip) => hosts.push(ip.to_string()),
            IpAddr::V6(ip) => hosts.push(format!("[{ip}]")),
        }
        Open { address, hosts, certificate }
    }

    /// Whether everything goes through TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.certificate.is_some()
    }

    /// Whether a `Host` header means this door.
    pub(super) fn is_called(&self, host: &str) -> bool {
        let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
        let (name, port) = match host.rsplit_once(':').filter(|(_, port)| is_port(port)) {
            Some((name, port)) => (name, port.parse().ok()),
            None => (host, Some(if self.is_tls() { 443 } else { 80 })),
        };
        let is_ours = |own: &String| own.eq_ignore_ascii_case(name);
        let is_known = self.hosts.iter().any(is_ours)
            || self.certificate.as_ref().is_some_and(|certificate| certificate.is_for(name));
        port == Some(self.address.port()) && is_known
    }

    /// Whether an `Origin` header means a page that came through this door.
    pub(super) fn is_origin(&self, origin: &str) -> bool {
        origin.split_once("://").is_some_and(|(scheme, host)| {
            scheme.eq_ignore_ascii_case(self.scheme()) && self.is_called(host)
        })
    }

    fn scheme(&self) -> &'static str {
        if self.is_tls() { "https" } else { "http" }
    }

    /// What a person at this machine can put into a browser.
    pub(crate) fn url(&self) -> String {
        let (ip, port) = (self.address.ip(), self.address.port());
        let host = match ip {
            _ if ip.is_unspecified() => "localhost".to_owned(),
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        format!("{}://{host}:{port}", self.scheme())
    }

    /// What the cookie is called: browsers tell ports of a host apart by nothing else.
    pub(crate) fn cookie(&self) -> String {
        format!("defib-{}", self.address.port())
    }
}

/// Listens where the config says. Nothing where it says so.
pub(super) async fn bind(
    server: &Server,
    last_port: Option<u16>,
) -> io::Result<Option<TcpListener>> {
    match server.listen {
        Some(Listen::Off) => Ok(None),
        Some(Listen::At(address)) => {
            let may_be_remote = server.allow_remote && server.tls.is_some();
            if !address.ip().is_loopback() && !may_be_remote {
                return Err(io::Error::other("beyond loopback it needs allow_remote and tls"));
            }
            TcpListener::bind(address).await.map(Some)
        }
        None => {
            let mut failed = io::Error::other("no port is free");
            let ports = FIRST_PORT..FIRST_PORT + PORTS;
            for port in last_port.into_iter().chain(ports) {
                match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
                    Ok(listener) => return Ok(Some(listener)),
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse => failed = error,
                    Err(error) => return Err(error),
                }
            }
            Err(failed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_is_called_by_its_own_names_and_port_only() {
        let open = Open::new("127.0.0.1:7433".parse().unwrap(), None);
        for (host, is_it) in [
            ("127.0.0.1:7433", true),
            ("LOCALHOST:7433", true),
            ("[::1]:7433", true),
            ("localhost", false),
            ("localhost:80", false),
            ("evil.example:7433", false),
            ("127.0.0.1:7433.evil.example", false),
            ("", false),
        ] {
            assert_eq!(open.is_called(host), is_it, "{host}");
            assert_eq!(open.is_origin(&format!("http://{host}")), is_it, "{host}");
            assert!(!open.is_origin(&format!("https://{host}")), "{host}");
        }
        assert!(!open.is_origin("null"));
    }

    #[test]
    fn the_usual_port_need_not_be_said() {
        let open = Open::new("127.0.0.1:80".parse().unwrap(), None);
        assert!(open.is_called("localhost") && open.is_called("localhost:80"));
        assert!(!open.is_called("localhost:443") && !open.is_called("::1"));
    }
}
