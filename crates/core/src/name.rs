//! Names and numbers by which things are known.
//!
//! Counters, limits and history are keyed by an agent's [`Name`], never by a process id. Inside the
//! core an agent is an [`AgentId`], a group a [`GroupId`]: positions that stay valid for the life of
//! the supervisor.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest name, in characters.
pub const MAX_NAME_LEN: usize = 64;
/// Between a project and a name, for people.
const IN_FULL: char = '/';
/// Between a project and a name, for ourselves. It is in no plain name, and may be in a path.
const AS_KEY: char = '+';

/// The name of an agent, a group or a project: letters, digits, `-`, `_` and `.`, at most
/// [`MAX_NAME_LEN`] of them. Cloning is cheap.
///
/// Where two projects have an agent of the same name, one of them is known by its project too: to
/// people as `project/name`, to us as `project+name`, which is good for a folder and is no plain name.
/// Nobody can declare either.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// Why a text is not a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadName {
    /// There is nothing in it.
    Empty,
    /// It has more than [`MAX_NAME_LEN`] characters.
    TooLong,
    /// It has a character that names do not have.
    Character(char),
    /// It is `.` or `..`, which would be a folder.
    Dots,
}

impl Name {
    /// Checks a text and makes a name of it.
    pub fn parse(text: &str) -> Result<Name, BadName> {
        let allowed = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
        if text.is_empty() {
            return Err(BadName::Empty);
        }
        if let Some(other) = text.chars().find(|c| !allowed(*c)) {
            return Err(BadName::Character(other));
        }
        if text.chars().count() > MAX_NAME_LEN {
            return Err(BadName::TooLong);
        }
        if text == "." || text == ".." {
            return Err(BadName::Dots);
        }
        Ok(Name(Arc::from(text)))
    }

    /// A name as we wrote it ourselves: plain, or with its project.
    pub fn known(text: &str) -> Result<Name, BadName> {
        let Some((project, name)) = text.split_once([IN_FULL, AS_KEY]) else {
            return Name::parse(text);
        };
        Name::parse(project)?;
        Name::parse(name)?;
        Ok(Name(Arc::from(text)))
    }

    /// With its project, as we know it: `project+name`.
    #[must_use]
    pub fn keyed(project: &Name, name: &Name) -> Name {
        joined(project.as_str(), AS_KEY, name.as_str())
    }

    /// With its project, as people write it: `project/name`.
    #[must_use]
    pub fn in_full(project: &Name, name: &Name) -> Name {
        joined(project.as_str(), IN_FULL, name.as_str())
    }

    /// As people write it, whether it has its project or not.
    #[must_use]
    pub fn written(&self) -> Name {
        match self.0.split_once(AS_KEY) {
            Some((project, name)) => joined(project, IN_FULL, name),
            None => self.clone(),
        }
    }

    /// As we know it, if it is known with its project.
    #[must_use]
    pub fn key(&self) -> Name {
        match self.0.split_once(IN_FULL) {
            Some((project, name)) => joined(project, AS_KEY, name),
            None => self.clone(),
        }
    }

    /// Without its project: as it stands in the file that declares it.
    #[must_use]
    pub fn plain(&self) -> Name {
        match self.0.split_once([IN_FULL, AS_KEY]) {
            Some((_, name)) => Name(Arc::from(name)),
            None => self.clone(),
        }
    }

    /// Whether it is without its project.
    pub fn is_plain(&self) -> bool {
        !self.0.contains([IN_FULL, AS_KEY])
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

fn joined(project: &str, by: char, name: &str) -> Name {
    Name(Arc::from(format!("{project}{by}{name}")))
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        String::from(name.as_str())
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Name {
    /// From a text that need not be owned: names are in every message and every event.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
        struct Known;
        impl Visitor<'_> for Known {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Name, E> {
                Name::known(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Known)
    }
}

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadName::Empty => f.write_str("a name needs at least one character"),
            BadName::TooLong => write!(f, "a name has at most {MAX_NAME_LEN} characters"),
            BadName::Character(c) => {
                write!(f, "{c:?} cannot be in a name: letters, digits, `-`, `_` and `.` can")
            }
            BadName::Dots => f.write_str("`.` and `..` are folders, not names"),
        }
    }
}

impl core::error::Error for BadName {}

/// Which agent, by its place in the supervisor. Never reused while the supervisor lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AgentId(pub(crate) u32);

impl AgentId {
    /// The place as an index, for tables kept beside the supervisor.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Which group, by its place in the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId(pub(crate) u32);

impl GroupId {
    /// The place as an index, for tables kept beside the supervisor.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The number of one life of an agent: 1 for its first, never reused.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct RunId(pub u64);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_only_what_is_safe_in_a_path_and_a_command_line() {
        for good in ["a", "web-1", "x.y_z", "…".repeat(0).as_str(), "Ärzte"] {
            assert_eq!(Name::parse(good).is_ok(), !good.is_empty(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a b", "a\0", "-\n", "x:y"] {
            assert!(Name::parse(bad).is_err(), "{bad:?}");
        }
        for own in ["a/b", "a+b"] {
            assert!(Name::parse(own).is_err(), "nobody can declare {own}");
        }
        assert!(Name::parse(&"n".repeat(64)).is_ok());
        assert_eq!(Name::parse(&"n".repeat(65)), Err(BadName::TooLong));
    }

    #[test]
    fn a_name_with_its_project_is_read_back_and_is_one_part_of_a_path() {
        let (project, web) = (Name::parse("night").unwrap(), Name::parse("web").unwrap());
        let (key, full) = (Name::keyed(&project, &web), Name::in_full(&project, &web));
        assert_eq!((key.as_str(), full.as_str()), ("night+web", "night/web"));
        assert!(!key.as_str().contains('/'));
        for name in [&key, &full, &web] {
            assert_eq!(Name::known(name.as_str()).as_ref(), Ok(name));
            assert_eq!(name.plain(), web);
        }
        assert_eq!((full.key(), web.key()), (key.clone(), web.clone()));
        assert_eq!((key.written(), web.written()), (full, web.clone()));
        assert!(web.is_plain() && !key.is_plain());
        for bad in ["a/b/c", "a+b+c", "a/b+c", "/b", "a/", "../b", "a/..", "+"] {
            assert!(Name::known(bad).is_err(), "{bad}");
        }
    }
}
