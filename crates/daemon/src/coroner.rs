//! The coroner: what the dead have left is examined here, before anything is decided about them.
//!
//! A short tail is examined where it is read, because handing it on would take longer. A long one
//! goes to a thread of its own, so that whoever reads what the living write does not wait for it, and
//! so does the first of each kind, for which the rules are built.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};

use defib_autopsy::{
    Autopsy, Case, Kind, LINES_BYTES, Opinion, TAIL_BYTES, UserRule, has_finished,
};
use defib_config::Config;
use defib_config::config::{self, AgentKind};
use defib_core::run::Status;
use defib_core::{Policy, Wall};
use defib_host::protocol::RunKey;
use jiff::tz::TimeZone;

use crate::recipe::argv;

/// A tail of this length takes about as long as a word to another thread.
const SHORT: usize = 4 << 10;

/// What is known of a death without looking at what was written.
#[derive(Debug, Clone)]
pub(crate) struct CaseFile {
    pub(crate) key: RunKey,
    pub(crate) status: Status,
    /// Whether we had asked it to end.
    pub(crate) stopped: bool,
    pub(crate) oom: bool,
    pub(crate) died: Wall,
    pub(crate) kind: Kind,
    pub(crate) policy: Arc<Policy>,
    pub(crate) rules: Arc<Autopsy>,
}

/// What an examination found, and what it looked at.
#[derive(Debug)]
pub(crate) struct Examined {
    pub(crate) key: RunKey,
    pub(crate) opinion: Opinion,
    pub(crate) tail: Vec<u8>,
}

/// What the coroner says.
#[derive(Debug)]
pub(crate) enum Said {
    /// What a run left has been read, and is examined when its turn comes.
    Read(RunKey),
    /// It has been examined.
    Examined(Examined),
}

/// The way to the coroner.
#[derive(Clone)]
pub(crate) struct Coroner {
    long: Sender<(CaseFile, Vec<u8>)>,
    tell: Arc<dyn Fn(Said) + Send + Sync>,
    /// The kinds whose rules are built, a bit each.
    built: Arc<AtomicU32>,
}

impl Coroner {
    /// Starts the coroner. `tell` must not block.
    pub(crate) fn start(tell: impl Fn(Said) + Send + Sync + 'static) -> io::Result<Coroner> {
        let (long, inbox) = channel();
        let coroner = Coroner { long, tell: Arc::new(tell), built: Arc::default() };
        let (tell, built) = (coroner.tell.clone(), coroner.built.clone());
        std::thread::Builder::new().name("coroner".to_owned()).spawn(move || {
            for (file, tail) in inbox {
                let kind = bit(file.kind);
                tell(Said::Examined(examine(file, tail)));
                built.fetch_or(kind, Ordering::Relaxed);
            }
        })?;
        Ok(coroner)
    }

    /// Whether the rules of a kind are built: then a short tail is examined by whoever has it.
    pub(crate) fn is_ready_for(&self, kind: Kind) -> bool {
        self.built.load(Ordering::Relaxed) & bit(kind) != 0
    }

    /// Examines a death by the last bytes that the run wrote.
    pub(crate) fn take(&self, file: CaseFile, tail: Vec<u8>) {
        if self.is_ready_for(file.kind) && tail.len() <= SHORT {
            (self.tell)(Said::Examined(examine(file, tail)));
        } else {
            // Where many die at once, or the rules have to be built first, it may be a while.
            (self.tell)(Said::Read(file.key.clone()));
            // Its thread ends only with the process.
            let _ = self.long.send((file, tail));
        }
    }
}

impl CaseFile {
    /// How much of what the run wrote is worth reading.
    pub(crate) const fn most(&self) -> usize {
        match self.kind {
            // They write no records.
            Kind::Python | Kind::Node | Kind::Generic | Kind::Goose | Kind::Aider => LINES_BYTES,
            Kind::Claude | Kind::Codex | Kind::Gemini | Kind::Opencode => TAIL_BYTES,
        }
    }
}

fn bit(kind: Kind) -> u32 {
    1 << Kind::ALL.iter().position(|known| *known == kind).unwrap_or(31)
}

/// What the rules make of a death.
pub(crate) fn examine(file: CaseFile, tail: Vec<u8>) -> Examined {
    let CaseFile { key, status, stopped, oom, died: now, kind, policy, rules } = file;
    // A run that had finished its work and was ended by us is judged as if it had exited by itself.
    let has_finished = stopped && has_finished(kind, &tail);
    let status = if has_finished { Status::Exited(0) } else { status };
    let zone = TimeZone::system();
    let exit_codes = &policy.exit_codes;
    let case = Case { kind, status, oom, tail: &tail, now, zone: &zone, exit_codes };
    let mut opinion = rules.examine(&case);
    if let Some(finding) = opinion.finding.as_mut().filter(|_| has_finished) {
        finding.evidence.get_or_insert_with(|| "its final record".into());
    }
    Examined { key, opinion, tail }
}

/// The autopsy of a project: its own rules, then those that are built in.
pub(crate) fn autopsy_of(config: &Config) -> Autopsy {
    let rules = config.rules.iter().map(|rule| UserRule {
        kind: rule.kind.and_then(|kind| Kind::from_word(kind.word())),
        pattern: rule.pattern.clone(),
        class: rule.class,
    });
    // Patterns were checked with the file; one that is refused all the same must not cost the rest.
    Autopsy::new(&rules.collect::<Vec<_>>()).unwrap_or_default()
}

/// What sort of program an agent is, by its file or by its command.
pub(crate) fn kind_of(agent: &config::Agent) -> Kind {
    match agent.kind {
        AgentKind::Auto => Kind::guess(&argv(&agent.command)),
        AgentKind::Claude
        | AgentKind::Codex
        | AgentKind::Gemini
        | AgentKind::Opencode
        | AgentKind::Goose
        | AgentKind::Aider
        | AgentKind::Python
        | AgentKind::Node
        | AgentKind::Generic => Kind::from_word(agent.kind.word()).unwrap_or(Kind::Generic),
    }
}
