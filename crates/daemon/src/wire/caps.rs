//! What agents may do, as it goes over the socket.

use defib_core::{Name, RunId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::words::NameWord;

/// What is done to what an agent may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CapabilityChange {
    /// It may do more.
    Grant,
    /// It may do less.
    Revoke,
}

impl CapabilityChange {
    /// The word by which people call it.
    pub const fn word(self) -> &'static str {
        match self {
            CapabilityChange::Grant => "grant",
            CapabilityChange::Revoke => "revoke",
        }
    }
}

/// The tokens of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CapabilityRequest {
    /// As they are written: `read:/etc`, `net:443`.
    pub capabilities: Vec<String>,
}

/// What an agent may do, as `caps --json` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Caps {
    /// Whose.
    #[schema(value_type = NameWord)]
    pub agent: Name,
    /// Whether its next run is confined.
    pub sandbox: bool,
    /// Which sandbox: `landlock` or `namespaces`; null where it has none.
    #[serde(default)]
    pub isolation: Option<String>,
    /// The run that is alive.
    #[schema(value_type = Option<u64>)]
    pub run: Option<RunId>,
    /// The tokens that it has; null where it has no sandbox.
    pub capabilities: Option<Vec<String>>,
    /// The tokens that its next run gets, where those are others.
    pub capabilities_pending: Option<Vec<String>>,
    /// The tokens of its next run, one by one.
    pub tokens: Vec<TokenLine>,
    /// Tokens of its file that an operator has revoked.
    pub revoked: Vec<String>,
    /// What every confined agent may, in words.
    pub implied: Vec<String>,
    /// What this kernel enforces.
    pub enforced: Vec<String>,
    /// What is not enforced, and why.
    pub not_enforced: Vec<String>,
    /// Tokens that lead nowhere, and why.
    pub warnings: Vec<String>,
    /// The version of the kernel's Landlock; zero where it has none.
    pub landlock_abi: u32,
    /// Whether the kernel can filter system calls.
    pub seccomp: bool,
}

/// One token of an agent's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenLine {
    /// As it is written.
    pub capability: String,
    /// Whose word it is: `file` or `operator`.
    pub by: String,
    /// What it gives.
    pub gives: String,
}

/// Something that a sandbox seems to have refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refused {
    /// The line that says so.
    pub line: String,
    /// What would permit it, where that can be told.
    pub capability: Option<String>,
    /// What to do about it.
    pub text: String,
}
