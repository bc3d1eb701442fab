//! Beyond loopback there is TLS, or nothing.

use std::io::Write;
use std::sync::Arc;

use defib_e2e::{Answer, Bench, Web, free_port};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::bench;

/// A certificate for a name, in the project's folder.
fn certify(bench: &Bench, name: &str) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    std::fs::write(bench.project().join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(bench.project().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    made.cert.der().clone()
}

fn up(bench: &Bench, listen: &str) {
    let agent = bench.agent("a", "forever", "");
    bench.config(&format!(
        "{agent}\n[server]\nlisten = \"{listen}\"\nallow_remote = true\n\
         tls = {{ cert = \"cert.pem\", key = \"key.pem\" }}\n"
    ));
    bench.defib(&["up", "--detach"]).good();
}

/// Asks as somebody does who trusts this certificate for this name.
fn ask(web: &Web, trusted: &CertificateDer<'static>, name: &str, text: &str) -> Option<Answer> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, web.connect());
    stream.write_all(text.as_bytes()).ok()?;
    Some(Answer::from(&mut stream)).filter(|answer| answer.code != 0)
}

#[test]
fn a_certificate_is_shown_its_names_are_ours_and_nothing_is_said_in_the_open() {
    let bench = bench();
    let certificate = certify(&bench, "agents.example");
    let port = free_port();
    up(&bench, &format!("0.0.0.0:{port}"));
    let link = bench.defib(&["dashboard"]).good().out;
    assert!(link.starts_with(&format!("https://localhost:{port}/login?key=")), "{link}");
    let web = Web::of(&bench);
    let host = format!("Host: agents.example:{port}");
    let get = |path: &str, headers: &[&str]| {
        let text = web.text(&format!("GET {path}"), headers, "");
        ask(&web, &certificate, "agents.example", &text).expect("an answer")
    };
    assert_eq!(get("/healthz", &[&host]).code, 200);
    assert_eq!(get("/api/v1/agents", &[&host]).code, 401);
    assert_eq!(get("/api/v1/agents", &[&format!("Host: other.example:{port}")]).code, 421);
    let path = link.trim().rsplit_once(&format!(":{port}")).unwrap().1;
    let answer = get(path, &[&host]);
    assert_eq!(answer.code, 303);
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.contains("; Secure"), "{cookie}");
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    assert_eq!(get("/api/v1/agents", &[&host, &cookie]).code, 200);
    let origin = format!("Origin: https://agents.example:{port}");
    assert_eq!(get("/api/v1/agents", &[&host, &cookie, &origin]).code, 200);
    let plain = format!("Origin: http://agents.example:{port}");
    assert_eq!(get("/api/v1/agents", &[&host, &cookie, &plain]).code, 403);
    assert_eq!(web.code("GET /healthz", &[&host], ""), 0, "without TLS nobody answers");
    // A renewed certificate is shown without a restart.
    let renewed = certify(&bench, "new.example");
    let text = web.text("GET /healthz", &[&format!("Host: new.example:{port}")], "");
    assert_eq!(ask(&web, &renewed, "new.example", &text).expect("an answer").code, 200);
}

#[test]
fn without_a_certificate_that_can_be_read_there_is_no_door_and_agents_run() {
    let bench = bench();
    let port = free_port();
    std::fs::write(bench.project().join("cert.pem"), "nonsense").unwrap();
    up(&bench, &format!("0.0.0.0:{port}"));
    let refused = bench.defib(&["dashboard"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("cert.pem"), "{refused:?}");
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
    assert_eq!(bench.status("a")["state"], "running");
}
