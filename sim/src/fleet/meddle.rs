//! What comes by itself: clocks that are set, machines that sleep, daemons that die, and people.

use std::time::Duration;

use defib_core::{Goal, Input, Scope};

use super::check::Checked;
use super::check::goals::Request;
use super::clock::after;
use super::coverage::Outcome;
use super::day::{Cut, Day};
use super::forest::{Edit, Slot};
use super::queue::Event;
use super::step::Answer;
use super::weather::Fault;

const HOUR: Duration = Duration::from_secs(3600);

impl Day {
    /// A fault that comes by itself has come.
    pub(super) fn strike(&mut self, fault: Fault) -> Checked {
        if self.calm {
            return Ok(());
        }
        self.schedule(fault);
        self.coverage.strike(fault);
        match fault {
            Fault::WallStep => self.step_the_wall_clock(),
            Fault::Suspend => self.suspend(),
            Fault::DaemonDeath => {
                self.end_the_daemon();
                Ok(())
            }
            Fault::Reboot => {
                self.reboot();
                Ok(())
            }
            Fault::Close => self.close(),
            Fault::Command => self.command(),
            Fault::Edit => self.edit(),
            Fault::Balance => self.change_a_balance(),
            Fault::Trigger => {
                let slot = self.draw.place(self.ids.len());
                self.step_for(slot, Input::Triggered)
            }
            Fault::WaitOver => {
                let slot = self.draw.place(self.ids.len());
                self.step_for(slot, Input::WaitOver)
            }
            Fault::Crash
            | Fault::CrashLoop
            | Fault::QuickDone
            | Fault::SpawnFailure
            | Fault::Deaf
            | Fault::Hang
            | Fault::Finding
            | Fault::Wish
            | Fault::Overspend
            | Fault::ProbeFailed
            | Fault::SlowReady
            | Fault::NeverReady
            | Fault::LateReport
            | Fault::DuplicateReport
            | Fault::MissingReport => Ok(()),
        }
    }

    fn step_for(&mut self, slot: Slot, input: impl Fn(defib_core::AgentId) -> Input) -> Checked {
        if let Some(id) = self.ids[slot] {
            self.step(input(id))?;
        }
        Ok(())
    }

    fn step_the_wall_clock(&mut self) -> Checked {
        // Less than a second is drift, which the supervisor passes over.
        let span = self.draw.spread(Duration::from_secs(2), 6 * HOUR);
        let by_ms = i64::try_from(span.as_millis()).unwrap_or(0);
        let by_ms = if self.draw.chance(500) { by_ms } else { -by_ms };
        self.trace.line(&self.clock, || format!("the wall clock is stepped by {by_ms} ms"));
        self.clock.step(by_ms);
        if self.draw.chance(500) {
            self.step(Input::Tick)?;
        }
        Ok(())
    }

    fn suspend(&mut self) -> Checked {
        let span = self.draw.spread(Duration::from_secs(1), 6 * HOUR);
        self.trace.line(&self.clock, || format!("the machine sleeps for {span:?}"));
        self.clock.sleep(span);
        self.delays.watch_from(self.clock.now().mono);
        if self.sabotage == Some(super::Sabotage::ForgetSleep) {
            return Ok(());
        }
        let handled = self.handled;
        self.step(Input::Slept(span))?;
        if self.handled == handled {
            self.next.slept_alone += span;
        }
        Ok(())
    }

    fn end_the_daemon(&mut self) {
        if self.core.is_none() {
            return;
        }
        if self.draw.chance(250) {
            self.coverage.note(Outcome::DiedIdle);
            self.daemon_dies();
        } else {
            let cuts = [Cut::BeforeKeep, Cut::BetweenEffects, Cut::BetweenEffects, Cut::BeforeAck];
            self.next.dying = Some(self.draw.pick(&cuts));
        }
    }

    fn reboot(&mut self) {
        self.daemon_dies();
        self.trace.line(&self.clock, || "the machine goes down".to_owned());
        self.keeper.lose_all_processes();
        (self.next.rebooting, self.next.closing) = (true, false);
        let boot_mono = self.draw.spread(Duration::from_millis(500), 100 * Duration::from_secs(1));
        self.clock.reboot(boot_mono);
        let down = self.draw.span(Duration::from_secs(20), Duration::from_secs(300));
        self.queue.push(after(self.moment(), down), Event::DaemonUp);
    }

    fn close(&mut self) -> Checked {
        self.step(Input::CloseAsked)?;
        Ok(())
    }

    /// A person asks for something; some ask again at once, or for something else.
    fn command(&mut self) -> Checked {
        loop {
            let Some((scope, slots)) = self.scope() else { return Ok(()) };
            let request = self.draw.pick(self.weather.requests);
            let flag = self.draw.chance(300);
            self.request(request, scope, &slots, flag)?;
            // Who has just asked for something edits the file while it is still under way.
            if self.draw.chance(self.weather.odds(Fault::Edit) / 6)
                && let Some(slot) = slots.first()
            {
                self.forest.edited = *slot;
                self.edit()?;
            }
            if self.core.is_none() || !self.draw.chance(250) {
                return Ok(());
            }
        }
    }

    /// Whom a person means: a name for the supervisor, and the agents that it stands for.
    fn scope(&mut self) -> Option<(Scope, Vec<Slot>)> {
        let declared = |slot: &Slot| self.forest.plants[*slot].declared;
        let all = 0..self.forest.plants.len();
        Some(match self.draw.below(8) {
            0 => (Scope::All, all.filter(declared).collect()),
            1 => {
                let project = self.draw.place(2);
                let ours = |slot: &Slot| self.forest.plants[*slot].project == project;
                let slots = all.filter(declared).filter(ours).collect();
                (Scope::Project(self.forest.projects[project].clone()), slots)
            }
            2 | 3 if !self.forest.groves.is_empty() => {
                let at = self.draw.place(self.forest.groves.len());
                let group = self.core.as_ref()?.group(&self.forest.groves[at].name)?;
                (Scope::Group(group), self.forest.agents_of(at))
            }
            _ => {
                let slot = self.draw.place(self.ids.len());
                (Scope::Agent(self.ids[slot].filter(|_| declared(&slot))?), vec![slot])
            }
        })
    }

    /// A request, with what it makes of the goals of those it means.
    pub(super) fn request(
        &mut self,
        request: Request,
        scope: Scope,
        slots: &[Slot],
        flag: bool,
    ) -> Checked {
        // What is due comes first, so that what is seen now is what the request meets.
        if self.step(Input::Tick)? == Answer::Nobody {
            return Ok(());
        }
        let Some(core) = &self.core else { return Ok(()) };
        let goals: Vec<(Slot, Goal)> = slots
            .iter()
            .filter_map(|slot| {
                let sight = core.sight(self.ids[*slot]?);
                Some((*slot, self.goals.after(*slot, request, sight, self.broke[*slot])))
            })
            .collect();
        let handled = self.handled;
        let answer = self.step_with(
            match request {
                Request::Up => Input::UpAsked(scope),
                Request::Down => Input::DownAsked(scope),
                Request::Start => Input::StartAsked(scope),
                Request::Stop => Input::StopAsked { scope, kill: flag },
                Request::Restart => Input::RestartAsked { scope, fresh: flag },
                Request::Revive => Input::ReviveAsked(scope),
            },
            &goals,
        )?;
        if request == Request::Down && self.handled > handled {
            for slot in slots {
                self.limits.clear_groups_above(&self.forest, *slot);
            }
        }
        if matches!(answer, Answer::Done(Err(_))) {
            self.coverage.note(Outcome::Refused);
        }
        Ok(())
    }

    /// Somebody edits the file and brings it up, and now and then has second thoughts at once.
    fn edit(&mut self) -> Checked {
        self.edit_once()?;
        while self.core.is_some() && self.draw.chance(250) {
            self.edit_once()?;
        }
        Ok(())
    }

    fn edit_once(&mut self) -> Checked {
        if self.step(Input::Tick)? == Answer::Nobody {
            return Ok(());
        }
        let before = self.forest.clone();
        for _ in 0..=self.draw.below(3) {
            let edit = self.forest.edit(&mut self.draw);
            self.coverage.note(match edit {
                Edit::Policy => Outcome::EditPolicy,
                Edit::Generation => Outcome::EditGeneration,
                Edit::Removed => Outcome::EditRemoved,
                Edit::Added => Outcome::EditAdded,
                Edit::Grouping => Outcome::EditGrouping,
                Edit::Budget => Outcome::EditBudget,
                Edit::After => Outcome::EditAfter,
            });
        }
        if !self.apply_edit(&before)? {
            return Ok(());
        }
        self.tell_balances()?;
        self.bring_up()
    }

    /// Whoever edited the file tries again until all of it is up.
    fn bring_up(&mut self) -> Checked {
        let all: Vec<Slot> =
            (0..self.ids.len()).filter(|slot| self.forest.plants[*slot].declared).collect();
        let handled = self.handled;
        self.request(Request::Up, Scope::All, &all, false)?;
        self.owed_up = self.handled < handled + 2;
        Ok(())
    }

    /// Hands the edited file to the daemon. If there is none any more, the old one stands.
    fn apply_edit(&mut self, before: &super::forest::Forest) -> Result<bool, super::Breach> {
        let handled = self.handled;
        let wanted: Vec<Goal> = (0..self.ids.len()).map(|slot| self.goals.wanted(slot)).collect();
        for slot in 0..self.ids.len() {
            // An agent that is declared again is a new one.
            if self.forest.plants[slot].declared && !before.plants[slot].declared {
                self.goals.want(slot, Goal::Up);
            }
        }
        self.apply()?;
        for slot in 0..self.ids.len() {
            let is_new = self.forest.plants[slot].declared && !before.plants[slot].declared;
            if is_new && self.handled > handled {
                self.limits.clear(slot);
                self.counts.forget(slot);
            }
        }
        if self.handled == handled {
            self.forest = before.clone();
            for (slot, goal) in wanted.into_iter().enumerate() {
                self.goals.want(slot, goal);
            }
            return Ok(false);
        }
        self.owed_up = true;
        Ok(self.core.is_some())
    }

    pub(super) fn apply(&mut self) -> Checked {
        self.step(Input::Apply(Box::new(self.topology())))?;
        Ok(())
    }

    fn change_a_balance(&mut self) -> Checked {
        let slot = self.draw.place(self.ids.len());
        self.broke[slot] ^= true;
        self.tell_balance(slot)
    }

    /// A daemon that comes up reads every balance.
    pub(super) fn tell_balances(&mut self) -> Checked {
        (0..self.ids.len()).try_for_each(|slot| self.tell_balance(slot))
    }

    fn tell_balance(&mut self, slot: Slot) -> Checked {
        let empty = self.broke[slot];
        if !self.forest.plants[slot].declared {
            return Ok(());
        }
        self.step_for(slot, |agent| Input::BalanceSeen { agent, empty })
    }

    /// In a calm world, what only ends when told is told, again and again.
    pub(super) fn relieve(&mut self) -> Checked {
        if self.owed_up {
            self.bring_up()?;
        }
        for slot in 0..self.ids.len() {
            self.step_for(slot, Input::WaitOver)?;
        }
        self.queue.push(after(self.moment(), HOUR / 2), Event::Relief);
        Ok(())
    }
}
