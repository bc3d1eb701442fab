//! One item of `env_pass`: which of the caller's variables an agent gets.
//!
//! A name that stands alone must be there, `NAME?` may be absent, and `*` stands for anything. Only a
//! pattern takes variables whose names are not written down.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Variables that are taken from the caller of `up`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Passed(String);

impl Passed {
    /// What a file says.
    pub(crate) fn new(text: String) -> Passed {
        Passed(text)
    }

    /// The variable without which the agent cannot run.
    pub fn needed(&self) -> Option<&str> {
        (!self.0.contains('*') && !self.0.ends_with('?')).then_some(&*self.0)
    }

    /// The variable that is passed on where it is there.
    pub fn optional(&self) -> Option<&str> {
        self.0.strip_suffix('?')
    }

    /// What the names of all that are passed on fit.
    pub fn pattern(&self) -> Option<&str> {
        (self.0.contains('*') && !self.0.ends_with('?')).then_some(&*self.0)
    }

    /// Whether a variable of that name is passed on.
    pub fn takes(&self, variable: &str) -> bool {
        match self.optional() {
            Some(name) => name == variable,
            None => fits(&self.0, variable),
        }
    }
}

impl fmt::Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl PartialEq<&str> for Passed {
    fn eq(&self, text: &&str) -> bool {
        self.0 == *text
    }
}

/// Whether a name fits a pattern in which `*` stands for anything.
pub fn fits(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(head) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let Some(last) = parts.pop() else { return true };
    for part in parts {
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name, is_one) in [
            ("HOME", "HOME", true),
            ("HOME", "HOMER", false),
            ("LC_*", "LC_ALL", true),
            ("LC_*", "XLC_ALL", false),
            ("*_PROXY", "HTTPS_PROXY", true),
            ("*_PROXY", "PROXY", false),
            ("A*B*C", "AxxByyC", true),
            ("A*B*C", "AxxC", false),
            ("*", "", true),
        ] {
            assert_eq!(fits(pattern, name), is_one, "{pattern} {name}");
        }
    }

    #[test]
    fn what_may_be_absent_is_one_variable_and_no_other() {
        let passed = Passed::new("GITHUB_TOKEN?".to_owned());
        assert!(passed.takes("GITHUB_TOKEN"));
        for other in ["GITHUB_TOKEN_ADMIN", "GITHUB_TOKEN?", "GITHUB_TOKE", ""] {
            assert!(!passed.takes(other), "{other}");
        }
    }

    #[test]
    fn an_item_is_needed_or_optional_or_a_pattern() {
        for (text, needed, optional, pattern) in [
            ("A", Some("A"), None, None),
            ("A?", None, Some("A"), None),
            ("A_*", None, None, Some("A_*")),
            ("*", None, None, Some("*")),
        ] {
            let passed = Passed::new(text.to_owned());
            assert_eq!(
                (passed.needed(), passed.optional(), passed.pattern()),
                (needed, optional, pattern),
                "{text}"
            );
        }
    }
}
