//! From an agent's tokens to what its runs are confined to.
//!
//! A profile is made anew for every spawn, from the tokens then in force and from what is on disk at
//! that moment. What every confined agent gets beside its tokens is in [`implied`]; what a program needs
//! to be run at all is found by [`program`]. Nothing here enforces anything: that is the host's.

pub(crate) mod gaps;
pub(crate) mod implied;
mod program;
pub(crate) mod report;

use std::path::{Path, PathBuf};

use defib_core::Capability;
use defib_host::protocol::{Access, Isolation, IsolationKind, Ports, Profile, SpawnOrder};
use defib_host::sandbox::support;

pub(crate) use program::find_program;

const READ: Access = Access { read: true, write: false, exec: false };
const WRITE: Access = Access { read: false, write: true, exec: false };
const READ_WRITE: Access = Access { read: true, write: true, exec: false };
const EXEC: Access = Access { read: false, write: false, exec: true };

/// Where a run finds itself.
#[derive(Debug, Clone)]
pub(crate) struct Situation {
    /// The folder it starts in.
    pub(crate) cwd: PathBuf,
    /// Its state folder.
    pub(crate) state: PathBuf,
    /// The program of its exec probe, as the file names it.
    pub(crate) probe: Option<String>,
    /// The file whose touch is a beat, if it is not in the state folder.
    pub(crate) heartbeat: Option<PathBuf>,
    /// The port of ours to which it sends what it uses, where it does.
    pub(crate) meter: Option<u16>,
    /// defib's home, which stays read-only in every sandbox.
    pub(crate) home: PathBuf,
    /// The sandbox that its file asks for.
    pub(crate) isolation: IsolationKind,
}

/// What a run is confined to, and what of its tokens leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Confined {
    /// For the keeper.
    pub(crate) profile: Profile,
    /// Tokens whose paths do not exist, and why.
    pub(crate) warnings: Vec<(Capability, String)>,
}

/// What a run of this order is confined to by these tokens. Nothing: it is not confined.
pub(crate) fn confine(
    capabilities: &[Capability],
    order: &SpawnOrder,
    situation: &Situation,
) -> Option<Confined> {
    if capabilities.contains(&Capability::Privileged) {
        return None;
    }
    let mut confined = Confined { profile: Profile::default(), warnings: Vec::new() };
    let variable = |name: &str| {
        let found = order.env.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    };
    let surroundings = Surroundings {
        situation,
        home: variable("HOME"),
        search: variable("PATH"),
        temporary: PathBuf::from(variable("TMPDIR").unwrap_or("/tmp")),
    };
    let variables = ["DEFIB_SOCKET", "NOTIFY_SOCKET"];
    confined.profile.isolation = Isolation {
        protected: vec![text(&situation.home)],
        sockets: variables.into_iter().filter_map(variable).map(str::to_owned).collect(),
        ..isolation(situation.isolation, capabilities)
    };
    implied::add(&mut confined.profile, capabilities, order, &surroundings);
    for capability in capabilities {
        surroundings.add(capability, &mut confined);
    }
    Some(confined)
}

/// What of an isolation follows from the tokens and from what this machine permits.
pub(crate) fn isolation(kind: IsolationKind, tokens: &[Capability]) -> Isolation {
    let writes =
        |token: &Capability| matches!(token, Capability::Write(_) | Capability::WorkspaceRw);
    Isolation {
        kind,
        writes: tokens.iter().any(writes),
        network: tokens.iter().any(implied::is_network),
        mounts: support().mounts,
        libraries: implied::LIBRARIES.map(str::to_owned).to_vec(),
        ..Isolation::default()
    }
}

/// What a token's meaning depends on.
pub(crate) struct Surroundings<'a> {
    situation: &'a Situation,
    home: Option<&'a str>,
    search: Option<&'a str>,
    temporary: PathBuf,
}

impl Surroundings<'_> {
    fn add(&self, capability: &Capability, confined: &mut Confined) {
        let profile = &mut confined.profile;
        let place = match capability {
            Capability::Read(path) => Some((self.place(path), READ)),
            Capability::Write(path) => Some((self.place(path), WRITE)),
            Capability::Exec(path) => Some((self.place(path), EXEC)),
            Capability::ReadAnywhere => Some((PathBuf::from("/"), READ)),
            Capability::WorkspaceRw => {
                for place in [&self.situation.cwd, &self.temporary] {
                    profile.paths.push((text(place), READ_WRITE));
                }
                None
            }
            Capability::Net => {
                (profile.connect, profile.listen, profile.udp) = (Ports::All, Ports::All, true);
                None
            }
            Capability::NetPort(port) => {
                profile.udp = true;
                allow(&mut profile.connect, *port);
                None
            }
            Capability::Listen(port) => {
                allow(&mut profile.listen, *port);
                None
            }
            Capability::Subprocess => {
                profile.subprocess = true;
                None
            }
            // Whoever has it is not confined.
            Capability::Privileged => None,
        };
        let Some((place, access)) = place else { return };
        if let Err(error) = std::fs::metadata(&place) {
            let why = if error.kind() == std::io::ErrorKind::NotFound {
                format!("there is no {}", place.display())
            } else {
                format!("{} cannot be had: {error}", place.display())
            };
            confined.warnings.push((capability.clone(), why));
            return;
        }
        if access == EXEC {
            let needed = program::needed_in(&place, self.search, &self.situation.cwd);
            profile.paths.extend(needed.iter().map(|file| (text(file), EXEC)));
        }
        profile.paths.push((text(&place), access));
    }

    /// The place that a token's path means: `~` is the agent's home, and what is relative is so to the
    /// folder that it starts in.
    fn place(&self, path: &str) -> PathBuf {
        let below_home =
            path.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'));
        match (below_home, self.home) {
            (Some(rest), Some(home)) => PathBuf::from(format!("{home}{rest}")),
            (_, _) => self.situation.cwd.join(path),
        }
    }
}

fn allow(ports: &mut Ports, port: u16) {
    match ports {
        Ports::All => {}
        Ports::Only(ports) => ports.push(port),
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
