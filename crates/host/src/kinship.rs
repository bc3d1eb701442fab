//! Whether the process at the other end of a Unix socket is in the tree of one of a keeper's agents.
//!
//! The keeper adopts the orphans of its agents. So each process that an agent has started descends from
//! the keeper, even if it was forked twice or changed its environment. The daemon and a front also descend
//! from the keeper; their descendants are not agents' processes.
//!
//! If the keeper is the first process of a container, a process that comes from outside (`kubectl
//! exec`) has no parent in there, and is a stranger. Its orphans are adopted by the keeper, cannot be
//! told from those of agents, and count as theirs.
//!
//! Invariant: a process in an agent's tree is never a stranger. The answer rests on facts that a process
//! cannot choose: its ancestors and its cgroup, not its variables. If the kernel does not give a
//! complete and stable answer, the process is [`Kinship::Unverified`]. ADR 15 has the reasons.

use std::os::fd::AsFd;

use defib_core::Name;
use rustix::io::Errno;
use rustix::process::Pid;

use crate::ancestry::{End, Line, line};
use crate::descent::{Held, read};
use crate::front::Front;
use crate::stat::Stat;

/// How a process stands to a keeper's agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kinship {
    /// It is in no agent's tree.
    Stranger,
    /// It is in an agent's tree.
    Kin {
        /// The process, those that it descends from below the keeper, and the leader of its session. An
        /// agent's first process is among them, unless the line was cut by a death.
        line: Vec<u32>,
        /// The agent whose cgroup it is in.
        agent: Option<Name>,
    },
    /// It has ended, or the kernel does not say which processes it descends from. It may be an agent's.
    Unverified,
}

/// The process that connected to a Unix socket.
#[derive(Debug)]
pub struct Peer(Who);

#[derive(Debug)]
enum Who {
    Process(Held),
    /// It has no number in this PID namespace. Whatever descends from the keeper has one.
    Outside,
    Gone,
}

impl Peer {
    /// Of a connection. To be called right after it was accepted: before Linux 6.5 the kernel keeps only the
    /// number of the process, which may be given to another process later.
    pub fn of(connection: impl AsFd) -> Peer {
        let accepted = ticks_since_boot();
        let Ok((number, _)) = crate::pidfd::credentials(&connection) else {
            return Peer(Who::Gone);
        };
        let Some(pid) = Pid::from_raw(number.cast_signed()) else { return Peer(Who::Outside) };
        Peer(match crate::pidfd::of_peer(&connection) {
            Ok(pidfd) => Who::Process(Held::by_descriptor(pid, pidfd)),
            Err(Errno::NOPROTOOPT) => by_number(pid, accepted).map_or(Who::Gone, Who::Process),
            Err(_) => Who::Gone,
        })
    }

    /// How it stands to the agents of a keeper that has this daemon, and perhaps a front. `None`: it has
    /// more than `most_steps` ancestors below the keeper.
    pub fn kinship(
        &self,
        keeper: u32,
        daemon: u32,
        front: Option<Front>,
        most_steps: usize,
    ) -> Option<Kinship> {
        let process = match &self.0 {
            Who::Process(process) => process,
            Who::Outside => return Some(Kinship::Stranger),
            Who::Gone => return Some(Kinship::Unverified),
        };
        let Line { pids: mut above, end } = line(process, keeper, most_steps);
        let agent = agent_of_group(process.pid(), keeper);
        let session = session_leader(process.pid());
        // What was read by its number is this process's if it still lives.
        if !process.lives() {
            return Some(Kinship::Unverified);
        }
        Some(match end {
            End::TooLong => return None,
            End::Unclear => Kinship::Unverified,
            End::Top if agent.is_some() => Kinship::Kin { line: vec![process.number()], agent },
            End::Top => Kinship::Stranger,
            End::Reached => {
                above.pop();
                let is_front = |branch| front.is_some_and(|front| front.is(branch));
                match above.last() {
                    // The keeper itself.
                    None => Kinship::Stranger,
                    Some(branch) if *branch == daemon || is_front(*branch) => Kinship::Stranger,
                    Some(_) => {
                        // A process cannot join a session; it inherits one or makes its own.
                        above.extend(session);
                        Kinship::Kin { line: above, agent }
                    }
                }
            }
        })
    }
}

/// The process with this number, unless it began after the connection was accepted.
fn by_number(pid: Pid, accepted: u64) -> Option<Held> {
    let held = Held::open(pid)?;
    let started = Stat::of(pid)?.number::<u64>(22)?;
    (started <= accepted && held.lives()).then_some(held)
}

/// The leader of a process's session, unless it is outside of this PID namespace: then the kernel says 0, which
/// rustix takes for impossible.
fn session_leader(pid: Pid) -> Option<u32> {
    // SAFETY: it takes a number and gives a number.
    let leader = unsafe { libc::getsid(pid.as_raw_pid()) };
    u32::try_from(leader).ok().filter(|leader| *leader > 0)
}

/// The time since boot in the unit of `/proc/PID/stat`.
fn ticks_since_boot() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let per_second = rustix::param::clock_ticks_per_second();
    let (seconds, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    seconds * per_second + nanos * per_second / 1_000_000_000
}

/// The agent whose cgroup a process is in, of those that this keeper made.
fn agent_of_group(pid: Pid, keeper: u32) -> Option<Name> {
    let text = read(&format!("/proc/{pid}/cgroup"))?;
    agent_in(&String::from_utf8_lossy(&text), keeper)
}

fn agent_in(cgroup: &str, keeper: u32) -> Option<Name> {
    let own = cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut parts = own.split('/');
    let is_keepers = |part: &str| {
        let number = part.strip_prefix("defib-").and_then(|rest| rest.rsplit('-').next());
        number.and_then(|number| number.parse().ok()) == Some(keeper)
    };
    parts.find(|part| is_keepers(part))?;
    let (agent, _) = parts.next()?.split_once('@')?;
    Name::known(agent).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn an_agents_cgroup_is_known_by_its_keepers() {
        let found = |text| agent_in(text, 42).map(|name| name.to_string());
        assert_eq!(found("1:cpu:/\n0::/x/defib-2f68-42/web@3\n").as_deref(), Some("web"));
        assert_eq!(found("0::/x/defib-2f68-42/web@3/inner\n").as_deref(), Some("web"));
        assert_eq!(found("0::/x/defib-2f68-43/web@3\n"), None);
        assert_eq!(found("0::/web@3\n"), None);
    }

    /// How a process stands, by its number.
    fn kinship(pid: u32, keeper: u32, daemon: u32, front: Option<Front>) -> Kinship {
        let who = Held::numbered(pid).map_or(Who::Gone, Who::Process);
        Peer(who).kinship(keeper, daemon, front, usize::MAX).unwrap()
    }

    #[test]
    fn descendants_of_the_keeper_are_an_agents_except_by_daemon_and_front() {
        let (own, above) = (std::process::id(), std::os::unix::process::parent_id());
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let id = child.id();
        let session = session_leader(rustix::process::getpid());
        let kin = |line: &[u32]| {
            let line = line.iter().copied().chain(session).collect();
            Kinship::Kin { line, agent: None }
        };
        assert_eq!(kinship(id, own, 1, None), kin(&[id]));
        assert_eq!(kinship(id, above, 1, None), kin(&[id, own]));
        assert_eq!(kinship(id, above, own, None), Kinship::Stranger, "the daemon's");
        assert_eq!(kinship(id, u32::MAX, 1, None), Kinship::Stranger);
        assert_eq!(kinship(own, own, 1, None), Kinship::Stranger, "the keeper itself");
        let front = Front::of(id).unwrap();
        assert_eq!(kinship(id, own, 1, Some(front)), Kinship::Stranger, "the front");
        let earlier = Front { started_ticks: front.started_ticks - 1, ..front };
        assert_eq!(kinship(id, own, 1, Some(earlier)), kin(&[id]), "another with its number");
        let held = Peer(Who::Process(Held::numbered(id).unwrap()));
        assert_eq!(held.kinship(above, 1, None, 1), None, "more than one step");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(held.kinship(u32::MAX, 1, None, 64), Some(Kinship::Unverified), "it has ended");
    }

    #[test]
    fn peer_is_the_process_that_connected_also_without_its_descriptor() {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(far);
        let Peer(Who::Process(held)) = Peer::of(&near) else { panic!("this process lives") };
        assert_eq!(held.number(), std::process::id());
        let own = rustix::process::getpid();
        assert!(by_number(own, ticks_since_boot()).is_some());
        let began = Stat::of(own).unwrap().number::<u64>(22).unwrap();
        assert!(by_number(own, began - 1).is_none(), "it began after the connection");
    }
}
