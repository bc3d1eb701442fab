//! From a file of a document to what the supervisor makes of it, on the virtual clock.

use std::path::Path;
use std::time::Duration;

use defib_config::{Config, Loaded, Report, Severity};
use defib_core::{AgentSpec, GroupSpec, Name, Settings, State, Topology, What};
use defib_sim::rehearsal::{Account, Outcome, Rehearsal};
use defib_sim::script::Script;

use crate::bench::{Bench, name};

const MONTH: Duration = Duration::from_secs(30 * 86_400);

pub(crate) fn loaded(file: &str, text: &str) -> Loaded {
    defib_config::parse_bytes(&Path::new("/srv/project").join(file), text.as_bytes())
}

/// What a file says, which must be valid.
pub(crate) fn config(file: &str, text: &str) -> Config {
    let loaded = loaded(file, text);
    let shown = loaded.render(false);
    loaded.outcome.config.unwrap_or_else(|| panic!("{shown}"))
}

/// What a file says, about which nothing may be said.
pub(crate) fn clean(file: &str, text: &str) -> Config {
    let loaded = loaded(file, text);
    assert_eq!(loaded.render(false), "");
    loaded.outcome.config.unwrap()
}

/// What is said of a file: how bad, on which line, what.
pub(crate) fn said(file: &str, text: &str) -> Vec<(Severity, usize, String)> {
    let loaded = loaded(file, text);
    let report = Report::new(file, text, &loaded.outcome.diagnostics);
    report.told().iter().map(|t| (t.severity, t.line, t.message.to_owned())).collect()
}

/// The only agent of a file does the script again and again.
pub(crate) fn play(config: &Config, script: &str) -> Played {
    play_for(config, script, MONTH)
}

pub(crate) fn play_for(config: &Config, script: &str, horizon: Duration) -> Played {
    let agent = &config.agents[0];
    let rehearsal = Rehearsal {
        agent: agent.name.clone(),
        policy: (*agent.policy).clone(),
        script: Script::parse(script).unwrap(),
        horizon,
        jitter_seed: None,
        max_total_restarts: config.supervisor.max_total_restarts,
    };
    Played(rehearsal.play())
}

/// What a rehearsal came to.
pub(crate) struct Played(Account);

impl Played {
    /// The delays of its restarts, in seconds.
    pub(crate) fn delays_s(&self) -> Vec<f64> {
        self.delays_ms().into_iter().map(|ms| Duration::from_millis(ms).as_secs_f64()).collect()
    }

    pub(crate) fn delays_ms(&self) -> Vec<u64> {
        let delay = |what: &What| match what {
            What::RestartScheduled { delay_ms, .. } => Some(*delay_ms),
            _ => None,
        };
        self.0.events.iter().filter_map(|event| delay(&event.record.what)).collect()
    }

    pub(crate) fn runs(&self) -> usize {
        let starts = |what: &What| matches!(what, What::RunStarted { .. });
        self.0.events.iter().filter(|event| starts(&event.record.what)).count()
    }

    pub(crate) fn state(&self) -> State {
        match self.0.outcome {
            Outcome::AtRest(state) | Outcome::TimeUp(state) | Outcome::ScriptOver(state) => state,
            Outcome::CutOff => panic!("it never ends"),
        }
    }

    pub(crate) fn told(&self) -> impl Iterator<Item = &What> {
        self.0.events.iter().map(|event| &event.record.what)
    }

    /// When it ended, in seconds from the first start on.
    pub(crate) fn ended_s(&self) -> f64 {
        self.0.ended.as_secs_f64()
    }
}

/// A supervisor with everything that a file declares, not yet up.
pub(crate) fn topology(config: &Config) -> Topology {
    let agents = config.agents.iter().map(|agent| AgentSpec {
        strategy: agent.strategy,
        ..AgentSpec::new(agent.name.clone(), config.project.clone(), agent.policy.clone())
    });
    let groups = config.groups.iter().map(|group| GroupSpec {
        name: group.name.clone(),
        strategy: group.strategy,
        budget: group.budget,
        members: group.members.clone(),
    });
    Topology {
        agents: agents.collect(),
        groups: groups.collect(),
        max_total_restarts: config.supervisor.max_total_restarts,
    }
}

/// A supervisor with everything that a file declares, up.
pub(crate) fn supervise(config: &Config) -> Bench {
    let mut bench = Bench::new(Settings::default(), topology(config));
    bench.tell(defib_core::Input::UpAsked(defib_core::Scope::All)).unwrap();
    bench
}

/// The agent of a name.
pub(crate) fn agent<'c>(config: &'c Config, who: &str) -> &'c defib_config::config::Agent {
    let wanted: Name = name(who);
    config.agents.iter().find(|agent| agent.name == wanted).unwrap()
}

/// Asks the daemon of a bench over its socket; gives the code and the body.
pub(crate) fn http(
    bench: &defib_e2e::Bench,
    method: &str,
    path: &str,
    body: &str,
) -> (u16, serde_json::Value) {
    use std::io::{Read, Write};
    let mut stream =
        std::os::unix::net::UnixStream::connect(bench.home().join("defib.sock")).unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: defib\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}")))
}
