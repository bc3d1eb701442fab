//! The vigil: sees beats, hears notify sockets, and looks whether silent runs do anything.
//!
//! A thread waits for the kernel to tell, or for the next look at an agent with `hang`, and leaves
//! what it saw for the engine. Before the engine lets a deadline pass it takes a look itself, so that
//! a beat that came in time counts, however late the thread or the engine are.
//!
//! Invariant: however much an agent says, the thread looks at most fifty times a second, and at most
//! ten beats a second of one agent reach the engine; the last one is never lost.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use defib_core::{Mono, Name};
use defib_host::activity::{Activity, activity, descendants_cpu};
use defib_host::clock::now;
use defib_host::notify::{LONGEST, Received, Sender, receive};
use defib_host::protocol::RunKey;
use defib_host::wake::Waker;
use defib_host::{is_of_run, pack};
use rustix::event::epoll;
use rustix::time::Timespec;

use super::heartbeat::{HeartbeatFiles, ToWatch, look};
use super::linger::Lingering;
use super::notify::{Word, words};
use crate::places::AgentFile;
use crate::workers::Workers;

/// The shortest time between two looks of the thread, and between two beats of an agent.
const LOOK_GAP: Duration = Duration::from_millis(20);
const BEAT_GAP: Duration = Duration::from_millis(100);
/// The shortest time between two samples for `hang`.
const SAMPLE_GAP: Duration = Duration::from_millis(250);
/// How long the engine waits for files that cannot be watched, when a deadline is about to pass.
const LONGEST_LOOK: Duration = Duration::from_millis(50);
/// So many datagrams of one agent are read before others have their turn, or its run is over.
const IN_TURN: usize = 64;
const AT_THE_END: usize = 4096;
/// Keys in the epoll set that no agent's socket has.
const WAKE: u64 = u64::MAX;
const FILES: u64 = u64::MAX - 1;

/// What a run showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sign {
    pub(crate) key: RunKey,
    pub(crate) shown: Shown,
}

/// What was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shown {
    /// A word on its notify socket; or a touch of its file, which is a beat too.
    Word(Word),
    /// It wrote something, had CPU time, or began or ended a process.
    Activity,
    /// It finished its work and has not exited for as long as it may.
    Lingered,
}

/// What is to be watched of a run.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    pub(crate) key: RunKey,
    /// Its first process.
    pub(crate) pid: u32,
    /// The number of its user, if that is not the daemon's.
    pub(crate) user: Option<u32>,
    /// The file whose touch is a beat, where beats matter.
    pub(crate) file: Option<AgentFile>,
    /// The longest time without any activity, and the folder of its log.
    pub(crate) hang: Option<Box<(Duration, PathBuf)>>,
}

/// The way to the vigil.
#[derive(Debug, Clone)]
pub(crate) struct Vigil {
    desk: Arc<Mutex<Desk>>,
    wake: Arc<Waker>,
    workers: Workers,
}

impl Vigil {
    /// Starts it. `tell` is called on its thread when there are signs to be taken.
    pub(crate) fn start(workers: Workers, tell: impl Fn() + Send + 'static) -> io::Result<Vigil> {
        let wake = Arc::new(Waker::new()?);
        let files = HeartbeatFiles::new()?;
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let waiting = rustix::io::dup(&set)?;
        for (source, key) in [(wake.as_fd(), WAKE), (files.as_fd(), FILES)] {
            epoll::add(&set, source, epoll::EventData::new_u64(key), epoll::EventFlags::IN)?;
        }
        let desk = Desk {
            set,
            files,
            sockets: BTreeMap::new(),
            heard: BTreeMap::new(),
            next_key: 0,
            runs: BTreeMap::new(),
            signs: Vec::new(),
            lost: false,
        };
        let vigil = Vigil { desk: Arc::new(Mutex::new(desk)), wake, workers };
        let own = vigil.clone();
        thread::Builder::new().name("vigil".to_owned()).spawn(move || own.watch(&waiting, tell))?;
        Ok(vigil)
    }

    fn watch(&self, waiting: &OwnedFd, tell: impl Fn()) {
        let mut events = Vec::with_capacity(8);
        let mut last = Instant::now();
        loop {
            let due = self.desk().next_due();
            let timeout = due.map(|due| due.since(now().mono).max(Duration::from_millis(1)));
            let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            // An interruption is as good as an event: everything is looked at anyway.
            let _ = epoll::wait(waiting, room, timeout.as_ref());
            self.wake.take();
            if let Some(early) = LOOK_GAP.checked_sub(last.elapsed()) {
                thread::sleep(early);
            }
            last = Instant::now();
            let has_signs = {
                let mut desk = self.desk();
                desk.look(now().mono);
                !desk.signs.is_empty()
            };
            if has_signs {
                tell();
            }
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        // Whoever panicked left nothing that the next look does not put right.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has been seen.
    pub(crate) fn take(&self) -> Vec<Sign> {
        std::mem::take(&mut self.desk().signs)
    }

    /// Looks now, and gives everything that has been seen: a deadline is about to pass.
    pub(crate) fn look_now(&self, now: Mono) -> Vec<Sign> {
        let unwatched = {
            let mut desk = self.desk();
            desk.look(now);
            let lost = std::mem::take(&mut desk.lost);
            desk.files.to_look_at(lost)
        };
        self.look_at(unwatched, now);
        let mut desk = self.desk();
        desk.hand_on_beats(now, Duration::ZERO);
        std::mem::take(&mut desk.signs)
    }

    /// Has files looked at by workers, and waits for that, but not for a file system that does not answer.
    fn look_at(&self, files: Vec<(Name, AgentFile)>, now: Mono) {
        if files.is_empty() {
            return;
        }
        let (send, looks) = std::sync::mpsc::channel();
        for (agent, file) in files {
            let (send, name) = (send.clone(), agent.clone());
            self.workers.run(&agent, move || {
                let seen = look(&file);
                drop(send.send((name, file, seen)));
            });
        }
        drop(send);
        let until = Instant::now() + LONGEST_LOOK;
        while let Ok((agent, file, seen)) =
            looks.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            let mut desk = self.desk();
            if desk.files.looked(&agent, &file, seen) {
                desk.beat(&agent, now);
            }
        }
    }

    /// Watches a run from now on, or anew if something about it has changed.
    pub(crate) fn attend(&self, watch: Watch) {
        let (has_hang, agent) = (watch.hang.is_some(), watch.key.agent.clone());
        let to_watch = self.desk().attend(watch);
        if let Some(to_watch) = to_watch.as_ref().filter(|it| it.file.in_state) {
            // Nothing blocks, and a worker per start would slow down the start of a thousand agents.
            let begun = to_watch.begin();
            self.desk().files.begun(&agent, &to_watch.file, &begun);
        } else if let Some(to_watch) = to_watch {
            let (vigil, name) = (self.clone(), agent.clone());
            self.workers.run(&agent, move || {
                let begun = to_watch.begin();
                vigil.desk().files.begun(&name, &to_watch.file, &begun);
            });
        }
        if has_hang {
            // The thread does not know yet when to look.
            self.wake.wake();
        }
    }

    /// A run has finished its work and may go on for this long, or works again.
    pub(crate) fn finished(&self, key: &RunKey, may_linger: Option<Duration>) {
        self.desk().finished(key, may_linger);
        self.wake.wake();
    }

    /// The run is over. Gives what it said before that.
    pub(crate) fn leave(&self, key: &RunKey) -> Vec<Sign> {
        self.desk().leave(key)
    }

    /// The notify socket of an agent, which the keeper holds too.
    pub(crate) fn hold(&self, agent: Name, socket: OwnedFd) {
        self.desk().sockets.insert(agent, socket);
    }

    /// Takes no more memory than it needs.
    pub(crate) fn pack(&self) {
        let mut desk = self.desk();
        pack(&mut desk.sockets);
        pack(&mut desk.heard);
        pack(&mut desk.runs);
    }

    /// The agent is gone.
    pub(crate) fn forget(&self, agent: &Name) {
        let mut desk = self.desk();
        desk.files.forget(agent);
        desk.stop_hearing(agent);
        desk.runs.remove(agent);
        desk.sockets.remove(agent);
    }
}

/// A run that is watched.
#[derive(Debug)]
struct Attended {
    watch: Watch,
    /// Its socket's key in the epoll set.
    key: Option<u64>,
    /// The last beat that was handed on.
    last_beat: Option<Mono>,
    /// Whether another came too soon after that one, and is handed on later.
    held_back: bool,
    sampled: Option<Box<Sample>>,
    lingering: Option<Box<Lingering>>,
}

/// What a run had done when it was last looked at.
#[derive(Debug, PartialEq, Eq)]
struct Sample {
    at: Mono,
    activity: Activity,
    written: Option<i64>,
}

#[derive(Debug)]
struct Desk {
    set: OwnedFd,
    files: HeartbeatFiles,
    sockets: BTreeMap<Name, OwnedFd>,
    heard: BTreeMap<u64, Name>,
    next_key: u64,
    runs: BTreeMap<Name, Attended>,
    signs: Vec<Sign>,
    /// Whether the kernel has lost touches of files.
    lost: bool,
}

impl Desk {
    /// Gives what a worker has to do.
    fn attend(&mut self, watch: Watch) -> Option<ToWatch> {
        let name = watch.key.agent.clone();
        let to_watch = watch.file.as_ref().and_then(|file| self.files.watch(&name, file));
        if watch.file.is_none() {
            self.files.forget(&name);
        }
        if let Some(run) = self.runs.get_mut(&name).filter(|run| run.watch.key == watch.key) {
            run.watch = watch;
            return to_watch;
        }
        self.stop_hearing(&name);
        let key = self.sockets.get(&name).and_then(|socket| {
            let key = self.next_key;
            let data = epoll::EventData::new_u64(key);
            epoll::add(&self.set, socket, data, epoll::EventFlags::IN).ok()?;
            Some(key)
        });
        if let Some(key) = key {
            self.next_key += 1;
            self.heard.insert(key, name.clone());
        }
        let run = Attended {
            watch,
            key,
            last_beat: None,
            held_back: false,
            sampled: None,
            lingering: None,
        };
        self.runs.insert(name, run);
        to_watch
    }

    fn finished(&mut self, key: &RunKey, may_linger: Option<Duration>) {
        let run = self.runs.get_mut(&key.agent).filter(|run| run.watch.key == *key);
        let Some(run) = run else { return };
        match (&mut run.lingering, may_linger) {
            (Some(lingering), Some(span)) => lingering.change(span),
            (none @ None, Some(span)) => {
                *none = Some(Box::new(Lingering::new(now().mono, span)));
            }
            (lingering, None) => *lingering = None,
        }
    }

    fn stop_hearing(&mut self, agent: &Name) {
        if let Some(key) = self.runs.get_mut(agent).and_then(|run| run.key.take()) {
            self.heard.remove(&key);
            if let Some(socket) = self.sockets.get(agent) {
                let _ = epoll::delete(&self.set, socket);
            }
        }
    }

    fn leave(&mut self, key: &RunKey) -> Vec<Sign> {
        if self.runs.get(&key.agent).is_none_or(|run| run.watch.key != *key) {
            return Vec::new();
        }
        let now = now().mono;
        self.look(now);
        self.hear(&key.agent, now, AT_THE_END);
        self.hand_on_beats(now, Duration::ZERO);
        self.stop_hearing(&key.agent);
        self.runs.remove(&key.agent);
        std::mem::take(&mut self.signs)
    }

    /// Everything that has happened since the last look.
    fn look(&mut self, now: Mono) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(256);
        let at_once = Timespec::default();
        let room = rustix::buffer::spare_capacity(&mut events);
        let _ = epoll::wait(&self.set, room, Some(&at_once));
        for event in &events {
            match event.data.u64() {
                WAKE => {}
                FILES => {
                    let (touched, lost) = self.files.touched();
                    self.lost |= lost;
                    for name in touched {
                        self.beat(&name, now);
                    }
                }
                key => {
                    if let Some(name) = self.heard.get(&key).cloned() {
                        self.hear(&name, now, IN_TURN);
                    }
                }
            }
        }
        let due = |run: &Attended| run.next_sample().is_some_and(|due| due <= now);
        for run in self.runs.values_mut().filter(|run| due(run)) {
            if run.has_moved(now) {
                let key = run.watch.key.clone();
                self.signs.push(Sign { key, shown: Shown::Activity });
            }
        }
        for run in self.runs.values_mut() {
            if run.has_lingered(now) {
                let key = run.watch.key.clone();
                self.signs.push(Sign { key, shown: Shown::Lingered });
            }
        }
        self.hand_on_beats(now, BEAT_GAP);
    }

    /// Reads what an agent has said.
    fn hear(&mut self, name: &Name, now: Mono, most: usize) {
        let Some(socket) = self.sockets.get(name) else { return };
        let Some(run) = self.runs.get(name) else { return };
        let mut buffer = [0; LONGEST];
        let mut said = Vec::new();
        for _ in 0..most {
            match receive(socket, &mut buffer) {
                Received::Datagram(length, sender) => {
                    if run.is_from_it(sender) {
                        said.extend(words(buffer.get(..length).unwrap_or_default()));
                    }
                }
                Received::Nonsense => {}
                Received::Nothing => break,
            }
        }
        let last_text = said.iter().rposition(|word| matches!(word, Word::Text(_)));
        for (at, word) in said.into_iter().enumerate() {
            match word {
                Word::Beat => self.beat(name, now),
                // Only the last of many is of use to anybody.
                Word::Text(_) if Some(at) != last_text => {}
                Word::Text(_) | Word::Ready | Word::Trigger | Word::Stopping | Word::Extend(_) => {
                    self.sign(name, word);
                }
            }
        }
    }

    fn sign(&mut self, name: &Name, word: Word) {
        if let Some(run) = self.runs.get(name) {
            let key = run.watch.key.clone();
            self.signs.push(Sign { key, shown: Shown::Word(word) });
        }
    }

    fn beat(&mut self, name: &Name, at: Mono) {
        let Some(run) = self.runs.get_mut(name) else { return };
        if run.last_beat.is_some_and(|last| at.since(last) < BEAT_GAP) {
            run.held_back = true;
            return;
        }
        (run.last_beat, run.held_back) = (Some(at), false);
        self.sign(name, Word::Beat);
    }

    /// Hands on the beats that were held back and whose time has come.
    fn hand_on_beats(&mut self, now: Mono, gap: Duration) {
        for run in self.runs.values_mut().filter(|run| run.held_back) {
            if run.last_beat.is_none_or(|last| now.since(last) >= gap) {
                (run.last_beat, run.held_back) = (Some(now), false);
                let key = run.watch.key.clone();
                self.signs.push(Sign { key, shown: Shown::Word(Word::Beat) });
            }
        }
    }

    /// When to look even if nothing happens.
    fn next_due(&self) -> Option<Mono> {
        let beats = |run: &Attended| run.last_beat.filter(|_| run.held_back);
        let beats = self.runs.values().filter_map(beats).map(|last| last + BEAT_GAP);
        let lingering = self.runs.values().filter_map(|run| run.lingering.as_deref());
        let looks = lingering.map(Lingering::next_look);
        self.runs.values().filter_map(Attended::next_sample).chain(beats).chain(looks).min()
    }
}

impl Attended {
    /// Whether a datagram is this run's to send. One whose sender has gone is taken on its user's
    /// word, because a helper that says something and ends cannot be asked any more.
    fn is_from_it(&self, sender: Sender) -> bool {
        let RunKey { agent, run } = &self.watch.key;
        let own = self.watch.user.unwrap_or_else(|| rustix::process::geteuid().as_raw());
        let known = is_of_run(sender.pid, self.watch.pid, agent, *run);
        known.unwrap_or(sender.user == own)
    }

    /// When to look again whether it does anything.
    fn next_sample(&self) -> Option<Mono> {
        let (silent_for, _) = self.watch.hang.as_deref()?;
        let gap = (*silent_for / 4).max(SAMPLE_GAP);
        Some(self.sampled.as_ref().map_or(Mono::ZERO, |sample| sample.at + gap))
    }

    /// Whether it finished its work and has gone on for as long as it may. Says so once.
    fn has_lingered(&mut self, now: Mono) -> bool {
        let Some(lingering) = &mut self.lingering else { return false };
        if lingering.next_look() > now {
            return false;
        }
        let RunKey { agent, run } = &self.watch.key;
        let is_over = lingering.look(now, descendants_cpu(self.watch.pid, agent, *run));
        if is_over {
            self.lingering = None;
        }
        is_over
    }

    /// Whether it did anything since it was last looked at.
    fn has_moved(&mut self, now: Mono) -> bool {
        let Some((_, folder)) = self.watch.hang.as_deref() else { return false };
        let RunKey { agent, run } = &self.watch.key;
        let sample = Sample {
            at: now,
            activity: activity(self.watch.pid, agent, *run),
            written: crate::logs::last_written(folder),
        };
        let moved = self.sampled.as_ref().is_none_or(|last| has_moved(last, &sample));
        self.sampled = Some(Box::new(sample));
        moved
    }
}

/// Whether two looks differ in more than what a program does while it does nothing.
fn has_moved(before: &Sample, after: &Sample) -> bool {
    let used = after.activity.cpu.saturating_sub(before.activity.cpu);
    let flat = after.at.since(before.at) / 200;
    used > flat
        || before.activity.processes != after.activity.processes
        || before.written != after.written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_ms: u64, cpu_ms: u64, processes: &[u32], written: i64) -> Sample {
        Sample {
            at: Mono::ZERO + Duration::from_millis(at_ms),
            activity: Activity {
                cpu: Duration::from_millis(cpu_ms),
                processes: processes.iter().copied().collect(),
            },
            written: Some(written),
        }
    }

    #[test]
    fn cpu_time_under_half_a_percent_is_none_and_any_other_change_is_activity() {
        let before = sample(0, 100, &[1, 2], 7);
        for (after, moved) in [
            (sample(10_000, 100, &[1, 2], 7), false),
            (sample(10_000, 150, &[1, 2], 7), false),
            (sample(10_000, 151, &[1, 2], 7), true),
            (sample(10_000, 100, &[1, 3], 7), true),
            (sample(10_000, 90, &[1], 7), true),
            (sample(10_000, 100, &[1, 2], 8), true),
        ] {
            assert_eq!(has_moved(&before, &after), moved, "{after:?}");
        }
    }
}
