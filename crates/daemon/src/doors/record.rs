//! What the guard lets into the audit: every deed of an operator, and who was refused.
//!
//! A deed is written when it is over and before its caller is told, so that nothing that somebody was
//! told of is missing. One whose caller goes away first is written all the same.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::{Method, StatusCode};
use defib_core::Capability;
use defib_history::Intent;
use defib_host::clock::now;
use serde::Deserialize;
use serde_json::{Value, json};

use super::caller::{Caller, Need, Role};
use crate::audit::{Auditor, Deed, HEAD_KEY};
use crate::engine::EngineHandle;
use crate::wire::stamp;

/// The longest path that is written down.
const LONGEST: usize = 200;
/// What was asked for with more than this is not written down.
const LARGEST_DETAIL: usize = 1024;
/// So many refusals are written down in a stretch of time; the others are counted.
const REFUSALS: (u32, Duration) = (10, Duration::from_secs(60));

/// Where deeds are written down.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    auditor: Arc<Mutex<Auditor>>,
    refusals: Arc<Mutex<Refusals>>,
    engine: EngineHandle,
}

#[derive(Debug)]
struct Refusals {
    since: Instant,
    written: u32,
    others: u32,
}

impl Recorder {
    pub(crate) fn new(auditor: Auditor, engine: EngineHandle) -> Recorder {
        let refusals = Refusals { since: Instant::now(), written: 0, others: 0 };
        let (auditor, refusals) = (Arc::new(Mutex::new(auditor)), Arc::new(Mutex::new(refusals)));
        Recorder { auditor, refusals, engine }
    }

    /// Writes a deed down; it is on disk by then, or that was said.
    pub(crate) async fn write(
        &self,
        who: String,
        what: String,
        detail: Option<Value>,
        outcome: String,
    ) {
        let recorder = self.clone();
        let written = tokio::task::spawn_blocking(move || {
            recorder.write_now(who, what, detail, outcome);
        });
        let _ = written.await;
    }

    fn write_now(&self, who: String, what: String, detail: Option<Value>, outcome: String) {
        let deed = Deed { at: stamp(now().wall), who, what, detail, outcome };
        let written = self.auditor.lock().unwrap_or_else(PoisonError::into_inner).write(deed);
        match written {
            Ok(value) => self.engine.store_later(Intent::Keep { key: HEAD_KEY.to_owned(), value }),
            // The deed is done, and agents go on; it is written with the next one.
            Err(error) => say!("the audit cannot be written: {error}"),
        }
    }

    /// Writes down that somebody was refused. Of a flood only the beginning.
    pub(super) fn refused(&self, who: String, method: &Method, path: &str, status: StatusCode) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.since.elapsed() > REFUSALS.1 {
            (refusals.since, refusals.written) = (Instant::now(), 0);
        }
        if refusals.written >= REFUSALS.0 {
            refusals.others = refusals.others.saturating_add(1);
            return;
        }
        refusals.written += 1;
        let others = std::mem::take(&mut refusals.others);
        drop(refusals);
        let detail = (others > 0).then(|| json!({ "others_before": others }));
        let (recorder, what) = (self.clone(), what(method, path));
        let outcome = outcome(status);
        tokio::task::spawn_blocking(move || recorder.write_now(who, what, detail, outcome));
    }
}

/// A deed that is under way.
pub(super) struct UnderWay {
    recorder: Recorder,
    who: String,
    what: String,
    detail: Option<Value>,
    is_written: bool,
}

impl UnderWay {
    /// The deed that a request is, if it is one.
    pub(super) fn begin(
        recorder: &Recorder,
        caller: &Caller,
        needs: Need,
        (method, path, body): (&Method, &str, &Bytes),
    ) -> Option<UnderWay> {
        let is_deed = match needs {
            Need::Nothing | Need::OwnToken | Need::Role(Role::View) => false,
            // Whoever opens a terminal may type there.
            Need::Role(Role::Operate) => true,
            Need::Role(Role::Admin) => {
                !matches!(*method, Method::GET | Method::HEAD) && path != "/api/v1/plan"
            }
        };
        is_deed.then(|| UnderWay {
            recorder: recorder.clone(),
            who: caller.to_string(),
            what: what(method, path),
            detail: detail(path, body),
            is_written: false,
        })
    }

    /// It may take the daemon along: it is written down before it is done.
    pub(super) async fn beforehand(mut self) {
        self.is_written = true;
        self.write("asked for".to_owned()).await;
    }

    /// It is over.
    pub(super) async fn over(mut self, status: StatusCode) {
        self.is_written = true;
        self.write(outcome(status)).await;
    }

    async fn write(&self, outcome: String) {
        let (who, what, detail) = (self.who.clone(), self.what.clone(), self.detail.clone());
        self.recorder.write(who, what, detail, outcome).await;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.is_written {
            return;
        }
        let recorder = self.recorder.clone();
        let (who, what) = (std::mem::take(&mut self.who), std::mem::take(&mut self.what));
        let detail = self.detail.take();
        let outcome = "the caller did not wait".to_owned();
        // Outside of a runtime the daemon is ending, and so is everybody who could be told.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn_blocking(move || recorder.write_now(who, what, detail, outcome));
        }
    }
}

/// Whether the daemon goes when this is done.
pub(super) fn ends_the_daemon(path: &str) -> bool {
    matches!(path, "/api/v1/close" | "/api/v1/upgrade")
}

fn what(method: &Method, path: &str) -> String {
    format!("{method} {}", path.chars().take(LONGEST).collect::<String>())
}

fn outcome(status: StatusCode) -> String {
    if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
        "ok".to_owned()
    } else {
        format!("refused ({})", status.as_u16())
    }
}

/// What a deed was asked for with. Only of those whose bodies hold nothing that is nobody's business.
fn detail(path: &str, body: &Bytes) -> Option<Value> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        // It has the caller's variables.
        ["api", "v1", "up"] => Some(serde_json::from_slice::<Brought>(body).ok()?.detail()),
        ["api", "v1", "agents", _, _] | ["api", "v1", "tokens" | "down" | "upgrade"] => {
            if body.len() > LARGEST_DETAIL {
                return None;
            }
            let asked: Value = serde_json::from_slice(body).ok()?;
            let says_something = asked.as_object().is_some_and(|fields| !fields.is_empty());
            says_something.then_some(asked)
        }
        _ => None,
    }
}

/// What is written down of what is brought up. A project can be large: the rest of the request is
/// passed over where it lies.
#[derive(Debug, Deserialize)]
struct Brought {
    path: Value,
    #[serde(default)]
    reload: bool,
    config: BroughtConfig,
}

#[derive(Debug, Deserialize)]
struct BroughtConfig {
    project: Value,
    agents: Vec<BroughtAgent>,
}

#[derive(Debug, Deserialize)]
struct BroughtAgent {
    name: Box<str>,
    capabilities: Option<Box<[Capability]>>,
}

impl Brought {
    fn detail(self) -> Value {
        let Brought { path, reload, config } = self;
        let mut detail = json!({ "project": config.project, "file": path, "reload": reload });
        // Whoever is let out of every sandbox is named.
        let privileged = config.agents.iter().filter(|agent| agent.is_privileged());
        let names: Vec<Value> = privileged.map(|agent| Value::from(&*agent.name)).collect();
        if !names.is_empty() {
            detail["privileged"] = Value::Array(names);
        }
        detail
    }
}

impl BroughtAgent {
    fn is_privileged(&self) -> bool {
        self.capabilities.iter().flatten().any(|token| *token == Capability::Privileged)
    }
}
