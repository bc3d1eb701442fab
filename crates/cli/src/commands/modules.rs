//! What modules are checked for before anything is started: the runner, the packages, the registry.
//!
//! None of it keeps anything from being started. What is wrong is said, and that is all.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use defib_config::Config;
use defib_config::foreign::aivex::registry;

/// How often the status line of modules is printed where nobody says otherwise.
const STATUS_LINE: Duration = Duration::from_secs(30);

/// How often the status line is printed, if at all: as often as somebody said, else for modules where
/// nobody looks at a view that is always there.
pub(crate) fn status_line_every(
    said: Option<Duration>,
    has_modules: bool,
    on_terminal: bool,
) -> Option<Duration> {
    said.or((has_modules && !on_terminal).then_some(STATUS_LINE))
}

/// What looks wrong: runners first, then packages, then the registry, in the order of the file.
pub(crate) fn check(config: &Config) -> Vec<String> {
    let modules = || {
        let enabled = config.agents.iter().filter(|agent| agent.enabled);
        enabled.filter_map(|agent| Some((&agent.name, agent.module.as_ref()?)))
    };
    let at = |path: &Path| config.folder.join(path);
    let mut warnings = Vec::new();
    let mut seen: Vec<PathBuf> = Vec::new();
    for (_, module) in modules() {
        let runner = at(&module.runner);
        if seen.contains(&runner) {
            continue;
        }
        match runner.metadata() {
            Err(_) => warnings.push(format!("the runner {} is not there", runner.display())),
            Ok(file) if file.len() == 0 => {
                warnings.push(format!("the runner {} is empty", runner.display()));
            }
            Ok(_) => {}
        }
        seen.push(runner);
    }
    for (name, module) in modules() {
        let package = at(&module.package);
        if !package.is_dir() {
            warnings.push(format!("{name}: its package {} is no folder", package.display()));
        }
    }
    for (name, module) in modules() {
        let path = at(module.registry.as_ref().unwrap_or(&module.runner));
        let text = match defib_daemon::read_plain(&path) {
            Ok(text) => text,
            // Of a runner that is not there or has nothing in it, it has been said.
            Err(_) if seen.contains(&path) => continue,
            Err(error) => {
                let shown = path.display();
                warnings.push(if error.kind() == io::ErrorKind::NotFound {
                    format!("the registry {shown} is not there")
                } else {
                    format!("the registry {shown} cannot be read: {error}")
                });
                seen.push(path);
                continue;
            }
        };
        if registry(&text).is_some_and(|known| known.iter().any(|known| known == name.as_str())) {
            continue;
        }
        let shown = path.display();
        warnings.push(format!("{name}: it is not in the MODULE_REGISTRY of {shown}"));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_registry_that_is_a_pipe_is_said_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("runner.py"), "x\n").unwrap();
        let pipe = folder.path().join("registry.py");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let text = "[module.news]\nrunner = \"runner.py\"\npackage = \".\"\n\
                    registry = \"registry.py\"\n";
        let config = defib_config::parse_in(folder.path(), text).config.unwrap();
        let told = check(&config);
        let [told] = told.as_slice() else { panic!("{told:?}") };
        assert!(told.contains("the registry") && told.contains("no regular file"), "{told}");
    }

    #[test]
    fn the_status_line_of_modules_comes_every_30_seconds_unless_somebody_says_otherwise() {
        let second = Some(Duration::from_secs(1));
        let usual = Some(Duration::from_secs(30));
        for (said, has_modules, on_terminal, every) in [
            (None, true, false, usual),
            (None, true, true, None),
            (None, false, false, None),
            (second, true, false, second),
            (second, false, true, second),
        ] {
            assert_eq!(status_line_every(said, has_modules, on_terminal), every);
        }
    }
}
