//! The daemon, as its keeper sees it: a process that comes back.
//!
//! Invariant: there is at most one, and the next is started only when the last has been waited for, or when
//! it was killed and one of its threads is stuck in the kernel: then it executes nothing any more.
//! It comes back at once; if it keeps dying within a second, after 100 ms, then twice that, up to 5 s,
//! for as long as it takes. It refuses to trust it: a daemon that sends garbage is killed.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Pid;
use rustix::time::Timespec;

use crate::channel::{Channel, ChannelError, Flushed, MAX_DESCRIPTORS};
use crate::child::{Child, Fault, Launcher, Plan, SLOTS, Streams, Texts};
use crate::launch::arguments;
use crate::output::RunOutput;
use crate::protocol::{News, Request, Stage};
use crate::say;
use crate::standing::Standing;

/// In the daemon's environment: the descriptor of its channel to the keeper.
pub const KEEPER_FD: &str = "DEFIB_KEEPER_FD";
/// In the daemon's environment: the descriptor of the listening socket that is held for it.
pub const LISTENER_FD: &str = "DEFIB_LISTENER_FD";

/// A life shorter than this is a short one.
const SHORT: Duration = Duration::from_secs(1);
/// How long a daemon that was killed may take to end.
const LONGEST_DYING: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long news wait for company that nobody waits for. Whoever was just spawned is about to run its
/// program, and the daemon would take the processor from it.
const LINGER: Duration = Duration::from_millis(1);
/// So many parcels may wait before anything is added to them that brings a descriptor. Each holds some
/// a second time, and where thousands run there is room for few.
const FEW_PARCELS: usize = 8;

/// The daemon and how to start it.
pub(crate) struct Daemon {
    program: PathBuf,
    /// What the next one is started from, if not from the same.
    replacement: Option<PathBuf>,
    /// What to go back to if the program is new and does not work.
    proven: Option<PathBuf>,
    arguments: Vec<OsString>,
    listener: OwnedFd,
    state: State,
    starts: u64,
    short_lives: u32,
}

enum State {
    Away { until: Instant },
    Running(Running),
}

struct Running {
    child: Child,
    /// None: it broke, and the process has been killed.
    channel: Option<Channel<News, Request>>,
    /// When it was killed.
    killed: Option<Instant>,
    since: Instant,
    has_spoken: bool,
    /// What is queued, if all of it can wait for company.
    patient: Option<Patient>,
}

/// News that can wait for more of the same.
#[derive(Default)]
struct Patient {
    count: usize,
    /// Until when the first of them does.
    until: Option<Instant>,
}

impl Daemon {
    pub(crate) fn new(program: PathBuf, arguments: Vec<OsString>, listener: OwnedFd) -> Daemon {
        let state = State::Away { until: Instant::now() };
        Daemon {
            program,
            replacement: None,
            proven: None,
            arguments,
            listener,
            state,
            starts: 0,
            short_lives: 0,
        }
    }

    /// The next time that [`Daemon::start`] has something to do.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self.state {
            State::Away { until } => Some(until),
            State::Running(_) => None,
        }
    }

    /// Starts it. Says how many there were before, or `None` if it could not be started.
    pub(crate) fn start(&mut self, launcher: &mut Launcher, standing: &Standing) -> Option<u64> {
        let since = Instant::now();
        if let Some(program) = self.replacement.take() {
            self.proven = Some(std::mem::replace(&mut self.program, program));
        }
        match self.launch(launcher, standing) {
            Ok((child, channel)) => {
                let channel = Some(channel);
                let (killed, has_spoken, patient) = (None, false, Some(Patient::default()));
                let running = Running { child, channel, killed, since, has_spoken, patient };
                self.state = State::Running(running);
                self.starts += 1;
                Some(self.starts - 1)
            }
            Err(Fault { stage, errno }) => {
                let program = self.program.display();
                say(&format!("cannot start {program}: {errno} ({stage:?})"));
                self.plan_next(since, false);
                None
            }
        }
    }

    fn launch(
        &self,
        launcher: &mut Launcher,
        standing: &Standing,
    ) -> Result<(Child, Channel<News, Request>), Fault> {
        let malformed = Fault { stage: Stage::Program, errno: rustix::io::Errno::INVAL };
        let program = self.program.as_os_str().as_bytes();
        let texts =
            std::iter::once(program).chain(self.arguments.iter().map(|text| text.as_bytes()));
        let ours = [(KEEPER_FD, SLOTS[0].to_string()), (LISTENER_FD, SLOTS[1].to_string())];
        let is_ours =
            |name: &OsString| ours.iter().any(|(own, _)| name.as_bytes() == own.as_bytes());
        let inherited: Vec<_> = std::env::vars_os().filter(|(name, _)| !is_ours(name)).collect();
        let inherited = inherited.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let environment = ours.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let environment = environment.chain(inherited).map(|(name, value)| [name, b"=", value]);
        let plan = Plan {
            programs: vec![CString::new(program).map_err(|_| malformed)?],
            arguments: arguments(texts).ok_or(malformed)?,
            environment: Texts::new(environment).ok_or(malformed)?,
            folder: None,
            streams: Streams::Keeper,
            umask: None,
            identity: None,
            limits: standing.limits_before(),
            oom_score: standing.oom_score_before(),
            door: None,
            confinement: None,
            // It outlives a keeper that was killed: it sweeps, and is the next one.
            dies_with_keeper: false,
        };
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
                .map_err(Fault::at(Stage::Descriptors))?;
        let handed = [Some(theirs.as_fd()), Some(self.listener.as_fd())];
        Ok((launcher.launch(&plan, handed)?, Channel::new(ours)))
    }

    /// Gives this listener to the running daemon, and to those that come after it.
    pub(crate) fn listen_on(&mut self, listener: OwnedFd) {
        self.listener = listener;
        // A descriptor of its own: the channel is used while the listener is borrowed.
        if let Ok(listener) = rustix::io::fcntl_dupfd_cloexec(&self.listener, 10) {
            self.tell(&News::Rebound, Some(listener.as_fd()));
        }
    }

    /// Its process, if there is one.
    pub(crate) fn pid(&self) -> Option<Pid> {
        match &self.state {
            State::Away { .. } => None,
            State::Running(running) => Some(running.child.pid),
        }
    }

    /// When a daemon that was killed is not waited for any longer: a thread of it is stuck in the kernel, on
    /// a file system that does not answer. It has a SIGKILL pending, so it executes nothing any more.
    pub(crate) fn is_stuck_at(&self) -> Option<Instant> {
        match &self.state {
            State::Away { .. } => None,
            State::Running(running) => running.killed.map(|killed| killed + LONGEST_DYING),
        }
    }

    /// The channel to it, if there is one that works.
    pub(crate) fn channel(&self) -> Option<&Channel<News, Request>> {
        match &self.state {
            State::Away { .. } => None,
            State::Running(running) => running.channel.as_ref(),
        }
    }

    /// Queues news. Without a daemon they are dropped: whatever is held is told to the next.
    pub(crate) fn tell(&mut self, news: &News, fd: Option<BorrowedFd<'_>>) {
        self.with_channel(|channel| channel.send(news, fd.as_slice()));
        if let State::Running(running) = &mut self.state {
            running.patient = None;
        }
    }

    /// Queues news of a run with the descriptors of its output.
    pub(crate) fn tell_output(&mut self, news: &News, output: &RunOutput) {
        self.with_channel(|channel| channel.send(news, &output.descriptors()));
        if let State::Running(running) = &mut self.state {
            running.patient = None;
        }
    }

    /// Queues news that nobody is kept waiting by: a few of them are sent at once.
    pub(crate) fn tell_in_company(&mut self, news: &News, fds: &[BorrowedFd<'_>]) {
        self.with_channel(|channel| channel.send(news, fds));
        if let State::Running(Running { patient: Some(patient), .. }) = &mut self.state {
            patient.count += 1;
            patient.until.get_or_insert_with(|| Instant::now() + LINGER);
        }
    }

    /// Sends what is queued, unless all of that waits for company that is about to come.
    pub(crate) fn flush_company(&mut self) {
        if self.patient().is_none_or(|patient| patient.count >= MAX_DESCRIPTORS) {
            self.flush();
        }
    }

    /// Sends what is queued, unless all of that waits for company that may come.
    pub(crate) fn flush_due(&mut self, now: Instant) {
        if self.lingers_until().is_none_or(|until| until <= now) {
            self.flush();
        }
    }

    /// Until when all that is queued waits for company, if it does.
    pub(crate) fn lingers_until(&self) -> Option<Instant> {
        self.patient().and_then(|patient| patient.until)
    }

    fn patient(&self) -> Option<&Patient> {
        match &self.state {
            State::Running(running) => running.patient.as_ref(),
            State::Away { .. } => None,
        }
    }

    /// Sends what is queued. To a daemon that has just died nothing can be sent, but what it said
    /// before that is still to be read: the channel is given up by whoever reads its end.
    pub(crate) fn flush(&mut self) {
        let flushed = self.with_channel(|channel| match channel.flush() {
            Err(ChannelError::Closed) => {
                // A full queue would keep us from reading.
                channel.discard_queued();
                Ok(Flushed::All)
            }
            flushed => flushed,
        });
        if let State::Running(running) = &mut self.state {
            running.patient = (flushed == Some(Flushed::All)).then(Patient::default);
        }
    }

    /// Whether it has yet to read so much that nothing should be added to it that can wait.
    pub(crate) fn lags(&self) -> bool {
        self.channel().is_some_and(|channel| channel.queued_parcels() > FEW_PARCELS)
    }

    /// Lets the daemon read until little is queued, or until it takes too long.
    pub(crate) fn make_room(&mut self, until: Instant) {
        self.flush();
        while let Some(channel) = self.channel().filter(|_| self.lags()) {
            let mut polled = [PollFd::new(channel, PollFlags::OUT)];
            let left = until.saturating_duration_since(Instant::now());
            let Ok(left) = Timespec::try_from(left) else { return };
            // Without its other end there is nobody to wait for; whoever reads its end says so.
            let gone = PollFlags::HUP | PollFlags::ERR;
            match rustix::event::poll(&mut polled, Some(&left)) {
                Ok(1..) if !polled.iter().any(|it| it.revents().intersects(gone)) => self.flush(),
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// The next request, if one has come.
    pub(crate) fn next_request(&mut self) -> Option<Request> {
        let request = self.with_channel(Channel::receive).flatten();
        if let (Some(_), State::Running(running)) = (&request, &mut self.state) {
            running.has_spoken = true;
        }
        // Requests bring no descriptors; those that came along are closed here.
        request.map(|(request, _)| request)
    }

    /// Uses the channel. If that fails, channel and daemon are of no use any more.
    fn with_channel<T>(
        &mut self,
        action: impl FnOnce(&mut Channel<News, Request>) -> Result<T, ChannelError>,
    ) -> Option<T> {
        let State::Running(running) = &mut self.state else { return None };
        match action(running.channel.as_mut()?) {
            Ok(value) => Some(value),
            Err(error) => {
                if error != ChannelError::Closed {
                    say(&format!("the daemon's channel broke: {error}"));
                }
                running.channel = None;
                running.killed.get_or_insert_with(Instant::now);
                running.child.kill();
                None
            }
        }
    }

    /// Its process has been waited for.
    pub(crate) fn has_ended(&mut self) {
        if let State::Running(Running { since, has_spoken, .. }) = self.state {
            self.plan_next(since, has_spoken);
        }
    }

    fn plan_next(&mut self, since: Instant, has_spoken: bool) {
        let now = Instant::now();
        let short = now.duration_since(since) < SHORT;
        if let Some(proven) = self.proven.take()
            && short
            && !has_spoken
        {
            say(&format!("{} does not work; back to {}", self.program.display(), proven.display()));
            self.program = proven;
        }
        self.short_lives = if short { self.short_lives.saturating_add(1) } else { 0 };
        self.state = State::Away { until: now + pause_after(self.short_lives) };
    }

    /// The next one is started from this program.
    pub(crate) fn replace(&mut self, program: String) {
        self.replacement = Some(PathBuf::from(program));
    }

    /// Ends it, now.
    pub(crate) fn kill(&self) {
        if let State::Running(running) = &self.state {
            running.child.kill();
        }
    }
}

/// How long to wait after this many short lives in a row.
fn pause_after(short_lives: u32) -> Duration {
    match short_lives.checked_sub(2) {
        None => Duration::ZERO,
        Some(doublings) => FIRST_PAUSE.saturating_mul(1 << doublings.min(16)).min(LONGEST_PAUSE),
    }
}

/// The daemon's end of its channel, and its listener, by what its keeper put into its environment.
///
/// # Errors
/// If it was not started by a keeper, or the second time.
pub fn inherited() -> io::Result<(Channel<Request, News>, OwnedFd)> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    for (name, slot) in [(KEEPER_FD, SLOTS[0]), (LISTENER_FD, SLOTS[1])] {
        if std::env::var(name).is_ok_and(|text| text == slot.to_string()) {
            continue;
        }
        return Err(io::Error::other(format!("{name} is not set: no keeper started this")));
    }
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Err(io::Error::other("the keeper's descriptors have been taken already"));
    }
    // SAFETY: the keeper opened these two for this program before it began and said so in its
    // environment; nobody else in it was told, and they are taken once.
    let (channel, listener) =
        unsafe { (OwnedFd::from_raw_fd(SLOTS[0]), OwnedFd::from_raw_fd(SLOTS[1])) };
    for fd in [&channel, &listener] {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok((Channel::new(channel), listener))
}

/// Gives this thread of the daemon a descriptor table of its own, without any socket: neither the channel to the
/// keeper, nor listeners, nor connections of clients. For a thread that may get stuck in the kernel: when the
/// daemon closes a connection or is killed, the other side sees the end although such a thread is left.
pub fn leave_sockets() {
    // SAFETY: takes a number. The table of the other threads stays as it is.
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        return;
    }
    for number in crate::descent::numbers_in("/proc/thread-self/fd") {
        let number = number.as_raw_pid();
        // SAFETY: a `stat` of zeros is valid, and is written by the call alone.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: `found` outlives the call, which writes nothing else.
        let known = unsafe { libc::fstat(number, &raw mut found) } == 0;
        if known && found.st_mode & libc::S_IFMT == libc::S_IFSOCK {
            // SAFETY: this thread uses no socket, and the table is its own.
            unsafe { libc::close(number) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_comes_back_at_once_then_later_and_later_but_always() {
        let pauses: Vec<u64> =
            (0..10).map(|lives| u64::try_from(pause_after(lives).as_millis()).unwrap()).collect();
        assert_eq!(pauses, [0, 0, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(pause_after(u32::MAX), LONGEST_PAUSE);
    }
}
