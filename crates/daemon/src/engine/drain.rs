//! Dealing with what the core decided, in one fixed order.

use std::sync::Arc;

use defib_autopsy::Kind;
use defib_config::config;
use defib_core::record::WaitReason;
use defib_core::{Ask as Manner, Class, Effect, Goal, Name, Outbox, RunId, Signal, What};
use defib_history::{Event, Intent, PostMortem, Redactor, Stamp, Usage};
use defib_host::Flushed;
use defib_host::clock::now;
use defib_host::protocol::{Request, RunKey};
use serde_json::{Map, Value};

use super::ask::Ask;
use super::facts;
use super::inheritance::JOURNAL;
use super::{Declared, Engine, Pending};
use crate::coroner::{autopsy_of, kind_of};
use crate::logs::Rotation;
use crate::notices::{NOTIFIED, notices};
use crate::places::owner_of;
use crate::recipe::{Project, RunFacts};

/// So many events of several decisions may go out together: those of about four deaths.
const TOGETHER: usize = 12;
/// So many orders go to the keeper at once.
const ORDERS: usize = 16;
/// What is kept of an agent is mostly shorter.
const USUAL_LIFE: usize = 256;
/// So many events at once are usual; the room that a burst took is given back.
const USUAL_EVENTS: usize = 256;

impl Engine {
    /// Makes events of records, keeps them and what else a successor must know, gives orders, writes the
    /// events down, tells everybody.
    ///
    /// Killed before the keeper has heard, all of it has not happened: a successor drops what the
    /// journal has beyond what was kept, and hears the same news again. Killed after, all of it has:
    /// what the journal has not yet, the keeper has.
    pub(super) fn drain(&mut self, out: &mut Outbox) {
        if out.touched.is_empty() && out.records.is_empty() && out.effects.is_empty() {
            return;
        }
        for record in &out.records {
            let project = self.project_name_of(&record.agent);
            let used = if matches!(record.what, What::RunDied { .. }) {
                self.used_by(&record.agent, record.run)
            } else {
                Usage::default()
            };
            let event = Event::of_record_with(self.stamp(project), record, used);
            self.view.fold(event.now(), record);
            self.note(event);
            self.note_blame(record);
        }
        for notice in notices(&out.records) {
            let project = self.project_name_of(&notice.agent);
            let body = notice.body(&self.channels_for(project.as_ref(), notice.what));
            let stamp = self.stamp(project);
            self.note(Event::new(stamp, NOTIFIED, Some(notice.agent), notice.run, body));
        }
        let lives: Vec<(String, Vec<u8>)> = out
            .touched
            .drain(..)
            .filter_map(|id| {
                let name = self.supervisor.name(id);
                let life = (self.supervisor.life(id), self.view.agent(name));
                let bytes = Vec::with_capacity(USUAL_LIFE);
                Some((format!("life/{name}"), postcard::to_extend(&life, bytes).ok()?))
            })
            .collect();
        self.keep(lives);
        let mut rests = Vec::new();
        for record in out.records.drain(..) {
            if let What::WaitStarted { reason: WaitReason::Cause(Class::Disk), .. } = record.what {
                self.timetable.disk_look.get_or_insert(now().mono);
            }
            if Engine::ends_session(&record.what) {
                self.forget_session(&record.agent);
            }
            if is_rest(&record.what) {
                rests.extend(self.rest_to_store(&record.agent));
            } else if ends_rest(&record.what) {
                rests.extend(self.rest_to_drop(&record.agent));
            }
        }
        self.store_rests(rests);
        let effects = std::mem::take(&mut out.effects);
        self.order(effects);
        self.publish_soon();
    }

    /// Sets a full journal aside, until all that is in it is in the history: so not before the
    /// history was told of all that was written.
    fn turn_journal(&mut self) {
        if self.journal.turn_if_full() {
            self.settle_journal();
        }
    }

    /// An agent has come to rest: that outlives the machine.
    fn rest_to_store(&mut self, name: &Name) -> Option<Intent> {
        let id = self.supervisor.known(name)?;
        let value = serde_json::to_string(self.supervisor.life(id)).ok()?;
        self.stored_lives.insert(name.clone());
        Some(Intent::Keep { key: format!("life/{name}"), value })
    }

    /// Stores rests and the event number that they are as of, in one commit. Also stores the number
    /// alone from time to time, so that a start has few events to read again.
    fn store_rests(&mut self, mut rests: Vec<Intent>) {
        if rests.is_empty() && self.seq < self.marked + facts::MARK_EVERY {
            return;
        }
        self.marked = self.seq;
        rests.push(facts::mark(self.seq));
        self.history.store_later(rests);
    }

    /// An agent does not rest any more: after a reboot it must not be taken for one that does.
    fn rest_to_drop(&mut self, name: &Name) -> Option<Intent> {
        let key = format!("life/{name}");
        self.stored_lives.remove(name).then_some(Intent::Drop { key })
    }

    /// Hands to the keeper what a successor must know, in one piece: these lives, what holds for all
    /// agents together, and what is not yet in the journal.
    fn keep(&mut self, mut all: Vec<(String, Vec<u8>)>) {
        let whole = (self.seq, self.supervisor.totals(), self.supervisor.spent());
        all.extend(postcard::to_allocvec(&whole).ok().map(|bytes| ("whole".to_owned(), bytes)));
        all.push((JOURNAL.to_owned(), self.journal.pending().to_vec()));
        self.send(&Request::KeepAll(all));
    }

    fn stamp(&mut self, project: Option<Name>) -> Stamp {
        self.seq += 1;
        Stamp { seq: self.seq, now: now(), boot: self.boot.clone(), project }
    }

    /// Adds an event to what is written and then told.
    fn note(&mut self, event: Event) {
        self.journal.push(&event);
        self.unpublished.push(Arc::new(event));
    }

    /// Publishes now, so that a restart waits neither for those who are told of it, nor for whatever
    /// else the keeper has had to say. Only a few of those who die at the same time go out together,
    /// as far as they have been heard of at once: that costs each of them little, and all much less.
    fn publish_soon(&mut self) {
        if self.unpublished.len() >= TOGETHER || !self.keeper.holds_message() {
            self.publish();
        }
    }

    /// Sends what is queued, writes the journal, and tells everybody of it once the keeper has it: what
    /// a successor does not know of has not happened, so nobody may have heard of it. A keeper that is
    /// busy is not waited for.
    pub(super) fn publish(&mut self) {
        let flushed = self.keeper.flush();
        // A journal that cannot be written is no reason to stop supervising; the history says when
        // the disk fails.
        let _ = self.journal.write();
        if !matches!(flushed, Ok(Flushed::All)) {
            return;
        }
        self.history.append(self.unpublished.iter().cloned());
        for event in self.unpublished.drain(..) {
            // Nobody may be listening.
            let _ = self.handle.events.send(event);
        }
        self.unpublished.shrink_to(USUAL_EVENTS);
        self.turn_journal();
    }

    /// Tells something that is no decision of the core.
    pub(super) fn tell(
        &mut self,
        kind: &str,
        key: Option<RunKey>,
        body: impl IntoIterator<Item = (&'static str, Value)>,
    ) {
        let body: Map<String, Value> =
            body.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let (agent, run) = match key {
            Some(key) => (Some(key.agent), (key.run.0 > 0).then_some(key.run)),
            None => (None, None),
        };
        let project = agent.as_ref().and_then(|agent| self.project_name_of(agent));
        let event = Event::new(self.stamp(project), kind, agent, run, body);
        self.note(event);
        self.keep(Vec::new());
        self.publish_soon();
    }

    /// Gives orders. Where a goal has to be stored first, everything after it waits for that.
    fn order(&mut self, effects: Vec<Effect>) {
        if effects.is_empty() {
            return;
        }
        let goals: Vec<Intent> = effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::StoreGoal { agent, goal } => {
                    let agent = self.supervisor.name(*agent).clone();
                    Some(Intent::Goal { agent, goal: *goal })
                }
                Effect::Spawn { .. }
                | Effect::Signal { .. }
                | Effect::Inquire { .. }
                | Effect::Forget { .. } => None,
            })
            .collect();
        if goals.is_empty() && self.pending.is_empty() {
            return self.carry_out_all(effects);
        }
        let ticket = (!goals.is_empty()).then(|| {
            self.next_ticket += 1;
            self.next_ticket
        });
        if let Some(ticket) = ticket {
            let handle = self.handle.clone();
            // Orders are carried out in either case; the caller learns whether the goal is stored.
            self.intents.store(goals, move |_| handle.tell(Ask::Stored(ticket)));
        }
        self.pending.push_back(Pending { ticket, effects });
    }

    /// A goal is on disk: what waited for it is done.
    pub(super) fn stored(&mut self, ticket: u64) {
        for pending in &mut self.pending {
            if pending.ticket == Some(ticket) {
                pending.ticket = None;
            }
        }
        while self.pending.front().is_some_and(|pending| pending.ticket.is_none()) {
            let Some(Pending { effects, .. }) = self.pending.pop_front() else { return };
            self.carry_out_all(effects);
        }
    }

    /// Of many orders the keeper has the first while the next are written.
    fn carry_out_all(&mut self, effects: Vec<Effect>) {
        for (count, effect) in (1_usize..).zip(effects) {
            self.carry_out(effect);
            if count.is_multiple_of(ORDERS) {
                // What it does not take now goes with the rest.
                let _ = self.keeper.flush();
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::StoreGoal { .. } => {}
            Effect::Spawn { agent, run, fresh } => {
                let name = self.supervisor.name(agent).clone();
                self.spawn(&name, run, fresh);
            }
            Effect::Signal { agent, run, ask } => {
                let key = RunKey { agent: self.supervisor.name(agent).clone(), run };
                if self.cancel_start(&key) {
                    return;
                }
                let signal = self.stop_signal_of(&key.agent);
                self.send(&match ask {
                    Manner::Stop => Request::Signal { key, signal },
                    Manner::Kill => Request::Kill(key),
                });
            }
            Effect::Inquire { agent, run } => {
                let key = RunKey { agent: self.supervisor.name(agent).clone(), run };
                self.send(&Request::Inquire(key));
            }
            Effect::Forget { agent } => {
                let name = self.supervisor.name(agent).clone();
                let gone = self.rest_to_drop(&name);
                self.history.store_later(gone);
                self.traces.remove(&name);
                self.used.remove(&name);
                self.secrets.remove(&name);
                self.forget_own(&name);
                self.forget_capabilities(&name);
                self.forget_preparing(&name);
                self.forget_liveness(&name);
                self.forget_with_keeper(&name);
                self.scribe.forget(name);
            }
        }
    }

    fn spawn(&mut self, name: &Name, run: RunId, fresh: bool) {
        if !self.prepare(name, run, fresh) {
            self.spawn_prepared(name, run, fresh);
        }
    }

    /// Orders a run whose files have been looked at.
    pub(super) fn spawn_prepared(&mut self, name: &Name, run: RunId, fresh: bool) {
        self.learn_secrets(name);
        let mut facts = self.facts(name);
        facts.session = self.session_for(name, run, fresh);
        facts.token = self.token_for(name, run);
        facts.notify = self.notify_socket(name);
        let recipe = self.recipe(name);
        let file = self.known_env_text(name);
        let order =
            recipe.map(|(project, agent)| project.order(&self.home, agent, run, &facts, file));
        let key = RunKey { agent: name.clone(), run };
        match order {
            Some(Ok(mut order)) => {
                let own = order.env.clone();
                let meter = self.admit(&key, &mut order.env);
                if let Some(why) = self.unmetered_refusal(name, &own, meter.is_some()) {
                    return self.handle.tell(Ask::Unspawnable { key, why });
                }
                let owner = self.recipe(name).and_then(|(_, agent)| owner_of(agent));
                self.states.make(name, owner);
                let order = Box::new(order);
                match self.capabilities_of(name) {
                    Some(tokens) => {
                        self.prepare_confinement(&key, fresh, (order, tokens), meter);
                    }
                    None => match self.enforce(&key, None, None) {
                        Ok(_) => self.send(&Request::Spawn(order)),
                        Err(why) => self.handle.tell(Ask::Unspawnable { key, why }),
                    },
                }
            }
            Some(Err(why)) => {
                let handle = self.handle.clone();
                handle.tell(Ask::Unspawnable { key, why: why.to_string() });
            }
            None => {
                let why = "it is no longer declared".to_owned();
                self.handle.tell(Ask::Unspawnable { key, why });
            }
        }
    }

    /// What a run is told about the one before it.
    fn facts(&self, name: &Name) -> RunFacts {
        let Some(view) = self.view.agent(name) else { return RunFacts::default() };
        let death = view.last_death.as_ref();
        RunFacts {
            restarts: view.sight.restarts,
            last_class: death.map(|death| death.class.word()),
            last_exit: death.and_then(|death| death.exit_code),
            session: None,
            token: None,
            notify: None,
        }
    }

    fn stop_signal_of(&self, name: &Name) -> i32 {
        self.recipe(name).map_or(Signal::TERM, |(_, agent)| agent.stop_signal).0
    }

    pub(super) fn rotation_of(&self, name: &Name) -> Rotation {
        let log = self.recipe(name).map(|(_, agent)| &agent.log);
        log.map_or(Rotation { max_size: 50 << 20, keep: 5 }, |log| Rotation {
            max_size: log.max_size,
            keep: log.keep,
        })
    }

    /// How an agent is declared, and in which project.
    pub(super) fn recipe(&self, name: &Name) -> Option<(&Project, &config::Agent)> {
        let Declared { project, at, .. } = self.declared.get(name)?;
        let project = self.projects.get(project)?;
        Some((project, project.config.agents.get(*at as usize)?))
    }

    /// What sort of program an agent is.
    pub(super) fn kind(&self, name: &Name) -> Kind {
        self.declared.get(name).map_or(Kind::Generic, |declared| declared.kind)
    }

    pub(super) fn index_agents(&mut self) {
        let places = self.projects.iter().flat_map(|(project, of)| {
            (0..).zip(&of.config.agents).map(|(at, agent)| {
                let declared = Declared { project: project.clone(), at, kind: kind_of(agent) };
                (agent.name.clone(), declared)
            })
        });
        self.declared = places.collect();
        let rules = |(name, project): (&Name, &Project)| {
            (name.clone(), Arc::new(autopsy_of(&project.config)))
        };
        self.rules = self.projects.iter().map(rules).collect();
        self.plan_ticks();
        self.tidy_soon();
        self.tell_site();
        self.tell_exporter();
        self.tell_history();
    }

    pub(super) fn project_name_of(&self, name: &Name) -> Option<Name> {
        let id = self.supervisor.known(name)?;
        Some(self.supervisor.project(id).clone())
    }

    pub(super) fn note_tail(&mut self, agent: Name, run: RunId, tail: &[u8], secrets: &Redactor) {
        // That of an earlier run, which another daemon saw end, may come late.
        let is_last = self.traces.get(&agent).is_none_or(|(known, _)| *known <= run);
        if is_last {
            self.traces.remove(&agent);
        }
        if tail.is_empty() {
            // There is nothing to keep, and it must not take the place of a tail that says something.
            return;
        }
        let found = PostMortem::new(agent, run).with_output(tail, secrets);
        if let Some(trace) = found.trace.as_ref().filter(|_| is_last) {
            self.traces.insert(found.agent.clone(), (run, trace.clone()));
        }
        self.history.attach(found);
    }

    /// What a run used, where it is the last that ended and somebody saw how.
    pub(super) fn used_by(&self, agent: &Name, run: Option<RunId>) -> Usage {
        let used = self.used.get(agent).filter(|(of, _)| Some(*of) == run);
        used.map(|(_, used)| *used).unwrap_or_default()
    }
}

/// Whether a record ends an agent's way for good: what is left of it after a reboot has to be known.
pub(super) fn is_rest(what: &What) -> bool {
    matches!(
        what,
        What::Rested { .. }
            | What::Halted { .. }
            | What::CrashedOut { .. }
            | What::Stopped { goal: Goal::Stopped }
    )
}

/// Whether a record says that an agent is on its way again.
pub(super) fn ends_rest(what: &What) -> bool {
    matches!(
        what,
        What::Revived
            | What::RunStarted { .. }
            | What::RestartScheduled { .. }
            | What::WaitStarted { .. }
    )
}
