//! A unit of systemd's.

use std::path::Path;
use std::time::Duration;

use super::{Setting, seconds};

/// Says that a unit is ours to replace and to remove.
pub(crate) const MARK: &str = "# Written by `defib`; `defib service install` writes it anew.";

/// How long a daemon may take to stop whose agents are not known.
const UNKNOWN: Duration = Duration::from_secs(300);

/// What a unit says.
pub(crate) struct Unit<'u> {
    pub(crate) program: &'u Path,
    pub(crate) home: &'u Path,
    /// The project that is brought up; without one the daemon brings up what was up before.
    pub(crate) file: Option<&'u Path>,
    /// What that file does not say.
    pub(crate) setting: Option<&'u Setting<'u>>,
    pub(crate) grace: Option<Duration>,
    /// Whether it is for a user's own systemd.
    pub(crate) for_user: bool,
}

impl Unit<'_> {
    pub(crate) fn text(&self) -> String {
        let shown = |path: &Path| quoted(&path.to_string_lossy());
        let program = shown(self.program);
        let home = shown(self.home);
        let arguments = self.setting.map(|setting| setting.arguments.iter());
        let arguments: String =
            arguments.into_iter().flatten().map(|word| format!(" {}", quoted(word))).collect();
        let env = self.setting.map(environment).unwrap_or_default();
        let grace = seconds(self.grace.unwrap_or(UNKNOWN));
        let target = if self.for_user { "default.target" } else { "multi-user.target" };
        let (occasion, up, reload) = match self.file.map(shown) {
            Some(file) => (
                " --for-up",
                format!("ExecStartPost={program} up --detach -f {file}{arguments} --home {home}\n"),
                format!("ExecReload={program} reload -f {file}{arguments} --home {home}\n"),
            ),
            None => ("", String::new(), String::new()),
        };
        let user = if self.for_user {
            ""
        } else {
            "# Agents may have a `user` each only while this is root.\n# User=agents\n"
        };
        format!(
            "{MARK}\n\
             [Unit]\n\
             Description=defib, which keeps agents alive\n\
             After=network-online.target\n\
             Wants=network-online.target\n\
             \n\
             [Service]\n\
             Type=exec\n\
             {user}\
             {env}\
             ExecStart={program} internal keeper{occasion} --home {home}\n\
             {up}{reload}\
             Restart=always\n\
             RestartSec=2\n\
             TimeoutStartSec=90\n\
             # TERM goes to the keeper alone: it stops the agents in their order, each for as long as it may take.\n\
             KillMode=mixed\n\
             TimeoutStopSec={grace}\n\
             # A cgroup for each agent.\n\
             Delegate=yes\n\
             OOMPolicy=continue\n\
             \n\
             [Install]\n\
             WantedBy={target}\n"
        )
    }
}

/// What changes how the file is read, and a word on what a person has to add.
fn environment(setting: &Setting<'_>) -> String {
    let set = setting.set.iter().map(|(name, value)| format!("Environment={name}={value}\n"));
    let mut lines: String = set.collect();
    let needed = setting.needed.iter().map(|name| format!("{name} (needed)"));
    let others = setting.optional.iter().chain(&setting.patterns).map(|name| (*name).to_owned());
    let names: Vec<String> = needed.chain(others).collect();
    if !names.is_empty() {
        let names = names.join(", ");
        lines += &format!(
            "# The agents are to have {names}: by Environment= or a file that only its owner can read.\n\
             # EnvironmentFile=\n"
        );
    }
    lines
}

/// A word of a command line in a unit.
fn quoted(text: &str) -> String {
    let mut word = String::new();
    for c in text.chars() {
        match c {
            '%' => word.push_str("%%"),
            '$' => word.push_str("$$"),
            '"' | '\\' => word.extend(['\\', c]),
            '\n' => word.push_str("\\n"),
            c => word.push(c),
        }
    }
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    if plain { word } else { format!("\"{word}\"") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_systemd_reads_them() {
        for (path, told) in [
            ("/usr/bin/defib", "/usr/bin/defib"),
            ("/a b/c", "\"/a b/c\""),
            ("/50%/$x/\"y\"", "\"/50%%/$$x/\\\"y\\\"\""),
        ] {
            assert_eq!(quoted(path), told);
        }
    }
}
