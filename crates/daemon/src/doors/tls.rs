//! The certificate that is shown beyond loopback, and whose names are the daemon's.
//!
//! It is read again when its file has changed, so that a renewed one is shown without a restart. One
//! that cannot be read then leaves the old one in place.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use defib_config::config::Tls;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::version::TLS13;

/// A certificate with its key, as the files have them.
pub(super) struct Certificate {
    cert: PathBuf,
    key: PathBuf,
    loaded: Mutex<Loaded>,
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate").field("cert", &self.cert).finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct Loaded {
    changed: Option<SystemTime>,
    config: Arc<ServerConfig>,
    leaf: CertificateDer<'static>,
}

impl Certificate {
    /// Reads it. Paths are relative to the project's folder.
    pub(super) fn load(tls: &Tls, folder: &Path) -> io::Result<Certificate> {
        let (cert, key) = (folder.join(&tls.cert), folder.join(&tls.key));
        let loaded = Mutex::new(Loaded::read(&cert, &key)?);
        Ok(Certificate { cert, key, loaded })
    }

    fn current(&self) -> Loaded {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = changed(&self.cert);
        if changed != loaded.changed {
            match Loaded::read(&self.cert, &self.key) {
                Ok(new) => *loaded = new,
                Err(error) => {
                    say!("the certificate stays the old one: {error}");
                    loaded.changed = changed;
                }
            }
        }
        loaded.clone()
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.current().config)
    }

    /// Whether the certificate is for this name or address.
    pub(super) fn is_for(&self, host: &str) -> bool {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let Ok(name) = ServerName::try_from(bare) else { return false };
        let leaf = self.current().leaf;
        ParsedCertificate::try_from(&leaf)
            .is_ok_and(|cert| verify_server_name(&cert, &name).is_ok())
    }
}

impl Loaded {
    fn read(cert: &Path, key: &Path) -> io::Result<Loaded> {
        let wrong = |path: &Path, why: &dyn std::fmt::Display| {
            io::Error::other(format!("{}: {why}", path.display()))
        };
        let changed = changed(cert);
        let chain = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect);
        let chain: Vec<CertificateDer<'static>> = chain.map_err(|error| wrong(cert, &error))?;
        let leaf = chain.first().cloned().ok_or_else(|| wrong(cert, &"there is no certificate"))?;
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            // Older versions are in the tree for the sake of receivers that messages go to.
            .with_protocol_versions(&[&TLS13])
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, secret));
        let mut config = config.map_err(|error| wrong(cert, &error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Loaded { changed, config: Arc::new(config), leaf })
    }
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}
