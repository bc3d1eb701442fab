//! A real keeper in a process of its own, and the test in the place of its daemon.
//!
//! Waiting is for events, with a deadline that only a failure reaches.

use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use defib_core::{Name, RunId};
use defib_host::output::{Moved, read_some};
use defib_host::protocol::{Access, Leftovers, News, Profile, Request, RunEnd, RunKey, SpawnOrder};
use defib_host::{Channel, ChannelError, Flushed};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal};
use rustix::time::Timespec;

pub(crate) const FIXTURE: &str = env!("CARGO_BIN_EXE_defib-host-fixture");
const DEADLINE: Duration = Duration::from_secs(30);

/// How a run's processes are found; each rule about them must hold in both.
pub(crate) const WAYS: [&[&str]; 3] = [&[], &["walk"], &["no-clone3"]];

pub(crate) struct Keeper {
    pub(crate) process: Child,
    pub(crate) folder: PathBuf,
    pub(crate) home_key: String,
    introductions: UnixListener,
}

/// The test as the daemon.
pub(crate) struct Daemon {
    pub(crate) channel: Channel<Request, News>,
    pub(crate) listener: OwnedFd,
    pub(crate) pid: u32,
    connection: UnixStream,
    /// News that came while others were waited for.
    aside: VecDeque<(News, Option<OwnedFd>)>,
}

impl Keeper {
    pub(crate) fn start(flags: &[&str]) -> Keeper {
        Keeper::start_by(Command::new(FIXTURE), flags)
    }

    /// `command` runs the fixture, perhaps through something else.
    pub(crate) fn start_by(mut command: Command, flags: &[&str]) -> Keeper {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let home_key = format!("test-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(&home_key);
        std::fs::create_dir(&folder).unwrap();
        let introductions = UnixListener::bind(folder.join("test")).unwrap();
        let process = command
            .arg("keeper")
            .arg(&folder)
            .arg(&home_key)
            .args(flags)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Keeper { process, folder, home_key, introductions }
    }

    /// The next daemon that the keeper starts.
    pub(crate) fn daemon(&self) -> Daemon {
        await_readable(&self.introductions, "a daemon");
        let (connection, _) = self.introductions.accept().unwrap();
        let mut introduction: Channel<(), u32> =
            Channel::new(connection.try_clone().unwrap().into());
        let (pid, fds) = loop {
            await_readable(&connection, "an introduction");
            if let Some(introduced) = introduction.receive().unwrap() {
                break introduced;
            }
        };
        let [channel, listener] = <[OwnedFd; 2]>::try_from(fds).unwrap();
        let channel = Channel::new(channel);
        Daemon { channel, listener, pid, connection, aside: VecDeque::new() }
    }

    /// The first daemon, past its welcome.
    pub(crate) fn welcomed(&self) -> Daemon {
        let mut daemon = self.daemon();
        let told = daemon.told_at_first();
        assert!(matches!(told.as_slice(), [(News::Welcome { .. }, _)]), "{told:?}");
        daemon
    }

    pub(crate) fn pid(&self) -> Pid {
        pid(self.process.id())
    }

    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        let pidfd =
            rustix::process::pidfd_open(self.pid(), rustix::process::PidfdFlags::empty()).unwrap();
        await_readable(&pidfd, "the keeper's end");
        self.process.wait().unwrap()
    }

    /// Sweeps what it left behind, after its death, and says what that did.
    pub(crate) fn sweep(&self) -> String {
        let mut command = Command::new(FIXTURE);
        let sweep = command.arg("sweep").arg(&self.folder).arg(&self.home_key).output().unwrap();
        String::from_utf8_lossy(&sweep.stdout).into_owned()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

impl Drop for Keeper {
    /// Leaves nothing behind, whatever the test found.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = defib_host::sweep(&self.home_key, &self.folder.join("cgroups"));
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Daemon {
    pub(crate) fn ask(&mut self, request: Request) {
        self.channel.send(&request, &[]).unwrap();
        while self.channel.flush().unwrap() == Flushed::Blocked {
            let mut polled = [PollFd::new(&self.channel, PollFlags::OUT)];
            rustix::event::poll(&mut polled, Some(&seconds(1))).unwrap();
        }
    }

    pub(crate) fn try_next(&mut self) -> Result<(News, Option<OwnedFd>), ChannelError> {
        loop {
            if let Some((news, fds)) = self.channel.receive()? {
                // The source is last.
                return Ok((news, fds.into_iter().last()));
            }
            await_readable(&self.channel, "news");
        }
    }

    /// The first news of which `pick` makes something; others are set aside.
    pub(crate) fn find<T>(
        &mut self,
        mut pick: impl FnMut(&News, &mut Option<OwnedFd>) -> Option<T>,
    ) -> T {
        for index in 0..self.aside.len() {
            let (news, fd) = &mut self.aside[index];
            if let Some(found) = pick(news, fd) {
                self.aside.remove(index);
                return found;
            }
        }
        loop {
            let (news, mut fd) = self.try_next().unwrap();
            if let Some(found) = pick(&news, &mut fd) {
                return found;
            }
            self.aside.push_back((news, fd));
        }
    }

    /// What a new daemon is told, without the closing news.
    pub(crate) fn told_at_first(&mut self) -> Vec<(News, Option<OwnedFd>)> {
        let mut told = Vec::new();
        loop {
            let (news, fd) = self.try_next().unwrap();
            if news == News::AllTold {
                return told;
            }
            told.push((news, fd));
        }
    }

    pub(crate) fn spawn(&mut self, order: SpawnOrder) -> (u32, OwnedFd) {
        let key = order.key.clone();
        self.ask(Request::Spawn(Box::new(order)));
        self.spawned(&key)
    }

    fn spawned(&mut self, key: &RunKey) -> (u32, OwnedFd) {
        self.find(|news, fd| match news {
            News::Spawned { key: of, pid, .. } if of == key => Some((*pid, fd.take().unwrap())),
            News::NotSpawned { key: of, errno, stage } if of == key => {
                panic!("not spawned: {errno} {stage:?}")
            }
            _ => None,
        })
    }

    /// Spawns in a sandbox.
    pub(crate) fn spawn_confined(&mut self, order: SpawnOrder, profile: Profile) -> (u32, OwnedFd) {
        let key = order.key.clone();
        self.ask(Request::SpawnConfined(Box::new(order), Box::new(profile)));
        self.spawned(&key)
    }

    pub(crate) fn exit_of(&mut self, key: &RunKey) -> RunEnd {
        self.find(|news, _| match news {
            News::Exited { key: of, end } if of == key => Some(end.clone()),
            _ => None,
        })
    }

    /// Whether news of the run's end have come by now. Asks something else and waits for the answer
    /// to that, so that what was to come before has come.
    pub(crate) fn has_ended(&mut self, key: &RunKey) -> bool {
        let other = crate::harness::key("nobody", 1);
        self.ask(Request::Inquire(other.clone()));
        self.find(|news, _| (*news == News::Unknown(other.clone())).then_some(()));
        self.aside.iter().any(|(news, _)| matches!(news, News::Exited { key: of, .. } if of == key))
    }

    /// Whether this is among what came while something else was waited for.
    pub(crate) fn has_heard(&self, news: &News) -> bool {
        self.aside.iter().any(|(heard, _)| heard == news)
    }

    /// The process ends in order.
    pub(crate) fn leave(mut self) {
        let _ = self.connection.write_all(b"x");
    }

    /// The process ends as it does when it is killed. The channel stays with the test.
    pub(crate) fn kill(&self) {
        rustix::process::kill_process(pid(self.pid), Signal::KILL).unwrap();
    }
}

pub(crate) fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).unwrap()).unwrap()
}

pub(crate) fn key(agent: &str, run: u64) -> RunKey {
    RunKey { agent: Name::parse(agent).unwrap(), run: RunId(run) }
}

/// An order for the fixture with these arguments.
pub(crate) fn order(agent: &str, run: u64, arguments: &[&str]) -> SpawnOrder {
    let mut argv = vec![FIXTURE.to_owned()];
    argv.extend(arguments.iter().map(|text| (*text).to_owned()));
    SpawnOrder {
        key: key(agent, run),
        argv,
        env: vec![("PATH".to_owned(), std::env::var("PATH").unwrap())],
        cwd: "/".to_owned(),
        terminal: None,
        umask: None,
        user: None,
        leftovers: Leftovers::Kill,
        rlimits: Vec::new(),
        memory: None,
    }
}

/// A profile like that of an agent with a few tokens.
pub(crate) fn profile() -> Profile {
    let read = Access { read: true, ..Access::default() };
    let exec = Access { exec: true, ..Access::default() };
    let program = std::path::Path::new(FIXTURE).parent().unwrap().display().to_string();
    let reads = ["/lib", "/lib64", "/usr/lib", "/usr/local/lib", "/etc/ld.so.cache", "/proc"];
    let mut paths: Vec<(String, Access)> =
        reads.iter().map(|path| ((*path).to_owned(), read)).collect();
    let runs = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", "/usr/bin", &program];
    paths.extend(runs.map(|path| (path.to_owned(), exec)));
    paths.push(("/dev/null".to_owned(), Access { read: true, write: true, exec: false }));
    Profile { paths, ..Profile::default() }
}

pub(crate) fn seconds(count: i64) -> Timespec {
    Timespec { tv_sec: count, tv_nsec: 0 }
}

pub(crate) fn await_readable(fd: impl AsFd, what: &str) {
    let mut polled = [PollFd::new(&fd, PollFlags::IN)];
    let ready = rustix::event::poll(&mut polled, Some(&seconds(30))).unwrap();
    assert_eq!(ready, 1, "waited in vain for {what}");
}

/// Waits for something that nothing tells of.
pub(crate) fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < DEADLINE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Reads until `enough`, or to the end.
pub(crate) fn read_until(output: &OwnedFd, enough: impl Fn(&str) -> bool) -> String {
    let mut text = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        let so_far = String::from_utf8_lossy(&text);
        if enough(&so_far) {
            return so_far.replace('\r', "");
        }
        match read_some(output, &mut buffer).unwrap() {
            Moved::Bytes(bytes) => text.extend_from_slice(&buffer[..bytes]),
            Moved::WouldBlock => await_readable(output, "output"),
            Moved::End => return String::from_utf8_lossy(&text).replace('\r', ""),
        }
    }
}

pub(crate) fn read_line(output: &OwnedFd) -> String {
    read_until(output, |text| text.contains('\n')).lines().next().unwrap_or_default().to_owned()
}

pub(crate) fn read_all(output: &OwnedFd) -> String {
    read_until(output, |_| false)
}

/// A dead process that nobody waited for does not live.
pub(crate) fn lives(number: u32) -> bool {
    defib_host::usage::usage(number).is_some()
}

pub(crate) fn can_bind(port: u16) -> bool {
    std::net::TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// What a grandchild that was left wrote of itself: process and port.
pub(crate) fn left_facts(line: &str) -> (u32, u16) {
    let mut words = line.trim().split(' ').skip(1);
    (words.next().unwrap().parse().unwrap(), words.next().unwrap().parse().unwrap())
}

pub(crate) fn await_file(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    await_that(&format!("{}", path.display()), || path.exists());
    std::fs::read_to_string(path).unwrap()
}
