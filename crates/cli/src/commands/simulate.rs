//! `defib simulate`.

use std::fmt::Write as _;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use defib_core::{Name, Policy, Preset, span};
use defib_sim::rehearsal::{Account, Outcome, Rehearsal};
use defib_sim::script::Script;

use super::ConfigFile;
use super::timeline::{Timeline, policy_line};
use crate::failure::{Code, Failure};
use crate::output;

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
  defib simulate --preset aivex --script 'run 5m hang' --json")]
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
    #[arg(long, value_name = "SCRIPT")]
    script: String,
    /// How long it goes on at the most
    #[arg(long = "for", value_name = "DURATION", default_value = "24h", value_parser = span::parse)]
    horizon: Duration,
    /// Fix the jitter
    #[arg(long, value_name = "N", conflicts_with = "no_jitter")]
    seed: Option<u64>,
    /// Take the jitter out
    #[arg(long)]
    no_jitter: bool,
    /// Print one event a line, as `events --json` does, with `at_s`: virtual seconds from the start
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
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let script = self.script()?;
        let mut subject = self.subject()?;
        if self.no_jitter {
            subject.policy.backoff.jitter = 0.0;
        }
        let seed = self.seed.unwrap_or_else(|| RandomState::new().hash_one(()) % 1_000_000);
        let rehearsal = Rehearsal {
            agent: subject.name.clone(),
            policy: subject.policy.clone(),
            script,
            horizon: self.horizon,
            jitter_seed: (!self.no_jitter).then_some(seed),
            max_total_restarts: subject.max_total_restarts,
        };
        let account = rehearsal.play();
        if self.json {
            return output::print(&json_lines(&account)?);
        }
        let mut text = format!(
            "policy  {}\nscript  {}\n",
            policy_line(subject.preset, &subject.policy),
            self.script.trim()
        );
        if !self.no_jitter && self.seed.is_none() && subject.policy.backoff.jitter > 0.0 {
            // A String takes whatever is written to it.
            let _ = writeln!(text, "seed    {seed}");
        }
        let _ = write!(text, "\n{}", Timeline::of(&account, subject.preset));
        output::print(&text)
    }

    fn script(&self) -> Result<Script, Failure> {
        Script::parse(&self.script).map_err(|error| {
            let before = self.script[..error.at].chars().count();
            let marker = format!("  {}\n  {}^", self.script.replace('\n', " "), " ".repeat(before));
            Failure::new(Code::Usage, format!("{error}\n{marker}"))
                .hint("`defib simulate --help` shows the grammar of scripts")
        })
    }

    fn subject(&self) -> Result<Subject, Failure> {
        if let Some(preset) = self.preset.as_deref().and_then(Preset::from_word) {
            let name = Name::parse("agent").map_err(|error| Failure::new(Code::Usage, error))?;
            return Ok(Subject { name, preset, policy: preset.policy(), max_total_restarts: None });
        }
        let mut config = self.file.config()?;
        let names = || {
            let names: Vec<&str> = config.agents.iter().map(|agent| agent.name.as_str()).collect();
            names.join(", ")
        };
        let path = self.file.path().display();
        let at = match &self.agent {
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
        let (name, preset, policy) = (agent.name, agent.preset, agent.policy);
        Ok(Subject { name, preset, policy, max_total_restarts })
    }
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
