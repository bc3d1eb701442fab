//! `defib simulate`.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use defib_core::{Name, Policy, Preset, span};
use defib_daemon::replay::Replay;
use defib_sim::rehearsal::{Account, Outcome, Rehearsal};
use defib_sim::script::Script;

use super::replay::{compare, replay_of, script_of, summary};
use super::timeline::{Timeline, policy_line};
use super::{ConfigFile, Context};
use crate::failure::{Code, Failure};
use crate::output;

/// How long a rehearsal goes on.
const DAY: Duration = Duration::from_secs(86_400);

/// Show what a policy would do, on a virtual clock
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A script says what the runs of the agent do, one step a run, separated by `;`:

  [run DURATION] (exit N | signal NAME | hang | spawn-error | class CLASS [reset DURATION])

The last step repeats until the agent rests, halts or crashes out, or until the time is over.
A class is what an autopsy would find: quota, network, auth, oom and so on.

Examples:
  defib simulate --preset default --script 'exit 1'
  defib simulate --preset aide --script 'exit 1; exit 1; run 2h exit 0'
  defib simulate --agent reviewer --script 'run 40m class quota reset 3h; run 8h exit 0'
  defib simulate --preset aivex --script 'run 5m hang' --json
  defib simulate --history reviewer -f stricter.toml

With --history the deaths are those of a real agent: what did happen is shown beside what would
happen under the file's policy for it. What is left open: how it would have gone on after them.")]
pub(crate) struct Simulate {
    #[command(flatten)]
    file: ConfigFile,
    /// Which agent of the file; not needed where it declares only one
    #[arg(long, value_name = "NAME", conflicts_with = "preset")]
    agent: Option<String>,
    /// Use a rule set as it is, without a file
    #[arg(long, value_name = "PRESET", value_parser = preset_words())]
    preset: Option<String>,
    /// What the runs do
    #[arg(long, value_name = "SCRIPT", required_unless_present = "history")]
    script: Option<String>,
    /// Replay the deaths of a real agent; --agent or --preset says by whose policy, if not its own
    #[arg(long, value_name = "NAME", conflicts_with = "script")]
    history: Option<String>,
    /// How long it goes on at the most: 24h, or all of the history
    #[arg(long = "for", value_name = "DURATION", value_parser = span::parse)]
    horizon: Option<Duration>,
    /// Fix the jitter
    #[arg(long, value_name = "N", conflicts_with = "no_jitter")]
    seed: Option<u64>,
    /// Take the jitter out
    #[arg(long)]
    no_jitter: bool,
    /// Print one event a line, as `events --json` does, with `at_s`: virtual seconds from the start;
    /// with --history, one object with `did` (runs) and `would` (events)
    #[arg(long)]
    json: bool,
}

fn preset_words() -> [&'static str; 6] {
    Preset::ALL.map(Preset::word)
}

/// Whose policy is rehearsed.
struct Subject {
    name: Name,
    preset: Preset,
    policy: Policy,
    max_total_restarts: Option<u32>,
}

impl Simulate {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        match (&self.history, &self.script) {
            (Some(name), _) => self.replay(&replay_of(context, name)?),
            (None, script) => self.rehearse(script.as_deref().unwrap_or_default()),
        }
    }

    fn rehearse(&self, text: &str) -> Result<(), Failure> {
        let script = script(text)?;
        let (subject, seed) = (self.subject()?, self.seed());
        let account = self.play(&subject, script, seed, DAY);
        if self.json {
            return output::print(&json_lines(&account)?);
        }
        let mut head = self.head(&subject, seed);
        head.insert(1, ("script", text.trim().to_owned()));
        let timeline = Timeline::of(&account, subject.preset);
        output::print(&format!("{}\n{timeline}", shown(&head)))
    }

    fn replay(&self, replay: &Replay) -> Result<(), Failure> {
        let (subject, seed) = (self.subject()?, self.seed());
        let account = self.play(&subject, script_of(replay)?, seed, Duration::MAX);
        if self.json {
            return output::json(&replay.json(&subject.name, &account));
        }
        let mut head = self.head(&subject, seed);
        head.insert(1, ("history", summary(replay)));
        let timeline = Timeline::of(&account, subject.preset);
        output::print(&format!("{}\n{}", shown(&head), compare(replay, &account, &timeline)))
    }

    fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| RandomState::new().hash_one(()) % 1_000_000)
    }

    fn play(&self, subject: &Subject, script: Script, seed: u64, horizon: Duration) -> Account {
        let rehearsal = Rehearsal {
            agent: subject.name.clone(),
            policy: subject.policy.clone(),
            script,
            horizon: self.horizon.unwrap_or(horizon),
            jitter_seed: (!self.no_jitter).then_some(seed),
            max_total_restarts: subject.max_total_restarts,
        };
        rehearsal.play()
    }

    /// What people have to know to read what follows.
    fn head(&self, subject: &Subject, seed: u64) -> Vec<(&'static str, String)> {
        let mut head = vec![("policy", policy_line(subject.preset, &subject.policy))];
        if !self.no_jitter && self.seed.is_none() && subject.policy.backoff.jitter > 0.0 {
            head.push(("seed", seed.to_string()));
        }
        head
    }

    fn subject(&self) -> Result<Subject, Failure> {
        if let Some(preset) = self.preset.as_deref().and_then(Preset::from_word) {
            let name = Name::parse("agent").map_err(|error| Failure::new(Code::Usage, error))?;
            let policy = self.without_jitter(preset.policy());
            return Ok(Subject { name, preset, policy, max_total_restarts: None });
        }
        let mut config = self.file.config()?;
        let names = || {
            let names: Vec<&str> = config.agents.iter().map(|agent| agent.name.as_str()).collect();
            names.join(", ")
        };
        let path = self.file.path().display();
        let replayed = self.history.as_deref().map(|name| name.rsplit('/').next().unwrap_or(name));
        let at = match self.agent.as_deref().or(replayed) {
            Some(wanted) => {
                let at = config.agents.iter().position(|agent| agent.name.as_str() == wanted);
                at.ok_or_else(|| {
                    Failure::new(Code::NoAgent, format!("{path} declares no agent {wanted:?}"))
                        .hint(format!("it declares {}", names()))
                })?
            }
            None if config.agents.len() == 1 => 0,
            None => {
                let which = format!("which agent? {path} declares {}", config.agents.len());
                return Err(Failure::new(Code::Usage, which)
                    .hint(format!("add --agent with one of: {}", names())));
            }
        };
        let max_total_restarts = config.supervisor.max_total_restarts;
        let agent = config.agents.swap_remove(at);
        let (name, preset, policy) =
            (agent.name, agent.preset, self.without_jitter((*agent.policy).clone()));
        Ok(Subject { name, preset, policy, max_total_restarts })
    }

    fn without_jitter(&self, mut policy: Policy) -> Policy {
        if self.no_jitter {
            policy.backoff.jitter = 0.0;
        }
        policy
    }
}

fn script(text: &str) -> Result<Script, Failure> {
    Script::parse(text).map_err(|error| {
        let before = text[..error.at].chars().count();
        let marker = format!("  {}\n  {}^", text.replace('\n', " "), " ".repeat(before));
        Failure::new(Code::Usage, format!("{error}\n{marker}"))
            .hint("`defib simulate --help` shows the grammar of scripts")
    })
}

/// Lines with a word in front of each.
fn shown(head: &[(&str, String)]) -> String {
    let width = head.iter().map(|(word, _)| word.len()).max().unwrap_or(0);
    head.iter().map(|(word, text)| format!("{word:width$}  {text}\n")).collect()
}

fn json_lines(account: &Account) -> Result<String, Failure> {
    let mut text = String::new();
    for event in &account.events {
        let line =
            serde_json::to_string(event).map_err(|error| Failure::new(Code::Failed, error))?;
        text.push_str(&line);
        text.push('\n');
    }
    if account.outcome == Outcome::CutOff {
        anstream::eprintln!(
            "warning: cut off after {} events; the policy has no bound",
            account.events.len()
        );
    }
    Ok(text)
}
