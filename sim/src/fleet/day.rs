//! One simulated day: a world, a keeper, a daemon that comes and goes, and the loop that runs them.
//!
//! For most of the day the weather does what it likes and safety is checked at every step. Then it
//! is calm: processes are well, the daemon stays, what was lost is found. At the end every agent has
//! to be where it should be, or say why it is not.

use std::collections::BTreeMap;
use std::time::Duration;

use defib_core::{
    AgentId, Continuity, Input, Now, Outbox, Record, Settings, Snapshot, State, Supervisor, View,
};

use super::check::counts::Counts;
use super::check::delays::Delays;
use super::check::goals::Goals;
use super::check::ladder::Ladder;
use super::check::limits::Limits;
use super::check::order::Order;
use super::check::rest::{self, Ending};
use super::check::{Breach, Checked, Invariant};
use super::clock::{Clock, Moment, after};
use super::coverage::Coverage;
use super::digest::Digest;
use super::draw::Draw;
use super::forest::{Forest, Slot};
use super::keeper::Keeper;
use super::queue::{Event, Queue};
use super::trace::Trace;
use super::weather::{Fault, Weather};
use super::{Account, Sabotage};

const HOUR: Duration = Duration::from_secs(3600);
/// When the weather calms down.
const CALM_FROM: Duration = Duration::from_secs(20 * 3600);
/// When the day is over.
const END: Duration = Duration::from_secs(24 * 3600);
/// How long an agent may be on its way when the day is over.
const GRACE: Duration = Duration::from_secs(2 * 3600);

/// Where in its work a daemon dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    BeforeKeep,
    BetweenEffects,
    BeforeAck,
}

/// What the next daemon will meet.
#[derive(Debug, Default)]
pub(super) struct Succession {
    /// What the last daemon left beside the lives, which the keeper has.
    pub(super) left: Option<Snapshot>,
    /// Where the present one dies in its next step.
    pub(super) dying: Option<Cut>,
    /// Everything is to end in order.
    pub(super) closing: bool,
    /// The machine, or all of us, starts anew.
    pub(super) rebooting: bool,
    /// How long the machine slept while there was no daemon.
    pub(super) slept_alone: Duration,
}

/// One simulated day.
#[derive(Debug)]
pub(super) struct Day {
    pub(super) draw: Draw,
    pub(super) clock: Clock,
    pub(super) weather: Weather,
    pub(super) forest: Forest,
    pub(super) queue: Queue,
    pub(super) keeper: Keeper,
    pub(super) settings: Settings,
    pub(super) max_total_restarts: Option<u32>,
    /// The daemon, while there is one.
    pub(super) core: Option<Supervisor>,
    pub(super) ids: Vec<Option<AgentId>>,
    pub(super) slots: Vec<Slot>,
    pub(super) out: Outbox,
    pub(super) next: Succession,
    pub(super) calm: bool,
    /// A file was applied, and the daemon died before it was brought up.
    pub(super) owed_up: bool,
    pub(super) broke: Vec<bool>,
    /// How many deaths of its own each agent may still die.
    pub(super) fuel: Vec<u64>,
    /// How many runs of each agent are still to die at once.
    pub(super) looping: Vec<u64>,
    pub(super) goals: Goals,
    pub(super) limits: Limits,
    pub(super) delays: Delays,
    pub(super) counts: Counts,
    pub(super) order: Order,
    pub(super) ladder: Ladder,
    pub(super) view: View,
    pub(super) history: Vec<(Now, Record)>,
    pub(super) digest: Digest,
    pub(super) coverage: Coverage,
    pub(super) handled: u64,
    pub(super) restarts: u64,
    pub(super) sabotage: Option<Sabotage>,
    pub(super) trace: Trace,
}

impl Day {
    pub(super) fn new(seed: u64, sabotage: Option<Sabotage>, trace: Trace) -> Day {
        let mut draw = Draw::new(seed);
        let weather = Weather::draw(&mut draw);
        let forest = Forest::draw(&mut draw);
        let agents = forest.plants.len();
        let max_total_restarts = draw.chance(100).then(|| draw.count(0, 60));
        let jitter_seed = draw.chance(800).then(|| draw.bits());
        let boot_mono = draw.spread(Duration::from_secs(1), 1000 * HOUR);
        Day {
            clock: Clock::new(boot_mono),
            queue: Queue::default(),
            keeper: Keeper::new(agents),
            settings: Settings { jitter_seed },
            max_total_restarts,
            core: None,
            ids: vec![None; agents],
            slots: Vec::new(),
            out: Outbox::default(),
            next: Succession::default(),
            calm: false,
            owed_up: false,
            broke: vec![false; agents],
            fuel: vec![weather.fuel; agents],
            looping: vec![0; agents],
            goals: Goals::new(agents),
            limits: Limits::new(&forest, max_total_restarts),
            delays: Delays::new(agents, jitter_seed.is_some()),
            counts: Counts::new(agents),
            order: Order::new(agents),
            ladder: Ladder::new(agents),
            view: View::default(),
            history: Vec::new(),
            digest: Digest::default(),
            coverage: Coverage::default(),
            handled: 0,
            restarts: 0,
            sabotage,
            trace,
            draw,
            weather,
            forest,
        }
    }

    /// The moment to which the day has come.
    pub(super) fn moment(&self) -> Moment {
        self.clock.moment()
    }

    /// Lives through the day.
    pub(super) fn live(&mut self) -> Result<Account, Breach> {
        self.dawn()?;
        self.run_until(after(0, CALM_FROM))?;
        self.calm_down();
        self.run_until(after(0, END))?;
        let last = after(0, END + GRACE);
        while self.is_settled().is_err() && self.happens_before(last) {
            self.happen()?;
        }
        self.is_settled()?;
        self.replay()?;
        self.coverage.undisturbed(self.delays.exact);
        Ok(Account {
            digest: self.digest.value(),
            events: self.handled,
            restarts: self.restarts,
            coverage: self.coverage.clone(),
        })
    }

    fn dawn(&mut self) -> Checked {
        self.core = Some(Supervisor::new(self.settings));
        self.delays.watch_from(self.clock.now().mono);
        self.apply()?;
        self.step(Input::Booted)?;
        for fault in Fault::ALL {
            self.schedule(*fault);
        }
        Ok(())
    }

    /// Lets a fault that comes by itself come again.
    pub(super) fn schedule(&mut self, fault: Fault) {
        if let Some(gap) = self.weather.next(fault, &mut self.draw) {
            self.queue.push(after(self.moment(), gap), Event::Fault(fault));
        }
    }

    fn run_until(&mut self, end: Moment) -> Checked {
        while self.happens_before(end) {
            self.happen()?;
        }
        self.clock.run_until(end);
        Ok(())
    }

    fn happens_before(&self, end: Moment) -> bool {
        let next = self.queue.next().into_iter().chain(self.deadline()).min();
        next.is_some_and(|next| next < end)
    }

    /// When the daemon wants to be woken.
    fn deadline(&self) -> Option<Moment> {
        let due = self.core.as_ref()?.next_deadline()?;
        let late = u32::from(self.sabotage == Some(Sabotage::LateTimer));
        Some(after(self.clock.moment_of(due), late * Duration::from_millis(700)))
    }

    /// The next thing happens.
    fn happen(&mut self) -> Checked {
        match (self.deadline(), self.queue.next()) {
            (Some(due), event) if event.is_none_or(|event| due <= event) => {
                self.clock.run_until(due);
                self.step(Input::Tick)?;
            }
            (_, Some(at)) => {
                self.clock.run_until(at);
                if let Some(event) = self.queue.pop() {
                    self.take(event)?;
                }
            }
            (_, None) => {}
        }
        self.finish_close();
        Ok(())
    }

    /// From here on nothing goes wrong any more, and what was lost is found.
    fn calm_down(&mut self) {
        self.calm = true;
        self.next.dying = None;
        self.trace.line(&self.clock, || "the world is calm".to_owned());
        let moment = self.moment();
        for (slot, cell) in self.keeper.cells.iter_mut().enumerate() {
            if let Some(process) = &mut cell.process {
                process.plan.hangs = false;
                self.queue.push(moment, Event::Beat(slot, process.run));
                self.queue.push(moment, Event::Active(slot, process.run));
                self.queue.push(moment, Event::Ready(slot, process.run));
            }
        }
        for kept in &self.keeper.reports {
            // Who knows that a run is to end asks for its report when it does not come.
            let asks = self.ids[kept.slot]
                .zip(self.core.as_ref())
                .is_some_and(|(id, core)| core.sight(id).state == State::Stopping);
            if !asks {
                self.queue.push(moment, Event::Report(kept.slot, kept.run, false));
            }
        }
        self.queue.push(moment, Event::Relief);
    }

    /// An orderly close is over once no run is left; then the next daemon starts afresh.
    fn finish_close(&mut self) {
        let Some(core) = self.core.as_ref().filter(|_| self.next.closing) else { return };
        let alive = |id: &AgentId| {
            matches!(core.sight(*id).state, State::Starting | State::Running | State::Stopping)
        };
        if self.ids.iter().flatten().any(alive) {
            return;
        }
        self.next.closing = false;
        self.next.rebooting = true;
        self.daemon_dies();
    }

    /// The daemon is gone; another one comes.
    pub(super) fn daemon_dies(&mut self) {
        let Some(core) = self.core.take() else { return };
        let (spent, totals) = (core.spent(), core.totals());
        self.next.left = Some(Snapshot { lives: BTreeMap::new(), spent, totals });
        self.order.forget_asked();
        self.trace.line(&self.clock, || "the daemon dies".to_owned());
        let longest = self.draw.pick(&[100, 1000, 60_000, 600_000]);
        let gone = self.draw.spread(Duration::from_micros(10), Duration::from_millis(longest));
        self.queue.push(after(self.moment(), gone), Event::DaemonUp);
    }

    /// The next daemon takes over.
    pub(super) fn daemon_rises(&mut self) -> Checked {
        let Some(left) = self.next.left.take() else { return Ok(()) };
        let continuity =
            if self.next.rebooting { Continuity::Reboot } else { Continuity::Unbroken };
        self.trace.line(&self.clock, || format!("a daemon rises: {continuity:?}"));
        let lives = self.forest.plants.iter().zip(&self.keeper.cells);
        let lives =
            lives.filter_map(|(plant, cell)| Some((plant.name.clone(), cell.life.clone()?)));
        let snapshot = Snapshot { lives: lives.collect(), ..left };
        let now = self.clock.now();
        let topology = self.topology();
        let settings = self.settings;
        self.core = Some(Supervisor::restore(settings, topology, snapshot, continuity, now));
        self.learn_ids();
        self.keep_all();
        self.delays.watch_from(now.mono);
        if self.next.rebooting {
            self.next.slept_alone = Duration::ZERO;
            self.limits.reboot();
            self.delays.reboot(now.mono);
            self.counts.reboot();
            self.order.forget();
            let handled = self.handled;
            self.step(Input::Booted)?;
            // Until a daemon has taken that in, the next one starts afresh as well.
            self.next.rebooting = self.handled == handled;
        } else {
            self.reconcile()?;
        }
        self.tell_balances()
    }

    /// What waited for the daemon is handed over: reports first, then what is there.
    fn reconcile(&mut self) -> Checked {
        let (slept, handled) = (self.next.slept_alone, self.handled);
        if !slept.is_zero() {
            self.step(Input::Slept(slept))?;
        }
        if self.handled > handled {
            self.next.slept_alone = Duration::ZERO;
        }
        for kept in self.keeper.reports.clone() {
            self.report(kept.slot, kept.run)?;
        }
        for slot in 0..self.ids.len() {
            let Some(agent) = self.ids[slot] else { continue };
            let run = self.keeper.cells[slot].process.as_ref().map(|process| process.run);
            self.found(slot, agent, run)?;
        }
        while let Some((slot, run, word)) = self.keeper.mail.front().copied() {
            if !self.say(slot, run, word)? {
                return Ok(());
            }
            self.keeper.mail.pop_front();
        }
        Ok(())
    }

    fn is_settled(&self) -> Checked {
        let Some(core) = &self.core else {
            return Invariant::Rest.check(false, || "there is no daemon".to_owned());
        };
        let endings: Vec<Option<Ending>> = (0..self.ids.len())
            .map(|slot| {
                let id = self.ids[slot].filter(|_| self.forest.plants[slot].declared)?;
                let alive = self.keeper.cells[slot].process.as_ref().map(|process| process.run);
                Some(Ending { wanted: self.goals.wanted(slot), sight: core.sight(id), alive })
            })
            .collect();
        let now = self.clock.now().mono;
        for slot in 0..endings.len() {
            rest::is_settled(&self.forest, &endings, slot, now)?;
            let stray = self.keeper.cells[slot].process.as_ref();
            let stray = stray.filter(|_| !self.forest.plants[slot].declared);
            Invariant::Rest.check(stray.is_none(), || {
                format!("a{slot}: it is not declared any more, and {stray:?} lives")
            })?;
        }
        Ok(())
    }

    /// History alone gives the same view.
    fn replay(&self) -> Checked {
        let mut replayed = View::default();
        for (at, record) in &self.history {
            replayed.fold(*at, record);
        }
        Invariant::View.check(replayed == self.view, || "a replay gives another view".to_owned())
    }
}
