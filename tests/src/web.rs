//! Requests to the daemon as a stranger would make them: byte by byte, over TCP or TLS.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use crate::{Answer, Bench, DEADLINE};

/// The daemon's TCP door.
#[derive(Debug, Clone)]
pub struct Web {
    /// Where it is.
    pub address: SocketAddr,
}

impl Web {
    /// That of a bench whose daemon is up.
    pub fn of(bench: &Bench) -> Web {
        let link = bench.defib(&["dashboard"]).good().out;
        let (_, rest) = link.split_once("://").expect("a link");
        let (host, _) = rest.split_once('/').expect("a path");
        Web { address: host.replace("localhost", "127.0.0.1").parse().expect("an address") }
    }

    /// A connection that waits for ever for nothing.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect_timeout(&self.address, DEADLINE).expect("a connection");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        stream.set_write_timeout(Some(DEADLINE)).expect("a timeout");
        stream
    }

    /// What this request looks like with these headers, its own Host and no body but this.
    pub fn text(&self, line: &str, headers: &[&str], body: &str) -> String {
        let mut text = format!("{line} HTTP/1.1\r\n");
        if !headers.iter().any(|header| header.to_ascii_lowercase().starts_with("host:")) {
            text.push_str(&format!("Host: {}\r\n", self.address));
        }
        for header in headers {
            text.push_str(&format!("{header}\r\n"));
        }
        if !body.is_empty() {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        format!("{text}\r\n{body}")
    }

    /// Asks for something.
    pub fn ask(&self, line: &str, headers: &[&str], body: &str) -> Answer {
        let mut stream = self.connect();
        stream.write_all(self.text(line, headers, body).as_bytes()).expect("a request");
        Answer::from(&mut stream)
    }

    /// The code that comes of asking for something.
    pub fn code(&self, line: &str, headers: &[&str], body: &str) -> u16 {
        self.ask(line, headers, body).code
    }
}
