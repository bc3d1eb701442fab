//! Requests to the daemon as a stranger would make them: byte by byte, over TCP or TLS.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::{Bench, DEADLINE};

/// What came back.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The number in its first line; 0 where nothing came.
    pub code: u16,
    /// Everything before the body.
    pub head: String,
    /// The body.
    pub body: String,
}

impl Answer {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut named = lines.filter(|(own, _)| own.eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| value.trim())
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The word for what went wrong.
    pub fn trouble(&self) -> String {
        self.json()["error"]["code"].as_str().expect("a code").to_owned()
    }

    /// Reads one answer to its end.
    pub fn from(stream: &mut impl Read) -> Answer {
        let mut bytes = Vec::new();
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut piece) {
            bytes.extend_from_slice(&piece[..count]);
            let text = String::from_utf8_lossy(&bytes);
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let answer = Answer { code: 0, head: head.to_owned(), body: String::new() };
                let length = answer.header("content-length").and_then(|text| text.parse().ok());
                if length.is_some_and(|length: usize| body.len() >= length) {
                    break;
                }
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        Answer { code, head: head.to_owned(), body: body.to_owned() }
    }
}

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
