//! What processes do, and how the daemon comes to hear of it.
//!
//! A process is only as old as its plan. What it says goes to the daemon, or waits in the keeper
//! while there is none; how it ended stays there until somebody has acknowledged it.

use std::time::Duration;

use defib_core::run::{ExitReport, Status};
use defib_core::{AgentId, Input, RunId, Signal};

use super::check::{Breach, Checked, Invariant};
use super::clock::after;
use super::coverage::Outcome;
use super::day::Day;
use super::forest::Slot;
use super::keeper::{Kept, Process, Word};
use super::plan::{Odd, Plan};
use super::queue::{End, Event};
use super::step::{Answer, latency};
use super::weather::Fault;

impl Day {
    /// Something that was going to happen does.
    pub(super) fn take(&mut self, event: Event) -> Checked {
        match event {
            Event::Spawned(slot, run) => self.hear(slot, run, Word::Spawned),
            Event::Ready(slot, run) => {
                let Some(process) = self.keeper.process(slot, run) else { return Ok(()) };
                if std::mem::replace(&mut process.ready, true) {
                    return Ok(());
                }
                self.hear(slot, run, Word::Ready)
            }
            Event::Beat(slot, run) => self.beat(slot, run),
            Event::Active(slot, run) => self.act(slot, run),
            Event::Odd(slot, run, odd) => {
                if self.calm || self.keeper.process(slot, run).is_none() {
                    return Ok(());
                }
                let word = match odd {
                    Odd::Wish => Word::Wish,
                    Odd::Overspend => Word::Overspent,
                    Odd::ProbeFails => Word::ProbeFailed,
                };
                self.hear(slot, run, word)
            }
            Event::Ends(slot, run, end) => {
                self.end(slot, run, end);
                Ok(())
            }
            Event::Report(slot, run, again) => {
                if self.keeper.report(slot, run).is_some() {
                    self.report(slot, run)
                } else if again {
                    self.report_again(slot, run)
                } else {
                    Ok(())
                }
            }
            Event::Fault(fault) => self.strike(fault),
            Event::DaemonUp if self.core.is_some() => Ok(()),
            Event::DaemonUp => self.daemon_rises(),
            Event::Relief => self.relieve(),
        }
    }

    /// A spawn was ordered.
    pub(super) fn come_to_life(&mut self, slot: Slot, run: RunId) {
        let moment = self.moment();
        let plan = self.plan(slot);
        self.keeper.cells[slot].latest = run;
        if let Some(usable) = plan.not_spawned {
            self.leave(slot, run, Status::NotSpawned { usable }.into());
            return;
        }
        self.queue.push(after(moment, latency(&mut self.draw)), Event::Spawned(slot, run));
        if let Some(span) = plan.ready_in {
            self.queue.push(after(moment, span), Event::Ready(slot, run));
        }
        if let Some((span, _)) = &plan.end {
            self.queue.push(after(moment, *span), Event::Ends(slot, run, End::Own));
        }
        if let Some((span, odd)) = plan.odd {
            self.queue.push(after(moment, span), Event::Odd(slot, run, odd));
        }
        let hangs = plan.hangs;
        self.keeper.cells[slot].process = Some(Process {
            run,
            plan,
            born: self.keeper.cells[slot].decided,
            beat: moment,
            beaten: false,
            active: moment,
            ready: false,
        });
        if !hangs {
            self.next_beat(slot, run);
            self.next_act(slot, run);
        }
    }

    fn plan(&mut self, slot: Slot) -> Plan {
        if self.calm || self.fuel[slot] == 0 {
            return Plan::healthy(&mut self.draw);
        }
        if self.looping[slot] == 0 && self.draw.chance(self.weather.odds(Fault::CrashLoop) / 8) {
            self.coverage.strike(Fault::CrashLoop);
            self.looping[slot] = self.draw.between(3, 12);
        }
        let looping = self.looping[slot] > 0;
        self.looping[slot] -= u64::from(looping);
        let wall = self.clock.now().wall;
        let (weather, coverage) = (&self.weather, &mut self.coverage);
        let plan = Plan::struck(&mut self.draw, weather, looping, wall, &mut |fault| {
            coverage.strike(fault);
        });
        let costs = plan.end.is_some() || plan.odd.is_some() || plan.not_spawned.is_some();
        self.fuel[slot] -= u64::from(costs);
        plan
    }

    fn beat(&mut self, slot: Slot, run: RunId) -> Checked {
        let moment = self.moment();
        let Some(process) = self.keeper.process(slot, run).filter(|p| !p.plan.hangs) else {
            return Ok(());
        };
        (process.beat, process.beaten, process.active) = (moment, true, moment);
        self.next_beat(slot, run);
        self.hear(slot, run, Word::Beat)
    }

    fn next_beat(&mut self, slot: Slot, run: RunId) {
        if let Some(rule) = self.forest.plants[slot].policy.heartbeat {
            let gap = self.draw.span(rule.ttl / 2, rule.ttl * 9 / 10);
            self.queue.push(after(self.moment(), gap), Event::Beat(slot, run));
        }
    }

    fn act(&mut self, slot: Slot, run: RunId) -> Checked {
        let moment = self.moment();
        let Some(process) = self.keeper.process(slot, run).filter(|p| !p.plan.hangs) else {
            return Ok(());
        };
        process.active = moment;
        self.next_act(slot, run);
        self.hear(slot, run, Word::Active)
    }

    fn next_act(&mut self, slot: Slot, run: RunId) {
        if let Some(longest) = self.forest.plants[slot].policy.silent_for {
            let gap = self.draw.span(longest / 2, longest * 9 / 10);
            self.queue.push(after(self.moment(), gap), Event::Active(slot, run));
        }
    }

    fn end(&mut self, slot: Slot, run: RunId, end: End) {
        let calm = self.calm;
        let Some(process) = self.keeper.process(slot, run) else { return };
        let report = match end {
            // In a calm world nobody dies of itself.
            End::Own if calm => return,
            End::Own => match process.plan.end.take() {
                Some((_, report)) => report,
                None => return,
            },
            End::Asked => match self.draw.below(3) {
                0 => Status::Exited(0).into(),
                1 => Status::Exited(1).into(),
                _ => Status::Signaled(Signal::TERM).into(),
            },
            End::Killed => Status::Signaled(Signal::KILL).into(),
        };
        self.keeper.cells[slot].process = None;
        self.leave(slot, run, report);
    }

    /// A run is over: its report goes to the daemon, by one way or another.
    fn leave(&mut self, slot: Slot, run: RunId, report: ExitReport) {
        self.keeper.reports.push(Kept { slot, run, report });
        let soon = latency(&mut self.draw);
        let strikes = |day: &mut Day, fault: Fault| {
            let strikes = !day.calm && day.draw.chance(day.weather.odds(fault));
            if strikes {
                day.coverage.strike(fault);
            }
            strikes
        };
        if strikes(self, Fault::MissingReport) {
            return;
        }
        let way = if strikes(self, Fault::LateReport) {
            self.draw.spread(Duration::from_secs(1), Duration::from_secs(1200))
        } else {
            soon
        };
        self.queue.push(after(self.moment(), way), Event::Report(slot, run, false));
        if strikes(self, Fault::DuplicateReport) {
            let later = self.draw.spread(Duration::from_millis(1), Duration::from_secs(600));
            self.queue.push(after(self.moment(), way + later), Event::Report(slot, run, true));
        }
    }

    /// A report that nobody has acknowledged reaches the daemon.
    pub(super) fn report(&mut self, slot: Slot, run: RunId) -> Checked {
        let Some(report) = self.keeper.report(slot, run).cloned() else { return Ok(()) };
        let Some(agent) = self.ids[slot] else { return Ok(()) };
        if let Answer::Done(_) = self.step(Input::Exited { agent, run, report })? {
            self.keeper.acknowledge(slot, run);
        }
        Ok(())
    }

    /// A report that was acknowledged reaches the daemon again: nothing comes of it.
    fn report_again(&mut self, slot: Slot, run: RunId) -> Checked {
        let Some(agent) = self.ids[slot] else { return Ok(()) };
        self.step(Input::Tick)?;
        let report = Status::Exited(1).into();
        if self.step(Input::Exited { agent, run, report })? == Answer::Nobody {
            return Ok(());
        }
        let out = &self.out;
        let nothing = out.touched.is_empty() && out.effects.is_empty() && out.stale == 1;
        Invariant::Contract.check(nothing, || {
            format!("a{slot}: the second report of run {run} changed something: {out:?}")
        })
    }

    /// A run says something. Without a daemon the keeper keeps it.
    fn hear(&mut self, slot: Slot, run: RunId, word: Word) -> Checked {
        if !self.say(slot, run, word)? && self.keeper.process(slot, run).is_some() {
            self.keeper.mail.push_back((slot, run, word));
        }
        Ok(())
    }

    /// Tells the daemon what a run said. Says whether there is one.
    pub(super) fn say(&mut self, slot: Slot, run: RunId, word: Word) -> Result<bool, Breach> {
        let Some(agent) = self.ids[slot].filter(|_| self.core.is_some()) else {
            return Ok(false);
        };
        let handled = self.handled;
        let answer = self.step(match word {
            Word::Spawned => Input::Spawned { agent, run },
            Word::Ready => Input::Readied { agent, run },
            Word::Beat => Input::BeatSeen { agent, run },
            Word::Active => Input::ActivitySeen { agent, run },
            Word::Wish => Input::ShutdownWished { agent, run },
            Word::Overspent => Input::Overspent { agent, run },
            Word::ProbeFailed => Input::ProbeFailed { agent, run },
        })?;
        // What was kept was heard, also where the daemon died over it.
        if word == Word::Beat && self.handled > handled && self.out.stale == 0 {
            let policy = &self.forest.plants[slot].policy;
            self.limits.beat(slot, policy, self.clock.now().mono);
            self.counts.beat(slot, policy);
        }
        Ok(answer != Answer::Nobody)
    }

    /// After a restore: what the keeper holds for the agent.
    pub(super) fn found(&mut self, slot: Slot, agent: AgentId, run: Option<RunId>) -> Checked {
        let latest = self.keeper.cells[slot].latest;
        self.step(Input::Found { agent, run })?;
        if run.is_some() {
            self.coverage.note(Outcome::Adopted);
        } else if self.keeper.cells[slot].latest != latest {
            self.coverage.note(Outcome::SpawnedAgain);
        }
        Ok(())
    }
}
