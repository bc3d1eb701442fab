//! What an agent died of: the exit report, its records and its last lines in; class, evidence and
//! reset time out.
//!
//! The crate is pure: no clock, no file, no thread of its own. The time of the death and the local
//! zone are handed in. What is known of each kind of agent is data (`rules/*.toml`); a user's own
//! rules come before it. Whatever the output holds, an examination ends soon, takes memory in
//! proportion to the tail it is given, and does not panic.
//!
//! Evidence is weighed in the order of the model. What was asked for, and the agent's own wish, the
//! core has weighed before: see [`Autopsy::examine`] for the rest.

#![forbid(unsafe_code)]

mod examine;
mod kind;
mod lines;
mod progress;
mod prompt;
mod records;
mod reset;
mod rules;
mod views;

use std::collections::BTreeMap;

use defib_core::run::{Finding, Status};
use defib_core::{Class, Signal, Wall};
use jiff::tz::TimeZone;

use crate::examine::{Examiner, Found, Said, UserPattern};
use crate::records::Told;
use crate::reset::Clock;
use crate::rules::{Rule, Sense, Shelf};

pub use crate::kind::Kind;
pub use crate::lines::{LINES_BYTES, plain};
pub use crate::progress::{Follower, Progress, has_finished, prints_final_record};
pub use crate::prompt::prompt_on;
pub use crate::records::session_in;
pub use crate::rules::{RuleError, UserRule};

/// How much of the end of an output is worth handing in: a record that ends a run can be long.
pub const TAIL_BYTES: usize = 1 << 20;
/// How much of evidence is worth keeping or showing, in characters. It is not cut here: whoever takes
/// secrets out of it has to see them whole.
pub const EVIDENCE_CHARS: usize = 400;

/// One death, as it lies there.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// What sort of program it was.
    pub kind: Kind,
    /// How it ended.
    pub status: Status,
    /// Whether the kernel counted a kill for memory in its tree.
    pub oom: bool,
    /// The end of what it wrote.
    pub tail: &'a [u8],
    /// When it died.
    pub now: Wall,
    /// The zone for times that state none.
    pub zone: &'a TimeZone,
    /// The operator's own classes by exit code.
    pub exit_codes: &'a BTreeMap<u8, Class>,
}

/// What an autopsy makes of a death.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opinion {
    /// Class, evidence and reset time. Without evidence, nothing but the wait status decided: it is
    /// unclassified. Nothing at all means that what is there does not speak of a death.
    pub finding: Option<Finding>,
    /// The session that the tail names, where the kind's sessions can be taken up again.
    pub session: Option<String>,
    /// Whether the last record about work is one that ends it.
    pub finished: bool,
}

/// The rules, ready for any number of deaths.
#[derive(Debug, Default)]
pub struct Autopsy {
    user: Vec<UserPattern>,
}

impl Autopsy {
    /// An autopsy by the built-in rules, with a user's own before them.
    pub fn new(user_rules: &[UserRule]) -> Result<Autopsy, RuleError> {
        let pattern = |user: &UserRule| {
            let regex = rules::compile(&user.pattern)?;
            let rule = Rule { sense: Sense::Class(user.class), regex, after_zero: true };
            Ok(UserPattern { kind: user.kind, rule })
        };
        Ok(Autopsy { user: user_rules.iter().map(pattern).collect::<Result<_, _>>()? })
    }

    /// Weighs the evidence: a record that ends the run; the wait status and what speaks of memory;
    /// the exit code; the last lines. The first that speaks decides.
    pub fn examine(&self, case: &Case<'_>) -> Opinion {
        let tail = &case.tail[case.tail.len().saturating_sub(TAIL_BYTES)..];
        let case = &Case { tail, ..*case };
        let session = case
            .tail
            .rsplit(|byte| *byte == b'\n')
            .find_map(|line| records::session_in(case.kind, line));
        let finding = self.find(case).map(|found| match found {
            Verdict::By(Found { class, evidence, resets_at }) => {
                Finding { class, evidence: Some(evidence.into()), resets_at }
            }
            Verdict::Unclassified(class) => Finding { class, evidence: None, resets_at: None },
        });
        let finished = progress::has_finished(case.kind, case.tail);
        Opinion { finding, session, finished }
    }

    fn find(&self, case: &Case<'_>) -> Option<Verdict> {
        let examiner = Examiner {
            kind: case.kind,
            shelf: Shelf::of(case.kind),
            user: &self.user,
            clock: Clock::new(case.now, case.zone),
            zero: case.status == Status::Exited(0),
        };
        let told = records::read(case.tail, &examiner);
        if let Told::Decided(found) = told {
            return Some(Verdict::By(found));
        }
        let said = examiner.lines(&lines::own_lines(case.tail, case.kind));
        let alive = said.alive || matches!(told, Told::Alive);
        let found = by_memory(case, &said)
            .or_else(|| by_fault(case.status))
            .or_else(|| by_exit_code(case, &examiner, said));
        if let Some(found) = found {
            return Some(Verdict::By(found));
        }
        match (told, case.status) {
            (Told::Failed(evidence), _) => Some(Verdict::By(Found::new(Class::Error, evidence))),
            _ if alive => None,
            // An end that was not reached is none, also with exit code 0.
            (Told::Open(evidence), Status::Exited(0)) => {
                Some(Verdict::By(Found::new(Class::Error, evidence)))
            }
            (_, Status::Exited(0)) => Some(Verdict::Unclassified(Class::Done)),
            (_, Status::Exited(_) | Status::Signaled(_)) => {
                Some(Verdict::Unclassified(Class::Error))
            }
            // What could not be spawned or seen is the policy's to name.
            (_, Status::NotSpawned { .. } | Status::Unseen) => None,
        }
    }
}

/// What came of the evidence.
#[derive(Debug)]
enum Verdict {
    By(Found),
    /// Nothing but the wait status speaks.
    Unclassified(Class),
}

/// Killed for memory: the kernel says so, or the runtime's own last words do.
fn by_memory(case: &Case<'_>, said: &Said) -> Option<Found> {
    // A shell reports the end of its child by 128 and the signal.
    let killed = matches!(case.status, Status::Signaled(Signal::KILL) | Status::Exited(137));
    if case.oom && killed {
        return Some(Found::new(Class::Oom, "SIGKILL, and the kernel counted a kill for memory"));
    }
    said.found.clone().filter(|found| found.class == Class::Oom)
}

/// A signal that only a bug sends. What the agent had written before has nothing to do with it.
fn by_fault(status: Status) -> Option<Found> {
    let signal = status.signal()?;
    let faults = ["ILL", "TRAP", "BUS", "FPE", "SEGV", "SYS"];
    let fault = faults.iter().filter_map(|name| Signal::parse(name)).any(|fault| fault == signal);
    fault.then(|| Found::new(Class::Error, signal.to_string()))
}

/// The operator's exit codes, the user's rules, the kind's exit codes, the kind's rules.
fn by_exit_code(case: &Case<'_>, examiner: &Examiner<'_>, said: Said) -> Option<Found> {
    let Some(code) = case.status.exit_code() else {
        return said.found;
    };
    let own = u8::try_from(code).ok().and_then(|code| case.exit_codes.get(&code)).copied();
    // That 0 is `done` is what everybody takes it for: it contradicts nothing.
    let own = own.filter(|class| *class != Class::Done || code != 0);
    let built_in = || if said.by_user { None } else { examiner.shelf.exit_code(code) };
    match (own.or_else(built_in), said.found) {
        // The line says the same, and more.
        (Some(class), Some(found)) if found.class == class => Some(found),
        (Some(class), _) => Some(Found::new(class, format!("exit code {code}"))),
        (None, found) => found,
    }
}

#[cfg(test)]
mod tests;
