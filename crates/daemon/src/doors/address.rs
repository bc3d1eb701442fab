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
    /// Whether everything goes through TLS.
    pub(crate) tls: bool,
    /// What a request may call it, in small letters.
    hosts: Vec<String>,
}

impl Open {
    /// A door at an address, which a request may also call by these names.
    pub(super) fn new(address: SocketAddr, tls: bool, names: &[String]) -> Open {
        let mut calls: Vec<String> =
            ["127.0.0.1", "localhost", "[::1]"].map(str::to_owned).to_vec();
        if !address.ip().is_loopback() {
            calls.extend(names.iter().map(|name| name.to_ascii_lowercase()));
        }
        match address.ip() {
            IpAddr::V4(ip) => calls.push(ip.to_string()),
            IpAddr::V6(ip) => calls.push(format!("[{ip}]")),
        }
        let port = address.port();
        let is_usual = port == if tls { 443 } else { 80 };
        let bare = calls.iter().filter(|_| is_usual).cloned().collect::<Vec<_>>();
        let hosts = calls.iter().map(|call| format!("{call}:{port}")).chain(bare).collect();
        Open { address, tls, hosts }
    }

    /// Whether a `Host` header means this door.
    pub(super) fn is_called(&self, host: &str) -> bool {
        self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
    }

    /// Whether an `Origin` header means a page that came through this door.
    pub(super) fn is_origin(&self, origin: &str) -> bool {
        origin.split_once("://").is_some_and(|(scheme, host)| {
            scheme.eq_ignore_ascii_case(self.scheme()) && self.is_called(host)
        })
    }

    fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
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
            if server.tls.is_some() {
                return Err(io::Error::other("this version cannot do TLS"));
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
        let open = Open::new("127.0.0.1:7433".parse().unwrap(), false, &["evil.example".into()]);
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
    fn beyond_loopback_it_has_the_names_it_was_given() {
        let open = Open::new("10.0.0.5:443".parse().unwrap(), true, &["Box.example".into()]);
        for host in ["10.0.0.5", "10.0.0.5:443", "box.example", "box.example:443"] {
            assert!(open.is_called(host), "{host}");
        }
        assert!(!open.is_called("other.example"));
        assert!(open.is_origin("https://box.example"));
    }
}
