//! Where messages arrive: an HTTP receiver and a mail server, each as small as it can be.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{Authority, DEADLINE};

/// One POST that arrived.
#[derive(Debug, Clone)]
pub struct Received {
    /// Where it was sent.
    pub path: String,
    /// Its headers, with names in small letters.
    pub headers: BTreeMap<String, String>,
    /// What it said, byte for byte.
    pub body: Vec<u8>,
    /// What it was answered with; 0 is no answer.
    pub answered: u16,
}

impl Received {
    /// What it said.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

type Shared<T> = Arc<(Mutex<Vec<T>>, Condvar)>;

/// Takes POST requests and answers each as a script says.
pub struct Receiver {
    base: String,
    shared: Shared<Received>,
}

impl Receiver {
    /// One that answers the request with this number, counted from zero, by `answer`: a status, or 0
    /// to hang up without a word.
    pub fn answering(answer: impl Fn(usize) -> u16 + Send + 'static) -> Receiver {
        Receiver::open(None, answer)
    }

    /// One that shows the certificate of somebody, and takes everything.
    pub fn certified(by: &Authority) -> Receiver {
        Receiver::open(Some(by.clone()), |_| 200)
    }

    fn open(
        certified: Option<Authority>,
        answer: impl Fn(usize) -> u16 + Send + 'static,
    ) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let scheme = if certified.is_some() { "https" } else { "http" };
        let base = format!("{scheme}://{}", listener.local_addr().unwrap());
        let shared: Shared<Received> = Arc::default();
        let theirs = shared.clone();
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let Ok(stream) = stream else { return };
                let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
                let status = answer(number);
                let received = match &certified {
                    Some(by) => receive(by.at(stream), status),
                    None => receive(stream, status),
                };
                if let Some(received) = received {
                    push(&theirs, received);
                }
            }
        });
        Receiver { base, shared }
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("{}/hook?a=b", self.base)
    }

    /// Its address without a path.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Everything that has arrived.
    pub fn all(&self) -> Vec<Received> {
        lock(&self.shared).clone()
    }

    /// Waits until what has arrived is as wanted.
    #[track_caller]
    pub fn find<T>(&self, what: &str, look: impl Fn(&[Received]) -> Option<T>) -> T {
        find(&self.shared, what, look)
    }
}

/// A mail that arrived.
#[derive(Debug, Clone, Default)]
pub struct Mail {
    /// From whom, by the envelope.
    pub from: String,
    /// To whom.
    pub to: Vec<String>,
    /// Head and body.
    pub text: String,
}

/// A mail server that takes everything.
pub struct Mailbox {
    /// Its port.
    pub port: u16,
    shared: Shared<Mail>,
}

impl Mailbox {
    /// One on a port of its own, in the open.
    pub fn open() -> Mailbox {
        Mailbox::listen(Tls::Off)
    }

    /// One that shows the certificate of somebody before anything is said.
    pub fn certified(by: &Authority) -> Mailbox {
        Mailbox::listen(Tls::Implicit(by.clone()))
    }

    /// One that does so when it is asked to by `STARTTLS`.
    pub fn certified_if_asked(by: &Authority) -> Mailbox {
        Mailbox::listen(Tls::Offered(by.clone()))
    }

    fn listen(tls: Tls) -> Mailbox {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared: Shared<Mail> = Arc::default();
        let theirs = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
                let keep = |mail| push(&theirs, mail);
                // Whoever does not trust us hangs up.
                let _ = match &tls {
                    Tls::Off => take_mail(stream, GREETING, "", keep).map(drop),
                    Tls::Implicit(by) => take_mail(by.at(stream), GREETING, "", keep).map(drop),
                    Tls::Offered(by) => {
                        let asked = take_mail(stream, GREETING, "250-STARTTLS\r\n", keep);
                        asked.and_then(|asked| match asked {
                            Some(stream) => take_mail(by.at(stream), "", "", keep).map(drop),
                            None => Ok(()),
                        })
                    }
                };
            }
        });
        Mailbox { port, shared }
    }

    /// Everything that has arrived.
    pub fn all(&self) -> Vec<Mail> {
        lock(&self.shared).clone()
    }

    /// Waits until what has arrived is as wanted.
    #[track_caller]
    pub fn find<T>(&self, what: &str, look: impl Fn(&[Mail]) -> Option<T>) -> T {
        find(&self.shared, what, look)
    }
}

/// How a mail server is encrypted.
enum Tls {
    Off,
    Implicit(Authority),
    Offered(Authority),
}

const GREETING: &str = "220 a test's\r\n";

fn lock<T>(shared: &Shared<T>) -> MutexGuard<'_, Vec<T>> {
    shared.0.lock().unwrap_or_else(PoisonError::into_inner)
}

fn push<T>(shared: &Shared<T>, one: T) {
    lock(shared).push(one);
    shared.1.notify_all();
}

#[track_caller]
fn find<T: std::fmt::Debug, F>(
    shared: &Shared<T>,
    what: &str,
    look: impl Fn(&[T]) -> Option<F>,
) -> F {
    let begin = Instant::now();
    let mut all = lock(shared);
    loop {
        if let Some(found) = look(&all) {
            return found;
        }
        let left = DEADLINE.checked_sub(begin.elapsed());
        let left = left.unwrap_or_else(|| panic!("waited in vain for {what}; there is {all:#?}"));
        all = shared.1.wait_timeout(all, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Reads one request and answers it.
fn receive(stream: impl Read + Write, status: u16) -> Option<Received> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path =
        line.strip_prefix("POST ").and_then(|line| line.trim_end().strip_suffix(" HTTP/1.1"));
    let path = path.unwrap_or_else(|| panic!("{line}")).to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length: usize = headers.get("content-length")?.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    if status > 0 {
        let answer = format!("HTTP/1.1 {status} Said\r\ncontent-length: 4\r\n\r\nwell");
        let _ = reader.get_mut().write_all(answer.as_bytes());
    }
    Some(Received { path, headers, body, answered: status })
}

/// Speaks as much SMTP as it takes to be handed a mail. Gives the stream back when it is asked to be
/// encrypted; it offers that only where `offers` says so.
fn take_mail<S: Read + Write>(
    stream: S,
    greeting: &str,
    offers: &str,
    keep: impl Fn(Mail),
) -> std::io::Result<Option<S>> {
    let mut reader = BufReader::new(stream);
    let mut mail = Mail::default();
    reader.get_mut().write_all(greeting.as_bytes())?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        let word = line.trim_end().to_owned();
        line.clear();
        let mut answer = "250 good\r\n".to_owned();
        match word.split(' ').next().unwrap_or_default() {
            "EHLO" | "HELO" => answer = format!("{offers}250 8BITMIME\r\n"),
            "STARTTLS" => {
                reader.get_mut().write_all(b"220 go on\r\n")?;
                return Ok(Some(reader.into_inner()));
            }
            "MAIL" => mail.from = word,
            "RCPT" => mail.to.push(word),
            "DATA" => {
                reader.get_mut().write_all(b"354 go on\r\n")?;
                while reader.read_line(&mut line)? > 0 && line != ".\r\n" {
                    mail.text.push_str(&line);
                    line.clear();
                }
                line.clear();
                keep(std::mem::take(&mut mail));
            }
            "QUIT" => {
                reader.get_mut().write_all(b"221 bye\r\n")?;
                return Ok(None);
            }
            _ => {}
        }
        reader.get_mut().write_all(answer.as_bytes())?;
    }
    Ok(None)
}
