//! Who is asking, and what each may ask for.
//!
//! A request that no row of the table names needs the highest role: a route that somebody adds and
//! forgets here is closed to tokens of a lower one, not open.

use std::fmt;

use axum::http::Method;
use serde::{Deserialize, Serialize};

/// What a token may do. Each role may do what those before it may.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Look.
    View,
    /// Start, stop, restart, revive, signal, fund; use terminals.
    Operate,
    /// Everything.
    Admin,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::View => "view",
            Role::Operate => "operate",
            Role::Admin => "admin",
        })
    }
}

/// Who is asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Somebody at this machine, on the daemon's own socket.
    Operator {
        /// The user.
        uid: u32,
    },
    /// Somebody with a token.
    Token {
        /// What the token is called.
        name: String,
        /// What it may do.
        role: Role,
    },
    /// A browser that was logged in.
    Session {
        /// Who had the link made that logged it in.
        by: String,
    },
    /// A run, by its own token. Whether that is good is for the routes that it may use to find out.
    Agent,
    /// Anybody.
    Nobody,
}

impl Caller {
    /// What it may do, beyond what everybody may.
    pub(crate) fn role(&self) -> Option<Role> {
        match self {
            Caller::Operator { .. } | Caller::Session { .. } => Some(Role::Admin),
            Caller::Token { role, .. } => Some(*role),
            Caller::Agent | Caller::Nobody => None,
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caller::Operator { uid } => match user_name(*uid) {
                Some(name) => write!(f, "uid:{name}"),
                None => write!(f, "uid:{uid}"),
            },
            Caller::Token { name, .. } => write!(f, "token:{name}"),
            Caller::Session { by } => write!(f, "session of {by}"),
            Caller::Agent => f.write_str("agent"),
            Caller::Nobody => f.write_str("nobody"),
        }
    }
}

/// What a request asks for, as far as permission goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: anybody may.
    Nothing,
    /// A run's own token, which the route itself looks at.
    OwnToken,
    /// A role, or a higher one.
    Role(Role),
}

/// What a request needs.
pub(crate) fn need(method: &Method, path: &str) -> Need {
    let looks = matches!(*method, Method::GET | Method::HEAD);
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match (looks, parts.as_slice()) {
        (true, ["healthz" | "login"]) => Need::Nothing,
        (_, ["api", "v1", "self", ..]) => Need::OwnToken,
        // Whoever sees a terminal can type into it.
        (_, ["api", "v1", "agents", _, "terminal"]) => Need::Role(Role::Operate),
        (_, ["api", "v1", "tokens" | "audit" | "links", ..]) => Need::Role(Role::Admin),
        (true, _) => Need::Role(Role::View),
        // What is read with a body because its question is long.
        (false, ["api", "v1", "logs"] | ["api", "v1", "agents", _, "simulate"]) => {
            Need::Role(Role::View)
        }
        // Whoever is logged in may leave.
        (false, ["api", "v1", "logout"]) => Need::Role(Role::View),
        (
            false,
            ["api", "v1", "agents", _, "start" | "stop" | "restart" | "revive" | "signal" | "fund"],
        ) => Need::Role(Role::Operate),
        (false, _) => Need::Role(Role::Admin),
    }
}

/// The name of a user, where the system knows it by a file.
fn user_name(uid: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _, number) = (fields.next()?, fields.next()?, fields.next()?);
        (number.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_at_changed_and_run_needs_ever_more() {
        let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
        for (method, path, needs) in [
            (&get, "/healthz", Need::Nothing),
            (&get, "/login", Need::Nothing),
            (&post, "/login", Need::Role(Role::Admin)),
            (&get, "/", Need::Role(Role::View)),
            (&get, "/api/v1/agents", Need::Role(Role::View)),
            (&get, "/api/v1/agents/a/logs", Need::Role(Role::View)),
            (&post, "/api/v1/logs", Need::Role(Role::View)),
            (&post, "/api/v1/agents/a/simulate", Need::Role(Role::View)),
            (&get, "/api/v1/agents/a/terminal", Need::Role(Role::Operate)),
            (&post, "/api/v1/agents/a/stop", Need::Role(Role::Operate)),
            (&post, "/api/v1/agents/a/fund", Need::Role(Role::Operate)),
            (&post, "/api/v1/agents/a/grant", Need::Role(Role::Admin)),
            (&delete, "/api/v1/agents/a", Need::Role(Role::Admin)),
            (&post, "/api/v1/up", Need::Role(Role::Admin)),
            (&get, "/api/v1/tokens", Need::Role(Role::Admin)),
            (&get, "/api/v1/audit", Need::Role(Role::Admin)),
            (&post, "/api/v1/self/beat", Need::OwnToken),
            (&post, "/api/v1/something/new", Need::Role(Role::Admin)),
        ] {
            assert_eq!(need(method, path), needs, "{method} {path}");
        }
    }
}
