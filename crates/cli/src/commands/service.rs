//! `defib service`: the daemon as a service of this machine's.
//!
//! It writes and removes one file and says what to do next; it never talks to the service manager,
//! which would start and stop things that nobody named.

use std::path::{Path, PathBuf};

use clap::Subcommand;

use super::{ConfigFile, Context};
use crate::deploy::systemd::{MARK, Unit};
use crate::deploy::{Setting, grace};
use crate::failure::{Code, Failure};
use crate::output;

/// Have the daemon started by systemd
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without -f the daemon brings up what was up before; with it, that project too.

Examples:
  defib service install
  defib service install -f defib.toml --dry-run
  defib service install --system
  defib service status
  defib service uninstall")]
pub(crate) struct Service {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, Subcommand)]
enum Act {
    /// Write the unit, and say what to do next
    Install(Install),
    /// Remove the unit
    Uninstall(Which),
    /// Say whether it is there
    Status(Which),
}

#[derive(Debug, clap::Args)]
struct Install {
    #[command(flatten)]
    which: Which,
    /// The project that it brings up
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct Which {
    /// For your own systemd; this is so unless --system is given
    #[arg(long, conflicts_with = "system")]
    user: bool,
    /// For the machine's systemd
    #[arg(long)]
    system: bool,
    /// Print what would be done
    #[arg(long)]
    dry_run: bool,
    /// The folder that stands for / in paths
    #[arg(long, value_name = "DIR", hide = true)]
    root: Option<PathBuf>,
}

impl Service {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        if !cfg!(target_os = "linux") {
            return Err(Failure::new(Code::Failed, "services are not on this system yet")
                .hint("`defib up --detach` starts the daemon"));
        }
        match &self.act {
            Act::Install(install) => install.run(context),
            Act::Uninstall(which) => which.uninstall(),
            Act::Status(which) => which.status(),
        }
    }
}

impl Which {
    /// Where the unit lies.
    fn unit(&self) -> Result<PathBuf, Failure> {
        let root = self.root.clone().unwrap_or_else(|| PathBuf::from("/"));
        if self.system {
            return Ok(root.join("etc/systemd/system/defib.service"));
        }
        let set =
            |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let config = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
        let config = config.ok_or_else(|| {
            Failure::new(Code::Failed, "there is no home folder to write a unit to")
                .hint("set HOME, or use --system")
        })?;
        Ok(config.join("systemd/user/defib.service"))
    }

    fn systemctl(&self) -> &'static str {
        if self.system { "systemctl" } else { "systemctl --user" }
    }

    fn uninstall(&self) -> Result<(), Failure> {
        let path = self.unit()?;
        let (shown, systemctl) = (path.display(), self.systemctl());
        match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return output::print(&format!("there is no {shown}\n"));
            }
            Err(error) => return Err(cannot("read", &path, &error)),
            Ok(text) => only_ours(&path, &text)?,
        }
        if self.dry_run {
            return output::print(&format!("would remove {shown}\n"));
        }
        std::fs::remove_file(&path).map_err(|error| cannot("remove", &path, &error))?;
        output::print(&format!(
            "removed {shown}\nnext: {systemctl} stop defib; {systemctl} daemon-reload\n"
        ))
    }

    fn status(&self) -> Result<(), Failure> {
        let path = self.unit()?;
        let there = if path.exists() { "is there" } else { "is not there" };
        let mut asked = std::process::Command::new("systemctl");
        if !self.system {
            asked.arg("--user");
        }
        let answer = asked.args(["is-active", "defib.service"]).output();
        let said =
            answer.ok().map(|answer| String::from_utf8_lossy(&answer.stdout).trim().to_owned());
        let said = said.filter(|said| !said.is_empty());
        let said = said.unwrap_or_else(|| "it does not answer".to_owned());
        output::print(&format!("{} {there}\nsystemd says: {said}\n", path.display()))?;
        if path.exists() {
            return Ok(());
        }
        Err(Failure::new(Code::Failed, "the service is not installed")
            .hint("`defib service install` writes its unit"))
    }
}

impl Install {
    fn run(&self, context: &Context) -> Result<(), Failure> {
        let path = self.which.unit()?;
        let failed = |error: std::io::Error| Failure::new(Code::Failed, error);
        let program = std::env::current_exe().map_err(failed)?;
        let home = match (&context.home, self.which.system) {
            (None, true) => PathBuf::from("/var/lib/defib"),
            (Some(_), _) | (None, false) => context.home()?.path().to_owned(),
        };
        let file = self.file.as_deref().map(std::path::absolute).transpose().map_err(failed)?;
        let named = self.file.clone().map(ConfigFile::at);
        let config = named.as_ref().map(ConfigFile::config).transpose()?;
        let both = named.as_ref().zip(config.as_ref());
        let setting = both.map(|(file, config)| Setting::of(file, config));
        let unit = Unit {
            program: &program,
            home: &home,
            file: file.as_deref(),
            setting: setting.as_ref(),
            grace: config.as_ref().map(grace),
            for_user: !self.which.system,
        };
        let text = unit.text();
        if self.which.dry_run {
            return output::print(&format!("# would be written to {}\n{text}", path.display()));
        }
        match std::fs::read_to_string(&path) {
            Ok(old) => only_ours(&path, &old)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(cannot("read", &path, &error)),
        }
        let folder = path.parent().unwrap_or(&path);
        std::fs::create_dir_all(folder).map_err(|error| cannot("make", folder, &error))?;
        std::fs::write(&path, text).map_err(|error| cannot("write", &path, &error))?;
        let systemctl = self.which.systemctl();
        let linger = if self.which.system {
            ""
        } else {
            "so that it runs while you are logged out: loginctl enable-linger\n"
        };
        output::print(&format!(
            "wrote {}\nnext: {systemctl} daemon-reload && {systemctl} enable --now defib\n{linger}",
            path.display()
        ))
    }
}

/// A unit that somebody else wrote is left alone.
fn only_ours(path: &Path, text: &str) -> Result<(), Failure> {
    if text.starts_with(MARK) {
        return Ok(());
    }
    Err(Failure::new(Code::Failed, format!("{} was not written by defib", path.display()))
        .hint("move it away first, if it is not needed"))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Code::Failed, format!("cannot {what} {}: {error}", path.display()))
        .hint("--system needs root; without it the unit is your own")
}
