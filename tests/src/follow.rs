//! The stream of events, across the deaths of daemons.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::DEADLINE;

#[derive(Default)]
struct Shared {
    /// By their numbers.
    events: Vec<Value>,
    /// What a stream sent that another had sent differently.
    contradictions: Vec<String>,
    child: Option<Child>,
    ended: bool,
}

/// What has happened, and on as it happens.
pub struct Events {
    shared: Arc<(Mutex<Shared>, Condvar)>,
}

impl Events {
    /// Follows by this command, started anew whenever it ends.
    pub(crate) fn follow(command: impl Fn() -> Command) -> Events {
        let shared = Arc::new((Mutex::new(Shared::default()), Condvar::new()));
        // A command cannot be cloned; one is made now for the parts of it.
        let model = command();
        let (theirs, parts) = (shared.clone(), Parts::of(&model));
        std::thread::spawn(move || {
            while follow_once(&theirs, parts.command()) {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Events { shared }
    }

    /// Waits until `look` finds something among the events, in their order.
    #[track_caller]
    pub fn find<T>(&self, what: &str, look: impl Fn(&[Value]) -> Option<T>) -> T {
        let (lock, changed) = &*self.shared;
        let mut shared = lock.lock().expect("events");
        let begin = Instant::now();
        loop {
            assert!(shared.contradictions.is_empty(), "{:#?}", shared.contradictions);
            if let Some(found) = look(&shared.events) {
                return found;
            }
            let Some(left) = DEADLINE.checked_sub(begin.elapsed()) else {
                let last = shared.events.iter().rev().take(200).rev();
                let shown: Vec<String> = last.map(Value::to_string).collect();
                drop(shared);
                panic!("waited in vain for {what}; events:\n{}", shown.join("\n"))
            };
            let known = shared.events.len();
            let (woken, _) = changed
                .wait_timeout_while(shared, left, |shared| shared.events.len() == known)
                .expect("events");
            drop(woken);
            // A storm of events is looked at in gusts.
            std::thread::sleep(Duration::from_millis(1));
            shared = lock.lock().expect("events");
        }
    }

    /// Waits for an event of an agent.
    #[track_caller]
    pub fn of(&self, agent: &str, kind: &str) -> Value {
        self.find(&format!("{kind} of {agent}"), |events| {
            events.iter().find(|event| is(event, agent, kind)).cloned()
        })
    }

    /// Waits for an event of a run of an agent.
    #[track_caller]
    pub fn of_run(&self, agent: &str, run: u64, kind: &str) -> Value {
        self.find(&format!("{kind} of {agent} run {run}"), |events| {
            let wanted = |event: &&Value| is(event, agent, kind) && event["run"] == run;
            events.iter().find(wanted).cloned()
        })
    }

    /// Waits for an event after a number.
    #[track_caller]
    pub fn after(&self, seq: u64, agent: &str, kind: &str) -> Value {
        self.find(&format!("{kind} of {agent} after {seq}"), |events| {
            let wanted = |event: &&Value| is(event, agent, kind) && field(event, "seq") > seq;
            events.iter().find(wanted).cloned()
        })
    }

    /// Waits until a run of an agent has begun that comes after this one.
    #[track_caller]
    pub fn run_after(&self, agent: &str, run: u64) -> u64 {
        self.find(&format!("a run of {agent} after {run}"), |events| {
            let runs = events.iter().filter(|event| is(event, agent, "run-ready"));
            runs.map(|event| field(event, "run")).find(|number| *number > run)
        })
    }

    /// The number of the latest event.
    pub fn last(&self) -> u64 {
        let (lock, _) = &*self.shared;
        lock.lock().expect("events").events.last().map_or(0, |event| field(event, "seq"))
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let (lock, _) = &*self.shared;
        // A test that panicked has poisoned nothing that matters here.
        let mut shared = lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        shared.ended = true;
        if let Some(child) = &mut shared.child {
            let _ = child.kill();
        }
    }
}

/// Whether it is an event of this agent and type.
pub fn is(event: &Value, agent: &str, kind: &str) -> bool {
    event["agent"] == agent && event["type"] == kind
}

/// A number in an event or a run.
pub fn field(event: &Value, name: &str) -> u64 {
    event[name].as_u64().unwrap_or_else(|| panic!("no {name} in {event}"))
}

/// What a command is made of.
struct Parts {
    program: std::ffi::OsString,
    arguments: Vec<std::ffi::OsString>,
    folder: std::path::PathBuf,
    variables: Vec<(std::ffi::OsString, Option<std::ffi::OsString>)>,
}

impl Parts {
    fn of(command: &Command) -> Parts {
        Parts {
            program: command.get_program().to_owned(),
            arguments: command.get_args().map(ToOwned::to_owned).collect(),
            folder: command.get_current_dir().expect("a folder").to_owned(),
            variables: command
                .get_envs()
                .map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)))
                .collect(),
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.folder);
        for (name, value) in &self.variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }
}

/// Reads one stream to its end. False: nobody wants more.
fn follow_once(shared: &Arc<(Mutex<Shared>, Condvar)>, mut command: Command) -> bool {
    let (lock, changed) = &**shared;
    let Ok(mut child) = command.spawn() else { return false };
    let output = child.stdout.take().expect("a pipe");
    {
        let mut shared = lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if shared.ended {
            let _ = child.kill();
            let _ = child.wait();
            return false;
        }
        shared.child = Some(child);
    }
    for line in BufReader::new(output).lines() {
        let Ok(event) = line.map(|line| serde_json::from_str::<Value>(&line)) else { break };
        let mut shared = lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match event {
            Ok(event) => shared.take(event),
            Err(error) => shared.contradictions.push(format!("no JSON: {error}")),
        }
        changed.notify_all();
    }
    let mut shared = lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(mut child) = shared.child.take() {
        let _ = child.kill();
        let _ = child.wait();
    }
    !shared.ended
}

impl Shared {
    /// One number, one event: whoever tells of it.
    fn take(&mut self, event: Value) {
        let seq = field(&event, "seq");
        match self.events.binary_search_by_key(&seq, |known| field(known, "seq")) {
            Ok(at) if self.events[at] != event => {
                let known = &self.events[at];
                self.contradictions.push(format!("{seq} is told as {known} and as {event}"));
            }
            Ok(_) => {}
            Err(at) => self.events.insert(at, event),
        }
    }
}
