//! A run is over: what it left is looked at, then the core hears of it.
//!
//! The verdict waits for the autopsy, the autopsy for the last of the output, and that only so long:
//! a disk that hangs must not hold up a restart. Who is known to have died without a word is examined
//! on the spot. What has been read is examined, however many died at the same time: a cause that
//! nobody waited for would be a crash that was none.

use std::sync::Arc;
use std::time::Duration;

use defib_autopsy::Opinion;
use defib_core::run::{ExitReport, Finding, Status};
use defib_core::{Class, Input, Mono, Name, Preset, Signal, State, Wall};
use defib_history::Usage;
use defib_host::clock::now;
use defib_host::output::RunOutput;
use defib_host::protocol::{How, Request, RunEnd, RunKey};
use defib_host::usage;

use super::Engine;
use crate::coroner::{CaseFile, Examined, Said, examine};

/// How long the last of a run's output is waited for, and then what it spent.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long an examination is waited for once there is something to examine. Only a coroner that has
/// died would take longer.
const IN_HAND: Duration = Duration::from_secs(60);

/// A run that has ended and is being examined.
#[derive(Debug)]
pub(super) struct Dying {
    pub(super) key: RunKey,
    status: Status,
    end: RunEnd,
    /// What the coroner found, while something else is waited for.
    opinion: Option<Opinion>,
    /// When it is judged by what is known.
    pub(super) give_up: Mono,
}

impl Engine {
    /// A run has ended. What it wrote while nobody captured comes along.
    pub(super) fn exited(&mut self, key: &RunKey, end: RunEnd, output: Option<RunOutput>) {
        if let Some(output) = output {
            let terminal = rustix::termios::isatty(&output.source);
            self.capture(key, output, terminal);
        }
        if self.dying.iter().any(|dying| dying.key == *key) {
            return;
        }
        self.part_from(key);
        if let Some(agent) = self.supervisor.known(&key.agent) {
            self.hand_over(now(), Input::Ended { agent, run: key.run });
        }
        let status = match end.how {
            How::Exited(code) => Status::Exited(code),
            How::Signaled(number) => Status::Signaled(Signal(number)),
        };
        let process = if self.is_current(key) { self.processes.remove(&key.agent) } else { None };
        let now = now();
        let file = self.case_file(key, status, end.oom, now.wall);
        let give_up = now.mono + PATIENCE;
        self.dying.push(Dying { key: key.clone(), status, end, opinion: None, give_up });
        let output = process.and_then(|process| process.output);
        let is_silent = output.is_some_and(|output| self.scribe.is_silent(key, &output));
        if is_silent && self.coroner.is_ready_for(file.kind) {
            return self.hear_coroner(Said::Examined(examine(file, Vec::new())));
        }
        let (coroner, most) = (self.coroner.clone(), file.most());
        let RunKey { agent, run } = key.clone();
        self.scribe.close(agent, run, most, move |tail| coroner.take(file, tail));
    }

    fn case_file(&self, key: &RunKey, status: Status, oom: bool, died: Wall) -> CaseFile {
        let recipe = self.recipe(&key.agent);
        let policy = self.supervisor.known(&key.agent).map(|id| self.supervisor.shared_policy(id));
        let rules = recipe.and_then(|(project, _)| self.rules.get(&project.config.project));
        let id = self.supervisor.known(&key.agent);
        let stopped = id.is_some_and(|id| self.supervisor.sight(id).state == State::Stopping);
        CaseFile {
            key: key.clone(),
            status,
            stopped,
            oom,
            died,
            kind: self.kind(&key.agent),
            policy: policy.unwrap_or_else(|| Arc::new(Preset::Default.policy())),
            rules: rules.cloned().unwrap_or_default(),
        }
    }

    /// What a run left has been read, or looked at.
    pub(super) fn hear_coroner(&mut self, said: Said) {
        match said {
            Said::Read(key) => {
                if let Some(dying) = self.dying.iter_mut().find(|dying| dying.key == key) {
                    dying.give_up = now().mono + IN_HAND;
                }
            }
            Said::Examined(examined) => {
                let key = &examined.key;
                if let Some(dying) = self.dying.iter_mut().find(|dying| dying.key == *key) {
                    dying.opinion = Some(examined.opinion.clone());
                    dying.give_up = now().mono + 2 * PATIENCE;
                }
                self.await_meter(examined);
            }
        }
    }

    /// What a run left has been looked at. The report is acknowledged then: all of it is in the log,
    /// and the keeper may let go of it.
    pub(super) fn examined(&mut self, examined: Examined) {
        let Examined { key, opinion, tail } = examined;
        // Before the next run begins, which has others.
        let secrets = self.redactor(&key, &tail);
        self.note_session(&key, &opinion);
        self.judge(&key, opinion, !tail.is_empty());
        self.send(&Request::Acknowledge(key.clone()));
        self.note_tail(key.agent, key.run, &tail, &secrets);
    }

    /// What could not be read in time is not waited for.
    pub(super) fn give_up_on_tails(&mut self) {
        let now = now().mono;
        while let Some(late) = self.dying.iter_mut().find(|dying| dying.give_up <= now) {
            let (key, opinion) = (late.key.clone(), late.opinion.take());
            // Nobody knows whether it wrote something, so it gets the benefit of the doubt.
            self.judge(&key, opinion.unwrap_or_default(), true);
        }
    }

    /// Reports the end to the core. `spoke` says whether the run wrote anything.
    fn judge(&mut self, key: &RunKey, opinion: Opinion, spoke: bool) {
        // Whoever has been given up on was judged already.
        let Some(at) = self.dying.iter().position(|dying| dying.key == *key) else { return };
        let Dying { status, end, .. } = self.dying.swap_remove(at);
        let finished = opinion.finding.as_ref().is_some_and(|finding| {
            let by_itself = finding.evidence.is_some() || !self.is_stopping(&key.agent);
            finding.class == Class::Done && by_itself
        });
        let finding = opinion.finding.filter(|finding| finding.evidence.is_some());
        self.note_finished(key, opinion.finished, finding.as_ref());
        // The reason why we ended a run goes before its own words, unless the run had finished by then.
        let overspent = self.overspent(key).filter(|_| !finished);
        let finding = overspent.or(finding);
        let finding = self.unless_session_was_lost(key, finding);
        let finding = self.unless_known_before(key, status, finding);
        let plain = self.supervisor.known(&key.agent);
        let plain = plain.map(|id| self.supervisor.policy(id).class_of(status));
        if let Some(class) = finding.as_ref().map(|finding| finding.class).or(plain) {
            self.note_silence(key, class);
        }
        let is_its_own = self.is_a_runs(end.peak_bytes);
        let used = Usage {
            cpu_user_ms: Some(end.user_ms),
            cpu_system_ms: Some(end.system_ms),
            memory_peak_bytes: is_its_own.then_some(end.peak_bytes),
        };
        // Before the death is told, so that it is told with it.
        self.used.insert(key.agent.clone(), (key.run, used));
        self.report(key, ExitReport { status, finding, spoke });
        if end.leftovers_killed > 0 {
            let count = end.leftovers_killed.into();
            self.tell("leftovers-ended", Some(key.clone()), [("processes", count)]);
        }
    }

    /// Whether we are ending the agent's run.
    fn is_stopping(&self, name: &Name) -> bool {
        let id = self.supervisor.known(name);
        id.is_some_and(|id| self.supervisor.sight(id).state == State::Stopping)
    }

    /// Whether a largest memory was that of a run: one that is not above the keeper's own may be what
    /// the run had of the keeper before it began. The keeper's only grows, so that what small runs had
    /// asks the system nothing, however many die.
    fn is_a_runs(&mut self, peak_bytes: u64) -> bool {
        if peak_bytes > self.keepers_peak {
            let Some(peak) = usage::peak(self.info.keeper_pid) else { return false };
            self.keepers_peak = peak;
        }
        peak_bytes > self.keepers_peak
    }

    /// A run may have printed its final record just before the clock ended it. Then that record decides,
    /// unless it only says that the run was broken off, which is what the clock did.
    fn note_finished(&mut self, key: &RunKey, finished: bool, finding: Option<&Finding>) {
        let decides = |found: &Finding| !matches!(found.class, Class::Error | Class::Interrupted);
        if let (true, true, Some(agent)) =
            (finished, finding.is_some_and(decides), self.supervisor.known(&key.agent))
        {
            self.hand_over(now(), Input::FinishSeen { agent, run: key.run, finished: true });
        }
    }

    /// Why a run was ended, or wanted to end, is no matter for an autopsy. A final record is: what was
    /// held against a run before it finished its work counts no more.
    fn unless_known_before(
        &self,
        key: &RunKey,
        status: Status,
        finding: Option<Finding>,
    ) -> Option<Finding> {
        let (Some(why), Some(agent)) = (self.blame_of(key), self.supervisor.known(&key.agent))
        else {
            return finding;
        };
        let has_wished = self.supervisor.life(agent).wished() == Some(key.run);
        if self.supervisor.has_finished(agent) && !has_wished {
            return finding;
        }
        let class = self.supervisor.policy(agent).class_of(status);
        Some(Finding { class, evidence: Some(why), resets_at: None })
    }

    /// A run is over that left nothing to look at.
    pub(super) fn died(&mut self, key: &RunKey, status: Status, evidence: Option<Box<str>>) {
        let Some(agent) = self.supervisor.known(&key.agent) else { return };
        let class = self.supervisor.policy(agent).class_of(status);
        let finding =
            evidence.map(|evidence| Finding { class, evidence: Some(evidence), resets_at: None });
        self.report(key, ExitReport { status, finding, spoke: false });
    }

    fn report(&mut self, key: &RunKey, mut report: ExitReport) {
        // It is the agent's own line, and goes into events, history and whatever shows them.
        if let Some(evidence) = report.finding.as_mut().and_then(|found| found.evidence.as_mut()) {
            *evidence = self.evidence_without_secrets(&key.agent, evidence).into();
        }
        if let Some(agent) = self.supervisor.known(&key.agent) {
            self.handle(Input::Exited { agent, run: key.run, report });
        }
    }

    /// A run that took up a session which is no longer there is no mistake in the command: the next
    /// one begins anew.
    fn unless_session_was_lost(
        &mut self,
        key: &RunKey,
        finding: Option<Finding>,
    ) -> Option<Finding> {
        let resumed = self.sessions.resumed.remove(&key.agent) == Some(key.run);
        let fix_needed = finding.as_ref().is_some_and(|finding| finding.class == Class::Config);
        if !(resumed && fix_needed) {
            return finding;
        }
        self.forget_session(&key.agent);
        finding.map(|finding| Finding { class: Class::Error, ..finding })
    }
}
