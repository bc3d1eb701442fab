//! Sending figures by OpenTelemetry, where a project wants that: at once, then at an interval.
//!
//! A task beside the API: the engine is asked what anybody may ask it, and waits for nobody. A receiver
//! that is away costs an attempt an interval. That it is away is said once, with the first attempt that
//! fails, and counted; nothing is kept for it, because the next figures say all that these did.

use std::path::Path;
use std::time::Duration;

use defib_core::Wall;
use defib_host::clock::now;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::{Metrics, otlp};
use crate::engine::Ask;
use crate::post::{PROTOBUF, Refused, post, within};

/// The longest time that a receiver can ask us to stay away.
const LONGEST_ASKED: Duration = Duration::from_secs(3600);

/// Where figures are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// The address that they are posted to, or why there is none.
    pub(crate) url: Result<String, String>,
    /// Headers in the form of `OTEL_EXPORTER_OTLP_HEADERS`, or why there are none.
    pub(crate) headers: Result<String, String>,
    pub(crate) interval: Duration,
}

/// Whoever sends them.
pub(crate) struct Exporter {
    metrics: Metrics,
    targets: watch::Receiver<Option<Target>>,
    host: String,
    instance: String,
    began: Wall,
    /// Whether the last attempt failed, and that was said.
    is_failing: bool,
}

impl Exporter {
    /// One that sends to whoever is named, for the daemon of a home.
    pub(crate) fn new(
        metrics: Metrics,
        targets: watch::Receiver<Option<Target>>,
        home: &Path,
    ) -> Exporter {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let instance = format!("{host}:{}", home.display());
        let began = now().wall;
        Exporter { metrics, targets, host, instance, began, is_failing: false }
    }

    /// Works as long as there is a daemon.
    pub(crate) async fn work(mut self) {
        loop {
            let target = self.targets.borrow_and_update().clone();
            let changed = if let Some(target) = target {
                let next = Instant::now() + target.interval;
                let asked = self.send(&target).await.unwrap_or_default().min(LONGEST_ASKED);
                let next = next.max(Instant::now() + asked);
                tokio::select! {
                    changed = self.targets.changed() => changed,
                    () = sleep_until(next) => Ok(()),
                }
            } else {
                self.metrics.counters().sent_to_nobody();
                self.is_failing = false;
                self.targets.changed().await
            };
            if changed.is_err() {
                return;
            }
        }
    }

    /// Sends once. Gives how long the receiver wants to be left alone.
    async fn send(&mut self, target: &Target) -> Option<Duration> {
        let sent = self.attempt(target).await;
        self.metrics.counters().sent(sent.is_ok());
        let Refused { why, after } = match sent {
            Ok(()) => {
                self.is_failing = false;
                return None;
            }
            Err(refused) => refused,
        };
        if !self.is_failing {
            let interval = defib_core::time::millis(target.interval);
            let body = vec![("why", why.into()), ("interval_ms", interval.into())];
            self.metrics.engine.tell(Ask::Say("export-failed", body));
        }
        self.is_failing = true;
        after
    }

    async fn attempt(&self, target: &Target) -> Result<(), Refused> {
        let url = target.url.clone()?;
        let headers = headers(&target.headers.clone()?)?;
        let (host, instance) = (self.host.clone(), self.instance.clone());
        let sender =
            otlp::Sender { host, instance, began: nanos(self.began), now: nanos(now().wall) };
        let body = self.metrics.with_figures(move |figures| otlp::request(&sender, &figures));
        let body = body.await?;
        Box::pin(within(post(&url, PROTOBUF, &headers, body))).await
    }
}

fn nanos(at: Wall) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or_default().saturating_mul(1_000_000)
}

/// Headers as OpenTelemetry writes them down: `key=value`, between commas, values percent-encoded.
/// What is wrong with them is said without them: they are there to hold secrets.
fn headers(text: &str) -> Result<Vec<(String, String)>, String> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let read = |(number, pair): (usize, &str)| {
        let bad = || format!("header {} is not of the form key=value", number + 1);
        let (key, value) = pair.split_once('=').ok_or_else(bad)?;
        let (key, value) = (key.trim(), decoded(value.trim()).ok_or_else(bad)?);
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        let is_good = !key.is_empty() && key.chars().all(is_token);
        if !is_good || value.contains(|c: char| c.is_control()) {
            return Err(bad());
        }
        Ok((key.to_ascii_lowercase(), value))
    };
    pairs.enumerate().map(read).collect()
}

/// Text whose bytes may be written as `%` and two digits.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_opentelemetry_writes_them() {
        let read = |text: &str| headers(text).ok();
        let pairs = |pairs: &[(&str, &str)]| {
            let own = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            Some(own.collect::<Vec<_>>())
        };
        assert_eq!(read(""), pairs(&[]));
        assert_eq!(read("a=b"), pairs(&[("a", "b")]));
        assert_eq!(
            read("Authorization=Bearer%20x=, X-Scope = night ,"),
            pairs(&[("authorization", "Bearer x="), ("x-scope", "night")])
        );
        for bad in ["a", "=b", "a b=c", "a=%2", "a=%zz", "a=%+1", "a=%0d%0ab", "a=%ff", "a=b,c"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        let why = headers("a=secret,b").unwrap_err();
        assert_eq!(why, "header 2 is not of the form key=value");
    }
}
