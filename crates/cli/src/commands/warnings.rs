//! What looks wrong with a valid config on this machine: a warning an agent, never a refusal.
//!
//! The others start all the same, and so do these: by then somebody may have put it right.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use defib_config::config::{Agent, Command, Unmetered};
use defib_config::{Config, Passed};
use defib_daemon::{units, unmetered};

/// Programs whose first argument that is no option is a script, and the letters of their options that
/// take no value. After any other option nobody can tell.
const INTERPRETERS: [(&str, &str); 9] = [
    ("sh", SHELL),
    ("bash", SHELL),
    ("dash", SHELL),
    ("zsh", SHELL),
    ("python", PYTHON),
    ("python3", PYTHON),
    ("node", ""),
    ("ruby", "w"),
    ("perl", "wWtT"),
];
const SHELL: &str = "aefhiluvx";
const PYTHON: &str = "bBdEiIOPqsSuvx";
/// What people set for all that they run, and miss in what they leave running.
const COMMONLY_MISSED: [&str; 12] = [
    "SSH_AUTH_SOCK",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
];

/// Says on standard error what looks wrong.
pub(crate) fn warn(config: &Config) {
    for warning in config.agents.iter().filter(|agent| agent.enabled).flat_map(|agent| {
        let lines = of_agent(config, agent, |name| std::env::var(name).ok());
        lines.into_iter().map(|line| format!("{}: {line}", agent.name))
    }) {
        anstream::eprintln!("warning: {warning}");
    }
}

fn of_agent(
    config: &Config,
    agent: &Agent,
    variable: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let cwd =
        agent.cwd.as_ref().map_or_else(|| config.folder.clone(), |cwd| config.folder.join(cwd));
    if !cwd.is_dir() {
        warnings.push(format!("its folder {} is not there", cwd.display()));
    }
    if let Command::Words(words) = &agent.command
        && let Some(program) = words.first()
    {
        let path = agent.env.get("PATH").cloned().or_else(|| variable("PATH")).unwrap_or_default();
        match find_program(program, &cwd, &path) {
            None => warnings.push(format!("there is no program {program:?}")),
            Some(file) => {
                warnings.extend(unusable(&file, true));
                warnings.extend(script(words, &cwd).and_then(|script| unusable(&script, false)));
            }
        }
    }
    if let Some(file) = agent.env_file.as_ref().map(|file| config.folder.join(file)) {
        let shown = file.display();
        match file.metadata() {
            Err(_) => warnings.push(format!("its env_file {shown} is not there")),
            Ok(found) if !found.is_file() => {
                warnings.push(format!("its env_file {shown} is no regular file"));
            }
            Ok(_) => {}
        }
    }
    if let Some(user) = &agent.user {
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        if !is_user(user, &users) {
            warnings.push(format!("there is no user {user:?}"));
        }
    }
    let own = |name: &str| {
        let passed = || agent.env_pass.iter().any(|passed| passed.takes(name));
        agent.env.get(name).cloned().or_else(|| if passed() { variable(name) } else { None })
    };
    let unmetered = unmetered(agent, own);
    if let Some(first) = unmetered.first() {
        let then = match agent.budget.unmetered {
            Unmetered::Refuse => "it is halted (config) before its first run",
            Unmetered::Allow => "this bound holds nothing",
        };
        let units = units(&unmetered);
        warnings.push(format!("its budget is not metered in {units}, so {then}: {}", first.fix));
    }
    let needed = agent.env_pass.iter().filter_map(Passed::needed);
    let unset = needed.filter(|name| variable(name).is_none());
    warnings.extend(unset.map(|name| format!("env_pass names {name}, which is not set")));
    warnings
}

/// Variables that are set here, that agents commonly need, and that some are not given, a line each.
pub(crate) fn missed(config: &Config, is_set: impl Fn(&str) -> bool) -> Vec<String> {
    let agents = || config.agents.iter().filter(|agent| agent.enabled);
    let lines = COMMONLY_MISSED.into_iter().filter(|name| is_set(name)).filter_map(|name| {
        let has = |agent: &&Agent| {
            agent.env.contains_key(name) || agent.env_pass.iter().any(|passed| passed.takes(name))
        };
        let without: Vec<&str> =
            agents().filter(|agent| !has(agent)).map(|agent| agent.name.as_str()).collect();
        let passed = match without.len() {
            0 => return None,
            count if count == agents().count() => "passed on to no agent".to_owned(),
            _ => format!("not passed on to {}", without.join(", ")),
        };
        Some(format!("{name} is set here and {passed}; env_pass would do that"))
    });
    lines.collect()
}

/// The script that an interpreter is to run.
fn script(words: &[String], cwd: &Path) -> Option<PathBuf> {
    let (program, arguments) = words.split_first()?;
    let name = program.rsplit('/').next()?;
    let (_, letters) = INTERPRETERS.iter().find(|(known, _)| *known == name)?;
    let is_flag = |word: &&String| {
        word.strip_prefix('-').is_some_and(|word| {
            !word.is_empty() && word.chars().all(|letter| letters.contains(letter))
        })
    };
    let script = arguments.iter().find(|word| !is_flag(word))?;
    (!script.starts_with('-')).then(|| cwd.join(script))
}

/// Why a file cannot be run.
fn unusable(file: &Path, as_program: bool) -> Option<String> {
    let shown = file.display();
    let Ok(metadata) = file.metadata() else { return Some(format!("{shown} is not there")) };
    if metadata.len() == 0 && metadata.is_file() {
        return Some(format!("{shown} is empty"));
    }
    if as_program && metadata.is_dir() {
        return Some(format!("{shown} is a folder, not a program"));
    }
    let may_run = is_executable(file);
    (as_program && !may_run).then(|| format!("{shown} may not be run; `chmod +x` permits it"))
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
}

fn find_program(program: &str, cwd: &Path, path: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(cwd.join(program)).filter(|path| path.exists());
    }
    let all = || {
        let files = std::env::split_paths(path).map(|folder| folder.join(program));
        files.filter(|path| path.is_file())
    };
    // What may not be run is passed over where there is another further on.
    all().find(|file| is_executable(file)).or_else(|| all().next())
}

/// Whether there is a user of this name or number, where a keeper looks for one.
fn is_user(wanted: &str, users: &str) -> bool {
    if let Some((user, group)) = wanted.split_once(':') {
        return user.parse::<u32>().is_ok() && group.parse::<u32>().is_ok();
    }
    users.lines().any(|line| {
        let mut fields = line.split(':');
        fields.next() == Some(wanted) || fields.nth(1) == Some(wanted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(folder: &Path, text: &str) -> Config {
        defib_config::parse_in(folder, text).config.unwrap()
    }

    fn of(folder: &Path, text: &str) -> Vec<String> {
        let config = config(folder, text);
        let lines = of_agent(&config, &config.agents[0], |name| {
            (name == "PATH").then(|| "/usr/bin:/bin".to_owned())
        });
        lines.iter().map(|line| line.replace(&folder.display().to_string(), "FOLDER")).collect()
    }

    #[test]
    fn what_an_interpreter_is_to_run_is_looked_at_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::write(path.join("empty.sh"), "").unwrap();
        std::fs::write(path.join("good.sh"), "true\n").unwrap();
        let told = |command: &str| of(path, &format!("[agent.a]\ncommand = {command:?}\n"));
        assert_eq!(told("bash empty.sh"), ["FOLDER/empty.sh is empty"]);
        assert_eq!(told("/bin/sh gone.sh"), ["FOLDER/gone.sh is not there"]);
        assert_eq!(told("sh -c true"), [""; 0]);
        assert_eq!(told("sh good.sh"), [""; 0]);
        assert_eq!(told("./good.sh"), ["FOLDER/./good.sh may not be run; `chmod +x` permits it"]);
        assert_eq!(told("good.sh"), ["there is no program \"good.sh\""]);
        assert_eq!(told("bash -eu empty.sh"), ["FOLDER/empty.sh is empty"]);
        assert_eq!(told("bash -o pipefail empty.sh"), [""; 0], "nobody can tell what is a script");
        std::fs::create_dir(path.join("folder")).unwrap();
        assert_eq!(told("./folder"), ["FOLDER/./folder is a folder, not a program"]);
    }

    #[test]
    fn a_file_of_variables_and_a_user_that_are_not_there_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let text = "[agent.a]\ncommand = \"true\"\nenv_file = \".env\"\nuser = \"nobody-of-us\"\n";
        let told = of(folder.path(), text);
        assert_eq!(
            told,
            ["its env_file FOLDER/.env is not there", "there is no user \"nobody-of-us\""]
        );
        std::fs::write(folder.path().join(".env"), "A=1\n").unwrap();
        assert_eq!(of(folder.path(), &text.replace("nobody-of-us", "root")), [""; 0]);
        assert!(is_user("0", "root:x:0:0::/root:/bin/sh\n") && is_user("7:7", ""));
    }

    #[test]
    fn an_env_file_that_cannot_be_read_later_is_said_before_anything_starts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::write(path.join("good"), "").unwrap();
        let told =
            |file: &str| of(path, &format!("[agent.a]\ncommand = \"true\"\nenv_file = {file:?}\n"));
        assert_eq!(told("good"), [""; 0]);
        assert_eq!(told("gone"), ["its env_file FOLDER/gone is not there"]);
        assert_eq!(told("/dev/null"), ["its env_file /dev/null is no regular file"]);
    }

    #[test]
    fn a_program_is_looked_for_where_its_agent_will_look() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::write(path.join("mine"), "#!/bin/sh\n").unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(path.join("mine"), mode).unwrap();
        let with_path = format!("[agent.a]\ncommand = \"mine\"\nenv = {{ PATH = {path:?} }}\n");
        assert_eq!(of(path, &with_path), [""; 0]);
        // One that may not be run does not stand in the way of one that may.
        let first = path.join("first");
        std::fs::create_dir(&first).unwrap();
        std::fs::write(first.join("mine"), "#!/bin/sh\n").unwrap();
        let both = format!("{}:{}", first.display(), path.display());
        let with_both = format!("[agent.a]\ncommand = \"mine\"\nenv = {{ PATH = {both:?} }}\n");
        assert_eq!(of(path, &with_both), [""; 0]);
        let names = "[agent.a]\ncommand = \"true\"\nenv_pass = [\"A\", \"B?\", \"C*\"]\n";
        assert_eq!(of(path, names), ["env_pass names A, which is not set"]);
    }

    #[test]
    fn what_is_commonly_missed_is_said_with_those_who_miss_it() {
        let text = "[agent.a]\ncommand = \"true\"\nenv_pass = [\"*_PROXY\"]\n\
                    [agent.b]\ncommand = \"true\"\nenv = { SSH_AUTH_SOCK = \"x\" }\n";
        let config = config(Path::new("/p"), text);
        let set = |names: &'static [&'static str]| missed(&config, |name| names.contains(&name));
        assert_eq!(
            set(&["HTTPS_PROXY", "SSL_CERT_FILE"]),
            [
                "HTTPS_PROXY is set here and not passed on to b; env_pass would do that",
                "SSL_CERT_FILE is set here and passed on to no agent; env_pass would do that",
            ]
        );
        assert_eq!(
            set(&["SSH_AUTH_SOCK"]),
            ["SSH_AUTH_SOCK is set here and not passed on to a; env_pass would do that"]
        );
        assert_eq!(set(&["EDITOR"]), [""; 0]);
    }
}
