//! Requests on the daemon's own socket that come from inside of an agent's tree.
//!
//! Such a process has that agent's rights only, whatever it shows: what a run may do for itself with its
//! token, and read-only views of its project if its file says so. Without this, an agent that can reach
//! the socket could grant itself anything. A peer whose ancestors the kernel does not show completely may be
//! an agent's process, and is refused.

use axum::extract::{FromRequestParts, Request};
use axum::http::Method;
use axum::http::header::AUTHORIZATION;
use defib_core::Name;
use defib_host::{Front, Kinship, Peer};
use percent_encoding::percent_decode_str;

use crate::api::{Desk, Token, Trouble};
use crate::engine::Ask;
use crate::wire::ErrorCode;

/// The name that the audit has for a process in the tree of an unknown agent, or perhaps in one.
const UNVERIFIED: &str = "an unverified process";

/// The keeper, and a client that descends from it and is not an agent's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Family {
    pub(super) keeper: u32,
    pub(super) front: Option<Front>,
}

/// The answer to whether a client is in an agent's tree.
#[derive(Debug)]
pub(super) enum Answer {
    /// It stands so to the agents of this daemon.
    Is(Kinship),
    /// It has more ancestors than the caller wants to look at.
    TooDeep,
    /// The keeper was killed, and its agents have lost the parent by which they are known.
    KeeperGone,
}

impl Family {
    /// How a client stands to the agents, if it has at most `most_steps` ancestors below the keeper.
    pub(super) fn kinship(self, peer: &Peer, most_steps: usize) -> Answer {
        let kin = peer.kinship(self.keeper, std::process::id(), self.front, most_steps);
        // Check this last, so that a keeper death during the lookup is noticed.
        if std::os::unix::process::parent_id() != self.keeper {
            return Answer::KeeperGone;
        }
        kin.map_or(Answer::TooDeep, Answer::Is)
    }
}

/// Who looks, and what it may look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Onlooker {
    /// The agent in whose tree it lives.
    pub(crate) agent: Name,
    /// The project that it may look at.
    pub(crate) project: Option<Name>,
}

/// The project that a request may look at, and no other. Without one it may look at all.
#[derive(Debug, Clone)]
pub(crate) struct Sees(pub(crate) Name);

/// Lets a request pass that may come from where it does, and says what it may see. The agent in whose
/// tree the client is goes to `known`.
pub(super) async fn confine(
    desk: &Desk,
    kin: &Kinship,
    request: Request,
    known: &mut Option<String>,
) -> Result<Request, Trouble> {
    let (line, agent) = match kin {
        Kinship::Stranger => return Ok(request),
        Kinship::Unverified => {
            *known = Some(UNVERIFIED.to_owned());
            let message = "the kernel does not show which processes this one descends from";
            return Err(Trouble::new(ErrorCode::Forbidden, message).hint(
                "ask from a process that waits for the answer; as a user other than root, a Linux before 6.13 \
                 must not hide processes (hidepid)",
            ));
        }
        Kinship::Kin { line, agent } => (line.clone(), agent.clone()),
    };
    let onlooker = desk.ask(|answer| Ask::Onlooker { line, agent, answer }).await.ok();
    *known = Some(match &onlooker {
        Some(onlooker) => format!("agent:{}", onlooker.agent),
        None => UNVERIFIED.to_owned(),
    });
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    if path == "/healthz" {
        return Ok(Request::from_parts(parts, body));
    }
    if path.starts_with("/api/v1/self/") {
        let token = Token::from_request_parts(&mut parts, &()).await?;
        let bearer = desk.ask(|answer| Ask::Bearer(token.0, answer)).await?;
        return match onlooker {
            Some(onlooker) if onlooker.agent != bearer.agent => Err(refused()),
            Some(_) | None => Ok(Request::from_parts(parts, body)),
        };
    }
    let Some(project) = onlooker.and_then(|onlooker| onlooker.project) else {
        return Err(refused());
    };
    if parts.method != Method::GET || !may_see(desk, &path, &project).await {
        return Err(refused());
    }
    // Who it is has been seen; a token that it shows as well could only say the same.
    parts.headers.remove(AUTHORIZATION);
    parts.extensions.insert(Sees(project));
    Ok(Request::from_parts(parts, body))
}

/// Whether an address shows nothing but what belongs to a project.
async fn may_see(desk: &Desk, path: &str, project: &Name) -> bool {
    // The lists of agents and their history leave out what belongs to others.
    if matches!(path, "/api/v1/history" | "/api/v1/overview") {
        return true;
    }
    let Some(rest) = path.strip_prefix("/api/v1/agents") else { return false };
    let mut parts = rest.split('/').skip(1);
    let Some(name) = parts.next() else { return rest.is_empty() };
    // A terminal is no view: what is typed there is done.
    if !matches!(parts.next(), None | Some("logs" | "caps" | "ledger" | "runs" | "why")) {
        return false;
    }
    let Some(name) = decoded(name) else { return false };
    let found = desk.ask(|answer| Ask::Status(vec![name], answer)).await;
    found.is_ok_and(|found| found.iter().all(|status| status.project == *project))
}

/// A part of an address, as the route will read it.
fn decoded(part: &str) -> Option<String> {
    Some(percent_decode_str(part).decode_utf8().ok()?.into_owned())
}

fn refused() -> Trouble {
    let message = "this comes from inside of an agent, which may speak for itself alone";
    Trouble::new(ErrorCode::Forbidden, message).hint(
        "`defib self` is for agents; `views = \"project\"` in an agent's file lets it look at its \
         project",
    )
}

#[cfg(test)]
mod tests {
    use super::decoded;

    #[test]
    fn a_part_of_an_address_is_read_as_it_was_meant() {
        for (part, text) in [
            ("web", Some("web")),
            ("night%2Fweb", Some("night/web")),
            ("%C3%84rzte", Some("Ärzte")),
            ("%FF", None),
        ] {
            assert_eq!(decoded(part).as_deref(), text, "{part}");
        }
    }
}
