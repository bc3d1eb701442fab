//! The daemon's API as a client of HTTP sees it: answers, and plain requests over the socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::Value;

use crate::{Bench, DEADLINE};

/// What came back.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// The number in its first line; 0 where nothing came.
    pub code: u16,
    /// Its headers, their names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: String,
}

impl Answer {
    /// Reads one answer to its end, or to wherever the other side left off.
    pub fn from(stream: &mut impl Read) -> Answer {
        let mut reader = BufReader::new(stream);
        let Some((code, headers)) = head(&mut reader) else { return Answer::default() };
        let mut answer = Answer { code, headers, body: String::new() };
        let length = answer.header("content-length").and_then(|length| length.parse().ok());
        let mut bytes = Vec::new();
        // What came before it broke off is what came.
        let _ = reader.take(length.unwrap_or(u64::MAX)).read_to_end(&mut bytes);
        if answer.header("transfer-encoding").is_some() {
            bytes = unchunked(&bytes);
        }
        answer.body = String::from_utf8_lossy(&bytes).into_owned();
        answer
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The word for what went wrong.
    #[track_caller]
    pub fn trouble(&self) -> String {
        self.json()["error"]["code"].as_str().expect("a code").to_owned()
    }
}

impl Bench {
    /// Asks for something; `more` are header lines.
    #[track_caller]
    pub fn ask(&self, method: &str, path: &str, more: &[&str], body: &str) -> Answer {
        let mut reader = self.connect(method, path, more, body).expect("a daemon");
        let answer = Answer::from(&mut reader);
        assert_ne!(answer.code, 0, "{method} {path} was not answered");
        answer
    }

    /// Looks at something.
    #[track_caller]
    pub fn look(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "")
    }

    /// Opens a stream of server-sent events, if a daemon answers.
    pub fn sse(&self, last_event_id: u64) -> Option<BufReader<UnixStream>> {
        let id = format!("Last-Event-ID: {last_event_id}");
        let accept = "Accept: text/event-stream";
        let mut reader = self.connect("GET", "/api/v1/events", &[&id, accept], "")?;
        let (status, _) = head(&mut reader)?;
        (status == 200).then_some(reader)
    }

    fn connect(
        &self,
        method: &str,
        path: &str,
        more: &[&str],
        body: &str,
    ) -> Option<BufReader<UnixStream>> {
        let mut stream = UnixStream::connect(self.home().join("defib.sock")).ok()?;
        stream.set_read_timeout(Some(DEADLINE)).ok()?;
        let more: String = more.iter().map(|line| format!("{line}\r\n")).collect();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: defib\r\nconnection: close\r\n{more}\
             content-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).ok()?;
        Some(BufReader::new(stream))
    }
}

pub(crate) fn head(reader: &mut impl BufRead) -> Option<(u16, Vec<(String, String)>)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let status = line.split(' ').nth(1)?.parse().ok()?;
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Some((status, headers))
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end]).ok();
        let Some(size) = size.and_then(|size| usize::from_str_radix(size, 16).ok()) else { break };
        let from = end + 2;
        if size == 0 || rest.len() < from + size {
            break;
        }
        body.extend_from_slice(&rest[from..from + size]);
        rest = &rest[(from + size + 2).min(rest.len())..];
    }
    body
}
