//! What can be said of agents at this moment.

use std::collections::BTreeMap;

use defib_core::record::{Trip, WaitReason};
use defib_core::rng::Jitter;
use defib_core::time::Seconds;
use defib_core::view::LastDeath;
use defib_core::{AgentId, Goal, Name, Now, Reason, RunId, Scope, State};
use defib_host::clock::now;

use super::Engine;
use super::ask::Failed;
use crate::old_keeper::HELD;
use crate::recipe::argv;
use crate::wire::{AgentLine, AgentStatus, DeathLine, DeathStatus, SupervisorStatus, stamp};

impl Engine {
    pub(super) fn statuses(&self, names: &[String]) -> Result<Vec<AgentStatus>, Failed> {
        if names.is_empty() {
            return Ok(self.supervisor.declared().map(|(id, _)| self.agent_status(id)).collect());
        }
        let mut statuses = Vec::new();
        for name in names {
            let ids = self.ids_in(&self.scope(name)?);
            statuses.extend(ids.into_iter().map(|id| self.agent_status(id)));
        }
        Ok(statuses)
    }

    /// Every agent, in a few words.
    pub(super) fn lines(&self) -> Vec<AgentLine> {
        let now = now();
        self.supervisor.declared().map(|(id, _)| self.agent_line(id, now)).collect()
    }

    fn agent_line(&self, id: AgentId, now: Now) -> AgentLine {
        let name = self.supervisor.name(id);
        let sight = self.supervisor.sight(id);
        let view = self.view.agent(name);
        let goal = self.supervisor.goal(id);
        // A moment to come on the one clock, as the other will say it.
        let to_come = |at: defib_core::Mono| stamp(now.wall + at.since(now.mono));
        let uptime = view.and_then(|view| view.started).map(|at| whole(now.mono.since(at.mono)));
        let death = view.and_then(|view| view.last_death.as_ref());
        AgentLine {
            name: name.clone(),
            project: self.supervisor.project(id).clone(),
            state: self.shown_state(name, sight.state),
            goal,
            reason: self
                .stuck_word(name, sight.run)
                .or_else(|| sight.reason.map(reason_word))
                .or_else(|| self.held_word(name))
                .or_else(|| Some(looping(view?.loops_per_hour(now.mono)?))),
            pid: self.processes.get(name).map(|process| process.pid),
            run: sight.run,
            restarts: sight.restarts,
            uptime_s: uptime.map(Seconds),
            next_at: sight.next_at.map(to_come).or_else(|| self.next_tick(id, sight.state)),
            last_activity_at: self.activity.of(&self.home, name).map(stamp),
            last_death: death.map(|death| DeathLine {
                at: stamp(death.at.wall),
                class: death.class,
                exit_code: death.exit_code,
                signal: death.signal,
            }),
            status_text: self.own_text(name, sight.run),
            unmetered: self
                .unmetered_of(name)
                .into_iter()
                .map(|unmetered| unmetered.unit)
                .collect(),
            // One that was at rest when its project was taken down had nothing more to tell.
            flapping: goal != Goal::Down && view.is_some_and(|view| view.is_flapping(now.mono)),
            loop_detected: sight.reason == Some(Reason::Trip(Trip::Window)),
            // The herald knows, and whoever shows this asks it.
            channels_failing: Vec::new(),
        }
    }

    /// The state that people see: one that runs has a process. A run that has ended is ending until its
    /// output was examined; a run whose process is not known yet is starting.
    fn shown_state(&self, name: &Name, state: State) -> State {
        if state != State::Running || self.processes.contains_key(name) {
            return state;
        }
        let is_dying = self.dying.iter().any(|dying| dying.key.agent == *name);
        if is_dying { State::Stopping } else { State::Starting }
    }

    fn agent_status(&self, id: AgentId) -> AgentStatus {
        let now = now();
        let line = self.agent_line(id, now);
        let name = self.supervisor.name(id);
        let view = self.view.agent(name);
        let config = self.recipe(name).map(|(_, agent)| agent);
        let question = self.questions.get(name);
        let asks = self.supervisor.sight(id).reason == Some(Reason::Wait(WaitReason::Prompt));
        let started = view.and_then(|view| view.started);
        let death = view.and_then(|view| view.last_death.as_deref()).zip(line.last_death);
        let (capabilities, capabilities_pending) = self.capabilities_shown(name);
        AgentStatus {
            name: line.name,
            project: line.project,
            group: self.supervisor.group_of(id).cloned(),
            state: line.state,
            goal: line.goal,
            reason: line.reason,
            question: question.filter(|_| asks).cloned(),
            pid: line.pid,
            run: line.run,
            restarts: line.restarts,
            consecutive_failures: view.map_or(0, |view| view.consecutive_failures),
            started_at: started.map(|started| stamp(started.wall)),
            uptime_s: line.uptime_s,
            next_at: line.next_at,
            last_activity_at: line.last_activity_at,
            last_death: death.map(|(death, line)| self.death_status(name, death, line)),
            status_text: line.status_text,
            heartbeat_age_s: self.supervisor.beat_age(id, now.mono).map(whole).map(Seconds),
            balance: self.balances_of(name),
            spent: self.spent_of(name),
            unmetered: self.unmetered_of(name),
            estimated: if self.is_estimated(name) { vec!["usd".to_owned()] } else { Vec::new() },
            capabilities,
            capabilities_pending,
            kind: config.map_or("generic", |config| config.kind.word()).to_owned(),
            command: config.map(|config| argv(&config.command)).unwrap_or_default(),
            pty: config.is_some_and(|config| config.pty),
            flapping: line.flapping,
            loop_detected: line.loop_detected,
            channels_failing: line.channels_failing,
        }
    }

    /// All that is known of an agent's last death.
    fn death_status(&self, name: &Name, death: &LastDeath, line: DeathLine) -> DeathStatus {
        let used = self.used_by(name, death.run);
        DeathStatus {
            at: line.at,
            class: line.class,
            kind: death.kind,
            exit_code: line.exit_code,
            signal: line.signal,
            ran_s: Seconds(death.ran),
            evidence: death.evidence.as_deref().map(str::to_owned),
            trace: self.trace_of(name, death.run),
            cpu_user_ms: used.cpu_user_ms,
            cpu_system_ms: used.cpu_system_ms,
            memory_peak_bytes: used.memory_peak_bytes,
        }
    }

    /// Says of an agent that lives that its command is not run.
    fn held_word(&self, name: &Name) -> Option<String> {
        let held = self.processes.contains_key(name) && self.holds_command(name);
        held.then(|| HELD.to_owned())
    }

    /// What an agent's run that does not end is to people.
    fn stuck_word(&self, name: &Name, run: Option<RunId>) -> Option<String> {
        let stuck = self.liveness.stuck.get(name).copied();
        (stuck.is_some() && stuck == run).then(|| "killed, but stuck in the kernel".to_owned())
    }

    /// What can be said of all agents together without the events.
    pub(super) fn supervisor_status(&self) -> SupervisorStatus {
        let names = || self.supervisor.declared().map(|(_, name)| name);
        let backoff = |name: &Name| {
            let policy = &self.recipe(name)?.1.policy;
            let view = self.view.agent(name);
            let failures = view.map_or(0, |view| view.consecutive_failures);
            // While it waits, the delay it waits for; else the one that would come next.
            let waits = view.is_some_and(|view| view.sight.state == State::Backoff);
            let attempt = if waits { failures } else { failures.saturating_add(1) };
            let mut plain = Jitter::OFF;
            let delay = policy.backoff.delay(attempt, &mut plain);
            Some((name.clone(), delay.as_secs_f64()))
        };
        SupervisorStatus {
            agent_restart_counts: names().map(|name| (name.clone(), 0)).collect(),
            agent_current_backoff: names().filter_map(backoff).collect(),
            total_restarts: self.supervisor.total_restarts(),
            ..SupervisorStatus::default()
        }
    }

    /// The stack trace of a run, where it is that of the last death.
    fn trace_of(&self, name: &Name, run: Option<RunId>) -> Option<String> {
        let (of, trace) = self.traces.get(name)?;
        (Some(*of) == run).then(|| trace.clone())
    }

    /// When an agent that does nothing is triggered. One that a person has stopped is not.
    fn next_tick(&self, id: AgentId, state: State) -> Option<String> {
        let at_rest = matches!(state, State::Idle | State::Done | State::Stopped);
        let heeds = at_rest && self.supervisor.goal(id) == Goal::Up;
        let tick = self.timetable.ticks.get(self.supervisor.name(id));
        tick.filter(|_| heeds).map(|tick| stamp(*tick))
    }

    /// What the agent's latest run says of itself; what a dead one said last is still of use.
    fn own_text(&self, name: &Name, run: Option<RunId>) -> Option<String> {
        let own = self.own.get(name).filter(|own| Some(own.run) == run)?;
        own.text.clone()
    }

    pub(super) fn runs_in(&self, scope: &Scope) -> BTreeMap<Name, Option<RunId>> {
        let run = |id: AgentId| (self.supervisor.name(id).clone(), self.supervisor.sight(id).run);
        self.ids_in(scope).into_iter().map(run).collect()
    }

    pub(super) fn ids_in(&self, scope: &Scope) -> Vec<AgentId> {
        match scope {
            Scope::Agent(id) => vec![*id],
            Scope::Group(group) => self.supervisor.members(*group).collect(),
            Scope::Agents(ids) => ids.to_vec(),
            Scope::Project(_) | Scope::All => {
                self.supervisor.declared().map(|(id, _)| id).collect()
            }
        }
    }

    /// Agents by their keys, as far as they are there.
    pub(super) fn statuses_of(&self, keys: &[Name]) -> Vec<AgentStatus> {
        let ids = keys.iter().filter_map(|key| self.supervisor.agent(key));
        ids.map(|id| self.agent_status(id)).collect()
    }

    /// Whether nothing is left that could have a process.
    pub(super) fn is_all_down(&self) -> bool {
        self.processes.is_empty()
            && self.supervisor.declared().all(|(id, _)| match self.supervisor.sight(id).state {
                State::Starting
                | State::Running
                | State::Stopping
                | State::Backoff
                | State::Waiting => false,
                State::Idle | State::Stopped | State::Done | State::Halted | State::CrashedOut => {
                    true
                }
            })
    }
}

fn reason_word(reason: Reason) -> String {
    match reason {
        Reason::Wait(reason) => reason.word().to_owned(),
        Reason::Failed => "failed".to_owned(),
        Reason::Halt(class) => class.word().to_owned(),
        Reason::Trip(trip) => match trip {
            Trip::Window => "limit over a window",
            Trip::Count => "limit",
            Trip::Total => "total of restarts",
            Trip::Group => "its group failed",
        }
        .to_owned(),
    }
}

/// Without the fraction of a millisecond that nobody wants to read.
fn whole(span: std::time::Duration) -> std::time::Duration {
    std::time::Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

/// The reason shown for an agent that ends cleanly again and again.
fn looping(runs_per_hour: u64) -> String {
    format!("looping, {runs_per_hour} runs/h")
}
