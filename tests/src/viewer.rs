//! Somebody who looks at an agent's terminal, as a browser would: a WebSocket, by hand.

use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::Value;

use crate::http::head;
use crate::{Bench, DEADLINE};

/// A WebSocket to a terminal.
pub struct Viewer {
    stream: BufReader<UnixStream>,
    /// All that was shown so far.
    pub shown: String,
    /// All that was said beside it.
    pub said: Vec<Value>,
}

impl Bench {
    /// Begins to look at an agent's terminal.
    #[track_caller]
    pub fn viewer(&self, agent: &str) -> Viewer {
        let mut stream = UnixStream::connect(self.home().join("defib.sock")).expect("a daemon");
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let request = format!(
            "GET /api/v1/agents/{agent}/terminal HTTP/1.1\r\nhost: defib\r\nconnection: Upgrade\r\n\
             upgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut stream = BufReader::new(stream);
        let (status, _) = head(&mut stream).expect("an answer");
        assert_eq!(status, 101);
        Viewer { stream, shown: String::new(), said: Vec::new() }
    }
}

impl Viewer {
    /// Sends a message: text, or bytes as typed.
    pub fn send(&mut self, kind: u8, bytes: &[u8]) {
        let length = u8::try_from(bytes.len()).ok().filter(|length| *length < 126).expect("short");
        // A mask of zeros changes nothing.
        let mut frame = vec![0x80 | kind, 0x80 | length, 0, 0, 0, 0];
        frame.extend_from_slice(bytes);
        self.stream.get_mut().write_all(&frame).expect("a connection");
    }

    /// Sends JSON.
    pub fn say(&mut self, message: &Value) {
        self.send(1, message.to_string().as_bytes());
    }

    /// Types.
    pub fn type_in(&mut self, text: &str) {
        self.send(2, text.as_bytes());
    }

    /// Looks until something is so.
    #[track_caller]
    pub fn until(&mut self, what: &str, is_so: impl Fn(&Viewer) -> bool) {
        while !is_so(self) {
            let Some((kind, bytes)) = self.frame() else {
                panic!("waited in vain for {what}; said {:?}, shown:\n{}", self.said, self.shown)
            };
            match kind {
                1 => self.said.push(serde_json::from_slice(&bytes).expect("JSON")),
                2 => self.shown.push_str(&String::from_utf8_lossy(&bytes)),
                _ => {}
            }
        }
    }

    fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut start = [0; 2];
        self.stream.read_exact(&mut start).ok()?;
        let length = match start[1] & 0x7f {
            126 => {
                let mut length = [0; 2];
                self.stream.read_exact(&mut length).ok()?;
                u64::from(u16::from_be_bytes(length))
            }
            127 => {
                let mut length = [0; 8];
                self.stream.read_exact(&mut length).ok()?;
                u64::from_be_bytes(length)
            }
            length => u64::from(length),
        };
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        self.stream.read_exact(&mut bytes).ok()?;
        Some((start[0] & 0x0f, bytes))
    }
}
