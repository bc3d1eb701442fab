//! Whether a process lives in the tree of one of a keeper's agents.
//!
//! The keeper adopts whatever its agents leave behind, so all that an agent has started descends from
//! the keeper, forked twice or not, whatever its environment says. What descends from the daemon does
//! so too and is no agent's; the same is true of a front.
//!
//! Where the keeper is the first process of a container, whoever is let in from outside of it (`kubectl
//! exec`) descends from nobody in there, and is a stranger. What such a one leaves behind is adopted by
//! the keeper, cannot be told from what agents leave, and so counts as theirs.
//!
//! It refuses to take a process's own word: who an agent is can be seen from whom it descends from and
//! from its cgroup, which it cannot choose, and not from variables, which it can.

use defib_core::Name;
use rustix::process::Pid;

use crate::descent::{Held, ancestors, read};
use crate::front::Front;

/// How a process stands to a keeper's agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kinship {
    /// It is in no agent's tree.
    Stranger,
    /// It is in an agent's tree.
    Kin {
        /// Itself and those that it descends from, up to the keeper: an agent's first process is among
        /// them, if that lives.
        line: Vec<u32>,
        /// The agent whose cgroup it is in.
        agent: Option<Name>,
    },
    /// It has gone, so nobody can say any more.
    Gone,
}

/// How a process stands to the agents of a keeper that has this daemon, and perhaps a front.
pub fn kinship(pid: u32, keeper: u32, daemon: u32, front: Option<Front>) -> Kinship {
    let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Kinship::Gone;
    };
    // Held before its facts are read, and looked at after: they are this process's then.
    let Some(held) = Held::open(process) else { return Kinship::Gone };
    let mut line = vec![pid];
    line.extend(ancestors(process).iter().map(|above| above.unsigned_abs()));
    let agent = agent_of_group(process, keeper);
    if !held.lives() {
        return Kinship::Gone;
    }
    let Some(at) = line.iter().position(|above| *above == keeper) else {
        return match agent {
            Some(agent) => Kinship::Kin { line: vec![pid], agent: Some(agent) },
            None => Kinship::Stranger,
        };
    };
    line.truncate(at);
    match line.last() {
        // The keeper itself.
        None => Kinship::Stranger,
        Some(branch) if *branch == daemon => Kinship::Stranger,
        Some(branch) if front.is_some_and(|front| front.is(*branch)) => Kinship::Stranger,
        Some(_) => Kinship::Kin { line, agent },
    }
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

    #[test]
    fn what_descends_from_the_keeper_is_an_agents_unless_by_the_daemon() {
        let (own, above) = (std::process::id(), std::os::unix::process::parent_id());
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let id = child.id();
        let kin = |line: &[u32]| Kinship::Kin { line: line.to_vec(), agent: None };
        assert_eq!(kinship(id, own, 1, None), kin(&[id]));
        assert_eq!(kinship(id, above, 1, None), kin(&[id, own]));
        assert_eq!(kinship(id, above, own, None), Kinship::Stranger, "the daemon's");
        assert_eq!(kinship(id, u32::MAX, 1, None), Kinship::Stranger);
        assert_eq!(kinship(own, own, 1, None), Kinship::Stranger, "the keeper itself");
        let front = Front::of(id).unwrap();
        assert_eq!(kinship(id, own, 1, Some(front)), Kinship::Stranger, "the front");
        let earlier = Front { started_ticks: front.started_ticks - 1, ..front };
        assert_eq!(kinship(id, own, 1, Some(earlier)), kin(&[id]), "another with its number");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(kinship(id, own, 1, None), Kinship::Gone);
    }
}
