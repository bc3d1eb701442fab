//! An authority of a test's own: it certifies whom it wants, and whoever has its file trusts it.

use std::net::TcpStream;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// An authority, and somebody whom it has certified.
#[derive(Debug, Clone)]
pub struct Authority {
    /// What whoever trusts it has in a file.
    pub pem: String,
    config: Arc<ServerConfig>,
}

impl Authority {
    /// A new one, which has certified that somebody is called this.
    pub fn certifying(name: &str) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Two that are called the same would be taken for one that signs badly.
        let called = format!("a test's authority, {:?}", &key.public_key_raw()[..8]);
        params.distinguished_name.push(DnType::CommonName, called);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let issuer = Issuer::new(params, key);
        let theirs = KeyPair::generate().expect("a key");
        let shown = CertificateParams::new([name.to_owned()]).expect("a name");
        let shown = shown.signed_by(&theirs, &issuer).expect("a certificate");
        let theirs = PrivateKeyDer::try_from(theirs.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![shown.der().clone()], theirs)
            .expect("a certificate and its key");
        Authority { pem, config: Arc::new(config) }
    }

    /// Whoever it has certified, at the other end of a connection.
    pub(crate) fn at(&self, stream: TcpStream) -> StreamOwned<ServerConnection, TcpStream> {
        let connection = ServerConnection::new(self.config.clone()).expect("a connection");
        StreamOwned::new(connection, stream)
    }
}
