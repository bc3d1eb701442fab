//! What agents say they use over OpenTelemetry: a receiver of OTLP over HTTP, on loopback.
//!
//! A run is known by the token that its environment has for a header; what comes without one, or with
//! another, is refused. Only tokens and cost are counted, differences and totals each as what they
//! are. Traces and logs are taken and thrown away, so that no exporter complains.

mod json;
mod protobuf;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use defib_core::{Name, RunId};
use defib_host::protocol::RunKey;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::doors::serve_bounded;
use crate::ledger::{Amounts, Ledger, Meter, amount, micros};

/// No request is larger.
const BODY: usize = 8 << 20;
/// So many series are told apart in a run; what comes beyond them is not counted.
const SERIES: usize = 4096;

/// Whether values are differences or totals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Temporality {
    Delta,
    Total,
}

/// A value that was sent.
#[derive(Debug, Clone, PartialEq)]
struct Point {
    metric: String,
    /// What tells it from others of the same metric.
    series: Vec<u8>,
    temporality: Temporality,
    start: u64,
    at: u64,
    value: f64,
}

/// The unit that a metric counts, where it is one of those that do.
fn unit_of(metric: &str) -> Option<&'static str> {
    match metric {
        "claude_code.token.usage" | "gen_ai.client.token.usage" => Some("tokens"),
        "claude_code.cost.usage" => Some("usd"),
        _ => None,
    }
}

/// Variables by which an environment says where, or in which form, to export. Where one is set, the
/// run's export is left as it is.
const OWN_EXPORTER: [&str; 4] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
];

/// The variables that make a kind export what it uses, and the values that serve.
const CLAUDE: [(&str, &[&str]); 4] = [
    ("CLAUDE_CODE_ENABLE_TELEMETRY", &["1", "true"]),
    ("OTEL_METRICS_EXPORTER", &["otlp"]),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", &["http/protobuf", "http/json"]),
    ("OTEL_EXPORTER_OTLP_COMPRESSION", &["none"]),
];
const GEMINI: [(&str, &[&str]); 4] = [
    ("GEMINI_TELEMETRY_ENABLED", &["true", "1"]),
    ("GEMINI_TELEMETRY_TARGET", &["local"]),
    ("GEMINI_TELEMETRY_OTLP_PROTOCOL", &["http"]),
    ("OTEL_EXPORTER_OTLP_COMPRESSION", &["none"]),
];
/// These would send gemini's figures elsewhere.
const GEMINI_ELSEWHERE: [&str; 2] = ["GEMINI_TELEMETRY_OTLP_ENDPOINT", "GEMINI_TELEMETRY_OUTFILE"];

/// The variables that make a run of this kind send what it uses here. Nothing if it cannot, or if its
/// environment says otherwise: the user's settings win.
pub(crate) fn telemetry(
    kind: defib_autopsy::Kind,
    variable: &impl Fn(&str) -> Option<String>,
) -> Option<Vec<(&'static str, &'static str)>> {
    use defib_autopsy::Kind;
    let wanted = match kind {
        Kind::Claude => CLAUDE,
        Kind::Gemini => GEMINI,
        Kind::Codex
        | Kind::Opencode
        | Kind::Goose
        | Kind::Aider
        | Kind::Python
        | Kind::Node
        | Kind::Generic => return None,
    };
    if OWN_EXPORTER.iter().chain(&GEMINI_ELSEWHERE).any(|name| variable(name).is_some()) {
        return None;
    }
    let mut unset = Vec::new();
    for (name, values) in wanted {
        match variable(name) {
            Some(own) if values.contains(&own.as_str()) => {}
            Some(_) => return None,
            None => unset.push((name, values[0])),
        }
    }
    if kind == Kind::Claude && variable("OTEL_METRIC_EXPORT_INTERVAL").is_none() {
        // A minute unless set, in which much can be spent.
        unset.push(("OTEL_METRIC_EXPORT_INTERVAL", "5000"));
    }
    Some(unset)
}

/// Where a series stands.
#[derive(Debug, Default)]
struct Series {
    /// What was counted before it began anew.
    before: f64,
    last: f64,
    start: u64,
    /// When its last difference was taken: one that is sent again is not counted again.
    at: u64,
}

/// What a run has sent.
#[derive(Debug, Default)]
struct Sent {
    series: HashMap<(String, Vec<u8>), Series>,
    /// What an earlier daemon counted of differences, which nobody sends again.
    inherited: BTreeMap<&'static str, f64>,
}

impl Sent {
    /// Takes a point. `counted` says what the ledger has of a unit.
    fn take(&mut self, point: Point, counted: impl FnOnce(&str) -> f64) {
        let Some(unit) = unit_of(&point.metric) else { return };
        if !point.value.is_finite() || point.value < 0.0 {
            return;
        }
        if point.temporality == Temporality::Delta {
            self.inherited.entry(unit).or_insert_with(|| counted(unit));
        }
        let full = self.series.len() >= SERIES;
        let key = (point.metric, point.series);
        if full && !self.series.contains_key(&key) {
            return;
        }
        let series = self.series.entry(key).or_default();
        match point.temporality {
            Temporality::Delta => {
                if point.at == 0 || point.at > series.at {
                    series.last += point.value;
                    series.at = point.at;
                }
            }
            Temporality::Total => {
                // The process began anew: what it had counted stays.
                if point.start != series.start || point.value < series.last {
                    series.before += series.last;
                    series.start = point.start;
                }
                series.last = point.value;
            }
        }
    }

    fn totals(&self) -> Amounts {
        let mut totals: BTreeMap<&str, f64> =
            self.inherited.iter().map(|(k, v)| (*k, *v)).collect();
        for ((metric, _), series) in &self.series {
            if let Some(unit) = unit_of(metric) {
                *totals.entry(unit).or_default() += series.before + series.last;
            }
        }
        totals.into_iter().map(|(unit, total)| (unit.to_owned(), micros(total))).collect()
    }
}

/// What a successor needs to go on: the port, and who may send.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) port: u16,
    tokens: BTreeMap<Name, (RunId, String)>,
}

#[derive(Debug, Default)]
struct Inner {
    kept: Kept,
    sent: BTreeMap<(Name, RunId), Sent>,
}

/// The receiver.
#[derive(Debug, Clone)]
pub(crate) struct Receiver {
    inner: Arc<Mutex<Inner>>,
    ledger: Ledger,
}

impl Receiver {
    /// Listens on loopback: on the port that agents know, or on any.
    pub(crate) fn start(kept: Kept, ledger: Ledger) -> io::Result<Receiver> {
        let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        // Where somebody else has the port now, those who know it are out of luck.
        let listener = bind(kept.port).or_else(|_| bind(0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let inner = Inner { kept: Kept { port, ..kept }, sent: BTreeMap::new() };
        let receiver = Receiver { inner: Arc::new(Mutex::new(inner)), ledger };
        let routes = Router::new()
            .route("/v1/metrics", post(metrics))
            .route("/v1/traces", post(async || StatusCode::OK))
            .route("/v1/logs", post(async || StatusCode::OK))
            .layer(DefaultBodyLimit::max(BODY))
            .with_state(receiver.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("otlp".to_owned()).spawn(move || {
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                serve_bounded(listener, routes).await;
                Ok::<(), io::Error>(())
            })
        })?;
        Ok(receiver)
    }

    /// What a run needs to send here, unless its environment says otherwise. Gives what a successor
    /// has to know.
    pub(crate) fn admit(&self, key: &RunKey, env: &mut Vec<(String, String)>) -> Option<Kept> {
        let is_set = |name: &str| env.iter().any(|(own, _)| own == name);
        if OWN_EXPORTER.into_iter().any(is_set) {
            return None;
        }
        let token = token()?;
        let mut inner = self.lock();
        env.push((OWN_EXPORTER[0].to_owned(), format!("http://127.0.0.1:{}", inner.kept.port)));
        env.push((OWN_EXPORTER[1].to_owned(), format!("authorization=Bearer%20{token}")));
        if !env.iter().any(|(own, _)| own == "OTEL_EXPORTER_OTLP_PROTOCOL") {
            env.push(("OTEL_EXPORTER_OTLP_PROTOCOL".to_owned(), "http/protobuf".to_owned()));
        }
        inner.sent.retain(|(agent, run), _| *agent != key.agent || run.0 + 1 >= key.run.0);
        inner.kept.tokens.insert(key.agent.clone(), (key.run, token));
        Some(inner.kept.clone())
    }

    /// The run that a request comes from.
    fn sender(&self, headers: &HeaderMap) -> Option<RunKey> {
        let header = headers.get(AUTHORIZATION)?.to_str().ok()?;
        // Not every exporter decodes what it was given.
        let token = header.strip_prefix("Bearer ").or_else(|| header.strip_prefix("Bearer%20"))?;
        let inner = self.lock();
        let (agent, (run, _)) =
            inner.kept.tokens.iter().find(|(_, (_, known))| is_same(known, token))?;
        Some(RunKey { agent: agent.clone(), run: *run })
    }

    /// Counts what was sent; returns when it is on disk, because nobody sends a difference twice.
    async fn take(&self, key: RunKey, points: Vec<Point>) {
        let RunKey { agent, run } = key;
        let totals = self.totals(&agent, run, points);
        if totals.is_empty() {
            return;
        }
        let (counted, until) = oneshot::channel();
        let then = move || {
            let _ = counted.send(());
        };
        self.ledger.metered(agent, run, Meter::Otlp, totals, Some(Box::new(then)));
        // Without an answer the daemon is ending, and so does the sender's connection.
        let _ = until.await;
    }

    fn totals(&self, agent: &Name, run: RunId, points: Vec<Point>) -> Amounts {
        let mut inner = self.lock();
        let sent = inner.sent.entry((agent.clone(), run)).or_default();
        for point in points {
            sent.take(point, |unit| {
                let counted = |purse: &crate::ledger::Purse| purse.counted(run, Meter::Otlp, unit);
                self.ledger.look(agent, counted).map_or(0.0, amount)
            });
        }
        sent.totals()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes metrics. The answer is an empty message, in the sender's own form.
async fn metrics(
    State(receiver): State<Receiver>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, &'static str) {
    let Some(key) = receiver.sender(&headers) else {
        return (StatusCode::UNAUTHORIZED, "the token is no run's\n");
    };
    let encoding = headers.get(CONTENT_ENCODING).and_then(|value| value.to_str().ok());
    if encoding.is_some_and(|encoding| !encoding.is_empty() && encoding != "identity") {
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, "send it uncompressed\n");
    }
    let form = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if form.starts_with("application/json") {
        let Ok(request) = serde_json::from_slice(&body) else {
            return (StatusCode::BAD_REQUEST, "this is no JSON\n");
        };
        receiver.take(key, json::points(&request)).await;
        (StatusCode::OK, "{}")
    } else if form.starts_with("application/x-protobuf") {
        receiver.take(key, protobuf::points(&body)).await;
        (StatusCode::OK, "")
    } else {
        (StatusCode::UNSUPPORTED_MEDIA_TYPE, "send application/json or application/x-protobuf\n")
    }
}

/// What a body of either form comes to, whatever is in it.
pub(crate) fn read_any(body: &[u8]) -> usize {
    let json =
        serde_json::from_slice(body).map(|request| json::points(&request)).unwrap_or_default();
    let mut sent = Sent::default();
    for point in json.into_iter().chain(protobuf::points(body)) {
        sent.take(point, |_| 0.0);
    }
    sent.totals().len()
}

/// Compares without saying how much was right.
fn is_same(known: &str, given: &str) -> bool {
    let pairs = known.bytes().zip(given.bytes());
    known.len() == given.len() && pairs.fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// Something that nobody guesses.
fn token() -> Option<String> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom").ok()?.read_exact(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests;
