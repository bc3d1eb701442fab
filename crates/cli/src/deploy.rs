//! Files by which something else runs defib: units, manifests, jobs.
//!
//! systemd runs the keeper; in a container `defib up` is the first process, and becomes the keeper. Each
//! has as long to stop as the agents may take: the longest chain of those that stop one after the other.

pub(crate) mod kubernetes;
pub(crate) mod nomad;
pub(crate) mod systemd;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use defib_config::config::Notify;
use defib_config::{Config, Passed, Watchdog};

use crate::commands::ConfigFile;

/// What is added to the agents' own time: to kill, to write down, to end.
const MARGIN: Duration = Duration::from_secs(15);

/// How long a stop of everything may take. Members of a group stop one after the other, the last
/// first, and an agent stops before those it waits for; all others stop together.
pub(crate) fn grace(config: &Config) -> Duration {
    let at: BTreeMap<&str, usize> =
        config.agents.iter().enumerate().map(|(at, agent)| (agent.name.as_str(), at)).collect();
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); config.agents.len()];
    let indices =
        |name| config.agents_of(name).into_iter().filter_map(|n| at.get(n.as_str()).copied());
    for (index, agent) in config.agents.iter().enumerate() {
        for name in &agent.after {
            indices(name).for_each(|needed| before[needed].push(index));
        }
    }
    for group in &config.groups {
        let members: Vec<usize> = indices(&group.name).collect();
        for pair in members.windows(2) {
            before[pair[0]].push(pair[1]);
        }
    }
    longest(config, &before) + MARGIN
}

/// The longest way through those that wait for one another; there is no circle in a valid config.
fn longest(config: &Config, before: &[Vec<usize>]) -> Duration {
    let mut ends: Vec<Option<Duration>> = vec![None; before.len()];
    for start in 0..before.len() {
        let mut open = vec![start];
        while let Some(&at) = open.last() {
            let next = before[at].iter().find(|other| ends[**other].is_none());
            if let (Some(next), None) = (next, ends[at]) {
                open.push(*next);
                continue;
            }
            open.pop();
            let earlier = before[at].iter().filter_map(|other| ends[*other]).max();
            let agent = &config.agents[at];
            let own = if agent.enabled { agent.policy.stop_timeout } else { Duration::ZERO };
            ends[at] = Some(earlier.unwrap_or_default() + own);
        }
    }
    ends.into_iter().flatten().max().unwrap_or_default()
}

/// Whole seconds, and not one too few.
pub(crate) fn seconds(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}

/// A name of small letters, digits and dashes, as DNS has them.
pub(crate) fn dns_name(name: &str) -> String {
    let small = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = name.chars().map(small).take(40).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "defib".to_owned() } else { name.to_owned() }
}

/// What a file alone does not say: how it is read, and what its agents, its channels and its rule sets
/// have of whoever runs `up`.
pub(crate) struct Setting<'c> {
    /// What a command line says of the file beside its name.
    pub(crate) arguments: Vec<String>,
    /// Variables that are set here and change how the file is read.
    pub(crate) set: Vec<(&'static str, String)>,
    /// Variables without which an agent cannot run.
    pub(crate) needed: BTreeSet<&'c str>,
    /// Variables that are passed on where they are there.
    pub(crate) optional: BTreeSet<&'c str>,
    /// What further variables are passed on by.
    pub(crate) patterns: BTreeSet<&'c str>,
}

impl<'c> Setting<'c> {
    pub(crate) fn of(file: &ConfigFile, config: &'c Config) -> Setting<'c> {
        let said = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let set = Watchdog::VARIABLES.into_iter().filter_map(|name| Some((name, said(name)?)));
        let passed = || config.agents.iter().flat_map(|agent| &agent.env_pass);
        let needed: BTreeSet<&str> = passed().filter_map(Passed::needed).collect();
        let channels = config.notify.iter().flat_map(Notify::variables);
        let optional = passed().filter_map(Passed::optional).chain(channels);
        let optional = optional.chain(config.metrics.variables());
        Setting {
            arguments: file.arguments(),
            set: set.map(|(name, value)| (name, value.trim().to_owned())).collect(),
            optional: optional.filter(|name| !needed.contains(name)).collect(),
            patterns: passed().filter_map(Passed::pattern).collect(),
            needed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grace_of(text: &str) -> u64 {
        let outcome = defib_config::parse("defib.toml", text);
        seconds(grace(&outcome.config.unwrap_or_else(|| panic!("{:?}", outcome.diagnostics))))
    }

    #[test]
    fn the_longest_chain_counts_and_not_the_sum_of_all() {
        let agent = |name: &str, stop: u64, more: &str| {
            format!("[agent.{name}]\ncommand = \"x\"\nstop_timeout = \"{stop}s\"\n{more}\n")
        };
        let three = agent("a", 10, "") + &agent("b", 20, "") + &agent("c", 5, "");
        assert_eq!(grace_of(&three), 20 + 15);
        let chain = agent("a", 10, "")
            + &agent("b", 20, "after = [\"a\"]")
            + &agent("c", 5, "after = [\"b\"]");
        assert_eq!(grace_of(&chain), 35 + 15);
        let group = format!("{three}[group.g]\nmembers = [\"a\", \"c\"]\n");
        assert_eq!(grace_of(&group), 20 + 15);
        let group = format!("{three}[group.g]\nmembers = [\"c\", \"b\", \"a\"]\n");
        assert_eq!(grace_of(&group), 35 + 15);
        assert_eq!(grace_of(&agent("a", 90, "enabled = false")), 15);
    }
}
