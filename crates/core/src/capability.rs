//! What an agent may do, as tokens: `read:PATH`, `net:443`, `subprocess` …
//!
//! A token is parsed once and is then a [`Capability`]. What a path in it is relative to, and what a
//! kernel makes of it, is known elsewhere: nothing here looks at a file.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;

use serde::{Deserialize, Serialize};

/// One thing that an agent may do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Capability {
    /// Read files and folders at and below a path.
    Read(String),
    /// Write, make, rename and remove at and below a path. Does not imply reading.
    Write(String),
    /// Run programs at and below a path.
    Exec(String),
    /// Use the network, all of it.
    Net,
    /// Connect to this TCP port, anywhere.
    NetPort(u16),
    /// Listen on this TCP port.
    Listen(u16),
    /// Read and write in its folder, its state folder and the folder for temporary files.
    WorkspaceRw,
    /// Read everything.
    ReadAnywhere,
    /// Make processes.
    Subprocess,
    /// Everything: no sandbox.
    Privileged,
}

/// Why a text is no capability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadCapability {
    /// It begins with no word that is known.
    Unknown(String),
    /// It needs a path, and has none.
    NoPath(String),
    /// What stands where a port should is none.
    NotAPort(String),
    /// It stands alone, and something came after it.
    TakesNothing(String),
}

/// Every form, as people write it.
pub const FORMS: [&str; 10] = [
    "read:PATH",
    "write:PATH",
    "exec:PATH",
    "net",
    "net:PORT",
    "listen:PORT",
    "workspace_rw",
    "read_anywhere",
    "subprocess",
    "privileged",
];

impl Capability {
    /// Reads a token.
    pub fn parse(text: &str) -> Result<Capability, BadCapability> {
        let whole = || text.to_owned();
        let (verb, rest) = match text.split_once(':') {
            Some((verb, rest)) => (verb, Some(rest)),
            None => (text, None),
        };
        let path = || match rest {
            Some(path) if !path.trim().is_empty() && !path.contains('\0') => Ok(path.to_owned()),
            Some(_) | None => Err(BadCapability::NoPath(whole())),
        };
        let port = |port: &str| {
            // `+443` is a number to the parser, and a mistake to a person.
            let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            let number = port.parse::<u16>().ok().filter(|number| digits && *number > 0);
            number.ok_or_else(|| BadCapability::NotAPort(whole()))
        };
        let alone = |capability| match rest {
            None => Ok(capability),
            Some(_) => Err(BadCapability::TakesNothing(whole())),
        };
        match verb {
            "read" => path().map(Capability::Read),
            "write" => path().map(Capability::Write),
            "exec" => path().map(Capability::Exec),
            "net" => match rest {
                None => Ok(Capability::Net),
                Some(text) => port(text).map(Capability::NetPort),
            },
            "listen" => port(rest.unwrap_or_default()).map(Capability::Listen),
            "workspace_rw" => alone(Capability::WorkspaceRw),
            "read_anywhere" => alone(Capability::ReadAnywhere),
            "subprocess" => alone(Capability::Subprocess),
            "privileged" => alone(Capability::Privileged),
            _ => Err(BadCapability::Unknown(whole())),
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Capability::Read(path) => write!(f, "read:{path}"),
            Capability::Write(path) => write!(f, "write:{path}"),
            Capability::Exec(path) => write!(f, "exec:{path}"),
            Capability::Net => f.write_str("net"),
            Capability::NetPort(port) => write!(f, "net:{port}"),
            Capability::Listen(port) => write!(f, "listen:{port}"),
            Capability::WorkspaceRw => f.write_str("workspace_rw"),
            Capability::ReadAnywhere => f.write_str("read_anywhere"),
            Capability::Subprocess => f.write_str("subprocess"),
            Capability::Privileged => f.write_str("privileged"),
        }
    }
}

impl BadCapability {
    /// What to write instead.
    pub const fn help(&self) -> &'static str {
        match self {
            BadCapability::Unknown(_) => {
                "there are read:PATH, write:PATH, exec:PATH, net, net:PORT, listen:PORT, \
                 workspace_rw, read_anywhere, subprocess and privileged"
            }
            BadCapability::NoPath(_) => "a colon and a path follow, such as `read:/etc`",
            BadCapability::NotAPort(_) => "a colon and a port from 1 to 65535 follow",
            BadCapability::TakesNothing(_) => "it stands alone, without a colon",
        }
    }
}

impl fmt::Display for BadCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (token, why) = match self {
            BadCapability::Unknown(token) => (token, "is not a capability"),
            BadCapability::NoPath(token) => (token, "names no path"),
            BadCapability::NotAPort(token) => (token, "names no port"),
            BadCapability::TakesNothing(token) => {
                (token, "has something after a word that stands alone")
            }
        };
        write!(f, "{token:?} {why}")
    }
}

impl core::error::Error for BadCapability {}

impl TryFrom<String> for Capability {
    type Error = BadCapability;

    fn try_from(text: String) -> Result<Capability, BadCapability> {
        Capability::parse(&text)
    }
}

impl From<Capability> for String {
    fn from(capability: Capability) -> String {
        use alloc::string::ToString;
        capability.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn every_token_is_read_and_written_the_same() {
        for token in [
            "read:/",
            "write:.",
            "exec:/usr/bin",
            "read:a:b",
            "read: spaced name",
            "net",
            "net:443",
            "listen:65535",
            "workspace_rw",
            "read_anywhere",
            "subprocess",
            "privileged",
        ] {
            assert_eq!(Capability::parse(token).unwrap().to_string(), token);
        }
    }

    #[test]
    fn what_is_malformed_is_named() {
        for token in [
            "",
            ":",
            ":x",
            "Read:/",
            "read",
            "read:",
            "read: ",
            "write:\0",
            "net:",
            "net:0",
            "net:+1",
            "net:65536",
            "net:http",
            "listen",
            "listen:",
            "subprocess:1",
            "privileged:",
            "root",
            "net ",
            "exec",
        ] {
            let error = Capability::parse(token).unwrap_err();
            assert!(error.to_string().starts_with(&alloc::format!("{token:?} ")), "{error}");
            assert!(!error.help().is_empty());
        }
    }
}
