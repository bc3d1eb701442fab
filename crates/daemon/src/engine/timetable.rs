//! What comes by the clock or by the world, and not by a death: ticks of triggers, space on a disk,
//! a machine that has slept.
//!
//! Nobody is woken for what nobody waits for: the clock is looked at for the next tick, the disk only
//! while an agent waits for it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use croner::parser::{CronParser, Seconds, Year};
use defib_config::config;
use defib_core::record::WaitReason;
use defib_core::{Class, Input, Mono, Name, Now, Reason, Wall};
use defib_host::clock::{now, slept};
use defib_host::protocol::Request;
use defib_host::{pack, release_memory};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::Engine;
use crate::recipe::Project;

/// How long after a change of what is declared its traces are cleared away.
const TIDY: Duration = Duration::from_secs(2);
/// By then the scribe has packed too.
const PACKED: Duration = Duration::from_millis(300);
/// The first version of the keeper that can be asked to do the same.
const TIDY_KEEPER: u32 = 4;
/// How often a full disk is looked at while somebody waits for it.
const DISK: Duration = Duration::from_secs(5);
/// So much has to be free, or a twentieth of a small disk.
const ENOUGH: u64 = 100 << 20;
/// A tick that is noticed later than this is one that was missed: the machine slept, or the clock
/// was set.
const LATE: Duration = Duration::from_secs(60);
/// A pause of the machine that is worth mentioning.
const NAP: Duration = Duration::from_secs(1);

/// What is waited for that the clock or the world brings.
#[derive(Debug)]
pub(super) struct Timetable {
    /// When each trigger comes next.
    pub(super) ticks: BTreeMap<Name, Wall>,
    /// When the disk is looked at, while somebody waits for it.
    pub(super) disk_look: Option<Mono>,
    /// When what bringing something up has taken is given back.
    pub(super) tidy_at: Option<Mono>,
    /// When that goes back to the system, everybody having packed.
    release_at: Option<Mono>,
    /// How long the machine has slept since it was started.
    slept: Duration,
}

impl Timetable {
    /// Nothing is waited for yet.
    pub(super) fn begin() -> Timetable {
        Timetable {
            ticks: BTreeMap::new(),
            disk_look: None,
            tidy_at: None,
            release_at: None,
            slept: slept(),
        }
    }
}

impl Engine {
    /// Works out every tick anew: what is declared has changed, or the clock.
    pub(super) fn plan_ticks(&mut self) {
        let now = now().wall;
        let agents = self
            .projects
            .values()
            .flat_map(|project| project.config.agents.iter().map(move |agent| (project, agent)));
        self.timetable.ticks = agents
            .filter(|(_, agent)| agent.enabled)
            .filter_map(|(project, agent)| {
                Some((agent.name.clone(), next_tick(project, agent, now)?))
            })
            .collect();
    }

    /// What is declared has changed: what that took is given back when it is over.
    pub(super) fn tidy_soon(&mut self) {
        self.timetable.tidy_at = Some(now().mono + TIDY);
    }

    /// Somebody was started: what that takes comes on top, and is not over yet.
    pub(super) fn put_off_tidying(&mut self) {
        if self.timetable.tidy_at.is_some() {
            self.tidy_soon();
        }
    }

    fn tidy(&mut self) {
        self.view.pack();
        self.own.pack();
        self.liveness.sockets.pack();
        self.liveness.vigil.pack();
        self.activity.pack();
        pack(&mut self.processes);
        if self.liveness.keeper_version >= TIDY_KEEPER {
            self.send(&Request::Tidy);
        }
        self.scribe.pack();
        self.timetable.release_at = Some(now().mono + PACKED);
    }

    /// Gives back to the system what nobody uses any more, once all have packed. To be called last before
    /// the engine sleeps: the code that runs after it comes back.
    pub(super) fn release(&mut self) {
        if self.timetable.release_at.is_some_and(|at| at <= now().mono) {
            self.timetable.release_at = None;
            release_memory();
        }
    }

    /// When something here has to be looked at again.
    pub(super) fn next_look(&self, now: Now) -> Option<Mono> {
        let ticks = self.timetable.ticks.values().map(|tick| now.mono + tick.since(now.wall));
        let Timetable { disk_look, tidy_at, release_at, .. } = self.timetable;
        ticks.chain(disk_look).chain(tidy_at).chain(release_at).min()
    }

    /// Whatever has come is told to the core.
    pub(super) fn look_around(&mut self) {
        let now = now();
        let come = |(name, tick): (&Name, &Wall)| (*tick <= now.wall).then(|| name.clone());
        let come: Vec<Name> = self.timetable.ticks.iter().filter_map(come).collect();
        for name in come {
            self.tick(&name, now.wall);
        }
        if self.timetable.disk_look.is_some_and(|look| look <= now.mono) {
            self.look_at_disks();
        }
        if self.timetable.tidy_at.is_some_and(|at| at <= now.mono) {
            self.timetable.tidy_at = None;
            self.tidy();
        }
    }

    fn tick(&mut self, name: &Name, now: Wall) {
        let next = self.recipe(name).and_then(|(project, agent)| next_tick(project, agent, now));
        let came = match next {
            Some(at) => self.timetable.ticks.insert(name.clone(), at),
            None => self.timetable.ticks.remove(name),
        };
        let in_time = came.is_some_and(|tick| now.since(tick) < LATE);
        if let Some(agent) = self.supervisor.agent(name).filter(|_| in_time) {
            self.handle(Input::Triggered(agent));
        }
    }

    /// Looks for space where agents wait for it, and sees to it that somebody looks again.
    pub(super) fn look_at_disks(&mut self) {
        let reason = Some(Reason::Wait(WaitReason::Cause(Class::Disk)));
        let waits = |(id, name): (defib_core::AgentId, &Name)| {
            (self.supervisor.sight(id).reason == reason).then(|| (id, name.clone()))
        };
        let waiting: Vec<_> = self.supervisor.declared().filter_map(waits).collect();
        self.timetable.disk_look = (!waiting.is_empty()).then(|| now().mono + DISK);
        for (id, name) in waiting {
            let cwd = self.recipe(&name).map(|(project, agent)| project.cwd(agent));
            let places: Vec<PathBuf> = cwd.into_iter().chain([self.home.clone()]).collect();
            if places.iter().all(has_space) {
                self.handle(Input::WaitOver(id));
            }
        }
    }

    /// Silence while the machine slept means nothing.
    pub(super) fn note_sleep(&mut self) {
        let total = slept();
        let nap = total.saturating_sub(self.timetable.slept);
        if nap >= NAP {
            self.timetable.slept = total;
            self.handle(Input::Slept(nap));
            self.plan_ticks();
        }
    }
}

/// A disk that cannot be looked at is no reason to wait.
fn has_space(place: &PathBuf) -> bool {
    rustix::fs::statvfs(place).map_or(true, |disk| {
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let all = disk.f_blocks.saturating_mul(disk.f_frsize);
        free >= ENOUGH.min(all / 20)
    })
}

/// The next moment at which an agent's expression fires, in its own time zone.
fn next_tick(project: &Project, agent: &config::Agent, now: Wall) -> Option<Wall> {
    let expression = agent.cron.as_ref()?;
    let zone = agent.env.get("TZ").or_else(|| project.environment.get("TZ"));
    let zone = zone.and_then(|name| TimeZone::get(name.trim_start_matches(':')).ok());
    next_occurrence(expression, now, zone.unwrap_or_else(TimeZone::system))
}

fn next_occurrence(expression: &str, after: Wall, zone: TimeZone) -> Option<Wall> {
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
    // The file was checked; an expression that fires no more has no next moment.
    let cron = parser.parse(expression).ok()?;
    let after = Timestamp::from_millisecond(after.as_millis()).ok()?.to_zoned(zone);
    let next = cron.find_next_occurrence(&after, false).ok()?;
    Some(Wall::from_millis(next.timestamp().as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(expression: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
        let zone = TimeZone::get(zone).unwrap();
        let from: jiff::Zoned = from.parse().unwrap();
        let mut at = Wall::from_millis(from.timestamp().as_millisecond());
        let next = || {
            at = next_occurrence(expression, at, zone.clone()).unwrap();
            Timestamp::from_millisecond(at.as_millis()).unwrap().to_string()
        };
        std::iter::repeat_with(next).take(count).collect()
    }

    #[test]
    fn a_tick_is_after_now_never_now() {
        assert_eq!(
            after("*/5 * * * *", "UTC", "2026-01-01T00:05:00Z[UTC]", 2),
            ["2026-01-01T00:10:00Z", "2026-01-01T00:15:00Z"]
        );
        assert_eq!(
            after("*/10 * * * * *", "UTC", "2026-01-01T00:00:09.5Z[UTC]", 2),
            ["2026-01-01T00:00:10Z", "2026-01-01T00:00:20Z"]
        );
    }

    #[test]
    fn a_nightly_tick_comes_once_when_the_clocks_are_changed() {
        // Spring: 02:30 does not exist on the 29th of March and comes as soon as it can.
        assert_eq!(
            after("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00+01:00[Europe/Berlin]", 2),
            ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]
        );
        // Autumn: 02:30 comes twice on the 25th of October, the tick once.
        assert_eq!(
            after("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00+02:00[Europe/Berlin]", 2),
            ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
        );
    }
}
